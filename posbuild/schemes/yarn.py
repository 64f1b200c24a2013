"""YaRN: NTK-by-parts, and attention made sharper by a temperature that grows with the factor.

Queries and keys are each lengthened by 0.1 ln(factor) + 1, the square root of 1/t in the paper, so scores grow by its
square. Only what turns is lengthened: with `fraction` below 1 the other channels are not, as in released code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Paper, Scheme
from posbuild.schemes.rope_by_parts import ByPartsOptions


@dataclass(kw_only=True)
class YarnOptions(ByPartsOptions):
    def magnitude(self, dims: Dims) -> float:
        return 0.1 * math.log(self.factor) + 1


SCHEME = Scheme(
    name="yarn",
    summary="rope slowed by parts, with sharper attention for a larger factor",
    options=YarnOptions,
    maths="posbuild.encodings.rope:Rope",
    acts_on=ActsOn.queries_and_keys,
    learns="nothing",
    beyond="any length; meant for factor times the original length, after little training",
    cost="that of rope",
    used_by=("Qwen 2.5", "DeepSeek-V3", "gpt-oss"),
    paper=Paper(
        title="YaRN: Efficient Context Window Extension of Large Language Models",
        authors="Peng et al.",
        year=2024,
        arxiv="2309.00071",
        where="section 3.4, definition 3 and equation 22 of version 2; ramp by default as in the released code",
    ),
    compared_with=("transformers", "jquesnelle/yarn"),
    shift_invariant=True,
)
