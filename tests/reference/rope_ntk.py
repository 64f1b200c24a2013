"""NTK-aware rope: the base that makes the slowest pair slow by the factor.

bloc97 2023, as in Peng et al. 2024, "YaRN" (arXiv:2309.00071), section 3.1, definition 1: b' = b · s^(D/(D-2)), D here the
channels that turn. jquesnelle/yarn 995db5b (LlamaNTKScaledRotaryEmbedding, `alpha`) does the same. With D = 2 the only
pair has θ = b'^0 = 1 whatever the base.
"""

from tests.reference import rope

VALUES = rope.VALUES | {"factor": [16.0, 3.0]}


def scores(q, k, q_positions, k_positions, factor, base=10000.0, layout="half", fraction=1.0):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K)."""
    turning = round(fraction * q.shape[3])
    if turning > 2:
        base = base * factor ** (turning / (turning - 2))
    return rope.scores(q, k, q_positions, k_positions, base, layout, fraction)


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    return dict(model["options"])


# Width 6, base 10^6: θ = 1, 10^-2, 10^-4. Factor 4: b' = 10^6 · 4^(6/4) = 8 · 10^6, whose θ are 1, 1/200, 1/40 000: the
# three pairs slow by 1, 2 and 4. q = k = (1, 1, 1, 0, 0, 0), distances 2 and 300, over √6 = 2.449489742783178:
#   cos 2 + cos 0.01 + cos 0.00005 = -0.4161468365471424 + 0.9999500004166653 + 0.99999999875 = 1.583803162619523
#   cos 300 + cos 1.5 + cos 0.0075 = 0.0220966188 + 0.0707372017 + 0.9999718751: over √6 0.4280942431419991
GOLDEN = {
    "q": [[[[1.0, 1.0, 1.0, 0.0, 0.0, 0.0]]]],
    "k": [[[[1.0, 1.0, 1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]]]],
    "q_positions": [[300]],
    "k_positions": [[298, 0]],
    "options": {"factor": 4.0, "base": 1e6},
    "scores": [[[[0.6465849335706799, 0.4280942431419991]]]],
}
RELEASED_FREQUENCIES = [
    {
        "source": "jquesnelle/yarn@995db5b, LlamaNTKScaledRotaryEmbedding",
        "options": {"factor": 4.0},
        "width": 16,
        "frequencies": [
            *(1.0, 0.259412825, 0.0672950074, 0.017457189, 0.00452861842, 0.00117478159),
            *(0.000304753397, 7.90569466e-05),
        ],
    }
]
