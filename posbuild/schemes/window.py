"""Attention limited to the last tokens and the first few, as in StreamingLLM."""

from __future__ import annotations

import enum
import importlib
from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Options, Paper, Scheme, option
from posbuild.schemes.rope import RopeOptions


class Inner(enum.Enum):
    """What tells positions apart within the window: nothing but the mask, or a rotary encoding with its default options."""

    none = "none"
    rope = "rope"
    rope_linear = "rope_linear"
    rope_ntk = "rope_ntk"
    rope_by_parts = "rope_by_parts"
    yarn = "yarn"
    llama3 = "llama3"
    rope_proportional = "rope_proportional"
    hope_highfreq = "hope_highfreq"
    rnope = "rnope"
    rope_local_global = "rope_local_global"

    def options(self) -> RopeOptions:
        """The default options of the rotary encoding."""
        return importlib.import_module(f"posbuild.schemes.{self.name}").SCHEME.options()


@dataclass(kw_only=True)
class WindowOptions(Options):
    width: int | None = option(
        None,
        "how many of the last tokens a query sees, its own among them; null: a quarter of the train length",
        unit="tokens",
        least=1,
    )
    sinks: int = option(4, "how many of the first tokens every query sees", unit="tokens", least=0)
    over: Inner = option(
        Inner.none, "what tells positions apart; a rotary encoding sees the first tokens right before the window"
    )

    def width_in(self, dims: Dims) -> int:
        """The window in a model of these sizes."""
        return max(1, dims.train_length // 4) if self.width is None else self.width

    def resolved(self, dims: Dims) -> WindowOptions:
        return replace(self, width=self.width_in(dims))

    def has_parameters(self) -> bool:
        return False

    def check(self, dims: Dims) -> None:
        if self.over is not Inner.none:
            self.over.options().check(dims)

    def reads_positions(self) -> bool:
        return self.over is not Inner.none


SCHEME = Scheme(
    name="window",
    summary="attention sees the last tokens and the first few alone",
    options=WindowOptions,
    maths="posbuild.encodings.window:Window",
    acts_on=ActsOn.attention,
    learns="nothing",
    beyond="any length; what lies before the window is forgotten",
    cost="a mask by query and key, and a product for each first token over a rotary encoding; no fused attention",
    used_by=("StreamingLLM",),
    paper=Paper(
        title="Efficient Streaming Language Models with Attention Sinks",
        authors="Xiao et al.",
        year=2024,
        arxiv="2309.17453",
        where="section 3.2; a window of a quarter of the train length is posbuild's own",
    ),
    compared_with=("transformers", "mit-han-lab/streaming-llm"),
    causal_only="the window reaches back from the query",
    shift_invariant=True,
)
