"""Quality against cost: which schemes are on the Pareto front, that is no other one is at least as good in both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posbuild.comparison.learning import NOT_LEARNED
from posbuild.records import MEASURED
from posbuild.report import words
from posbuild.report.tables import Entries, by_loss

Content = dict[str, Any]
Points = Mapping[str, tuple[float, float]]  # by label: cost and quality, less being better in both
RATIO = "cost/ratio"
ORDER = ("train_speed", "evaluation_speed", "decoding_speed", "peak_memory", "parameters")


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A measure at one place, with the summary entry of each label that has a number there and has learned.

    less  whether less of it is better
    """

    name: str
    unit: str
    less: bool
    entries: Mapping[str, Content]

    @property
    def title(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit else self.name

    @property
    def related(self) -> bool:
        """Whether it is a ratio to a model without encoding."""
        return self.unit == "times none"

    def better(self, label: str, side: int = 0) -> float:
        """The mean, with its sign so that less is better; with side −1 the best end of its interval, with 1 the worst."""
        entry = self.entries[label]
        mean: float = entry["mean"] if self.less else -entry["mean"]
        return mean + side * (entry["half_width"] or 0.0)


@dataclass(frozen=True, kw_only=True)
class Trade:
    """One quality against one cost.

    labels  those that have both, in the order of the tables
    front   those on the Pareto front of the means, from the cheapest to the best
    behind  of each other label the first on the front that is at least as good in both
    unsure  those that might stand otherwise, were the means elsewhere within their intervals over seeds
    """

    cost: Axis
    quality: Axis
    labels: tuple[str, ...]
    front: tuple[str, ...]
    behind: Mapping[str, str]
    unsure: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """In words, as "On the front of training speed and loss at 64 tokens, by the means: t5. Behind: rope (by t5)."""
        told = f"On the front of {self.cost.name} and {self.quality.name}, by the means: {words.listed([*self.front])}."
        if self.behind:
            told += f" Behind: {', '.join(f'{label} (by {other})' for label, other in self.behind.items())}."
        if self.unsure:
            told += f" Within the intervals over seeds it might be otherwise for {words.listed(self.unsure)}."
        return told


def trades(comparison: Content, budget: Content) -> list[list[Trade]]:
    """For each cost, in turn, every quality against it; costs and qualities that two labels share."""
    found = []
    for cost in costs(comparison, budget):
        row = [trade(cost, quality) for quality in qualities(comparison, budget)]
        if row and all(len(each.labels) > 1 for each in row):
            found.append(row)
    return found


def trade(cost: Axis, quality: Axis) -> Trade:
    labels = [label for label in quality.entries if label in cost.entries]
    best, points, worst = (
        {label: (cost.better(label, side), quality.better(label, side)) for label in labels} for side in (-1, 0, 1)
    )
    first = front(points)
    behind = {
        label: next(other for other in first if _beats(points[other], points[label]))
        for label in labels
        if label not in first
    }
    return Trade(
        cost=cost,
        quality=quality,
        labels=tuple(labels),
        front=tuple(first),
        behind=behind,
        unsure=tuple(label for label in labels if not _sure(label, label in first, best, worst)),
    )


def _sure(label: str, on_front: bool, best: Points, worst: Points) -> bool:
    """Whether a label stays on the front, or behind it, wherever in their intervals the means lie."""
    others = best.keys() - {label}
    if on_front:
        return not any(_beats(best[other], worst[label]) for other in others)
    return any(_beats(worst[other], best[label]) for other in others)


def front(points: Points) -> list[str]:
    """The points that no other one beats, from the best first coordinate to the worst."""
    kept = [name for name, point in points.items() if not any(_beats(other, point) for other in points.values())]
    return sorted(kept, key=lambda name: points[name])


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether one is at least as good in both coordinates and better in one."""
    return one != other and one[0] <= other[0] and one[1] <= other[1]


def qualities(comparison: Content, budget: Content) -> list[Axis]:
    """The loss at the train length and at the longest length of all runs, and recall at the farthest distance inside."""
    entries = Entries(comparison, budget)
    inside = budget["train_length"]
    found = []
    for length in sorted({inside, max(budget["lengths"], default=inside)}):
        at = {"length": length, "window": 0}
        found.append(
            _axis(comparison, budget, "loss/whole_windows", at, f"loss at {length} tokens", "nats/token", True)
        )
    distances = [each for each in entries.coordinates("recall/gain", "distance") if each <= inside]
    if distances:
        at, name = {"distance": distances[-1]}, f"recall gain at {distances[-1]} tokens"
        found.append(_axis(comparison, budget, "recall/gain", at, name, "nats/token", False))
    return [axis for axis in found if axis.entries]


def costs(comparison: Content, budget: Content) -> list[Axis]:
    """Costs over those of a model without encoding, measured beside it; others where that was not measured, and parameters."""
    entries = Entries(comparison, budget)
    places = [
        (measure, at)
        for measure, at in entries.places()
        if measure.startswith("cost/") and _axis(comparison, budget, measure, at, "", "", True).entries
    ]
    related = {at["what"] for measure, at in places if measure == RATIO} - {"parameters"}
    found = []
    for measure, at in places:
        kind = measure.partition("/")[2]
        what = at["what"] if measure == RATIO else kind
        if what not in ORDER or (measure == RATIO) is not (what in related):
            continue
        where = {name: value for name, value in at.items() if measure != RATIO or name != "what"}
        unit = entries.unit(measure, at)
        unit = "" if unit == "parameters" else unit
        name = words.title(f"cost/{what}", where, "")
        found.append(
            (ORDER.index(what), _axis(comparison, budget, measure, at, name, unit, not what.endswith("speed")))
        )
    return [axis for _, axis in sorted(found, key=lambda each: each[0])]


def _axis(comparison: Content, budget: Content, measure: str, at: Content, name: str, unit: str, less: bool) -> Axis:
    entries = Entries(comparison, budget)
    number = budget["number"]
    unlearned = {run["label"] for run in comparison["runs"] if (run["budget"], run["state"]) == (number, NOT_LEARNED)}
    found = {
        label: entry
        for label in by_loss(comparison, budget)
        if label not in unlearned
        and (entry := entries.get(label, measure, **at)) is not None
        and entry["status"] == MEASURED
    }
    return Axis(name=name, unit=unit, less=less, entries=found)
