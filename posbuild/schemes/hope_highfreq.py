"""HoPE, the high-frequency one: only pairs that turn at least once over the train length turn; the others stand still.

Two other encodings are called HoPE: the hyperbolic one (arXiv:2509.05218), and the hybrid one for video (arXiv:2505.20444).
The authors released no code. Where not even the fastest pair turns once (fewer than 7 tokens) it turns all the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Paper, Scheme
from posbuild.schemes.rope import OriginalOptions


@dataclass(kw_only=True)
class HopeHighfreqOptions(OriginalOptions):
    def radians_per_token(self, dims: Dims, layer: int) -> list[float]:
        fastest, *others = super().radians_per_token(dims, layer)
        once = 2 * math.pi / self.original(dims)
        return [fastest] + [radians if radians >= once else 0.0 for radians in others]


SCHEME = Scheme(
    name="hope_highfreq",
    summary="rope in which pairs that would not turn once in training stand still (HoPE)",
    options=HopeHighfreqOptions,
    maths="posbuild.encodings.rope:Rope",
    acts_on=ActsOn.queries_and_keys,
    learns="nothing",
    beyond="any length; no pair meets an angle that training did not have",
    cost="that of rope",
    used_by=("none known",),
    paper=Paper(
        title="HoPE: A Novel Positional Encoding Without Long-Term Decay for Enhanced Context Awareness and Extrapolation",
        authors="Chen et al.",
        year=2025,
        arxiv="2410.21216",
        where="section 4; the cut at one turn as in code of others, the authors released none",
    ),
    shift_invariant=True,
)
