"""CABLE: each token lowers the scores of all that came before it.

Veisi et al. 2025, "Context-aware Biases for Length Extrapolation" (arXiv:2503.08067). By the released code
(axiomlab/Cable 2d7410b, src/Cable.py): c = cumsum(-softplus(W x + b)) along the text, c_i - c_j is added to the score of
query i and key j; W starts at a normal spread of 0.02 and b at 0. There queries and keys are multiplied without 1/√D (the
division is by √(C / n_embd), which is 1); here the scale is 1/√D, as for every scheme. The mask there is for block_size
tokens, so that shorter texts fail.
"""

import math

import numpy as np


def scores(q, k, q_positions, k_positions, x, weight, bias):
    """q·k/√D + c_i - c_j: q (B, H, Q, D), k (B, H, K, D), x (B, K, M), weight (H, M), bias (H,).

    The queries are the last Q of the K tokens. Zero where a query does not see the key.
    """
    batch, heads, queries, width = q.shape
    keys = k.shape[2]
    out = np.zeros((batch, heads, queries, keys))
    steps = -np.logaddexp(0.0, np.einsum("bkm,hm->bhk", x, weight) + bias[:, None])
    for b, h, i in np.ndindex(batch, heads, queries):
        own = keys - queries + i
        for j in range(own + 1):
            out[b, h, i, j] = np.dot(q[b, h, i], k[b, h, j]) / math.sqrt(width) + math.fsum(
                steps[b, h, j + 1 : own + 1]
            )
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"gate_start": [0.0, 5.0]}


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    return {name: value[model["layer"]] for name, value in model["parameters"].items()}


# One head of width 1, one query, the last of three tokens: W = 1, b = 0, x = 0, ln 3, -ln 3. softplus(0) = ln 2,
# softplus(ln 3) = ln 4, softplus(-ln 3) = ln(4/3). q = 2, k = 1, 0, 3:
#   j = 2: 6    j = 1: 0 - ln(4/3) = -0.28768207245178085    j = 0: 2 - ln(4/3) - ln 4 = 2 - 1.6739764335716716
GOLDEN = {
    "q": [[[[2.0]]]],
    "k": [[[[1.0], [0.0], [3.0]]]],
    "x": [[[0.0], [1.0986122886681098], [-1.0986122886681098]]],
    "q_positions": [[2]],
    "k_positions": [[0, 1, 2]],
    "parameters": {"weight": [[[1.0]]], "bias": [[0.0]]},
    "options": {},
    "scores": [[[[0.3260235664283284, -0.28768207245178085, 6.0]]]],
}
# What the layer of axiomlab/Cable 2d7410b (src/Cable.py) hands to softmax in float32, its queries and keys set to zero.
RELEASED = [
    {
        "source": "axiomlab/Cable@2d7410b",
        "options": {},
        "parameters": {"weight": [[[0.97, 1.01, -1.23, -0.7], [1.41, 0.33, -1.49, 0.05]]], "bias": [[0.3, 1.42]]},
        "q": [[[0.0, 0.0]] * 4] * 2,
        "k": [[[0.0, 0.0]] * 4] * 2,
        "x": [
            [1.36, -0.79, -1.16, 1.09],
            [0.88, -1.32, -0.54, 1.46],
            [0.16, -1.5, 0.22, 1.44],
            [-0.6, -1.29, 0.93, 1.05],
        ],
        "q_positions": [0, 1, 2, 3],
        "k_positions": [0, 1, 2, 3],
        "bias": [
            [
                [0.0, 0.0, 0.0, 0.0],
                [-0.46012067794799805, 0.0, 0.0, 0.0],
                [-0.5522274971008301, -0.09210681915283203, 0.0, 0.0],
                [-0.5830578804016113, -0.12293720245361328, -0.03083038330078125, 0.0],
            ],
            [
                [0.0, 0.0, 0.0, 0.0],
                [-3.146742820739746, 0.0, 0.0, 0.0],
                [-4.38420295715332, -1.2374601364135742, 0.0, 0.0],
                [-4.6510009765625, -1.504258155822754, -0.2667980194091797, 0.0],
            ],
        ],
        "rtol": 1e-6,
    }
]
