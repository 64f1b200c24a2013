"""Swin's bias (Liu et al. 2021, arXiv:2103.14030, section 3.2, equation 4)."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from posbuild.bias import OfPositions
from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding
from posbuild.schemes.grid.swin import SwinOptions


class Swin(Encoding):
    """score += table[layer, (rows + M - 1) (2 M - 1) + columns + M - 1, head], of the offsets query minus key."""

    options: SwinOptions

    def __init__(self, options: SwinOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.side = 2 * options.window - 1
        self.table = nn.Parameter(torch.empty(dims.n_layers, self.side**2, dims.n_heads))

    def bias(self, layer: int, q_positions_PA: Tensor, k_positions_PA: Tensor) -> Tensor:
        """The bias of pairs of positions, (H, P)."""
        rows, columns = (q_positions_PA - k_positions_PA + self.options.window - 1).unbind(-1)
        inside = (rows >= 0) & (rows < self.side) & (columns >= 0) & (columns < self.side)
        # Outside the window the number could be that of another offset: one that does not exist is looked up.
        index = torch.where(inside, rows * self.side + columns, self.side**2)
        return nn.functional.embedding(index, self.table[layer]).T

    def prepare(self, positions_BTA: Tensor) -> list[OfPositions]:
        return [OfPositions(partial(self.bias, layer)) for layer in range(self.dims.n_layers)]

    def at_scores(
        self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: list[OfPositions]
    ) -> OfPositions:
        return shared[layer]

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        nn.init.trunc_normal_(parameter, std=0.02, generator=generator)
