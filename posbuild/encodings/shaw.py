"""Vectors for each clipped distance (Shaw et al. 2018, arXiv:1803.02155, section 3, equations 3 and 4).

Heads share the tables, layers have their own, as in the code and in the paper's big model; its base model has tables for
each head. The rows stand by query position minus key
position, where the paper counts j - i: its row for j - i = r is that of the distance -r here. A causal model sees no later
keys and has no rows for them; should positions run backwards there, a key with a later one is at the distance 0.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from posbuild.bias import OfContent, Seen, distances
from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding
from posbuild.schemes.shaw import ShawOptions


class Shaw(Encoding):
    """score = q·(k + key_table[layer, clip(i - j)]) / sqrt(D); value_table[layer, clip(i - j)] joins the values."""

    options: ShawOptions

    def __init__(self, options: ShawOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.least, self.most = 0 if dims.causal else -options.max_distance, options.max_distance
        shape = (dims.n_layers, self.most - self.least + 1, dims.head_dim)
        self.key_table = nn.Parameter(torch.empty(shape))
        self.value_table = nn.Parameter(torch.empty(shape)) if options.values else None

    def rows(self, seen: Seen) -> Tensor:
        """The row of the tables for each query and key, (B, Q, K)."""
        return distances(seen.q_positions_BQ, seen.k_positions_BK).clamp(self.least, self.most) - self.least

    def scores(self, layer: int, seen: Seen) -> Tensor:
        table_ND = self.key_table[layer].to(seen.q_BHQD.dtype)
        return seen.scores + pick(seen.q_BHQD @ table_ND.T, self.rows(seen)) * seen.scale

    def values(self, layer: int, weights_BHQK: Tensor, seen: Seen) -> Tensor:
        """What the second table adds to the values: a product of it with the weights summed by row."""
        assert self.value_table is not None
        table_ND = self.value_table[layer].to(weights_BHQK.dtype)
        by_row_BHQN = weights_BHQK.new_zeros(*weights_BHQK.shape[:-1], len(table_ND))
        index_BHQK = self.rows(seen)[:, None].expand_as(weights_BHQK)
        return by_row_BHQN.scatter_add(-1, index_BHQK, weights_BHQK) @ table_ND

    def at_scores(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: None) -> OfContent:
        values = None if self.value_table is None else partial(self.values, layer)
        return OfContent(scores=partial(self.scores, layer), values=values)

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        for table in parameter.detach():  # as in the authors' code: uniform, of the variance 2 / (rows + D)
            nn.init.xavier_uniform_(table, generator=generator)


def pick(products: Tensor, rows_BQK: Tensor, dim: int = -1) -> Tensor:
    """Of products with the rows of a table those of the row that each query and key have, (B, H, Q, K).

    dim -1: queries with the rows, (B, H, Q, N); dim -2: the rows with keys, (B, H, N, K). No vector is held for each pair.
    """
    batch = max(len(products), len(rows_BQK))
    index_BHQK = rows_BQK[:, None].expand(batch, products.shape[1], -1, -1)
    return products.expand(batch, -1, -1, -1).gather(dim, index_BHQK)
