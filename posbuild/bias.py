"""What a score bias says it is: the one small file where encodings and attention meet.

`dense` takes the positions of queries and keys and a dtype, float32 or better: positions in half precision collapse.

Suffixes: B batch (1 where all rows share their positions), H heads, Q queries, K keys.
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
    """A function of the distance alone (T5, relative): `of` takes distances of any shape S to (H, *S)."""

    of: Callable[[Tensor], Tensor]

    def dense(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, dtype: torch.dtype) -> Tensor:
        """(B, H, Q, K)."""
        return self.of(distances(q_positions_BQ, k_positions_BK)).to(dtype).transpose(0, 1)


Bias = AffineInDistance | OfDistance
