"""DeBERTa's disentangled attention: content meets the distance's vector on the side of the key and of the query."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Options, Paper, Scheme, option
from posbuild.errors import ConfigError


class Distance(enum.Enum):
    """The distance whose vector a key meets: that which the query meets too (released code), or the opposite one (the paper)."""

    query_minus_key = "query_minus_key"
    key_minus_query = "key_minus_query"


@dataclass(kw_only=True)
class DebertaOptions(Options):
    buckets: int = option(
        32,
        "rows of the table for one side: half hold one distance each, half grow with its logarithm; as many as "
        "max_distance: one distance each, as in the paper; 256 in version 2, whose train length is 512",
        least=2,
    )
    max_distance: int = option(
        64, "all distances from here on share one row; 512 in the paper and version 2", unit="tokens", least=2
    )
    c2p: bool = option(True, "content to position: queries times the vector of the distance, as a key")
    p2c: bool = option(True, "position to content: keys times the vector of the distance, as a query")
    p2c_distance: Distance = option(
        Distance.query_minus_key,
        "the distance whose vector a key meets: that of queries (released code) or the opposite one (the paper)",
    )

    @property
    def linear(self) -> bool:
        """Whether each distance has a row of its own."""
        return self.buckets == self.max_distance

    @property
    def opposite(self) -> bool:
        """Whether keys meet the vector of the opposite distance."""
        return self.p2c and self.p2c_distance is Distance.key_minus_query

    def resolved(self, dims: Dims) -> DebertaOptions:
        return self if self.p2c else replace(self, p2c_distance=Distance.query_minus_key)

    def check(self, dims: Dims) -> None:
        if not (self.c2p or self.p2c):
            raise ConfigError(
                "pe.c2p=false with pe.p2c=false leaves nothing that depends on position. Leave one of them true, or use pe=none."
            )
        if self.buckets > self.max_distance:
            raise ConfigError(
                f"pe.buckets={self.buckets} is more than pe.max_distance={self.max_distance}: there are not as many distances. "
                f"Use pe.buckets={self.max_distance} for a row each, or fewer."
            )
        if self.buckets % 2 and not self.linear:
            raise ConfigError(
                f"pe.buckets={self.buckets} is odd: half of them hold one distance each. Use an even number, or "
                f"pe.max_distance={self.buckets} too for a row each."
            )

    def takes_fractions(self) -> bool:
        return False


SCHEME = Scheme(
    name="deberta",
    summary="queries and keys times learned vectors of the distance",
    options=DebertaOptions,
    maths="posbuild.encodings.deberta:Deberta",
    acts_on=ActsOn.scores,
    learns="buckets x d_model numbers, twice if bidirectional, and two d_model x d_model projections a layer",
    beyond="any length; far distances share one vector",
    cost="products of queries and of keys with the table, looked up by distance, in each layer",
    used_by=("DeBERTa", "DeBERTa v2 and v3"),
    paper=Paper(
        title="DeBERTa: Decoding-enhanced BERT with Disentangled Attention",
        authors="He et al.",
        year=2020,
        arxiv="2006.03654",
        where="section 3.1, equations 3 and 4; log buckets in the code of version 2",
    ),
    compared_with=("transformers", "microsoft/DeBERTa"),
    shift_invariant=True,
)
