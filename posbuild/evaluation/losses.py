"""The loss of each token, and rows that are means of such losses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from posbuild.model import Transformer
from posbuild.records import NOT_FINITE, NOT_SUPPORTED, Row
from posbuild.settings import EvalSettings

NATS = "nats/token"
LOGITS = 2**20  # numbers, at most, in the logits that are held at once


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode (no dropout) without gradients; the model is left in the mode it was in."""
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(training)


def token_losses(
    model: Transformer,
    windows: np.ndarray | Tensor,
    *,
    last: int | None = None,
    window: int | None = None,
    batch_tokens: int = EvalSettings.batch_tokens,
) -> np.ndarray:
    """Loss of each scored token in nats, (N, last) float64, from a float32 softmax.

    windows       (N, T + 1) tokens of any integer type: T inputs, and the token after each is its target
    last          score the last `last` targets only; None: all T
    window        attention sees the last `window` tokens only; None: all (`Transformer.forward`)
    batch_tokens  inputs in a batch, at least one row; the result does not depend on it beyond rounding

    With attention cut to a window, inputs that no scored token can see through all layers are left out, and the others
    keep their positions.
    """
    windows = torch.as_tensor(windows)
    length = windows.shape[1] - 1
    last = length if last is None else last
    if not 1 <= last <= length:
        raise ValueError(f"{last} targets cannot be scored in windows of {length} inputs.")
    unseen = 0 if window is None else max(0, length - last - model.dims.n_layers * (window - 1))
    losses = np.empty((len(windows), last))
    rows = max(1, batch_tokens // (length - unseen))
    device = next(model.parameters()).device
    with evaluating(model):
        for begin in range(0, len(windows), rows):
            batch = windows[begin : begin + rows].to(torch.int64).to(device)
            positions = model.numbering.in_evaluation(range(begin, begin + len(batch)), length)
            if unseen and positions is None:
                positions = torch.arange(length)[None]
            if positions is not None:
                positions = positions[:, unseen:].to(device)
            vectors = model.vectors(batch[:, unseen:-1], positions=positions, window=window)[:, -last:]
            found = [
                nn.functional.cross_entropy(logits, targets, reduction="none")
                for logits, targets in in_parts(model, vectors.flatten(0, 1), batch[:, -last:].flatten())
            ]
            losses[begin : begin + rows] = torch.cat(found).view(-1, last).cpu().numpy()
    return losses


def in_parts(model: Transformer, vectors_NM: Tensor, targets_N: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Float32 logits (n, V) of vectors from `Transformer.vectors`, with their targets (n,): at most LOGITS numbers at once."""
    size = max(1, LOGITS // model.vocab_size)
    for vectors, targets in zip(vectors_NM.split(size), targets_N.split(size), strict=True):
        yield model.head(vectors).float(), targets


def validation_loss(
    model: Transformer, windows: np.ndarray | Tensor, batch_tokens: int = EvalSettings.batch_tokens
) -> float:
    """Mean loss over every token of the windows (N, L + 1), nats/token."""
    return float(token_losses(model, windows, batch_tokens=batch_tokens).mean())


def mean_row(
    measure: str,
    at: dict,
    values: np.ndarray,
    documents: Sequence[str],
    *,
    draw: str = "",
    unit: str = NATS,
    sizes: np.ndarray | None = None,
) -> Row:
    """The mean over all values (N, ...), the n-th of which come from the document named `documents[n]`.

    sizes  of the shape of values: the bytes of text that each scored token stands for

    Where a value is not finite there is no mean: the row says of how many that is so.
    """
    facts: dict[str, Any] = {"measure": measure, "at": at, "unit": unit, "draw": draw}
    facts |= {"count": values.size, "bytes": None if sizes is None else int(sizes.sum())}
    if lost := int((~np.isfinite(values)).sum()):
        reason = f"{lost} of {values.size} values are not finite"
        return Row(status=NOT_FINITE, reason=reason, **facts)
    names = np.array(documents)
    groups = [
        (str(name), float(values[names == name].sum()), int(values[names == name].size)) for name in np.unique(names)
    ]
    return Row(value=float(values.mean()), groups=groups, **facts)


def beyond(model: Transformer, tokens: int, measure: str, at: dict, unit: str = NATS) -> Row | None:
    """The row that stands for a number if the encoding is not defined for so many tokens, else None."""
    longest = model.longest
    if longest is None or tokens <= longest:
        return None
    return Row(measure=measure, at=at, unit=unit, status=NOT_SUPPORTED, reason=f"not supported beyond {longest}")
