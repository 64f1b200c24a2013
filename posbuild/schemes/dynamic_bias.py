"""Dynamic (continuous) position bias: a small network from the signed logarithm of the distance to a bias for each head."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Options, Paper, Scheme, option


class Activation(enum.Enum):
    """Between two layers of the network."""

    relu = "relu"
    silu = "silu"


@dataclass(kw_only=True)
class DynamicBiasOptions(Options):
    hidden_layers: int = option(1, "hidden layers of the network; 1 in the paper, 2 in x-transformers", least=1)
    width: int | None = option(
        None,
        "width of a hidden layer; null: a quarter of d_model, as in x-transformers; 512 in the paper's code, for images",
        unit="channels",
        least=1,
    )
    activation: Activation = option(Activation.relu, "between two layers; relu in the paper, silu in x-transformers")

    def width_in(self, dims: Dims) -> int:
        """The width in a model of these sizes."""
        return self.width or max(1, dims.d_model // 4)

    def resolved(self, dims: Dims) -> DynamicBiasOptions:
        return replace(self, width=self.width_in(dims))


SCHEME = Scheme(
    name="dynamic_bias",
    summary="a bias by head from a small network of the signed logarithm of the distance",
    options=DynamicBiasOptions,
    maths="posbuild.encodings.dynamic_bias:DynamicBias",
    acts_on=ActsOn.scores,
    learns="a network from 1 number to heads numbers, shared by the layers",
    beyond="any length; the network meets distances that it was never trained on",
    cost="a bias by distance, each distance through a small network",
    used_by=("Swin V2 (in two dimensions)",),
    paper=Paper(
        title="Swin Transformer V2: Scaling Up Capacity and Resolution",
        authors="Liu et al.",
        year=2022,
        arxiv="2111.09883",
        where="section 3.3, continuous bias on log-spaced coordinates, here along one axis",
    ),
    compared_with=("transformers", "x-transformers"),
    shift_invariant=True,
)
