"""A scalar bias by clipped distance (clipping: Shaw et al. 2018, arXiv:1803.02155; scalars: Raffel et al. 2020, arXiv:1910.10683)."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from posbuild.bias import OfDistance
from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding
from posbuild.schemes.relative import RelativeOptions


class Relative(Encoding):
    """score += table[layer, head, clip(i - j)], or of |i - j|."""

    options: RelativeOptions

    def __init__(self, options: RelativeOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.signed = options.resolved(dims).signed
        tables, far = 1 if options.share_layers else dims.n_layers, options.max_distance
        self.table = nn.Parameter(torch.empty(tables, dims.n_heads, 2 * far + 1 if self.signed else far + 1))

    def prepare(self, positions_BT: Tensor) -> list[OfDistance]:
        return [OfDistance(partial(self.look_up, table)) for table in self.table.unbind()]

    def look_up(self, table_HN: Tensor, distance: Tensor) -> Tensor:
        """The bias of distances of any shape S, (H, *S)."""
        return table_HN[:, self.index(distance)]

    def index(self, distance: Tensor) -> Tensor:
        """The column of the table for distances of any shape."""
        far = self.options.max_distance
        return distance.clamp(-far, far) + far if self.signed else distance.abs().clamp(max=far)

    def at_scores(
        self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: list[OfDistance]
    ) -> OfDistance:
        return shared[layer % len(shared)]

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        nn.init.zeros_(parameter)
