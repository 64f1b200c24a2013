"""Position Interpolation: rope with all positions divided by one factor, so all frequencies are.

Found by kaiokendev and by Chen et al. at the same time. Near tokens turn less from one to the next than rope's do, so a
model that was trained with rope needs training again.
"""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Paper, Scheme
from posbuild.schemes.rope import StretchedOptions


@dataclass(kw_only=True)
class RopeLinearOptions(StretchedOptions):
    def radians_per_token(self, dims: Dims, layer: int) -> list[float]:
        return [radians / self.factor for radians in super().radians_per_token(dims, layer)]


SCHEME = Scheme(
    name="rope_linear",
    summary="rope with positions divided by a factor (Position Interpolation)",
    options=RopeLinearOptions,
    maths="posbuild.encodings.rope:Rope",
    acts_on=ActsOn.queries_and_keys,
    learns="nothing",
    beyond="any length; meant for factor times the length that rope was trained on, after training on",
    cost="that of rope",
    used_by=("LongChat", "Vicuna 16k", "Gemma 3 (factor 8 in its global layers)"),
    paper=Paper(
        title="Extending Context Window of Large Language Models via Position Interpolation",
        authors="Chen et al.",
        year=2023,
        arxiv="2306.15595",
        where="section 2.3, equation 4",
    ),
    compared_with=("transformers", "x-transformers", "jquesnelle/yarn"),
    shift_invariant=True,
)
