"""PaTH attention: a key is reflected by every token between it and the query."""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Options, Paper, Scheme, option
from posbuild.schemes.fox import BACKWARDS


@dataclass(kw_only=True)
class PathOptions(Options):
    rank: int = option(32, "width of the hidden layer without activation that makes directions", least=1)

    def reads_positions(self) -> bool:
        return False


SCHEME = Scheme(
    name="path",
    summary="each token reflects the keys before it along a learned direction",
    options=PathOptions,
    maths="posbuild.encodings.path:Path",
    acts_on=ActsOn.scores,
    learns="2 x rank x d_model + heads x (d_model + 1) numbers per layer",
    beyond="any length; what tokens do to keys is learned",
    cost="a direction and a strength for each token and head, a triangular system of all keys in each layer; no fused attention",
    used_by=("none known",),
    paper=Paper(
        title="PaTH Attention: Position Encoding via Accumulating Householder Transformations",
        authors="Yang et al.",
        year=2025,
        arxiv="2505.16381",
        where="section 3; projections as in the authors' layer, without its convolution",
    ),
    compared_with=("fla-org/flash-linear-attention",),
    causal_only=BACKWARDS,
    shift_invariant=True,
)
