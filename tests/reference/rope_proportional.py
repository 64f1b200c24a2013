"""Proportional rotary, p-RoPE: the share p of the pairs with the highest frequencies turns, the others do not.

Barbero et al. 2025, "Round and Round We Go! What makes Rotary Positional Encodings useful?" (arXiv:2410.06205), section 6.
The exponents run over the whole width, unlike those of partial rotary. As transformers 5.24.0 (`proportional`): ⌊p D / 2⌋
pairs turn. Here one turns at least.
"""

import math

from tests.reference import rope

VALUES = rope.VALUES | {"share": [0.75, 0.5]}


def scores(q, k, q_positions, k_positions, share, base=10000.0, layout="half", fraction=1.0):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K)."""
    radians = rope.frequencies(q.shape[3], base, fraction)
    turning = max(1, math.floor(share * len(radians)))
    for c in range(turning, len(radians)):
        radians[c] = 0.0
    return rope.turned(q, k, q_positions, k_positions, radians, layout)


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    return dict(model["options"])


# Width 4, half of the pairs: θ = 1 and 0. q = k = (1, 1, 0, 0) at distance 2: (cos 2 + cos 0) / √4
#   = (-0.4161468365471424 + 1) / 2 = 0.2919265817264288. Partial rotary with half the channels turns channels 0 and 1 as
# one pair: 1 + i times its conjugate, turned by 2: 2 cos 2 / 2 = -0.4161468365471424.
GOLDEN = {
    "q": [[[[1.0, 1.0, 0.0, 0.0]]]],
    "k": [[[[1.0, 1.0, 0.0, 0.0]]]],
    "q_positions": [[9]],
    "k_positions": [[7]],
    "options": {"share": 0.5},
    "scores": [[[[0.2919265817264288]]]],
}
