"""All measurements of a trained model that the settings ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from posbuild import registry
from posbuild.data.corpora import VOCABULARY, Corpus
from posbuild.declaration import Options
from posbuild.evaluation import length_curve, order, recall
from posbuild.evaluation.cost import cost
from posbuild.evaluation.losses import NATS
from posbuild.evaluation.probes import probes
from posbuild.evaluation.windows import cut, draw, starts
from posbuild.model import Transformer, init_parameters
from posbuild.records import NOT_MEASURED, Row
from posbuild.settings import Settings

BIDIRECTIONAL = "a bidirectional model sees the token that it would have to predict"
PROBE_KEY, PROBE_TOKENS = (
    7,
    2**20,
)  # windows of text for the probes: as many as hold so many pairs of tokens, at most 16


def measure(
    model: Transformer, settings: Settings, corpus: Corpus, *, report: Callable[[str], Any] = print
) -> list[Row]:
    """Rows of every measurement that `settings.eval` asks for, on the test documents, on the model's device.

    report  is told what is measured next, one line each
    """
    asked, length = settings.eval, settings.train.length
    rows: list[Row] = []
    if settings.model.causal:
        rows += next_token_rows(model, settings, corpus, report)
    else:
        rows += no_next_token_rows(settings)
    if asked.probes:
        report("probing the encoding")
        rows += probes(model, settings, probe_text(corpus, length))
    if asked.cost_rounds:
        report("measuring speed and memory beside a model without encoding")
        precision = torch.bfloat16 if str(settings.trainer.get("precision", "")).startswith("bf16") else None
        rows += cost(
            model,
            twin_without_encoding(model, settings),
            train_length=length,
            batch_size=settings.train.batch_size,
            batch_tokens=asked.batch_tokens,
            precision=precision,
            rounds=asked.cost_rounds,
        )
    return rows


def next_token_rows(model: Transformer, settings: Settings, corpus: Corpus, report: Callable[[str], Any]) -> list[Row]:
    """Length curve, recall and use of order of a causal model."""
    asked, documents, lengths = settings.eval, corpus.test, settings.eval_lengths
    common: dict[str, int] = {"train_length": settings.train.length, "batch_tokens": asked.batch_tokens}
    report(f"length curve at {', '.join(map(str, lengths))} tokens, whole windows")
    rows = length_curve.whole_windows(
        model, documents, lengths, tokens=asked.whole_window_tokens, control=asked.window_control, **common
    )
    report(f"length curve at {', '.join(map(str, lengths))} tokens, fixed targets")
    rows += length_curve.fixed_targets(
        model, documents, lengths, targets=asked.fixed_targets, control=asked.window_control, **common
    )
    if asked.recall_passages:
        report(f"recall of {asked.recall_passages} passages")
        rows += recall.recall(model, documents, passages=asked.recall_passages, **common)
    if asked.order_windows:
        report(f"use of order in {asked.order_windows} windows")
        rows += order.order(model, documents, windows=asked.order_windows, **common)
    return rows


def no_next_token_rows(settings: Settings) -> list[Row]:
    """What stands in place of `next_token_rows` for a bidirectional model."""
    asked, length = settings.eval, settings.train.length
    curve = length_curve.places(settings.eval_lengths, length, asked.window_control)
    wanted = [(name, at) for name in (length_curve.WHOLE, length_curve.FIXED) for at in curve]
    if asked.recall_passages:
        wanted += [(recall.MEASURE, {"distance": distance}) for distance in recall.distances(length)]
    if asked.order_windows:
        wanted += [(order.MEASURE, at) for at in order.changes(length)]
    return [Row(measure=name, at=at, unit=NATS, status=NOT_MEASURED, reason=BIDIRECTIONAL) for name, at in wanted]


def twin_without_encoding(model: Transformer, settings: Settings) -> Transformer:
    """An untrained model of the same sizes without encoding, on the same device and in the same dtype."""
    twin = Transformer(settings.model, registry.encoding("none", Options(), settings.dims), settings.dims, VOCABULARY)
    init_parameters(twin, settings.seed)
    return twin.to(model.embedding.weight)


def probe_text(corpus: Corpus, length: int) -> torch.Tensor:
    """A few windows of the test documents, (N, length) int64, the same for every scheme."""
    places = starts(corpus.test, length, length)
    count = min(16, max(1, PROBE_TOKENS // length**2), len(places))
    return torch.from_numpy(cut(corpus.test, draw(places, count, PROBE_KEY), length)).to(torch.int64)
