"""Two bases, as in Gemma 3: layers that see near tokens only turn by one base, every sixth layer by a larger one.

The layers are counted from 1: with interval 6 layers 6, 12, ... have the larger base. Gemma 3's other layers see a sliding
window only, which is a matter of attention and not of this scheme; its larger models divide the frequencies of the global
layers by 8 beside (rope_linear), which is not done here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Paper, Scheme, option
from posbuild.schemes.rope import RopeOptions


@dataclass(kw_only=True)
class RopeLocalGlobalOptions(RopeOptions):
    global_base: float = option(1_000_000.0, "the base in the global layers; base is that of the others", above=1.0)
    interval: int | None = option(
        None,
        "layers counted from 1 that are multiples of it are global; null: 6, or the number of layers if that is less",
        unit="layers",
        least=2,
    )

    def interval_in(self, dims: Dims) -> int:
        """The interval in a model of these sizes."""
        return max(2, min(6, dims.n_layers)) if self.interval is None else self.interval

    def resolved(self, dims: Dims) -> RopeLocalGlobalOptions:
        return replace(self, interval=self.interval_in(dims))

    def radians_per_token(self, dims: Dims, layer: int) -> list[float]:
        here = self if (layer + 1) % self.interval_in(dims) else replace(self, base=self.global_base)
        return RopeOptions.radians_per_token(here, dims, layer)


SCHEME = Scheme(
    name="rope_local_global",
    summary="rope with one base in local layers and a larger one in global layers",
    options=RopeLocalGlobalOptions,
    maths="posbuild.encodings.rope:Rope",
    acts_on=ActsOn.queries_and_keys,
    learns="nothing",
    beyond="any length; meant for local layers that see a sliding window",
    cost="that of rope, with two tables of angles",
    used_by=("Gemma 3",),
    paper=Paper(
        title="Gemma 3 Technical Report",
        authors="Gemma Team",
        year=2025,
        arxiv="2503.19786",
        where="section 2",
    ),
    compared_with=("transformers",),
    shift_invariant=True,
)
