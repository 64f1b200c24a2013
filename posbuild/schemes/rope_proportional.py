"""Proportional rotary (p-RoPE): only the fastest share of the pairs turns; the slowest stand still.

Not partial rotary, the `fraction` of rope: there fewer channels are paired and their frequencies span the whole range;
here all are paired and keep the frequencies they have in rope. Configurations of transformers call both
partial_rotary_factor.
"""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Paper, Scheme, option
from posbuild.schemes.rope import RopeOptions


@dataclass(kw_only=True)
class RopeProportionalOptions(RopeOptions):
    share: float = option(
        0.75,
        "share of the pairs that turns, the fastest, rounded down and at least one pair; the others carry no position",
        above=0.0,
        most=1.0,
    )

    def radians_per_token(self, dims: Dims, layer: int) -> list[float]:
        turning = max(1, int(self.share * self.rotary_width(dims) // 2))
        plain = super().radians_per_token(dims, layer)
        return plain[:turning] + [0.0] * len(plain[turning:])


SCHEME = Scheme(
    name="rope_proportional",
    summary="rope in which the slowest pairs stand still (p-RoPE; not partial rotary)",
    options=RopeProportionalOptions,
    maths="posbuild.encodings.rope:Rope",
    acts_on=ActsOn.queries_and_keys,
    learns="nothing",
    beyond="any length; little is known",
    cost="that of rope",
    used_by=("Gemma 4 (share 0.25 in its global layers)",),
    paper=Paper(
        title="Round and Round We Go! What makes Rotary Positional Encodings useful?",
        authors="Barbero et al.",
        year=2025,
        arxiv="2410.06205",
        where="section 6; rounding as in transformers and Gemma",
    ),
    compared_with=("transformers",),
    shift_invariant=True,
)
