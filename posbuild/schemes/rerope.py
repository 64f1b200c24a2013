"""ReRoPE: rope whose distances end at a window, min(i - j, w): beyond it all keys are equally far.

Su writes of 2023 describe it for models trained with rope, applied to texts longer than those: both the distance rule
and the growth of queries with the logarithm of their position are in the released patch, which always does both. Here
the second is an option, on by default as there. A window of 512 served a train length of 4096; the default keeps that
share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Paper, Scheme, option
from posbuild.errors import ConfigError
from posbuild.schemes.rope import RopeOptions

NEEDS_A_MASK = "its window is defined for keys before the query alone"


@dataclass(kw_only=True)
class WindowOptions(RopeOptions):
    """Base of schemes that are rope at distances within a window and another rule beyond it."""

    window: int | None = option(None, "distances below it are those of rope", unit="tokens", least=1)
    log_n: bool = option(
        False, "multiply the query at position p by ln(p + 1) / ln(train length) where that is above 1"
    )

    def window_in(self, dims: Dims) -> int:
        """The window, in tokens, in a model of these sizes."""
        raise NotImplementedError

    def resolved(self, dims: Dims) -> WindowOptions:
        return replace(self, window=self.window_in(dims))

    def check(self, dims: Dims) -> None:
        super().check(dims)
        if self.log_n and dims.train_length < 2:
            raise ConfigError(
                f"pe.log_n=true divides by the logarithm of the train length, train.length={dims.train_length}: "
                "it must be 2 or more. Use pe.log_n=false or a longer text."
            )


@dataclass(kw_only=True)
class ReRopeOptions(WindowOptions):
    window: int | None = option(
        None,
        "keys this far or further are all as if at this distance; null: an eighth of the train length, as 512 of 4096 "
        "in the released code",
        unit="tokens",
        least=1,
    )
    log_n: bool = option(
        True,
        "multiply the query at position p by ln(p + 1) / ln(train length) where that is above 1, as in the released code",
    )

    def window_in(self, dims: Dims) -> int:
        return max(dims.train_length // 8, 1) if self.window is None else self.window


SCHEME = Scheme(
    name="rerope",
    summary="rope with distances that end at a window",
    options=ReRopeOptions,
    maths="posbuild.encodings.rerope:ReRope",
    acts_on=ActsOn.attention,
    learns="nothing",
    beyond="any length; no distance is larger than the window",
    cost="two products of queries and keys in each layer, and keys turned again for each chunk of queries",
    used_by=("none known; applied to LLaMA 2 after training",),
    paper=Paper(
        title="Rectified Rotary Position Embeddings",
        authors="Su",
        year=2023,
        where="blog post, kexue.fm/archives/9708; code: bojone/rerope",
    ),
    causal_only=NEEDS_A_MASK,
)
