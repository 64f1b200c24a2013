"""T5's bias: a learned scalar per head for each of a few buckets of distances."""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Options, Paper, Scheme, option
from posbuild.errors import ConfigError


@dataclass(kw_only=True)
class T5Options(Options):
    buckets: int = option(
        32,
        "half hold one distance each, half grow with its logarithm; a bidirectional model splits them by direction",
        least=2,
    )
    max_distance: int = option(
        64,
        "where the growing buckets end; 128 in the paper, whose train length is 512",
        unit="tokens",
        least=2,
    )

    def per_direction(self, causal: bool) -> int:
        """Buckets for the keys on one side of the query."""
        return self.buckets if causal else self.buckets // 2

    def check(self, dims: Dims) -> None:
        least = 2 if dims.causal else 4
        if self.buckets < least or self.buckets % least:
            raise ConfigError(
                f"pe.buckets={self.buckets} does not split evenly: {'half hold one distance each' if dims.causal else 'a bidirectional model halves them by direction, then each half again'}. "
                f"Use a multiple of {least}, such as 32."
            )
        exact = self.per_direction(dims.causal) // 2
        if self.max_distance <= exact:
            raise ConfigError(
                f"pe.max_distance={self.max_distance} leaves no distance for the growing buckets: pe.buckets={self.buckets} gives the first "
                f"{exact} distances a bucket each. Use pe.max_distance={exact + 1} or more, or fewer buckets."
            )


SCHEME = Scheme(
    name="t5",
    summary="a learned scalar for each bucket of distances and head, added to the scores",
    options=T5Options,
    maths="posbuild.encodings.t5:T5",
    acts_on=ActsOn.scores,
    learns="buckets x heads numbers",
    beyond="any length; loss flat to a few train lengths at least",
    cost="a bias by distance",
    used_by=("T5", "UMT5", "LongT5"),
    paper=Paper(
        title="Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
        authors="Raffel et al.",
        year=2020,
        arxiv="1910.10683",
        where="section 2.1; bucket formula in the released code",
    ),
    compared_with=("transformers", "x-transformers"),
    shift_invariant=True,
    pe_lr_mult=30.0,
)
