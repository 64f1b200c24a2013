"""FIRE: a small network from the distance, on a scale that grows with the query's position, to a bias for each head."""

from __future__ import annotations

from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Options, Paper, Scheme, option


@dataclass(kw_only=True)
class FireOptions(Options):
    threshold: float | None = option(
        None,
        "queries up to this position share one scale; a learned factor multiplies it, 1 at the start; null: a quarter of "
        "the train length, as 512 of 2048 in the paper",
        unit="tokens",
        above=0,
    )
    width: int = option(32, "width of the hidden layer", unit="channels", least=1)
    share_layers: bool = option(False, "one network for all layers (FIRE-S in the paper), or one each")

    def threshold_in(self, dims: Dims) -> float:
        """The threshold, in tokens, in a model of these sizes."""
        return dims.train_length / 4 if self.threshold is None else self.threshold

    def resolved(self, dims: Dims) -> FireOptions:
        return replace(self, threshold=self.threshold_in(dims))


SCHEME = Scheme(
    name="fire",
    summary="a bias by head from a small network of the distance over the position of the query",
    options=FireOptions,
    maths="posbuild.encodings.fire:Fire",
    acts_on=ActsOn.scores,
    learns="a network from 1 number to heads numbers and 2 numbers, per layer unless shared",
    beyond="any length; the network is given shares from 0 to 1 at every length",
    cost="a bias by both positions, each pair of tokens through a small network, in each layer unless shared",
    used_by=("none known",),
    paper=Paper(
        title="Functional Interpolation for Relative Positions Improves Long Context Transformers",
        authors="Li et al.",
        year=2024,
        arxiv="2310.04418",
        where="section 3; constants and start as in the code printed in its appendix",
    ),
    compared_with=("mcleish7/arithmetic",),
)
