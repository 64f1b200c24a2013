"""What a bidirectional model makes of masked tokens: loss and accuracy by length, pseudo-perplexity, recall, use of order.

The protocols are those of causal models (`length_curve`, `recall`, `order`), and so are the names of the measures: what
is scored follows from the objective, and runs of different objectives are never compared. Here every scored token, and
whatever else is masked, is replaced by the mask token, the last id of the model: one that were left as it is would be its
own answer. Which tokens these are depends on fixed keys alone, so it is the same for every scheme and seed.

The control cuts attention to distances below the train length, those that training has seen, on both sides.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch
from torch.nn import functional as F

from posbuild.data.corpora import Document
from posbuild.data.masking import NO_TARGET, Masked, hide, pick, unit
from posbuild.evaluation import lengths as stretches
from posbuild.evaluation.length_curve import (
    BY_POSITION,
    FIXED,
    REGIONS_KEY,
    TARGETS_KEY,
    WHOLE,
    places,
    position_borders,
)
from posbuild.evaluation.losses import NATS, beyond, evaluating, in_parts, mean_row
from posbuild.evaluation.order import MEASURE as ORDER
from posbuild.evaluation.order import SHUFFLE_KEY, WINDOWS_KEY, change
from posbuild.evaluation.windows import cut, digest, draw, names, random_numbers, sizes, starts
from posbuild.model import Transformer
from posbuild.records import NOT_MEASURED, Row
from posbuild.settings import EvalSettings, ObjectiveSettings

WHOLE_ACCURACY, FIXED_ACCURACY, PSEUDO = "accuracy/whole_windows", "accuracy/fixed_targets", "loss/pseudo"
SHARE = "share"
MASKS_KEY, PSEUDO_KEY = 8, 9  # of the generators that draw

Array = TypeVar("Array", np.ndarray, torch.Tensor)


def scores(
    model: Transformer, batch: Masked, *, window: int | None = None, batch_tokens: int = EvalSettings.batch_tokens
) -> tuple[np.ndarray, np.ndarray]:
    """Loss in nats and whether the most probable token is the right one, of each scored token, (M,) float64 each.

    The scored tokens come row by row, from left to right. window: attention sees distances below it only; None: all
    """
    losses, hits = [np.zeros(0)], [np.zeros(0)]
    rows = max(1, batch_tokens // batch.inputs.shape[1])
    device = next(model.parameters()).device
    with evaluating(model):
        done = 0
        for inputs, labels in zip(*(each.split(rows) for each in batch), strict=True):
            inputs, labels = inputs.to(device), labels.to(device)
            scored = labels != NO_TARGET
            positions = model.numbering.in_evaluation(range(done, done + len(inputs)), inputs.shape[1])
            done += len(inputs)
            if positions is not None:
                positions = positions.to(device)
            vectors = model.vectors(inputs, positions, window=window)[scored]
            for logits, targets in in_parts(model, vectors, labels[scored]):
                losses.append(F.cross_entropy(logits, targets, reduction="none").cpu().numpy())
                hits.append((logits.argmax(dim=-1) == targets).cpu().numpy())
    return np.concatenate(losses).astype(np.float64), np.concatenate(hits).astype(np.float64)


def masked_windows(tokens: np.ndarray, objective: ObjectiveSettings, vocabulary: int, block: int) -> Masked:
    """Windows (N, T) with masks drawn from a fixed key: in each block of tokens as many as training masks in a window.

    Windows cut from these at whole blocks are those of shorter lengths, with the same tokens masked.
    """
    numbers = random_numbers(MASKS_KEY, *tokens.shape)
    blocks = [numbers[:, begin : begin + block] for begin in range(0, tokens.shape[1], block)]
    scored = np.concatenate([pick(each, objective.scored(each.shape[1])) for each in blocks], axis=1)
    return hide(tokens, scored, scored, vocabulary)


def targets_of(batch: Masked) -> np.ndarray:
    """The scored tokens, (M,), in the order of `scores`."""
    return batch.labels[batch.labels != NO_TARGET].numpy()


def validation_loss(
    model: Transformer,
    windows: torch.Tensor,
    objective: ObjectiveSettings,
    batch_tokens: int = EvalSettings.batch_tokens,
) -> float:
    """Mean loss over the masked tokens of the windows (N, L), the same at every call, nats/token."""
    batch = masked_windows(windows.numpy(), objective, model.vocab_size - 1, windows.shape[1])
    return float(scores(model, batch, batch_tokens=batch_tokens)[0].mean())


# --------------------------------------------------------------------------------------------------- the length curve


def whole_windows(
    model: Transformer,
    documents: Sequence[Document],
    lengths: Sequence[int],
    *,
    train_length: int,
    tokens: int,
    objective: ObjectiveSettings,
    control: bool = True,
    batch_tokens: int,
) -> list[Row]:
    """Mean loss and accuracy over the masked tokens of at least `tokens` tokens a length, and the loss by position."""
    rows = []
    for at in places(lengths, train_length, control):
        length = at["length"]
        if absent := _beyond(model, length, (WHOLE, WHOLE_ACCURACY), at):
            rows += absent
            continue
        chosen, size = _regions(documents, length, train_length, tokens)
        regions = masked_windows(cut(documents, chosen, size), objective, model.vocab_size - 1, train_length)
        batch = Masked(*(_windows(each, length) for each in regions))
        losses, hits = scores(model, batch, window=at["window"] or None, batch_tokens=batch_tokens)
        windows, positions = (each.numpy() for each in torch.where(batch.labels != NO_TARGET))
        sources = np.array(names(documents, chosen))[windows // (size // length)].tolist()
        drawn = digest(documents, chosen, first=0, scored=size // length * length)
        text = sizes(documents, targets_of(batch))
        rows.append(mean_row(WHOLE, at, losses, sources, draw=drawn, sizes=text))
        rows.append(mean_row(WHOLE_ACCURACY, at, hits, sources, draw=drawn, unit=SHARE))
        if not at["window"]:
            rows += _by_position(losses, text, positions, sources, length, train_length, drawn)
    return rows


def _by_position(
    losses: np.ndarray,
    text: np.ndarray,
    positions: np.ndarray,
    sources: list[str],
    length: int,
    train_length: int,
    drawn: str,
) -> list[Row]:
    """Mean loss by position in the window, in the buckets of causal models; a bucket without a masked token says so."""
    rows = []
    for first, end in itertools.pairwise(sorted({0, *position_borders(train_length, length), length})):
        inside = (first <= positions) & (positions < end)
        at: dict = {"length": length, "position": first}
        if inside.any():
            inside_of = list(itertools.compress(sources, inside))
            rows.append(mean_row(BY_POSITION, at, losses[inside], inside_of, draw=drawn, sizes=text[inside]))
        else:
            reason = "no masked token stands there"
            rows.append(Row(measure=BY_POSITION, at=at, unit=NATS, status=NOT_MEASURED, reason=reason))
    return rows


def fixed_targets(
    model: Transformer,
    documents: Sequence[Document],
    lengths: Sequence[int],
    *,
    train_length: int,
    targets: int,
    objective: ObjectiveSettings,
    control: bool = True,
    batch_tokens: int,
) -> list[Row]:
    """Mean loss and accuracy over the same masked tokens, at least `targets` of them, at every length.

    They stand in the middle of their windows, in a stretch of half the train length, so context grows on both sides. The
    context is masked to the same share, and not scored.
    """
    block, measures = stretches.block(train_length, objective), (FIXED, FIXED_ACCURACY)
    rows = []
    for at in places(lengths, train_length, control):
        length = at["length"]
        if absent := _beyond(model, length, measures, at):
            rows += absent
            continue
        if length < block:
            reason = f"a window of {length} tokens does not hold the {block} among which the targets are"
            rows += _none(measures, [at], reason)
            continue
        size, count = stretches.context(
            documents, length, train_length=train_length, targets=targets, objective=objective
        )
        chosen = draw(starts(documents, size + 1, block), count, TARGETS_KEY)
        numbers = random_numbers(MASKS_KEY, count, size)
        first, begin = (size - block) // 2, (size - length) // 2
        hidden, scored = unit(numbers) < objective.mask_prob, np.zeros(numbers.shape, dtype=bool)
        hidden[:, first : first + block] = False
        scored[:, first : first + block] = pick(numbers[:, first : first + block], objective.scored(block))
        window = slice(begin, begin + length)
        text = cut(documents, chosen + np.array([0, begin]), length)
        batch = hide(text, hidden[:, window], scored[:, window], model.vocab_size - 1)
        losses, hits = scores(model, batch, window=at["window"] or None, batch_tokens=batch_tokens)
        sources = [name for name in names(documents, chosen) for _ in range(objective.scored(block))]
        drawn = digest(documents, chosen, first=first, scored=block)
        scored_text = sizes(documents, targets_of(batch))
        rows.append(mean_row(FIXED, at, losses, sources, draw=drawn, sizes=scored_text))
        rows.append(mean_row(FIXED_ACCURACY, at, hits, sources, draw=drawn, unit=SHARE))
    return rows


# ------------------------------------------------------------------------------------------------- pseudo-perplexity


def pseudo(
    model: Transformer,
    documents: Sequence[Document],
    lengths: Sequence[int],
    *,
    train_length: int,
    tokens: int,
    targets: int,
    batch_tokens: int,
) -> list[Row]:
    """The logarithm of pseudo-perplexity (Salazar et al. 2020, arXiv:1910.14659, equation 2) in windows of each length.

    The mean loss of `targets` tokens drawn from whole windows, each masked alone in a forward pass of its own. Lengths
    that share regions of text score the same tokens.
    """
    rows = []
    for length in lengths:
        at = {"length": length, "window": 0}
        if absent := _beyond(model, length, (PSEUDO,), at):
            rows += absent
            continue
        chosen, size = _regions(documents, length, train_length, max(tokens, targets))
        windows = _windows(cut(documents, chosen, size), length)
        drawn = draw(np.arange(windows.size), targets, PSEUDO_KEY)
        number, position = drawn // length, drawn % length
        alone = np.arange(length) == position[:, None]
        losses, _ = scores(model, hide(windows[number], alone, alone, model.vocab_size - 1), batch_tokens=batch_tokens)
        per_region = size // length
        stands = chosen[number // per_region] + np.stack([0 * number, number % per_region * length + position], axis=1)
        name = digest(documents, stands, first=0, scored=1)
        text = sizes(documents, windows[number, position])
        rows.append(mean_row(PSEUDO, at, losses, names(documents, stands), draw=name, sizes=text))
    return rows


def _regions(documents: Sequence[Document], length: int, train_length: int, tokens: int) -> tuple[np.ndarray, int]:
    """Document and start of the regions that whole windows of a length are cut from, (R, 2), and their size."""
    size, count = stretches.regions(documents, length, train_length=train_length, tokens=tokens)
    return draw(starts(documents, size + 1, size), count, REGIONS_KEY), size


def _windows(regions: Array, length: int) -> Array:
    """Arrays or tensors (R, S) cut into as many windows of a length as each row holds, (N, length)."""
    return regions[:, : regions.shape[1] // length * length].reshape(-1, length)


# -------------------------------------------------------------------------------------------------- recall and order


def passage_losses(
    model: Transformer, text: np.ndarray, size: int, batch_tokens: int, *, objective: ObjectiveSettings
) -> np.ndarray:
    """Loss of each of the last `size` tokens of texts (N, T), (N, size): every n-th of them is masked at a time, where
    1/n is the share that training masks.
    """
    turns = min(size, round(1 / objective.mask_prob))
    losses = np.empty((len(text), size))
    for turn in range(turns):
        scored = np.zeros(text.shape, dtype=bool)
        scored[:, text.shape[1] - size + turn :: turns] = True
        found, _ = scores(model, hide(text, scored, scored, model.vocab_size - 1), batch_tokens=batch_tokens)
        losses[:, turn::turns] = found.reshape(len(text), -1)
    return losses


def changes(train_length: int) -> list[dict]:
    """What is done to the window, and r (`kept`): tokens more than r from the masked one in the middle are moved.

    An r that leaves fewer than two tokens to move is left out.
    """
    size = _odd(train_length)
    shuffles = [{"change": "shuffle", "kept": r} for r in sorted({0, 8, train_length // 4}) if size - 1 - 2 * r >= 2]
    return [*shuffles, {"change": "reverse", "kept": 0}, {"change": "swap", "kept": 0}]


def order(
    model: Transformer, documents: Sequence[Document], *, train_length: int, windows: int, batch_tokens: int
) -> list[Row]:
    """The rise of the loss on the token in the middle of a window, masked alone, when the others are moved, by change.

    shuffle: into a random order, one for each window; reverse: the window is mirrored; swap: what stood before the token
    stands after it. The window has L tokens, or one less if L is even, so that both sides are equal.
    """
    size = _odd(train_length)
    middle, candidates = size // 2, starts(documents, size, 1)
    if len(candidates) < windows:
        reason = f"the test documents hold {len(candidates)} windows of {size} tokens; {windows} are needed"
        return _none((ORDER,), changes(train_length), reason)
    if absent := [row for at in changes(train_length) for row in _beyond(model, size, (ORDER,), at)]:
        return absent
    chosen = draw(candidates, windows, WINDOWS_KEY)
    text = cut(documents, chosen, size)
    ranks = random_numbers(SHUFFLE_KEY, windows, size)
    scored = np.zeros(text.shape, dtype=bool)
    scored[:, middle] = True

    def losses(held: np.ndarray) -> np.ndarray:
        return scores(model, hide(held, scored, scored, model.vocab_size - 1), batch_tokens=batch_tokens)[0]

    drawn = digest(documents, chosen, first=middle, scored=1)
    whole, rows = losses(text), []
    for at in changes(train_length):
        far = np.abs(np.arange(size) - middle) > at["kept"]
        moved = change(text, at["change"], np.flatnonzero(far), ranks)
        rows.append(mean_row(ORDER, at, losses(moved) - whole, names(documents, chosen), draw=drawn))
    return rows


def _odd(length: int) -> int:
    return length - 1 + length % 2


def _beyond(model: Transformer, tokens: int, measures: Sequence[str], at: dict) -> list[Row]:
    """The rows that stand for numbers if the encoding is not defined for so many tokens, else none."""
    found = (beyond(model, tokens, name, at, _unit(name)) for name in measures)
    return [row for row in found if row is not None]


def _none(measures: Sequence[str], at: Sequence[dict], reason: str) -> list[Row]:
    return [
        Row(measure=name, at=place, unit=_unit(name), status=NOT_MEASURED, reason=reason)
        for place in at
        for name in measures
    ]


def _unit(measure: str) -> str:
    return SHARE if measure.startswith("accuracy/") else NATS
