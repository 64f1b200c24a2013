"""A table of words, for the terminal, Markdown and the page alike."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """A table of words: a header and rows, the first column naming the row."""

    header: list[str]
    rows: list[list[str]]
