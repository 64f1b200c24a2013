"""What context beyond the train length does to the loss of each scheme, on the same target tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from posbuild.comparison import rows, statistics
from posbuild.records import NOT_FINITE, NOT_MEASURED, Record, Row

MEASURE = "loss/fixed_targets"
LONGER, FULL = "longer", "full"


def effects(
    schemes: Mapping[str, Mapping[int, Record]], train_length: int, margin: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Differences of the loss at each length n beyond the train length L, nats/token, paired by seed: label and effect.

    schemes  label -> record by seed

    longer  context of n tokens minus context of L: 0 where the further text is not used, above 0 where it harms
    full    full attention minus attention cut to the last L tokens, both at n: what a loss that stays flat is worth

    The outcome is that of the first against the second, less loss being better, corrected over the labels at one length;
    where there is no difference it says why, as the status of a row does. Only the same targets are compared: at a length
    that few documents reach they are others than at L.
    """
    found: dict[tuple[int, str], dict[str, _Change]] = {}
    for label, runs in schemes.items():
        for length in sorted({row.at["length"] for run in runs.values() for row in run.rows if row.measure == MEASURE}):
            if length > train_length:  # type: ignore[operator]
                at = {"length": length, "window": 0}
                references = {LONGER: at | {"length": train_length}, FULL: at | {"window": train_length}}
                for effect, reference in references.items():
                    changes = found.setdefault((length, effect), {})  # type: ignore[arg-type]
                    changes[label] = _Change(_rows(runs, at), _rows(runs, reference))
    verdicts = {
        place: statistics.verdicts(
            {label: [-change for change in each.differences] for label, each in changes.items() if each.differences},
            margin,
        )
        for place, changes in found.items()
    }
    for label in schemes:
        for (length, effect), changes in found.items():
            if label in changes:
                told = changes[label].told(verdicts[length, effect].get(label))
                yield label, {"effect": effect, "length": length, **told}


class _Change:
    """What one effect does to one scheme: rows by seed with it and without it, in pairs of the same targets."""

    def __init__(self, changed: dict[int, Row], base: dict[int, Row]) -> None:
        self.lost = rows.not_finite(changed) or rows.not_finite(base)
        self.all = [*changed.values(), *base.values()]
        self.pairs = {
            seed: (changed[seed], base[seed])
            for seed in sorted(changed.keys() & base.keys())
            if changed[seed].value is not None and rows.targets(changed[seed]) == rows.targets(base[seed])
        }

    @property
    def differences(self) -> list[float]:
        return [] if self.lost else rows.differences(self.pairs)

    def told(self, verdict: statistics.Verdict | None) -> dict[str, Any]:
        content: dict[str, Any] = {
            "difference": None,
            "half_width": None,
            "documents_interval": None,
            "count": None,
            "seeds": [],
            "outcome": NOT_MEASURED,
            "reason": "",
        }
        if self.lost:
            return content | {"outcome": NOT_FINITE, "reason": self.lost}
        if verdict is None:
            status, reason = _instead(self.all)
            return content | {"outcome": status, "reason": reason}
        mean, half = statistics.mean_and_half_width(self.differences)
        return content | {
            "difference": mean,
            "half_width": half,
            "documents_interval": rows.documents_interval(self.pairs),
            "count": rows.shared(row.count for row, _ in self.pairs.values()),
            "seeds": list(self.pairs),
            "outcome": verdict.outcome,
        }


def _rows(runs: Mapping[int, Record], at: dict[str, Any]) -> dict[int, Row]:
    return {seed: row for seed, run in sorted(runs.items()) if (row := rows.find(run, MEASURE, **at))}


def _instead(both: Sequence[Row]) -> tuple[str, str]:
    """Why there is no difference: a status and a reason."""
    lacking = next((row for row in both if row.value is None), None)
    return (lacking.status, lacking.reason) if lacking else (NOT_MEASURED, "not measured on the same targets")
