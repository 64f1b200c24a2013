"""HoPE, the high-frequency one: pairs that would not turn once over the train length do not turn at all.

Chen et al. 2025, "HoPE: A Novel Positional Encoding Without Long-Term Decay for Enhanced Context Awareness and
Extrapolation" (arXiv:2410.21216), section 4: θ_c where θ_c ≥ 2π/L, else a part of the score without position. The authors
released no code; the rule is as others have it (the praxis package: inv_freq > 2π/L, and the fastest pair if none is).
"""

import math

from tests.reference import rope

VALUES = rope.VALUES | {"original_length": [None, 100]}


def scores(q, k, q_positions, k_positions, length, base=10000.0, layout="half", fraction=1.0):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K)."""
    radians = rope.frequencies(q.shape[3], base, fraction)
    for c in range(1, len(radians)):
        if 2 * math.pi / radians[c] > length:
            radians[c] = 0.0
    return rope.turned(q, k, q_positions, k_positions, radians, layout)


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    given = dict(model["options"])
    return given | {"length": given.pop("original_length") or model["train_length"]}


# Width 4: θ = 1 and 0.01, which turn once in 6.28 and 628.3 tokens. q = k = (1, 1, 0, 0) at distance 2.
# L = 628: the second stands still: (cos 2 + 1) / 2 = 0.2919265817264288
# L = 629: both turn: (cos 2 + cos 0.02) / 2 = (-0.4161468365471424 + 0.9998000066665778) / 2 = 0.2918265850597177
GOLDEN = {
    "q": [[[[1.0, 1.0, 0.0, 0.0]]]],
    "k": [[[[1.0, 1.0, 0.0, 0.0]]]],
    "q_positions": [[9]],
    "k_positions": [[7]],
    "options": {"original_length": 628},
    "scores": [[[[0.2919265817264288]]]],
}
GOLDEN_BOTH = GOLDEN | {"options": {"original_length": 629}, "scores": [[[[0.2918265850597177]]]]}
