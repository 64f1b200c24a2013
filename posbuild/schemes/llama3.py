"""Llama 3.1's rope: pairs that turn often over the original length stay as they are, those that hardly turn slow by the factor.

Between `low` and `high` turns the frequency is linear in the turns: the ramp of NTK-by-parts as its paper has it, with
`high` at 4. Meta's code fixes original_length at 8192, low at 1, high at 4 and the factor at 8
(configurations of Llama 3.2 in transformers have 32); its base is 500 000.
"""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Paper, Scheme, option
from posbuild.schemes.rope import StretchedOptions
from posbuild.schemes.rope_by_parts import PartsOptions


@dataclass(kw_only=True)
class Llama3Options(StretchedOptions, PartsOptions):
    factor: float = option(8.0, "by how much the slowest pairs slow; 1: plain rope", least=1.0)
    low: float = option(
        1.0,
        "pairs that turn less often over the original length slow by the whole factor (low_freq_factor)",
        unit="turns",
        above=0.0,
    )
    high: float = option(4.0, "pairs that turn more often stay as they are (high_freq_factor)", unit="turns", above=0.0)

    def radians_per_token(self, dims: Dims, layer: int) -> list[float]:
        return self.by_parts(dims, self.factor)


SCHEME = Scheme(
    name="llama3",
    summary="rope whose slow pairs slow by a factor, as in Llama 3.1",
    options=Llama3Options,
    maths="posbuild.encodings.rope:Rope",
    acts_on=ActsOn.queries_and_keys,
    learns="nothing",
    beyond="any length; meant for factor times the original length, after training on",
    cost="that of rope",
    used_by=("Llama 3.1 to 3.3",),
    paper=Paper(
        title="The Llama 3 Herd of Models",
        authors="Grattafiori et al.",
        year=2024,
        arxiv="2407.21783",
        where="the formula is in Meta's released code only, apply_scaling in models/llama3/model.py",
    ),
    compared_with=("transformers", "meta-llama/llama-models"),
    shift_invariant=True,
)
