"""ReRoPE: rope whose distances end at a window, min(i - j, w): beyond it all keys are equally far.

Su writes of 2023 apply it to models trained with rope, on texts longer than those of the training. The released code
also multiplies queries by the logarithm of their position, always; in the text that is a device of its own, and here it
is an option, on as in the code. A window of 512 served an original length of 4096; the default keeps that share. In Su's
tables (kexue.fm/archives/9708) windows of a quarter to a half of the original length are better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Paper, Scheme, option
from posbuild.schemes.rope import OriginalOptions

NEEDS_A_MASK = "its window is defined for keys before the query alone"


@dataclass(kw_only=True)
class NearFarOptions(OriginalOptions):
    """Base of schemes that are rope at distances within a window and another rule beyond it."""

    window: int | None = option(None, "distances below it are those of rope", unit="tokens", least=1)
    log_n: bool = option(
        False, "multiply the query at position p by ln(p + 1) / ln(original_length) where that is above 1"
    )

    def window_in(self, dims: Dims) -> int:
        """The window, in tokens, in a model of these sizes."""
        raise NotImplementedError

    def resolved(self, dims: Dims) -> NearFarOptions:
        return replace(self, original_length=self.original(dims), window=self.window_in(dims))


@dataclass(kw_only=True)
class ReRopeOptions(NearFarOptions):
    window: int | None = option(
        None,
        "keys this far or further are all as if at this distance; null: an eighth of original_length, as 512 of 4096 in "
        "the released code",
        unit="tokens",
        least=1,
    )
    log_n: bool = option(
        True,
        "multiply the query at position p by ln(p + 1) / ln(original_length) where that is above 1, as the released code does",
    )

    def window_in(self, dims: Dims) -> int:
        return max(self.original(dims) // 8, 1) if self.window is None else self.window


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
    compared_with=("bojone/rerope",),
    causal_only=NEEDS_A_MASK,
)
