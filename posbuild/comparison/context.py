"""What context beyond the train length does to the loss of one scheme, on the same target tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from posbuild.comparison import rows, statistics
from posbuild.records import NOT_FINITE, NOT_MEASURED, Record, Row

MEASURE = "loss/fixed_targets"
LONGER, FULL = "longer", "full"


def effects(runs: Mapping[int, Record], train_length: int, margin: float) -> list[dict[str, Any]]:
    """Differences of the loss at each length n beyond the train length L, nats/token, paired by seed.

    runs  record by seed

    longer  context of n tokens minus context of L: 0 where the further text is not used, above 0 where it harms
    full    full attention minus attention cut to the last L tokens, both at n: what a loss that stays flat is worth

    The outcome is that of the first against the second, less loss being better; where there is no difference it says
    why, as the status of a row does. Only the same targets are compared: at a length that few documents reach they are
    others than at L.
    """
    lengths = sorted({row.at["length"] for run in runs.values() for row in run.rows if row.measure == MEASURE})
    return [
        {"effect": effect, "length": length, **_difference(runs, {"length": length, "window": 0}, reference, margin)}
        for length in lengths
        if length > train_length  # type: ignore[operator]
        for effect, reference in (
            (LONGER, {"length": train_length, "window": 0}),
            (FULL, {"length": length, "window": train_length}),
        )
    ]


def _difference(
    runs: Mapping[int, Record], at: dict[str, Any], reference: dict[str, Any], margin: float
) -> dict[str, Any]:
    longer, base = _rows(runs, at), _rows(runs, reference)
    content: dict[str, Any] = {
        "difference": None,
        "half_width": None,
        "count": None,
        "seeds": [],
        "outcome": NOT_MEASURED,
        "reason": "",
    }
    if lost := rows.not_finite(longer) or rows.not_finite(base):
        return content | {"outcome": NOT_FINITE, "reason": lost}
    seeds = [
        seed
        for seed in longer.keys() & base.keys()
        if longer[seed].value is not None and rows.targets(longer[seed]) == rows.targets(base[seed])
    ]
    if not seeds:
        status, reason = _instead([*longer.values(), *base.values()])
        return content | {"outcome": status, "reason": reason}
    differences = [longer[seed].value - base[seed].value for seed in sorted(seeds)]  # type: ignore[operator]
    mean, half = statistics.mean_and_half_width(differences)
    counts = {longer[seed].count for seed in seeds}
    return content | {
        "difference": mean,
        "half_width": half,
        "count": counts.pop() if len(counts) == 1 else None,
        "seeds": sorted(seeds),
        "outcome": statistics.outcome([-difference for difference in differences], margin),
    }


def _rows(runs: Mapping[int, Record], at: dict[str, Any]) -> dict[int, Row]:
    return {seed: row for seed, run in sorted(runs.items()) if (row := rows.find(run, MEASURE, **at))}


def _instead(both: Sequence[Row]) -> tuple[str, str]:
    """Why there is no difference: a status and a reason."""
    lacking = next((row for row in both if row.value is None), None)
    return (lacking.status, lacking.reason) if lacking else (NOT_MEASURED, "not measured on the same targets")
