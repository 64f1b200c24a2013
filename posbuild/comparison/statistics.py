"""Means over seeds with Student t intervals, outcomes of pairs, and the bootstrap over documents.

Seeds are few, so their intervals are Student's: a bootstrap over three seeds covers 0.74 of the time where it claims
0.95. Documents are many, so they are drawn again. Intervals stand each for itself; outcomes are corrected for being many.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy

ALPHA = 0.05  # the chance of a wrong claim among the comparisons made at once
LEVEL = 1 - ALPHA  # of every interval
DRAWS = 2000  # of the bootstrap over documents
MOST_SEEDS = 1000  # `seeds_needed` says None beyond

BETTER, WORSE, EQUIVALENT, UNDECIDED, INDICATION = "better", "worse", "equivalent", "undecided", "indication"

Name = TypeVar("Name")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What paired differences say, among several comparisons made at once.

    p_difference   corrected, of a mean difference of zero; None for one seed, which allows no test
    p_equivalence  corrected, of a mean difference outside ± margin
    seeds_needed   what would decide an undecided one; None where that is not known or more than MOST_SEEDS
    """

    outcome: str
    p_difference: float | None = None
    p_equivalence: float | None = None
    seeds_needed: int | None = None


@functools.cache
def t_quantile(n: int, level: float = LEVEL) -> float:
    """The two-sided Student t quantile at `level` for a mean of n values."""
    from scipy import stats  # takes a second to import

    return float(stats.t.ppf((1 + level) / 2, n - 1))


def spread(values: Sequence[float]) -> float:
    """The standard deviation of a sample (n - 1 in the denominator)."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def mean_and_half_width(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean and half the width of its Student t interval; None for a single value, which has no interval."""
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, None
    return mean, t_quantile(len(values)) * spread(values) / math.sqrt(len(values))


def p_values(differences: Sequence[float], margin: float) -> tuple[float, float]:
    """Of paired differences over two or more seeds: p of the t test of a mean of zero, p of a mean outside ± margin.

    The second is that of the two one-sided tests (Schuirmann 1987), doubled: then each is below ALPHA exactly where the
    interval at LEVEL lies beyond zero, or inside ± margin.
    """
    from scipy import stats

    n = len(differences)
    mean, error = math.fsum(differences) / n, spread(differences) / math.sqrt(n)

    def two_sided(distance: float) -> float:
        if distance <= 0:
            return 1.0
        return 2 * float(stats.t.sf(distance / error, n - 1)) if error else 0.0

    return two_sided(abs(mean)), two_sided(margin - abs(mean))


def holm(values: Sequence[float]) -> list[float]:
    """p values corrected for being several, in the order given.

    The smallest counts as often as there are tests, the next once less, and so on, and none comes out below the one
    before. Whatever is true of each, and however they depend on each other, the chance that any true hypothesis has a
    corrected p below ALPHA is at most ALPHA (S. Holm 1979, A simple sequentially rejective multiple test procedure).
    """
    corrected = [0.0] * len(values)
    least = 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        least = max(least, min(1.0, (len(values) - rank) * values[index]))
        corrected[index] = least
    return corrected


def verdicts(family: Mapping[Name, Sequence[float]], margin: float) -> dict[Name, Verdict]:
    """What paired differences, one a seed and positive where the first of a pair is ahead, say of each first.

    family  the differences of every comparison made at once: of all pairs in one measure at one place, which people read
            together, looking for the scheme that is ahead. Were each tested alone, every other study of seven equal
            schemes would show a "better" by chance. Another place is another question, with a family of its own. A pair
            that is held back (still learning, not learned) is a member too: that, too, is seen in data.

    "better" or "worse": the mean differs from zero. "equivalent": it lies inside ± margin. Both by Student t tests at
    ALPHA, corrected by Holm over the family, each kind for itself: a pair rightly called equivalent is no reason to ask
    less of a "better" elsewhere. "undecided": neither. "indication": one seed, which decides nothing and is no member.
    """
    tested = {name: differences for name, differences in family.items() if len(differences) > 1}
    raw = [p_values(differences, margin) for differences in tested.values()]
    differ, alike = (holm([pair[kind] for pair in raw]) for kind in (0, 1))
    # An undecided one is decided as soon as its p, times the number of those that are not yet, is below ALPHA.
    left = [sum(p >= ALPHA for p in corrected) for corrected in (differ, alike)]
    found = {}
    for (name, differences), p_difference, p_equivalence in zip(tested.items(), differ, alike, strict=True):
        if p_difference < ALPHA:
            outcome = BETTER if math.fsum(differences) > 0 else WORSE
        else:
            outcome = EQUIVALENT if p_equivalence < ALPHA else UNDECIDED
        found[name] = Verdict(
            outcome=outcome,
            p_difference=p_difference,
            p_equivalence=p_equivalence,
            seeds_needed=seeds_needed(differences, margin, *left) if outcome == UNDECIDED else None,
        )
    return {name: found.get(name, Verdict(outcome=INDICATION)) for name in family}


def turned(outcome: str) -> str:
    """The outcome of a pair as it is for the second of the two."""
    return {BETTER: WORSE, WORSE: BETTER}.get(outcome, outcome)


def opposite(interval: list[float] | None) -> list[float] | None:
    """The interval of a difference taken the other way round."""
    return interval and [-end for end in reversed(interval)]


def seen_from(first: str, item: dict[str, Any]) -> dict[str, Any]:
    """The outcome of a pair as one reads it for `first`, the difference being that of `first` minus the other."""
    if item["pair"][0] == first:
        return item
    return item | {
        "pair": item["pair"][::-1],
        "outcome": turned(item["outcome"]),
        "difference": item["difference"] and -item["difference"],
        "interval": opposite(item["interval"]),
        "documents_interval": opposite(item["documents_interval"]),
    }


def seeds_needed(
    differences: Sequence[float], margin: float, difference_tests: int = 1, equivalence_tests: int = 1
) -> int | None:
    """The seeds that would decide, were the mean and spread of the differences to stay as they are.

    difference_tests, equivalence_tests  undecided tests of each kind: what a p value has to be multiplied with

    None for a single difference, whose spread is not known, and where more than MOST_SEEDS would be needed.
    """
    if len(differences) == 1:
        return None
    mean, deviation = abs(math.fsum(differences) / len(differences)), spread(differences)
    decided = (deviation * _half_widths(ALPHA / difference_tests) < mean) | (
        deviation * _half_widths(ALPHA / equivalence_tests) < margin - mean
    )
    return int(numpy.argmax(decided)) + 2 if decided.any() else None


@functools.cache
def _half_widths(alpha: float) -> numpy.ndarray:
    """Half the width of the interval at 1 - alpha of a mean of 2, 3, ..., MOST_SEEDS values whose spread is 1."""
    from scipy import stats

    n = numpy.arange(2, MOST_SEEDS + 1)
    return stats.t.ppf(1 - alpha / 2, n - 1) / numpy.sqrt(n)


@functools.lru_cache(maxsize=8)
def draw_weights(documents: int) -> numpy.ndarray:
    """(DRAWS, documents): how often each document is drawn. Always the same, so that schemes are compared on one draw."""
    generator = numpy.random.default_rng(0)
    return generator.multinomial(documents, numpy.full(documents, 1 / documents), size=DRAWS).astype(numpy.float64)


def redrawn_means(groups: Sequence[tuple[str, float, int]]) -> numpy.ndarray:
    """(DRAWS,): the mean over all that was scored, for each draw of the documents (name, sum, count)."""
    weights = draw_weights(len(groups))
    sums = numpy.array([total for _, total, _ in groups], dtype=numpy.float64)
    counts = numpy.array([count for _, _, count in groups], dtype=numpy.float64)
    return (weights @ sums) / (weights @ counts)


def percentile_interval(values: numpy.ndarray) -> list[float]:
    """The central LEVEL of bootstrap values: [low, high]."""
    low, high = numpy.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return [float(low), float(high)]


def redrawn_differences(
    groups: Sequence[tuple[str, float, int]], others: Sequence[tuple[str, float, int]]
) -> numpy.ndarray:
    """(DRAWS,): the difference of two means, paired: a draw takes the same documents for both.

    Raises ValueError where the two were not taken over as much of the same documents.
    """
    if [(name, count) for name, _, count in groups] != [(name, count) for name, _, count in others]:
        raise ValueError("only what was scored on the same documents can be drawn in pairs")
    return redrawn_means(
        [(name, total - other, count) for (name, total, count), (_, other, _) in zip(groups, others, strict=True)]
    )
