"""Whether the text can fill the lengths of the length curve: known before anything is trained, without torch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from posbuild.data.corpora import Corpus, Document
from posbuild.errors import ConfigError
from posbuild.settings import Settings


def regions_for(lengths: Sequence[int], tokens: int) -> int:
    """Regions of the longest length in which every length scores at least `tokens` tokens."""
    longest = max(lengths)
    return max(math.ceil(tokens / (longest // length * length)) for length in lengths)


def check_lengths(corpus: Corpus, settings: Settings) -> None:
    """Raise ConfigError if the test documents cannot fill the lengths of the length curve: for a call before training.

    A bidirectional model has no length curve, so nothing is checked for it.
    """
    if not settings.model.causal or _fills(corpus.test, settings.eval_lengths, settings):
        return
    longest, chosen = max(settings.eval_lengths), settings.eval
    document = max((len(document.tokens) for document in corpus.test), default=0)
    usable = next(
        (length for length in range(min(longest, document), 0, -1) if _fills(corpus.test, [length], settings)), 0
    )
    asked = (
        f"eval.lengths={chosen.lengths}"
        if chosen.lengths is not None
        else f"eval.multiples={chosen.multiples} (train.length={settings.train.length})"
    )
    raise ConfigError(
        f"{asked} asks for windows of {longest} tokens, which data={corpus.name} cannot fill: the longest test "
        f"document has {document} tokens, and a length is scored on {chosen.whole_window_tokens} tokens of whole "
        f"windows and {chosen.fixed_targets} fixed targets. "
        + (
            f"The longest usable length is {usable}: use that or less"
            if usable
            else "No length can be filled: give more text"
        )
        + ", or lower eval.whole_window_tokens and eval.fixed_targets."
    )


def _fills(documents: Sequence[Document], lengths: Sequence[int], settings: Settings) -> bool:
    """Whether the documents hold the regions and the targets that these lengths need."""
    longest, scored = max(lengths), settings.train.length // 4
    sizes = np.array([len(document.tokens) for document in documents])
    regions = np.maximum(sizes - 1, 0) // longest
    ends = np.maximum(sizes - longest - 1, -scored) // scored + 1
    needed = regions_for(lengths, settings.eval.whole_window_tokens), math.ceil(settings.eval.fixed_targets / scored)
    return regions.sum() >= needed[0] and ends.sum() >= needed[1]
