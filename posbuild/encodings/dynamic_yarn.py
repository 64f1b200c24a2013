"""Dynamic YaRN (Peng et al. 2024, arXiv:2309.00071, sections 3.2 to 3.4): the factor is the text's length over the original."""

from __future__ import annotations

from torch import Tensor

from posbuild.declaration import Dims
from posbuild.encodings.base import constants
from posbuild.encodings.rope import RopeByLength
from posbuild.schemes.rope_by_parts import RampOptions


class DynamicYarn(RopeByLength):
    """What `yarn` declares, with a factor that depends on the row."""

    options: RampOptions

    def __init__(self, options: RampOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.slowed = options.slowed(dims)

    def at_length(self, length_B11: Tensor) -> tuple[Tensor, Tensor]:
        factor_B11 = (length_B11 / self.original).clamp(min=1)
        radians_P, slowed_P = (constants(numbers, length_B11.device) for numbers in (self.tables[0], self.slowed))
        return radians_P * (1 - slowed_P * (1 - 1 / factor_B11)), 0.1 * factor_B11.log() + 1
