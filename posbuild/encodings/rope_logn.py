"""Rope with log-n scaled attention (Su 2021, kexue.fm/archives/8823)."""

from __future__ import annotations

from torch import Tensor

from posbuild.encodings.rope import Rope, Turn, log_growth, scaled
from posbuild.schemes.rope import OriginalOptions


class RopeLogn(Rope):
    """q *= max(1, ln(p + 1) / ln(length)), then rope."""

    options: OriginalOptions

    def at_queries(self, q_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: list[Turn | None]) -> Tensor:
        grown_BT = log_growth(positions_BT, self.options.original(self.dims))
        return super().at_queries(scaled(q_BHTD, grown_BT), positions_BT, layer, shared).to(q_BHTD.dtype)
