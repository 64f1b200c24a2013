"""CoPE: a key's position is the number of tokens from it to the query that the query counts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Options, Paper, Scheme, option
from posbuild.schemes.fox import BACKWARDS


@dataclass(kw_only=True)
class CopeOptions(Options):
    max_position: int | None = option(
        None,
        "the largest position: all counts above share it; null: the train length, as in the authors' code",
        unit="tokens",
        least=1,
    )
    divided: bool = option(
        True,
        "divide the scores of positions by the root of the head width, as q·k is, by the authors' code; false: as the paper "
        "prints it",
    )
    share_layers: bool = option(False, "one table for all layers, or one each")

    def furthest(self, dims: Dims) -> int:
        """The largest position in a model of these sizes."""
        return dims.train_length if self.max_position is None else self.max_position

    def resolved(self, dims: Dims) -> CopeOptions:
        return replace(self, max_position=self.furthest(dims))

    def reads_positions(self) -> bool:
        return False


SCHEME = Scheme(
    name="cope",
    summary="positions count the tokens that a query cares for, by gates of q·k",
    options=CopeOptions,
    maths="posbuild.encodings.cope:Cope",
    acts_on=ActsOn.scores,
    learns="(max_position + 1) x head width numbers, per layer unless shared",
    beyond="any length; counts above max_position share one position",
    cost="a product of queries with each position, gates and a sum by query and key in each layer; no fused attention",
    used_by=("none known",),
    paper=Paper(
        title="Contextual Position Encoding: Learning to Count What's Important",
        authors="Golovneva et al.",
        year=2024,
        arxiv="2405.18719",
        where="section 4; gates and scale as in the released code",
    ),
    compared_with=("x-transformers", "facebookresearch/RAM"),
    causal_only=BACKWARDS,
    shift_invariant=True,
)
