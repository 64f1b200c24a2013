"""All measurements of a trained model that the settings ask for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from posbuild import registry
from posbuild.data.corpora import Corpus, Document
from posbuild.declaration import Options
from posbuild.evaluation import length_curve, order, recall
from posbuild.evaluation.cost import cost
from posbuild.evaluation.losses import NATS
from posbuild.evaluation.probes import probes, reference_probes
from posbuild.evaluation.windows import cut, draw, starts
from posbuild.model import Transformer, init_parameters
from posbuild.records import NOT_MEASURED, Row
from posbuild.settings import Settings

BIDIRECTIONAL = "a bidirectional model sees the token that it would have to predict"
PROBE_KEY = 7  # of the generator that draws
PROBE_TOKENS = 2**20  # windows of text for the probes: as many as hold so many pairs of tokens, at most 16

Part = tuple[str, Callable[[], list[Row]]]


def parts(
    model: Transformer, settings: Settings, corpus: Corpus, *, precision: str, report: Callable[[str], Any] = print
) -> list[Part]:
    """The measurements that `settings.eval` asks for, on the test documents and the model's device, in turn.

    Each is a name and a function that measures and returns rows. The name is that of the setting that switches it off;
    "lengths" stands for the length curve, recall and use of order, which come first. What one of them needs or breaks,
    the others do not: so the caller can save the rows of each before the next.

    precision  that the model was trained in, by Lightning's name and resolved
    report     is told what is measured next, one line each
    """

    def next_tokens() -> list[Row]:
        if not settings.model.causal:
            return no_next_token_rows(settings)
        return next_token_rows(model, settings, corpus, report)

    def probed() -> list[Row]:
        report("probing the encoding")
        return probes(model, settings, probe_text(corpus, settings.train.length)) + reference_probes(settings)

    def costs() -> list[Row]:
        report("measuring speed and memory beside a model without encoding")
        return cost(
            model,
            twin_without_encoding(model, settings),
            train_length=settings.train.length,
            batch_size=settings.train.batch_size,
            batch_tokens=settings.eval.batch_tokens,
            precision=precision,
            rounds=settings.eval.cost_rounds,
        )

    asked = [("lengths", next_tokens)]
    if settings.eval.probes:
        asked.append(("probes", probed))
    if settings.eval.cost_rounds:
        asked.append(("cost_rounds", costs))
    return asked


def next_token_rows(model: Transformer, settings: Settings, corpus: Corpus, report: Callable[[str], Any]) -> list[Row]:
    """Length curve, recall and use of order of a causal model."""
    asked, documents = settings.eval, corpus.test
    common: dict[str, int] = {"train_length": settings.train.length, "batch_tokens": asked.batch_tokens}
    rows: list[Row] = []
    if asked.whole_window_tokens or asked.fixed_targets:
        report("length curve in nats/token")
        for length in settings.eval_lengths:
            rows += curve_rows(model, settings, documents, length, report)
    if asked.recall_passages:
        report(f"recall of {asked.recall_passages} passages")
        rows += recall.recall(model, documents, passages=asked.recall_passages, **common)
    if asked.order_windows:
        report(f"use of order in {asked.order_windows} windows")
        rows += order.order(model, documents, windows=asked.order_windows, **common)
    return rows


def curve_rows(
    model: Transformer, settings: Settings, documents: Sequence[Document], length: int, report: Callable[[str], Any]
) -> list[Row]:
    """The length curve at one length, by the protocols asked for."""
    asked, begin = settings.eval, time.monotonic()
    common: dict[str, Any] = {
        "control": asked.window_control,
        "train_length": settings.train.length,
        "batch_tokens": asked.batch_tokens,
    }
    rows: list[Row] = []
    told: list[str] = []
    if tokens := asked.whole_window_tokens:
        rows += length_curve.whole_windows(model, documents, [length], tokens=tokens, **common)
        told.append(f"whole windows {said(rows[0])}")
    if targets := asked.fixed_targets:
        fixed = length_curve.fixed_targets(model, documents, [length], targets=targets, **common)
        told.append(f"fixed targets {said(fixed[0])}")
        rows += fixed
    report(f"{length:7} tokens: {', '.join(told)} ({time.monotonic() - begin:.1f} s)")
    return rows


def said(row: Row) -> str:
    """The value of a row, else why it has none."""
    return row.reason if row.value is None else f"{row.value:.3f}"


def no_next_token_rows(settings: Settings) -> list[Row]:
    """What stands in place of `next_token_rows` for a bidirectional model."""
    asked, length = settings.eval, settings.train.length
    curve = length_curve.places(settings.eval_lengths, length, asked.window_control)
    protocols = {length_curve.WHOLE: asked.whole_window_tokens, length_curve.FIXED: asked.fixed_targets}
    wanted: list[tuple[str, dict]] = [(name, at) for name, amount in protocols.items() if amount for at in curve]
    if asked.recall_passages:
        wanted += [(recall.MEASURE, {"distance": distance}) for distance in recall.distances(length)]
    if asked.order_windows:
        wanted += [(order.MEASURE, at) for at in order.changes(length)]
    return [Row(measure=name, at=at, unit=NATS, status=NOT_MEASURED, reason=BIDIRECTIONAL) for name, at in wanted]


def twin_without_encoding(model: Transformer, settings: Settings) -> Transformer:
    """An untrained model of the same sizes and vocabulary without encoding, on the same device and in the same dtype."""
    encoding = registry.encoding("none", Options(), settings.dims)
    twin = Transformer(settings.model, encoding, settings.dims, model.vocab_size)
    init_parameters(twin, settings.seed)
    return twin.to(model.embedding.weight)


def probe_text(corpus: Corpus, length: int) -> torch.Tensor:
    """A few windows of the test documents, (N, length) int64, the same for every scheme."""
    places = starts(corpus.test, length, length)
    count = min(16, max(1, PROBE_TOKENS // length**2), len(places))
    return torch.from_numpy(cut(corpus.test, draw(places, count, PROBE_KEY), length)).to(torch.int64)
