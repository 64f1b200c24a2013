"""Self-Extend (Jin et al. 2024, arXiv:2401.01325, section 3.2; code datamllab/LongLM)."""

from __future__ import annotations

from torch import Tensor

from posbuild.encodings.rerope import ReRope
from posbuild.schemes.self_extend import SelfExtendOptions


class SelfExtend(ReRope):
    """score = q·R(i - j)·k within the window w, q·R(i//g - j//g + w - w//g)·k beyond it, g the group."""

    options: SelfExtendOptions

    def far(self, q_positions_BQ: Tensor, k_positions_BK: Tensor) -> tuple[Tensor, Tensor]:
        group = self.options.group
        return q_positions_BQ // group + (self.window - self.window // group), k_positions_BK // group
