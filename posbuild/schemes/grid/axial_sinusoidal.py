"""Sinusoidal codes by axis: the channels are shared out evenly, and each part is the sinusoidal code of one axis.

The first axis takes the first channels. Released code of MAE and its kin gives them to the column of a patch: positions
are then (column, row).
"""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Paper, Scheme, option
from posbuild.errors import ConfigError
from posbuild.schemes.sinusoidal import Layout, SinusoidalOptions


@dataclass(kw_only=True)
class AxialSinusoidalOptions(SinusoidalOptions):
    axes: int = option(2, "numbers that make one position: 2 for images, 3 for videos and volumes", least=2, most=3)
    base: float = option(10_000.0, "the slowest pair turns once in 2 pi base^(1 - 2 axes/d_model) positions", above=1.0)
    layout: Layout = option(
        Layout.half, "within an axis all sines before all cosines (the released code), or side by side by frequency"
    )

    def number_of_axes(self) -> int:
        return self.axes

    def check(self, dims: Dims) -> None:
        if dims.d_model % (2 * self.axes):
            raise ConfigError(
                f"pe.axes={self.axes} does not share out model.d_model={dims.d_model}: each axis takes as many channels, sines and "
                f"cosines, so it must be a multiple of {2 * self.axes}."
            )


SCHEME = Scheme(
    name="grid/axial_sinusoidal",
    summary="fixed sines and cosines of each coordinate in its share of the channels",
    options=AxialSinusoidalOptions,
    maths="posbuild.encodings.grid.axial_sinusoidal:AxialSinusoidal",
    acts_on=ActsOn.input,
    learns="nothing (one amplitude with learn_scale, a projection with combine=concat)",
    beyond="any size",
    cost="one addition",
    used_by=("MAE (the authors' code)", "DiT"),
    paper=Paper(
        title="Masked Autoencoders Are Scalable Vision Learners",
        authors="He et al.",
        year=2021,
        arxiv="2111.06377",
        where="formula in the released code, get_2d_sincos_pos_embed",
    ),
    compared_with=("transformers", "facebookresearch/mae"),
    axes=(2, 3),
)
