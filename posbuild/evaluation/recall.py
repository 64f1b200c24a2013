"""How much of a passage that it read d tokens ago a model uses when the passage comes again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from posbuild.data.corpora import Document
from posbuild.evaluation.losses import NATS, beyond, mean_row, token_losses
from posbuild.evaluation.windows import cut, digest, draw, names, random_numbers, starts
from posbuild.model import Transformer
from posbuild.records import NOT_MEASURED, Row

Losses = Callable[[Transformer, np.ndarray, int, int], np.ndarray]  # of the last tokens of texts (N, T): (N, size)

MEASURE = "recall/gain"
PASSAGES_KEY, TEXT_KEY = 3, 4  # of the generators that draw


def distances(train_length: int) -> list[int]:
    """Start to start, in tokens: two inside the train length, three beyond it."""
    return [train_length // 2, 3 * train_length // 4, 2 * train_length, 4 * train_length, 8 * train_length]


def next_token_losses(model: Transformer, text: np.ndarray, size: int, batch_tokens: int) -> np.ndarray:
    """Of each of the last `size` tokens given those before it."""
    return token_losses(model, text, last=size, batch_tokens=batch_tokens)


def recall(
    model: Transformer,
    documents: Sequence[Document],
    *,
    train_length: int,
    passages: int,
    batch_tokens: int,
    losses: Losses = next_token_losses,
) -> list[Row]:
    """The fall of the mean loss of a passage of L/4 tokens when it is read for the second time, by distance.

    One input is passage, other text, passage; in the other input another passage of the same length stands first. All
    else is equal, so every scored token has the same position and the same nearest context in both, and the text just
    before the passage is the same at every distance. Other text comes from other documents (from the rest of the
    document, where there is but one). 0: nothing recalled. Groups are by the document of the passage.

    losses  of the passage that stands last; `masked.passage_losses` for a model of masked tokens
    """
    size, far = train_length // 4, max(distances(train_length))
    candidates = starts(documents, size, size)
    if len(candidates) < passages:
        return _none(
            train_length, f"the test documents hold {len(candidates)} passages of {size} tokens; {passages} are needed"
        )
    chosen = draw(candidates, passages, PASSAGES_KEY)
    shortest = min(len(_other_text(documents, number, start, size)) for number, start in chosen)
    if shortest < far:
        return _none(
            train_length, f"beside a passage the test documents hold {shortest} tokens of other text; {far} are needed"
        )
    repeated = cut(documents, chosen, size)
    unrelated, between = _draw_other_text(documents, chosen, size, far - size)
    drawn = digest(documents, chosen, first=0, scored=size)
    rows = []
    for distance in distances(train_length):
        at = {"distance": distance}
        if row := beyond(model, distance + size - model.dims.causal, MEASURE, at):  # the last token is a target alone
            rows.append(row)
            continue
        middle = between[:, far - distance :]
        again, control = (np.concatenate([first, middle, repeated], axis=1) for first in (repeated, unrelated))
        loss_again, loss_control = (losses(model, each, size, batch_tokens) for each in (again, control))
        gains = (loss_control - loss_again).mean(axis=1)
        rows.append(mean_row(MEASURE, at, gains, names(documents, chosen), draw=drawn))
    return rows


def _other_text(documents: Sequence[Document], number: int, start: int, size: int) -> np.ndarray:
    """All text of the other documents, or what stands after and before the passage in the only one."""
    if len(documents) > 1:
        return np.concatenate([document.tokens for other, document in enumerate(documents) if other != number])
    tokens = documents[0].tokens
    return np.concatenate([tokens[start + size :], tokens[:start]])


def _draw_other_text(
    documents: Sequence[Document], passages: np.ndarray, size: int, gap: int
) -> tuple[np.ndarray, np.ndarray]:
    """For each passage another one (N, size), and the text to stand between (N, gap), from places drawn apart."""
    unrelated, between = [], []
    for (number, start), (first, second) in zip(passages, random_numbers(TEXT_KEY, len(passages), 2), strict=True):
        text = _other_text(documents, number, start, size)
        unrelated.append(_stretch(text, size, first))
        between.append(_stretch(text, gap, second))
    return np.stack(unrelated), np.stack(between)


def _stretch(text: np.ndarray, size: int, number: np.uint64) -> np.ndarray:
    place = int(number % np.uint64(len(text) - size + 1))
    return text[place : place + size]


def _none(train_length: int, reason: str) -> list[Row]:
    return [
        Row(measure=MEASURE, at={"distance": d}, unit=NATS, status=NOT_MEASURED, reason=reason)
        for d in distances(train_length)
    ]
