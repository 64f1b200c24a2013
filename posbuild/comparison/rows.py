"""Looking up the rows of a record, what they scored, and how two differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy

from posbuild.comparison import statistics
from posbuild.records import NOT_FINITE, REFERENCE, Record, Row

Pairs = Mapping[int, tuple[Row, Row]]  # by seed, both with a number and of the same targets


def find(record: Record, measure: str, **at: float | str) -> Row | None:
    """The row of this measure at exactly these coordinates, None where there is none."""
    return next((row for row in record.rows if row.measure == measure and row.at == at), None)


def targets(row: Row) -> tuple:
    """What was scored: two rows compare only if they agree in this."""
    return (row.draw, row.count, row.unit, documents(row))


def documents(row: Row) -> tuple:
    """The documents that a mean was taken over, with how much was scored in each."""
    return tuple((name, count) for name, _, count in row.groups)


def shared(values: Iterable[int | None]) -> int | None:
    """The value that all have, None where they differ or there is none."""
    found = {*values}
    return found.pop() if len(found) == 1 else None


def not_finite(rows: Mapping[int, Row]) -> str:
    """Which seed has a value that is not finite, and why; empty where none has.

    The seeds that are left would be a choice by result, so their mean is not told.
    """
    return next((f"seed {seed}: {row.reason}" for seed, row in sorted(rows.items()) if row.status == NOT_FINITE), "")


def is_reference(row: Row) -> bool:
    """Whether a row is about an encoding that the run is not about."""
    return row.measure.startswith(REFERENCE)


def own_rows(record: Record) -> list[Row]:
    """The rows about the run itself."""
    return [row for row in record.rows if not is_reference(row)]


def differences(pairs: Pairs) -> list[float]:
    """First minus second, by seed."""
    return [first.value - second.value for first, second in pairs.values()]  # type: ignore[operator]


def redrawn(pairs: Pairs) -> list[numpy.ndarray]:
    """(DRAWS,) a seed: the difference as the documents are drawn again; empty where there are not two of them."""
    if any(len(row.groups) < 2 for pair in pairs.values() for row in pair):
        return []
    return [statistics.redrawn_differences(first.groups, second.groups) for first, second in pairs.values()]


def documents_interval(pairs: Pairs) -> list[float] | None:
    """The bootstrap interval over documents of the mean over seeds; None unless all seeds scored the same ones."""
    drawn = redrawn(pairs)
    if not drawn or len({documents(first) for first, _ in pairs.values()}) > 1:
        return None
    return statistics.percentile_interval(numpy.mean(drawn, axis=0))
