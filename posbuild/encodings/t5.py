"""T5's bucketed bias (Raffel et al. 2020, arXiv:1910.10683, section 2.1).

Scores are scaled by 1/sqrt(d) here as for every scheme; T5 itself leaves the scale to the start of its query weights.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from posbuild.declaration import Dims
from posbuild.encodings.base import SharedDistanceBias, moved
from posbuild.schemes.t5 import T5Options


def bucket_starts(buckets: int, max_distance: int) -> list[int]:
    """The first distance of each bucket but the first.

    With e = buckets // 2 the buckets up to e hold one distance each; bucket e + k starts at the least d with
    d >= e (max_distance / e)^(k / (buckets - e)). Decided in whole numbers: a logarithm can fall on the wrong side of a start.
    """
    exact, growing = buckets // 2, buckets - buckets // 2
    starts = list(range(1, exact + 1))
    for k in range(1, growing):
        # Right to within one; the exact test settles it.
        start = math.floor(exact * (max_distance / exact) ** (k / growing))
        while start**growing * exact**k < max_distance**k * exact**growing:
            start += 1
        starts.append(start)
    return starts


def bucket_of(distance: Tensor, starts: list[int], causal: bool) -> Tensor:
    """The bucket of distances (query minus key) of any shape; keys after the query share bucket 0 in a causal model."""
    starts_N = moved(torch.tensor(starts), distance.device)
    if causal:
        return torch.bucketize(distance, starts_N, right=True)
    after = (distance < 0) * (len(starts) + 1)
    return torch.bucketize(distance.abs(), starts_N, right=True) + after


class T5(SharedDistanceBias):
    """score += table[bucket(i - j), head]; one table for all layers."""

    options: T5Options

    def __init__(self, options: T5Options, dims: Dims) -> None:
        super().__init__(options, dims)
        self.starts = bucket_starts(options.per_direction(dims.causal), options.max_distance)
        self.table = nn.Parameter(torch.empty(options.buckets, dims.n_heads))

    def bucket(self, distance: Tensor) -> Tensor:
        """As `bucket_of`."""
        return bucket_of(distance, self.starts, self.dims.causal)

    def bias(self, distance: Tensor) -> Tensor:
        return self.table.T[:, self.bucket(distance)]

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        nn.init.zeros_(parameter)
