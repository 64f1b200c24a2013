"""Sinusoidal codes: sines and cosines of falling frequency, at the input."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from posbuild.declaration import ActsOn, Options, Paper, Scheme, option


class Combine(enum.Enum):
    """How a code meets the token vector: added, or concatenated and projected back to d_model."""

    add = "add"
    concat = "concat"


class Layout(enum.Enum):
    """Where the sine and the cosine of one frequency stand: side by side, or half the width apart."""

    interleaved = "interleaved"
    half = "half"


@dataclass(kw_only=True)
class SinusoidalOptions(Options):
    combine: Combine = option(
        Combine.add, "add the code to the token vector, or concatenate both and project back (learned)"
    )
    base: float = option(10_000.0, "the slowest pair turns once in 2 pi base^(1 - 2/d_model) positions", above=1.0)
    scale: float = option(
        0.1,
        "amplitude of the code; 1 in the paper, beside token vectors of spread 1, where this model's start at 0.05",
        above=0.0,
    )
    learn_scale: bool = option(False, "learn the amplitude, one number, starting at scale")
    layout: Layout = option(
        Layout.interleaved, "sine and cosine of a frequency side by side (the paper), or all sines before all cosines"
    )

    def has_parameters(self) -> bool:
        return self.learn_scale or self.combine is Combine.concat


SCHEME = Scheme(
    name="sinusoidal",
    summary="fixed sines and cosines of the position, added to the token vectors",
    options=SinusoidalOptions,
    maths="posbuild.encodings.sinusoidal:Sinusoidal",
    acts_on=ActsOn.input,
    learns="nothing (one amplitude with learn_scale, a projection with combine=concat)",
    beyond="any length; loss rises at once",
    cost="one addition",
    used_by=("the original Transformer", "XGLM"),
    paper=Paper(
        title="Attention Is All You Need", authors="Vaswani et al.", year=2017, arxiv="1706.03762", where="section 3.5"
    ),
    compared_with=("transformers", "x-transformers"),
)
