"""ReRoPE (Su 2023, kexue.fm/archives/9708; code bojone/rerope)."""

from __future__ import annotations

import torch
from torch import Tensor

from posbuild.bias import Seen, distances
from posbuild.declaration import Dims
from posbuild.encodings.rope import TurnedAtScores, log_growth, scaled
from posbuild.schemes.rerope import NearFarOptions


class ReRope(TurnedAtScores):
    """score = q·R(min(i - j, window))·k: two products, chosen between by the distance; one softmax over both."""

    options: NearFarOptions

    def __init__(self, options: NearFarOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.window = options.window_in(dims)

    def far(self, q_positions_BQ: Tensor, k_positions_BK: Tensor) -> tuple[Tensor, Tensor]:
        """Where queries and keys stand to each other beyond the window."""
        return torch.full_like(q_positions_BQ, self.window), torch.zeros_like(k_positions_BK)

    def scores(self, seen: Seen) -> Tensor:
        q_BHQD, k_BHKD, where = seen.q_BHQD, seen.k_BHKD, (seen.q_positions_BQ, seen.k_positions_BK)
        if self.options.log_n:
            q_BHQD = scaled(q_BHQD, log_growth(where[0], self.options.original(self.dims)))
        near, beyond = (
            self.turned(q_BHQD, q_positions) @ self.turned(k_BHKD, k_positions).transpose(-2, -1)
            for q_positions, k_positions in (where, self.far(*where))
        )
        return torch.where(distances(*where)[:, None] < self.window, near, beyond) * seen.scale
