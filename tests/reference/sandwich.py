"""Sandwich: the inner product of two sinusoidal codes, divided by a ratio of the head.

Chi et al. 2023, "Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis" (arXiv:2212.10356):
the codes of Vaswani et al. with d channels have the inner product Σ_i cos((m - n) / 10000^(2i/d)), which is
kept as the bias and nothing else; d (128) is a choice of its own. Head h of H divides it by 8h/H, h = 1..H, the exponents
of ALiBi's slopes. NeMo (sandwich_relative_position_embedding.py, 000b931) sums over i = 1..d/2, takes off d/2, which no
softmax sees, and divides; its d is the head width: `first=1`. The default sums over i = 0..d/2 - 1, the frequencies of
the sinusoidal code itself, as attention-gym does in its copy of the construction in the paper's appendix E
(meta-pytorch/attention-gym 70ab2d6, attn_gym/mods/sandwich.py). The authors released no repository, and the text of
the paper was not at hand.
"""

import math

import numpy as np


def scores(q, k, q_positions, k_positions, dim=128, first=0):
    """q·k/√D + (p_m·p_n - dim/2)/(8h/H): q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K)."""
    batch, heads, queries, width = q.shape
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, i, j in np.ndindex(batch, queries, k.shape[2]):
        distance = q_positions[b][i] - k_positions[b][j]
        product = math.fsum(math.cos(distance / 10_000 ** (2 * c / dim)) for c in range(first, first + dim // 2))
        for h in range(heads):
            bias = (product - dim / 2) / (8 * (h + 1) / heads)
            out[b, h, i, j] = np.dot(q[b, h, i], k[b, h, j]) / math.sqrt(width) + bias
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"dim": [128, 6], "first": [0, 1]}
REFUSED = [({"dim": 7}, {}, r"pe\.dim=7 is odd")]
# Options with which a bidirectional model cannot tell left from right: all.
BLIND_TO_SIDES = [{}]


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    return dict(model["options"])


# Two heads of width 1, dim 2, from i = 1: one frequency, 10000^-1, and ratios 8·1/2 = 4 and 8·2/2 = 8. q = 2 in both, at position
# 20000; k = 3, 0 at positions 20000 and 10000, so distances 0 and 10000, an angle of 1, and cos 1 = 0.5403023058681398:
#   head 1: 2·3 + (1 - 1)/4 = 6      (0.5403023058681398 - 1)/4 = -0.11492442353296506
#   head 2: 6                        (0.5403023058681398 - 1)/8 = -0.05746221176648253
GOLDEN = {
    "q": [[[[2.0]], [[2.0]]]],
    "k": [[[[3.0], [0.0]], [[3.0], [0.0]]]],
    "q_positions": [[20_000]],
    "k_positions": [[20_000, 10_000]],
    "options": {"dim": 2, "first": 1},
    "scores": [[[[6.0, -0.11492442353296506]], [[6.0, -0.05746221176648253]]]],
}
# The first frequency is 1: distance 1 is an angle of 1.
GOLDEN_FROM_0 = GOLDEN | {"k_positions": [[20_000, 19_999]], "options": {"dim": 2}}
# Computed in float64 by NeMo's SandwichRelativePositionEmbedding (NVIDIA/NeMo 000b931) for 1001 tokens, two heads 16 wide.
RELEASED = [
    {
        "source": "NVIDIA/NeMo@000b931",
        "options": {"dim": 16, "first": 1},
        "q_positions": [1000],
        "k_positions": [0, 500, 990, 999, 1000],
        "bias": [
            [[-1.4973859799363898, -1.09533531417694, -0.6286549448479564, -0.013784016845159952, 0.0]],
            [[-0.7486929899681949, -0.54766765708847, -0.3143274724239782, -0.006892008422579976, 0.0]],
        ],
        "rtol": 1e-13,
    }
]
