"""Rope with log-n scaled attention (Su 2021, kexue.fm/archives/8823)."""

from __future__ import annotations

import math

from torch import Tensor

from posbuild.encodings.base import widest
from posbuild.encodings.rope import Rope, Turn, scaled
from posbuild.schemes.rope import OriginalOptions


class RopeLogn(Rope):
    """q *= max(1, ln(p + 1) / ln(length)), then rope."""

    options: OriginalOptions

    def at_queries(self, q_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: list[Turn | None]) -> Tensor:
        # At least 1: positions drawn in training may be negative.
        tokens_BT = (positions_BT.to(widest(positions_BT.device)) + 1).clamp(min=1)
        grown_BT = tokens_BT.log() / math.log(self.options.original(self.dims))
        return super().at_queries(scaled(q_BHTD, grown_BT.clamp(min=1)), positions_BT, layer, shared).to(q_BHTD.dtype)
