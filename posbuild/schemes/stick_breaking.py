"""Stick-breaking attention: each key, from the query backwards, takes its share of what the nearer ones left."""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Options, Paper, Scheme, option


@dataclass(kw_only=True)
class StickBreakingOptions(Options):
    own_token: bool = option(False, "whether the query's own token takes a share, before all others")
    remainder: bool = option(
        True, "whether the query's own value gets what all keys leave, as in the authors' models; false: it is lost"
    )

    def has_parameters(self) -> bool:
        return False

    def reads_positions(self) -> bool:
        return False


SCHEME = Scheme(
    name="stick_breaking",
    summary="from the query backwards each key takes a share of what is left",
    options=StickBreakingOptions,
    maths="posbuild.encodings.stick_breaking:StickBreaking",
    acts_on=ActsOn.attention,
    learns="nothing",
    beyond="any length; nearer keys leave less to far ones",
    cost="sums by query and key in place of softmax, in each layer; no fused attention",
    used_by=("none known",),
    paper=Paper(
        title="Scaling Stick-Breaking Attention: An Efficient Implementation and In-depth Study",
        authors="Tan et al.",
        year=2025,
        arxiv="2410.17980",
        where="section 2; own token and remainder as in the released code",
    ),
    compared_with=("shawntan/stickbreaking-attention",),
    causal_only="a stick is broken from the query backwards",
    shift_invariant=True,
)
