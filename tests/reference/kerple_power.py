"""KERPLE, the power variant: a penalty that grows with a power of the distance.

Chi et al. 2022, "KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation" (arXiv:2205.09921), section 4:
the kernel -r1 · |m - n|^r2 with r1 > 0 and 0 < r2 <= 2 for each head is added to q·k. By equation 1 the sum is divided by
√D, the kernel with it (`divided`). The authors' code (chijames/KERPLE, megatron/mpu/layers.py, ParallelKerplePower with
pos_emb kerple_power_ap_) divides q·k first and adds the kernel as it is: the default. r1 starts at U(0, 1) and r2 at
U(0, 2), at least 0.01.
"""

import math

import numpy as np


def scores(q, k, q_positions, k_positions, r1, r2, divided=False):
    """q·k/√D - r1·|distance|^r2: q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K), r1 and r2 (H,)."""
    batch, heads, queries, width = q.shape
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, h, i, j in np.ndindex(out.shape):
        distance = abs(float(q_positions[b][i]) - float(k_positions[b][j]))
        kernel = -r1[h] * distance ** r2[h]
        out[b, h, i, j] = np.dot(q[b, h, i], k[b, h, j]) / math.sqrt(width) + kernel / (
            math.sqrt(width) if divided else 1
        )
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"divided": [False, True]}
# Options with which a bidirectional model cannot tell left from right: all.
BLIND_TO_SIDES = [{}]


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    learned = model["parameters"]
    return {"r1": np.exp(learned["log_r1"]), "r2": 2 / (1 + np.exp(-learned["logit_r2"])), **model["options"]}


# One head of width 4, r1 = 1/2, r2 = 3/2 (of 2 it is 3/4, and 3/4 : 1/4 = 3). q = (1, 1, 0, 0) at position 9;
# k = (3, 1, 0, 0), 0, 0 at positions 9, 5, 18, so distances 0, 4, 9:
#   (3 + 1)/√4 - 0 = 2      0 - 8/2 = -4      0 - 27/2 = -13.5
GOLDEN = {
    "q": [[[[1.0, 1.0, 0.0, 0.0]]]],
    "k": [[[[3.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]],
    "q_positions": [[9]],
    "k_positions": [[9, 5, 18]],
    "parameters": {"log_r1": [-math.log(2)], "logit_r2": [math.log(3)]},
    "options": {},
    "scores": [[[[2.0, -4.0, -13.5]]]],
}
# The kernel divided by √4 too.
GOLDEN_DIVIDED = GOLDEN | {"options": {"divided": True}, "scores": [[[[2.0, -2.0, -6.75]]]]}
# Computed in float64 by the authors' ParallelKerplePower (chijames/KERPLE 25be3d7, megatron/mpu/layers.py) for 4096 tokens:
# its bias_a is r1, its bias_p r2.
RELEASED = [
    {
        "source": "chijames/KERPLE@25be3d7",
        "options": {},
        "parameters": {
            "log_r1": [math.log(0.5), math.log(0.0625)],
            "logit_r2": [math.log(1.25 / 0.75), math.log(0.5 / 1.5)],
        },
        "q_positions": [4095],
        "k_positions": [0, 1000, 4000, 4094, 4095],
        "bias": [
            [[-16379.000152597206, -11542.392037238087, -148.29431796422688, -0.5, 0.0]],
            [[-3.999511688944039, -3.477045261425281, -0.6091746465505602, -0.0625, 0.0]],
        ],
        "rtol": 1e-13,
    }
]
