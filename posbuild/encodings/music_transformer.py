"""Relative attention of the Music Transformer (Huang et al. 2018, arXiv:1809.04281, section 3).

The paper skews the products of queries and table so that each lands at its key, which holds for as many queries as keys
under a causal mask: what it leaves above the diagonal is of other distances. Here the product is looked up by distance.
A distance without a row gets nothing added, as in the authors' code, which fills up a short table with zeros.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from posbuild.bias import OfContent, Seen, distances
from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding
from posbuild.encodings.shaw import pick
from posbuild.schemes.music_transformer import MusicTransformerOptions


class MusicTransformer(Encoding):
    """score = q·(k + table[layer, head, i - j]) / sqrt(D)."""

    options: MusicTransformerOptions

    def __init__(self, options: MusicTransformerOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        tables = 1 if options.share_heads else dims.n_heads
        self.table = nn.Parameter(torch.empty(dims.n_layers, tables, options.rows(dims), dims.head_dim))

    def scores(self, layer: int, seen: Seen) -> Tensor:
        table_HND = self.table[layer].to(seen.q_BHQD.dtype)
        products_BHQN = seen.q_BHQD @ table_HND.transpose(-2, -1)
        end, distance_BQK = table_HND.shape[-2], distances(seen.q_positions_BQ, seen.k_positions_BK)
        rows_BQK = torch.where((distance_BQK >= 0) & (distance_BQK < end), distance_BQK, end)
        return seen.scores + pick(nn.functional.pad(products_BHQN, (0, 1)), rows_BQK) * seen.scale

    def at_scores(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: None) -> OfContent:
        return OfContent(scores=partial(self.scores, layer))

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        nn.init.normal_(parameter, std=self.dims.head_dim**-0.5, generator=generator)
