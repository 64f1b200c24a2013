"""Music Transformer's relative attention: a learned vector a distance and head, in a causal model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Options, Paper, Scheme, option


@dataclass(kw_only=True)
class MusicTransformerOptions(Options):
    max_distance: int | None = option(
        None,
        "distances 0 to max_distance - 1 have a vector, others none; null: the train length, as in the paper's formula",
        unit="tokens",
        least=1,
    )
    share_heads: bool = option(False, "one table for all heads of a layer, or one each")

    def rows(self, dims: Dims) -> int:
        """Distances that have a vector."""
        return dims.train_length if self.max_distance is None else self.max_distance

    def resolved(self, dims: Dims) -> MusicTransformerOptions:
        return replace(self, max_distance=self.rows(dims))

    def takes_fractions(self) -> bool:
        return False


SCHEME = Scheme(
    name="music_transformer",
    summary="queries times a learned vector a distance and head",
    options=MusicTransformerOptions,
    maths="posbuild.encodings.music_transformer:MusicTransformer",
    acts_on=ActsOn.scores,
    learns="layers x heads x max_distance x head width numbers",
    beyond="any length; keys max_distance or more away get no term",
    cost="products of queries with the table, looked up by distance",
    used_by=("Music Transformer",),
    paper=Paper(
        title="Music Transformer",
        authors="Huang et al.",
        year=2018,
        arxiv="1809.04281",
        where="section 3, relative attention and skewing",
    ),
    compared_with=("tensorflow/tensor2tensor",),
    causal_only="its table holds distances to earlier tokens alone, and its skewing leaves wrong ones for later tokens",
    shift_invariant=True,
)
