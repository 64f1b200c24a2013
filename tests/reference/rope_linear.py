"""Position Interpolation: rope at positions divided by a factor.

Chen et al. 2023, "Extending Context Window of Large Language Models via Position Interpolation" (arXiv:2306.15595),
equation 4: f'(x, m) = f(x, m L/L'), with L'/L the factor. jquesnelle/yarn 995db5b and transformers 5.24.0 (`linear`) do the
same.
"""

from tests.reference import rope

VALUES = rope.VALUES | {"factor": [16.0, 3.0]}


def scores(q, k, q_positions, k_positions, factor, base=10000.0, layout="half", fraction=1.0):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K)."""
    slower = [theta / factor for theta in rope.frequencies(q.shape[3], base, fraction)]
    return rope.turned(q, k, q_positions, k_positions, slower, layout)


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    return dict(model["options"])


# Width 4: θ = 1 and 0.01, over the factor 4: 0.25 and 0.0025. q = k = (1, 1, 0, 0): both pairs are 1 + 0i, so a score is
# (cos(d · 0.25) + cos(d · 0.0025)) / √4. Distances 2 and 1000:
#   (cos 0.5 + cos 0.005) / 2 = (0.8775825618903728 + 0.9999875000260416) / 2 = 0.9387850309582072
#   (cos 250 + cos 2.5) / 2 = (0.24098830528525864 - 0.8011436155469337) / 2 = -0.28007765513083754
GOLDEN = {
    "q": [[[[1.0, 1.0, 0.0, 0.0]]]],
    "k": [[[[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]]]],
    "q_positions": [[1003]],
    "k_positions": [[1001, 3]],
    "options": {"factor": 4.0},
    "scores": [[[[0.9387850309582072, -0.28007765513083754]]]],
}
# Frequencies of every pair that code outside this project computed in float32; `magnitude` lengthens queries and keys.
RELEASED_FREQUENCIES = [
    {
        "source": "jquesnelle/yarn@995db5b, LlamaLinearScaledRotaryEmbedding, read from its angles at position 1",
        "options": {"factor": 4.0},
        "width": 16,
        "frequencies": [
            *(0.250000005, 0.0790569397, 0.0250000011, 0.00790569492, 0.00249999992, 0.000790569478),
            *(0.000250000007, 7.90569464e-05),
        ],
    }
]
