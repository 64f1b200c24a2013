"""Swin's relative position bias: a learned scalar for each offset within a window.

Liu et al. 2021, "Swin Transformer" (arXiv:2103.14030), section 3.2, equation 4: softmax(q·k/√d + B) v, B taken from a table of
(2M - 1) x (2M - 1) for each head and layer. Its order is that of the released code, microsoft/Swin-Transformer@f82860b,
models/swin_transformer.py, WindowAttention: offsets are query minus key, rows before columns, each from 1 - M on.
"""

import math

import numpy as np


def scores(q, k, q_positions, k_positions, table, window, layer=0):
    """q·k/√D + table: q (B, H, Q, D), k (B, H, K, D), positions (B, T, 2), table (layers, (2M - 1)², H)."""
    batch, heads, queries, width = q.shape
    square = table[layer].reshape(2 * window - 1, 2 * window - 1, heads)
    offsets = list(range(1 - window, window))
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, h, i, j in np.ndindex(out.shape):
        down, right = (int(q_positions[b][i][axis]) - int(k_positions[b][j][axis]) for axis in (0, 1))
        bias = square[offsets.index(down), offsets.index(right), h]
        out[b, h, i, j] = np.dot(q[b, h, i], k[b, h, j]) / math.sqrt(width) + bias
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"window": [7, 9]}


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    return {"table": model["parameters"]["table"], "window": model["options"]["window"], "layer": model["layer"]}


# Window 2, one head of width 1, q = 1 and k = 0: the table counts 0 to 8, offsets (-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 0),
# (0, 1), (1, -1), (1, 0), (1, 1). The query at (1, 0) meets keys at (0, 0), (0, 1), (1, 0), (1, 1): offsets (1, 0), (1, -1),
# (0, 0), (0, -1).
GOLDEN = {
    "q": [[[[1.0]]]],
    "k": [[[[0.0], [0.0], [0.0], [0.0]]]],
    "q_positions": [[[1, 0]]],
    "k_positions": [[[0, 0], [0, 1], [1, 0], [1, 1]]],
    "parameters": {"table": [[[0.0], [1.0], [2.0], [3.0], [4.0], [5.0], [6.0], [7.0], [8.0]]]},
    "layers": 1,
    "options": {"window": 2},
    "scores": [[[[7.0, 6.0, 4.0, 3.0]]]],
}

# Two heads, the four cells of a window of two.
RELEASED = {
    "q": [[[[0], [0], [0], [0]], [[0], [0], [0], [0]]]],
    "k": [[[[0], [0], [0], [0]], [[0], [0], [0], [0]]]],
    "q_positions": [[[0, 0], [0, 1], [1, 0], [1, 1]]],
    "k_positions": [[[0, 0], [0, 1], [1, 0], [1, 1]]],
    "parameters": {
        "table": [
            [
                [-0.8, -0.6],
                [1, 1.1],
                [1.1, -0.1],
                [0.1, 0.2],
                [0, -0.1],
                [1, 0.4],
                [0.2, -0.3],
                [-0.4, -0.3],
                [-0.1, -0.2],
            ]
        ]
    },
    "options": {"window": 2},
    "scores": [
        [
            [
                [0, 0.1, 1, -0.8],
                [1, 0, 1.1, 1],
                [-0.4, 0.2, 0, 0.1],
                [-0.1, -0.4, 1, 0],
            ],
            [
                [-0.1, 0.2, 1.1, -0.6],
                [0.4, -0.1, -0.1, 1.1],
                [-0.3, -0.3, -0.1, 0.2],
                [-0.2, -0.3, 0.4, -0.1],
            ],
        ]
    ],
    "rtol": 1e-7,
    "source": "microsoft/Swin-Transformer@f82860b, models/swin_transformer.py, WindowAttention",
}
# relative_position_index of a window of three, its nine cells row by row.
INDEX_AS_RELEASED = [
    [12, 11, 10, 7, 6, 5, 2, 1, 0],
    [13, 12, 11, 8, 7, 6, 3, 2, 1],
    [14, 13, 12, 9, 8, 7, 4, 3, 2],
    [17, 16, 15, 12, 11, 10, 7, 6, 5],
    [18, 17, 16, 13, 12, 11, 8, 7, 6],
    [19, 18, 17, 14, 13, 12, 9, 8, 7],
    [22, 21, 20, 17, 16, 15, 12, 11, 10],
    [23, 22, 21, 18, 17, 16, 13, 12, 11],
    [24, 23, 22, 19, 18, 17, 14, 13, 12],
]
