"""One budget of a comparison, as the guide and the claims ask for it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy

from posbuild.comparison import statistics
from posbuild.errors import RunError
from posbuild.guide.answers import BEYOND, listed, size
from posbuild.guide.scenarios import INSIDE, Term

Content = dict[str, Any]
RECALL = "recall/gain"
PARTS = ("budgets", "runs", "rows", "summary", "outcomes", "recall", "context")  # of a comparison, that are read


def check(comparison: Content) -> Content:
    """The comparison, if it has what the guide reads. Raises RunError for one that an older posbuild has written."""
    if missing := {*PARTS} - comparison.keys():
        raise RunError(f"The comparison has no {listed(sorted(missing))}. posbuild compare makes it anew.")
    return comparison


class Study:
    """The runs of one budget.

    lengths  how far texts reach, in train lengths; None: as far as was measured

    schemes  label -> scheme
    ratios   label -> costs in times those without encoding, by what: mean and half the width of its interval
    longest  the shortest length measured that is as long as is asked for, else the longest; tokens
    reaches  whether it is as long
    """

    def __init__(self, comparison: Content, budget: Content, lengths: float | None = None) -> None:
        self.comparison, self.budget = comparison, budget
        self.train_length: int = budget["train_length"]
        self.seeds: list[int] = budget["seeds"]
        self.margin: float = comparison["margin"]
        self.runs = self.of("runs")
        self.schemes: dict[str, str] = {run["label"]: run["scheme"] for run in self.runs}
        self.lengths = sorted({self.train_length, *(n for n in budget["lengths"] if n > self.train_length)})
        enough = [n for n in self.lengths if n >= (lengths or math.inf) * self.train_length]
        self.reaches = bool(enough) or lengths is None
        self.longest: int = enough[0] if enough else self.lengths[-1]
        self.recalls: dict[str, bool] = {entry["label"]: entry["recalls"] for entry in self.of("recall")}
        self.ratios: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
        for entry in self.of("summary", measure="cost/ratio"):
            if entry["mean"] is not None and entry["at"].get("during") != "evaluation":
                self.ratios[entry["label"]][entry["at"]["what"]] = entry["mean"], entry["half_width"] or 0.0
        self._rows: dict[tuple, dict[int, Content]] = defaultdict(dict)
        for row in self.of("rows"):
            self._rows[row["label"], row["measure"], _key(row["at"])][row["seed"]] = row
        self._distances = {row["at"]["distance"] for row in self.of("rows", measure=RECALL)}
        self._documents = {
            (each["label"], each["measure"], _key(each["at"]), each["seed"]): each["groups"]
            for each in self.of("documents")
        }

    def of(self, part: str, **wanted: Any) -> list[Content]:
        """The entries of a part of the comparison that are of this budget and have these values."""
        wanted = {"budget": self.budget["number"], **wanted}
        return [entry for entry in self.comparison.get(part, []) if wanted.items() <= entry.items()]

    def states(self, label: str) -> set[str]:
        """The learning states of its runs."""
        return {run["state"] for run in self.runs if run["label"] == label}

    def context(self, label: str, effect: str) -> Content | None:
        """What context as long as is asked for does to the loss of a label; None where it has not learned."""
        return next(iter(self.of("context", label=label, effect=effect, length=self.longest)), None)

    def train_speed(self, label: str) -> float | None:
        """In times that without encoding."""
        return self.ratios[label]["train_speed"][0] if "train_speed" in self.ratios[label] else None

    @property
    def parameters(self) -> float | None:
        """Of the largest model."""
        return self.budget["parameters"] and self.budget["parameters"][1]

    @property
    def in_view(self) -> str:
        """What attention cut to the train length sees."""
        return f"the last {self.train_length}" if self.budget["causal"] else f"{self.train_length - 1} on each side"

    @property
    def scope(self) -> str:
        largest = f"{size(BEYOND * self.parameters)} parameters" if self.parameters else "models like these"
        return (
            f"{self.budget['scope']} Measured to {self.lengths[-1] / self.train_length:g} times the train length. "
            f"Not beyond {largest} and windows of {BEYOND * self.train_length} tokens."
        )

    # --- an objective ------------------------------------------------------------------------------------------------

    def place(self, term: Term) -> tuple | None:
        """The measure and coordinates of a term; None where nothing was measured."""
        limit = self.train_length if term.at == INSIDE else self.longest
        if term.what == "loss":
            return term.measure, _key({"length": limit, "window": 0})
        least = self.train_length if limit > self.train_length else 0
        far = [distance for distance in self._distances if least < distance <= limit]
        return (term.measure, _key({"distance": max(far)})) if far else None

    def told(self, term: Term) -> str:
        """A term with its length: "recall at 512 tokens"."""
        place = self.place(term)
        at = dict(place[1]) if place else {}
        return term.what + (f" at {at.get('distance') or at.get('length')} tokens" if at else "")

    def objective(self, terms: Iterable[Term]) -> str:
        """An objective in words: "loss at 1024 tokens"; "0.25 times loss at ... minus recall at ..., less being better,"."""
        told: list[str] = []
        for term in sorted(terms, key=lambda term: -term.sign):
            weight = f"{term.weight:g} times " if term.weight != 1 else ""
            told.append(f"{'minus ' if term.sign < 0 else 'plus ' if told else ''}{weight}{self.told(term)}")
        return told[0] if len(told) == 1 else f"{' '.join(told)}, less being better,"

    def values(self, label: str, term: Term) -> dict[int, Content]:
        """The rows of a term that have a number, by seed."""
        place = self.place(term)
        rows = self._rows.get((label, *place), {}) if place else {}
        return {seed: row for seed, row in sorted(rows.items()) if row["value"] is not None}

    def groups(self, label: str, term: Term, seed: int) -> list:
        """Name, sum and count of each document; empty where they are not in the comparison."""
        place = self.place(term)
        return self._documents.get((label, *place, seed), []) if place else []

    def same_targets(self, labels: Iterable[str], term: Term, seed: int) -> bool:
        """Whether these labels scored the same tokens of the same documents."""
        scored = set()
        for label in labels:
            row, groups = self.values(label, term)[seed], self.groups(label, term, seed)
            scored.add((row["draw"], row["count"], *((name, count) for name, _, count in groups)))
        return len(scored) == 1

    def scores(self, label: str, terms: Sequence[Term]) -> dict[int, float]:
        """The objective by seed, less being better, of the seeds that have all its terms."""
        parts = [(term.sign * term.weight, self.values(label, term)) for term in terms]
        seeds = set.intersection(*({*rows} for _, rows in parts)) if parts else set()
        return {seed: math.fsum(weight * rows[seed]["value"] for weight, rows in parts) for seed in sorted(seeds)}

    def redrawn(self, label: str, terms: Sequence[Term], seeds: Sequence[int]) -> numpy.ndarray | None:
        """The mean objective for each draw of the documents, within each seed; None without their sums."""
        total = numpy.zeros(statistics.DRAWS)
        for term in terms:
            for seed in seeds:
                groups = self.groups(label, term, seed)
                if len(groups) < 2:
                    return None
                total += term.sign * term.weight / len(seeds) * statistics.redrawn_means(groups)
        return total


def _key(at: Content) -> tuple:
    return tuple(sorted(at.items()))
