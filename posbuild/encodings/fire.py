"""FIRE (Li et al. 2024, arXiv:2310.04418, section 3).

In a bidirectional model the distance is taken without its sign, as in the paper's code: sides are told apart only as far
as the scale differs from query to query, which it does beyond the threshold. Keys after the query may then be more than
its own position away, shares above 1. The last bias of the network changes no weight; it is there as in the paper's code.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from posbuild.bias import OfPositions
from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding, perceptron, start_linear, widest
from posbuild.schemes.fire import FireOptions

EPSILON = 1e-6  # keeps the quotient finite should c become 0


class Fire(Encoding):
    """score += network(log(1 + |c (i - j)|) / log(1 + |c| max(i, |factor| * threshold)))[head]."""

    options: FireOptions

    def __init__(self, options: FireOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.threshold = options.threshold_in(dims)
        networks, width = 1 if options.share_layers else dims.n_layers, options.width
        self.c = nn.Parameter(torch.empty(networks))
        self.factor = nn.Parameter(torch.empty(networks))
        self.weight_in = nn.Parameter(torch.empty(networks, width, 1))
        self.bias_in = nn.Parameter(torch.empty(networks, width))
        self.weight_out = nn.Parameter(torch.empty(networks, dims.n_heads, width))
        self.bias_out = nn.Parameter(torch.empty(networks, dims.n_heads))

    def bias(self, network: int, q_positions_P: Tensor, k_positions_P: Tensor) -> Tensor:
        """The bias of pairs of positions, (H, P)."""
        wide = widest(q_positions_P.device)
        c, threshold = self.c[network].to(wide).abs(), (self.factor[network].to(wide) * self.threshold).abs()
        distance_P = (q_positions_P - k_positions_P).abs().to(wide)
        scale_P = torch.maximum(q_positions_P.to(wide), threshold)
        share_P = (c * distance_P).log1p() / ((c * scale_P).log1p() + EPSILON)
        layers = [(self.weight_in[network], self.bias_in[network]), (self.weight_out[network], self.bias_out[network])]
        return perceptron(share_P, layers, torch.relu)

    def prepare(self, positions_BT: Tensor) -> list[OfPositions]:
        return [OfPositions(partial(self.bias, network)) for network in range(len(self.c))]

    def at_scores(
        self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: list[OfPositions]
    ) -> OfPositions:
        return shared[layer % len(shared)]

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        if name in ("c", "factor"):
            nn.init.constant_(parameter, 0.1 if name == "c" else 1.0)
        else:
            start_linear(parameter, 1 if name.endswith("_in") else self.options.width, generator)
