"""NTK-by-parts: fast pairs stay as they are, slow pairs slow by the factor, with a ramp between. YaRN without its temperature.

The paper's ramp rises with how often a pair turns over the original length (`turns`). Released code has another
(`pair`, the default): it rises with the number of the pair, from the number at which a pair turns `high` times, rounded
down, to that at which it turns `low` times, rounded up, cut off at 0 and at R - 1, R the rotary width. The cut at R - 1,
beyond the last pair, is that of jquesnelle/yarn and of transformers; litgpt and OLMo cut at R/2 - 1, and litgpt has the
ramp the wrong way round. Where the upper end of the ramp lies below the first pair (fewer than 7 tokens) released code
leaves every pair as it is; here all slow, as in the paper.
The file LlamaPartNTKScaledRotaryEmbedding.py of jquesnelle/yarn is an earlier method, with four constants.
`low` and `high` are alpha and beta in the paper, beta_slow and beta_fast in code.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Paper, Scheme, option
from posbuild.errors import ConfigError
from posbuild.schemes.rope import OriginalOptions, RopeOptions, StretchedOptions


class Ramp(enum.Enum):
    """What the ramp between fast and slow pairs is linear in: the number of the pair (released code), or its turns (the paper)."""

    pair = "pair"
    turns = "turns"


@dataclass(kw_only=True)
class PartsOptions(OriginalOptions):
    """Base of schemes that treat pairs by how often they turn over the original length."""

    low: float = option(
        1.0,
        "pairs that turn less often over the original length slow by the whole factor (alpha, beta_slow)",
        unit="turns",
        above=0.0,
    )
    high: float = option(32.0, "pairs that turn more often stay as they are (beta, beta_fast)", unit="turns", above=0.0)

    def slowed(self, dims: Dims) -> list[float]:
        """How far each pair is slowed: 0 not at all, 1 by the whole factor, linear in its turns between."""
        length = self.original(dims)
        turns = [length * radians / (2 * math.pi) for radians in RopeOptions.radians_per_token(self, dims, 0)]
        return [min(max((self.high - each) / (self.high - self.low), 0.0), 1.0) for each in turns]

    def by_parts(self, dims: Dims, factor: float) -> list[float]:
        """The frequency of each pair, slowed by up to the factor."""
        plain = RopeOptions.radians_per_token(self, dims, 0)
        return [
            radians * (1 - share * (1 - 1 / factor)) for radians, share in zip(plain, self.slowed(dims), strict=True)
        ]

    def check(self, dims: Dims) -> None:
        super().check(dims)
        if self.low >= self.high:
            raise ConfigError(
                f"pe.low={self.low:g} must be less than pe.high={self.high:g}: pairs that turn more than pe.high times stay as they "
                "are, those that turn less than pe.low times slow by the whole factor."
            )


@dataclass(kw_only=True)
class RampOptions(PartsOptions):
    """The same with a choice of ramp."""

    ramp: Ramp = option(
        Ramp.pair, "what the ramp between the two is linear in: the number of the pair, as in code, or its turns"
    )

    def slowed(self, dims: Dims) -> list[float]:
        if self.ramp is Ramp.turns:
            return super().slowed(dims)
        width = self.rotary_width(dims)
        last = min(math.ceil(self.pair_with(self.low, dims)), width - 1)
        first = min(max(math.floor(self.pair_with(self.high, dims)), 0), last)
        return [min(max((pair - first) / max(last - first, 0.001), 0.0), 1.0) for pair in range(width // 2)]

    def pair_with(self, turns: float, dims: Dims) -> float:
        """The number, with a fraction, of the pair that turns so often over the original length."""
        slower = self.original(dims) / (2 * math.pi * turns)  # than the fastest pair
        return self.rotary_width(dims) * math.log(slower) / (2 * math.log(self.base))


@dataclass(kw_only=True)
class ByPartsOptions(StretchedOptions, RampOptions):
    def radians_per_token(self, dims: Dims, layer: int) -> list[float]:
        return self.by_parts(dims, self.factor)


SCHEME = Scheme(
    name="rope_by_parts",
    summary="rope whose slow pairs slow by a factor and fast ones not (NTK-by-parts)",
    options=ByPartsOptions,
    maths="posbuild.encodings.rope:Rope",
    acts_on=ActsOn.queries_and_keys,
    learns="nothing",
    beyond="any length; meant for factor times the original length",
    cost="that of rope",
    used_by=("none known without YaRN's temperature",),
    paper=Paper(
        title="YaRN: Efficient Context Window Extension of Large Language Models",
        authors="Peng et al.",
        year=2024,
        arxiv="2309.00071",
        where="section 3.2, definition 2; ramp by default as in the released code",
    ),
    compared_with=("transformers", "jquesnelle/yarn"),
    shift_invariant=True,
)
