"""Sinusoidal codes (Vaswani et al. 2017, arXiv:1706.03762, section 3.5)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posbuild.declaration import Dims
from posbuild.encodings.base import AbsoluteCode, angles
from posbuild.schemes.sinusoidal import Layout, SinusoidalOptions


class Sinusoidal(AbsoluteCode):
    """code[2c] = scale * sin(p / base^(2c/d)), code[2c+1] = scale * cos(the same); the last sine of an odd d has no cosine."""

    options: SinusoidalOptions

    def __init__(self, options: SinusoidalOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.scale = nn.Parameter(torch.empty(())) if options.learn_scale else None

    @property
    def width(self) -> int:
        """Channels of a code."""
        return self.dims.d_model

    def codes(self, positions: Tensor) -> Tensor:
        width = self.width
        angle = angles(positions, [self.options.base ** (-2 * pair / width) for pair in range((width + 1) // 2)])
        sine, cosine = angle.sin(), angle[..., : width // 2].cos()
        if self.options.layout is Layout.half:
            code = torch.cat([sine, cosine], dim=-1)
        else:
            code = angle.new_empty(*positions.shape, width)
            code[..., 0::2], code[..., 1::2] = sine, cosine
        return code * (self.options.scale if self.scale is None else self.scale)

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        if name == "scale":
            nn.init.constant_(parameter, self.options.scale)
        else:
            super().init_parameter(name, parameter, generator)
