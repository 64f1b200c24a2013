"""Transformer-XL: queries times a learned projection of the sinusoid of each distance."""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Options, Paper, Scheme, option


@dataclass(kw_only=True)
class TransformerXlOptions(Options):
    # None is a meaning of its own here: no distance is clipped.
    clamp: int | None = option(
        None,
        "all distances from here on share one sinusoid (clamp_len in the code, which sets it to evaluate); null: none do",
        unit="tokens",
        least=1,
    )
    share_biases: bool = option(
        True, "the two vectors that are added to queries are one for all layers, or one each (untie_r in the code)"
    )

    def takes_fractions(self) -> bool:
        return self.clamp is None


SCHEME = Scheme(
    name="transformer_xl",
    summary="queries times a learned projection of the distance's sinusoid",
    options=TransformerXlOptions,
    maths="posbuild.encodings.transformer_xl:TransformerXl",
    acts_on=ActsOn.scores,
    learns="a d_model x d_model projection a layer and 2 x d_model numbers, these shared by layers unless share_biases=false",
    beyond="any length; distances never trained on, unless clamped",
    cost="products of queries with a projected sinusoid a distance, looked up by distance, in each layer",
    used_by=("Transformer-XL", "XLNet", "Conformer"),
    paper=Paper(
        title="Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context",
        authors="Dai et al.",
        year=2019,
        arxiv="1901.02860",
        where="section 3.3",
    ),
    compared_with=("transformers", "kimiyoung/transformer-xl"),
    shift_invariant=True,
)
