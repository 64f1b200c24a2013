"""RetNet's retention: rotated scores that decay with distance by a rate for each head, and no softmax."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Paper, Scheme, option
from posbuild.schemes.rope import Pairing, RopeOptions


class RowSum(enum.Enum):
    """What a row of scores is divided by where it is above 1: the sum of their sizes, or the size of their sum."""

    absolute = "absolute"
    signed = "signed"


@dataclass(kw_only=True)
class RetnetOptions(RopeOptions):
    layout: Pairing = option(
        Pairing.interleaved,
        "pair channel c with its neighbour, or with c + half the rotary width; equal up to a permutation of weights",
    )
    row_sum: RowSum = option(
        RowSum.absolute,
        "a row of scores is divided by the sum of their sizes where that is above 1, by the released code; signed: by the size "
        "of their sum, by the paper",
    )

    def radians_per_token(self, dims: Dims, layer: int) -> list[float]:
        """From 1 to 1/base, the ends included."""
        pairs = self.rotary_width(dims) // 2
        return [self.base ** -(pair / max(1, pairs - 1)) for pair in range(pairs)]


SCHEME = Scheme(
    name="retnet",
    summary="rotated scores decay with distance, by a rate a head; no softmax",
    options=RetnetOptions,
    maths="posbuild.encodings.retnet:Retnet",
    acts_on=ActsOn.attention,
    learns="nothing",
    beyond="any length; far keys fade",
    cost="a rotation of queries and keys, a decay by query and key in each layer; no fused attention",
    used_by=("RetNet",),
    paper=Paper(
        title="Retentive Network: A Successor to Transformer for Large Language Models",
        authors="Sun et al.",
        year=2023,
        arxiv="2307.08621",
        where="section 2, equations 5 to 8; without the normalisation of heads and the gate after it",
    ),
    compared_with=("microsoft/torchscale",),
    causal_only="retention sums what came before the query",
    shift_invariant=True,
)
