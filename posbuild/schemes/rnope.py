"""RNoPE: every fourth layer has no position encoding, the others have rope.

The layers are counted from 1: with interval 4 layers 4, 8, ... are without, as in SmolLM3 and Llama 4, whose
configuration lists no_rope_layers as 1 for a layer WITH rope (Megatron's --no-rope-freq has 1 for one without). The paper's
layers with rope see a sliding window only (RNoPE-SWA), which is a matter of attention and not of this scheme.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Paper, Scheme, option
from posbuild.schemes.rope import RopeOptions


@dataclass(kw_only=True)
class RnopeOptions(RopeOptions):
    interval: int | None = option(
        None,
        "layers counted from 1 that are multiples of it turn nothing; null: 4, or the number of layers if that is less",
        unit="layers",
        least=2,
    )

    def interval_in(self, dims: Dims) -> int:
        """The interval in a model of these sizes."""
        return max(2, min(4, dims.n_layers)) if self.interval is None else self.interval

    def resolved(self, dims: Dims) -> RnopeOptions:
        return replace(self, interval=self.interval_in(dims))

    def radians_per_token(self, dims: Dims, layer: int) -> list[float]:
        return super().radians_per_token(dims, layer) if (layer + 1) % self.interval_in(dims) else []


SCHEME = Scheme(
    name="rnope",
    summary="rope in three of four layers, nothing in the fourth",
    options=RnopeOptions,
    maths="posbuild.encodings.rope:Rope",
    acts_on=ActsOn.queries_and_keys,
    learns="nothing",
    beyond="any length; better than rope where its layers with rope see a sliding window",
    cost="that of rope, in the layers that turn",
    used_by=("SmolLM3", "Command A", "Llama 4"),
    paper=Paper(
        title="Rope to Nope and Back Again: A New Hybrid Attention Strategy",
        authors="Yang et al.",
        year=2025,
        arxiv="2501.18795",
        where="section 3",
    ),
    compared_with=("transformers",),
    shift_invariant=True,
)
