"""From folders of records to one comparison: every row, means over seeds, and the outcome of every pair.

What a comparison holds (comparison.json), all of it plain values:

    title, command     the study, and what makes it all again
    margin             nats/token within which two schemes count as equivalent
    budgets            groups of runs that may be compared: equal data, objective, model, training and optimiser
    labels             label -> scheme; a label is the scheme with the options that differ from its defaults
    runs               every run and planned job, with its status, reason and learning state
    rows               every row of every run compared
    references         probes of well-known encodings that no run is about
    documents          of those in which pairs are compared: name, sum, count of each document
    summary            budget, label, measure, at -> mean over seeds, half width of its Student t interval, or why there is none
    outcomes           budget, pair, measure, at -> outcome, with difference, intervals of 95 % each, and p values corrected
                       by Holm over the pairs of that measure and place
    recall             budget, label -> whether it recalls inside the train length, with the interval that says so
    context            budget, label, effect, length -> what context beyond the train length does to the loss
    tuning             of runs that tried rates: every trial with its validation loss, the best of each scheme, and each pair
                       at the shared rate and at the best; such runs are in no budget
    tuned              of two budgets, the shared rate and each scheme's best: each pair, measure, at -> both outcomes
    notes              warnings that stand on every report
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbuild import records
from posbuild.comparison import context, learning, statistics, tuning
from posbuild.comparison import runs as on_disk
from posbuild.comparison.learning import NOT_LEARNED, STILL_LEARNING
from posbuild.comparison.recall import recall_inside
from posbuild.comparison.rows import (
    differences,
    documents_interval,
    is_reference,
    not_finite,
    own_rows,
    shared,
    targets,
)
from posbuild.comparison.runs import Run
from posbuild.settings import WITHOUT_EFFECT

MARGIN = 0.02  # nats/token

# What pairs are compared in.
LOWER_IS_BETTER = {"loss/whole_windows": True, "loss/fixed_targets": True, "loss/pseudo": True, "recall/gain": False}

# By section; the multiplier belongs to a scheme. What the settings of data lead to is a part: the text and the tokenizer,
# by SHA-256.
NO_PART_OF_A_BUDGET = {
    section: {*more, *(name for where, name in WITHOUT_EFFECT if where == section)}
    for section, more in {
        "train": (),
        "optim": ("pe_lr_mult",),
        "model": (),
        "data": ("name", "path", "config", "split", "column", "limit", "tokenizer"),
    }.items()
}

TUNED = "tuned"  # in the key of a budget: the study that found its rates

Content = dict[str, Any]


def compare(folders: Sequence[Path], margin: float = MARGIN) -> Content:
    """Compare the runs in study folders (which hold run folders) and run folders.

    Raises ConfigError for a folder without runs, RunError for a study.json that cannot be read. A run that failed,
    died, was refused or never started costs the others nothing: it stands in `runs` with its reason.
    """
    found = on_disk.find(folders)
    notes: list[str] = []
    tuned = [_tuning(each, margin, notes) for each in tuning.tunings(found)]
    tables = by_budget(found, margin, notes)
    budgets = [table.budget() for table in tables]
    outcomes = [outcome for table in tables for outcome in table.outcomes()]
    notes += [note for budget in budgets for note in _machines(budget)]
    return {
        "schema": records.SCHEMA,
        "title": on_disk.title(folders),
        "command": on_disk.command(folders),
        "margin": margin,
        "budgets": budgets,
        "labels": dict(sorted({run.label: run.scheme for run in found}.items())),
        "runs": [_run(run) for run in found],
        "rows": [_row(run, row) for run in found if run.budget for row in own_rows(run.measured)],
        "references": _references(found),
        "documents": [
            _documents(run, row)
            for run in found
            if run.budget
            for row in run.measured.rows
            if row.groups and _is_compared(row.measure, row.at)
        ],
        "summary": [entry for table in tables for entry in table.summary()],
        "outcomes": outcomes,
        "recall": [entry for table in tables for entry in table.recall()],
        "context": [entry for table in tables for entry in table.context()],
        "tuning": tuned,
        "tuned": _tuned(tables, outcomes, margin),
        "notes": notes + [note for table in tables for note in table.notes()],
    }


def by_budget(found: Iterable[Run], margin: float, notes: list[str]) -> list[Table]:
    """A table for each budget, numbered from 1; each run in one is told its number and whether it has learned.

    notes  takes what is left out or set apart
    """
    tables = []
    for number, members in enumerate(_groups(found, notes), start=1):
        states = learning.states([run.measured for run in members], margin)
        for run, state in zip(members, states, strict=True):
            run.budget, run.state = number, state
        tables.append(Table(members, margin))
    return tables


def write(comparison: Content, folder: Path) -> Path:
    """Write `folder`/comparison.json and return its path."""
    path = folder / "comparison.json"
    records.write_json(path, comparison)
    return path


def place_key(at: dict[str, Any]) -> tuple:
    """A key that sorts coordinates: numbers by size, words by letter, both in one list."""
    return tuple((name, isinstance(value, str), value) for name, value in sorted(at.items()))


def _coordinates(key: tuple) -> dict[str, Any]:
    """The coordinates of a `place_key`."""
    return {name: value for name, _, value in key}


def _is_compared(measure: str, at: dict[str, Any]) -> bool:
    """Whether pairs are compared here. A curve with attention cut short is a control, no result."""
    return measure in LOWER_IS_BETTER and not at.get("window")


# --- budgets ---------------------------------------------------------------------------------------------------------


def _groups(found: Iterable[Run], notes: list[str]) -> list[list[Run]]:
    """Finished runs by budget, in the order of their folders; what is left out or set apart is said in `notes`."""
    groups: dict[str, list[Run]] = {}
    for run in sorted(found, key=lambda run: run.tuned is not None):  # the shared rate comes first
        if run.record is not None and not run.tries:
            groups.setdefault(json.dumps(_budget_key(run), sort_keys=True), []).append(run)
    keys = [json.loads(key) for key in groups]
    if len(keys) > 1:
        notes.append(
            f"The runs have {len(keys)} different budgets. Only runs of one budget are compared with each other."
        )
        first, *others = map(_flat, keys)
        for number, other in enumerate(others, start=2):
            differing = [name for name in sorted({*first, *other}) if first.get(name) != other.get(name)]
            # The rate says which study found it, unless two studies have one name.
            told = [
                f"{name} ({first.get(name)} and {other.get(name)})"
                for name in differing
                if name != TUNED or len(differing) == 1
            ]
            notes.append(f"Budget {number} differs from budget 1 in {', '.join(told)}.")
    if len({key["data"]["tokenizer"] for key in keys}) > 1:
        notes.append(
            "The runs have different tokenizers, so a token of one budget is another amount of text than one of another: "
            "between them only bits per byte compare, never nats per token."
        )
    return [_without_duplicates(members, notes) for members in groups.values()]


def _budget_key(run: Run) -> Content:
    """What has to be equal for two runs to be compared: of those at their scheme's best rate, how it was found."""
    record = run.measured
    sections = {
        name: {key: value for key, value in record.settings.get(name, {}).items() if key not in left_out}
        for name, left_out in NO_PART_OF_A_BUDGET.items()
    }
    tokenizer = record.data.get("tokenizer") or {"sha256": "bytes"}
    sections["data"] |= {"sha256": record.data.get("sha256"), "tokenizer": tokenizer["sha256"]}
    if run.tuned is not None:
        sections["optim"]["lr"] = f"the best of each scheme by {Path(run.tuned).name}"
    return sections | {
        "objective": on_disk.objective(record.settings),
        "precision": record.environment.get("precision"),
        TUNED: run.tuned,
    }


def _without_duplicates(members: list[Run], notes: list[str]) -> list[Run]:
    """The first run by folder name of each label and seed; the others are named."""
    kept: dict[tuple, Run] = {}
    for run in members:
        first = kept.setdefault((run.label, run.seed), run)
        if first is not run:
            run.reason = f"left out: the same scheme, options, seed and budget as {first.folder}"
            notes.append(
                f"{run.folder} is left out: it has the same scheme, options, seed and budget as {first.folder}."
            )
    return list(kept.values())


def _budget(number: int | None, members: Sequence[Run]) -> Content:
    kept = [run.measured for run in members]
    first, tuned = kept[0], members[0].tuned
    content = {
        "number": number,
        "runs": [run.folder for run in members],
        "train_length": first.settings["train"]["length"],
        "train": first.settings["train"],
        "model": first.settings["model"],
        "optim": {name: value for name, value in first.settings["optim"].items() if name != "pe_lr_mult"},
        "lengths": _shared_lengths(kept),
        "causal": first.settings["model"].get("causal", True),
        "objective": on_disk.objective(first.settings),
        "mask_prob": first.settings["objective"]["mask_prob"] if learning.is_masked(first.settings) else None,
        "count_model": learning.count_model(first.settings),
        "data": {
            name: first.data.get(name)
            for name in ("name", "sha256", "tokenizer", "documents", "tokens", "bytes", "counts", "source")
        },
        "seeds": sorted({record.seed for record in kept}),
        "parameters": _range(record.model.get("parameters") for record in kept),
        "tokens": _range(record.training.get("tokens") for record in kept),
        "tokens_per_parameter": _range(record.training.get("tokens_per_parameter") for record in kept),
        "environment": _values([record.environment for record in kept]),
        "lr": first.settings["optim"]["lr"] if tuned is None else None,
        "tuned": tuned,
    }
    return content | {"scope": _scope(content)}


def _shared_lengths(runs: Iterable[records.Record]) -> list[int]:
    """The window lengths at which every run with losses was measured, or found not to be supported."""
    measured = [{row.at["length"] for row in run.rows if row.measure == "loss/whole_windows"} for run in runs]
    return sorted(set.intersection(*filter(None, measured))) if any(measured) else []  # type: ignore[arg-type]


def _machines(budget: Content) -> list[str]:
    """A warning where speeds and memory were measured on different machines."""
    differing = [
        f"{name} ({' and '.join(map(str, values))})"
        for name in ("device", "threads")
        if len(values := budget["environment"].get(name, [])) > 1
    ]
    if not differing:
        return []
    told = ", ".join(differing)
    return [f"The runs of budget {budget['number']} differ in {told}: their speeds and memory do not compare."]


def _scope(budget: Content) -> str:
    """The sentence that says what a result holds for."""
    seeds, masked = budget["seeds"], budget["mask_prob"]
    share = f", {masked:.0%} of each window masked" if masked else ""
    return (
        f"Models of {span(budget['parameters'], ',')} parameters ({'causal' if budget['causal'] else 'bidirectional'}), "
        f"trained on {span(budget['tokens'], ',')} tokens of {budget['data']['name'] or 'unnamed data'} "
        f"({_tokenizer(budget['data'])}{span(budget['tokens_per_parameter'], '.3g')} tokens per parameter{share}) in windows of {budget['train_length']} tokens, "
        f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}."
        + (
            f" Each scheme at the rate and multiplier that {Path(budget['tuned']).name} found best."
            if budget["tuned"]
            else ""
        )
    )


def _tokenizer(data: Content) -> str:
    """What a token is, for the sentence of the scope; nothing where it is a byte."""
    tokenizer = data["tokenizer"]
    if not tokenizer:
        return ""
    return (
        f"tokenizer {tokenizer['file']}: {tokenizer['entries']:,} entries, {bytes_per_token(data):.3g} bytes a token; "
    )


def bytes_per_token(data: Content) -> float:
    """Of the training documents of a budget; without a tokenizer a token is a byte."""
    return data["bytes"]["train"] / data["tokens"]["train"] if data["tokenizer"] else 1.0


def span(ends: list[float] | None, form: str) -> str:
    """The least and the greatest value of a budget, or the one that all have: "230,208 to 230,336"."""
    if ends is None:
        return "an unknown number of"
    low, high = (format(end, form) for end in ends)
    return low if low == high else f"{low} to {high}"


def _range(values: Iterable[float | None]) -> list[float] | None:
    known = [value for value in values if value is not None]
    return [min(known), max(known)] if known else None


def _values(facts: Sequence[Content]) -> dict[str, list]:
    """Every value that each fact takes, sorted: one where all runs agree."""
    names = sorted({name for each in facts for name in each})
    found = {name: {each.get(name) for each in facts} for name in names}
    return {
        name: sorted(values, key=lambda value: (isinstance(value, str), value is not None, value or 0))
        for name, values in found.items()
    }


def _flat(content: Content, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in content.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


# --- tuning ----------------------------------------------------------------------------------------------------------


def _tuning(found: tuning.Tuning, margin: float, notes: list[str]) -> Content:
    """What comparison.json says of runs that tried rates; `notes` takes what lessens its worth."""
    runs = found.complete
    for run, state in zip(runs, learning.states([run.measured for run in runs], margin), strict=True):
        run.state = state

    def outcomes(chosen: Sequence[Run]) -> list[Content]:
        if not chosen:
            return []
        return Table(chosen, margin).family(tuning.MEASURE, place_key(tuning.AT), lower_is_better=True)

    notes += found.notes()
    return found.content(outcomes, margin) | {"scope": _budget(None, runs)["scope"]}


def _tuned(tables: Sequence[Table], outcomes: Sequence[Content], margin: float) -> list[Content]:
    """Of each two budgets that differ in their rates alone, shared and each scheme's best, every pair at both."""
    keys = [_budget_key(table.members[0]) for table in tables]
    common = [key | {"optim": key["optim"] | {"lr": None}, TUNED: None} for key in keys]
    return [
        {"budgets": [tables[shared].number, tables[own].number], **entry}
        for shared, own in itertools.permutations(range(len(tables)), 2)
        if keys[shared][TUNED] is None and keys[own][TUNED] is not None and common[shared] == common[own]
        for entry in tuning.beside(_of(outcomes, tables[shared]), _of(outcomes, tables[own]), margin)
    ]


def _of(outcomes: Sequence[Content], table: Table) -> list[Content]:
    return [outcome for outcome in outcomes if outcome["budget"] == table.number]


# --- runs and rows ---------------------------------------------------------------------------------------------------


def _run(run: Run) -> Content:
    record = run.record
    return {
        "label": run.label,
        "scheme": run.scheme,
        "seed": run.seed,
        "folder": run.folder,
        "status": run.status,
        "reason": run.reason,
        "budget": run.budget,
        "state": run.state,
        "tuning": run.tuning,
        "parameters": record and record.model.get("parameters"),
        "positional_parameters": record and record.model.get("positional_parameters"),
        "signal_rms": record and record.model.get("signal_rms"),
        "lr": run.settings.get("optim", {}).get("lr"),
        "pe_lr_mult": record and record.training.get("pe_lr_mult"),
        "seconds": record and record.training.get("seconds"),
        "command": record and record.command,
    }


def _references(runs: Sequence[Run]) -> list[Content]:
    """Probes of well-known encodings, as the first run that has them says: they are untrained, so others say the same."""
    found = ([row for row in run.record.rows if is_reference(row)] for run in runs if run.record)
    return [
        {
            "scheme": row.at["scheme"],
            "measure": "probe/" + row.measure.removeprefix(records.REFERENCE),
            "at": {name: value for name, value in row.at.items() if name != "scheme"},
            "value": row.value,
            "unit": row.unit,
            "status": row.status,
            "reason": row.reason,
            "note": row.note,
        }
        for row in next(filter(None, found), [])
    ]


def _row(run: Run, row: records.Row) -> Content:
    return {
        "budget": run.budget,
        "label": run.label,
        "seed": run.seed,
        "measure": row.measure,
        "at": row.at,
        "value": row.value,
        "unit": row.unit,
        "count": row.count,
        "bytes": row.bytes,
        "draw": row.draw,
        "status": row.status,
        "reason": row.reason,
        "note": row.note,
    }


def _documents(run: Run, row: records.Row) -> Content:
    place = {"budget": run.budget, "label": run.label, "seed": run.seed, "measure": row.measure, "at": row.at}
    return place | {"groups": [list(group) for group in row.groups]}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two labels at one place.

    rows    the rows of the first and the second, by seed, of the seeds in which both have a number
    absent  why there is no difference to speak of: an outcome and a reason
    """

    labels: tuple[str, str]
    rows: dict[int, tuple[records.Row, records.Row]]
    absent: tuple[str, str] | None


class Table:
    """The rows of the runs of one budget: by measure and coordinates, then label, then seed."""

    def __init__(self, members: Sequence[Run], margin: float) -> None:
        self.members, self.margin = members, margin
        self.number = members[0].budget
        self.train_length = members[0].measured.settings["train"]["length"]
        self.records: dict[str, dict[int, records.Record]] = defaultdict(dict)  # label -> seed -> record
        self.not_learned: dict[str, str] = {}  # label -> the first of its runs that has not learned, in words
        self.cells: dict[tuple, dict[str, dict[int, records.Row]]] = defaultdict(lambda: defaultdict(dict))
        for run in members:
            self.records[run.label][run.measured.seed] = run.measured
            if run.state == NOT_LEARNED:
                self.not_learned.setdefault(run.label, f"{run.label}, seed {run.seed}, has not learned")
            for row in own_rows(run.measured):
                self.cells[row.measure, place_key(row.at)][run.label][run.measured.seed] = row
        self.inside = {label: recall_inside(by_seed, self.train_length) for label, by_seed in self.records.items()}

    def budget(self) -> Content:
        """What all runs of this budget share, and the sentence that says what a result holds for."""
        return _budget(self.number, self.members)

    def summary(self) -> list[Content]:
        """One entry a label, measure and place; where no seed has a number, the words that stand instead."""
        return [
            self._summary(measure, at, label, self.cells[measure, at][label])
            for measure, at in sorted(self.cells)
            for label in sorted(self.cells[measure, at])
        ]

    def _summary(self, measure: str, at: tuple, label: str, rows: dict[int, records.Row]) -> Content:
        some = next(iter(rows.values()))
        found = [row for _, row in sorted(rows.items()) if row.value is not None]
        if lost := not_finite(rows):
            status, reason = records.NOT_FINITE, lost
        elif not found:
            status, reason = some.status, some.reason
        elif self._no_recall(measure, at, label):
            status, reason = NOT_LEARNED, f"no recall inside {self.train_length}"
        else:
            status, reason = records.MEASURED, ""
        values = [row.value for row in found if row.value is not None]
        mean, half = statistics.mean_and_half_width(values) if status == records.MEASURED else (None, None)
        return {
            "budget": self.number,
            "label": label,
            "measure": measure,
            "at": some.at,
            "n": len(found),
            "mean": mean,
            "half_width": half,
            "unit": some.unit,
            "count": shared(row.count for row in found),
            "bytes": shared(row.bytes for row in found),
            "status": status,
            "reason": reason,
        }

    def _beyond(self, at: tuple) -> bool:
        """Whether a place lies beyond the train length."""
        coordinates = _coordinates(at)
        return coordinates.get("distance", coordinates.get("length", 0)) > self.train_length

    def _no_recall(self, measure: str, at: tuple, label: str) -> bool:
        """Whether this is recall beyond the train length, which does not count without recall inside it."""
        inside = self.inside[label]
        return measure == "recall/gain" and self._beyond(at) and not (inside and inside["recalls"])

    def recall(self) -> list[Content]:
        """One entry a label that measured recall inside the train length."""
        return [
            {"budget": self.number, "label": label, **inside} for label, inside in sorted(self.inside.items()) if inside
        ]

    def context(self) -> list[Content]:
        """One entry a label, effect and length, of the labels whose runs have all learned."""
        learned = {label: runs for label, runs in sorted(self.records.items()) if label not in self.not_learned}
        return [
            {"budget": self.number, "label": label, **effect}
            for label, effect in context.effects(learned, self.train_length, self.margin)
        ]

    def outcomes(self) -> list[Content]:
        """One entry a pair, measure and place, for the measures in which less or more is better."""
        return [
            entry
            for measure, at in self._compared()
            for entry in self.family(measure, at, lower_is_better=LOWER_IS_BETTER[measure])
        ]

    def pairs(self, measure: str, at: tuple) -> list[Pair]:
        """Every pair of labels at one place."""
        return [
            self._pair(self.cells[measure, at], labels) for labels in itertools.combinations(sorted(self.records), 2)
        ]

    def notes(self) -> list[str]:
        """Where a value is not finite, and where runs scored different tokens: both forbid a comparison."""
        return self._not_finite() + self._different_tokens()

    def _not_finite(self) -> list[str]:
        places: dict[str, list[str]] = defaultdict(list)
        for measure, at in sorted(self.cells):
            for label, by_seed in self.cells[measure, at].items():
                if lost := not_finite(by_seed):
                    places[label].append(f"{_where(measure, at)} ({lost})")
        return [
            f"{label}: not finite, and so without a mean, at {len(found)} {'place' if len(found) == 1 else 'places'}; first {found[0]}."
            for label, found in sorted(places.items())
        ]

    def _different_tokens(self) -> list[str]:
        found = []
        for measure, at in self._compared():
            cell = self.cells[measure, at]
            for seed in sorted({seed for by_seed in cell.values() for seed in by_seed}):
                rows = [by_seed[seed] for by_seed in cell.values() if seed in by_seed]
                if len({targets(row) for row in rows if row.value is not None}) > 1:
                    found.append(
                        f"{_where(measure, at)}, seed {seed}: the runs scored different tokens. Those that differ are not compared."
                    )
        return found

    def _compared(self) -> list[tuple[str, tuple]]:
        """The measures and places at which pairs are compared."""
        return [place for place in sorted(self.cells) if _is_compared(place[0], _coordinates(place[1]))]

    def family(self, measure: str, at: tuple, *, lower_is_better: bool) -> list[Content]:
        """The outcome of every pair at one place, corrected for being made at once."""
        pairs = self.pairs(measure, at)
        ahead = -1 if lower_is_better else 1
        verdicts = statistics.verdicts(
            {
                pair.labels: [ahead * difference for difference in differences(pair.rows)]
                for pair in pairs
                if not pair.absent
            },
            self.margin,
        )
        return [self._outcome(measure, at, pair, verdicts.get(pair.labels)) for pair in pairs]

    def _outcome(self, measure: str, at: tuple, pair: Pair, verdict: statistics.Verdict | None) -> Content:
        content: Content = {
            "budget": self.number,
            "pair": list(pair.labels),
            "measure": measure,
            "at": _coordinates(at),
            "outcome": records.NOT_MEASURED,
            "reason": "",
            "difference": None,
            "interval": None,
            "documents_interval": None,
            "seeds": list(pair.rows),
            "p_difference": None,
            "p_equivalence": None,
            "seeds_needed": None,
        }
        if pair.absent:
            return content | {"outcome": pair.absent[0], "reason": pair.absent[1]}
        assert verdict is not None  # every other pair has one
        mean, half = statistics.mean_and_half_width(differences(pair.rows))
        content |= {
            "difference": mean,
            "interval": None if half is None else [mean - half, mean + half],
            "documents_interval": documents_interval(pair.rows),
            "p_difference": verdict.p_difference,
            "p_equivalence": verdict.p_equivalence,
        }
        if held := self._held(measure, at, pair):
            return content | {"outcome": held[0], "reason": held[1]}
        return content | {"outcome": verdict.outcome, "seeds_needed": verdict.seeds_needed}

    def _pair(self, cell: dict[str, dict[int, records.Row]], labels: tuple[str, str]) -> Pair:
        first, second = (cell.get(label, {}) for label in labels)
        rows = {
            seed: (first[seed], second[seed])
            for seed in sorted(first.keys() & second.keys())
            if first[seed].value is not None and second[seed].value is not None
        }
        return Pair(labels=labels, rows=rows, absent=_absent({labels[0]: first, labels[1]: second}, rows))

    def stuck(self, pair: Pair) -> str:
        """Which of a pair has a run that has not learned; empty where neither has."""
        return next((self.not_learned[label] for label in pair.labels if label in self.not_learned), "")

    def gaps(self, pair: Pair) -> dict[float, float]:
        """The gap of the validation losses of a pair, first minus second, nats/token, by fraction of the budget."""
        first, second = (self.records[label] for label in pair.labels)
        return learning.gaps([(first[seed], second[seed]) for seed in pair.rows])

    def _held(self, measure: str, at: tuple, pair: Pair) -> tuple[str, str] | None:
        """Why a difference that was measured decides nothing: an outcome and a reason."""
        if stuck := self.stuck(pair):
            return NOT_LEARNED, stuck
        if without := next((label for label in pair.labels if self._no_recall(measure, at, label)), ""):
            return NOT_LEARNED, f"{without} is not seen to recall inside the train length"
        if self._beyond(at):
            return None
        gaps = self.gaps(pair)
        moved = learning.moved(gaps)
        if moved is None:
            return statistics.UNDECIDED, (
                "the loss at half or all of the budget was not measured, so the gap may still move"
            )
        if abs(moved) > self.margin:
            return STILL_LEARNING, (
                f"the gap moved by {abs(moved):.3f} nats/token over the last half of the budget ({learning.told(gaps)})"
            )
        return None


def _absent(
    sides: dict[str, dict[int, records.Row]], pairs: dict[int, tuple[records.Row, records.Row]]
) -> tuple[str, str] | None:
    """Why two labels have no difference to speak of: an outcome and a reason. Rows by seed: of each label, and in pairs."""
    for label, rows in sides.items():
        if not rows:
            return records.NOT_MEASURED, f"{label} was not measured here"
        if lost := not_finite(rows):
            return records.NOT_FINITE, f"{label}, {lost}"
        if all(row.value is None for row in rows.values()):
            row = next(iter(rows.values()))
            return row.status, f"{label}: {row.reason or row.status}"
    if not pairs:
        return records.NOT_MEASURED, "no seed in common"
    if any(targets(first) != targets(second) for first, second in pairs.values()):
        return records.NOT_MEASURED, "different tokens were scored"
    return None


def _where(measure: str, at: tuple) -> str:
    """A measure and its place: "loss/whole_windows at length 64, window 0"."""
    return measure + (" at " if at else "") + ", ".join(f"{name} {value}" for name, value in _coordinates(at).items())
