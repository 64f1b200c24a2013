"""LieRE: queries and keys are turned by the exponential of a learned skew-symmetric matrix for each position.

The released code spans the positions of the images trained on from 0 to 1, here `span` of each axis; of other images it
spans them from 0 to the ratio of the sizes; here they go on at the same step, so that a position means the same in all.
There each axis has a span of its own (4, 14 and 14 for videos); and with matrices for each layer it turns every layer by
those of the first, because its models/vit.py overwrites them in its loop: here each layer has its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Options, Paper, Scheme, option
from posbuild.errors import ConfigError


@dataclass(kw_only=True)
class LiereOptions(Options):
    axes: int = option(2, "numbers that make one position: 2 for images, 3 for videos and volumes", least=2, most=3)
    span: int = option(14, "positions of each axis that span 0 to 1: those of the images trained on", least=2)
    generator_dim: int | None = option(
        None,
        "channels that are turned together; null: the head width. What is left over of it carries no position",
        least=2,
    )
    per_layer: bool = option(True, "matrices of their own for each layer")
    per_head: bool = option(True, "matrices of their own for each key/value head")

    def number_of_axes(self) -> int:
        return self.axes

    def block(self, dims: Dims) -> int:
        """Channels that are turned together."""
        return dims.head_dim if self.generator_dim is None else self.generator_dim

    def resolved(self, dims: Dims) -> LiereOptions:
        return replace(self, generator_dim=self.block(dims))

    def check(self, dims: Dims) -> None:
        if not 2 <= self.block(dims) <= dims.head_dim:
            raise ConfigError(
                f"pe.generator_dim={'null' if self.generator_dim is None else self.generator_dim} turns {self.block(dims)} channels "
                f"together, and a head has {dims.head_dim} (model.d_model={dims.d_model} / model.n_heads={dims.n_heads}). It takes 2 "
                "at least, and as many as a head has at most."
            )


SCHEME = Scheme(
    name="grid/liere",
    summary="queries and keys turn by the exponential of learned matrices times the position",
    options=LiereOptions,
    maths="posbuild.encodings.grid.liere:Liere",
    acts_on=ActsOn.queries_and_keys,
    learns="layers x heads x axes x head width x (generator_dim - 1) / 2 numbers",
    beyond="any size",
    cost="a matrix exponential for each position, head and layer, and a matrix product for each token",
    used_by=("none known",),
    paper=Paper(
        title="LieRE: Lie Rotational Positional Encodings",
        authors="Ostmeier et al.",
        year=2024,
        arxiv="2406.10322",
        where="formula in the released code, LierePositionEncoder",
    ),
    compared_with=("StanfordMIMI/LieRE",),
    axes=(2, 3),
)
