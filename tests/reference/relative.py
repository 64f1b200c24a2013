"""A learned scalar per head for each distance, clipped.

Shaw et al. 2018, "Self-Attention with Relative Position Representations" (arXiv:1803.02155), section 3.2: distances are
clipped, clip(x, k) = max(-k, min(k, x)). There each distance has a vector; one scalar per head in its place, added to
the score, is the simplified form of Raffel et al. 2020 (arXiv:1910.10683), section 2.1, with one table entry a distance.
"""

import math

import numpy as np


def scores(q, k, q_positions, k_positions, table, max_distance, signed):
    """q·k/√D + table[h, distance]: q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K).

    table is that of one layer: (H, max_distance + 1) by |distance|, or (H, 2·max_distance + 1) by distance + max_distance
    if signed, where distance is query position minus key position.
    """
    batch, heads, queries, width = q.shape
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, h, i, j in np.ndindex(out.shape):
        distance = int(q_positions[b][i]) - int(k_positions[b][j])
        clipped = max(-max_distance, min(max_distance, distance))
        entry = clipped + max_distance if signed else abs(clipped)
        out[b, h, i, j] = np.dot(q[b, h, i], k[b, h, j]) / math.sqrt(width) + table[h][entry]
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"max_distance": [32, 3], "signed": [None, True, False], "share_layers": [True, False]}
# Options with which a bidirectional model cannot tell left from right.
BLIND_TO_SIDES = [{"signed": False}]


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    options = model["options"]
    signed = not model["causal"] if options["signed"] is None else options["signed"]
    table = model["parameters"]["table"][0 if options["share_layers"] else model["layer"]]
    return {"table": table, "max_distance": options["max_distance"], "signed": signed}


# One head of width 1, q = 2 at position 4; k = 3, 0, 1 at positions 4, 3, 9; distances 0, 1, -5, clipped at 2: 0, 1, -2.
#   unsigned, table by |distance| (10, 20, 30):           2·3/√1 + 10 = 16     2·0 + 20 = 20     2·1 + 30 = 32
#   signed, table by distance -2..2 (1, 2, 3, 4, 5):      2·3/√1 + 3 = 9       2·0 + 4 = 4       2·1 + 1 = 3
GOLDEN = {
    "q": [[[[2.0]]]],
    "k": [[[[3.0], [0.0], [1.0]]]],
    "q_positions": [[4]],
    "k_positions": [[4, 3, 9]],
    "parameters": {"table": [[[10.0, 20.0, 30.0]]]},
    "options": {"max_distance": 2, "signed": False},
    "scores": [[[[16.0, 20.0, 32.0]]]],
}
GOLDEN_SIGNED = GOLDEN | {
    "parameters": {"table": [[[1.0, 2.0, 3.0, 4.0, 5.0]]]},
    "options": {"max_distance": 2, "signed": True},
    "scores": [[[[9.0, 4.0, 3.0]]]],
}
