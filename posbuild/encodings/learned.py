"""A learned table of codes (Gehring et al. 2017, arXiv:1705.03122, section 3.1; as in BERT and GPT-2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posbuild.declaration import Dims
from posbuild.encodings.base import AbsoluteCode
from posbuild.schemes.learned import LearnedOptions


class Learned(AbsoluteCode):
    """code = table[p]."""

    options: LearnedOptions

    def __init__(self, options: LearnedOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.table = nn.Parameter(torch.empty(options.longest(dims), dims.d_model))

    def codes(self, positions: Tensor) -> Tensor:
        return nn.functional.embedding(positions, self.table)

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        if name == "table":
            nn.init.normal_(parameter, std=self.options.init_std, generator=generator)
        else:
            super().init_parameter(name, parameter, generator)
