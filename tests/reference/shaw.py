"""Shaw's relative vectors: one for each clipped distance, added to keys and, from a second table, to values.

Shaw et al. 2018, "Self-Attention with Relative Position Representations" (arXiv:1803.02155), section 3:

    e_ij = x_i W_Q (x_j W_K + a^K_ij)ᵀ / √d        (4)        z_i = Σ_j α_ij (x_j W_V + a^V_ij)        (3)
    a_ij = w_clip(j - i, k),    clip(x, k) = max(-k, min(k, x))

with tables shared by heads and a pair of them for each layer: so in the authors' code, tensorflow/tensor2tensor bafdc1b,
tensor2tensor/layers/common_attention.py, dot_product_attention_relative, where `embeddings` has no axis of heads and a
variable scope for each layer. Paper and code index by j - i + k; the rows here stand by i - j, the other way round.
"""

import math

import numpy as np


def row(query, key, max_distance, causal):
    """The row for a query and a key: from the latest key on, in a causal model from the query's own position."""
    distance = max(-max_distance, min(max_distance, int(query) - int(key)))
    return max(distance, 0) if causal else distance + max_distance


def scores(q, k, q_positions, k_positions, key_table, max_distance, causal):
    """q·(k + a)/√D: q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K), table (rows, D) to (B, H, Q, K)."""
    batch, heads, queries, width = q.shape
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, h, i, j in np.ndindex(out.shape):
        vector = key_table[row(q_positions[b][i], k_positions[b][j], max_distance, causal)]
        out[b, h, i, j] = np.dot(q[b, h, i], k[b, h, j] + vector) / math.sqrt(width)
    return out


def values(weights, q_positions, k_positions, value_table, max_distance, causal):
    """What joins the values that weights (B, H, Q, K) gather, (B, H, Q, D)."""
    if value_table is None:
        return 0
    batch, heads, queries, keys = weights.shape
    out = np.zeros((batch, heads, queries, value_table.shape[1]))
    for b, h, i in np.ndindex(batch, heads, queries):
        for j in range(keys):
            vector = value_table[row(q_positions[b][i], k_positions[b][j], max_distance, causal)]
            out[b, h, i] += weights[b, h, i, j] * vector
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"max_distance": [16, 3], "values": [True, False]}
# Parameters that no score depends on.
BESIDE_SCORES = ["value_table"]


def arguments(model):
    """What `scores` and `values` take beside queries, keys, weights and positions, of a model's encoding."""
    tables = {key: value[model["layer"]] for key, value in model["parameters"].items()}
    given = {"max_distance": model["options"]["max_distance"], "causal": model["causal"]}
    return {"value_table": None, **tables, **given}


# One head of width 4, so 1/√D is 1/2. Causal, max_distance 2, rows for the distances 0, 1, 2.
# q = (2, 0, 4, 0) at position 9; keys (1, 0, 0, 5) at 9, 0 at 8, (0, 1, 1, 0) at 2: distances 0, 1, 7, the last clipped to 2.
#   distance 0: key + (0, 0, 0.5, 7) = (1, 0, 0.5, 12)      (2·1 + 4·0.5)/2 = 2
#   distance 1: (3, 9, 0, 0)                                (2·3)/2 = 3
#   distance 7: (0, 1, 1, 0) + (-1, 0, 0.25, 0)             (2·(-1) + 4·1.25)/2 = 1.5
GOLDEN = {
    "q": [[[[2.0, 0.0, 4.0, 0.0]]]],
    "k": [[[[0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 5.0]]]],
    "q_positions": [[9]],
    "k_positions": [[2, 8, 9]],
    "parameters": {"key_table": [[[0.0, 0.0, 0.5, 7.0], [3.0, 9.0, 0.0, 0.0], [-1.0, 0.0, 0.25, 0.0]]]},
    "options": {"max_distance": 2, "values": False},
    "scores": [[[[1.5, 3.0, 2.0]]]],
}
# Both directions: rows for the distances -2, -1, 0, 1, 2, that is j - i = 2, 1, 0, -1, -2. Width 1, q = 2 at position 5, keys 1 at
# 9, 6, 5, 4, 0: distances -4, -1, 0, 1, 5 and 2·(1 + a) with a = 10, 20, 30, 40, 50.
GOLDEN_BOTH = {
    "q": [[[[2.0]]]],
    "k": [[[[1.0], [1.0], [1.0], [1.0], [1.0]]]],
    "q_positions": [[5]],
    "k_positions": [[9, 6, 5, 4, 0]],
    "parameters": {"key_table": [[[10.0], [20.0], [30.0], [40.0], [50.0]]]},
    "options": {"max_distance": 2, "values": False},
    "causal": False,
    "scores": [[[[22.0, 42.0, 62.0, 82.0, 102.0]]]],
}


def wave(step, *shape):
    """Numbers to compare with: sin(step), sin(2 step), ... to three digits, in this shape."""
    return np.sin(step * np.arange(1, math.prod(shape) + 1)).round(3).reshape(shape)


# dot_product_attention_relative of tensor2tensor bafdc1b with max_relative_position 3, two heads of width 2, nine tokens, run
# with numpy in place of TensorFlow: scores, and what it makes of values `wave(0.4, 2, 9, 2)`, for the queries 0, 4 and 8. Its rows
# stand by j - i, those here by i - j.
TABLES = {"key_table": [wave(1.9, 7, 2)[::-1].tolist()], "value_table": [wave(2.3, 7, 2)[::-1].tolist()]}
RELEASED = [
    {
        "source": "tensorflow/tensor2tensor@bafdc1b",
        "options": {"max_distance": 3},
        "parameters": TABLES,
        "causal": False,
        "q": wave(0.9, 2, 9, 2)[:, [0, 4, 8]].tolist(),
        "k": wave(1.1, 2, 9, 2)[:, [0, 1, 2, 4, 5, 8]].tolist(),
        "q_positions": [0, 4, 8],
        "k_positions": [0, 1, 2, 4, 5, 8],
        "scores": [
            [
                [1.75547673, -1.1846400322, -0.1828514497, -0.4890074727, 0.6118672759, 0.9314166085],
                [1.3170867891, 0.0848471569, -0.4892683951, -0.0043331504, -0.7674060191, 0.1374247887],
                [0.4502693348, 0.7432003397, 0.1674994543, 0.6750041333, 0.1459128985, -0.2876248756],
            ],
            [
                [-1.3366545551, 1.6541624704, -0.855339697, 0.758234137, -1.0914256807, -1.2387853197],
                [-0.988554372, -0.0937234683, 0.2925116906, 0.1625610206, 0.3260540079, -0.0644973308],
                [-0.2569067428, -0.830433982, 0.2674942527, -0.7034878087, 0.3123488642, 0.9259195604],
            ],
        ],
        "rtol": 1e-9,
    }
]
RELEASED_GATHERED = [
    [
        [-0.7010883376, 0.4697888119],
        [0.1322564113, 0.079631013],
        [0.6011139121, -0.5366214261],
    ],
    [
        [0.203560403, 0.2083136496],
        [-0.0096044342, 0.1625202314],
        [0.5537741721, -0.3473590281],
    ],
]
RELEASED_GATHERED_CAUSAL = [
    [
        [0.007, 0.282],
        [0.6443751825, -0.0196949959],
        [0.6011139121, -0.5366214261],
    ],
    [
        [0.586, 0.554],
        [0.1339035085, -0.4226819052],
        [0.5537741721, -0.3473590281],
    ],
]
RELEASED_WITH_VALUES = [
    {
        "source": "tensorflow/tensor2tensor@bafdc1b",
        "options": {"max_distance": 3},
        "parameters": {name: [table[0][3 * causal :]] for name, table in TABLES.items()},
        "causal": causal,
        "q": wave(0.9, 2, 9, 2).tolist(),
        "k": wave(1.1, 2, 9, 2).tolist(),
        "v": wave(0.4, 2, 9, 2).tolist(),
        "q_positions": [*range(9)],
        "k_positions": [*range(9)],
        "queries": [0, 4, 8],
        "gathered": numbers,
        "rtol": 1e-9,
    }
    for causal, numbers in ((False, RELEASED_GATHERED), (True, RELEASED_GATHERED_CAUSAL))
]
