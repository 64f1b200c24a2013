"""xPos: rope whose pairs of channels fade with distance, the faster they turn the sooner.

Sun et al. multiply queries at position p by zeta_c^p and keys by zeta_c^-p, so that pair c of a score carries zeta_c^(i
- j); the released code divides the exponent by a scale base of 512, half of the paper's train length of 1024, which the
default keeps, as it does its gamma of 0.4, of which the paper gives no number. The paper's models attend in blocks too,
and its loss beyond the train length stays low with that alone: it is no part of this scheme. Those factors overflow at far positions, so here the scores fade, by the distance
(posbuild/encodings/xpos.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Paper, Scheme, option
from posbuild.schemes.rope import Pairing, RopeOptions

GAMMA = 0.4  # of the released code


@dataclass(kw_only=True)
class XPosOptions(RopeOptions):
    layout: Pairing = option(
        Pairing.interleaved,
        "pair channel c with c + half the rotary width, or with its neighbour; equal up to a permutation of weights",
    )
    scale_base: float | None = option(
        None,
        "the fastest pair fades to 2/7 over this distance; null: half the train length, as 512 of 1024 when released",
        unit="tokens",
        least=1.0,
    )

    def scale_base_in(self, dims: Dims) -> float:
        """The scale base, in tokens, in a model of these sizes."""
        return max(dims.train_length / 2, 1.0) if self.scale_base is None else self.scale_base

    def decay_per_token(self, dims: Dims) -> list[float]:
        """How fast each pair fades: its part of a score falls as exp(-rate * distance)."""
        width, base = self.rotary_width(dims), self.scale_base_in(dims)
        return [-math.log((2 * pair / width + GAMMA) / (1 + GAMMA)) / base for pair in range(width // 2)]

    def resolved(self, dims: Dims) -> XPosOptions:
        return replace(self, scale_base=self.scale_base_in(dims))


SCHEME = Scheme(
    name="xpos",
    summary="rope whose pairs of channels fade with distance",
    options=XPosOptions,
    maths="posbuild.encodings.xpos:XPos",
    acts_on=ActsOn.attention,
    learns="nothing",
    beyond="any length; scores of far tokens fade to 0, which is no mask: loss rises without attention in blocks",
    cost="several products of queries and keys in float64 in each layer; the paper's form costs what rope does",
    used_by=("LeX Transformer", "Kosmos-1"),
    paper=Paper(
        title="A Length-Extrapolatable Transformer",
        authors="Sun et al.",
        year=2022,
        arxiv="2212.10554",
        where="section 3.2, equations 9 and 10; scale base as in the released code, microsoft/torchscale",
    ),
    compared_with=("rotary-embedding-torch", "x-transformers", "microsoft/torchscale"),
    causal_only="its scores would grow without bound with the distance to keys after the query",
    shift_invariant=True,
)
