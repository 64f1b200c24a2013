"""ReRoPE: rotary encoding at the distance min(i - j, w).

Su 2023, "Transformer升级之路：12、无限外推的ReRoPE？" (kexue.fm/archives/9708), on RoFormer (arXiv:2104.09864): the matrix of
relative positions with every entry from w on put to w. The released code (bojone/rerope acfe788, rerope_patch.py) makes
two matrices of scores, turned to their own positions and turned by w against unturned keys, takes the first where |i -
j| < w, the second elsewhere, and one softmax. It always multiplies the query at position p by max(1, ln(p + 1)/ln L), L
the train length, a separate device in the text (archives/9706, 8823). There w is 512 and L 4096. A key after the query
is hidden; seen, it stands at its own distance here. Channels c and c + D/2 are a pair.
"""

import cmath
import math

import numpy as np


def scores(q, k, q_positions, k_positions, window, log_length, base, layout, fraction):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K); log_length None: no growth."""
    return turned_scores(
        q, k, q_positions, k_positions, lambda i, j: min(i - j, window), log_length, base, layout, fraction
    )


def turned_scores(q, k, q_positions, k_positions, distance, log_length, base, layout, fraction):
    """Rotary scores where `distance` says how far a key at j is from a query at i."""
    batch, heads, queries, width = q.shape
    rotary_width = round(fraction * width)
    half = rotary_width // 2
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, h, i, j in np.ndindex(out.shape):
        at = q_positions[b][i]
        grown = 1.0 if log_length is None else max(1.0, math.log(at + 1) / math.log(log_length))
        total = float(np.dot(q[b, h, i, rotary_width:], k[b, h, j, rotary_width:]))
        for c in range(half):
            first, second = (c, c + half) if layout == "half" else (2 * c, 2 * c + 1)
            query = complex(q[b, h, i, first], q[b, h, i, second])
            key = complex(k[b, h, j, first], k[b, h, j, second])
            angle = distance(at, k_positions[b][j]) * base ** (-2 * c / rotary_width)
            total += (query * key.conjugate() * cmath.exp(1j * angle)).real
        out[b, h, i, j] = grown * total / math.sqrt(width)
    return out


# The values of each option that the tests go through, the default first.
VALUES = {
    "original_length": [None, 40],
    "window": [None, 3],
    "log_n": [True, False],
    "layout": ["half", "interleaved"],
    "base": [10_000.0, 50.0],
    "fraction": [1.0, 0.5],
}
# Queries that do not grow leave nothing but distances.
SHIFT_INVARIANT = [{"log_n": False}]


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    given = dict(model["options"])
    original = given.pop("original_length") or max(model.get("train_length", 2), 2)
    if given["window"] is None:
        given["window"] = max(original // 8, 1)
    given["log_length"] = original if given.pop("log_n") else None
    return given


# Width 2, one pair, θ = 1; window 3, queries do not grow. q = (1, 0) at 9, over √2:
#   k = (1, 0) at 9, 7, 6, 5, 0: distances 0, 2, then 3 for all the rest: 1, cos 2, cos 3, cos 3, cos 3
#   k = (0, 1) at 0: Re(-i e^(3i)) = sin 3
#   cos 2 = -0.41614683654714241, cos 3 = -0.98999249660044542, sin 3 = 0.14112000805986721; over √2:
#   0.70710678118654746, -0.29426025009181417, -0.70003040766997504, 0.099786914660232345
GOLDEN = {
    "q": [[[[1.0, 0.0]]]],
    "k": [[[[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]],
    "q_positions": [[9]],
    "k_positions": [[9, 7, 6, 5, 0, 0]],
    "options": {"window": 3, "log_n": False},
    "scores": [[[[0.70710678118654746, -0.29426025009181417, *3 * [-0.70003040766997504], 0.099786914660232345]]]],
}


def numbers(tokens, width, shift, factor=1):
    """Queries or keys of tokens 0, 1, ..., for the runs of released code: (T, D)."""
    return [[factor * round(math.sin(1.3 * t + c * c + shift), 2) for c in range(width)] for t in tokens]


# The attention weights of forward_with_rerope in float32, its window set to 3 and its training_length to 16, for six
# tokens at once; the last row is the same, to the last digits, in its branch for decoding.
RELEASED = [
    {
        "source": "bojone/rerope@acfe788, rerope_patch.py",
        "options": {"window": 3},
        "q": [numbers((4, 5), 4, 0, 2)],
        "k": [numbers(range(6), 4, 1, 2)],
        "q_positions": [22, 23],
        "k_positions": [0, 4, 17, 20, 22, 23],
        "weights": [
            [
                [
                    0.31155526638031006,
                    0.06368564814329147,
                    0.03567759320139885,
                    0.31228652596473694,
                    0.27679499983787537,
                    0,
                ],
                [
                    0.01152048446238041,
                    0.007223629392683506,
                    0.019236506894230843,
                    0.05142682418227196,
                    0.18329334259033203,
                    0.7272992134094238,
                ],
            ]
        ],
        "rtol": 1e-5,
    }
]
