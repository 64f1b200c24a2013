"""One budget of a comparison as the guide reads it: values, costs and learning states by scheme and place."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy

from posbuild.comparison import statistics
from posbuild.comparison.context import FULL, LONGER
from posbuild.comparison.learning import STILL_LEARNING
from posbuild.errors import RunError
from posbuild.guide.answers import BEYOND, listed, signed, size
from posbuild.guide.constraints import Candidate
from posbuild.guide.scenarios import INSIDE, LOWER_IS_BETTER, Situation, Term
from posbuild.records import NOT_SUPPORTED

Content = dict[str, Any]
RECALL = "recall/gain"


def check(comparison: Content) -> Content:
    """The comparison, if it has what the guide reads. Raises RunError for one that an older posbuild has written."""
    missing = {"budgets", "runs", "rows", "summary", "outcomes", "recall", "context"} - comparison.keys()
    if missing:
        raise RunError(f"The comparison has no {listed(sorted(missing))}. posbuild compare makes it anew.")
    return comparison


def left_out(comparison: Content) -> str:
    """Budgets that were not looked at, and runs that have no numbers."""
    others = len(comparison["budgets"]) - 1
    lost: dict[str, list[str]] = {}
    for run in comparison["runs"]:
        if run["budget"] is None:
            lost.setdefault(run["status"], []).append(f"{run['label']} seed {run['seed']}")
    told = f" {others} other budget{'s' if others > 1 else ''} of the study: not looked at." if others else ""
    return told + "".join(f" {status[0].upper()}{status[1:]}: {listed(runs)}." for status, runs in lost.items())


class Study:
    """The rows of one budget of a comparison, by label, measure and place, then by seed."""

    def __init__(self, comparison: Content, budget: Content, situation: Situation) -> None:
        mine: dict[str, list[Content]] = {
            name: [item for item in comparison[name] if item["budget"] == budget["number"]]
            for name in ("runs", "rows", "summary", "outcomes", "recall", "context")
        }
        self.budget, self.train_length = budget, budget["train_length"]
        self.seeds: list[int] = budget["seeds"]
        self.count_model: str = budget.get("count_model", "trigram")
        self.schemes: dict[str, str] = {run["label"]: run["scheme"] for run in mine["runs"]}
        self.states: dict[str, set[str]] = defaultdict(set)
        for run in mine["runs"]:
            self.states[run["label"]].add(run["state"])
        self.cells: dict[tuple, dict[int, Content]] = defaultdict(dict)
        for row in mine["rows"]:
            self.cells[row["label"], row["measure"], _key(row["at"])][row["seed"]] = row
        self.documents: dict[tuple, list] = {
            (each["label"], each["measure"], _key(each["at"]), each["seed"]): each["groups"]
            for each in comparison.get("documents", [])
            if each["budget"] == budget["number"]
        }
        self.moving = {frozenset(o["pair"]): o["reason"] for o in mine["outcomes"] if o["outcome"] == STILL_LEARNING}
        self.recalls = {entry["label"]: entry["recalls"] for entry in mine["recall"]}
        self.context, self.full = (
            {(each["label"], each["length"]): each for each in mine["context"] if each["effect"] == effect}
            for effect in (LONGER, FULL)
        )
        self.ratios: dict[str, dict[str, float]] = defaultdict(dict)
        for entry in mine["summary"]:
            training = entry["at"].get("during") != "evaluation"
            if entry["measure"] == "cost/ratio" and entry["mean"] is not None and training:
                self.ratios[entry["label"]][entry["at"]["what"]] = entry["mean"]
        self.lengths = sorted({self.train_length, *(n for n in budget["lengths"] if n > self.train_length)})
        wanted = (situation.lengths or 0) * self.train_length
        longer = [n for n in self.lengths if n >= wanted]
        self.reaches = bool(longer)
        self.longest: int = longer[0] if wanted and longer else self.lengths[-1]

    @property
    def parameters(self) -> float | None:
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

    def place(self, term: Term) -> tuple | None:
        """The measure and coordinates of a term; None where nothing was measured."""
        limit = self.train_length if term.at == INSIDE else self.longest
        if term.measure != RECALL:
            return term.measure, _key({"length": limit, "window": 0})
        least = self.train_length if limit > self.train_length else 0
        distances = {dict(at)["distance"] for _, measure, at in self.cells if measure == RECALL}
        far = [distance for distance in distances if least < distance <= limit]
        return (RECALL, _key({"distance": max(far)})) if far else None

    def told(self, objective: Iterable[Term]) -> str:
        """An objective in words: "minus recall at 512 tokens plus 0.25 times loss at 1024 tokens"."""
        told: list[str] = []
        for term in objective:
            place = self.place(term)
            what = "recall" if term.measure == RECALL else "loss"
            where = f" at {dict(place[1]).get('distance') or dict(place[1]).get('length')} tokens" if place else ""
            weight = f"{term.weight:g} times " if term.weight != 1 else ""
            told.append(f"{'minus ' if sign(term) < 0 else 'plus ' if told else ''}{weight}{what}{where}")
        return " ".join(told)

    def values(self, label: str, term: Term) -> dict[int, Content]:
        """The rows of a term that have a number, by seed."""
        place = self.place(term)
        rows = self.cells.get((label, *place), {}) if place else {}
        return {seed: row for seed, row in sorted(rows.items()) if row["value"] is not None}

    def same_targets(self, labels: Iterable[str], term: Term, seed: int) -> bool:
        """Whether these schemes scored the same tokens of the same documents."""
        rows = {label: self.values(label, term)[seed] for label in labels}
        scored = {
            (row["draw"], row["count"], *((name, count) for name, _, count in self.groups(label, term, seed)))
            for label, row in rows.items()
        }
        return len(scored) == 1

    def groups(self, label: str, term: Term, seed: int) -> list:
        """Name, sum and count of each document; empty where they are not in the comparison."""
        place = self.place(term)
        return self.documents.get((label, *place, seed), []) if place else []

    def scores(self, label: str, objective: Sequence[Term]) -> dict[int, float]:
        """The objective by seed, less being better, of the seeds that have all its terms."""
        parts = [(sign(term) * term.weight, self.values(label, term)) for term in objective]
        seeds = set.intersection(*({*rows} for _, rows in parts)) if parts else set()
        return {seed: math.fsum(weight * rows[seed]["value"] for weight, rows in parts) for seed in sorted(seeds)}

    def redrawn(self, label: str, objective: Sequence[Term], seeds: Sequence[int]) -> numpy.ndarray | None:
        """The mean objective for each draw of the documents, within each seed; None without their sums."""
        parts = []
        for term in objective:
            for seed in seeds:
                groups = self.groups(label, term, seed)
                if len(groups) < 2:
                    return None
                parts.append(sign(term) * term.weight / len(seeds) * statistics.redrawn_means(groups))
        return sum(parts[1:], start=parts[0])

    def candidate(self, label: str, margin: float) -> Candidate:
        effect = self.context.get((label, self.longest))
        rises = self.rises(effect, margin) if effect else None
        place = self.cells.get((label, "loss/whole_windows", _key({"length": self.longest, "window": 0})), {})
        return Candidate(
            scheme=self.schemes[label],
            supported=all(row["status"] != NOT_SUPPORTED for row in place.values()) if place else None,
            rises=rises,
            told=self.rise(effect) if effect and rises else "",
            ratios=self.ratios[label],
        )

    @staticmethod
    def rises(effect: Content, margin: float) -> bool | None:
        """Whether a loss rises by more than the margin; None where the interval does not tell."""
        difference, half = effect["difference"], effect["half_width"] or 0.0
        if difference is None or difference - half <= margin < difference + half:
            return None
        return difference > margin

    def rise(self, effect: Content) -> str:
        return (
            f"its loss changes by {signed(effect['difference'], effect['half_width'])} nats/token with {effect['length']} "
            f"instead of {self.train_length} tokens of context"
        )


def _key(at: Content) -> tuple:
    return tuple(sorted(at.items()))


def sign(term: Term) -> float:
    return 1.0 if LOWER_IS_BETTER[term.measure] else -1.0
