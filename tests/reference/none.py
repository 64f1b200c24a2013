"""No position encoding: scaled dot products alone.

Haviv et al. 2022, "Transformer Language Models without Positional Encodings Still Learn Positional Information"
(arXiv:2203.16634), section 3 (NoPos). The scores are those of Vaswani et al. 2017 (arXiv:1706.03762), equation 1.
"""

import math

import numpy as np


def scores(q, k, q_positions, k_positions):
    """q·k/√D: q (B, H, Q, D) and k (B, H, K, D) to (B, H, Q, K). The positions change nothing."""
    batch, heads, queries, width = q.shape
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, h, i, j in np.ndindex(out.shape):
        out[b, h, i, j] = np.dot(q[b, h, i], k[b, h, j]) / math.sqrt(width)
    return out


VALUES = {}
# Options with which a bidirectional model cannot tell left from right: all.
BLIND_TO_SIDES = [{}]


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    return {}


# One head of width 4, a query at position 5 and keys at positions 2 and 5:
#   (1·1 + 2·0 + 3·(-1) + 4·2) / √4 = 6 / 2 = 3        (1·0 + 2·1 + 3·0 + 4·0) / √4 = 2 / 2 = 1
GOLDEN = {
    "q": [[[[1.0, 2.0, 3.0, 4.0]]]],
    "k": [[[[1.0, 0.0, -1.0, 2.0], [0.0, 1.0, 0.0, 0.0]]]],
    "q_positions": [[5]],
    "k_positions": [[2, 5]],
    "options": {},
    "scores": [[[[3.0, 1.0]]]],
}
