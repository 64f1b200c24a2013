"""Sandwich (Chi et al. 2023, arXiv:2212.10356, appendix E).

The inner product of two sinusoidal codes of `dim` channels is a sum of cosines of the distance, divided by a ratio of the
head. Taking off the half of `dim` that it has at distance 0 changes no weight: softmax does not see it.
"""

from __future__ import annotations

from torch import Tensor

from posbuild.declaration import Dims
from posbuild.encodings.base import SharedDistanceBias, angles, by_head, constants
from posbuild.schemes.sandwich import SandwichOptions


class Sandwich(SharedDistanceBias):
    """score += (sum over i of cos((i - j) / 10000^(2i/dim)) - dim/2) / (8 * (head + 1) / heads)."""

    options: SandwichOptions

    def __init__(self, options: SandwichOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        exponents = range(options.first, options.first + options.dim // 2)
        self.radians_per_token = [10_000.0 ** (-2 * i / options.dim) for i in exponents]
        self.ratios = [8 * head / dims.n_heads for head in range(1, dims.n_heads + 1)]

    def bias(self, distance: Tensor) -> Tensor:
        product = angles(distance, self.radians_per_token).cos().sum(dim=-1) - self.options.dim / 2
        return product / by_head(constants(self.ratios, distance.device), distance)
