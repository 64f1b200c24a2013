"""Learned codes by axis: a table for each axis, whose rows are joined or added.

The Vision Transformer's "2-D" variant joins them, half of the channels each (DETR's has the column first); axial position embeddings of long texts and
images are also added, each of the whole width.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Options, Paper, Scheme, option
from posbuild.errors import ConfigError
from posbuild.schemes.sinusoidal import Combine


class Join(enum.Enum):
    """What becomes of the rows of the axes: joined, each in its share of the channels, or added."""

    concat = "concat"
    add = "add"


@dataclass(kw_only=True)
class AxialLearnedOptions(Options):
    extent: list[int] = option([14, 14], "positions of each axis, the rows of its table; as many as axes", least=1)
    join: Join = option(Join.concat, "join the rows of the axes, each in its share of the channels, or add them")
    init_std: float = option(0.02, "standard deviation of the tables at the start", above=0.0)
    combine: Combine = option(
        Combine.add, "add the code to the token vector, or concatenate both and project back (learned)"
    )

    def number_of_axes(self) -> int:
        return len(self.extent)

    def sizes(self, dims: Dims) -> list[int]:
        return self.extent

    def longest(self, dims: Dims) -> int:
        return math.prod(self.extent)

    def check(self, dims: Dims) -> None:
        axes, typed = len(self.extent), str(self.extent).replace(" ", "")
        if axes not in SCHEME.axes:
            raise ConfigError(
                f"pe.extent={typed} has {axes} numbers. Give one for each axis: 2 for images, 3 for videos and volumes."
            )
        if self.join is Join.concat and dims.d_model % axes:
            raise ConfigError(
                f"pe.extent={typed} does not share out model.d_model={dims.d_model} among {axes} axes. Use a multiple of {axes} "
                "channels, or pe.join=add."
            )

    def takes_fractions(self) -> bool:
        return False


SCHEME = Scheme(
    name="grid/axial_learned",
    summary="a learned vector for each coordinate, those of the axes joined or added",
    options=AxialLearnedOptions,
    maths="posbuild.encodings.grid.axial_learned:AxialLearned",
    acts_on=ActsOn.input,
    learns="sum of extent x d_model / axes numbers (x d_model with join=add)",
    beyond="not defined beyond extent; resized by interpolation",
    cost="look-ups and an addition",
    used_by=("ViT's 2-D variant", "DETR's learned variant", "Reformer (in unequal shares)"),
    paper=Paper(
        title="An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale",
        authors="Dosovitskiy et al.",
        year=2020,
        arxiv="2010.11929",
        where="appendix D.4",
    ),
    compared_with=("transformers", "lucidrains/axial-positional-embedding"),
    axes=(2, 3),
)
