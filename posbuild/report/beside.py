"""Published results beside one's own: the change of loss with length, from papers that scored it in the same way."""

from __future__ import annotations

import math
from typing import Any

from posbuild.guide.answers import size
from posbuild.guide.published import Metric, Result, Table, Task, tables
from posbuild.records import NOT_MEASURED
from posbuild.report import figures, words
from posbuild.report.grid import Grid
from posbuild.report.tables import not_learned

Content = dict[str, Any]

# How a paper's protocol begins, and the measure that scores in the same way.
PROTOCOLS = {"non-overlapping windows": "loss/whole_windows", "sliding windows": "loss/fixed_targets"}
ABSENT = "–"
NEAR = 0.05  # of a length: papers take 2024 for twice 1024


def beside(comparison: Content, budget: Content) -> list[tuple[str, Grid]]:
    """For each measure, its title and the changes of loss from the train length on, in nats per token of each.

    One row for what was measured here, then one a published table, for each scheme with default options that both have.
    Tables whose transcription is not sure are left out.
    """
    found = []
    for protocol, measure in PROTOCOLS.items():
        matching = [table for table in tables().values() if _matches(table, protocol, budget)]
        if rows := _rows(comparison, budget, measure, matching):
            multiples = [f"{length / budget['train_length']:g}×" for length in _beyond(budget)]
            found.append((words.title(measure, {}, ""), Grid(["scheme", *multiples, "source"], rows)))
    return found


def _beyond(budget: Content) -> list[int]:
    return [length for length in budget["lengths"] if length > budget["train_length"]]


def _matches(table: Table, protocol: str, budget: Content) -> bool:
    task = Task.language_modelling if budget["causal"] else Task.masked_language_modelling
    return (
        table.usable
        and table.task is task
        and table.metric in (Metric.perplexity, Metric.loss)
        and table.axis == "evaluation length in tokens"
        and table.protocol.startswith(protocol)
        and table.train_length in table.columns
    )


def _rows(comparison: Content, budget: Content, measure: str, matching: list[Table]) -> list[list[str]]:
    inside, beyond, unlearned = budget["train_length"], _beyond(budget), not_learned(comparison, budget)
    lines = figures.series(comparison, budget, measure, "length", relative_to=inside, window=0)
    rows = []
    for label, line in lines.items():
        if comparison["labels"][label] != label or label in unlearned:
            continue
        own = {x: (mean, high - mean) for x, mean, high in zip(line.x, line.mean, line.high, strict=True)}
        cells = [words.change(own[n][0], own[n][1] or None) if n in own else NOT_MEASURED for n in beyond]
        published = [
            [label, *told, _source(table)]
            for table in matching
            for result in table.of(label)
            if not result.variant and {*(told := [_change(table, result, n / inside) for n in beyond])} != {ABSENT}
        ]
        if published and any(n in own for n in beyond):
            published.sort(key=lambda row: row.count(ABSENT))
            rows += [[f"{label}, measured here", *cells, _here(budget)], *published]
    return rows


def _change(table: Table, result: Result, multiple: float) -> str:
    """The change of loss from the train length to so many times it; ABSENT where the table has no such column."""
    inside = table.train_length
    assert inside is not None  # _matches has seen to it
    near = [
        column for column in table.columns if isinstance(column, int) and abs(column / inside / multiple - 1) <= NEAR
    ]
    before = table.at(result, inside).number
    if not near or before is None:
        return ABSENT
    after = table.at(result, near[0])
    bound, value = ("> ", after.above) if after.number is None else ("", after.number)
    if value is None:
        return after.reason
    return bound + words.change(_nats(table, value) - _nats(table, before))


def _nats(table: Table, value: float) -> float:
    return math.log(value) if table.metric is Metric.perplexity else value


def _here(budget: Content) -> str:
    large = f", {size(budget['parameters'][1])} parameters" if budget["parameters"] else ""
    return f"{budget['data']['name']}{large}, windows of {budget['train_length']} tokens"


def _source(table: Table) -> str:
    large = f", {size(table.parameters)} parameters" if table.parameters else ""
    return f"{table.citation}: {table.data}{large}, windows of {table.train_length} tokens"
