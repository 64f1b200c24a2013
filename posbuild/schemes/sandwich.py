"""Sandwich: the inner product of two sinusoidal codes as a bias, with a fixed ratio for each head."""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Options, Paper, Scheme, option
from posbuild.errors import ConfigError


@dataclass(kw_only=True)
class SandwichOptions(Options):
    dim: int = option(
        128,
        "channels of the codes, whatever the width of the model: the more, the further the bias goes on falling",
        unit="channels",
        least=2,
    )
    first: int = option(
        0,
        "frequencies 10000^(-2i/dim) for i = 0 to dim/2 - 1, those of the sinusoidal encoding, or from 1 to dim/2, as in NeMo",
        least=0,
        most=1,
    )

    def has_parameters(self) -> bool:
        return False

    def check(self, dims: Dims) -> None:
        if self.dim % 2:
            raise ConfigError(
                f"pe.dim={self.dim} is odd, and each frequency has a sine and a cosine. Use an even number."
            )


SCHEME = Scheme(
    name="sandwich",
    summary="a fixed penalty on the scores, the inner product of two sinusoidal codes",
    options=SandwichOptions,
    maths="posbuild.encodings.sandwich:Sandwich",
    acts_on=ActsOn.scores,
    learns="nothing",
    beyond="any length; falls by the logarithm of the distance, in ripples",
    cost="a bias by distance",
    used_by=("none known",),
    paper=Paper(
        title="Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis",
        authors="Chi et al.",
        year=2023,
        arxiv="2212.10356",
        where="appendix E, as attention-gym transcribes it; NeMo's frequencies start at i = 1",
    ),
    compared_with=("NVIDIA/NeMo",),
    shift_invariant=True,
)
