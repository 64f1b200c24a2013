"""A comparison as people read it: table, figures and one self-contained page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posbuild import records


def write(folder: Path, comparison: dict[str, Any]) -> Path:
    """Write comparison.json, .csv, .md, .html and figures/ into `folder`; return the path of the page.

    The same comparison gives the same bytes.
    """
    from posbuild.comparison import compare
    from posbuild.report import figures, page, tables

    drawn = {budget["number"]: figures.draw(comparison, budget) for budget in comparison["budgets"]}
    compare.write(comparison, folder)
    records.write_text(folder / "comparison.csv", tables.as_csv(comparison))
    records.write_text(folder / "comparison.md", tables.as_markdown(comparison))
    for pictures in drawn.values():
        figures.save(pictures, folder / "figures")
    path = folder / "comparison.html"
    records.write_text(path, page.render(comparison, drawn))
    return path
