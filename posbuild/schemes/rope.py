"""Rotary encoding: channel pairs of queries and keys turn by an angle that grows with position.

A larger `base` is what is called adjusted base frequency (ABF; Xiong et al. 2023, arXiv:2309.16039, 500 000 for 10 000).
`fraction` is partial rotary (GPT-J, GPT-NeoX): fewer channels turn, with the whole range of frequencies; it is not
proportional rotary, `rope_proportional`, where all channels are paired and the slowest pairs stand still.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

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


@dataclass(kw_only=True)
class StretchedOptions(RopeOptions):
    """Base of rotary schemes that slow pairs so that a longer text turns them no further than a shorter one did."""

    factor: float = option(
        16.0,
        "how many times longer the text may be: what is slowed at all is slowed by up to this; 1: plain rope",
        least=1.0,
    )


@dataclass(kw_only=True)
class OriginalOptions(RopeOptions):
    """Base of rotary schemes that refer to the length of text that plain rope was trained on."""

    original_length: int | None = option(
        None, "the length of text that plain rope serves; null: the train length", unit="tokens", least=2
    )

    def original(self, dims: Dims) -> int:
        """That length, in tokens, in a model of these sizes."""
        return max(2, dims.train_length) if self.original_length is None else self.original_length

    def resolved(self, dims: Dims) -> OriginalOptions:
        return replace(self, original_length=self.original(dims))


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
    compared_with=("transformers", "x-transformers"),
    shift_invariant=True,
)
