"""What the order of earlier tokens is worth to a model: the loss when it is destroyed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from posbuild.data.corpora import Document
from posbuild.evaluation.losses import NATS, beyond, mean_row, token_losses
from posbuild.evaluation.windows import cut, digest, draw, names, random_numbers, starts
from posbuild.model import Transformer
from posbuild.records import NOT_MEASURED, Row

MEASURE = "order/change"
WINDOWS_KEY, SHUFFLE_KEY = 5, 6  # of the generators that draw


def changes(train_length: int) -> list[dict]:
    """What is done to the window, and r (`kept`): tokens more than r back from the last input token are moved.

    So the last input token and the r before it stay. An r that leaves fewer than two tokens to move is left out.
    """
    kept = sorted({0, 8, train_length // 4, train_length // 2})
    shuffles = [{"change": "shuffle", "kept": r} for r in kept if train_length - 1 - r >= 2]
    return [*shuffles, {"change": "reverse", "kept": 0}, {"change": "swap", "kept": 0}]


def order(
    model: Transformer, documents: Sequence[Document], *, train_length: int, windows: int, batch_tokens: int
) -> list[Row]:
    """The rise of the loss on the token after a window of L input tokens when earlier tokens are moved, by change.

    shuffle: into a random order, one for each window; reverse: into the opposite order; swap: second half before first.
    """
    candidates = starts(documents, train_length + 1, 1)
    if len(candidates) < windows:
        reason = f"the test documents hold {len(candidates)} windows of {train_length} tokens; {windows} are needed"
        return [
            Row(measure=MEASURE, at=at, unit=NATS, status=NOT_MEASURED, reason=reason) for at in changes(train_length)
        ]
    if absent := [row for at in changes(train_length) if (row := beyond(model, train_length, MEASURE, at))]:
        return absent
    chosen = draw(candidates, windows, WINDOWS_KEY)
    text = cut(documents, chosen, train_length + 1)
    ranks = random_numbers(SHUFFLE_KEY, windows, train_length)
    drawn = digest(documents, chosen, first=train_length, scored=1)
    whole, rows = token_losses(model, text, last=1, batch_tokens=batch_tokens), []
    for at in changes(train_length):
        moved = change(text, at["change"], np.arange(train_length - 1 - at["kept"]), ranks)
        rises = token_losses(model, moved, last=1, batch_tokens=batch_tokens) - whole
        rows.append(mean_row(MEASURE, at, rises, names(documents, chosen), draw=drawn))
    return rows


def change(text: np.ndarray, kind: str, places: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """The text (N, T) with the tokens at the places (M,) in another order; ranks (N, >= M) decide that of a shuffle."""
    if kind == "shuffle":
        order_ = np.argsort(ranks[:, : len(places)], axis=1, kind="stable")
    else:
        order_ = np.arange(len(places))[None]
        order_ = order_[:, ::-1] if kind == "reverse" else np.roll(order_, -(len(places) // 2), axis=1)
    moved = text.copy()
    moved[:, places] = np.take_along_axis(text[:, places], np.broadcast_to(order_, (len(text), len(places))), axis=1)
    return moved
