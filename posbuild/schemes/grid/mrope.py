"""M-RoPE: the channel pairs of rope, fast to slow, are shared out among time, height and width.

A token of text has the same number on all three axes, and is then turned as by rope. `interleave` is how newer models
(Qwen3-VL) share the pairs out: in turn, so that each axis has fast and slow ones. The default is Qwen2-VL's, in sections:
time has the fastest pairs, width the slowest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Paper, Scheme, option
from posbuild.errors import ConfigError
from posbuild.schemes.rope import RopeOptions

AXES = 3


@dataclass(kw_only=True)
class MropeOptions(RopeOptions):
    sections: list[int] | None = option(
        None,
        "channel pairs that turn by time, height and width; null: as 16, 24, 24 (24, 20, 20 with interleave) of 64",
        least=1,
    )
    interleave: bool = option(
        False,
        "share the pairs out in turn (Qwen3-VL), height and width having theirs among the first; else in sections",
    )
    base: float = option(
        1_000_000.0,
        "the slowest pair turns once in 2 pi base^(1 - 2/R) positions, R the rotary width; that of Qwen2-VL and Qwen2.5-VL (Qwen3-VL, with interleave: 5 000 000)",
        above=1.0,
    )

    def number_of_axes(self) -> int:
        return AXES

    def in_sections(self, dims: Dims) -> list[int]:
        """The number of pairs of each axis."""
        if self.sections is not None:
            return self.sections
        pairs = self.rotary_width(dims) // 2
        each = max(1, pairs * (5 if self.interleave else 6) // 16)
        return [pairs - 2 * each, each, each]

    def resolved(self, dims: Dims) -> MropeOptions:
        return replace(self, sections=self.in_sections(dims))

    def axis_of_pair(self, dims: Dims) -> list[int]:
        """The axis by whose position each pair turns."""
        sections = self.in_sections(dims)
        if not self.interleave:
            return [axis for axis, pairs in enumerate(sections) for _ in range(pairs)]
        return [axis if pair < 3 * sections[axis] else 0 for pair in range(sum(sections)) for axis in [pair % AXES]]

    def check(self, dims: Dims) -> None:
        super().check(dims)
        sections, pairs = self.in_sections(dims), self.rotary_width(dims) // 2
        typed = "null" if self.sections is None else str(sections).replace(" ", "")
        if len(sections) != AXES or sum(sections) != pairs or min(sections) < 1:
            raise ConfigError(
                f"pe.sections={typed} does not share out {pairs} channel pairs (model.d_model={dims.d_model} / model.n_heads={dims.n_heads}, "
                f"pe.fraction={self.fraction:g}): time, height and width each need one at least, and all of them together. Use three "
                f"numbers whose sum is {pairs}" + ("." if pairs >= AXES else ", with wider heads.")
            )
        places = [self.axis_of_pair(dims).count(axis) for axis in range(AXES)]
        if places != sections:
            raise ConfigError(
                f"pe.sections={typed} cannot be shared out in turn (pe.interleave=true): height and width would have {places[1]} and "
                f"{places[2]} pairs, since every third of {pairs} is theirs. Give time at least as many as each of them, or "
                "pe.interleave=false."
            )


SCHEME = Scheme(
    name="grid/mrope",
    summary="rope whose channel pairs are shared out among time, height and width",
    options=MropeOptions,
    maths="posbuild.encodings.grid.axial_rope:AxialRope",
    acts_on=ActsOn.queries_and_keys,
    learns="nothing",
    beyond="any size",
    cost="a rotation of queries and keys in each layer",
    used_by=("Qwen2-VL", "Qwen2.5-VL", "Qwen3-VL (interleave)"),
    paper=Paper(
        title="Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution",
        authors="Wang et al.",
        year=2024,
        arxiv="2409.12191",
        where="Multimodal Rotary Position Embedding; sections in the released code",
    ),
    compared_with=("transformers",),
    shift_invariant=True,
    axes=(AXES,),
)
