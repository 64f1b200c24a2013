"""A comparison as people read it: table, figures and one self-contained page."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write(folder: Path, comparison: dict[str, Any]) -> Path:
    """Write comparison.json, .csv, .md, .html and figures/ into `folder`; return the path of the page.

    The same comparison gives the same bytes.
    """
    from posbuild.comparison import compare
    from posbuild.report import figures, page, tables

    drawn = {budget["number"]: figures.draw(comparison, budget) for budget in comparison["budgets"]}
    compare.write(comparison, folder)
    (folder / "comparison.csv").write_text(tables.as_csv(comparison), encoding="utf-8", newline="\n")
    (folder / "comparison.md").write_text(tables.as_markdown(comparison), encoding="utf-8", newline="\n")
    for pictures in drawn.values():
        figures.save(pictures, folder / "figures")
    path = folder / "comparison.html"
    path.write_text(page.render(comparison, drawn), encoding="utf-8", newline="\n")
    return path
