"""FoPE: each pair of channels of rope carries a sum of frequencies, and those too slow for the train length are left
out.

As in the released code (TsinghuaC3I/Fourier-Position-Embedding), and so by default here: frequencies below 2 pi / train
length are dropped; of the N that remain min(N, D/4) pairs of channels carry a series of all N, around a frequency of
their own, with one set of coefficients for cosines and one for sines, in each layer and head; the coefficients are
drawn once and stay as they are. They are the identity plus normal numbers of the deviation 0.3 sqrt(2 / (N P + H P)), P
series and H heads. Queries and keys of grouped heads share those of the key head. The fastest frequency always stays,
and at least one pair has a series.

The other pairs stand at frequency zero, and there the released code fills in 1 for the sine as for the cosine, which
lengthens them by sqrt(2) and doubles their part of the scores. The sine of zero is 0: `zero_sine` chooses.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Options, Paper, Scheme, option
from posbuild.errors import ConfigError


@dataclass(kw_only=True)
class FopeOptions(Options):
    base: float = option(10_000.0, "frequencies are base^(-2 c / D), c from 0 to D/2 - 1, D the head width", above=1.0)
    floor: float | None = option(
        None,
        "slower frequencies are left out; null: one turn in the train length, 2 pi / train length",
        unit="radians per token",
        least=0.0,
    )
    spread: float = option(
        0.3, "of the coefficients around the identity, as a share of Xavier's; 0: one frequency a pair", least=0.0
    )
    learn: bool = option(False, "learn the coefficients, from where they are otherwise fixed")
    draw: int = option(0, "the number that fixed coefficients are drawn by", least=0)
    zero_sine: bool = option(
        False,
        "sine of the pairs without a series: 0, or the 1 of the released code, which doubles their part of the scores",
    )

    def floor_in(self, dims: Dims) -> float:
        """The slowest frequency that stays, in radians a token, in a model of these sizes."""
        return 2 * math.pi / dims.train_length if self.floor is None else self.floor

    def radians_per_token(self, dims: Dims) -> list[float]:
        """The frequencies that stay."""
        every = [self.base ** (-2 * pair / dims.head_dim) for pair in range(dims.head_dim // 2)]
        return [each for each in every if each >= self.floor_in(dims)] or every[:1]

    def series(self, dims: Dims) -> int:
        """Pairs of channels that carry a series."""
        return min(len(self.radians_per_token(dims)), max(dims.head_dim // 4, 1))

    def deviation(self, dims: Dims) -> float:
        """Standard deviation of a coefficient around where it starts."""
        inputs, outputs = len(self.radians_per_token(dims)), self.series(dims)
        return self.spread * math.sqrt(2 / (inputs * outputs + dims.n_kv_heads * outputs))

    def own(self, dims: Dims) -> list[int]:
        """The frequency that each series is around, by its place among those that stay."""
        step = math.ceil(len(self.radians_per_token(dims)) / self.series(dims))
        return list(range(0, len(self.radians_per_token(dims)), step))

    def normal(self, count: int) -> list[float]:
        """Standard normal numbers, the same on every machine: from pairs of uniform ones, by Box and Muller."""
        uniform = random.Random(self.draw).random
        pairs = ((uniform(), uniform()) for _ in range(count))
        return [math.sqrt(-2 * math.log(1 - one)) * math.cos(2 * math.pi * other) for one, other in pairs]

    def resolved(self, dims: Dims) -> FopeOptions:
        return replace(self, floor=self.floor_in(dims), draw=0 if self.learn else self.draw)

    def has_parameters(self) -> bool:
        return self.learn

    def check(self, dims: Dims) -> None:
        if dims.head_dim % 2:
            raise ConfigError(
                f"pe=fope turns channels in pairs, and the head width {dims.head_dim} (model.d_model={dims.d_model} / "
                f"model.n_heads={dims.n_heads}) is not even. Change model.d_model or model.n_heads."
            )


SCHEME = Scheme(
    name="fope",
    summary="rope with a sum of frequencies for each pair of channels, none slow",
    options=FopeOptions,
    maths="posbuild.encodings.fope:Fope",
    acts_on=ActsOn.queries_and_keys,
    learns="nothing (two tables of frequencies x series by layer and key head with learn)",
    beyond="any length; frequencies not seen through in training are left out",
    cost="that of rope, and sums over the frequencies for each head",
    used_by=("none known",),
    paper=Paper(
        title="Fourier Position Embedding: Enhancing Attention's Periodic Extension for Length Generalization",
        authors="Hua et al.",
        year=2024,
        arxiv="2412.17739",
        where="as in the released code, TsinghuaC3I/Fourier-Position-Embedding",
    ),
    compared_with=("TsinghuaC3I/Fourier-Position-Embedding",),
)
