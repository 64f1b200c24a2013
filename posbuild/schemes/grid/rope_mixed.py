"""RoPE-Mixed: each channel pair turns by both coordinates, each times a learned frequency of its layer and head.

Positions are (column, row) in the released code. Frequencies start as fixed ones by pairs of directions at right angles,
which are turned together by an angle drawn for each head, so that diagonals are seen from the start.
"""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Paper, Scheme, option
from posbuild.errors import ConfigError
from posbuild.schemes.rope import Pairing, RopeOptions


@dataclass(kw_only=True)
class RopeMixedOptions(RopeOptions):
    layout: Pairing = option(
        Pairing.interleaved,
        "pair channel c with its neighbour (the released code), or with c + half the rotary width; equal up to a permutation of weights",
    )
    base: float = option(
        10.0, "at the start the slowest pair turns once in 2 pi base^(1 - 4/R) positions, R the rotary width", above=1.0
    )
    rotate: bool = option(
        True, "turn the directions of a head by an angle drawn at the start; else they are the axes, in each head alike"
    )

    def number_of_axes(self) -> int:
        return 2

    def radians_per_token(self, dims: Dims, layer: int) -> list[float]:
        """The frequencies at the start, along a direction: half of the pairs turn by it, half by one at right angles."""
        width = self.rotary_width(dims)
        return [self.base ** (-4 * pair / width) for pair in range(width // 4)]

    def has_parameters(self) -> bool:
        return True

    def check(self, dims: Dims) -> None:
        super().check(dims)
        width = self.rotary_width(dims)
        if width % 4:
            raise ConfigError(
                f"pe=grid/rope_mixed starts half of the pairs along one direction and half along another, and {width} channels of a "
                f"head turn (model.d_model={dims.d_model} / model.n_heads={dims.n_heads}, pe.fraction={self.fraction:g}): there must "
                "be a multiple of 4."
            )


SCHEME = Scheme(
    name="grid/rope_mixed",
    summary="channel pairs turn by both coordinates, at learned frequencies",
    options=RopeMixedOptions,
    maths="posbuild.encodings.grid.rope_mixed:RopeMixed",
    acts_on=ActsOn.queries_and_keys,
    learns="2 x layers x key/value heads x head width / 2 numbers",
    beyond="any size",
    cost="angles, and a rotation of queries and keys, in each layer and head",
    used_by=("RoPE-ViT",),
    paper=Paper(
        title="Rotary Position Embedding for Vision Transformer",
        authors="Heo et al.",
        year=2024,
        arxiv="2403.13298",
        where="RoPE-Mixed; released code, init_random_2d_freqs and compute_mixed_cis",
    ),
    compared_with=("naver-ai/rope-vit",),
    shift_invariant=True,
    axes=(2,),
)
