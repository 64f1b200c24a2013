"""Learned tables by axis (Dosovitskiy et al. 2020, arXiv:2010.11929, appendix D.4; added: Ho et al. 2019, arXiv:1912.12180)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from posbuild.declaration import Dims
from posbuild.encodings.base import AbsoluteCode, moved
from posbuild.schemes.grid.axial_learned import AxialLearnedOptions, Join


class AxialLearned(AbsoluteCode):
    """code = the rows of the coordinates, joined or added; the tables of the axes stand below each other."""

    options: AxialLearnedOptions

    def __init__(self, options: AxialLearnedOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        width = dims.d_model // len(options.extent) if options.join is Join.concat else dims.d_model
        self.table = nn.Parameter(torch.empty(sum(options.extent), width))

    def codes(self, positions: Tensor) -> Tensor:
        extent = self.options.extent
        size_A = moved(torch.tensor(extent), positions.device)
        first_A = moved(torch.tensor([sum(extent[:axis]) for axis in range(len(extent))]), positions.device)
        # Beyond its own table a position would take a row of another axis: it is given one that does not exist.
        inside = (positions >= 0) & (positions < size_A)
        rows = nn.functional.embedding(torch.where(inside, positions + first_A, sum(extent)), self.table)
        if self.options.join is Join.concat:
            return rows.flatten(-2)
        return rows.sum(-2, dtype=torch.promote_types(rows.dtype, torch.float32))

    def resized(self, extent: Sequence[int]) -> AxialLearned:
        """The encoding for other numbers of positions: codes in between are those of a bicubic interpolation of the grid.

        As DeiT and MAE resize whole tables, to which it is equal since the axes do not mix.
        """
        new = AxialLearned(replace(self.options, extent=[*extent]), self.dims).to(self.table)
        tables = self.table.detach().split(self.options.extent)
        resize = nn.functional.interpolate
        with torch.no_grad():
            for (name, own), old in zip(new.named_parameters(), self.parameters(), strict=True):
                if name != "table":
                    own.copy_(old)
                    continue
                parts = [
                    resize(table.T[None, :, None], size=(1, size), mode="bicubic")[0, :, 0].T
                    for table, size in zip(tables, extent, strict=True)
                ]
                own.copy_(torch.cat(parts))
        return new

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        if name == "table":
            nn.init.normal_(parameter, std=self.options.init_std, generator=generator)
        else:
            super().init_parameter(name, parameter, generator)
