"""What a score bias says it is: the one small file where encodings and attention meet.

`dense` takes the positions of queries and keys and a dtype, float32 or better: positions in half precision collapse.

Suffixes: B batch (1 where all rows share their positions), H heads, Q queries, K keys, D head width, C numbers kept of
a token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


def distances(q_positions_BQ: Tensor, k_positions_BK: Tensor) -> Tensor:
    """Query position minus key position, in tokens, (B, Q, K)."""
    return q_positions_BQ[:, :, None] - k_positions_BK[:, None, :]


@dataclass(frozen=True)
class AffineInDistance:
    """slope * |distance|, with one slope a head for keys before the query and one for keys after it (ALiBi)."""

    before_H: Tensor
    after_H: Tensor

    def dense(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, dtype: torch.dtype) -> Tensor:
        """(B, H, Q, K)."""
        distance_BQK = distances(q_positions_BQ, k_positions_BK).to(dtype)[:, None]
        before, after = self.before_H.to(dtype)[:, None, None], self.after_H.to(dtype)[:, None, None]
        return torch.where(distance_BQK >= 0, before * distance_BQK, -after * distance_BQK)


@dataclass(frozen=True)
class OfDistance:
    """A function of the distance alone (T5, KERPLE): `of` takes distances of any shape S to (H, *S)."""

    of: Callable[[Tensor], Tensor]

    def dense(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, dtype: torch.dtype) -> Tensor:
        """(B, H, Q, K)."""
        distance_BQK = distances(q_positions_BQ, k_positions_BK)
        each_N = each_once(distance_BQK)
        if each_N is None:
            return self.of(distance_BQK).to(dtype).transpose(0, 1)
        return self.of(each_N).to(dtype)[:, distance_BQK - each_N[0]].transpose(0, 1)


def each_once(distance: Tensor) -> Tensor | None:
    """All distances from the least to the greatest, (N,), where these are fewer than the pairs: a network or a sum of
    cosines for each pair would fill the memory. None where finding them costs more: they depend on data, which a
    compiled model must not, and which a GPU makes wait for (what it would save there grows with the pairs).
    """
    waits = distance.device.type != "cpu" and distance.numel() < WORTH_WAITING
    if torch.compiler.is_compiling() or distance.is_floating_point() or waits:
        return None
    least, most = (int(bound) for bound in distance.aminmax())
    return torch.arange(least, most + 1, device=distance.device) if most - least < distance.numel() else None


@dataclass(frozen=True)
class OfPositions:
    """A function of both positions (FIRE): `of` takes those of queries and keys, pair by pair, (P,) each, or (P, axes), to
    (H, P)."""

    of: Callable[[Tensor, Tensor], Tensor]

    def dense(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, dtype: torch.dtype) -> Tensor:
        """(B, H, Q, K)."""
        pairs = torch.broadcast_tensors(q_positions_BQ[:, :, None], k_positions_BK[:, None, :])
        shape, (q_P, k_P) = pairs[0].shape[:3], (each.flatten(0, 2) for each in pairs)
        if torch.compiler.is_compiling():  # fuses what is held for a pair
            bias_HP = self.of(q_P, k_P).to(dtype)
        else:
            parts = zip(q_P.split(PART), k_P.split(PART), strict=True)
            bias_HP = torch.cat([self.of(q, k).to(dtype) for q, k in parts], dim=1)
        return bias_HP.unflatten(1, shape).transpose(0, 1)


@dataclass(frozen=True)
class Seen:
    """What scores that depend on content may look at: all keys of one layer and some of its queries, row by row.

    q_BHQD, k_BHKD  queries and keys as the encoding left them, in float32 or better; every query head has its key head
    scale           the factor on q·k
    q_positions_BQ, k_positions_BK
    visible_BHQK    (B, 1, Q, K) bool: true where the query sees the key
    queries         the places of the queries' own tokens among the keys
    kept_BKC        what `Encoding.at_tokens` kept of each token; None: nothing
    documents_BK    document of each key; None: all are of one
    """

    q_BHQD: Tensor
    k_BHKD: Tensor
    scale: float
    q_positions_BQ: Tensor
    k_positions_BK: Tensor
    visible_BHQK: Tensor
    queries: slice
    kept_BKC: Tensor | None
    documents_BK: Tensor | None = None

    @property
    def scores(self) -> Tensor:
        """q·k·scale, (B, H, Q, K)."""
        return self.q_BHQD @ self.k_BHKD.transpose(-2, -1) * self.scale


def softmax(scores_BHQK: Tensor, seen: Seen) -> Tensor:
    """Weights of the visible keys, (B, H, Q, K)."""
    return scores_BHQK.masked_fill(~seen.visible_BHQK, float("-inf")).softmax(dim=-1)


@dataclass(frozen=True)
class OfContent:
    """Scores that depend on queries, keys or token vectors (Shaw, CoPE, FoX).

    scores   the scores in place of q·k·scale, (B, H, Q, K): those of a query must not depend on other queries
    weights  from scores to the weights of the values, where softmax is not what the scheme does (stick-breaking)
    values   from the weights to what is added to the values that they gather, (B, H, Q, D) (Shaw's second table)
    """

    scores: Callable[[Seen], Tensor]
    weights: Callable[[Tensor, Seen], Tensor] = softmax
    values: Callable[[Tensor, Seen], Tensor] | None = None


WORTH_WAITING = 2**20  # pairs of tokens
PART = 2**18  # pairs of tokens that are computed at once: a network holds some hundred numbers for each

Positional = AffineInDistance | OfDistance | OfPositions
Bias = Positional | OfContent
