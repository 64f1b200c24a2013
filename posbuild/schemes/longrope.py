"""LongRoPE: a factor for each pair, one list of them within the original length and one beyond it.

The authors search the factors for a given model; here they are given, by default 1 within and `factor` beyond, for every
pair. As in transformers and in Phi-3 the long list holds for all tokens of a text that is longer than the original length,
so the keys of all earlier tokens change at that token, once: the cache holds keys before they turn. The length is the
largest position of the row, plus 1. Queries and keys are lengthened by sqrt(1 + ln factor / ln original_length) at every
length, so within the original length it turns as rope does, with scores larger by the square of that.
The paper leaves the first tokens of a text unslowed; released models do not, nor does this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Paper, Scheme, option, typed_form
from posbuild.errors import ConfigError
from posbuild.schemes.rope import OriginalOptions, StretchedOptions


@dataclass(kw_only=True)
class LongropeOptions(StretchedOptions, OriginalOptions):
    factor: float = option(
        16.0, "how many times longer the text may be; decides how much queries and keys are lengthened", least=1.0
    )
    short: list[float] | None = option(
        None,
        "what the frequency of each pair is divided by in a text within the original length, fastest pair first, or one "
        "number for all; null: 1",
        above=0.0,
    )
    long: list[float] | None = option(
        None, "the same for a longer text, all of its tokens; null: factor for every pair", above=0.0
    )

    def divisors(self, dims: Dims, chosen: list[float] | None, otherwise: float) -> list[float]:
        """A number for each pair."""
        pairs = self.rotary_width(dims) // 2
        numbers = [otherwise] if chosen is None else chosen
        return numbers * pairs if len(numbers) == 1 else numbers

    def short_divisors(self, dims: Dims) -> list[float]:
        return self.divisors(dims, self.short, 1.0)

    def long_divisors(self, dims: Dims) -> list[float]:
        return self.divisors(dims, self.long, self.factor)

    def magnitude(self, dims: Dims) -> float:
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original(dims)))

    def resolved(self, dims: Dims) -> LongropeOptions:
        return replace(
            self,
            original_length=self.original(dims),
            short=self.short_divisors(dims),
            long=self.long_divisors(dims),
        )

    def check(self, dims: Dims) -> None:
        super().check(dims)
        pairs = self.rotary_width(dims) // 2
        for name in ("short", "long"):
            given = getattr(self, name)
            if given is not None and len(given) not in (1, pairs):
                raise ConfigError(
                    f"pe.{name}={typed_form(given)} has {len(given)} numbers, and {pairs} pairs of channels turn. Give one for each "
                    "pair, or one for all."
                )


SCHEME = Scheme(
    name="longrope",
    summary="rope with a factor for each pair, other ones in texts beyond a length",
    options=LongropeOptions,
    maths="posbuild.encodings.longrope:Longrope",
    acts_on=ActsOn.queries_and_keys,
    learns="nothing",
    beyond="any length; meant for factor times the original length, after training on",
    cost="that of rope; decoding turns all keys again at each token",
    used_by=("Phi-3", "Phi-4-mini", "MiniCPM 3"),
    paper=Paper(
        title="LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens",
        authors="Ding et al.",
        year=2024,
        arxiv="2402.13753",
        where="section 3; magnitude as in the released code, change of lists as in Phi-3",
    ),
    compared_with=("transformers", "microsoft/LongRoPE"),
    prefix_stable=False,
)
