"""Leaky ReRoPE (Su 2023, kexue.fm/archives/9708; code bojone/rerope)."""

from __future__ import annotations

from torch import Tensor

from posbuild.encodings.base import widest
from posbuild.encodings.rerope import ReRope
from posbuild.schemes.leaky_rerope import LeakyReRopeOptions


class LeakyReRope(ReRope):
    """score = q·R(d)·k within the window w, q·R(w + (d - w) / factor)·k beyond it, d = i - j."""

    options: LeakyReRopeOptions

    def far(self, q_positions_BQ: Tensor, k_positions_BK: Tensor) -> tuple[Tensor, Tensor]:
        wide, factor = widest(q_positions_BQ.device), self.options.factor
        return (q_positions_BQ.to(wide) + self.window * (factor - 1)) / factor, k_positions_BK.to(wide) / factor
