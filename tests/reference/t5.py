"""T5's relative bias: a learned scalar per head for each bucket of distances.

Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer"
(arXiv:1910.10683), section 2.1: 32 embeddings, ranges that grow logarithmically up to an offset of 128, all distances
beyond in one, shared across layers. The paper does not print the bucket formula; it is that of the authors' Mesh
TensorFlow, transformer_layers.py: with n buckets for a direction, the first e = n // 2 hold one distance each, and

    bucket(d) = e + floor( ln(d / e) / ln(max_distance / e) · (n - e) ),  at most n - 1.

Here the floor is decided in whole numbers, ln(d/e)/ln(m/e)·(n-e) >= s being d^(n-e) · e^s >= m^s · e^(n-e), so no
rounding of a logarithm can put a distance on the wrong side of a border.
"""

import math

import numpy as np


def bucket(distance, buckets, max_distance, causal):
    """The bucket of query position minus key position: 0 to buckets - 1."""
    if causal:
        first, count, size = 0, buckets, max(distance, 0)
    else:  # the second half of the buckets is for keys after the query
        first, count, size = (buckets // 2 if distance < 0 else 0), buckets // 2, abs(distance)
    exact = count // 2
    if size < exact:
        return first + int(size)
    steps = 0
    while steps < count - 1 - exact and size ** (count - exact) * exact ** (steps + 1) >= max_distance ** (
        steps + 1
    ) * exact ** (count - exact):
        steps += 1
    return first + exact + steps


def scores(q, k, q_positions, k_positions, table, buckets, max_distance, causal):
    """q·k/√D + table[bucket, h]: q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K), table (buckets, H)."""
    batch, heads, queries, width = q.shape
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, h, i, j in np.ndindex(out.shape):
        distance = q_positions[b][i] - k_positions[b][j]
        row = bucket(distance, buckets, max_distance, causal)
        out[b, h, i, j] = np.dot(q[b, h, i], k[b, h, j]) / math.sqrt(width) + table[row][h]
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"buckets": [32, 8], "max_distance": [64, 20]}
REFUSED = [
    ({"buckets": 7}, {}, r"pe\.buckets=7 does not split evenly.*a multiple of 2"),
    ({"buckets": 6}, {"causal": False}, r"pe\.buckets=6 does not split evenly.*a multiple of 4"),
    ({"max_distance": 16}, {}, r"pe\.max_distance=16 leaves no distance .*pe\.buckets=32 .*pe\.max_distance=17"),
    ({"max_distance": 8}, {"causal": False}, r"pe\.max_distance=8 leaves no distance .*pe\.max_distance=9"),
]


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    return {"table": model["parameters"]["table"], "causal": model["causal"], **model["options"]}


# Four buckets, max_distance 8, causal: e = 2, so distances 0 and 1 have buckets of their own; bucket 2 begins at 2, and
# bucket 3 where ln(d/2)/ln(8/2)·2 >= 1, that is d/2 >= √4, d >= 4. One head of width 1, q = 1 at position 9,
# k = 0 at positions 9, 8, 6, 5, 0: distances 0, 1, 3, 4, 9 and buckets 0, 1, 2, 3, 3; table (10, 20, 30, 40).
GOLDEN = {
    "q": [[[[1.0]]]],
    "k": [[[[0.0], [0.0], [0.0], [0.0], [0.0]]]],
    "q_positions": [[9]],
    "k_positions": [[9, 8, 6, 5, 0]],
    "parameters": {"table": [[10.0], [20.0], [30.0], [40.0]]},
    "options": {"buckets": 4, "max_distance": 8},
    "causal": True,
    "scores": [[[[10.0, 20.0, 30.0, 40.0, 40.0]]]],
}
# Both directions, eight buckets, max_distance 8: four a direction as above, keys after the query from bucket 4 on. q at
# position 9, keys at 9, 8, 5, 10, 12, 20: distances 0, 1, 4, -1, -3, -11 and buckets 0, 1, 3, 4+1, 4+2, 4+3.
GOLDEN_BIDIRECTIONAL = GOLDEN | {
    "k": [[[[0.0], [0.0], [0.0], [0.0], [0.0], [0.0]]]],
    "k_positions": [[9, 8, 5, 10, 12, 20]],
    "parameters": {"table": [[10.0], [20.0], [30.0], [40.0], [50.0], [60.0], [70.0], [80.0]]},
    "options": {"buckets": 8, "max_distance": 8},
    "causal": False,
    "scores": [[[[10.0, 20.0, 40.0, 60.0, 70.0, 80.0]]]],
}
