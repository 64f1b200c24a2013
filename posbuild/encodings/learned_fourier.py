"""Learnable Fourier features (Li et al. 2021, arXiv:2106.02795, algorithm 1, equations 2 and 6), for one axis of positions.

Positions go in as they are counted, in tokens, never divided by a length: then a text has the same codes whatever stands
beside it, and gamma is a distance in tokens. The features r of the start have r(p)·r(q) near exp(-(p - q)^2 / (2 gamma^2)) / 2.
The authors released no code. In the paper each group of axes has such a code and these are joined; a text has one axis.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posbuild.declaration import Dims
from posbuild.encodings.base import AbsoluteCode, start_linear, widest
from posbuild.schemes.learned_fourier import LearnedFourierOptions


class LearnedFourier(AbsoluteCode):
    """code = W_2 gelu(W_1 r + b_1) + b_2 with r = [cos(p w), sin(p w)] / sqrt(F), F numbers."""

    options: LearnedFourierOptions

    def __init__(self, options: LearnedFourierOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        waves = options.waves(dims)
        self.frequency = nn.Parameter(torch.empty(waves))
        self.weight_in = nn.Parameter(torch.empty(options.width, 2 * waves))
        self.bias_in = nn.Parameter(torch.empty(options.width))
        self.weight_out = nn.Parameter(torch.empty(dims.d_model, options.width))
        self.bias_out = nn.Parameter(torch.empty(dims.d_model))

    def codes(self, positions: Tensor) -> Tensor:
        wide = widest(positions.device)
        angle = positions.to(wide)[..., None] * self.frequency.to(wide)
        waves = torch.cat([angle.cos(), angle.sin()], dim=-1) * (2 * len(self.frequency)) ** -0.5
        hidden = nn.functional.linear(waves, self.weight_in.to(wide), self.bias_in.to(wide))
        return nn.functional.linear(nn.functional.gelu(hidden), self.weight_out.to(wide), self.bias_out.to(wide))

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        if name == "frequency":
            nn.init.normal_(parameter, std=1 / self.options.gamma, generator=generator)
        elif name == "projection":
            super().init_parameter(name, parameter, generator)
        elif name.startswith("bias"):  # at zero the code starts small beside the token vectors
            nn.init.zeros_(parameter)
        else:
            start_linear(parameter, parameter.shape[1], generator)
