"""Dynamic (continuous) position bias: a small network from the signed logarithm of the distance to a bias a head.

Liu et al. 2022, "Swin Transformer V2" (arXiv:2111.09883), section 3.3: B(Δ) = G(sign(Δ) · log(1 + |Δ|)), where G is a small
network, by default two layers with a ReLU between. There Δ has two coordinates, here one: query minus key position. Left
out are the parts that belong to images and to its cosine attention: in the authors' code the coordinates are divided by
the window and the bias is 16 · sigmoid(G). x-transformers (DynamicPositionBias with log_distance) has the form for text,
with SiLU and two hidden layers.
"""

import math

import numpy as np


def bias(distance, layers, activation):
    """One number a head for one distance. layers: (weight (out, in), bias (out,)) of each."""
    values = np.array([math.copysign(math.log(1 + abs(distance)), distance)])
    for number, (weight, offset) in enumerate(layers):
        if number and activation == "relu":
            values = np.maximum(values, 0)
        elif number:
            with np.errstate(over="ignore"):  # far below 0: divided by infinity
                values = values / (1 + np.exp(-values))
        values = weight @ values + offset
    return values


def scores(q, k, q_positions, k_positions, layers, activation="relu"):
    """q·k/√D + G(distance)[h]: q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K)."""
    batch, heads, queries, width = q.shape
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, i, j in np.ndindex(batch, queries, k.shape[2]):
        added = bias(float(q_positions[b][i]) - float(k_positions[b][j]), layers, activation)
        for h in range(heads):
            out[b, h, i, j] = np.dot(q[b, h, i], k[b, h, j]) / math.sqrt(width) + added[h]
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"hidden_layers": [1, 3], "width": [None, 5], "activation": ["relu", "silu"]}


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    learned = model["parameters"]
    between = zip(learned.get("weight_hidden", []), learned.get("bias_hidden", []), strict=True)
    ends = [(learned[f"weight_{end}"], learned[f"bias_{end}"]) for end in ("in", "out")]
    return {"layers": [ends[0], *between, ends[1]], "activation": model["options"]["activation"]}


# One head of width 1, two hidden channels: relu(x) and relu(-x) of x = sign(Δ)·log(1 + |Δ|), then 3·first + 5·second + 1.
# q = 2 at position 9; k = 3, 0, 0, 0 at positions 9, 8, 10, 2, so Δ = 0, 1, -1, 7 and x = 0, log 2, -log 2, 3 log 2, where
# log 2 = 0.6931471805599453:
#   2·3 + 1 = 7      3·log 2 + 1 = 3.0794415416798357      5·log 2 + 1 = 4.465735902799727      9·log 2 + 1 = 7.238324625039508
GOLDEN = {
    "q": [[[[2.0]]]],
    "k": [[[[3.0], [0.0], [0.0], [0.0]]]],
    "q_positions": [[9]],
    "k_positions": [[9, 8, 10, 2]],
    "parameters": {
        "weight_in": [[1.0], [-1.0]],
        "bias_in": [0.0, 0.0],
        "weight_out": [[3.0, 5.0]],
        "bias_out": [1.0],
    },
    "options": {"width": 2},
    "scores": [[[[7.0, 3.0794415416798357, 4.465735902799727, 7.238324625039508]]]],
}
