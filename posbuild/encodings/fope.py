"""FoPE (Hua et al. 2024, arXiv:2412.17739), as in the released code, TsinghuaC3I/Fourier-Position-Embedding.

A pair of channels, as a complex number, is multiplied by C(p) + i S(p), two sums over the frequencies; that is no
rotation, so scores depend on both positions and not on the distance alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding, angles, moved
from posbuild.schemes.fope import FopeOptions

Waves = tuple[Tensor, Tensor]  # cosine and sine of each frequency, (B, 1, T, N)


class Fope(Encoding):
    """Pair c of queries and keys is multiplied by sum over n of cos(p theta_n) A_nc + i sin(p theta_n) B_nc."""

    options: FopeOptions
    cosines: Tensor
    sines: Tensor

    def __init__(self, options: FopeOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.radians, self.series = options.radians_per_token(dims), options.series(dims)
        shape = (dims.n_layers, dims.n_kv_heads, len(self.radians), self.series)
        if options.learn:
            self.cosines, self.sines = nn.Parameter(torch.empty(shape)), nn.Parameter(torch.empty(shape))
        else:
            drawn = torch.tensor(options.normal(2 * math.prod(shape)), dtype=torch.float64, device="cpu").view(
                2, *shape
            )
            # No buffers: no cast, load or move of the model reaches them.
            self.cosines, self.sines = options.deviation(dims) * drawn + self.identity(drawn)

    def identity(self, like: Tensor) -> Tensor:
        """A coefficient of 1 where a series meets the frequency that it is around, (N, P)."""
        eye = like.new_zeros(len(self.radians), self.series)
        for place, frequency in enumerate(self.options.own(self.dims)):
            eye[frequency, place] = 1
        return eye

    def prepare(self, positions_BT: Tensor) -> Waves:
        angle_BTN = angles(positions_BT, self.radians)
        return angle_BTN.cos()[:, None], angle_BTN.sin()[:, None]

    def at_queries(self, q_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: Waves) -> Tensor:
        cos, sin = (each[:, :, -q_BHTD.shape[2] :] for each in shared)
        return self.multiplied(q_BHTD, cos, sin, layer)

    def at_keys(self, k_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: Waves) -> Tensor:
        cos, sin = (each[:, :, : k_BHTD.shape[2]] for each in shared)
        return self.multiplied(k_BHTD, cos, sin, layer)

    def multiplied(self, x_BHTD: Tensor, cos_BTN: Tensor, sin_BTN: Tensor, layer: int) -> Tensor:
        """Pairs of channels, half the head width apart, times their series."""
        wide = torch.promote_types(x_BHTD.dtype, torch.float32)
        alike = x_BHTD.shape[1] // self.dims.n_kv_heads  # query heads that share a key head
        by = []
        for waves, table, rest in (
            (cos_BTN, self.cosines, 1.0),
            (sin_BTN, self.sines, 0.0 if self.options.zero_sine else 1.0),
        ):
            sums = waves @ moved(table[layer], waves.device).to(waves.dtype)
            by.append(nn.functional.pad(sums, (0, x_BHTD.shape[-1] // 2 - self.series), value=rest).to(wide))
        real, imaginary = (each.repeat_interleave(alike, dim=1) for each in by)
        first, second = x_BHTD.to(wide).chunk(2, dim=-1)
        return torch.cat([first * real - second * imaginary, second * real + first * imaginary], dim=-1).to(
            x_BHTD.dtype
        )

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        nn.init.normal_(parameter, std=self.options.deviation(self.dims), generator=generator)
        with torch.no_grad():
            parameter += self.identity(parameter)
