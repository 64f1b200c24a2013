"""Learnable Fourier features: waves of learned frequency, then a small network, at the input."""

from __future__ import annotations

from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Options, Paper, Scheme, option
from posbuild.schemes.sinusoidal import Combine


@dataclass(kw_only=True)
class LearnedFourierOptions(Options):
    gamma: float = option(
        10.0,
        "frequencies start with the standard deviation 1 / gamma, in radians a token: places much nearer than gamma start "
        "with like codes",
        unit="tokens",
        above=0.0,
    )
    frequencies: int | None = option(
        None, "learned frequencies, each with a cosine and a sine; null: half of d_model, rounded up", least=1
    )
    width: int = option(32, "width of the hidden layer", unit="channels", least=1)
    combine: Combine = option(
        Combine.add, "add the code to the token vector, or concatenate both and project back (learned)"
    )

    def waves(self, dims: Dims) -> int:
        """The number of frequencies in a model of these sizes."""
        return (dims.d_model + 1) // 2 if self.frequencies is None else self.frequencies

    def resolved(self, dims: Dims) -> LearnedFourierOptions:
        return replace(self, frequencies=self.waves(dims))


SCHEME = Scheme(
    name="learned_fourier",
    summary="learned waves of the position and a network, at the input",
    options=LearnedFourierOptions,
    maths="posbuild.encodings.learned_fourier:LearnedFourier",
    acts_on=ActsOn.input,
    learns="frequencies, and a network from twice as many numbers through width to d_model",
    beyond="any length; waves and network at positions never trained on",
    cost="a small network for each position, once",
    used_by=("none known",),
    paper=Paper(
        title="Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding",
        authors="Li et al.",
        year=2021,
        arxiv="2106.02795",
        where="algorithm 1, equations 2 and 6",
    ),
    compared_with=("willGuimont/learnable_fourier_positional_encoding",),
)
