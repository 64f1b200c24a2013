"""Looking up the rows of a record, and what they scored."""

from __future__ import annotations

from collections.abc import Mapping

from posbuild.records import NOT_FINITE, REFERENCE, Record, Row


def find(record: Record, measure: str, **at: float | str) -> Row | None:
    """The row of this measure at exactly these coordinates, None where there is none."""
    return next((row for row in record.rows if row.measure == measure and row.at == at), None)


def targets(row: Row) -> tuple:
    """What was scored: two rows compare only if they agree in this."""
    return (row.draw, row.count, row.unit, documents(row))


def documents(row: Row) -> tuple:
    """The documents that a mean was taken over, with how much was scored in each."""
    return tuple((name, count) for name, _, count in row.groups)


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
