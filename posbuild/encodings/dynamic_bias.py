"""Dynamic position bias (continuous bias on log-spaced coordinates: Liu et al. 2022, arXiv:2111.09883, section 3.3).

Of the paper's image model this is the bias alone: no cosine attention, no 16 * sigmoid, no division by a window, and a
bias in the last layer, which softmax does not see. It starts as torch.nn.Linear does, as in x-transformers: the paper's
code starts weights at N(0, 0.02) and biases at 0, with which behind a causal mask the network is linear in the logarithm.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posbuild.declaration import Dims
from posbuild.encodings.base import SharedDistanceBias, perceptron, start_linear, widest
from posbuild.schemes.dynamic_bias import Activation, DynamicBiasOptions

ACTIVATIONS = {Activation.relu: torch.relu, Activation.silu: nn.functional.silu}


class DynamicBias(SharedDistanceBias):
    """score += network(sign(i - j) * log(1 + |i - j|))[head]."""

    options: DynamicBiasOptions

    def __init__(self, options: DynamicBiasOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.width = width = options.width_in(dims)
        self.weight_in = nn.Parameter(torch.empty(width, 1))
        self.bias_in = nn.Parameter(torch.empty(width))
        more = options.hidden_layers - 1
        self.weight_hidden = nn.Parameter(torch.empty(more, width, width)) if more else None
        self.bias_hidden = nn.Parameter(torch.empty(more, width)) if more else None
        self.weight_out = nn.Parameter(torch.empty(dims.n_heads, width))
        self.bias_out = nn.Parameter(torch.empty(dims.n_heads))

    def bias(self, distance: Tensor) -> Tensor:
        size = distance.to(widest(distance.device))
        layers: list[tuple[Tensor, Tensor]] = [(self.weight_in, self.bias_in)]
        if self.weight_hidden is not None and self.bias_hidden is not None:
            layers += zip(self.weight_hidden, self.bias_hidden, strict=True)
        layers.append((self.weight_out, self.bias_out))
        return perceptron(size.sign() * size.abs().log1p(), layers, ACTIVATIONS[self.options.activation])

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        start_linear(parameter, 1 if name.endswith("_in") else self.width, generator)
