"""Swin's relative position bias: a learned scalar per layer and head for each offset in rows and columns.

It is defined within a window: positions are (row, column) from the window's corner, and the windows of an image are rows
of a batch, or documents of one row.
"""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Options, Paper, Scheme, option


@dataclass(kw_only=True)
class SwinOptions(Options):
    window: int = option(7, "rows and columns of a window: offsets reach from 1 - window to window - 1", least=1)

    def number_of_axes(self) -> int:
        return 2

    def sizes(self, dims: Dims) -> list[int]:
        return [self.window, self.window]

    def longest(self, dims: Dims) -> int:
        return self.window**2

    def takes_fractions(self) -> bool:
        return False


SCHEME = Scheme(
    name="grid/swin",
    summary="a learned scalar for each offset in rows and columns, added to the scores",
    options=SwinOptions,
    maths="posbuild.encodings.grid.swin:Swin",
    acts_on=ActsOn.scores,
    learns="layers x heads x (2 window - 1)^2 numbers",
    beyond="not defined beyond the window, for which the authors resize the table",
    cost="a look-up for each pair of tokens in a window",
    used_by=("Swin Transformer",),
    paper=Paper(
        title="Swin Transformer: Hierarchical Vision Transformer using Shifted Windows",
        authors="Liu et al.",
        year=2021,
        arxiv="2103.14030",
        where="section 3.2, equation 4",
    ),
    compared_with=("transformers", "microsoft/Swin-Transformer"),
    shift_invariant=True,
    axes=(2,),
)
