"""LongRoPE (Ding et al. 2024, arXiv:2402.13753): frequencies divided by one list of factors, by another in a longer text."""

from __future__ import annotations

import torch
from torch import Tensor

from posbuild.declaration import Dims
from posbuild.encodings.base import constants
from posbuild.encodings.rope import RopeByLength
from posbuild.schemes.longrope import LongropeOptions


class Longrope(RopeByLength):
    """The long list holds for all tokens of a row that is longer than the original length."""

    options: LongropeOptions

    def __init__(self, options: LongropeOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.short, self.long = options.short_divisors(dims), options.long_divisors(dims)

    def at_length(self, length_B11: Tensor) -> tuple[Tensor, float]:
        radians_P, short_P, long_P = (
            constants(numbers, length_B11.device) for numbers in (self.tables[0], self.short, self.long)
        )
        return radians_P / torch.where(length_B11 > self.original, long_P, short_P), self.magnitude
