"""Shaw's relative vectors: keys, and values, of each clipped distance."""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Options, Paper, Scheme, option


@dataclass(kw_only=True)
class ShawOptions(Options):
    max_distance: int = option(
        16, "all distances from here on share one vector; 16 in the paper, 20 in its code", unit="tokens", least=1
    )
    values: bool = option(
        True, "a second table of vectors that are added to the values; false: keys alone, as many copies have it"
    )

    def takes_fractions(self) -> bool:
        return False


SCHEME = Scheme(
    name="shaw",
    summary="a learned vector a distance, added to keys and to values",
    options=ShawOptions,
    maths="posbuild.encodings.shaw:Shaw",
    acts_on=ActsOn.scores,
    learns="layers x (max_distance + 1) x head width numbers, twice with values; both sides if bidirectional",
    beyond="any length; far distances share one vector",
    cost="products of queries with the table, looked up by distance; weights summed by distance for the values",
    used_by=("Wav2Vec2-BERT (keys alone)",),
    paper=Paper(
        title="Self-Attention with Relative Position Representations",
        authors="Shaw et al.",
        year=2018,
        arxiv="1803.02155",
        where="section 3, equations 3 and 4",
    ),
    compared_with=("transformers", "tensorflow/tensor2tensor"),
    shift_invariant=True,
)
