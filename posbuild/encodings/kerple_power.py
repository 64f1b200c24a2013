"""KERPLE, power (Chi et al. 2022, arXiv:2205.09921, section 4).

The factor is learned in the logarithm and the power as 2 * sigmoid, which keeps them in (0, inf) and (0, 2), where the
kernel is conditionally positive definite. The authors clamp the parameters themselves at each forward pass, to at least
0.01 and the power to at most 2; `kerple_log` says why not here. They start as there, shared by all layers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from posbuild.declaration import Dims
from posbuild.encodings.base import SharedDistanceBias, by_head, widest
from posbuild.schemes.kerple_power import KerplePowerOptions

LEAST, MOST = 0.01, 2.0  # of the authors' parameters; the second of the power alone


class KerplePower(SharedDistanceBias):
    """score -= r1[head] * |i - j|^r2[head]."""

    options: KerplePowerOptions

    def __init__(self, options: KerplePowerOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.divisor = math.sqrt(dims.head_dim) if options.divided else 1.0
        self.log_r1 = nn.Parameter(torch.empty(dims.n_heads))
        self.logit_r2 = nn.Parameter(torch.empty(dims.n_heads))

    def bias(self, distance: Tensor) -> Tensor:
        r1, r2 = by_head(self.log_r1, distance).exp(), MOST * by_head(self.logit_r2, distance).sigmoid()
        # `pow` knows that 0^r2 does not move with r2; exp(r2 log 0) would have the gradient nan.
        return -r1 / self.divisor * distance.abs().to(widest(distance.device)).pow(r2)

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        drawn = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            if name == "log_r1":
                parameter.copy_(drawn.clamp(min=LEAST).log())
            else:
                parameter.copy_(drawn.clamp(min=LEAST / MOST).logit())
