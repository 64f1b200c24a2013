"""What tuning found, and what results change with it: sections of a report, each with tables and sentences."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbuild.comparison.tuning import CHANGES, FLIPS
from posbuild.records import COMPLETE
from posbuild.report import words
from posbuild.report.grid import Grid

Content = dict[str, Any]

LOSS = "loss/whole_windows"
NONE, NOT_TRIED = "–", "not tried"


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a report. tables: each with its caption; pairs: those of every pair, for where there is room."""

    title: str
    scope: str
    sentences: list[str]
    tables: list[tuple[str, Grid]]
    pairs: list[tuple[str, Grid]]


def sections(comparison: Content) -> list[Section]:
    """What was tuned, and what is compared at the shared rate and at each scheme's best; empty for any other study."""
    found = comparison["tuned"]
    budgets = dict.fromkeys((entry["budgets"][0], entry["budgets"][1]) for entry in found)
    return [_tuning(entry, len(comparison["tuning"]) > 1) for entry in comparison["tuning"]] + [
        _tuned(comparison, shared, own, [entry for entry in found if entry["budgets"] == [shared, own]])
        for shared, own in budgets
    ]


def outcomes(comparison: Content) -> set[str]:
    """The words for outcomes that the sections use."""
    pairs = [*comparison["tuned"], *(pair for entry in comparison["tuning"] for pair in entry["pairs"])]
    return {pair[name] for pair in pairs for name in ("shared_outcome", "own_outcome")}


# --- what was tuned --------------------------------------------------------------------------------------------------


def _tuning(entry: Content, several: bool) -> Section:
    tables = [
        ("Validation loss by rate", rates(entry)),
        ("Validation loss by multiplier of the rate of its own parameters, at the best rate", multipliers(entry)),
        ("The best of each scheme", choices(entry)),
    ]
    found = entry["pairs"]
    return Section(
        title=f"Tuning {entry['number']}" if several else "Tuning",
        scope=f"{entry['scope']} Loss at the end of training, in nats per token, on validation documents with tuning "
        f"{words.seeds(entry['seeds'])}. They chose the best, so they do not judge it: results stand on test documents, with "
        "other seeds.",
        sentences=_trials(entry) + (_changes(found, "On the validation documents") if found else []),
        tables=[(caption, grid) for caption, grid in tables if grid.rows],
        pairs=[("Every pair on the validation documents", pairs(found))] if found else [],
    )


def rates(entry: Content) -> Grid:
    """One row a scheme, one column a rate, with the multiplier that the rates were tried with."""
    losses = _losses(entry)
    rows = [
        [
            choice["label"],
            _number(choice["pe_lr_mult_of_rates"]),
            *(losses.get((choice["label"], rate, choice["pe_lr_mult_of_rates"]), NOT_TRIED) for rate in entry["rates"]),
        ]
        for choice in entry["choices"]
    ]
    return Grid(["scheme", "multiplier", *(f"rate {rate:g}" for rate in entry["rates"])], rows)


def multipliers(entry: Content) -> Grid:
    """One row a scheme that learns something, one column a multiplier, at the scheme's best rate."""
    losses = _losses(entry)
    rows = [
        [
            choice["label"],
            _number(choice["lr"]),
            *(losses.get((choice["label"], choice["lr"], each), NOT_TRIED) for each in entry["multipliers"]),
        ]
        for choice in entry["choices"]
        if choice["pe_lr_mult"] is not None
    ]
    return Grid(["scheme", "rate", *(f"× {each:g}" for each in entry["multipliers"])], rows)


def choices(entry: Content) -> Grid:
    """One row a scheme: its best rate and multiplier, and the loss with them beside that at the shared rate."""
    rows = [
        [
            choice["label"],
            _number(choice["lr"]),
            _number(choice["pe_lr_mult"]),
            _loss(choice["mean"], choice["half_width"]),
            _loss(choice["shared"]),
            NONE if None in (choice["mean"], choice["shared"]) else words.change(choice["mean"] - choice["shared"]),
        ]
        for choice in entry["choices"]
    ]
    shared = f"at the shared rate {entry['shared_rate']:g}"
    return Grid(["scheme", "best rate", "multiplier", "loss", shared, "difference"], rows)


def pairs(found: Sequence[Content]) -> Grid:
    """One row a pair, those first whose outcome flips or changes: its outcome at the shared rate and at each one's best."""
    rows = [
        [" and ".join(pair["pair"]), _outcome(pair, "shared"), _outcome(pair, "own"), pair["change"] or ""]
        for pair in sorted(found, key=lambda pair: [FLIPS, CHANGES, "", None].index(pair["change"]))
    ]
    return Grid(["pair", "at the shared rate", "each at its best", ""], rows)


def _trials(entry: Content) -> list[str]:
    """Who had more trials; empty where all had as many."""
    found: dict[int, list[str]] = {}
    for label, count in sorted(Counter(trial["label"] for trial in entry["trials"]).items()):
        found.setdefault(count, []).append(label)
    if len(found) < 2:
        return []
    told = "; ".join(f"{count} for {words.listed(labels)}" for count, labels in sorted(found.items()))
    return [f"Trials a scheme: {told}. The lowest of more trials is lower by chance, too."]


def _losses(entry: Content) -> dict[tuple, str]:
    return {
        (trial["label"], trial["lr"], trial["pe_lr_mult"]): _loss(trial["mean"], trial["half_width"])
        if trial["status"] == COMPLETE
        else trial["status"]
        for trial in entry["trials"]
    }


def _loss(mean: float | None, half: float | None = None) -> str:
    if mean is None:
        return NONE
    return words.nats(mean) + ("" if half is None else f" ± {words.nats(half)}")


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:g}"


def _outcome(pair: Content, side: str) -> str:
    """An outcome for the first of a pair, with the difference (first minus second): "better (−0.030)"."""
    outcome, difference = pair[f"{side}_outcome"], pair[f"{side}_difference"]
    return outcome if difference is None else f"{outcome} ({words.change(difference)})"


def _changes(found: Sequence[Content], where: str) -> list[str]:
    """Which outcomes flip or change between the shared rate and each scheme's best: a sentence for each kind, or one."""
    told = []
    found = [pair for pair in found if pair["change"] is not None]
    if not found:
        return [f"{where} no pair has an outcome both at the shared rate and at each scheme's best."]
    of, between = words.counted(len(found), "pair"), "between the shared rate and each scheme's best"
    for kind, how in ((FLIPS, ", another scheme being ahead"), (CHANGES, "")):
        if those := [pair for pair in found if pair["change"] == kind]:
            named = "; ".join(
                f"{' against '.join(pair['pair'])} is {_outcome(pair, 'shared')}, then {_outcome(pair, 'own')}"
                for pair in those
            )
            told.append(f"{where} the outcome of {len(those)} of {of} {kind} {between}{how}: {named}.")
    return told or [f"{where} the outcome of none of {of} differs {between}."]


# --- what results change with it -------------------------------------------------------------------------------------


def _tuned(comparison: Content, shared: int, own: int, found: Sequence[Content]) -> Section:
    budgets = {budget["number"]: budget for budget in comparison["budgets"]}
    lengths = sorted({*budgets[shared]["lengths"]} & {*budgets[own]["lengths"]})
    ends = sorted({*lengths[:1], *lengths[-1:]})
    places = {length: {"length": length, "window": 0} for length in ends}
    main = {
        length: those
        for length, at in places.items()
        if (those := [pair for pair in found if (pair["measure"], pair["at"]) == (LOSS, at)])
    }
    sentences = [sentence for length, those in main.items() for sentence in _changes(those, f"At {length} tokens")]
    other = [pair for pair in found if not any(pair in those for those in main.values())]
    if other:
        flips, changes = (sum(pair["change"] == kind for pair in other) for kind in (FLIPS, CHANGES))
        sentences.append(
            f"Of the {words.counted(len(other), 'outcome')} at other places and of other measures {flips} flip and {changes} change."
        )
    study = Path(budgets[own]["tuned"]).name
    return Section(
        title="The shared rate and each scheme's best",
        scope=f"On test documents. Shared: every scheme at the rate {budgets[shared]['lr']:g} (budget {shared}). Best: each at "
        f"the rate and multiplier that {study} found best for it (budget {own}).",
        sentences=sentences,
        tables=[("Loss, whole windows", _both(comparison, shared, own, ends))],
        pairs=[(f"Every pair at {length} tokens", pairs(those)) for length, those in main.items()],
    )


def _both(comparison: Content, shared: int, own: int, lengths: Sequence[int]) -> Grid:
    """One row a scheme: what it was trained with at its best, and the loss with that beside the one at the shared rate."""
    runs = {run["label"]: run for run in comparison["runs"] if run["budget"] == own}
    labels = sorted({run["label"] for run in comparison["runs"] if run["budget"] in (shared, own)})
    means = {
        (entry["label"], entry["at"]["length"], entry["budget"]): entry
        for entry in comparison["summary"]
        if entry["measure"] == LOSS and entry["at"]["window"] == 0
    }
    places = [*itertools.product(lengths, (shared, own))]
    rows = []
    for label in labels:
        run = runs.get(label)
        rate = run["lr"] if run else None
        multiplier = run["pe_lr_mult"] if run and run["positional_parameters"] else None
        losses = (words.cell(means.get((label, *place))) for place in places)
        rows.append([label, _number(rate), _number(multiplier), *losses])
    columns = (f"at {length}, {'shared' if number == shared else 'best'}" for length, number in places)
    return Grid(["scheme", "rate", "multiplier", *columns], rows)
