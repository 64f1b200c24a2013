"""iRoPE of Llama 4: rnope, and in the layers that do not turn queries grow with their position.

A query at position p is multiplied by 1 + temperature * ln(1 + floor((p + 1) / original_length)), in bidirectional models
too: 1 before original_length - 1. Llama 4 has 8192 there, the length of its chunks of attention; the default here is the
train length, so that it acts at all on lengths that are evaluated. Llama 4's layers with rope see chunks only, and some of
its models normalise their queries and keys: both are no part of this scheme.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Paper, Scheme, option
from posbuild.schemes.rnope import RnopeOptions
from posbuild.schemes.rope import OriginalOptions


@dataclass(kw_only=True)
class IropeOptions(RnopeOptions, OriginalOptions):
    original_length: int | None = option(
        None,
        "queries grow from the position before this on, and before each multiple of it; null: the train length (8192 in Llama 4)",
        unit="tokens",
        least=2,
    )
    temperature: float = option(
        0.1, "queries grow by this times the logarithm of 1 + the number of such lengths before them", least=0.0
    )

    def resolved(self, dims: Dims) -> IropeOptions:
        return replace(self, interval=self.interval_in(dims), original_length=self.original(dims))


SCHEME = Scheme(
    name="irope",
    summary="rnope with queries that grow in the layers without rope (Llama 4)",
    options=IropeOptions,
    maths="posbuild.encodings.irope:Irope",
    acts_on=ActsOn.queries_and_keys,
    learns="nothing",
    beyond="any length; little is known",
    cost="that of rope, in the layers that turn",
    used_by=("Llama 4",),
    paper=Paper(
        title="The Llama 4 herd: The beginning of a new era of natively multimodal AI innovation",
        authors="Meta AI",
        year=2025,
        where="blog post; the formula is in the released code only, models/llama4/model.py",
    ),
    compared_with=("transformers",),
)
