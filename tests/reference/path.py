"""PaTH attention: a key is changed by every token between it and the query.

Yang et al. 2025, "PaTH Attention: Position Encoding via Accumulating Householder Transformations" (arXiv:2505.16381), section
3: scores are k_j^T (∏ H_s) q_i over j < s <= i, with H_s = I - β_s w_s w_s^T, w of length 1 and β between 0 and 2. By the
authors' layer (fla-org/flash-linear-attention bc3b101, fla/layers/path_attn.py) w comes from the token vector by two matrices of
rank 32 and is divided by √(|w|² + 10⁻⁶), β = 2σ(b·x + c), scores are scaled by 1/√D after that. Its short convolution over w with a
SiLU after it, on by default there, and its forget gate, off by default, are left out here.
"""

import math

import numpy as np


def scores(q, k, q_positions, k_positions, x, weight_in, weight_out, weight_strength, bias_strength):
    """q (B, H, Q, D), k (B, H, K, D), x (B, K, M), weights (R, M), (H D, R), (H, M), (H,); the matrices multiplied one by one.

    The queries are the last Q of the K tokens. Zero where a query does not see the key.
    """
    batch, heads, queries, width = q.shape
    keys = k.shape[2]
    out = np.zeros((batch, heads, queries, keys))
    for b, h in np.ndindex(batch, heads):
        matrices = []
        for vector in x[b]:
            w = (weight_out @ (weight_in @ vector))[h * width : (h + 1) * width]
            strength = 2 / (1 + math.exp(-(weight_strength[h] @ vector + bias_strength[h])))
            matrices.append(np.eye(width) - strength * np.outer(w, w) / (w @ w + 1e-6))
        for i in range(queries):
            own = keys - queries + i
            for j in range(own + 1):
                way = np.eye(width)
                for s in range(j + 1, own + 1):
                    way = way @ matrices[s]
                out[b, h, i, j] = k[b, h, j] @ way @ q[b, h, i] / math.sqrt(width)
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"rank": [32, 3]}


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    return {name: value[model["layer"]] for name, value in model["parameters"].items()}


# One head of width 2, rank 1: w is (3, 4) x₁, so (3, 4)/5 but for the 10⁻⁶: for x₁ = 1000, 1/(25·10⁶ + 10⁻⁶) is 1/(25·10⁶) to
# the last digit. b = (0, 1), c = 0: β = 2σ(x₂). Tokens x = (·, ·), (1000, ln 3), (1000, 0): β = 3/2 and 1, so
#   H_2 = I - w w^T = [[16, -12], [-12, 9]] / 25,   H_1 = I - 1.5 w w^T = [[11.5, -18], [-18, 1]] / 25
# q = (5, 0), the last of three tokens, and k = (1, 0), (0, 1), (2, 3), over √2:
#   j = 2: 10                    j = 1: (0, 1) H_2 q = -12 · 5/25 = -2.4
#   j = 0: (1, 0) H_1 H_2 q: H_2 q = (3.2, -2.4), H_1 of it = (36.8 + 43.2)/25 = 3.2 first
GOLDEN = {
    "q": [[[[5.0, 0.0]]]],
    "k": [[[[1.0, 0.0], [0.0, 1.0], [2.0, 3.0]]]],
    "x": [[[1.0, 1.0], [1000.0, 1.0986122886681098], [1000.0, 0.0]]],
    "q_positions": [[2]],
    "k_positions": [[0, 1, 2]],
    "parameters": {
        "weight_in": [[[1.0, 0.0]]],
        "weight_out": [[[3.0], [4.0]]],
        "weight_strength": [[[0.0, 1.0]]],
        "bias_strength": [[0.0]],
    },
    "options": {"rank": 1},
    "scores": [[[[2.262741699796952, -1.6970562748477138, 7.0710678118654755]]]],
}
# Weights by the function naive_path_attn of fla-org/flash-linear-attention bc3b101 (fla/ops/path_attn/naive.py) in float32, values
# being the unit matrix, of directions and strengths formed as in the layer without its convolution.
RELEASED = [
    {
        "source": "fla-org/flash-linear-attention@bc3b101",
        "options": {"rank": 3},
        "parameters": {
            "weight_in": [[[0.15, 1.46, -0.53, -1.33], [0.87, 1.1, -1.15, -0.8], [1.36, 0.45, -1.48, -0.07]]],
            "weight_out": [[[0.72, 1.21, -1.03], [-0.95, 1.28, 0.62], [-1.43, -0.25, 1.5], [-0.14, -1.46, 0.51]]],
            "weight_strength": [[[1.45, 0.21, -1.5, 0.17], [1.45, -0.55, -1.31, 0.89]]],
            "bias_strength": [[1.42, -0.66]],
        },
        "q": [
            [[0.44, 1.36], [-0.79, -1.16], [1.09, 0.88], [-1.32, -0.54]],
            [[1.46, 0.16], [-1.5, 0.22], [1.44, -0.6], [-1.29, 0.93]],
        ],
        "k": [
            [[1.34, 0.5], [-1.47, -0.12], [1.5, -0.26], [-1.43, 0.63]],
            [[1.27, -0.96], [-1.02, 1.22], [0.71, -1.4], [-0.35, 1.49]],
        ],
        "x": [
            [1.36, -0.79, -1.16, 1.09],
            [0.88, -1.32, -0.54, 1.46],
            [0.16, -1.5, 0.22, 1.44],
            [-0.6, -1.29, 0.93, 1.05],
        ],
        "q_positions": [0, 1, 2, 3],
        "k_positions": [0, 1, 2, 3],
        "weights": [
            [
                [1.0, 0.0, 0.0, 0.0],
                [0.14471285045146942, 0.8552870750427246, 0.0, 0.0],
                [0.3574528098106384, 0.26353326439857483, 0.37901389598846436, 0.0],
                [0.17047303915023804, 0.13521212339401245, 0.0999503880739212, 0.5943644642829895],
            ],
            [
                [1.0, 0.0, 0.0, 0.0],
                [0.21047692000865936, 0.7895230054855347, 0.0, 0.0],
                [0.5100586414337158, 0.026672448962926865, 0.4632689356803894, 0.0],
                [0.026449576020240784, 0.5569191575050354, 0.024609776213765144, 0.3920215964317322],
            ],
        ],
        "rtol": 1e-6,
    }
]
