"""Rope with log-n scaled attention: queries grow by max(1, log_L(n)), n the tokens up to and with the query.

Su 2021, kexue.fm/archives/8823, beside rope (arXiv:2104.09864). bojone/rerope acfe788 and jquesnelle/yarn 995db5b
(LlamaReRoPE.py): ln(p + 1) / ln(train length), clipped at 1; Qwen's modeling_qwen.py has the same table.
"""

import math

import numpy as np

from tests.reference import rope

VALUES = rope.VALUES | {"original_length": [None, 8]}


def scores(q, k, q_positions, k_positions, length, **given):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K)."""
    q = np.array(q)
    for b, i in np.ndindex(q.shape[0], q.shape[2]):
        tokens = q_positions[b][i] + 1
        if tokens > length:
            q[b, :, i] *= math.log(tokens, length)
    return rope.scores(q, k, q_positions, k_positions, **given)


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    given = dict(model["options"])
    return given | {"length": given.pop("original_length") or model["train_length"]}


# Width 4: θ = 1 and 0.01. q = k = (1, 1, 0, 0) at distance 2: rope gives (cos 2 + cos 0.02) / 2 = 0.2918265850597177.
# Original length 4: at 15 there are 16 = 4² tokens, so twice that; at 3 there are 4, and at 2 three: once.
GOLDEN = {
    "q": [[[[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]]]],
    "k": [[[[1.0, 1.0, 0.0, 0.0]]]],
    "q_positions": [[15, 15]],
    "k_positions": [[13]],
    "options": {"original_length": 4},
    "scores": [[[[0.5836531701194354], [0.5836531701194354]]]],
}
GOLDEN_WITHIN = GOLDEN | {
    "q_positions": [[2, 2]],
    "k_positions": [[0]],
    "scores": [[[[0.2918265850597177], [0.2918265850597177]]]],
}


def numbers(tokens, width, shift, factor=1):
    """Queries, keys or weights, for the runs of released code: (T, D)."""
    return [[factor * round(math.sin(1.3 * t + c * c + shift), 2) for c in range(width)] for t in tokens]


# The attention weights of forward_with_rerope in float32, its training_length set to 16 and its window so wide that all
# distances lie within: what is left is rope and the growth of queries.
RELEASED = [
    {
        "source": "bojone/rerope@acfe788, rerope_patch.py",
        "options": {"original_length": 16},
        "q": [numbers((3, 4, 5), 4, 0, 2)],
        "k": [numbers(range(6), 4, 1, 2)],
        "q_positions": [20, 22, 23],
        "k_positions": [0, 4, 17, 20, 22, 23],
        "weights": [
            [
                [0.0003020037, 0.0719158798, 0.0079464437, 0.9198356867, 0, 0],
                [0.0840511471, 0.0041233855, 0.6394692063, 0.1443827301, 0.1279735714, 0],
                [0.0072938441, 0.010810473, 0.0003377625, 0.0524712913, 0.1870160252, 0.7420706153],
            ]
        ],
        "rtol": 1e-5,
    }
]
