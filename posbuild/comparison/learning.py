"""Whether a run has learned enough to be compared: not yet learned is not worse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from posbuild.comparison import rows
from posbuild.comparison.statistics import mean_and_half_width
from posbuild.records import Record, Row

LEARNED, STILL_LEARNING, NOT_LEARNED, UNKNOWN = "learned", "still learning", "not learned", "not measured"
MASKED = "masked"  # the name of an objective

LEFT_THE_PLATEAU = 0.15  # nats/token below the bigram loss: a run above is on the plateau where all start
FRACTIONS = {0.25: "a quarter", 0.5: "half", 1.0: "all"}  # of the budget, at which each run is scored
FALLING_FAST = 1.5  # times the smallest fall of the comparison


def loss_at(record: Record, fraction: float) -> float | None:
    """The validation loss of a run at this fraction of its budget, nats/token; None where it was not measured."""
    return _value(rows.find(record, "training/loss", fraction=fraction))


def slope(record: Record) -> float | None:
    """The fall of the validation loss over the last quarter of the budget, nats/token."""
    return _value(rows.find(record, "training/slope"))


def count_model(settings: Mapping[str, Any]) -> str:
    """The count model whose loss a run has to beat, by its settings: trigram, or for masked tokens neighbours, which knows
    the token before and the one after. (It knows both always, where a model may find one of them masked.)
    """
    return "neighbours" if is_masked(settings) else "trigram"


def is_masked(settings: Mapping[str, Any]) -> bool:
    """Whether a run was trained on masked tokens; those from before there was a choice predict the next one."""
    return settings.get("objective", {}).get("name") == MASKED


def threshold(counts: Mapping[str, float], model: str) -> float:
    """The validation loss above which a run has not learned, nats/token, from those of count models of the same text.

    That of the `count_model`: a run above it does not use what stands further back than two tokens, or beyond both
    neighbours, or hardly. Where the data make a poor trigram model, the plateau at the bigram loss is what tells.
    """
    if model == "neighbours":
        return counts[model]
    return min(counts["trigram"], counts["bigram"] - LEFT_THE_PLATEAU)


def state(record: Record, smallest_fall: float | None, margin: float) -> str:
    """The learning state of a finished run.

    Not learned: its validation loss is above `threshold`. Slope alone misleads (a run that is stuck has a small one), so
    the fall counts only for a run below. It is still learning if it fell by more than the margin and by more than 1.5
    times `smallest_fall`, that of the comparison's runs that have learned: beside a run that has come to rest a fall of
    nothing would be the larger one.
    """
    loss, counts, fall = loss_at(record, 1.0), record.data.get("counts", {}).get("validation"), slope(record)
    if loss is None or counts is None:
        return UNKNOWN
    if loss > threshold(counts, count_model(record.settings)):
        return NOT_LEARNED
    if fall is not None and smallest_fall is not None and fall > max(margin, FALLING_FAST * smallest_fall):
        return STILL_LEARNING
    return LEARNED


def states(runs: Iterable[Record], margin: float) -> list[str]:
    """The learning state of each run of one budget. `margin`: nats/token, the least fall that counts."""
    runs = list(runs)
    falls = [fall for run in runs if state(run, None, margin) == LEARNED and (fall := slope(run)) is not None]
    return [state(run, min(falls, default=None), margin) for run in runs]


def gaps(pairs: Sequence[tuple[Record, Record]]) -> dict[float, float]:
    """The mean gap of the validation losses of paired runs (first minus second, nats/token) by fraction of the budget.

    Fractions at which some run was not measured are left out.
    """
    found = {}
    for fraction in FRACTIONS:
        losses = [(loss_at(first, fraction), loss_at(second, fraction)) for first, second in pairs]
        differences = [one - other for one, other in losses if one is not None and other is not None]
        if len(differences) == len(pairs):
            found[fraction] = mean_and_half_width(differences)[0]
    return found


def moved(gaps: Mapping[float, float]) -> float | None:
    """How far a gap moved over the last half of the budget, nats/token; None where half or all was not measured.

    A quarter of the budget is told beside it and does not decide: so early nearly every gap moves by many margins, and
    one that has come to rest since then is settled.
    """
    return gaps[1.0] - gaps[0.5] if {0.5, 1.0} <= gaps.keys() else None


def told(gaps: Mapping[float, float]) -> str:
    """The way of a gap in words: "+0.300 at a quarter, +0.160 at half, +0.090 at all of the budget"."""
    return ", ".join(f"{gap:+.3f} at {FRACTIONS[fraction]}" for fraction, gap in gaps.items()) + " of the budget"


def _value(row: Row | None) -> float | None:
    return row.value if row else None
