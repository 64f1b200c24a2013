"""Forgetting Transformer: each token scales down the weights of all that came before it.

Lin et al. 2025, "Forgetting Transformer: Softmax Attention with a Forget Gate" (arXiv:2503.02130), section 3: with the gate
f_l = σ(w·x_l + b) of a head, weights are in proportion to exp(q_i·k_j/√D) times the product of f_l over j < l <= i, that is
D_ij = Σ log f_l is added to the score. In the released code (zhixuan-lin/forgetting-transformer 883f260,
modeling_forgetting_transformer.py) w starts at a normal spread of 0.02 and b at 0; x-transformers 2.31.10 starts b at 5.
"""

import math

import numpy as np


def gate(logit):
    """log σ(logit), whatever its size."""
    return min(logit, 0.0) - math.log1p(math.exp(-abs(logit)))


def scores(q, k, q_positions, k_positions, x, weight, bias, sign):
    """q·k/√D + Σ log σ(±(w·x_l + b)): q (B, H, Q, D), k (B, H, K, D), x (B, K, M), weight (H, M), bias (H,).

    The queries are the last Q of the K tokens. Zero where a query does not see the key.
    """
    batch, heads, queries, width = q.shape
    keys = k.shape[2]
    out = np.zeros((batch, heads, queries, keys))
    for b, h, i in np.ndindex(batch, heads, queries):
        total = 0.0
        for j in range(keys - queries + i, -1, -1):
            out[b, h, i, j] = np.dot(q[b, h, i], k[b, h, j]) / math.sqrt(width) + total
            total += gate(sign * (float(np.dot(weight[h], x[b, j])) + bias[h]))
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"gate_start": [0.0, 5.0]}


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    return {name: value[model["layer"]] for name, value in model["parameters"].items()} | {"sign": 1}


# One head of width 1, one query, the last of three tokens: w = 1, b = 0, x = 0, ln 3, -ln 3. The gates are
# σ(0) = 1/2, σ(ln 3) = 3/4, σ(-ln 3) = 1/4. q = 2, k = 1, 0, 3:
#   j = 2: 6    j = 1: 0 + ln(1/4) = -1.3862943611198906    j = 0: 2 + ln(1/4 · 3/4) = 2 - 1.6739764335716716
GOLDEN = {
    "q": [[[[2.0]]]],
    "k": [[[[1.0], [0.0], [3.0]]]],
    "x": [[[0.0], [1.0986122886681098], [-1.0986122886681098]]],
    "q_positions": [[2]],
    "k_positions": [[0, 1, 2]],
    "parameters": {"weight": [[[1.0]]], "bias": [[0.0]]},
    "options": {},
    "scores": [[[[0.3260235664283284, -1.3862943611198906, 6.0]]]],
}
# Weights by the function naive_forgetting_attn of fla-org/flash-linear-attention bc3b101 (fla/ops/forgetting_attn/naive.py)
# in float32, values being the unit matrix, of gates formed as in the authors' layer. The authors' own function needs a GPU;
# what its test compares it with is the same formula.
QUERIES = [
    [[0.44, 1.36], [-0.79, -1.16], [1.09, 0.88], [-1.32, -0.54]],
    [[1.46, 0.16], [-1.5, 0.22], [1.44, -0.6], [-1.29, 0.93]],
]
KEYS = [
    [[1.34, 0.5], [-1.47, -0.12], [1.5, -0.26], [-1.43, 0.63]],
    [[1.27, -0.96], [-1.02, 1.22], [0.71, -1.4], [-0.35, 1.49]],
]
TOKENS = [[1.36, -0.79, -1.16, 1.09], [0.88, -1.32, -0.54, 1.46], [0.16, -1.5, 0.22, 1.44], [-0.6, -1.29, 0.93, 1.05]]
PARAMETERS = {"weight": [[[0.97, 1.01, -1.23, -0.7], [1.41, 0.33, -1.49, 0.05]]], "bias": [[0.3, 1.42]]}
RELEASED = [
    {
        "source": "fla-org/flash-linear-attention@bc3b101",
        "options": {},
        "parameters": PARAMETERS,
        "q": QUERIES,
        "k": KEYS,
        "x": TOKENS,
        "q_positions": [0, 1, 2, 3],
        "k_positions": [0, 1, 2, 3],
        "weights": [
            [
                [1.0, 0.0, 0.0, 0.0],
                [0.044117506593465805, 0.9558824896812439, 0.0, 0.0],
                [0.043600086122751236, 0.009216400794684887, 0.9471835494041443, 0.0],
                [0.00007751800876576453, 0.0036686162929981947, 0.002750100800767541, 0.993503749370575],
            ],
            [
                [1.0, 0.0, 0.0, 0.0],
                [0.05668003112077713, 0.9433199763298035, 0.0, 0.0],
                [0.48939943313598633, 0.019697099924087524, 0.49090343713760376, 0.0],
                [0.005674977786839008, 0.20083066821098328, 0.010424252599477768, 0.7830700278282166],
            ],
        ],
        "rtol": 1e-6,
    }
]
