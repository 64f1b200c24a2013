"""Learnable Fourier features: cosines and sines of learned frequency, then a small network.

Li et al. 2021, "Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding" (arXiv:2106.02795), algorithm 1:

    F = [cos X W_rᵀ ; sin X W_rᵀ] / √|F|   (2),      Y = GeLU(F W_1 + B_1) W_2 + B_2   (6)

for a position with one axis in one group. The authors released no code; willGuimont/learnable_fourier_positional_encoding
1fe87e2 follows the algorithm, but starts W_r with the standard deviation γ⁻², where the paper has the variance γ⁻².
"""

import math

import numpy as np


def codes(positions, dim, frequency, weight_in, bias_in, weight_out, bias_out):
    """The code of each position: positions (T,) to (T, dim)."""
    out = np.zeros((len(positions), dim))
    for t, position in enumerate(positions):
        angles = [float(position) * one for one in frequency]
        waves = [math.cos(angle) for angle in angles] + [math.sin(angle) for angle in angles]
        hidden = weight_in @ (np.array(waves) / math.sqrt(len(waves))) + bias_in
        active = np.array([x * (1 + math.erf(x / math.sqrt(2))) / 2 for x in hidden])
        out[t] = weight_out @ active + bias_out
    return out


def inputs(x, positions, projection=None, **network):
    """Token vectors x (B, T, M) with the codes of positions (B, T): added, or joined and projected by (M, 2M)."""
    out = np.zeros(x.shape)
    for b in range(x.shape[0]):
        code = codes(positions[b], x.shape[2], **network)
        for t in range(x.shape[1]):
            out[b, t] = x[b, t] + code[t] if projection is None else projection @ np.concatenate([x[b, t], code[t]])
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"gamma": [10.0, 2.0], "frequencies": [None, 3], "width": [32, 5], "combine": ["add", "concat"]}


def arguments(model):
    """What `inputs` takes beside token vectors and positions, of a model's encoding."""
    return {"projection": None, **model["parameters"]}


# Two channels, one frequency π/2, |F| = 2, one hidden channel: W_1 = (√2, 2√2), so F W_1 = cos(p π/2) + 2 sin(p π/2), plus 1.
#   p = 0: 1 + 1 = 2     p = 1: 2 + 1 = 3     p = 3: -2 + 1 = -1
# GeLU(x) = x Φ(x): 2·0.9772498680518208 = 1.9544997361036416, 3·0.9986501019683699 = 2.9959503059051097,
# -0.15865525393145707; then (10·, -1·) plus (0.5, 0).
GOLDEN = {
    "positions": [0, 1, 3],
    "dim": 2,
    "parameters": {
        "frequency": [math.pi / 2],
        "weight_in": [[math.sqrt(2), 2 * math.sqrt(2)]],
        "bias_in": [1.0],
        "weight_out": [[10.0], [-1.0]],
        "bias_out": [0.5, 0.0],
    },
    "options": {"width": 1},
    "codes": [
        [20.044997361036416, -1.9544997361036416],
        [30.459503059051097, -2.9959503059051097],
        [-1.0865525393145707, 0.15865525393145707],
    ],
}


def numbers(tokens, width, shift, factor=1):
    """Queries, keys or weights, for the runs of released code: (T, D)."""
    return [[factor * round(math.sin(1.3 * t + c * c + shift), 2) for c in range(width)] for t in tokens]


# LearnableFourierPositionalEncoding in float64, six features and a hidden layer of two.
RELEASED = {
    "source": "willGuimont/learnable_fourier_positional_encoding@1fe87e2",
    "positions": [0, 1, 7, 1000],
    "dim": 3,
    "parameters": {
        "frequency": [0.5, -0.2, 0.03],
        "weight_in": numbers(range(2), 6, 0),
        "bias_in": [0.1, -0.3],
        "weight_out": numbers(range(3), 2, 1),
        "bias_out": [0.2, 0.0, -0.4],
    },
    "options": {"width": 2, "frequencies": 3},
    "codes": [
        [0.2898340978417554, 0.05003298102960932, -0.46298435146969696],
        [0.2900123327756385, 0.1050526061866334, -0.4341196493152653],
        [0.045135333457561266, -0.013428023157174708, -0.2529816087073391],
        [0.10760258229638786, 0.059518433200518306, -0.2766382552976744],
    ],
}
