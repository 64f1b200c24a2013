"""Dynamic NTK: NTK-aware rope with a factor that grows with the length n of the text: factor * n / L - (factor - 1).

Within the original length L it is rope. Beyond it the frequencies, and with them the keys of all earlier tokens, change
with every token: the cache holds keys before they turn. n is the largest position of the row, plus 1. The factor is the
setting of that name in transformers; with 1, the default, the slowest pair slows by n / L, as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Paper, Scheme, option
from posbuild.schemes.rope import OriginalOptions


@dataclass(kw_only=True)
class RopeDynamicNtkOptions(OriginalOptions):
    factor: float = option(
        1.0,
        "in a text of n tokens the slowest pair slows by factor * n / original_length - (factor - 1), at least 1",
        least=1.0,
    )


SCHEME = Scheme(
    name="rope_dynamic_ntk",
    summary="rope with a base that grows with the length of the text (dynamic NTK)",
    options=RopeDynamicNtkOptions,
    maths="posbuild.encodings.rope_dynamic_ntk:RopeDynamicNtk",
    acts_on=ActsOn.queries_and_keys,
    learns="nothing",
    beyond="any length; rope within the original length, slower for every token beyond",
    cost="that of rope; decoding turns all keys again at each token",
    used_by=("InternLM 2",),
    paper=Paper(
        title="YaRN: Efficient Context Window Extension of Large Language Models",
        authors="Peng et al.",
        year=2024,
        arxiv="2309.00071",
        where="section 3.3 (dynamic scaling) with definition 1, after emozilla's post of 2023; factor as in transformers",
    ),
    compared_with=("transformers", "jquesnelle/yarn"),
    prefix_stable=False,
)
