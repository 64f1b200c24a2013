"""No encoding: order reaches the model through the causal mask alone."""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Options, Paper, Scheme


@dataclass(kw_only=True)
class NoOptions(Options):
    def has_parameters(self) -> bool:
        return False

    def reads_positions(self) -> bool:
        return False


SCHEME = Scheme(
    name="none",
    summary="no encoding: a causal mask alone tells order",
    options=NoOptions,
    maths="posbuild.encodings.none:NoEncoding",
    acts_on=ActsOn.nothing,
    learns="nothing",
    beyond="any length; loss rises by twice the train length, more slowly than rope's",
    cost="none",
    used_by=("the NoPE layers of Llama 4 and SmolLM3",),
    paper=Paper(
        title="Transformer Language Models without Positional Encodings Still Learn Positional Information",
        authors="Haviv et al.",
        year=2022,
        arxiv="2203.16634",
        where="section 3",
    ),
    compared_with=("transformers",),
    orderless=True,
    shift_invariant=True,
)
