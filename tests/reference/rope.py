"""Rotary position embedding.

Su et al. 2021, "RoFormer" (arXiv:2104.09864). Channels are taken as complex numbers, a pair each, and turned by the
position times θ_c = base^(-2c/R) (section 3.2.2, equations 14 and 15), so the score of a query at m and a key at n is
Re Σ_c q_c · conj(k_c) · exp(i(m-n)θ_c) (equation 12): it knows the distance alone. The paper pairs channels (2c, 2c+1),
`interleaved`; GPT-NeoX, and LLaMA as ported to transformers, pair (c, c + R/2), `half`. With a `fraction` below 1 only the first R = fraction · D
channels turn (GPT-J, GPT-NeoX), and the exponents run over R.
"""

import cmath
import math

import numpy as np


def pairs(rotary_width, layout):
    """The two channels of each pair."""
    half = rotary_width // 2
    return [(c, c + half) if layout == "half" else (2 * c, 2 * c + 1) for c in range(half)]


def frequency(c, rotary_width, base):
    """θ_c in radians a token."""
    return base ** (-2 * c / rotary_width)


def rotate(x, position, base=10000.0, layout="half", fraction=1.0):
    """One vector (D,) turned to its position."""
    out = np.array(x, dtype=np.float64)
    rotary_width = round(fraction * len(x))
    for c, (first, second) in enumerate(pairs(rotary_width, layout)):
        turned = complex(x[first], x[second]) * cmath.exp(1j * float(position) * frequency(c, rotary_width, base))
        out[first], out[second] = turned.real, turned.imag
    return out


def scores(q, k, q_positions, k_positions, base=10000.0, layout="half", fraction=1.0):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K), by the distance alone."""
    return turned(q, k, q_positions, k_positions, frequencies(q.shape[3], base, fraction), layout)


def frequencies(width, base=10000.0, fraction=1.0):
    """θ of every pair of a head of this width, the fastest first."""
    rotary_width = round(fraction * width)
    return [frequency(c, rotary_width, base) for c in range(rotary_width // 2)]


def turned(q, k, q_positions, k_positions, radians, layout="half", magnitude=1.0):
    """As `scores`, for any radians a token of each pair: what turns is also lengthened, queries and keys alike."""
    batch, heads, queries, width = q.shape
    rotary_width = 2 * len(radians)
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, h, i, j in np.ndindex(out.shape):
        distance = q_positions[b][i] - k_positions[b][j]
        total = float(np.dot(q[b, h, i, rotary_width:], k[b, h, j, rotary_width:]))
        for c, (first, second) in enumerate(pairs(rotary_width, layout)):
            query = complex(q[b, h, i, first], q[b, h, i, second])
            key = complex(k[b, h, j, first], k[b, h, j, second])
            turn = cmath.exp(1j * distance * radians[c])
            total += (query * key.conjugate() * turn).real * magnitude**2
        out[b, h, i, j] = total / math.sqrt(width)
    return out


def turned_by_length(q, k, q_positions, k_positions, of_length, layout="half"):
    """As `turned`, row by row: `of_length` takes the largest position of a row, plus 1, to its radians and magnitude."""
    rows = []
    for b in range(len(q)):
        one = [[*positions[b]] for positions in (q_positions, k_positions)]
        radians, magnitude = of_length(1 + max(one[0] + one[1]))
        rows.append(turned(q[b : b + 1], k[b : b + 1], one[:1], one[1:], radians, layout, magnitude))
    return np.concatenate(rows)


# The values of each option that the tests go through, the default first.
VALUES = {"layout": ["half", "interleaved"], "base": [10_000.0, 50.0], "fraction": [1.0, 0.5]}
REFUSED = [
    ({"fraction": fraction}, {"width": width}, rf"pe\.fraction={fraction:g} of the head width {width} .*even")
    for width, fraction in ((16, 0.0625), (16, 0.1875), (8, 0.1), (6, 0.5), (7, 1.0), (1, 1.0))
]


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    return dict(model["options"])


# Width 4, half layout: pairs (0, 2) and (1, 3), θ = 1 and 0.01. q = (1, 0, 0, 0) at 3: the first pair is 1 + 0i.
# k = (0, 0, 1, 0) at 1: the first pair is 0 + 1i. Re(1 · conj(i) · e^(2i)) = Re(-i · (cos 2 + i sin 2)) = sin 2, over √4:
#   sin 2 / 2 = 0.9092974268256817 / 2 = 0.45464871341284085
# k = (5, 0, 0, 7) at 3: distance 0, Re(1 · 5) + Re(0 · 7i) = 5, over √4: 2.5
# k = (1, 1, 0, 0) at 103: distance -100: Re(e^(-100i)) + Re(0 · 1 · ...) = cos 100 = 0.8623188722876839, over √4:
#   0.43115943614384195
GOLDEN = {
    "q": [[[[1.0, 0.0, 0.0, 0.0]]]],
    "k": [[[[0.0, 0.0, 1.0, 0.0], [5.0, 0.0, 0.0, 7.0], [1.0, 1.0, 0.0, 0.0]]]],
    "q_positions": [[3]],
    "k_positions": [[1, 3, 103]],
    "options": {},
    "scores": [[[[0.45464871341284085, 2.5, 0.43115943614384195]]]],
}
