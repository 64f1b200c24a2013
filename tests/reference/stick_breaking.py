"""Stick-breaking attention: each key, from the query backwards, takes a share of what nearer keys left.

Tan et al. 2025, "Scaling Stick-Breaking Attention: An Efficient Implementation and In-depth Study" (arXiv:2410.17980):
A_ij = β_ij ∏ (1 - β_il) over j < l < i, with β = σ(q·k/√D). In the released code (shawntan/stickbreaking-attention 3147a38,
sb_ref.py, tests/test_attn.py) the query's own token takes no share unless told otherwise, and what is left, 1 - Σ A_ij, is
given to its value by the caller.
"""

import math

import numpy as np


def scores(q, k, q_positions, k_positions):
    """q·k/√D where the query sees the key, else 0: q (B, H, Q, D), k (B, H, K, D), queries the last Q of the K tokens."""
    seen = np.tri(q.shape[2], k.shape[2], k.shape[2] - q.shape[2])
    return np.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(q.shape[-1]) * seen


def weights(scores, visible, own_token, remainder):
    """Scores (B, H, Q, K) to weights; the query's own token is the last that it sees."""
    out = np.zeros(scores.shape)
    for b, h, i in np.ndindex(scores.shape[:3]):
        keys = np.nonzero(visible[i])[0]
        left = 1.0
        for j in reversed(keys if own_token else keys[:-1]):
            share = 1 / (1 + math.exp(-scores[b, h, i, j]))
            out[b, h, i, j] = left * share
            left *= 1 - share
        out[b, h, i, keys[-1]] += left if remainder else 0.0
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"own_token": [False, True], "remainder": [True, False]}


def arguments(model):
    """What `weights` takes beside scores, of a model's encoding."""
    return dict(model["options"])


# One head of width 1, one query q = 1, the last of three tokens, k = 0, ln 3, ln 4: shares 1/2, 3/4, 4/5. From the query
# backwards, its own token left out: 3/4, then 1/2 of 1/4, and 1/8 is left for the own value. Its own token taking part:
# 4/5, 3/4 of 1/5, 1/2 of 1/20, and 1/40 is lost.
GOLDEN = {
    "q": [[[[1.0]]]],
    "k": [[[[0.0], [1.0986122886681098], [1.3862943611198906]]]],
    "q_positions": [[2]],
    "k_positions": [[0, 1, 2]],
    "options": {},
    "scores": [[[[0.0, 1.0986122886681098, 1.3862943611198906]]]],
    "weights": [[[[0.125, 0.75, 0.125]]]],
}
GOLDEN_OWN = GOLDEN | {"options": {"own_token": True, "remainder": False}, "weights": [[[[0.025, 0.15, 0.8]]]]}
# By the function stickbreaking of shawntan/stickbreaking-attention 3147a38 (sb_ref.py), which sums in float32, values being
# the unit matrix; what it returns beside is added to the own value where `remainder`.
QUERIES = [
    [[0.44, 1.36], [-0.79, -1.16], [1.09, 0.88], [-1.32, -0.54]],
    [[1.46, 0.16], [-1.5, 0.22], [1.44, -0.6], [-1.29, 0.93]],
]
KEYS = [
    [[1.34, 0.5], [-1.47, -0.12], [1.5, -0.26], [-1.43, 0.63]],
    [[1.27, -0.96], [-1.02, 1.22], [0.71, -1.4], [-0.35, 1.49]],
]
WITHOUT_OWN = [
    [
        [0.0, 0.0, 0.0, 0.0],
        [0.23890990649443677, 0.0, 0.0, 0.0],
        [0.6106235510307465, 0.2301139670306804, 0.0, 0.0],
        [0.029316726401617883, 0.6327105589820416, 0.21403147925721383, 0.0],
    ],
    [
        [0.0, 0.0, 0.0, 0.0],
        [0.18296614529979108, 0.0, 0.0, 0.0],
        [0.6982974839423544, 0.17419250559575503, 0.0, 0.0],
        [0.017792249462407334, 0.7032077019059325, 0.17246000296657935, 0.0],
    ],
]
LEFT = [
    [1.0, 0.7610900935055632, 0.15926248193857306, 0.12394123535912671],
    [1.0, 0.817033854700209, 0.1275100104618906, 0.1065400456650808],
]
WITH_OWN = [
    [
        [0.7104854154795818, 0.0, 0.0, 0.0],
        [0.06809910682412265, 0.7149590484339211, 0.0, 0.0],
        [0.16490314901169456, 0.06214388182518979, 0.7299430520634227, 0.0],
        [0.007353588924050765, 0.15870439608166975, 0.053686059408638166, 0.7491674473919383],
    ],
    [
        [0.7689702464101739, 0.0, 0.0, 0.0],
        [0.04006466123646224, 0.7810269265102678, 0.0, 0.0],
        [0.1475725419259592, 0.03681243513880328, 0.7886680841595658, 0.0],
        [0.0038131833220637168, 0.15070943595524697, 0.0369611278452838, 0.7856828932154942],
    ],
]
RELEASED = [
    {
        "source": "shawntan/stickbreaking-attention@3147a38",
        "options": options,
        "q": QUERIES,
        "k": KEYS,
        "q_positions": [0, 1, 2, 3],
        "k_positions": [0, 1, 2, 3],
        "weights": weights_of_heads,
        "rtol": 1e-6,
    }
    for options, weights_of_heads in (
        ({"remainder": False}, WITHOUT_OWN),
        ({}, (np.array(WITHOUT_OWN) + np.array(LEFT)[..., None] * np.eye(4)).tolist()),
        ({"own_token": True, "remainder": False}, WITH_OWN),
    )
]
