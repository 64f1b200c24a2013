"""KERPLE, the logarithmic variant: a penalty that grows with the logarithm of the distance.

Chi et al. 2022, "KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation" (arXiv:2205.09921), section 4:
the kernel -r1 · log(1 + r2 · |m - n|) with r1, r2 > 0 for each head is added to q·k. By equation 1 the sum is divided by
√D, the kernel with it (`divided`). The authors' code (chijames/KERPLE, megatron/mpu/layers.py, ParallelKerpleLog; added
in megatron/model/transformer.py) divides q·k first and adds the kernel as it is: the default. Since r1 is learned the two
differ in what a start or a checkpoint means. r1 starts at U(0, 2) and r2 at U(0, 1), at least 0.01.
"""

import math

import numpy as np


def scores(q, k, q_positions, k_positions, r1, r2, divided=False):
    """q·k/√D - r1·log(1 + r2·|distance|): q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K), r1 and r2 (H,)."""
    batch, heads, queries, width = q.shape
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, h, i, j in np.ndindex(out.shape):
        distance = abs(float(q_positions[b][i]) - float(k_positions[b][j]))
        kernel = -r1[h] * math.log(1 + r2[h] * distance)
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
    return {"r1": np.exp(learned["log_r1"]), "r2": np.exp(learned["log_r2"]), **model["options"]}


# One head of width 4, r1 = 2, r2 = 3. q = (1, 1, 0, 0) at position 9; k = (3, 1, 0, 0), 0, 0 at positions 9, 4, 10, so
# distances 0, 5, 1:
#   (3 + 1)/√4 - 2·log 1 = 2      0 - 2·log 16 = -5.545177444479562      0 - 2·log 4 = -2.772588722239781
GOLDEN = {
    "q": [[[[1.0, 1.0, 0.0, 0.0]]]],
    "k": [[[[3.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]],
    "q_positions": [[9]],
    "k_positions": [[9, 4, 10]],
    "parameters": {"log_r1": [math.log(2)], "log_r2": [math.log(3)]},
    "options": {},
    "scores": [[[[2.0, -5.545177444479562, -2.772588722239781]]]],
}
# The kernel divided by √4 too.
GOLDEN_DIVIDED = GOLDEN | {"options": {"divided": True}, "scores": [[[[2.0, -2.772588722239781, -1.3862943611198906]]]]}
# Computed in float64 by the authors' ParallelKerpleLog (chijames/KERPLE 25be3d7, megatron/mpu/layers.py) for 4096 tokens:
# its bias_p is r1, its bias_a r2.
RELEASED = [
    {
        "source": "chijames/KERPLE@25be3d7",
        "options": {},
        "parameters": {"log_r1": [math.log(1.5), math.log(0.25)], "log_r2": [math.log(0.75), math.log(0.125)]},
        "q_positions": [4095],
        "k_positions": [0, 1000, 4000, 4094, 4095],
        "bias": [
            [[-12.045248206747061, -11.625437733401444, -6.420198490488812, -0.839423681903134, 0.0]],
            [[-1.5600080376905876, -1.490170780692136, -0.6388218616374499, -0.029445758914095864, 0.0]],
        ],
        "rtol": 1e-13,
    }
]
