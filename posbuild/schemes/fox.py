"""Forgetting Transformer: each token scales down the weights of all that came before it, by a gate of its own."""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Options, Paper, Scheme, option

BACKWARDS = "what lies between a key and a query is counted back from the query"


@dataclass(kw_only=True)
class FoxOptions(Options):
    gate_start: float = option(
        0.0,
        "what the gates are at the start: each token keeps about the share sigmoid(gate_start) of the weights before it; "
        "0 in the authors' code, 5 in x-transformers",
    )

    @property
    def sign(self) -> int:
        """1 where a large projection of a token keeps what came before it, -1 where it forgets."""
        return 1

    def reads_positions(self) -> bool:
        return False


SCHEME = Scheme(
    name="fox",
    summary="each token scales down the weights of earlier ones, by a learned gate",
    options=FoxOptions,
    maths="posbuild.encodings.fox:Fox",
    acts_on=ActsOn.scores,
    learns="heads x (d_model + 1) numbers per layer",
    beyond="any length; what is forgotten is learned",
    cost="a gate for each token and head, a bias by query and key in each layer; no fused attention",
    used_by=("FoX",),
    paper=Paper(
        title="Forgetting Transformer: Softmax Attention with a Forget Gate",
        authors="Lin et al.",
        year=2025,
        arxiv="2503.02130",
        where="section 3; start as in the released code, without its other changes to the block",
    ),
    compared_with=("x-transformers", "fla-org/flash-linear-attention"),
    causal_only=BACKWARDS,
    shift_invariant=True,
)
