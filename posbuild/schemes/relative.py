"""A learned scalar bias for each distance and head, clipped at a largest distance."""

from __future__ import annotations

from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Options, Paper, Scheme, option


@dataclass(kw_only=True)
class RelativeOptions(Options):
    max_distance: int = option(32, "all distances from here on share one value", unit="tokens", least=1)
    signed: bool | None = option(
        None,
        "tell keys before the query from keys after it; false: by |i - j|, which in a bidirectional model cannot "
        "tell left from right; null: true in a bidirectional model, false in a causal one",
    )
    share_layers: bool = option(True, "one table for all layers, or one each")

    def resolved(self, dims: Dims) -> RelativeOptions:
        return replace(self, signed=not dims.causal if self.signed is None else self.signed)

    def takes_fractions(self) -> bool:
        return False


SCHEME = Scheme(
    name="relative",
    summary="a learned scalar for each distance and head, added to the scores",
    options=RelativeOptions,
    maths="posbuild.encodings.relative:Relative",
    acts_on=ActsOn.scores,
    learns="heads x (max_distance + 1) numbers, heads x (2 max_distance + 1) if signed; per layer unless shared",
    beyond="any length; far distances share one value",
    cost="a bias by distance",
    used_by=("MaxViT and Swin (as 2-D tables)",),
    paper=Paper(
        title="Self-Attention with Relative Position Representations",
        authors="Shaw et al.",
        year=2018,
        arxiv="1803.02155",
        where="section 3.2 for the clipping; Raffel et al. 2020 (arXiv:1910.10683), section 2.1 for scalars in place of vectors",
    ),
    compared_with=("transformers",),
    shift_invariant=True,
    pe_lr_mult=30.0,
)
