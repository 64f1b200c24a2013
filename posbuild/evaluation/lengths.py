"""Which stretches of text the length curve scores, and whether the text holds them: known without torch, before training.

What a length scores depends on the documents, the train length L and how much is to be scored, never on the other
lengths of the same curve: so a length that is measured later scores what it would have scored at first, and compares
with other runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from posbuild.data.corpora import Corpus, Document, with_window
from posbuild.declaration import typed_form
from posbuild.errors import ConfigError
from posbuild.settings import ObjectiveName, ObjectiveSettings, Settings

NEXT = ObjectiveSettings()
REGION = 16  # train lengths that lengths up to there share a region of, or
PART = 16  # the part of all scored tokens that a region may be, where that is more
CONTEXT = 64  # train lengths in the longest window of fixed targets, where the text is long enough


def regions(documents: Sequence[Document], length: int, *, train_length: int, tokens: int) -> tuple[int, int]:
    """Size and number of the regions in which windows of `length` score at least `tokens` tokens.

    The size is the largest of L, 2L, 4L, ... up to 16L (or tokens/16, if that is more) that the documents hold, so
    every length that divides it scores the very same tokens. A longer length, or one for whose windows the documents
    hold too few such regions, has regions of its own size.
    """
    for size in reversed(_doubled(train_length, max(REGION * train_length, tokens // PART))):
        if size >= length:
            count = math.ceil(tokens / (size // length * length))
            if _regions_held(documents, size) >= count:
                return size, count
    return length, math.ceil(tokens / length)


def whole_tokens(settings: Settings) -> int:
    """Tokens of text in whole windows: those to be scored or, of a masked model, as many as hold them."""
    length = settings.train.length
    return math.ceil(settings.eval.whole_window_tokens * length / settings.objective.scored(length))


def block(train_length: int, objective: ObjectiveSettings) -> int:
    """Tokens of the stretch that holds the fixed targets of a window: the last quarter of the train length, or of a masked
    model half of it, of which a share is scored.
    """
    return train_length // (4 if objective.name is ObjectiveName.next_token else 2)


def context(
    documents: Sequence[Document], length: int, *, train_length: int, targets: int, objective: ObjectiveSettings = NEXT
) -> tuple[int, int]:
    """Tokens in the longest window around fixed targets, and the number of such windows, for `targets` of them.

    Lengths up to 64L share windows of 64L, so they score the very same targets; where fewer targets than half of the
    text have so much before them, of 32L, 16L, ... A longer length has windows of its own size.
    """
    scored = block(train_length, objective)
    count, text = math.ceil(targets / objective.scored(scored)), sum(len(document) for document in documents)
    for size in reversed(_doubled(train_length, CONTEXT * train_length)):
        held = _targets_held(documents, size, scored)
        if size >= length and held >= count and 2 * held * scored >= text:
            return size, count
    return length, count


def _doubled(least: int, most: int) -> list[int]:
    """least, 2 least, 4 least, ... up to `most`."""
    return [least << n for n in range((most // least).bit_length())]


def _regions_held(documents: Sequence[Document], size: int) -> int:
    return sum(max(len(document) - 1, 0) // size for document in documents)


def _targets_held(documents: Sequence[Document], size: int, scored: int) -> int:
    """Places for windows of `size` inputs, `scored` tokens apart."""
    return sum(max(len(document) - size - 1, -scored) // scored + 1 for document in documents)


def check_lengths(corpus: Corpus, settings: Settings) -> None:
    """Raise ConfigError if the documents hold no window to train on, or those for the test cannot fill the lengths of
    the length curve: for a call before training.
    """
    for split, documents in (("training", corpus.train), ("validation", corpus.validation)):
        with_window(documents, settings.train.length, split)
    if all(_fills(corpus.test, length, settings) for length in settings.eval_lengths):
        return
    longest, chosen = max(settings.eval_lengths), settings.eval
    document = max((len(document) for document in corpus.test), default=0)
    usable = next(
        (length for length in range(min(longest, document), 0, -1) if _fills(corpus.test, length, settings)), 0
    )
    asked = (
        f"eval.lengths={typed_form(chosen.lengths)}"
        if chosen.lengths is not None
        else f"eval.multiples={typed_form(chosen.multiples)} (train.length={settings.train.length})"
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


def _fills(documents: Sequence[Document], length: int, settings: Settings) -> bool:
    """Whether the documents hold the regions and the targets that this length needs."""
    train_length, objective = settings.train.length, settings.objective
    tokens = max(whole_tokens(settings), settings.eval.pseudo_targets * settings.masked)
    size, count = regions(documents, length, train_length=train_length, tokens=tokens)
    window, number = context(
        documents, length, train_length=train_length, targets=settings.eval.fixed_targets, objective=objective
    )
    return (
        _regions_held(documents, size) >= count
        and _targets_held(documents, window, block(train_length, objective)) >= number
    )
