"""TUPE: words meet words and positions meet positions, each by projections of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Paper, Scheme, option
from posbuild.errors import ConfigError
from posbuild.schemes.t5 import T5Options


@dataclass(kw_only=True)
class TupeOptions(T5Options):
    max_positions: int | None = option(None, "rows of the table; null: the train length", unit="tokens", least=1)
    relative: bool = option(
        True, "add a learned scalar for each bucket of distances, as T5 (TUPE-R in the paper); false: TUPE-A"
    )

    def longest(self, dims: Dims) -> int:
        return dims.train_length if self.max_positions is None else self.max_positions

    def resolved(self, dims: Dims) -> TupeOptions:
        known = replace(self, max_positions=self.longest(dims))
        if self.relative:
            return known
        return replace(known, buckets=TupeOptions.buckets, max_distance=TupeOptions.max_distance)  # which nothing reads

    def check(self, dims: Dims) -> None:
        if self.relative:
            super().check(dims)
        if self.longest(dims) < dims.train_length:
            raise ConfigError(
                f"pe.max_positions={self.max_positions} is shorter than train.length={dims.train_length}: training needs a row for "
                f"each position. Use pe.max_positions={dims.train_length} or more, or null."
            )

    def takes_fractions(self) -> bool:
        return False


SCHEME = Scheme(
    name="tupe",
    summary="products of two learned projections of the positions",
    options=TupeOptions,
    maths="posbuild.encodings.tupe:Tupe",
    acts_on=ActsOn.scores,
    learns="max_positions x d_model numbers, two d_model x d_model projections, buckets x heads numbers",
    beyond="not defined beyond max_positions",
    cost="a product of the positions of queries and keys in each layer, and a bias by distance",
    used_by=("none known",),
    paper=Paper(
        title="Rethinking Positional Encoding in Language Pre-training",
        authors="Ke et al.",
        year=2021,
        arxiv="2006.15595",
        where="section 3.1; the normalised table as in the released code",
    ),
    compared_with=("guolinke/TUPE",),
)
