"""DAPE V2: a small convolution along the keys corrects the scores of all heads, given them and a bias by position."""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Paper, Scheme, option
from posbuild.errors import ConfigError
from posbuild.schemes.dape import DapeOptions


@dataclass(kw_only=True)
class DapeV2Options(DapeOptions):
    kernel: int = option(3, "neighbouring keys that each of the two layers looks at, an odd number", least=1)

    @property
    def keys(self) -> int:
        return self.kernel

    def check(self, dims: Dims) -> None:
        if self.kernel % 2 == 0:
            raise ConfigError(
                f"pe.kernel={self.kernel} has no middle: as many keys are looked at before a key as after it. "
                f"Use an odd number, such as {self.kernel + 1}."
            )


SCHEME = Scheme(
    name="dape_v2",
    summary="a bias by distance, corrected by a convolution of all heads' scores",
    options=DapeV2Options,
    maths="posbuild.encodings.dape:Dape",
    acts_on=ActsOn.scores,
    learns="a convolution from 2 x heads to heads channels per layer, and what the other scheme learns",
    beyond="any length; as the other scheme, corrected",
    cost="a small convolution over all pairs of tokens in each layer; no fused attention",
    used_by=("none known",),
    paper=Paper(
        title="DAPE V2: Process Attention Score as Feature Map for Length Extrapolation",
        authors="Zheng et al.",
        year=2024,
        arxiv="2410.04798",
        where="section 3; convolution and start as in the released code",
    ),
    compared_with=("chuanyang-Zheng/DAPE",),
    shift_invariant=True,
)
