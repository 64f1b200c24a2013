"""Disentangled attention (He et al. 2020, arXiv:2006.03654, section 3.1; log buckets as in the authors' code of version 2).

The paper has keys meet the vector of the distance j - i, and the released code that of i - j, as queries do; both are
here. The table of vectors serves all layers, each of which projects it by weights of its own (`share_att_key: false`); that
of queries has a bias, as in the code; one for keys, which version 2 has too, changes no weight. Nor is the table
normalised, which version 2 does. In a causal model it has rows for one side, unless the two terms take opposite distances.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

from posbuild.bias import OfContent, Seen, distances
from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding, moved, widest
from posbuild.encodings.shaw import pick
from posbuild.schemes.deberta import DebertaOptions


def bucket_starts(buckets: int, max_distance: int) -> list[int]:
    """The first distance of each bucket but the first.

    With m = buckets // 2 the buckets up to m hold one distance each; bucket m + c holds those up to the greatest d with
    d <= m ((max_distance - 1) / m)^(c / (m - 1)). Decided in whole numbers: a logarithm can fall on the wrong side.
    """
    middle, far = buckets // 2, max_distance - 1
    starts = [*range(1, middle + 1)]
    last = middle
    for c in range(1, middle):
        starts.append(last + 1)
        # Right to within one; the exact test settles it.
        last = math.floor(middle * (far / middle) ** (c / (middle - 1))) + 1
        while last ** (middle - 1) * middle**c > far**c * middle ** (middle - 1):
            last -= 1
    return starts


class Deberta(Encoding):
    """score = (q·k + q·(W_k[layer] p(i - j)) + k·(W_q[layer] p(i - j) + b[layer])) / sqrt(3 D), p a row of one table."""

    options: DebertaOptions

    def __init__(self, options: DebertaOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.two_sided = not dims.causal or options.opposite
        self.starts = [] if options.linear else bucket_starts(options.buckets, options.max_distance)
        self.table = nn.Parameter(torch.empty(options.buckets * (1 + self.two_sided), dims.d_model))
        shape = (dims.n_layers, dims.n_heads, dims.head_dim)
        self.key_weight = nn.Parameter(torch.empty(*shape, dims.d_model)) if options.c2p else None
        self.query_weight = nn.Parameter(torch.empty(*shape, dims.d_model)) if options.p2c else None
        self.query_bias = nn.Parameter(torch.empty(shape)) if options.p2c else None

    def rows(self, distance: Tensor) -> Tensor:
        """The row of the table for distances of any shape."""
        side = distance
        if not self.options.linear:
            starts = moved(torch.tensor(self.starts), distance.device)
            side = distance.sign() * torch.bucketize(distance.abs(), starts, right=True)
        most = self.options.buckets - 1
        return (side.clamp(-most - 1, most) + most + 1) if self.two_sided else side.clamp(0, most)

    def scores(self, keys_HDN: Tensor | None, queries_HDN: Tensor | None, seen: Seen) -> Tensor:
        distance_BQK, dtype = distances(seen.q_positions_BQ, seen.k_positions_BK), seen.q_BHQD.dtype
        total_BHQK, terms = seen.scores, 1
        if keys_HDN is not None:
            products_BHQN = seen.q_BHQD @ keys_HDN.to(dtype)
            total_BHQK, terms = total_BHQK + pick(products_BHQN, self.rows(distance_BQK)) * seen.scale, terms + 1
        if queries_HDN is not None:
            products_BHNK = queries_HDN.to(dtype).transpose(-2, -1) @ seen.k_BHKD.transpose(-2, -1)
            rows_BQK = self.rows(-distance_BQK if self.options.opposite else distance_BQK)
            total_BHQK, terms = total_BHQK + pick(products_BHNK, rows_BQK, dim=-2) * seen.scale, terms + 1
        return total_BHQK / math.sqrt(terms)

    def at_scores(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: None) -> OfContent:
        wide = widest(q_positions_BQ.device)  # which autocast leaves alone
        table_MN = self.table.to(wide).T
        keys_HDN = None if self.key_weight is None else self.key_weight[layer].to(wide) @ table_MN
        queries_HDN = None
        if self.query_weight is not None and self.query_bias is not None:
            queries_HDN = self.query_weight[layer].to(wide) @ table_MN + self.query_bias[layer].to(wide)[..., None]
        return OfContent(scores=partial(self.scores, keys_HDN, queries_HDN))

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        if name == "query_bias":
            nn.init.zeros_(parameter)
        else:  # the projections as the model's own of queries and keys, which is what they are in the authors' code
            std = 0.02 if name == "table" else 0.5 * self.dims.d_model**-0.5
            nn.init.normal_(parameter, std=std, generator=generator)
