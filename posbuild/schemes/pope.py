"""PoPE: a channel's size says what a token holds, its phase where it stands; they no longer mix, as they do in rope.

The paper keeps the learned phases within [-2 pi, 0] by a clamp, and starts them at zero, better for longer texts, or
evenly over that range, slightly better at the train length. A clamp has no gradient beyond its edge, and zero is the
edge: a phase that steps above it would never move again. A phase counts by its place on the circle alone, and that
range is one whole turn, so here it is left free: no function is gained or lost, and every phase keeps its gradient. One
phase a layer, key head and channel.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Options, Paper, Scheme, option


class Start(enum.Enum):
    """Where the learned phases start: at 0, or evenly between -2 pi and 0."""

    zero = "zero"
    uniform = "uniform"


@dataclass(kw_only=True)
class PopeOptions(Options):
    base: float = option(
        10_000.0, "channel c turns once in 2 pi base^(c / D) positions, D the head width", unit="", above=1.0
    )
    start: Start = option(Start.zero, "where the learned phases start: at 0, or evenly over the circle")

    def radians_per_token(self, dims: Dims) -> list[float]:
        """The frequency of each channel."""
        return [self.base ** (-channel / dims.head_dim) for channel in range(dims.head_dim)]


SCHEME = Scheme(
    name="pope",
    summary="sizes of channels say what, phases that grow with position say where",
    options=PopeOptions,
    maths="posbuild.encodings.pope:PoPE",
    acts_on=ActsOn.queries_and_keys,
    learns="layers x key heads x head width phases",
    beyond="any length; loss stays low to ten train lengths in the paper",
    cost="queries and keys twice as wide in attention and in the cache",
    used_by=("none known",),
    paper=Paper(
        title='Decoupling the "What" and "Where" With Polar Coordinate Positional Embeddings',
        authors="Gopalakrishnan et al.",
        year=2025,
        arxiv="2509.10534",
        where="section 3, equations 3 to 6",
    ),
    compared_with=("x-transformers",),
    shift_invariant=True,
)
