"""iRoPE: rope, but in every n-th layer none, and there queries that grow in steps with their position.

Llama 4 (Meta AI 2025, a blog post). In meta-llama/llama-models a9c89c4, models/llama4/model.py, as in transformers 5.24.0,
queries of the layers without rope are multiplied by ln(⌊(p + 1) / 8192⌋ + 1) · 0.1 + 1, "customized" there from
Nakanishi 2025 (arXiv:2501.19399). Layers as in rnope.
"""

import math

import numpy as np

from tests.reference import rnope

VALUES = rnope.VALUES | {"original_length": [None, 8], "temperature": [0.1, 0.7]}


def scores(q, k, q_positions, k_positions, turns, temperature, length, **given):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K)."""
    q = np.array(q)
    if not turns:
        for b, i in np.ndindex(q.shape[0], q.shape[2]):
            q[b, :, i] *= math.log((q_positions[b][i] + 1) // length + 1) * temperature + 1
    return rnope.scores(q, k, q_positions, k_positions, turns, **given)


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    given = rnope.arguments(model)
    return given | {"length": given.pop("original_length") or model["train_length"]}


# Layer 3 of interval 4 does not turn: q·k / √4 = 1 at every distance. Lengths of 8: position 6 is in none, 7 has one
# behind it, 20 two ((20 + 1) // 8): 1, 1 + 0.1 ln 2 = 1.0693147180559945, 1 + 0.1 ln 3 = 1.109861228866811
GOLDEN = {
    "q": [[[[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]]]],
    "k": [[[[1.0, 1.0, 0.0, 0.0]]]],
    "q_positions": [[6, 7, 20]],
    "k_positions": [[0]],
    "layer": 3,
    "options": {"interval": 4, "original_length": 8},
    "scores": [[[[1.0], [1.0693147180559945], [1.109861228866811]]]],
}
# Layer 2 does: (cos 20 + cos 0.2) / 2 = (0.40808206181339196 + 0.9800665778412416) / 2 = 0.6940743198273168
GOLDEN_BEFORE = {
    "q": [[[[1.0, 1.0, 0.0, 0.0]]]],
    "k": [[[[1.0, 1.0, 0.0, 0.0]]]],
    "q_positions": [[20]],
    "k_positions": [[0]],
    "layer": 2,
    "options": {"interval": 4, "original_length": 8},
    "scores": [[[[0.6940743198273168]]]],
}
