"""NTK-aware rope: a larger base, chosen so that the slowest pair slows by the factor and the fastest not at all.

The base becomes base * factor^(R / (R - 2)), R the rotary width. In terms of pairs: pair c of n slows by
factor^(c / (n - 1)). With one pair (R = 2) the base has no effect: that pair, the fastest, stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Paper, Scheme
from posbuild.schemes.rope import RopeOptions, StretchedOptions


def exponents(options: RopeOptions, dims: Dims) -> list[float]:
    """The power of the factor by which each pair slows, from 0 for the fastest to 1 for the slowest."""
    pairs = options.rotary_width(dims) // 2
    return [pair / max(1, pairs - 1) for pair in range(pairs)]


@dataclass(kw_only=True)
class RopeNtkOptions(StretchedOptions):
    def radians_per_token(self, dims: Dims, layer: int) -> list[float]:
        plain = super().radians_per_token(dims, layer)
        return [
            radians * self.factor**-exponent for radians, exponent in zip(plain, exponents(self, dims), strict=True)
        ]


SCHEME = Scheme(
    name="rope_ntk",
    summary="rope with a larger base that slows the slowest pair by a factor (NTK-aware)",
    options=RopeNtkOptions,
    maths="posbuild.encodings.rope:Rope",
    acts_on=ActsOn.queries_and_keys,
    learns="nothing",
    beyond="any length; reaches less than factor times the length that rope was trained on",
    cost="that of rope",
    used_by=("Code Llama (base 1 000 000)",),
    paper=Paper(
        title="YaRN: Efficient Context Window Extension of Large Language Models",
        authors="Peng et al.",
        year=2024,
        arxiv="2309.00071",
        where="section 3.1, definition 1, after bloc97's post of 2023",
    ),
    compared_with=("x-transformers", "jquesnelle/yarn"),
    shift_invariant=True,
)
