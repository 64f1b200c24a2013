"""The figures of a comparison, PNG and SVG. The same comparison gives the same bytes: no date, fixed ids, no global state."""

from __future__ import annotations

import io
import itertools
import math
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from posbuild.comparison.statistics import mean_and_half_width
from posbuild.guide.answers import count_model, size
from posbuild.records import MEASURED, NOT_MEASURED, whole
from posbuild.report import pareto, words
from posbuild.report.pareto import Axis, Trade
from posbuild.report.tables import Entries, by_loss, labels_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Content = dict[str, Any]

# Okabe and Ito's colours that read on white and on black alike, and a brown and a grey; a marker beside each.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C8C8C", "#A6761D")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
INK = "#30363d"  # of text and axes; the page replaces it by the colour of its own text

POINTS = 72  # per inch
AXES_WIDTH, AXES_HEIGHT = 2.8, 2.6  # inches: readable on a phone, where a figure is some 360 pixels wide
LEAST_SPAN = 4  # margins
LEAST_CHANGE = 5  # margins: the loss on the last tokens of some hundred windows is known to one or two
LEAST_RATIO = 0.2  # what is timed twice differs by a tenth and more on a machine that does other work too
BEYOND_MEANS = 0.4  # of their span: how far an axis goes on for the sake of intervals, which are wide with two seeds
PLACE_WIDTH = 22  # letters in a line of the words beside a row of marks
PANELS = "panels"  # stem of the small multiples
PANEL_WIDTH, PANEL_HEIGHT, PANEL_COLUMNS = 1.75, 1.5, 3  # inches
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "svg.fonttype": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": False,
}


@dataclass(frozen=True)
class Picture:
    """One figure, drawn: its file stem, what to say below it, and its bytes."""

    name: str
    title: str
    caption: str
    png: bytes
    svg: str


@dataclass(frozen=True)
class Series:
    """A line: places along one axis, the mean over seeds there, and the ends of its interval (of one seed, the mean).

    by_seed  what each mean was taken over
    """

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    by_seed: list[dict[int, float]]


def draw(comparison: Content, budget: Content) -> list[Picture]:
    """Every figure that the rows of this budget allow, in the order of the page."""
    pictures = []
    for name, title, describe in FIGURES:
        content = describe(comparison, budget)
        if content is not None and (picture := _picture(name, stem(name, budget), title, comparison, budget, content)):
            pictures.append(picture)
    return pictures


def stem(name: str, budget: Content) -> str:
    """What a figure of a budget is called: those of the first have plain names."""
    return name if budget["number"] == 1 else f"{name}_{budget['number']}"


def draw_panels(comparison: Content) -> list[Picture]:
    """The length curve in small multiples, a panel for each model size and seed, where there are several."""
    if len(panels := panels_of(comparison, _whole_windows)) < 2:
        return []
    content = Panels(
        panels=panels,
        x_name="window length (tokens)",
        y_name="loss (nats/token)",
        caption="Whole windows: one panel for each seed of each budget, all with the same axes.",
    )
    picture = _picture(PANELS, PANELS, "Loss against length, by size and seed", comparison, {}, content)
    return [picture] if picture else []


def _picture(
    salt: str, name: str, title: str, comparison: Content, budget: Content, content: Curves | Dots | Scatter | Panels
) -> Picture | None:
    import matplotlib

    with matplotlib.rc_context({**STYLE, "svg.hashsalt": salt}):
        if isinstance(content, Dots):
            figure = _dots(comparison, budget, title, content)
        elif isinstance(content, Scatter):
            figure = _scatter(comparison, title, content)
        elif isinstance(content, Panels):
            figure = _panels(comparison, title, content)
        else:
            figure = _curves(comparison, budget, title, content)
        return None if figure is None else Picture(name, title, content.caption, *_bytes(figure))


def save(pictures: list[Picture], folder: Path) -> None:
    """Write `folder`/NAME.png and NAME.svg for each, and take away those of an earlier comparison."""
    files = {f"{picture.name}.png": picture.png for picture in pictures}
    files |= {f"{picture.name}.svg": picture.svg.encode() for picture in pictures}
    for name, content in files.items():
        with whole(folder / name) as partial:
            partial.write_bytes(content)
    names = [PANELS, *(name for name, _, _ in FIGURES)]
    ours = re.compile(rf"({'|'.join(names)})(_\d+)?\.(png|svg)")
    for path in folder.iterdir():
        if path.name not in files and ours.fullmatch(path.name):
            path.unlink()


def _bytes(figure: Figure) -> tuple[bytes, str]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    png, svg = io.BytesIO(), io.StringIO()
    figure.savefig(png, format="png", dpi=160, facecolor="white", metadata={"Software": None})
    figure.savefig(svg, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return png.getvalue(), svg.getvalue()


# --- the figures -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Lines over a log2 axis, each named at its right end, and what to say below them."""

    lines: dict[str, Series]
    x_name: str
    y_name: str
    caption: str
    dashed: dict[str, Series] = field(default_factory=dict)  # the control of each line
    levels: dict[str, float] = field(default_factory=dict)  # horizontal lines by name
    zero: bool = False  # a line at 0
    least_span: float = 0.0  # of the y axis, so that a change of nothing does not look like one
    mark_train_length: bool = True


@dataclass(frozen=True, kw_only=True)
class Dots:
    """One row a place, one mark a label: for measures whose places are words."""

    measure: str
    x_name: str
    reference: float  # a line here: no change
    least_reach: float  # of the axis to both sides of it, so that noise does not look like a change
    caption: str


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """One mark a label: a quality against a cost, and the Pareto front."""

    trade: Trade
    caption: str


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The lines of one seed of one budget: by label, places and values. Those of one `row` stand side by side."""

    title: str
    row: int
    train_length: int
    lines: dict[str, tuple[list[float], list[float]]]


@dataclass(frozen=True, kw_only=True)
class Panels:
    """Small multiples: panels with the same axes."""

    panels: list[Panel]
    x_name: str
    y_name: str
    caption: str


def panels_of(comparison: Content, describe: Callable[[Content, Content], Curves]) -> list[Panel]:
    """A panel for each budget, the smallest models first, and seed that has a line in what `describe` shows."""
    names = _names_of(comparison["budgets"])
    several = any(len(budget["seeds"]) > 1 for budget in comparison["budgets"])
    found = []
    for budget in sorted(comparison["budgets"], key=lambda budget: budget["parameters"] or [0.0]):
        lines = describe(comparison, budget).lines
        for seed in budget["seeds"]:
            mine = {label: _of_seed(line, seed) for label, line in lines.items()}
            mine = {label: line for label, line in mine.items() if line[0]}
            title = ", ".join(filter(None, (names[budget["number"]], f"seed {seed}")))
            if mine:
                row = budget["number"] if several else 0
                found.append(Panel(title=title, row=row, train_length=budget["train_length"], lines=mine))
    return found


def _names_of(budgets: list[Content]) -> dict[int, str]:
    """What tells each budget from the others: the size of its models, else its number; nothing where it is the only one."""
    sizes = [budget["parameters"] and size(budget["parameters"][1]) for budget in budgets]
    if len(budgets) == 1:
        return {budgets[0]["number"]: ""}
    by_size = None not in sizes and len({*sizes}) == len(budgets)
    return {
        budget["number"]: f"{large} parameters" if by_size else f"budget {budget['number']}"
        for budget, large in zip(budgets, sizes, strict=True)
    }


def _of_seed(line: Series, seed: int) -> tuple[list[float], list[float]]:
    places = [(x, values[seed]) for x, values in zip(line.x, line.by_seed, strict=True) if seed in values]
    return [x for x, _ in places], [y for _, y in places]


def _whole_windows(comparison: Content, budget: Content) -> Curves:
    inside = budget["train_length"]
    control = series(comparison, budget, "loss/whole_windows", "length", window=inside)
    return Curves(
        lines=series(comparison, budget, "loss/whole_windows", "length", window=0),
        dashed=control,
        x_name="window length (tokens)",
        y_name="loss (nats/token)",
        least_span=LEAST_SPAN * comparison["margin"],
        caption=_sentences(
            f"Mean loss of all {'masked ' * words.is_masked(budget)}tokens of windows of each length.",
            _band(budget),
            _without(comparison, budget, "loss/whole_windows", window=0),
            f"Dashed: attention cut to {words.in_view(budget)}." if control else "",
            _span(comparison),
        ),
    )


def _fixed_targets(comparison: Content, budget: Content) -> Curves:
    measure = "loss/fixed_targets"
    return Curves(
        lines=series(comparison, budget, measure, "length", relative_to=budget["train_length"], window=0),
        x_name="context length (tokens)",
        y_name="change of loss (nats/token)",
        least_span=LEAST_SPAN * comparison["margin"],
        zero=True,
        caption=_sentences(
            "The same target tokens under growing context: the loss at each length minus that at the train length.",
            "0: context unused; above: harm; below: use.",
            _band(budget),
            _without(comparison, budget, measure, window=0),
            _span(comparison),
        ),
    )


def _by_position(comparison: Content, budget: Content) -> Curves:
    measure = "loss/by_position"
    measured = Entries(comparison, budget).coordinates(measure, "length")
    longest = max({*measured} & {*budget["lengths"]} or measured, default=0)
    return Curves(
        lines=series(comparison, budget, measure, "position", length=longest),
        x_name="position in the window (tokens)",
        y_name="loss (nats/token)",
        caption=_sentences(
            f"Mean loss of the tokens from each position on to the next mark, in windows of {longest} tokens.",
            _band(budget),
            _without(comparison, budget, "loss/whole_windows", length=longest, window=0),
        ),
    )


def _recall(comparison: Content, budget: Content) -> Curves:
    measure = "recall/gain"
    return Curves(
        lines=series(comparison, budget, measure, "distance"),
        x_name="distance (tokens)",
        y_name="recall gain (nats/token)",
        least_span=LEAST_SPAN * comparison["margin"],
        zero=True,
        caption=_sentences(
            "How much the mean loss of a passage falls when it stood this many tokens before, instead of another passage.",
            "0: nothing recalled. Beyond the train length only schemes that recall inside it.",
            _band(budget),
            _without(comparison, budget, measure),
            _span(comparison),
        ),
    )


def _learning(comparison: Content, budget: Content) -> Curves:
    counts = (budget["data"]["counts"] or {}).get("validation", {})
    names = ("unigram", "neighbours") if words.is_masked(budget) else ("bigram", "trigram")
    return Curves(
        lines=series(comparison, budget, "training/loss", "fraction"),
        levels={name: counts[name] for name in names if name in counts},
        x_name="part of the training budget",
        y_name="loss (nats/token)",
        mark_train_length=False,
        caption=_sentences(
            "Loss on validation windows of the train length as the budget is spent.",
            f"A run that ends above the line of {count_model(budget)} ({names[1]}) has not learned."
            if names[1] in counts
            else "",
            _band(budget),
        ),
    )


def _order(comparison: Content, budget: Content) -> Dots:
    least = LEAST_CHANGE * comparison["margin"]
    where = "the last token changes when the tokens more than the kept number back"
    if words.is_masked(budget):
        where = "a masked token changes when the tokens more than the kept number away, on both sides,"
    return Dots(
        measure="order/change",
        x_name="change of loss (nats/token)",
        reference=0.0,
        least_reach=least,
        caption=_sentences(
            f"How much the loss on {where} are shuffled, reversed, or their halves swapped. 0: their order is not used.",
            f"The axis spans at least ±{least:g}.",
            _bars(budget),
            _without(comparison, budget, "order/change"),
        ),
    )


def _cost(comparison: Content, budget: Content) -> Dots:
    return Dots(
        measure="cost/ratio",
        x_name="ratio to none",
        reference=1.0,
        least_reach=LEAST_RATIO,
        caption=_sentences(
            "Each figure as a ratio to a model without encoding, measured in the same process.",
            "Speeds: above 1 is faster. Memory and parameters: above 1 is more.",
            f"The axis reaches at least {LEAST_RATIO:g} to both sides of 1.",
            _bars(budget),
            _without(comparison, budget, "cost/ratio"),
        ),
    )


def _pareto(comparison: Content, budget: Content) -> Scatter | None:
    found = pareto.trades(comparison, budget)
    if not found:
        return None
    trade = found[0][0]
    return Scatter(
        trade=trade,
        caption=_sentences(
            trade.sentence,
            _bars(budget) or "One seed, so there is no interval that would tell points apart.",
        ),
    )


def _attention(comparison: Content, budget: Content) -> Curves:
    return Curves(
        lines=series(comparison, budget, "probe/attention", "distance"),
        x_name="distance (tokens)",
        y_name="attention weight",
        mark_train_length=False,
        caption=_sentences(
            "Mean attention weight of the trained models by distance, over layers, heads and windows.",
            _band(budget),
            _without(comparison, budget, "probe/attention"),
        ),
    )


def _bias(comparison: Content, budget: Content) -> Curves:
    return Curves(
        lines=series(comparison, budget, "probe/bias", "distance", parameters="trained"),
        x_name="distance (tokens)",
        y_name="added to the score",
        mark_train_length=False,
        zero=True,
        caption=_sentences(
            "Mean over heads and layers of what the encoding adds to the scores, as trained.",
            "Schemes that add nothing have no line.",
            _band(budget),
        ),
    )


BAND = "Line: mean over seeds; band: its 95 % t interval (± in the tables), cut where it leaves the picture."
BARS = "Mark: mean over seeds; bar: its 95 % t interval (± in the tables), cut where it leaves the picture."

FIGURES: tuple[tuple[str, str, Callable[[Content, Content], Curves | Dots | Scatter | None]], ...] = (
    ("length_curve", "Loss against length, whole windows", _whole_windows),
    ("fixed_targets", "Loss against length, fixed targets", _fixed_targets),
    ("by_position", "Loss by position", _by_position),
    ("learning", "Validation loss as the budget is spent", _learning),
    ("recall", "Recall gain by distance", _recall),
    ("order", "Change of loss when order is destroyed", _order),
    ("pareto", "Quality against cost", _pareto),
    ("attention", "Attention by distance", _attention),
    ("bias", "Score bias by distance", _bias),
    ("cost", "Ratio to a model without encoding", _cost),
)


# --- what they share -------------------------------------------------------------------------------------------------


def series(
    comparison: Content, budget: Content, measure: str, axis: str, relative_to: float | None = None, **fixed: Any
) -> dict[str, Series]:
    """The lines of one measure along one coordinate, by label, with the other coordinates as `fixed`.

    relative_to: subtract each seed's own value there. Places whose summary has no number are left out.
    """
    entries = Entries(comparison, budget)
    values: dict[str, dict[float, dict[int, float]]] = {}
    for row in comparison["rows"]:
        at = {name: value for name, value in row["at"].items() if name != axis}
        if row["budget"] != budget["number"] or row["measure"] != measure or row["value"] is None or at != fixed:
            continue
        entry = entries.get(row["label"], measure, **row["at"])
        if entry is not None and entry["status"] == MEASURED:
            values.setdefault(row["label"], {}).setdefault(row["at"][axis], {})[row["seed"]] = row["value"]
    lines = {}
    for label, places in sorted(values.items()):
        if relative_to is not None:
            base = places.get(relative_to, {})
            places = {
                x: {seed: value - base[seed] for seed, value in seeds.items() if seed in base}
                for x, seeds in places.items()
            }
        shown = {x: dict(sorted(seeds.items())) for x, seeds in sorted(places.items()) if seeds}
        if shown:
            told = [mean_and_half_width([*values.values()]) for values in shown.values()]
            lines[label] = Series(
                list(shown),
                [mean for mean, _ in told],
                [mean - (half or 0.0) for mean, half in told],
                [mean + (half or 0.0) for mean, half in told],
                list(shown.values()),
            )
    return lines


def look(comparison: Content, label: str) -> dict[str, Any]:
    """The colour and marker of a label: the same in every figure of a comparison."""
    index = list(comparison["labels"]).index(label)
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[(index + index // len(COLOURS)) % len(MARKERS)]}


def spread_out(wanted: list[float], gap: float) -> list[float]:
    """Places at least `gap` apart, ascending like `wanted` and as near to it as that allows (least squares)."""
    from scipy.optimize import isotonic_regression

    gaps = gap * numpy.arange(len(wanted))
    return (isotonic_regression(wanted - gaps).x + gaps).tolist()


def _sentences(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def _band(budget: Content) -> str:
    return BAND if len(budget["seeds"]) > 1 else ""


def _bars(budget: Content) -> str:
    return BARS if len(budget["seeds"]) > 1 else ""


def _span(comparison: Content) -> str:
    return f"The axis spans at least {LEAST_SPAN * comparison['margin']:g}."


def _limits(means: list[float], ends: list[float], least_span: float = 0.0) -> tuple[float, float]:
    """The ends of an axis that shows all means, and of their intervals what does not crush the picture."""
    low, high = min(means), max(means)
    beyond = BEYOND_MEANS * (high - low)
    low, high = max(low - beyond, min([low, *ends])), min(high + beyond, max([high, *ends]))
    wider = max(0.05 * (high - low), (least_span - (high - low)) / 2)
    return low - wider, high + wider


def _without(comparison: Content, budget: Content, measure: str, **fixed: Any) -> str:
    """A sentence on the labels that have no number at some place, so that no line is missing in silence."""
    found = dict.fromkeys(labels_of(comparison, budget), NOT_MEASURED)
    for entry in comparison["summary"]:
        at = {name: entry["at"].get(name) for name in fixed}
        if entry["budget"] != budget["number"] or entry["measure"] != measure or at != fixed:
            continue
        if entry["status"] != MEASURED:
            found[entry["label"]] = words.words_instead(entry["status"], entry["reason"])
        elif found[entry["label"]] == NOT_MEASURED:
            found[entry["label"]] = ""
    by_reason: dict[str, list[str]] = {}
    for label, reason in found.items():
        by_reason.setdefault(reason, []).append(label)
    return " ".join(f"{words.listed(labels)}: {reason}." for reason, labels in sorted(by_reason.items()) if reason)


def _figure(
    width: float, height: float, left: float, bottom: float, title: str, right: float = 0.0
) -> tuple[Figure, Axes]:
    """A figure whose axes are `width` by `height` inches, with room for words around them."""
    from matplotlib.figure import Figure

    top, edge = 0.42, 0.15
    whole = (left + width + right + edge, bottom + height + top)
    figure = Figure(figsize=whole)
    axes = figure.add_axes((left / whole[0], bottom / whole[1], width / whole[0], height / whole[1]))
    figure.text(0.1 / whole[0], 1 - 0.26 / whole[1], title, fontsize=11, fontweight="bold")
    axes.grid(color=INK, alpha=0.15, linewidth=0.6)
    return figure, axes


def _curves(comparison: Content, budget: Content, title: str, content: Curves) -> Figure | None:
    """Draw the lines, their controls and levels; None where there is no line."""
    lines = content.lines
    if not lines:
        return None
    height = max(AXES_HEIGHT, len(lines) * 0.19)
    room = 0.25 + max(len(name) for name in _end_names(lines).values()) * 6.0 / POINTS  # for the names at the right
    figure, axes = _figure(AXES_WIDTH, height, 0.78, 0.5, title, room)
    for label, line in lines.items():
        style = look(comparison, label)
        axes.fill_between(line.x, line.low, line.high, color=style["color"], alpha=0.2, linewidth=0)
        axes.plot(line.x, line.mean, markersize=4.5, linewidth=1.6, **style)
    for label, line in content.dashed.items():
        axes.plot(line.x, line.mean, linestyle="--", linewidth=1.0, color=look(comparison, label)["color"])
    _log2_axis(axes, sorted({x for line in lines.values() for x in line.x}))
    if content.zero:
        axes.axhline(0, color=INK, linewidth=0.8)
    for name, level in content.levels.items():
        _level(axes, name, level)
    every = [*lines.values(), *content.dashed.values()]
    means = [y for line in every for y in line.mean] + list(content.levels.values()) + [0.0] * content.zero
    ends = [y for line in lines.values() for y in (*line.low, *line.high)]
    axes.set_ylim(*_limits(means, ends, content.least_span))
    if content.mark_train_length:
        _mark(axes, budget["train_length"])
    axes.set_xlabel(content.x_name)
    axes.set_ylabel(content.y_name)
    _name_ends(comparison, axes, lines, height)
    return figure


def _log2_axis(axes: Axes, places: list[float], most: int = 8) -> None:
    """A log2 x axis with at most so many of these ascending places marked; 0, where it is one, stands at the left."""
    from matplotlib.ticker import FixedLocator, NullLocator

    if places[0] > 0:
        axes.set_xscale("log", base=2)
    else:
        axes.set_xscale("symlog", base=2, linthresh=max(1.0, places[1] if len(places) > 1 else 1.0))
    ticks = places[:: math.ceil(len(places) / most)]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])


def _level(axes: Axes, name: str, level: float) -> None:
    """A horizontal line with its name at the right."""
    axes.axhline(level, color=INK, linewidth=0.8, linestyle=":")
    axes.annotate(
        name,
        (0.99, level),
        xycoords=("axes fraction", "data"),
        xytext=(0, 2),
        textcoords="offset points",
        fontsize=9.5,
        ha="right",
    )


def _mark(axes: Axes, train_length: int) -> None:
    """A line at the train length, its name on the side where the axes have more room."""
    axes.axvline(train_length, color=INK, linewidth=0.8, linestyle=":")
    in_left_half = axes.transAxes.inverted().transform(axes.transData.transform((train_length, 0)))[0] < 0.5
    axes.annotate(
        f"train length {train_length}",
        (train_length, 1),
        xycoords=("data", "axes fraction"),
        xytext=(3 if in_left_half else -3, -1),
        textcoords="offset points",
        fontsize=9.5,
        va="top",
        ha="left" if in_left_half else "right",
    )


def _end_names(lines: dict[str, Series]) -> dict[str, str]:
    """The name of each line, with its last place where other lines go on."""
    last = max(line.x[-1] for line in lines.values())
    return {label: label if line.x[-1] == last else f"{label} (to {line.x[-1]:g})" for label, line in lines.items()}


def _name_ends(comparison: Content, axes: Axes, lines: dict[str, Series], height: float) -> None:
    """Write each label at the right of the axes, near the end of its line, none over another."""
    low, high = axes.get_ylim()
    ends = sorted(lines, key=lambda label: (lines[label].mean[-1], label))
    gap = (high - low) * 12.5 / POINTS / height
    places = spread_out([lines[label].mean[-1] for label in ends], gap)
    shift = min(0.0, high - places[-1]) or max(0.0, low - places[0])
    last, names = max(line.x[-1] for line in lines.values()), _end_names(lines)
    for label, y in zip(ends, places, strict=True):
        x, colour = lines[label].x[-1], look(comparison, label)["color"]
        # A thin line leads to the name, but not from the middle of the axes, where it would look like data.
        lead = {
            "arrowstyle": "-",
            "linewidth": 0.7,
            "linestyle": ":",
            "color": colour,
            "shrinkA": 1,
            "shrinkB": 3,
            "relpos": (0, 0.5),
        }
        axes.annotate(
            names[label],
            (x, lines[label].mean[-1]),
            xytext=(1.04, (y + shift - low) / (high - low)),
            textcoords="axes fraction",
            va="center",
            fontsize=10,
            color=colour,
            annotation_clip=False,
            parse_math=False,
            arrowprops=lead if x == last else None,
        )


def _dots(comparison: Content, budget: Content, title: str, content: Dots) -> Figure | None:
    """Draw the marks; None where no label has a number."""
    entries = Entries(comparison, budget)
    labels = by_loss(comparison, budget)
    shown = [
        (label, words.place(at), entry["mean"], entry["half_width"] or 0.0)
        for found, at in entries.places()
        if found == content.measure
        for label in labels
        if (entry := entries.get(label, content.measure, **at)) and entry["status"] == MEASURED
    ]
    if not shown:
        return None
    names = list(dict.fromkeys(place for _, place, _, _ in shown))
    columns = _legend_columns(labels, 4.8)
    wrapped = [textwrap.fill(name, PLACE_WIDTH) for name in names]
    left = 0.3 + max(len(line) for name in wrapped for line in name.splitlines()) * 6.0 / POINTS
    height = len(names) * max(0.14 + 0.17 * max(name.count("\n") + 1 for name in wrapped), 0.055 * len(labels))
    bottom = 0.62 + 0.2 * math.ceil(len(labels) / columns)
    figure, axes = _figure(max(AXES_WIDTH, 4.8 - left), height, left, bottom, title)
    offsets = {label: (index - (len(labels) - 1) / 2) * 0.72 / len(labels) for index, label in enumerate(labels)}
    for label in labels:
        mine = [
            (value, half, names.index(place) + offsets[label]) for found, place, value, half in shown if found == label
        ]
        x, halves, y = ([each[index] for each in mine] for index in range(3))
        axes.errorbar(
            x, y, xerr=halves, linestyle="none", markersize=4.5, elinewidth=1.0, label=label, **look(comparison, label)
        )
    means = [value for _, _, value, _ in shown] + [content.reference + side * content.least_reach for side in (-1, 1)]
    axes.set_xlim(*_limits(means, [value + side * half for _, _, value, half in shown for side in (-1, 1)]))
    axes.axvline(content.reference, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(names)), wrapped)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    for row in range(1, len(names)):
        axes.axhline(row - 0.5, color=INK, alpha=0.15, linewidth=0.6)
    axes.set_xlabel(content.x_name)
    _legend(figure, loc="lower center", ncols=columns, fontsize=10)
    return figure


def _scatter(comparison: Content, title: str, content: Scatter) -> Figure:
    """Draw one mark a label with its intervals, its name beside it, and the Pareto front as a staircase."""
    trade = content.trade
    figure, axes = _figure(AXES_WIDTH + 0.6, AXES_HEIGHT, 0.78, 0.5, title, right=0.25)
    for label in trade.labels:
        style = look(comparison, label) | {"linestyle": "none", "markersize": 6, "elinewidth": 1.0}
        axes.errorbar(
            *trade.point(label), xerr=trade.cost.half_width(label), yerr=trade.quality.half_width(label), **style
        )
    axes.plot(*zip(*stairs(trade), strict=True), color=INK, linewidth=0.8, linestyle=":", zorder=1)
    for axis, span, set_limits in (
        (trade.cost, least_ratio(trade.cost), axes.set_xlim),
        (trade.quality, LEAST_SPAN * comparison["margin"], axes.set_ylim),
    ):
        means = [axis.mean(label) for label in trade.labels]
        set_limits(*_limits(means, [end for label in trade.labels for end in axis.ends(label)], span))
    axes.set_xlabel(trade.cost.title)
    axes.set_ylabel(trade.quality.title)
    _name_points(comparison, axes, trade)
    return figure


def least_ratio(cost: Axis) -> float:
    """What an axis of costs spans at least, in their unit."""
    return LEAST_RATIO if cost.related else 0.0


def stairs(trade: Trade) -> list[tuple[float, float]]:
    """The corners of the front: from each point on to the cost of the next, then to its quality."""
    points = [trade.point(label) for label in trade.front]
    corners = points[:1]
    for (_, before), (x, y) in itertools.pairwise(points):
        corners += [(x, before), (x, y)]
    return corners


def _name_points(comparison: Content, axes: Axes, trade: Trade) -> None:
    """Write each label beside its mark, where no other name is: at the right, further up or down, or at the left."""
    box = axes.bbox
    per_point = axes.figure.dpi / POINTS
    taken: list[tuple[float, float, float]] = []  # left, right and middle of the names written
    for label in trade.labels:
        place = trade.point(label)
        x, y = axes.transData.transform(place)
        width = len(label) * 6.0 * per_point
        choices = [(side, step) for step in (0.7, -0.7, 1.7, -1.7, 2.7, -2.7) for side in (1, -1)]
        for side, step in choices:
            left = x + 6 * per_point if side > 0 else x - 6 * per_point - width
            middle = y + step * 11 * per_point
            free = all(
                left > right or left + width < start or abs(middle - at) > 10 * per_point for start, right, at in taken
            )
            if free and left + width < box.x1 + 20 * per_point and left > box.x0:
                break
        taken.append((left, left + width, middle))
        axes.annotate(
            label,
            place,
            xytext=(6 * side, step * 11),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            va="center",
            fontsize=9.5,
            color=look(comparison, label)["color"],
            annotation_clip=False,
            parse_math=False,
        )


def _panels(comparison: Content, title: str, content: Panels) -> Figure:
    """Draw panels with the same axes, each row from the left, and one legend for all."""
    from matplotlib.figure import Figure

    by_row: list[list[Panel | None]] = [
        [*found] for _, found in itertools.groupby(content.panels, lambda each: each.row)
    ]
    columns = min(PANEL_COLUMNS, max(map(len, by_row)))
    padded = [found + [None] * (-len(found) % columns) for found in by_row]
    cells = [panel for found in padded for panel in found]
    rows = len(cells) // columns
    labels = [label for label in comparison["labels"] if any(label in panel.lines for panel in content.panels)]
    in_legend = _legend_columns(labels, columns * PANEL_WIDTH)
    in_inches = (columns * PANEL_WIDTH + 0.6, rows * PANEL_HEIGHT + 0.8 + 0.2 * math.ceil(len(labels) / in_legend))
    figure = Figure(figsize=in_inches, layout="constrained")
    grid = [*figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat]
    means = [y for panel in content.panels for _, values in panel.lines.values() for y in values]
    places = sorted({x for panel in content.panels for xs, _ in panel.lines.values() for x in xs})
    for axes, panel in zip(grid, cells, strict=True):
        if panel is None:
            axes.set_visible(False)
            continue
        for label, (x, y) in panel.lines.items():
            axes.plot(x, y, markersize=3, linewidth=1.2, label=label, **look(comparison, label))
        _log2_axis(axes, places, most=4)
        axes.set_ylim(*_limits(means, [], LEAST_SPAN * comparison["margin"]))
        axes.axvline(panel.train_length, color=INK, linewidth=0.8, linestyle=":")
        axes.grid(color=INK, alpha=0.15, linewidth=0.6)
        axes.set_title(panel.title, fontsize=9.5, loc="left", parse_math=False)
    for above, axes in enumerate(grid):
        below = above + columns
        if axes.get_visible() and (below >= len(cells) or cells[below] is None):
            axes.set_xlabel(content.x_name)
            axes.tick_params(labelbottom=True)
    figure.suptitle(title, x=0.02, ha="left", fontsize=11, fontweight="bold")
    figure.supylabel(content.y_name, fontsize=10)
    shown = {text: line for axes in figure.axes for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    lines = [shown[label] for label in labels]
    _legend(figure, lines, labels, loc="outside lower center", ncols=in_legend, fontsize=9.5)
    return figure


def _legend_columns(labels: list[str], width: float) -> int:
    """How many labels with their marks stand side by side in `width` inches."""
    return min(len(labels), max(1, int(width / (0.35 + max(map(len, labels)) * 6.5 / POINTS))))


def _legend(figure: Figure, *lines_and_labels: list, **place: Any) -> None:
    legend = figure.legend(*lines_and_labels, frameon=False, handletextpad=0.2, columnspacing=1.2, **place)
    for text in legend.get_texts():
        text.set_parse_math(False)
