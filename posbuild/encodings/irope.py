"""iRoPE of Llama 4: rope in most layers; in the others queries grow with the logarithm of their position, in steps."""

from __future__ import annotations

from torch import Tensor

from posbuild.encodings.rope import Rope, Turn, counted, scaled
from posbuild.schemes.irope import IropeOptions


class Irope(Rope):
    """q *= 1 + temperature * ln(1 + floor((p + 1) / length)) in the layers that do not turn."""

    options: IropeOptions

    def at_queries(self, q_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: list[Turn | None]) -> Tensor:
        if self.tables[self.kinds[layer]]:
            return super().at_queries(q_BHTD, positions_BT, layer, shared)
        lengths_BT = counted(positions_BT) // self.options.original(self.dims)
        return scaled(q_BHTD, 1 + self.options.temperature * lengths_BT.log1p()).to(q_BHTD.dtype)
