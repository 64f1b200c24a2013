"""Whether a scheme recalls inside the train length: only then does its recall beyond count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from posbuild.comparison import statistics
from posbuild.records import MEASURED, NOT_FINITE, Record, Row

MEASURE = "recall/gain"


def recall_inside(runs: Mapping[int, Record], train_length: int) -> dict[str, Any] | None:
    """The recall gain of one scheme at the distances inside the train length; None where no run has one, or one is not finite.

    runs  record by seed

    A run's gain is the mean over these distances: the largest of several would exceed zero by chance. `recalls` says
    whether the lower end of its interval lies above 0: over seeds Student's, with one seed the bootstrap over the
    documents of the passages, which says nothing of other seeds.
    """
    found = {seed: rows for seed, run in sorted(runs.items()) if (rows := _rows(run, train_length))}
    if not found or any(row.status == NOT_FINITE for rows in found.values() for row in rows):
        return None
    gains = [sum(row.value for row in rows) / len(rows) for rows in found.values()]  # type: ignore[misc]
    mean, half = statistics.mean_and_half_width(gains)
    interval = _documents_interval(*found.values()) if half is None else [mean - half, mean + half]
    return {
        "distances": sorted({row.at["distance"] for rows in found.values() for row in rows}),
        "seeds": list(found),
        "mean": mean,
        "interval": interval,
        "interval_over": "documents" if half is None else "seeds",
        "recalls": interval is not None and interval[0] > 0,
    }


def _rows(run: Record, train_length: int) -> list[Row]:
    return [
        row
        for row in run.rows
        if row.measure == MEASURE and row.status in (MEASURED, NOT_FINITE) and row.at["distance"] <= train_length  # type: ignore[operator]
    ]


def _documents_interval(rows: Iterable[Row]) -> list[float] | None:
    """The bootstrap interval of the mean of all rows; None for fewer than two documents."""
    totals: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
    for row in rows:
        for name, total, count in row.groups:
            totals[name][0] += total
            totals[name][1] += count
    if len(totals) < 2:
        return None
    return statistics.percentile_interval(
        statistics.redrawn_means([(name, total, int(count)) for name, (total, count) in totals.items()])
    )
