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
            offset = int(q_positions[b][i][axis]) - int(k_positions[b][j][axis])
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
