"""The tables of a comparison: in the terminal, in Markdown ready to paste, and all of it as CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbuild.comparison.compare import bytes_per_token, place_key
from posbuild.comparison.learning import NOT_LEARNED
from posbuild.comparison.statistics import INDICATION, seen_from
from posbuild.guide.claims import claims
from posbuild.records import COMPLETE, MEASURED, NOT_MEASURED
from posbuild.report import answer, tuning, words
from posbuild.report.grid import Grid

if TYPE_CHECKING:
    from rich.console import Console

Content = dict[str, Any]

LEFT_OUT = "left out"  # of a run that is complete
UNLIMITED = 10_000  # columns of an output that is no terminal


def headline(comparison: Content, budget: Content) -> Grid:
    """One row a scheme, by loss at the train length: the length curve, recall, learning state, size and speed.

    The lengths are those that all runs were measured at.
    """
    entries, members = Entries(comparison, budget), runs_of(comparison, budget)
    lengths = budget["lengths"]
    distances = entries.coordinates("recall/gain", "distance")
    distances = [distances[0], distances[-1]] if len(distances) > 1 else distances
    header = [
        "scheme",
        *(f"loss at {length}" for length in lengths),
        *(f"recall at {distance}" for distance in distances),
        "learning",
        "seeds",
        "parameters",
        "tokens/s",
    ]
    rows = []
    for label in by_loss(comparison, budget):
        runs = [run for run in members if run["label"] == label]
        rows.append(
            [
                label,
                *(entries.cell(label, "loss/whole_windows", length=length, window=0) for length in lengths),
                *(entries.cell(label, "recall/gain", distance=distance) for distance in distances),
                words.listed(sorted({run["state"] for run in runs})),
                str(len(runs)),
                words.listed(sorted({words.number(run["parameters"]) for run in runs if run["parameters"] is not None}))
                or NOT_MEASURED,
                words.cell(entries.get(label, "cost/train_speed")),
            ]
        )
    if len(comparison["budgets"]) == 1:
        rows += [[label, *[status] * (len(header) - 4), "0", "", ""] for label, status in without_result(comparison)]
    return Grid(header, rows)


def without_result(comparison: Content) -> list[tuple[str, str]]:
    """Labels of which no run is complete, with what became of their runs."""
    complete = {run["label"] for run in comparison["runs"] if run["budget"]}
    ended: dict[str, set[str]] = {}
    for run in comparison["runs"]:
        if run["label"] not in complete:
            ended.setdefault(run["label"], set()).add(run["status"])
    return [(label, words.listed(sorted(statuses))) for label, statuses in sorted(ended.items())]


def compared(run: Content) -> bool:
    """Whether a run is in the comparison: in a budget, or among those that tried rates."""
    return bool(run["budget"] or run["tuning"])


def absent(comparison: Content) -> list[tuple[str, Content]]:
    """Every run that is not in the comparison, with what became of it."""
    runs = [run for run in comparison["runs"] if not compared(run)]
    return [(LEFT_OUT if run["status"] == COMPLETE else run["status"], run) for run in runs]


def failures(comparison: Content) -> Grid:
    """Every run that is not in the comparison, those with one status and reason together."""
    found = absent(comparison)
    named = Counter((run["label"], run["seed"]) for _, run in found)
    together: dict[tuple[str, str], list[Content]] = {}
    for status, run in found:
        together.setdefault((status, run["reason"]), []).append(run)
    rows = [
        [status, reason, str(len(runs)), _which(runs, named), "; ".join(run["folder"] for run in runs)]
        for (status, reason), runs in together.items()
    ]
    return Grid(["status", "reason", "runs", "which", "folder"], rows)


def _which(runs: list[Content], named: Counter) -> str:
    """Runs in words; those that share label and seed with another one with their folders."""
    seeds: dict[str, list[str]] = {}
    for run in sorted(runs, key=lambda run: (run["label"], run["seed"] is None, run["seed"] or 0)):
        seed = "unknown" if run["seed"] is None else str(run["seed"])
        twin = f" ({run['folder']})" if named[run["label"], run["seed"]] > 1 else ""
        seeds.setdefault(run["label"], []).append(seed + twin)
    return words.runs(seeds)


def by_measure(comparison: Content, budget: Content, wanted: Callable[[str], bool], bits: bool = False) -> Grid:
    """One row a measure and place, one column a label: for all measures that `wanted(measure)` names.

    bits  losses in bits per byte

    Where all rows are of one measure its name stands once, above their places.
    """
    labels = by_loss(comparison, budget)
    entries = Entries(comparison, budget, bits)
    found = [(measure, at, entries.unit(measure, at)) for measure, at in entries.places() if wanted(measure)]
    alone = len({(measure, unit) for measure, _, unit in found}) == 1 and all(at for _, at, _ in found)
    rows = [
        [
            words.place(at) if alone else words.title(measure, at, unit),
            *(entries.cell(label, measure, **at) for label in labels),
        ]
        for measure, at, unit in found
    ]
    return Grid([words.title(found[0][0], {}, found[0][2]) if alone else "measure", *labels], rows)


def without_number(comparison: Content, budget: Content) -> list[str]:
    """Why there is no number, for every measure and label that lacks one somewhere: each reason once."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for entry in comparison["summary"]:
        if entry["budget"] == budget["number"] and entry["status"] != MEASURED:
            reason = entry["reason"] or "no reason given"
            told = reason if reason.startswith(entry["status"]) else f"{entry['status']}: {reason}"
            found.setdefault((words.title(entry["measure"], {}, ""), told), {})[entry["label"]] = None
    return [f"{measure}, {words.listed(labels)}: {told}." for (measure, told), labels in sorted(found.items())]


def remarks(comparison: Content, budget: Content, wanted: Callable[[str], bool]) -> list[str]:
    """What has to be known of numbers that are there, for all measures that `wanted(measure)` names: each once."""
    found: dict[str, dict[str, set[int]]] = {}
    for row in comparison["rows"]:
        if row["budget"] == budget["number"] and row["note"] and wanted(row["measure"]):
            found.setdefault(row["note"], {}).setdefault(row["label"], set()).add(row["seed"])
    return [f"{_runs(seeds, budget)}: {note}." for note, seeds in found.items()]


def _runs(seeds: dict[str, set[int]], budget: Content) -> str:
    if sum(map(len, seeds.values())) == len(budget["runs"]):
        return "All runs"
    return words.runs({label: sorted(numbers) for label, numbers in sorted(seeds.items())})


def probes(comparison: Content, budget: Content) -> list[tuple[str, str, Grid, list[str]]]:
    """Each probe of the encodings: the question, how to read it, a column a label that it applies to, and remarks."""
    places: dict[str, list[Content]] = {}
    for measure, at in Entries(comparison, budget).places():
        if measure.startswith("probe/"):
            places.setdefault(measure, []).append(at)
    found = []
    for measure in sorted(places, key=lambda measure: ([*words.PROBES, measure].index(measure), measure)):
        question, reading = words.PROBES.get(measure, (words.title(measure, {}, ""), ""))
        if any("parameters" in at for at in places[measure]):
            reading = f"{reading} {words.PARAMETERS}".strip()
        grid = _applying(by_measure(comparison, budget, measure.__eq__))
        found.append((question, reading, grid, remarks(comparison, budget, measure.__eq__)))
    return found


def _applying(grid: Grid) -> Grid:
    """The grid without the labels that have nothing in any row."""
    first, *others = zip(grid.header, *grid.rows, strict=True)
    kept = [first, *(column for column in others if any(cell != NOT_MEASURED for cell in column[1:]))]
    header, *rows = map(list, zip(*kept, strict=True))
    return Grid(header, rows)


def learning(comparison: Content, budget: Content) -> Grid:
    """One row a run: the validation loss at parts of its budget, its fall at the end, and what that says."""
    rows = {
        (row["label"], row["seed"], row["measure"], row["at"].get("fraction")): row["value"]
        for row in comparison["rows"]
        if row["budget"] == budget["number"]
    }
    fractions = sorted({key[3] for key in rows if key[2] == "training/loss"})

    def shown(value: float | None) -> str:
        return NOT_MEASURED if value is None else words.nats(value)

    grid = [
        [
            run["label"],
            str(run["seed"]),
            *(shown(rows.get((run["label"], run["seed"], "training/loss", fraction))) for fraction in fractions),
            shown(rows.get((run["label"], run["seed"], "training/slope", None))),
            run["state"],
            NOT_MEASURED if run["pe_lr_mult"] is None else f"{run['pe_lr_mult']:g}",
            shown(run["signal_rms"] and run["signal_rms"]["ratio"]),
        ]
        for run in runs_of(comparison, budget)
    ]
    header = [
        "scheme",
        "seed",
        *(f"loss at {fraction:g}" for fraction in fractions),
        "last fall",
        "state",
        "rate ×",
        "signal at start",
    ]
    return Grid(header, grid)


def pairs(comparison: Content, budget: Content, measure: str, at: Content) -> Grid:
    """The outcome of each row's scheme against each column's, with the difference (row minus column)."""
    labels = by_loss(comparison, budget)
    found = {
        tuple(item["pair"]): item
        for item in comparison["outcomes"]
        if (item["budget"], item["measure"], item["at"]) == (budget["number"], measure, at)
    }

    def shown(row: str, column: str) -> str:
        if row == column:
            return "–"
        item = seen_from(row, found.get((row, column)) or found[column, row])
        if item["difference"] is None:
            return item["outcome"]
        beside = f", {item['seeds_needed']} seeds needed" if item["seeds_needed"] else ""
        if item["outcome"] == INDICATION and item["documents_interval"]:
            beside = f", {words.over_documents(item['documents_interval'])}"
        return f"{item['outcome']} ({words.change(item['difference'])}{beside})"

    return Grid(["row against column", *labels], [[row, *(shown(row, column) for column in labels)] for row in labels])


def verdicts(comparison: Content) -> Grid:
    """One row a claim, or a claim and budget where there are several."""
    several = len(comparison["budgets"]) > 1
    rows = [
        [each.sentence, *([str(each.budget or "all")] if several else []), each.verdict, each.reason, each.source]
        for each in claims(comparison)
    ]
    return Grid(["claim", *(["budget"] if several else []), "verdict", "numbers", "source"], rows)


def across_tokenizers(comparison: Content) -> Grid:
    """One row a scheme and budget, by loss in bits per byte at the train length, of the budgets that read one text with
    different tokenizers; no row where there are none.
    """
    texts: dict[tuple, list[Content]] = {}
    for budget in comparison["budgets"]:
        data = budget["data"]
        texts.setdefault((data["sha256"], str(data["bytes"])), []).append(budget)  # bytes: split alike
    found = [
        _across(comparison, budget, label)
        for budgets in texts.values()
        if len({(budget["data"]["tokenizer"] or {}).get("sha256") for budget in budgets}) > 1
        for budget in budgets
        for label in labels_of(comparison, budget)
    ]
    header = ["scheme", "budget", "a token is", "bytes a token", "learning", "at the train length", "at the longest"]
    return Grid(header, [row for _, row in sorted(found, key=lambda item: (item[0], item[1]))])


def _across(comparison: Content, budget: Content, label: str) -> tuple[float, list[str]]:
    """A loss in bits per byte, and its row."""
    entries, length = Entries(comparison, budget, bits=True), budget["train_length"]
    inside = entries.get(label, answer.LOSS, length=length, window=0)
    states = {run["state"] for run in runs_of(comparison, budget) if run["label"] == label}

    def at(length: int) -> str:
        loss = entries.cell(label, answer.LOSS, length=length, window=0)
        return f"{loss} ({length:,} tokens)"

    row = [
        label,
        str(budget["number"]),
        words.token(budget["data"]),
        f"{bytes_per_token(budget['data']):.2f}",
        words.listed(sorted(states)),
        at(length),
        at(max(budget["lengths"], default=length)),
    ]
    return (inside["mean"] if inside and inside["mean"] is not None else math.inf), row


def not_learned(comparison: Content, budget: Content) -> set[str]:
    """The labels of a budget with a run that has not learned: what they cost and score says nothing."""
    return {run["label"] for run in runs_of(comparison, budget) if run["state"] == NOT_LEARNED}


def by_loss(comparison: Content, budget: Content) -> list[str]:
    """The labels of a budget by their mean loss at the train length; those without one last."""
    entries = Entries(comparison, budget)

    def loss(label: str) -> float:
        entry = entries.get(label, "loss/whole_windows", length=budget["train_length"], window=0)
        return math.inf if entry is None or entry["mean"] is None else entry["mean"]

    return sorted(labels_of(comparison, budget), key=lambda label: (loss(label), label))


def labels_of(comparison: Content, budget: Content) -> list[str]:
    """The labels with a complete run in this budget, in alphabetical order."""
    return sorted({run["label"] for run in runs_of(comparison, budget)})


def runs_of(comparison: Content, budget: Content) -> list[Content]:
    """The runs that are compared in this budget."""
    return [run for run in comparison["runs"] if run["budget"] == budget["number"]]


class Entries:
    """The summary of one budget, looked up by label, measure and place; `bits`: losses in bits per byte."""

    def __init__(self, comparison: Content, budget: Content, bits: bool = False) -> None:
        self._table = {
            (entry["label"], entry["measure"], place_key(entry["at"])): words.in_bits(entry, budget["data"])
            if bits and entry["measure"].startswith("loss/")
            else entry
            for entry in comparison["summary"]
            if entry["budget"] == budget["number"]
        }
        runs = Counter(run["label"] for run in runs_of(comparison, budget))
        several = min(2, max(runs.values()))
        self._seeds = {label: max(count, several) for label, count in runs.items()}

    def cell(self, label: str, measure: str, **at: Any) -> str:
        """What stands in a table: the mean with its interval, or words.

        A mean over fewer seeds than the label has says so, and one over a single seed where another label has more.
        """
        return words.cell(self.get(label, measure, **at), self._seeds[label])

    def get(self, label: str, measure: str, **at: Any) -> Content | None:
        return self._table.get((label, measure, place_key(at)))

    def places(self) -> list[tuple[str, Content]]:
        """Every measure and place that some label has, sorted."""
        found = {(measure, place): entry["at"] for (_, measure, place), entry in self._table.items()}
        return [(measure, at) for (measure, _), at in sorted(found.items(), key=lambda item: item[0])]

    def unit(self, measure: str, at: Content) -> str:
        """The unit of a measure at a place: of the first label that states one."""
        place = (measure, place_key(at))
        return next((entry["unit"] for key, entry in self._table.items() if key[1:] == place and entry["unit"]), "")

    def coordinates(self, measure: str, name: str, **fixed: Any) -> list[Any]:
        """The values that a coordinate takes where the others are as `fixed`."""
        places = (at for found, at in self.places() if found == measure)
        return sorted({at[name] for at in places if {key: at.get(key) for key in fixed} == fixed})


def as_csv(comparison: Content) -> str:
    """Every entry of the summary, one a line, each coordinate a column."""
    coordinates = sorted({name for entry in comparison["summary"] for name in entry["at"]})
    fields = [
        "budget",
        "label",
        "scheme",
        "measure",
        *coordinates,
        "n",
        "mean",
        "half_width",
        "unit",
        "count",
        "bytes",
        "status",
        "reason",
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for entry in comparison["summary"]:
        writer.writerow({**entry["at"], **entry, "scheme": comparison["labels"][entry["label"]]})
    return text.getvalue()


def claims_as_csv(comparison: Content) -> str:
    """The verdict on every claim, one a line; those on an encoding alone have no budget."""
    text = io.StringIO()
    fields = ["name", "budget", "verdict", "reason", "sentence", "source"]
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(verdict) for verdict in claims(comparison))
    return text.getvalue()


def as_markdown(comparison: Content) -> str:
    """The answer, the main table, the claims and the failures, ready to paste."""
    parts = [f"## {markdown_text(comparison['title'])}"]
    for budget in comparison["budgets"]:
        if len(comparison["budgets"]) > 1:
            parts.append(f"### Budget {budget['number']}")
        parts += [
            markdown_text(f"{budget['scope']} {answer.units(comparison, budget)}"),
            markdown_grid(headline(comparison, budget)),
        ]
        parts.append("\n".join(f"- {markdown_text(sentence)}" for sentence in answer.findings(comparison, budget)))
    for section in tuning.sections(comparison):
        parts += [f"### {markdown_text(section.title)}", markdown_text(section.scope)]
        parts += [
            part for caption, grid in section.tables for part in (f"{markdown_text(caption)}:", markdown_grid(grid))
        ]
        parts.append("\n".join(f"- {markdown_text(sentence)}" for sentence in section.sentences))
    if not any(map(compared, comparison["runs"])):
        parts.append(answer.nothing(comparison))
    if (grid := across_tokenizers(comparison)).rows:
        parts += [words.ACROSS_TOKENIZERS, markdown_grid(grid)]
    if comparison["notes"]:
        parts.append("\n".join(f"- Note: {markdown_text(note)}" for note in comparison["notes"]))
    if (grid := verdicts(comparison)).rows:
        parts += ["Claims:", markdown_grid(grid)]
    if (grid := failures(comparison)).rows:
        parts += ["Not in the comparison:", markdown_grid(grid)]
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", comparison["command"])), default=2))
    return "\n\n".join([*parts, f"{fence}sh\n{comparison['command']}\n{fence}"]) + "\n"


def markdown_grid(grid: Grid) -> str:
    lines = [grid.header, ["---"] + ["---:"] * (len(grid.header) - 1), *grid.rows]
    return "\n".join("| " + " | ".join(map(markdown_text, line)) + " |" for line in lines)


def markdown_text(text: str) -> str:
    """Text in which nothing is markup: a reason may hold anything that an exception said."""
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", " ".join(text.split())).replace("&", "&amp;").replace("<", "&lt;")


def print_comparison(comparison: Content, page: Path | None = None, console: Console | None = None) -> None:
    """The main table, the findings and the failures in the terminal, and the path of the page."""
    console = terminal(console)
    for budget in comparison["budgets"]:
        name = f"[Budget {budget['number']}] " if len(comparison["budgets"]) > 1 else ""
        _print(console, f"\n{name}{budget['scope']}")
        _print(console, answer.units(comparison, budget))
        print_grid(console, headline(comparison, budget))
        for sentence in answer.findings(comparison, budget):
            _print(console, f"- {sentence}")
    for section in tuning.sections(comparison):
        _print(console, f"\n{section.title}. {section.scope}")
        for caption, grid in section.tables:
            _print(console, f"\n{caption}")
            print_grid(console, grid)
        for sentence in section.sentences:
            _print(console, f"- {sentence}")
    if not any(map(compared, comparison["runs"])):
        _print(console, answer.nothing(comparison))
    if (grid := across_tokenizers(comparison)).rows:
        _print(console, f"\n{words.ACROSS_TOKENIZERS}")
        print_grid(console, grid)
    for note in comparison["notes"]:
        _print(console, f"Note: {note}")
    for status, reason, count, which, _ in failures(comparison).rows:
        what = f"{status}: {which}" if count == "1" else f"{status}, {count} runs: {which}"
        _print(console, f"{what}: {reason}" if reason else what)
    if page is not None:
        _print(console, f"\nPage: {page}")


def terminal(console: Console | None = None) -> Console:
    """The console given, or one of standard output; what is no terminal is as wide as a table needs: no number is cut."""
    from rich.console import Console

    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = UNLIMITED
    return console


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False)  # a reason may hold brackets


def print_grid(console: Console, grid: Grid) -> None:
    """A table; where the terminal is narrow its columns go on in a second one below."""
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    def table(columns: Iterable[int]) -> Table:
        built = Table(box=None, pad_edge=False)
        for column in columns:
            built.add_column(Text(grid.header[column]), justify="left" if column == 0 else "right", no_wrap=True)
        for row in grid.rows:
            built.add_row(*(Text(row[column]) for column in columns))
        return built

    def fits(columns: Iterable[int]) -> bool:
        return (
            Measurement.get(console, console.options.update(max_width=UNLIMITED), table(columns)).maximum
            <= console.width
        )

    columns = [0]
    for column in range(1, len(grid.header)):
        if len(columns) > 1 and not fits([*columns, column]):
            console.print(table(columns))
            columns = [0]
        columns.append(column)
    console.print(table(columns))
