"""Quality against cost: which schemes are on the Pareto front, that is no other one is at least as good in both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posbuild.records import MEASURED
from posbuild.report import words
from posbuild.report.tables import Entries, by_loss, not_learned

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

    def mean(self, label: str) -> float:
        return self.entries[label]["mean"]

    def half_width(self, label: str) -> float:
        """Half the width of the interval of the mean; 0 of one seed, which has none."""
        return self.entries[label]["half_width"] or 0.0

    def ends(self, label: str) -> tuple[float, float]:
        return self.mean(label) - self.half_width(label), self.mean(label) + self.half_width(label)

    def better(self, label: str, side: int = 0) -> float:
        """The mean, with its sign so that less is better; with side −1 the best end of its interval, with 1 the worst."""
        return (self.mean(label) if self.less else -self.mean(label)) + side * self.half_width(label)


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

    def point(self, label: str) -> tuple[float, float]:
        """The mean cost and the mean quality."""
        return self.cost.mean(label), self.quality.mean(label)

    @property
    def sentence(self) -> str:
        """In words, as "On the front of training speed and loss at 64 tokens, by the means: t5. Behind: rope (by t5)."""
        told = f"On the front of {self.cost.name} and {self.quality.name}, by the means: {words.listed(self.front)}."
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
    """A quality against a cost, by the means alone."""
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
    inside = budget["train_length"]
    found = []
    for length in sorted({inside, max(budget["lengths"], default=inside)}):
        numbers = _numbers(comparison, budget, "loss/whole_windows", {"length": length, "window": 0})
        found.append(Axis(name=f"loss at {length} tokens", unit=words.NATS, less=True, entries=numbers))
    distances = Entries(comparison, budget).coordinates("recall/gain", "distance")
    if near := [distance for distance in distances if distance <= inside]:
        numbers = _numbers(comparison, budget, "recall/gain", {"distance": near[-1]})
        found.append(Axis(name=f"recall gain at {near[-1]} tokens", unit=words.NATS, less=False, entries=numbers))
    return [axis for axis in found if axis.entries]


def costs(comparison: Content, budget: Content) -> list[Axis]:
    """Costs over those of a model without encoding, measured beside it; others where that was not measured, and parameters."""
    entries = Entries(comparison, budget)
    found = []
    for measure, at in entries.places():
        ratio = measure == RATIO
        what = at["what"] if ratio else measure.removeprefix("cost/")
        if what in ORDER and (numbers := _numbers(comparison, budget, measure, at)):
            name = words.title(f"cost/{what}", {key: at[key] for key in at if not (ratio and key == "what")}, "")
            unit = entries.unit(measure, at)
            unit = "" if unit == "parameters" else unit
            axis = Axis(name=name, unit=unit, less=not what.endswith("speed"), entries=numbers)
            found.append((what, ratio, axis))
    related = {what for what, ratio, _ in found if ratio} - {"parameters"}  # of these the count itself says more
    kept = [(what, axis) for what, ratio, axis in found if ratio is (what in related)]
    return [axis for _, axis in sorted(kept, key=lambda each: ORDER.index(each[0]))]


def _numbers(comparison: Content, budget: Content, measure: str, at: Content) -> dict[str, Content]:
    """The summary entry of each label that has a number here and has learned, in the order of the tables."""
    entries, stuck = Entries(comparison, budget), not_learned(comparison, budget)
    found = {label: entries.get(label, measure, **at) for label in by_loss(comparison, budget) if label not in stuck}
    return {label: entry for label, entry in found.items() if entry and entry["status"] == MEASURED}
