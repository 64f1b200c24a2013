"""Rotary encoding (Su et al. 2021, arXiv:2104.09864, section 3.2.2) and all that only turns by other frequencies.

The declarations of such schemes say how fast each pair turns in which layer; this class turns.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from posbuild.bias import OfContent, Seen
from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding, angles, widest
from posbuild.schemes.rope import OriginalOptions, Pairing, RopeOptions

Turn = tuple[Tensor, Tensor]  # of each rotary channel the cosine, and the sine with the sign of its partner, (B, T, R)


class Rope(Encoding):
    """Pair c of the rotary width R turns by p times its frequency, for queries and keys of every layer that turns.

    Layers of one kind share a table of frequencies; one whose table is empty turns nothing.
    """

    options: RopeOptions

    def __init__(self, options: RopeOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        by_layer = [tuple(options.radians_per_token(dims, layer)) for layer in range(dims.n_layers)]
        self.tables = [*dict.fromkeys(by_layer)]  # of each kind of layer
        self.kinds = [self.tables.index(table) for table in by_layer]  # of each layer
        self.magnitude = options.magnitude(dims)

    def prepare(self, positions_BT: Tensor) -> list[Turn | None]:
        """The turn of each kind of layer."""
        return [self.turn_by(angles(positions_BT, table), self.magnitude) if table else None for table in self.tables]

    def turn_by(self, angle_BTP: Tensor, magnitude: float | Tensor = 1.0) -> Turn:
        """The turn by an angle for each pair, which lengthens by the magnitude."""
        cos, sin = angle_BTP.cos() * magnitude, angle_BTP.sin() * magnitude
        if self.options.layout is Pairing.half:
            return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)
        return torch.stack([cos, cos], dim=-1).flatten(-2), torch.stack([-sin, sin], dim=-1).flatten(-2)

    def at_queries(self, q_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: list[Turn | None]) -> Tensor:
        by, tokens = shared[self.kinds[layer]], q_BHTD.shape[2]
        return q_BHTD if by is None else turn(q_BHTD, by[0][:, -tokens:], by[1][:, -tokens:], self.options.layout)

    def at_keys(self, k_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: list[Turn | None]) -> Tensor:
        by, tokens = shared[self.kinds[layer]], k_BHTD.shape[2]
        return k_BHTD if by is None else turn(k_BHTD, by[0][:, :tokens], by[1][:, :tokens], self.options.layout)


class RopeByLength(Rope):
    """Base of rotary encodings that turn by other frequencies in a longer text, all of its tokens.

    The length of a row is its largest position, of queries and keys, plus 1.
    """

    keys_change = True

    def __init__(self, options: OriginalOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.original = options.original(dims)

    def at_length(self, length_B11: Tensor) -> tuple[Tensor, float | Tensor]:
        """Frequencies (B, 1, P), in the dtype of the length, and magnitude in a text of this length."""
        raise NotImplementedError

    def prepare(self, positions_BT: Tensor) -> list[Turn | None]:
        positions_BT1 = positions_BT.to(widest(positions_BT.device))[..., None]
        radians_B1P, magnitude = self.at_length(positions_BT1.amax(dim=1, keepdim=True) + 1)
        return [self.turn_by(positions_BT1 * radians_B1P, magnitude)]


class TurnedAtScores(Rope):
    """Base of rotary schemes whose scores are no product of a turned query and a turned key.

    Both stay as they came, and a cache holds them so; the scores turn them.
    """

    def prepare(self, positions_BT: Tensor) -> list[Turn | None]:
        return []

    def at_queries(self, q_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: Any) -> Tensor:
        return q_BHTD

    def at_keys(self, k_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: Any) -> Tensor:
        return k_BHTD

    def at_scores(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: Any) -> OfContent:
        return OfContent(self.scores)

    def turned(self, x_BHTD: Tensor, positions_BT: Tensor) -> Tensor:
        """Queries or keys, turned as rope turns them at these positions, fractions among them."""
        return turn(x_BHTD, *self.turn_by(angles(positions_BT, self.tables[0])), self.options.layout)

    def scores(self, seen: Seen) -> Tensor:
        """The scores of what is seen, (B, H, Q, K)."""
        raise NotImplementedError


def counted(positions: Tensor) -> Tensor:
    """How many tokens there are up to each position, itself among them, of any shape; at least 1, for positions drawn in
    training may be negative."""
    return (positions.to(widest(positions.device)) + 1).clamp(min=1)


def log_growth(positions: Tensor, length: int) -> Tensor:
    """The factor on the query at each position: 1 to this length, beyond it growing with the logarithm (log-n scaling)."""
    return (counted(positions).log() / math.log(length)).clamp(min=1)


def scaled(x_BHTD: Tensor, by_BT: Tensor) -> Tensor:
    """Queries times a number for each token, in float32 or better."""
    wide = torch.promote_types(x_BHTD.dtype, torch.float32)
    return x_BHTD.to(wide) * by_BT[:, None, :, None].to(wide)


def turn(x_BHTD: Tensor, cos_BTR: Tensor, sin_BTR: Tensor, layout: Pairing) -> Tensor:
    """Turn the first R channels in pairs, in float32 or better; the others pass unchanged. Keeps shape and dtype.

    Heads that turn each in their own way have (B, T, H, R).
    """
    wide = torch.promote_types(x_BHTD.dtype, torch.float32)
    cos, sin = ((each.transpose(1, 2) if each.dim() == 4 else each[:, None]).to(wide) for each in (cos_BTR, sin_BTR))
    width = cos.shape[-1]
    rotary = x_BHTD[..., :width].to(wide)
    # `roll` and `addcmul` take three passes over the channels where products of halves, joined again, take seven.
    partner = (
        rotary.roll(width // 2, -1) if layout is Pairing.half else rotary.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    )
    turned = torch.addcmul(rotary * cos, partner, sin).to(x_BHTD.dtype)
    return turned if width == x_BHTD.shape[-1] else torch.cat([turned, x_BHTD[..., width:]], dim=-1)
