"""A comparison as people read it: table, figures and one self-contained page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posbuild import records
from posbuild.folders import locked


def write(folder: Path, comparison: dict[str, Any]) -> Path:
    """Write comparison.json, .csv, .md, .html, claims.csv and figures/ into `folder`; return the path of the page.

    The same comparison gives the same bytes. Files of two comparisons do not mix, and comparison.json is the last.
    """
    from posbuild.comparison import compare
    from posbuild.report import figures, page, tables

    drawn = {0: figures.draw_panels(comparison)}
    drawn |= {budget["number"]: figures.draw(comparison, budget) for budget in comparison["budgets"]}
    texts = {
        "comparison.csv": tables.as_csv(comparison),
        "claims.csv": tables.claims_as_csv(comparison),
        "comparison.md": tables.as_markdown(comparison),
        "comparison.html": page.render(comparison, drawn),
    }
    (folder / "figures").mkdir(exist_ok=True)
    with locked(folder / "figures"):
        figures.save([picture for pictures in drawn.values() for picture in pictures], folder / "figures")
        for name, text in texts.items():
            records.write_text(folder / name, text)
        compare.write(comparison, folder)
    return folder / "comparison.html"
