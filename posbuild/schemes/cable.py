"""CABLE: each token pushes all that came before it further away, by a step of its own."""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Paper, Scheme, option
from posbuild.schemes.fox import BACKWARDS, FoxOptions


@dataclass(kw_only=True)
class CableOptions(FoxOptions):
    gate_start: float = option(
        0.0, "what the steps are at the start: each token costs about softplus(-gate_start); 0 in the authors' code"
    )

    @property
    def sign(self) -> int:
        return -1


SCHEME = Scheme(
    name="cable",
    summary="each token adds a learned penalty to the scores of all before it",
    options=CableOptions,
    maths="posbuild.encodings.fox:Fox",
    acts_on=ActsOn.scores,
    learns="heads x (d_model + 1) numbers per layer",
    beyond="any length; how fast scores fall is learned",
    cost="a step for each token and head, a bias by query and key in each layer; no fused attention",
    used_by=("none known",),
    paper=Paper(
        title="Context-aware Biases for Length Extrapolation",
        authors="Veisi et al.",
        year=2025,
        arxiv="2503.08067",
        where="the bias and its start as in the released code; queries and keys are scaled by 1/sqrt(d), there they are not",
    ),
    compared_with=("axiomlab/Cable",),
    causal_only=BACKWARDS,
    shift_invariant=True,
)
