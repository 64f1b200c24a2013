"""xPos: rotary encoding whose pairs fade with distance.

Sun et al. 2022, "A Length-Extrapolatable Transformer" (arXiv:2212.10554), section 3.2: queries at position n are
multiplied by ζ_c^n e^(inθ_c), keys by ζ_c^-n e^(-inθ_c) in the form of equation 6, so pair c of a score carries ζ_c^d
e^(idθ_c) at the distance d = i - j. ζ_c = (c/(D/2) + γ)/(1 + γ) (equation 9) with γ = 0.4, and pairs are neighbours
(equation 10, algorithm 1). The released code (microsoft/torchscale 4d1e0e8,
torchscale/component/xpos_relative_position.py) divides the exponent by a scale base of 512, not in the paper, and
writes ζ_c = (2c + 0.4 D)/(1.4 D), which is the same. Its train length was 1024.

Only d >= 0 is meant: a key after the query is hidden. If positions run backwards one may be seen, and does not fade
here.
"""

import cmath
import math

import numpy as np


def pairs(rotary_width, layout):
    """The two channels of each pair."""
    half = rotary_width // 2
    return [(c, c + half) if layout == "half" else (2 * c, 2 * c + 1) for c in range(half)]


def scores(q, k, q_positions, k_positions, scale_base, base, layout, fraction):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K), by the distance alone."""
    batch, heads, queries, width = q.shape
    rotary_width = round(fraction * width)
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, h, i, j in np.ndindex(out.shape):
        distance = q_positions[b][i] - k_positions[b][j]
        total = float(np.dot(q[b, h, i, rotary_width:], k[b, h, j, rotary_width:]))
        for c, (first, second) in enumerate(pairs(rotary_width, layout)):
            zeta = (2 * c + 0.4 * rotary_width) / (1.4 * rotary_width)
            query = complex(q[b, h, i, first], q[b, h, i, second])
            key = complex(k[b, h, j, first], k[b, h, j, second])
            turn = cmath.exp(1j * distance * base ** (-2 * c / rotary_width))
            total += zeta ** (max(distance, 0) / scale_base) * (query * key.conjugate() * turn).real
        out[b, h, i, j] = total / math.sqrt(width)
    return out


# The values of each option that the tests go through, the default first.
VALUES = {
    "scale_base": [None, 3.0],
    "layout": ["interleaved", "half"],
    "base": [10_000.0, 50.0],
    "fraction": [1.0, 0.5],
}


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    given = dict(model["options"])
    if given["scale_base"] is None:
        given["scale_base"] = model["train_length"] / 2
    return given


# Width 4: pairs (0, 1) and (2, 3), θ = 1 and 0.01, ζ = 1.6/5.6 = 2/7 and 3.6/5.6 = 9/14; scale base 2. The query is
# (1, 0, 1, 0), so 1 + 0i in both pairs, at 4; over √4 = 2:
#   k = (1, 0, 0, 0) at 0: (2/7)^(4/2) cos 4 / 2 = 4/49 · -0.65364362086361194 / 2 = -0.026679331463820895
#   k = (0, 0, 0, 1) at 0: the key's second pair is i, Re(-i e^(0.04i)) = sin 0.04 = 0.039989334186634161, times
#     (9/14)² = 81/196, over 2: 0.0082631022171361403
#   k = (3, 7, 5, 7) at 4, no distance: (3 + 5)/2 = 4
#   k = (1, 0, 0, 0) at 6, after the query: cos 2 / 2 = -0.2080734182735712, unfaded
GOLDEN = {
    "q": [[[[1.0, 0.0, 1.0, 0.0]]]],
    "k": [[[[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], [3.0, 7.0, 5.0, 7.0], [1.0, 0.0, 0.0, 0.0]]]],
    "q_positions": [[4]],
    "k_positions": [[0, 0, 4, 6]],
    "options": {"scale_base": 2.0},
    "scores": [[[[-0.026679331463820895, 0.0082631022171361403, 4.0, -0.2080734182735712]]]],
}


def numbers(tokens, width, shift, factor=1):
    """Queries or keys of tokens 0, 1, ..., for the runs of released code: (T, D)."""
    return [[factor * round(math.sin(1.3 * t + c * c + shift), 2) for c in range(width)] for t in tokens]


# Run in float32 with its class XPOS; the same with the query alone and an offset of 699, as in decoding.
RELEASED = [
    {
        "source": "microsoft/torchscale@4d1e0e8, torchscale/component/xpos_relative_position.py",
        "options": {"scale_base": 512.0},
        "q": [numbers([0], 8, 0)],
        "k": [numbers(range(4), 8, 1)],
        "q_positions": [699],
        "k_positions": [0, 100, 650, 699],
        "scores": [[[0.17446020245552063, -0.34538719058036804, -0.6750038862228394, 0.029945967718958855]]],
        "rtol": 1e-4,  # its angles are float32, off by 699 · 2^-24 here
    }
]
