"""Leaky ReRoPE: rope within a window w, and distances that grow k times slower beyond it, w + (i - j - w) / k.

For k = 1 it is rope, and as k grows it becomes ReRoPE. As there, the released patch also multiplies queries by the
logarithm of their position, an option here. Its window of 512 and k of 16 served an original length of 4096; the
default window keeps that share.
"""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Paper, Scheme, option
from posbuild.schemes.rerope import NEEDS_A_MASK, ReRopeOptions


@dataclass(kw_only=True)
class LeakyReRopeOptions(ReRopeOptions):
    window: int | None = option(
        None,
        "distances below it are those of rope; null: an eighth of original_length, as 512 of 4096 in the released code",
        unit="tokens",
        least=1,
    )
    factor: float = option(16.0, "beyond the window distances grow this many times slower; 1: plain rope", least=1.0)


SCHEME = Scheme(
    name="leaky_rerope",
    summary="rope with distances that grow slower beyond a window",
    options=LeakyReRopeOptions,
    maths="posbuild.encodings.leaky_rerope:LeakyReRope",
    acts_on=ActsOn.attention,
    learns="nothing",
    beyond="any length; distances grow a factor slower beyond the window",
    cost="two products of queries and keys in each layer, and keys turned twice for each chunk of queries",
    used_by=("none known; applied to LLaMA 2 after training",),
    paper=Paper(
        title="Rectified Rotary Position Embeddings",
        authors="Su",
        year=2023,
        where="blog post, kexue.fm/archives/9708; code: bojone/rerope",
    ),
    compared_with=("bojone/rerope",),
    causal_only=NEEDS_A_MASK,
)
