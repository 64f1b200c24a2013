"""Axial rotary encoding: the channel pairs are shared out evenly, and each turns by one coordinate.

The first axis takes the first pairs. In released code of RoPE-ViT it is the column of a patch: positions are then
(column, row). Its class token is not turned, as any token at position 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Paper, Scheme, option
from posbuild.errors import ConfigError
from posbuild.schemes.rope import Pairing, RopeOptions


@dataclass(kw_only=True)
class AxialRopeOptions(RopeOptions):
    axes: int = option(2, "numbers that make one position: 2 for images, 3 for videos and volumes", least=2, most=3)
    layout: Pairing = option(
        Pairing.interleaved,
        "pair channel c with its neighbour (the released code), or with c + half the rotary width; equal up to a permutation of weights",
    )
    base: float = option(
        100.0,
        "the slowest pair of an axis turns once in 2 pi base^(1 - 2 axes/R) positions, R the rotary width; 100 for images, "
        "whose axes are short",
        above=1.0,
    )

    def number_of_axes(self) -> int:
        return self.axes

    def radians_per_token(self, dims: Dims, layer: int) -> list[float]:
        width = self.rotary_width(dims) // self.axes
        return [self.base ** (-2 * pair / width) for pair in range(width // 2)] * self.axes

    def axis_of_pair(self, dims: Dims) -> list[int]:
        """The axis by whose position each pair turns."""
        pairs = self.rotary_width(dims) // 2
        return [pair * self.axes // pairs for pair in range(pairs)]

    def check(self, dims: Dims) -> None:
        super().check(dims)
        width = self.rotary_width(dims)
        if width % (2 * self.axes):
            raise ConfigError(
                f"pe.axes={self.axes} does not share out the {width} channels of a head that turn (model.d_model={dims.d_model} / "
                f"model.n_heads={dims.n_heads}, pe.fraction={self.fraction:g}): each axis takes as many pairs, so there must be a "
                f"multiple of {2 * self.axes}."
            )


SCHEME = Scheme(
    name="grid/axial_rope",
    summary="channel pairs shared out among the axes turn by their coordinates",
    options=AxialRopeOptions,
    maths="posbuild.encodings.grid.axial_rope:AxialRope",
    acts_on=ActsOn.queries_and_keys,
    learns="nothing",
    beyond="any size",
    cost="a rotation of queries and keys in each layer",
    used_by=(
        "RoPE-ViT",
        "SAM 2 (memory attention, base 10 000)",
        "the image encoder of Qwen2-VL (rows first, layout=half)",
    ),
    paper=Paper(
        title="Rotary Position Embedding for Vision Transformer",
        authors="Heo et al.",
        year=2024,
        arxiv="2403.13298",
        where="RoPE-Axial; released code, compute_axial_cis",
    ),
    compared_with=("lucidrains/rotary-embedding-torch", "naver-ai/rope-vit"),
    shift_invariant=True,
    axes=(2, 3),
)
