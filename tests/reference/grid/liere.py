"""LieRE: queries and keys are multiplied by the exponential of a skew-symmetric matrix for their position.

Ostmeier et al. 2024, "LieRE: Lie Rotational Positional Encodings" (arXiv:2406.10322), and released code,
StanfordMIMI/LieRE@b27b41b, models/rope_vit.py, LierePositionEncoder: blocks of g channels at position p turn by

    R(p) = exp(Σ_a x_a S_a),   S_a = U_a - U_aᵀ,   U_a the learned numbers above the diagonal,

x the position divided so that those of the images trained on span 0 to 1. Unless the S_a commute, R(p)ᵀ R(p') depends on more
than p' - p. Here the exponential comes from eigenvalues: i S is Hermitian, so exp(S) = V diag(e^(-iλ)) Vᴴ with i S = V diag(λ) Vᴴ.
"""

import math

import numpy as np


def skew(numbers, size):
    """The skew-symmetric matrix whose entries above the diagonal are these numbers, row by row."""
    out, place = np.zeros((size, size)), 0
    for row in range(size):
        for column in range(row + 1, size):
            out[row, column], out[column, row] = numbers[place], -numbers[place]
            place += 1
    return out


def exponential(matrix):
    """exp of a skew-symmetric matrix."""
    values, vectors = np.linalg.eigh(1j * matrix)
    return ((vectors * np.exp(-1j * values)) @ vectors.conj().T).real


def scores(q, k, q_positions, k_positions, generators, block, span, layer=0):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, T, A), generators (A, layers or 1, H or 1, blocks, g (g - 1) / 2)."""
    batch, heads, queries, width = q.shape
    axes, layers, own_heads, blocks = generators.shape[:4]

    def turned(vector, position, head):
        out = np.array(vector, dtype=np.float64)
        for n in range(blocks):
            at = generators[:, layer % layers, head % own_heads, n]
            exponent = sum(float(position[a]) / (span - 1) * skew(at[a], block) for a in range(axes))
            out[n * block : (n + 1) * block] = exponential(exponent) @ vector[n * block : (n + 1) * block]
        return out

    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, h in np.ndindex(batch, heads):
        turned_q = [turned(q[b, h, i], q_positions[b][i], h) for i in range(queries)]
        turned_k = [turned(k[b, h, j], k_positions[b][j], h) for j in range(k.shape[2])]
        out[b, h] = np.array(turned_q) @ np.array(turned_k).T / math.sqrt(width)
    return out


# The values of each option that the tests go through, the default first.
VALUES = {
    "axes": [2, 3],
    "span": [14, 5],
    "generator_dim": [None, 3],
    "per_layer": [True, False],
    "per_head": [True, False],
}
REFUSED = [
    (
        {"generator_dim": 9},
        {"heads": 1, "width": 8},
        r"pe\.generator_dim=9 turns 9 channels together, and a head has 8",
    ),
    ({}, {"heads": 1, "width": 1}, r"pe\.generator_dim=null turns 1 channels together"),
]


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    options = model["options"]
    block = options["generator_dim"] or model["head_width"]
    generators = model["parameters"]["generators"]
    return {"generators": generators, "block": block, "span": options["span"], "layer": model["layer"]}


# Width 2, so one matrix of one number for each axis, 3 and 0.5; span 2, so coordinates are positions.
# exp([[0, u], [-u, 0]]) = [[cos u, sin u], [-sin u, cos u]]. q = (1, 0) at (0, 0) stays; k = (0, 1) at (1, -2): u = 3 - 1 = 2,
# turned to (sin 2, cos 2), product sin 2, over √2; k = (1, 0) at (0, 4): u = 2, product cos 2, over √2.
GOLDEN = {
    "q": [[[[1.0, 0.0]]]],
    "k": [[[[0.0, 1.0], [1.0, 0.0]]]],
    "q_positions": [[[0, 0]]],
    "k_positions": [[[1, -2], [0, 4]]],
    "parameters": {"generators": [[[[[3.0]]]], [[[[0.5]]]]]},
    "layers": 1,
    "options": {"span": 2},
    "scores": [[[[0.9092974268256817 / math.sqrt(2), -0.4161468365471424 / math.sqrt(2)]]]],
}

# Two heads of four channels, cells of a 3 x 3 grid, in float32; in blocks of three channels the last one does not turn.
RELEASED = {
    "q": [
        [
            [[-1.3, -0.3, -0.5, 1.3], [-0.7, -0.2, 0.2, -1.2]],
            [[-1, 0.4, 0, 0], [-0.4, 0.3, -0.7, 1.4]],
        ]
    ],
    "k": [
        [
            [
                [0.4, 0.4, 1.6, -0.2],
                [0, 1.1, 0.9, 0.1],
                [-0.1, 0.8, 1, -0.5],
                [1.3, 1.8, 0.6, -0.7],
            ],
            [
                [0.1, 0.4, 1.5, -0.4],
                [-1, -0.7, -0.5, 0.5],
                [0.5, 0.1, -0.4, 0.9],
                [0.7, -0.6, -0.2, -1.1],
            ],
        ]
    ],
    "q_positions": [[[1, 2], [2, 1]]],
    "k_positions": [[[0, 0], [0, 2], [2, 0], [2, 2]]],
    "parameters": {
        "generators": [
            [
                [
                    [[1, 0.4, 0.1, 0.1, 0.5, 0.6]],
                    [[1.6, 1.6, 1.6, 1.4, 0.7, 0.6]],
                ]
            ],
            [
                [
                    [[0.5, 2.1, 0.1, 0.8, 0.2, 0.4]],
                    [[0.6, 0.5, 1.6, 1, 0.2, 0]],
                ]
            ],
        ]
    },
    "options": {"span": 3},
    "scores": [
        [
            [
                [0.884255601, 0.258302397, 0.188835531, -1.75214242],
                [0.214487019, -0.136188796, 0.615912023, 0.148725979],
            ],
            [
                [-0.627319047, -0.0200072665, 0.000567615523, 0.270560894],
                [-0.830147662, 0.674392642, 0.867686922, -0.725593312],
            ],
        ]
    ],
    "rtol": 1e-5,
    "source": "StanfordMIMI/LieRE@b27b41b, models/rope_vit.py, LierePositionEncoder and apply_transforms",
}
RELEASED_REST = RELEASED | {
    "parameters": {
        "generators": [
            [[[[1, 0.4, 1.5]], [[2.9, 0.6, 1.3]]]],
            [[[[1.6, 0.5, 0.2]], [[3, 0.3, 0.4]]]],
        ]
    },
    "options": {"span": 3, "generator_dim": 3},
    "scores": [
        [
            [
                [-0.337035589, -0.0899737206, 0.274017824, -2.01775465],
                [0.0543566503, -0.0286224412, 0.679318052, -0.43821215],
            ],
            [
                [-0.461736716, -0.471193639, 0.0866254861, 0.163226252],
                [-0.862991321, 0.3881106, 0.732956449, -0.849924525],
            ],
        ]
    ],
}
