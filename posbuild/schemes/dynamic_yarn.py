"""Dynamic YaRN: YaRN with the factor that the present text needs, its length over the original length, at least 1.

Within the original length it is rope. Beyond it the frequencies, and with them the keys of all earlier tokens, change with
every token: the cache holds keys before they turn. The length is the largest position of the row, plus 1.
"""

from __future__ import annotations

from posbuild.declaration import ActsOn, Paper, Scheme
from posbuild.schemes.rope_by_parts import RampOptions

SCHEME = Scheme(
    name="dynamic_yarn",
    summary="YaRN with the factor that the present length of the text needs",
    options=RampOptions,
    maths="posbuild.encodings.dynamic_yarn:DynamicYarn",
    acts_on=ActsOn.queries_and_keys,
    learns="nothing",
    beyond="any length; rope within the original length, slower for every token beyond",
    cost="that of rope; decoding turns all keys again at each token",
    used_by=("none known",),
    paper=Paper(
        title="YaRN: Efficient Context Window Extension of Large Language Models",
        authors="Peng et al.",
        year=2024,
        arxiv="2309.00071",
        where="section 3.3 (dynamic scaling) with definition 3; ramp by default as in the released code",
    ),
    compared_with=("jquesnelle/yarn",),
    prefix_stable=False,
)
