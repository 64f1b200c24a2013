"""Retention: rotated scores that decay with distance, and no softmax.

Sun et al. 2023, "Retentive Network: A Successor to Transformer for Large Language Models" (arXiv:2307.08621), section 2:
(Q K^T ⊙ D) V with D_nm = γ^(n-m) for n >= m, Q and K turned by their positions, γ_h = 1 - 2^(-5-h). Three normalisations:
Q K^T by √d, D_nm by √(Σ_i D_ni), a row R_n by max(|Σ_i R_ni|, 1). By the released code (microsoft/torchscale 4d1e0e8,
torchscale/architecture/retnet.py, component/multiscale_retention.py) the last takes Σ |R_ni| in place of |Σ R_ni|, the angles are
10000^(-c/(P - 1)) for pair c of P, and channels pair with their neighbours. A normalisation of each head, a gate and a
projection follow there, which are not here.
"""

import cmath
import math

import numpy as np


def pairs(vector, layout, rotary):
    """The channels that turn as complex numbers."""
    if layout == "interleaved":
        return [complex(vector[2 * c], vector[2 * c + 1]) for c in range(rotary // 2)]
    return [complex(vector[c], vector[c + rotary // 2]) for c in range(rotary // 2)]


def scores(q, k, q_positions, k_positions, layout, base, fraction):
    """Turned, scaled and decayed scores, 0 where a query does not see the key: q (B, H, Q, D), k (B, H, K, D).

    The queries are the last Q of the K tokens.
    """
    batch, heads, queries, width = q.shape
    keys, rotary = k.shape[2], round(fraction * width)
    out = np.zeros((batch, heads, queries, keys))
    for b, h, i in np.ndindex(batch, heads, queries):
        own = keys - queries + i
        distances = [q_positions[b][i] - k_positions[b][j] for j in range(own + 1)]
        decays = [math.exp(math.log(1 - 2.0 ** (-5 - h)) * abs(distance)) for distance in distances]
        for j, distance in enumerate(distances):
            total = float(np.dot(q[b, h, i, rotary:], k[b, h, j, rotary:]))
            both = zip(pairs(q[b, h, i], layout, rotary), pairs(k[b, h, j], layout, rotary), strict=True)
            for c, (one, other) in enumerate(both):
                angle = distance * base ** (-c / max(rotary // 2 - 1, 1))
                total += (one * other.conjugate() * cmath.exp(1j * angle)).real
            out[b, h, i, j] = total / math.sqrt(width) * decays[j] / math.sqrt(math.fsum(decays))
    return out


def weights(scores, visible, row_sum):
    """Rows divided by what they sum to, where that is above 1."""
    seen = np.where(visible, scores, 0.0)
    total = np.abs(seen).sum(-1) if row_sum == "absolute" else np.abs(seen.sum(-1))
    return seen / np.maximum(total, 1.0)[..., None]


# The values of each option that the tests go through, the default first.
VALUES = {
    "layout": ["interleaved", "half"],
    "base": [10_000.0, 50.0],
    "fraction": [1.0, 0.5],
    "row_sum": ["absolute", "signed"],
}


def arguments(model):
    """What `scores` and `weights` take beside their inputs, of a model's encoding."""
    return dict(model["options"])


# One head of width 2, γ = 1 - 1/32 = 31/32, one angle of 1 radian a token. q = (4, 0) at 1, k = (3, 0) at 1 and (0, 2) at 0.
# Turned: 4 · 3 · cos 0 = 12 and 4 · 2 · sin 1 = 6.731767878463172, each over √2. D = 31/32, 1, over √(63/32):
#   6.731767878463172 / √2 · 31/32 / √(63/32) = 3.2864767523632112    12 / √2 / √(63/32) = 6.047431568147635
# Their sum is above 1 and both are positive, so the weights are their shares.
GOLDEN = {
    "q": [[[[4.0, 0.0]]]],
    "k": [[[[0.0, 2.0], [3.0, 0.0]]]],
    "q_positions": [[1]],
    "k_positions": [[0, 1]],
    "options": {},
    "scores": [[[[3.2864767523632112, 6.047431568147635]]]],
    "weights": [[[[0.3521008177401234, 0.6478991822598765]]]],
}
# q = (4, 0), k = (0, -2): the first score changes its sign. The sum of sizes is as before, that of the row less.
GOLDEN_SIGNED = GOLDEN | {
    "k": [[[[0.0, -2.0], [3.0, 0.0]]]],
    "options": {"row_sum": "signed"},
    "scores": [[[[-3.2864767523632112, 6.047431568147635]]]],
    "weights": [[[[-1.1903406508409229, 2.190340650840923]]]],
}
# By RetNetRelPos and MultiScaleRetention.parallel_forward of microsoft/torchscale 4d1e0e8 in float32, values being the unit
# matrix. The first row of the first shows that a sum below 1 divides nothing.
RELEASED = [
    {
        "source": "microsoft/torchscale@4d1e0e8",
        "options": {},
        "q": queries,
        "k": keys,
        "q_positions": [0, 1, 2, 3],
        "k_positions": [0, 1, 2, 3],
        "weights": of_heads,
        "rtol": 1e-6,
    }
    for queries, keys, of_heads in (
        (
            [
                [[0.44, 1.36], [-0.79, -1.16], [1.09, 0.88], [-1.32, -0.54]],
                [[1.46, 0.16], [-1.5, 0.22], [1.44, -0.6], [-1.29, 0.93]],
            ],
            [
                [[1.34, 0.5], [-1.47, -0.12], [1.5, -0.26], [-1.43, 0.63]],
                [[1.27, -0.96], [-1.02, 1.22], [0.71, -1.4], [-0.35, 1.49]],
            ],
            [
                [
                    [0.8977427693944409, 0.0, 0.0, 0.0],
                    [0.04406629165487581, 0.6553904110656877, 0.0, 0.0],
                    [-0.46780243338520294, 0.019660354246543294, 0.5125372123682537, 0.0],
                    [0.3889603943095149, -0.2796818088401553, -0.004815555553236257, 0.3265422412970934],
                ],
                [
                    [1.0, 0.0, 0.0, 0.0],
                    [-0.0824079053135366, 0.9027332438052115, 0.0, 0.0],
                    [-0.42109220030708655, -0.061719712343201755, 0.5171880873497117, 0.0],
                    [0.3993337476807083, -0.25629811097588384, -0.038404180544189426, 0.30596396079921845],
                ],
            ],
        ),
        (
            [
                [
                    [0.44, 1.36, -0.79, -1.16],
                    [1.09, 0.88, -1.32, -0.54],
                    [1.46, 0.16, -1.5, 0.22],
                    [1.44, -0.6, -1.29, 0.93],
                ],
                [
                    [1.05, -1.2, -0.74, 1.39],
                    [0.38, -1.49, 0.0, 1.49],
                    [-0.38, -1.39, 0.74, 1.2],
                    [-1.05, -0.93, 1.29, 0.59],
                ],
            ],
            [
                [
                    [1.34, 0.5, -1.47, -0.12],
                    [1.5, -0.26, -1.43, 0.63],
                    [1.27, -0.96, -1.02, 1.22],
                    [0.71, -1.4, -0.35, 1.49],
                ],
                [
                    [-0.04, -1.48, 0.42, 1.37],
                    [-0.77, -1.17, 1.08, 0.9],
                    [-1.31, -0.56, 1.45, 0.19],
                    [-1.5, 0.2, 1.45, -0.57],
                ],
            ],
            [
                [
                    [1.0, 0.0, 0.0, 0.0],
                    [0.4503805506465774, 0.5496194493534227, 0.0, 0.0],
                    [0.21064285270320396, 0.3530701276337534, 0.4362870196630426, 0.0],
                    [0.039072156314979595, 0.20272346454729145, 0.34728861267811023, 0.41091576645961875],
                ],
                [
                    [1.0, 0.0, 0.0, 0.0],
                    [0.48781784403965, 0.51218215596035, 0.0, 0.0],
                    [0.23392118767955328, 0.3655460146070899, 0.4005327977133569, 0.0],
                    [0.021654232531444127, 0.21956152579813776, 0.3450591261871807, 0.41372511548323737],
                ],
            ],
        ),
    )
]
