"""DAPE (Zheng et al. 2024, arXiv:2405.14722, section 3) and DAPE V2 (Zheng et al. 2024, arXiv:2410.04798, section 3).

Both add to the scores a bias by position and what a network makes of scores and bias of all heads: two layers with a leaky
ReLU between them, pair by pair in the first, convolutions along the keys in the second, which are given 0 for keys that
the query does not see. Their hidden layer reaches the keys just after the query, which see what it sees and nothing later.
In the released code they do so but for the last queries of a batch, which have no keys after them, so that a text read through a
cache gives other scores than read at once; here they always do. Tokens of another document count as absent, if documents
do not interleave.

The other scheme has its default options here, its start and its share of layers. The released code gives each layer a bias
of its own, and FIRE a leaky ReLU; its Megatron file halves the threshold.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posbuild.bias import OfContent, Positional, Seen
from posbuild.declaration import Dims
from posbuild.encodings.alibi import Alibi
from posbuild.encodings.base import Encoding, start_linear, widest
from posbuild.encodings.fire import Fire
from posbuild.encodings.kerple_log import KerpleLog
from posbuild.schemes.alibi import AlibiOptions
from posbuild.schemes.dape import DapeOptions, Prior
from posbuild.schemes.fire import FireOptions
from posbuild.schemes.kerple_log import KerpleLogOptions


def prior(over: Prior, dims: Dims) -> Encoding:
    """The encoding that gives the bias by position."""
    if over is Prior.alibi:
        return Alibi(AlibiOptions(), dims)
    return Fire(FireOptions(), dims) if over is Prior.fire else KerpleLog(KerpleLogOptions(), dims)


class Dape(Encoding):
    """score += bias + network(scores and biases of all heads)[head]."""

    options: DapeOptions

    def __init__(self, options: DapeOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        layers, heads, width, keys = dims.n_layers, dims.n_heads, options.width, options.keys
        self.over = prior(options.over, dims)
        self.weight_in = nn.Parameter(torch.empty(layers, width, 2 * heads, keys))
        self.bias_in = nn.Parameter(torch.empty(layers, width))
        self.weight_out = nn.Parameter(torch.empty(layers, heads, width, keys))
        self.bias_out = nn.Parameter(torch.empty(layers, heads))

    def prepare(self, positions_BT: Tensor) -> Any:
        return self.over.prepare(positions_BT)

    def at_scores(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: Any) -> OfContent:
        bias = self.over.at_scores(q_positions_BQ, k_positions_BK, layer, shared)
        assert isinstance(bias, Positional)
        return OfContent(scores=partial(self.corrected, layer=layer, bias=bias))

    def corrected(self, seen: Seen, layer: int, bias: Positional) -> Tensor:
        """Scores with the bias and what the network adds."""
        wide = widest(seen.q_BHQD.device)  # a network multiplies what rounding leaves
        scores_BHQK = seen.q_BHQD.to(wide) @ seen.k_BHKD.to(wide).mT * seen.scale
        bias_BHQK = bias.dense(seen.q_positions_BQ, seen.k_positions_BK, wide).expand_as(scores_BHQK)
        side = self.options.keys // 2
        after = side if self.dims.causal else 0  # keys after the query that the hidden layer reaches
        visible = F.pad(seen.visible_BHQK, (0, after))
        reached = visible
        for step in range(1, after + 1):
            reached = reached | F.pad(visible, (step, 0))[..., :-step]
        weight_in, bias_in = self.weight_in[layer, :, :, None].to(wide), self.bias_in[layer].to(wide)
        weight_out, bias_out = self.weight_out[layer, :, :, None].to(wide), self.bias_out[layer].to(wide)
        maps = F.pad(torch.cat([scores_BHQK, bias_BHQK], dim=1), (0, after)) * visible
        hidden = F.leaky_relu(F.conv2d(maps, weight_in, bias_in, padding=(0, side))) * reached
        network_BHQK = F.conv2d(hidden, weight_out, bias_out, padding=(0, side))[..., : scores_BHQK.shape[-1]]
        return (scores_BHQK + bias_BHQK + network_BHQK).to(seen.q_BHQD.dtype)

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        channels = 2 * self.dims.n_heads if name.endswith("_in") else self.options.width
        start_linear(parameter, channels * self.options.keys, generator)
