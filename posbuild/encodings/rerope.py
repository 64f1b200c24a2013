"""ReRoPE (Su 2023, kexue.fm/archives/9708; code bojone/rerope), and the base of schemes that turn at the scores."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from posbuild.bias import OfContent, Seen, distances
from posbuild.declaration import Dims
from posbuild.encodings.base import angles, widest
from posbuild.encodings.rope import Rope, Turn, turn
from posbuild.schemes.rerope import WindowOptions


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


class ReRope(TurnedAtScores):
    """score = q·R(min(i - j, window))·k: two products, chosen between by the distance; one softmax over both."""

    options: WindowOptions

    def __init__(self, options: WindowOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.window = options.window_in(dims)

    def far(self, q_positions_BQ: Tensor, k_positions_BK: Tensor) -> tuple[Tensor, Tensor]:
        """Where queries and keys stand to each other beyond the window."""
        return torch.full_like(q_positions_BQ, self.window), torch.zeros_like(k_positions_BK)

    def scores(self, seen: Seen) -> Tensor:
        q_BHQD, k_BHKD, where = seen.q_BHQD, seen.k_BHKD, (seen.q_positions_BQ, seen.k_positions_BK)
        if self.options.log_n:
            q_BHQD = q_BHQD * self.growth(where[0])[:, None, :, None].to(q_BHQD.dtype)
        near, beyond = (
            self.turned(q_BHQD, q_positions) @ self.turned(k_BHKD, k_positions).transpose(-2, -1)
            for q_positions, k_positions in (where, self.far(*where))
        )
        return torch.where(distances(*where)[:, None] < self.window, near, beyond) * seen.scale

    def growth(self, positions: Tensor) -> Tensor:
        """The factor on the query at each position: 1 to the original length, beyond it growing with the logarithm."""
        # At least 1: positions drawn in training may be negative.
        tokens = (positions.to(widest(positions.device)) + 1).clamp(min=1)
        return (tokens.log() / math.log(self.options.original(self.dims))).clamp(min=1)
