"""A learned table: one vector a position, at the input."""

from __future__ import annotations

from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Options, Paper, Scheme, option
from posbuild.errors import ConfigError
from posbuild.schemes.sinusoidal import Combine


@dataclass(kw_only=True)
class LearnedOptions(Options):
    max_positions: int | None = option(None, "rows of the table; null: the train length", unit="tokens", least=1)
    init_std: float = option(0.02, "standard deviation of the table at the start", above=0.0)
    combine: Combine = option(
        Combine.add, "add the code to the token vector, or concatenate both and project back (learned)"
    )

    def longest(self, dims: Dims) -> int:
        return dims.train_length if self.max_positions is None else self.max_positions

    def resolved(self, dims: Dims) -> LearnedOptions:
        return replace(self, max_positions=self.longest(dims))

    def check(self, dims: Dims) -> None:
        if self.longest(dims) < dims.train_length:
            raise ConfigError(
                f"pe.max_positions={self.max_positions} is shorter than train.length={dims.train_length}: training needs a row for "
                f"each position. Use pe.max_positions={dims.train_length} or more, or null."
            )

    def takes_fractions(self) -> bool:
        return False


SCHEME = Scheme(
    name="learned",
    summary="a learned vector for each position, added to the token vectors",
    options=LearnedOptions,
    maths="posbuild.encodings.learned:Learned",
    acts_on=ActsOn.input,
    learns="max_positions x d_model numbers",
    beyond="not defined beyond max_positions",
    cost="one look-up and addition; memory for the table",
    used_by=("BERT", "GPT-2", "OPT"),
    paper=Paper(
        title="Convolutional Sequence to Sequence Learning",
        authors="Gehring et al.",
        year=2017,
        arxiv="1705.03122",
        where="section 3.1",
    ),
    compared_with=("transformers",),
    pe_lr_mult=3.0,
)
