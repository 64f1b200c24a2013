"""Axial rotary encoding: the pairs of channels are shared out among the axes.

Heo et al. 2024, "Rotary Position Embedding for Vision Transformer" (arXiv:2403.13298), RoPE-Axial, and released code,
naver-ai/rope-vit@ce85c2e, models/vit_rope.py, compute_axial_cis: of the D channels of a head the first half turns by the
column, the second by the row, as by rope of width D/2 with base 100, θ_c = 100^(-2c/(D/2)); neighbours are paired. With A
axes each has D/A channels (lucidrains/rotary-embedding-torch@8bb4643, get_axial_freqs, for three). The score of a query and
a key is Re Σ_c q_c · conj(k_c) · exp(i Δ_a(c) θ_c), Δ_a the offset on the pair's axis.
"""

import cmath
import math

import numpy as np


def scores(q, k, q_positions, k_positions, axes=2, base=100.0, layout="interleaved", fraction=1.0):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q, A) and (B, K, A) to (B, H, Q, K), by the offsets alone."""
    batch, heads, queries, width = q.shape
    rotary = round(fraction * width)
    share, half = rotary // axes, rotary // 2
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, h, i, j in np.ndindex(out.shape):
        total = float(np.dot(q[b, h, i, rotary:], k[b, h, j, rotary:]))
        for axis in range(axes):
            offset = q_positions[b][i][axis] - k_positions[b][j][axis]
            for c in range(share // 2):
                pair = axis * (share // 2) + c
                first, second = (pair, pair + half) if layout == "half" else (2 * pair, 2 * pair + 1)
                query, key = (
                    complex(q[b, h, i, first], q[b, h, i, second]),
                    complex(k[b, h, j, first], k[b, h, j, second]),
                )
                total += (query * key.conjugate() * cmath.exp(1j * offset * base ** (-2 * c / share))).real
        out[b, h, i, j] = total / math.sqrt(width)
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"layout": ["interleaved", "half"], "base": [100.0, 50.0], "fraction": [1.0, 0.5], "axes": [2, 3]}
REFUSED = [
    ({}, {"heads": 1, "width": 6}, r"pe\.axes=2 .* 6 channels .* multiple of 4"),
    ({"axes": 3}, {"heads": 1, "width": 8}, r"pe\.axes=3 .* 8 channels .* multiple of 6"),
    ({}, {"heads": 1, "width": 7}, r"pe\.fraction=1 of the head width 7 .*even"),
]


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    return dict(model["options"])


# Width 4: pair (0, 1) turns by the first axis, pair (2, 3) by the second, θ = 1. q = (1, 0, 1, 0) at (3, 5): both are 1.
# k = (0, 1, 0, 0) at (1, 9): Re(conj(i) e^(2i)) = Re(-i (cos 2 + i sin 2)) = sin 2, over √4: 0.45464871341284085
# k = (0, 0, 0, 1) at (7, 3): the same by the second axis alone, offset 2
# k = (1, 0, 1, 0) at (3, 105): 1 + Re(e^(-100i)) = 1 + cos 100 = 1.8623188722876839, over √4: 0.93115943614384195
GOLDEN = {
    "q": [[[[1.0, 0.0, 1.0, 0.0]]]],
    "k": [[[[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0]]]],
    "q_positions": [[[3, 5]]],
    "k_positions": [[[1, 9], [7, 3], [3, 105]]],
    "options": {},
    "scores": [[[[0.45464871341284085, 0.45464871341284085, 0.93115943614384195]]]],
}

# Queries and keys of a grid of three columns and two rows, positions (column, row), in float32.
RELEASED = {
    "q": [
        [
            [
                [-1.5, -0.8, -0.7, -1.6, -0.1, -0.6, -1, -1.6],
                [-0.7, 0.3, -0.8, -0.3, -0.2, 1.7, 0.2, 0.5],
            ]
        ]
    ],
    "k": [
        [
            [
                [-1, 0.9, -1.3, -1.1, -1.2, 1.2, -1.1, -0.1],
                [-0.9, 0.3, -0.6, -0.2, 1, -0.8, -0.2, -0.4],
                [-1.5, -0.5, -0.8, 0.5, 0, 0, 1.1, 0.9],
                [0.5, -0.5, 0.1, 2.8, 0.1, 1.1, 0.3, 1.8],
                [-0.8, 1.8, -0.3, -0.3, -1.3, 0, -0.2, -0.7],
                [1.2, 0.4, -1.2, -0.7, -0.9, -0.9, -1, -0.1],
            ]
        ]
    ],
    "q_positions": [[[1, 1], [2, 1]]],
    "k_positions": [[[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]]],
    "options": {},
    "scores": [
        [
            [
                [0.42253781, 1.22729174, -0.249984667, -2.75007371, 0.671751457, 0.860760901],
                [1.15509653, -0.495232719, 0.714076867, 0.65733077, -0.0179044601, -0.406586311],
            ]
        ]
    ],
    "rtol": 1e-6,
    "source": "naver-ai/rope-vit@ce85c2e, models/vit_rope.py, compute_axial_cis and apply_rotary_emb",
}
# Theirs takes the first axis of a 2 x 2 x 3 grid for the first channels too, dim=4 for each, theta=100.
RELEASED_3D = {
    "q": [
        [
            [
                [
                    -1.7,
                    -1.4,
                    -0.1,
                    -0.6,
                    1,
                    0.1,
                    1.8,
                    -0.5,
                    0.8,
                    -0.4,
                    1.4,
                    0.3,
                ],
                [
                    -0.6,
                    0.1,
                    2,
                    -0.6,
                    0.3,
                    1.2,
                    -1.1,
                    -0.9,
                    -0.9,
                    -0.7,
                    -1,
                    -1.4,
                ],
            ]
        ]
    ],
    "k": [
        [
            [
                [
                    -0.8,
                    0.4,
                    0.9,
                    -1.4,
                    -0.2,
                    0.3,
                    -0.6,
                    -0.9,
                    0.9,
                    -0.5,
                    -1.2,
                    -0.5,
                ],
                [
                    1,
                    -0.7,
                    -0.8,
                    -0.6,
                    -1.4,
                    1.3,
                    1.6,
                    -1.1,
                    -0.3,
                    -0.3,
                    0.5,
                    0.3,
                ],
                [
                    -0.1,
                    -1,
                    1.8,
                    1,
                    -0.4,
                    -0.2,
                    0.8,
                    1,
                    -0.8,
                    0.2,
                    0.5,
                    1.4,
                ],
                [
                    -0.8,
                    1.2,
                    -1.2,
                    0.5,
                    -0.4,
                    0.6,
                    0.3,
                    1.2,
                    0.6,
                    0.1,
                    0.6,
                    -0.7,
                ],
            ]
        ]
    ],
    "q_positions": [[[0, 1, 2], [1, 1, 2]]],
    "k_positions": [[[0, 0, 0], [0, 1, 0], [1, 0, 1], [1, 1, 1]]],
    "options": {"axes": 3},
    "scores": [
        [
            [
                [-0.395891927, 0.701620298, 0.0653748864, 0.866594702],
                [2.10618305, -0.603805494, -0.437932314, -0.701496189],
            ]
        ]
    ],
    "rtol": 1e-6,
    "source": "lucidrains/rotary-embedding-torch@8bb4643, get_axial_freqs and apply_rotary_emb",
}
