"""Sinusoidal codes by axis (He et al. 2021, arXiv:2111.06377, released code)."""

from __future__ import annotations

import torch
from torch import Tensor

from posbuild.encodings.sinusoidal import Sinusoidal
from posbuild.schemes.grid.axial_sinusoidal import AxialSinusoidalOptions


class AxialSinusoidal(Sinusoidal):
    """code = the sinusoidal codes of the coordinates, each of d_model / axes channels, joined."""

    options: AxialSinusoidalOptions

    @property
    def width(self) -> int:
        return self.dims.d_model // self.options.axes

    def codes(self, positions: Tensor) -> Tensor:
        return torch.cat([super(AxialSinusoidal, self).codes(each) for each in positions.unbind(-1)], dim=-1)
