"""The loss at one and at many train lengths, by two protocols, since they rank schemes differently.

Whole windows: regions of text are cut into windows of each length, and every token of every window is scored: short
context at the start of a window counts. Lengths that divide the size of a region score the very same tokens; of a
length that does not, the end of each region is too short for a window and goes unscored. Every row says how many tokens
it scored.

Fixed targets: the last L/4 tokens (L the train length) of windows that all end at the same places, so every length
scores the same tokens under growing context; at L each has at least 3L/4 tokens before it.

Up to which length the scored tokens are the same, `lengths` says; where they are, rows have the same `draw`.

The control repeats both with attention cut to the last L tokens, at the lengths where that cuts anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from posbuild.data.corpora import Document
from posbuild.evaluation import lengths as stretches
from posbuild.evaluation.losses import NATS, beyond, mean_row, token_losses
from posbuild.evaluation.windows import cut, digest, draw, names, sizes, starts
from posbuild.model import Transformer
from posbuild.records import NOT_MEASURED, Row

WHOLE, FIXED, BY_POSITION = "loss/whole_windows", "loss/fixed_targets", "loss/by_position"
REGIONS_KEY, TARGETS_KEY = 1, 2  # of the generators that draw


def places(lengths: Iterable[int], train_length: int, control: bool) -> list[dict]:
    """Where each protocol is measured: every length, with attention cut to the train length too where that cuts."""
    windows = (0, train_length) if control else (0,)
    return [
        {"length": length, "window": window}
        for window in windows
        for length in lengths
        if not window or length > window
    ]


def whole_windows(
    model: Transformer,
    documents: Sequence[Document],
    lengths: Sequence[int],
    *,
    train_length: int,
    tokens: int,
    control: bool = True,
    batch_tokens: int,
) -> list[Row]:
    """Mean loss over at least `tokens` tokens a length, and the loss by position without the control."""
    rows = []
    for at in places(lengths, train_length, control):
        length = at["length"]
        if row := beyond(model, length, WHOLE, at):
            rows.append(row)
            continue
        size, count = stretches.regions(documents, length, train_length=train_length, tokens=tokens)
        chosen = draw(starts(documents, size + 1, size), count, REGIONS_KEY)
        regions, per_region = cut(documents, chosen, size + 1), size // length
        windows = sliding_window_view(regions, length + 1, axis=1, writeable=True)[:, ::length].reshape(-1, length + 1)
        sources = [name for name in names(documents, chosen) for _ in range(per_region)]
        drawn = digest(documents, chosen, first=1, scored=per_region * length)
        losses = token_losses(model, windows, window=at["window"] or None, batch_tokens=batch_tokens)
        scored = sizes(documents, windows[:, 1:])
        rows.append(mean_row(WHOLE, at, losses, sources, draw=drawn, sizes=scored))
        if not at["window"]:
            rows += by_position(losses, scored, sources, train_length, drawn)
    return rows


def by_position(
    losses: np.ndarray, scored: np.ndarray, sources: Sequence[str], train_length: int, drawn: str
) -> list[Row]:
    """Mean loss by position in the window: buckets that double, with the train length as one of the borders.

    losses, scored  (N, length): nats and bytes of each target; a row's `position` is the first of its bucket, counted
                    from 0 as in the model
    """
    length = losses.shape[1]
    edges = sorted({0, *position_borders(train_length, length), length})
    return [
        mean_row(
            BY_POSITION,
            {"length": length, "position": first},
            losses[:, first:end],
            sources,
            draw=drawn,
            sizes=scored[:, first:end],
        )
        for first, end in itertools.pairwise(edges)
    ]


def position_borders(train_length: int, length: int) -> list[int]:
    """The train length halved down to 1 and doubled up to below `length`."""
    halved = [train_length >> n for n in range(train_length.bit_length())]
    doubled = [train_length << n for n in range(length.bit_length())]
    return [border for border in halved + doubled if border < length]


def fixed_targets(
    model: Transformer,
    documents: Sequence[Document],
    lengths: Sequence[int],
    *,
    train_length: int,
    targets: int,
    control: bool = True,
    batch_tokens: int,
) -> list[Row]:
    """Mean loss over the same tokens, at least `targets` of them, at every length."""
    scored = train_length // 4
    rows = []
    for at in places(lengths, train_length, control):
        length = at["length"]
        if row := beyond(model, length, FIXED, at):
            rows.append(row)
        elif length < scored:
            reason = f"a window of {length} tokens does not hold the {scored} targets (a quarter of the train length)"
            rows.append(Row(measure=FIXED, at=at, unit=NATS, status=NOT_MEASURED, reason=reason))
        else:
            size, count = stretches.context(documents, length, train_length=train_length, targets=targets)
            chosen = draw(starts(documents, size + 1, scored), count, TARGETS_KEY)
            windows = cut(documents, chosen + np.array([0, size - length]), length + 1)
            drawn = digest(documents, chosen, first=size + 1 - scored, scored=scored)
            losses = token_losses(model, windows, last=scored, window=at["window"] or None, batch_tokens=batch_tokens)
            text = sizes(documents, windows[:, -scored:])
            rows.append(mean_row(FIXED, at, losses, names(documents, chosen), draw=drawn, sizes=text))
    return rows
