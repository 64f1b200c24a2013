"""Dynamic NTK (Peng et al. 2024, arXiv:2309.00071, section 3.3): the slowest pair slows by what the text's length asks for."""

from __future__ import annotations

from torch import Tensor

from posbuild.declaration import Dims
from posbuild.encodings.base import constants
from posbuild.encodings.rope import RopeByLength
from posbuild.schemes.rope_dynamic_ntk import RopeDynamicNtkOptions
from posbuild.schemes.rope_ntk import exponents


class RopeDynamicNtk(RopeByLength):
    """Pair c of n turns by its frequency in rope over stretch^(c / (n - 1))."""

    options: RopeDynamicNtkOptions

    def __init__(self, options: RopeDynamicNtkOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.exponents = exponents(options, dims)

    def at_length(self, length_B11: Tensor) -> tuple[Tensor, float]:
        device, factor = length_B11.device, self.options.factor
        stretch_B11 = (factor * length_B11 / self.original - (factor - 1)).clamp(min=1)
        return constants(self.tables[0], device) / stretch_B11 ** constants(self.exponents, device), 1.0
