"""Untied positional encoding (Ke et al. 2021, arXiv:2006.15595, section 3.1; layer norm and biases as in the authors' code).

Both terms are divided by sqrt(2 D), which keeps the spread of their sum. Table and projections serve all layers and are
multiplied once a forward pass. The paper also gives the special token [CLS] scores of its own, whatever the positions:
that unties a token, which models here do not have, and is left out. So is the bias of the keys' projection: it adds
the same to all scores of a query.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from posbuild.bias import OfContent, Seen, distances
from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding, widest
from posbuild.encodings.t5 import bucket_of, bucket_starts
from posbuild.schemes.tupe import TupeOptions

Projected = tuple[Tensor, Tensor]  # the rows of the table as queries and as keys, (H, P, D)


class Tupe(Encoding):
    """score = q·k / sqrt(2 D) + (U_Q norm(p_i))·(U_K norm(p_j)) / sqrt(2 D) + by_bucket[bucket(i - j), head]."""

    options: TupeOptions

    def __init__(self, options: TupeOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.starts = (
            bucket_starts(options.per_direction(dims.causal), options.max_distance) if options.relative else []
        )
        self.table = nn.Parameter(torch.empty(options.longest(dims), dims.d_model))
        self.norm_weight = nn.Parameter(torch.empty(dims.d_model))
        self.norm_bias = nn.Parameter(torch.empty(dims.d_model))
        self.query_weight = nn.Parameter(torch.empty(dims.n_heads, dims.head_dim, dims.d_model))
        self.query_bias = nn.Parameter(torch.empty(dims.n_heads, dims.head_dim))
        self.key_weight = nn.Parameter(torch.empty(dims.n_heads, dims.head_dim, dims.d_model))
        self.by_bucket = nn.Parameter(torch.empty(options.buckets, dims.n_heads)) if options.relative else None

    def prepare(self, positions_BT: Tensor) -> Projected:
        wide = widest(positions_BT.device)
        norm = self.norm_weight.to(wide), self.norm_bias.to(wide)
        rows_PM = nn.functional.layer_norm(self.table.to(wide), norm[0].shape, *norm)
        queries_HPD = rows_PM @ self.query_weight.to(wide).transpose(-2, -1) + self.query_bias.to(wide)[:, None]
        return queries_HPD, rows_PM @ self.key_weight.to(wide).transpose(-2, -1)

    def scores(self, queries_HPD: Tensor, keys_BHKD: Tensor, seen: Seen) -> Tensor:
        queries_BHQD = rows_at(queries_HPD, seen.q_positions_BQ)
        by_position = queries_BHQD @ keys_BHKD.transpose(-2, -1) * (seen.scale * 0.5**0.5)
        if self.by_bucket is not None:
            distance_BQK = distances(seen.q_positions_BQ, seen.k_positions_BK)
            bucket_BQK = bucket_of(distance_BQK, self.starts, self.dims.causal)
            by_position = by_position + self.by_bucket.to(by_position.dtype).T[:, bucket_BQK].transpose(0, 1)
        return seen.scores * 0.5**0.5 + by_position.to(seen.q_BHQD.dtype)

    def at_scores(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: Projected) -> OfContent:
        queries_HPD, keys_HPD = shared
        return OfContent(scores=partial(self.scores, queries_HPD, rows_at(keys_HPD, k_positions_BK)))

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        if name == "norm_weight":
            nn.init.ones_(parameter)
        elif name in ("norm_bias", "query_bias"):
            nn.init.zeros_(parameter)
        else:  # the projections as the model's own of queries and keys, which is what they are in the authors' code
            std = 0.02 if name in ("table", "by_bucket") else 0.5 * self.dims.d_model**-0.5
            nn.init.normal_(parameter, std=std, generator=generator)


def rows_at(rows_HPD: Tensor, positions_BT: Tensor) -> Tensor:
    """Rows of these positions, (B, H, T, D); an IndexError, not a row from the end, for those before 0."""
    rows_PC = rows_HPD.transpose(0, 1).flatten(1)
    rows_BTHD = nn.functional.embedding(positions_BT, rows_PC).unflatten(-1, (len(rows_HPD), -1))
    return rows_BTHD.transpose(1, 2)
