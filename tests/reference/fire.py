"""FIRE: a small network from the distance, as a share of the query's position, to a bias a head.

Li et al. 2024, "Functional Interpolation for Relative Positions Improves Long Context Transformers" (arXiv:2310.04418),
section 3: b(i, j) = f(ψ(i - j) / ψ(max(L, i))) with ψ(x) = log(c·x + 1), a network f, and learned c and L. By the code
printed in its appendix, as two others carry it (mcleish7/arithmetic 86022a5, cramming/architectures/embeddings.py;
chuanyang-Zheng/DAPE bde344a, DAPE.py): positions count from 0, ψ(x) = log(|c·x| + 1), L = |factor · threshold| with a
learned factor, 10⁻⁶ is added to the denominator, and f has one hidden layer of 32 with a ReLU. c starts at 0.1, the
factor at 1, the threshold is 512, a quarter of the paper's train length; the network starts as torch.nn.Linear does. Each
layer has its own, or all share one (FIRE-S).
"""

import math

import numpy as np


def scores(q, k, q_positions, k_positions, c, limit, weight_in, bias_in, weight_out, bias_out):
    """q·k/√D + b(i, j)[h]: q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K).

    limit is L; the network of one layer has weights (W, 1) and (H, W).
    """
    batch, heads, queries, width = q.shape
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, i, j in np.ndindex(batch, queries, k.shape[2]):
        query, key = q_positions[b][i], k_positions[b][j]
        scale = max(limit, query)
        share = math.log(abs(c * (query - key)) + 1) / (math.log(abs(c * scale) + 1) + 1e-6)
        added = weight_out @ np.maximum(weight_in[:, 0] * share + bias_in, 0) + bias_out
        for h in range(heads):
            out[b, h, i, j] = np.dot(q[b, h, i], k[b, h, j]) / math.sqrt(width) + added[h]
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"threshold": [None, 2.0], "width": [32, 5], "share_layers": [False, True]}


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    options, layer = model["options"], 0 if model["options"]["share_layers"] else model["layer"]
    own = {name: value[layer] for name, value in model["parameters"].items()}
    threshold = model["train_length"] / 4 if options["threshold"] is None else options["threshold"]
    return {"limit": abs(own.pop("factor") * threshold), **own}


# One head of width 1, c = 1, threshold 3, two hidden channels: relu(s) and relu(1/2 - s) of the share s, then
# 2·first + 4·second + 1/4. q = 2; log 2 = 0.6931471805599453.
#   query at 7, beyond the threshold: scale log 8. k = 3, 0, 0 at positions 7, 4, 0, so distances 0, 3, 7:
#     s = 0                                2·3 + 4/2 + 1/4 = 8.25
#     s = log 4 / (log 8 + 10⁻⁶) = 0.6666663460679229      2s + 1/4 = 1.5833326921358457
#     s = log 8 / (log 8 + 10⁻⁶) = 0.9999995191018842      2s + 1/4 = 2.2499990382037685
#   query at 1, within it: scale log 4. Key 0 at position 0, distance 1:
#     s = log 2 / (log 4 + 10⁻⁶) = 0.4999996393265     2s + 4(1/2 - s) + 1/4 = 2.25 - 2s = 1.250000721347
GOLDEN = {
    "q": [[[[2.0]]]],
    "k": [[[[3.0], [0.0], [0.0]]]],
    "q_positions": [[7]],
    "k_positions": [[7, 4, 0]],
    "parameters": {
        "c": [1.0],
        "factor": [1.0],
        "weight_in": [[[1.0], [-1.0]]],
        "bias_in": [[0.0, 0.5]],
        "weight_out": [[[2.0, 4.0]]],
        "bias_out": [[0.25]],
    },
    "options": {"threshold": 3.0, "width": 2},
    "scores": [[[[8.25, 1.5833326921358457, 2.2499990382037685]]]],
}
GOLDEN_WITHIN = GOLDEN | {
    "k": [[[[0.0]]]],
    "q_positions": [[1]],
    "k_positions": [[0]],
    "scores": [[[[1.250000721347]]]],
}
# Computed in float32 by the class FIRE of mcleish7/arithmetic 86022a5 (cramming/architectures/embeddings.py) for 1001
# tokens, in evaluation; that of chuanyang-Zheng/DAPE bde344a (DAPE.py) gave the same numbers to the last digit. The
# paper's authors released their code as a listing only. One query within the threshold of 96, one beyond it.
WEIGHTS = {
    "c": [0.25],
    "factor": [1.5],
    "weight_in": [[[0.5], [-1.0], [2.0]]],
    "bias_in": [[0.25, 0.5, -1.0]],
    "weight_out": [[[1.0, -2.0, 0.5], [0.25, 3.0, -1.5]]],
    "bias_out": [[0.125, -0.75]],
}
RELEASED = [
    {
        "source": "mcleish7/arithmetic@86022a5",
        "options": {"threshold": 64.0, "width": 3},
        "parameters": WEIGHTS,
        "q_positions": [query],
        "k_positions": keys,
        "bias": bias,
        "rtol": 1e-6,
    }
    for query, keys, bias in (
        (
            50,
            [0, 20, 49, 50],
            [
                [[1.0878562927246094, 0.8722731471061707, -0.4516914486885071, -0.625]],
                [[-1.5121409893035889, -1.098940134048462, 0.6131951808929443, 0.8125]],
            ],
        ),
        (
            1000,
            [0, 500, 990, 1000],
            [
                [[1.374999761581421, 1.1879098415374756, -0.058185458183288574, -0.625]],
                [[-2.062499523162842, -1.7039103507995605, 0.16066324710845947, 0.8125]],
            ],
        ),
    )
]
