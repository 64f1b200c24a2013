"""Rotary encoding: channel pairs of queries and keys turn by an angle that grows with position."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Options, Paper, Scheme, option
from posbuild.errors import ConfigError


class Pairing(enum.Enum):
    """Which channels turn together: half the rotary width apart (GPT-NeoX, LLaMA in transformers), or neighbours (the paper, GPT-J)."""

    half = "half"
    interleaved = "interleaved"


@dataclass(kw_only=True)
class RopeOptions(Options):
    layout: Pairing = option(
        Pairing.half,
        "pair channel c with c + half the rotary width, or with its neighbour; equal up to a permutation of weights",
    )
    base: float = option(
        10_000.0, "the slowest pair turns once in 2 pi base^(1 - 2/R) positions, R the rotary width", above=1.0
    )
    fraction: float = option(
        1.0, "share of the head width that turns; the rest carries no position", above=0.0, most=1.0
    )

    def rotary_width(self, dims: Dims) -> int:
        """Channels of a head that turn."""
        return round(dims.head_dim * self.fraction)

    def radians_per_token(self, dims: Dims, layer: int) -> list[float]:
        """The frequency of each pair of channels in a layer; empty: the layer turns nothing."""
        width = self.rotary_width(dims)
        return [self.base ** (-2 * pair / width) for pair in range(width // 2)]

    def magnitude(self, dims: Dims) -> float:
        """The factor by which queries, and keys, are lengthened as they turn: scores grow by its square."""
        return 1.0

    def has_parameters(self) -> bool:
        return False

    def check(self, dims: Dims) -> None:
        width = dims.head_dim * self.fraction
        if width != round(width) or round(width) % 2 or not round(width):
            raise ConfigError(
                f"pe.fraction={self.fraction:g} of the head width {dims.head_dim} (model.d_model={dims.d_model} / model.n_heads={dims.n_heads}) "
                f"is {width:g} channels: they turn in pairs, so it must be an even whole number above 0. Change pe.fraction, model.d_model or model.n_heads."
            )


SCHEME = Scheme(
    name="rope",
    summary="queries and keys turn by an angle that grows with position",
    options=RopeOptions,
    maths="posbuild.encodings.rope:Rope",
    acts_on=ActsOn.queries_and_keys,
    learns="nothing",
    beyond="any length; loss rises soon, at angles never trained on",
    cost="a rotation of queries and keys in each layer",
    used_by=("LLaMA", "PaLM", "GPT-NeoX", "Mistral", "Qwen"),
    paper=Paper(
        title="RoFormer: Enhanced Transformer with Rotary Position Embedding",
        authors="Su et al.",
        year=2021,
        arxiv="2104.09864",
        where="section 3.2.2, equations 14 to 16",
    ),
    shift_invariant=True,
)
