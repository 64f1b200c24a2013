"""What page.js draws: the numbers of the figures, by the name of the figure, as plain values for one JSON block."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from posbuild.report import figures, pareto, words
from posbuild.report.figures import Curves, Scatter, Series
from posbuild.report.tables import by_loss

Content = dict[str, Any]
DIGITS = 6  # that are kept: a chart has some thousand pixels


def data(comparison: Content) -> Content:
    """Looks by label, charts by the id of their figure, and the small multiples by measure."""
    return {
        "looks": {label: figures.look(comparison, label) for label in comparison["labels"]},
        "beyond": figures.BEYOND_MEANS,
        "charts": dict(chart for budget in comparison["budgets"] for chart in _charts(comparison, budget)),
        "panels": _panels(comparison),
    }


def as_json(content: Content) -> str:
    """JSON that may stand in a script element: no text in it can end the element, or begin a comment or another one."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _charts(comparison: Content, budget: Content) -> Iterator[tuple[str, Content]]:
    """The id of each figure that page.js draws, and its numbers."""
    for name, title, describe in figures.FIGURES:
        content = describe(comparison, budget)
        if isinstance(content, Curves) and content.lines:
            yield figures.stem(name, budget), _curves(comparison, budget, content) | {"title": title}
        elif isinstance(content, Scatter):
            yield figures.stem(name, budget), _trades(comparison, budget) | {"title": title}


def _curves(comparison: Content, budget: Content, content: Curves) -> Content:
    labels = [label for label in by_loss(comparison, budget) if label in content.lines]
    return {
        "kind": "curves",
        "x": content.x_name,
        "y": content.y_name,
        "lines": [{"label": label, **_line(content.lines[label])} for label in labels],
        "dashed": [{"label": label, **_line(content.dashed[label])} for label in labels if label in content.dashed],
        "control": f"attention cut to {words.in_view(budget)} (dashed)",
        "levels": [[name, _short(level)] for name, level in content.levels.items()],
        "zero": content.zero,
        "span": content.least_span,
        "mark": budget["train_length"] if content.mark_train_length else None,
    }


def _line(line: Series) -> Content:
    """Places, means and, where there are several seeds, the ends of their intervals."""
    found = {"x": line.x, "mean": [_short(value) for value in line.mean]}
    if line.low != line.high:
        found |= {"low": [_short(value) for value in line.low], "high": [_short(value) for value in line.high]}
    return found


def _trades(comparison: Content, budget: Content) -> Content:
    """Costs and qualities, and for each pair of them the front and what it says in words."""
    trades = pareto.trades(comparison, budget)
    return {
        "kind": "trades",
        "labels": by_loss(comparison, budget),
        "costs": [_axis(row[0].cost, figures.least_ratio(row[0].cost)) for row in trades],
        "qualities": [_axis(trade.quality, figures.LEAST_SPAN * comparison["margin"]) for trade in trades[0]],
        "fronts": [[trade.front for trade in row] for row in trades],
        "told": [[trade.sentence for trade in row] for row in trades],
    }


def _axis(axis: pareto.Axis, span: float) -> Content:
    """An axis that spans at least `span`, and the mean of each label with the ends of its interval."""
    points = {label: [_short(value) for value in (axis.mean(label), *axis.ends(label))] for label in axis.entries}
    return {"name": axis.title, "better": "less" if axis.less else "more", "span": span, "points": points}


def _panels(comparison: Content) -> list[Content]:
    """Each measure with a panel for each size and seed; none where there is but one."""
    found = []
    for _, title, describe in figures.FIGURES:
        contents = [describe(comparison, budget) for budget in comparison["budgets"]]
        first = next((each for each in contents if isinstance(each, Curves) and each.lines), None)
        if first is None or len(panels := figures.panels_of(comparison, describe)) < 2:  # type: ignore[arg-type]
            continue
        found.append(
            {
                "title": title,
                "x": first.x_name,
                "y": first.y_name,
                "zero": first.zero,
                "span": first.least_span,
                "panels": [
                    {
                        "title": panel.title,
                        "row": panel.row,
                        "mark": panel.train_length if first.mark_train_length else None,
                        "lines": [
                            {"label": label, "x": x, "mean": [_short(value) for value in y]}
                            for label, (x, y) in panel.lines.items()
                        ],
                    }
                    for panel in panels
                ],
            }
        )
    return found


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
