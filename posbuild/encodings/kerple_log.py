"""KERPLE, logarithmic (Chi et al. 2022, arXiv:2205.09921, section 4).

Both parameters are learned in the logarithm, which keeps them above 0. The authors write the larger of 0.01 and the
parameter into it at each forward pass: the same functions down to that bound, and an assignment that a compiled model or
one in shards does not see. They start as there, shared by all layers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from posbuild.declaration import Dims
from posbuild.encodings.base import SharedDistanceBias, by_head, widest
from posbuild.schemes.kerple_log import KerpleLogOptions

LEAST = 0.01  # of the authors' parameters


class KerpleLog(SharedDistanceBias):
    """score -= r1[head] * log(1 + r2[head] * |i - j|)."""

    options: KerpleLogOptions

    def __init__(self, options: KerpleLogOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.divisor = math.sqrt(dims.head_dim) if options.divided else 1.0
        self.log_r1 = nn.Parameter(torch.empty(dims.n_heads))
        self.log_r2 = nn.Parameter(torch.empty(dims.n_heads))

    def bias(self, distance: Tensor) -> Tensor:
        r1, r2 = by_head(self.log_r1, distance).exp(), by_head(self.log_r2, distance).exp()
        return -r1 / self.divisor * torch.log1p(r2 * distance.abs().to(widest(distance.device)))

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        drawn = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
        most = {"log_r1": 2.0, "log_r2": 1.0}[name]
        with torch.no_grad():
            parameter.copy_((most * drawn).clamp(min=LEAST).log())
