"""Rope with log-n scaled attention: queries beyond the original length grow with the logarithm of their position.

A query at position p is multiplied by max(1, ln(p + 1) / ln(original_length)), so that attention to p + 1 tokens is no
flatter than to original_length of them. As in code, it is the query's own position that counts, in bidirectional models
too, where all queries see the same number of tokens.
"""

from __future__ import annotations

from posbuild.declaration import ActsOn, Paper, Scheme
from posbuild.schemes.rope import OriginalOptions

SCHEME = Scheme(
    name="rope_logn",
    summary="rope with queries that grow with the logarithm of their position",
    options=OriginalOptions,
    maths="posbuild.encodings.rope_logn:RopeLogn",
    acts_on=ActsOn.queries_and_keys,
    learns="nothing",
    beyond="any length; attention stays as sharp, angles never trained on remain",
    cost="that of rope, and a product for each query",
    used_by=("Qwen (first version)",),
    paper=Paper(
        title="Viewing the scale operation of attention from the invariance of entropy",
        authors="Su",
        year=2021,
        where="blog post, kexue.fm/archives/8823; clipped at 1 as in bojone/rerope",
    ),
    compared_with=("bojone/rerope",),
)
