"""DAPE: a small network corrects the scores of all heads, given them and a bias by position."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from posbuild.declaration import ActsOn, Options, Paper, Scheme, option


class Prior(enum.Enum):
    """The bias by position that the network is given and that is added too: a scheme with its default options."""

    alibi = "alibi"
    kerple_log = "kerple_log"
    fire = "fire"


@dataclass(kw_only=True)
class DapeOptions(Options):
    over: Prior = option(Prior.kerple_log, "the scheme whose bias is added and given to the network")
    width: int = option(32, "width of the hidden layer", unit="channels", least=1)

    @property
    def keys(self) -> int:
        """How many neighbouring keys the network looks at."""
        return 1


SCHEME = Scheme(
    name="dape",
    summary="a bias by distance, corrected by a network of the scores of all heads",
    options=DapeOptions,
    maths="posbuild.encodings.dape:Dape",
    acts_on=ActsOn.scores,
    learns="a network from 2 x heads numbers to heads numbers per layer, and what the other scheme learns",
    beyond="any length; as the other scheme, corrected",
    cost="each pair of tokens through a small network in each layer; no fused attention",
    used_by=("none known",),
    paper=Paper(
        title="DAPE: Data-Adaptive Positional Encoding for Length Extrapolation",
        authors="Zheng et al.",
        year=2024,
        arxiv="2405.14722",
        where="section 3; network and start as in the released code",
    ),
    compared_with=("chuanyang-Zheng/DAPE",),
    shift_invariant=True,
)
