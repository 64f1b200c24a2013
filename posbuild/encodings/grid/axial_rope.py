"""Rotary encoding by axis (Heo et al. 2024, arXiv:2403.13298; sections: Wang et al. 2024, arXiv:2409.12191)."""

from __future__ import annotations

import torch
from torch import Tensor

from posbuild.declaration import Dims
from posbuild.encodings.base import constants, moved
from posbuild.encodings.rope import Rope, Turn
from posbuild.schemes.grid.axial_rope import AxialRopeOptions
from posbuild.schemes.grid.mrope import MropeOptions


class AxialRope(Rope):
    """Pair c turns by the position on its axis times its frequency."""

    options: AxialRopeOptions | MropeOptions

    def __init__(self, options: AxialRopeOptions | MropeOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.axis_of_pair = options.axis_of_pair(dims)

    def prepare(self, positions_BTA: Tensor) -> list[Turn | None]:
        position_BTP = positions_BTA[..., moved(torch.tensor(self.axis_of_pair), positions_BTA.device)]
        frequencies = [constants(table, positions_BTA.device) for table in self.tables]
        return [self.turn_by(position_BTP.to(each.dtype) * each, self.magnitude) for each in frequencies]
