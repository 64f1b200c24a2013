"""DAPE V2: a convolution along the keys of the scores and biases of all heads corrects the scores.

Zheng et al. 2024, "DAPE V2: Process Attention Score as Feature Map for Length Extrapolation" (arXiv:2410.04798): A + B +
f(A, B) as in the first DAPE, where the two layers of f are convolutions that look at 3 neighbouring keys. By the released
code (chuanyang-Zheng/DAPE bde344a, megatron/model/positional_embeddings.py, Alibi_DAPEV2, Kerple_DAPEV2, FIRE_DAPEV2): A and
B are 0 for keys after the query, the hidden layer is not; layers start as torch.nn.Conv2d does. Biases as in DAPE: ALiBi
(Press et al. 2022, arXiv:2108.12409), KERPLE log (Chi et al. 2022, arXiv:2205.09921), FIRE (Li et al. 2024, arXiv:2310.04418).

There the hidden layer has no key after the last token of a batch, so that the last query's scores change once there is
another token. Here there are always keys after a causal query, as there for all queries but the last.
"""

import math

import numpy as np


def bias(over, heads, distance, query, own, threshold, causal):
    """The bias of all heads for one pair of positions, (H,). In a causal model ALiBi's has the sign of the distance."""
    if over == "alibi":
        below = 1 << (heads.bit_length() - 1)
        exponents = [8 * (h + 1) / below for h in range(below)] + [
            4 * (2 * h + 1) / below for h in range(heads - below)
        ]
        return -(2.0 ** -np.array(exponents)) * (distance if causal else abs(distance))
    if over == "kerple_log":
        return -np.exp(own["log_r1"]) * np.log(1 + np.exp(own["log_r2"]) * abs(distance))
    c, limit = abs(own["c"][0]), max(query, abs(own["factor"][0] * threshold))
    share = math.log1p(c * abs(distance)) / (math.log1p(c * limit) + 1e-6)
    hidden = own["weight_in"][0][:, 0] * share + own["bias_in"][0]
    return own["weight_out"][0] @ np.where(hidden > 0, hidden, 0.0) + own["bias_out"][0]


def convolved(maps, weight, offset):
    """maps by place (C,), weight (O, C, keys), offset (O,): what each output place gets from its neighbours, zeros beyond."""
    side = weight.shape[2] // 2
    return lambda place: (
        offset
        + sum(
            weight[:, :, tap] @ maps[place + tap - side] for tap in range(weight.shape[2]) if place + tap - side in maps
        )
    )


def scores(q, k, q_positions, k_positions, causal, over, own, threshold, weight_in, bias_in, weight_out, bias_out):
    """A + B + f(A, B): q (B, H, Q, D), k (B, H, K, D), weights (W, 2H, keys) and (H, W, keys), `own` what the bias learns.

    The queries are the last Q of the K tokens. Zero where a query does not see the key.
    """
    batch, heads, queries, width = q.shape
    keys, side = k.shape[2], weight_in.shape[2] // 2
    out = np.zeros((batch, heads, queries, keys))
    for b, i in np.ndindex(batch, queries):
        seen = keys - queries + i + 1 if causal else keys
        query, plain, added = q_positions[b][i], {}, {}
        for j in range(seen):
            plain[j] = np.array([np.dot(q[b, h, i], k[b, h, j]) for h in range(heads)]) / math.sqrt(width)
            added[j] = bias(over, heads, query - k_positions[b][j], query, own, threshold, causal)
        first = convolved({j: np.concatenate([plain[j], added[j]]) for j in plain}, weight_in, bias_in)
        hidden = {j: first(j) for j in range(seen + (side if causal else 0))}
        second = convolved({j: np.maximum(h, 0.01 * h) for j, h in hidden.items()}, weight_out, bias_out)
        for j in range(seen):
            out[b, :, i, j] = plain[j] + added[j] + second(j)
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"over": ["kerple_log", "alibi", "fire"], "width": [32, 5], "kernel": [3, 5]}
REFUSED = [({"kernel": 4}, {}, r"pe\.kernel=4 has no middle.*such as 5")]
# FIRE's scale is the query's position.
NOT_SHIFT_INVARIANT = [{"over": "fire"}]
# Convolutions along the keys, with all options.
BY_NEIGHBOURS = [{}]


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    over, layer = model["options"]["over"], model["layer"]
    inner, own = {}, {}
    for key, value in model["parameters"].items():
        if key.startswith("over."):
            inner[key[5:]] = value[[layer]] if over == "fire" else value
        else:
            own[key] = value[layer]
    return {
        "causal": model["causal"],
        "over": over,
        "own": inner,
        "threshold": model.get("train_length", 0) / 4,
        **own,
    }


# One head of width 1 over KERPLE with r1 = 1, r2 = 1, B = -ln 1 = 0 at distance 0: all positions are 7. q = 1, the second of
# two tokens, A = 5, 1. One hidden channel: A of the key before + 10 A + 100 A of the key after, 0 for absent ones; the
# second layer takes 1/1000 of the hidden key after.
#   hidden of key 0: 10 · 5 + 100 · 1 = 150    of key 1: 5 + 10 · 1 = 15    of the key after the query: 1
#   5 + 15/1000 = 5.015      1 + 1/1000 = 1.001
GOLDEN = {
    "q": [[[[1.0]]]],
    "k": [[[[5.0], [1.0]]]],
    "q_positions": [[7]],
    "k_positions": [[7, 7]],
    "parameters": {
        "over.log_r1": [0.0],
        "over.log_r2": [0.0],
        "weight_in": [[[[1.0, 10.0, 100.0], [0.0, 0.0, 0.0]]]],
        "bias_in": [[0.0]],
        "weight_out": [[[[0.0, 0.0, 0.001]]]],
        "bias_out": [[0.0]],
    },
    "options": {"width": 1},
    "scores": [[[[5.015, 1.001]]]],
}
# By the modules Alibi_DAPEV2 and Kerple_DAPEV2 of chuanyang-Zheng/DAPE bde344a (megatron/model/positional_embeddings.py) in
# float64, given q·k/√D of four tokens; the first three are here, the last query having no key after it there. 0 where a
# query does not see the key.
NETWORK = {
    "weight_in": [
        [
            [[0.78, 1.17, -1.08], [-0.89, 1.31, 0.55], [-1.45, -0.17, 1.5], [-0.21, -1.45, 0.58]],
            [[1.29, -0.92, -1.06], [1.19, 0.75, -1.38], [-0.39, 1.49, 0.01], [-1.49, 0.37, 1.39]],
            [[-0.73, -1.2, 1.04], [0.94, -1.28, -0.61], [1.44, 0.23, -1.5], [0.15, 1.46, -0.53]],
        ]
    ],
    "bias_in": [[0.37, 1.39, -0.73]],
    "weight_out": [
        [
            [[0.91, 1.07, -1.18], [-0.76, 1.38, 0.41], [-1.48, -0.02, 1.49]],
            [[-0.36, -1.4, 0.72], [1.21, -1.03, -0.95], [1.28, 0.62, -1.44]],
        ]
    ],
    "bias_out": [[0.65, 1.26]],
}
KERPLE = {"over.log_r1": [math.log(0.8), math.log(1.2)], "over.log_r2": [math.log(0.3), math.log(0.9)]}
RELEASED = [
    {
        "source": "chuanyang-Zheng/DAPE@bde344a",
        "options": {"over": over, "width": 3},
        "parameters": NETWORK | (KERPLE if over == "kerple_log" else {}),
        "q": [[[0.44, 1.36], [-0.79, -1.16], [1.09, 0.88]], [[1.46, 0.16], [-1.5, 0.22], [1.44, -0.6]]],
        "k": [[[1.34, 0.5], [-1.47, -0.12], [1.5, -0.26]], [[1.27, -0.96], [-1.02, 1.22], [0.71, -1.4]]],
        "q_positions": [0, 1, 2],
        "k_positions": [0, 1, 2],
        "scores": of_heads,
        "rtol": 1e-6,  # slopes held in float32 there
    }
    for over, of_heads in (
        (
            "alibi",
            [
                [
                    [8.404376298309721, 0.0, 0.0],
                    [-5.034283914186539, 3.038123215599944, 0.0],
                    [19.11958144735645, -1.5852690179994062, 0.7480741807366096],
                ],
                [
                    [-7.038513435678535, 0.0, 0.0],
                    [4.207061488930649, -2.9459396049706608, 0.0],
                    [-15.193575913394056, 6.332776527226952, 0.19117269093062594],
                ],
            ],
        ),
        (
            "kerple_log",
            [
                [
                    [8.404376298309721, 0.0, 0.0],
                    [-5.595445218229202, 5.175804874113148, 0.0],
                    [15.52479704896739, 2.3546811624474913, 2.612798846983339],
                ],
                [
                    [-7.038513435678535, 0.0, 0.0],
                    [2.9783912440847042, -4.9704895261454425, 0.0],
                    [-14.991995479927525, 0.5600288387706978, -0.8047889669112587],
                ],
            ],
        ),
    )
]
