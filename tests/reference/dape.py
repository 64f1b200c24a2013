"""DAPE: a network of the scores and biases of all heads corrects the scores.

Zheng et al. 2024, "DAPE: Data-Adaptive Positional Encoding for Length Extrapolation" (arXiv:2405.14722): A + B + f(A, B),
pair by pair, where A are scores of the heads, B their biases by position and f two layers with a leaky ReLU of slope 0.01.
By the released code (chuanyang-Zheng/DAPE bde344a, megatron/model/positional_embeddings.py, AliBi_C, ParallelKerpleLog_C,
FIRE_C): A is scaled by 1/√D and not masked, the hidden layer has 32 channels, layers start as torch.nn.Linear does. The biases:
ALiBi (Press et al. 2022, arXiv:2108.12409), KERPLE log (Chi et al. 2022, arXiv:2205.09921), FIRE (Li et al. 2024,
arXiv:2310.04418) with their usual constants; there FIRE has a leaky ReLU too and half the train length for a threshold.
"""

import math

import numpy as np


def slopes(heads):
    """ALiBi's."""
    below = 2 ** int(math.log2(heads))
    first = [2.0 ** (-8 * (h + 1) / below) for h in range(below)]
    return first + [2.0 ** (-4 * (2 * h + 1) / below) for h in range(heads - below)]


def bias(over, heads, query, key, own, threshold, causal):
    """The bias of all heads for one pair of positions, (H,). In a causal model ALiBi's has the sign of the distance."""
    far = abs(query - key)
    if over == "alibi":
        return -np.array(slopes(heads)) * (query - key if causal else far)
    if over == "kerple_log":
        return -np.exp(own["log_r1"]) * np.log1p(np.exp(own["log_r2"]) * far)
    c, limit = own["c"][0], max(query, abs(own["factor"][0] * threshold))
    share = math.log(1 + abs(c * far)) / (math.log(1 + abs(c * limit)) + 1e-6)
    hidden = np.maximum(own["weight_in"][0][:, 0] * share + own["bias_in"][0], 0)
    return own["weight_out"][0] @ hidden + own["bias_out"][0]


def scores(q, k, q_positions, k_positions, causal, over, own, threshold, weight_in, bias_in, weight_out, bias_out):
    """A + B + f(A, B): q (B, H, Q, D), k (B, H, K, D), weights (W, 2H, 1) and (H, W, 1), `own` what the bias learns.

    The queries are the last Q of the K tokens.
    """
    batch, heads, queries, width = q.shape
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, i, j in np.ndindex(batch, queries, k.shape[2]):
        plain = np.array([np.dot(q[b, h, i], k[b, h, j]) for h in range(heads)]) / math.sqrt(width)
        added = bias(over, heads, q_positions[b][i], k_positions[b][j], own, threshold, causal)
        hidden = weight_in[:, :, 0] @ np.concatenate([plain, added]) + bias_in
        out[b, :, i, j] = plain + added + weight_out[:, :, 0] @ np.where(hidden > 0, hidden, 0.01 * hidden) + bias_out
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"over": ["kerple_log", "alibi", "fire"], "width": [32, 5]}
# A bidirectional model cannot tell left from right by these biases, and the network looks at one pair.
BLIND_TO_SIDES = [{"over": "kerple_log"}, {"over": "alibi"}]
# FIRE's scale is the query's position.
NOT_SHIFT_INVARIANT = [{"over": "fire"}]


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    layer, learned = model["layer"], model["parameters"]
    inner = {key.removeprefix("over."): value for key, value in learned.items() if key.startswith("over.")}
    if model["options"]["over"] == "fire":  # one network for each layer
        inner = {key: value[layer : layer + 1] for key, value in inner.items()}
    own = {key: value[layer] for key, value in learned.items() if not key.startswith("over.")}
    threshold = model.get("train_length", 0) / 4
    return {"causal": model["causal"], "over": model["options"]["over"], "own": inner, "threshold": threshold, **own}


# One head of width 1 over KERPLE with r1 = 2, r2 = 1: q = 1 at 3, k = 5 at 2 and k = 1 at 3, so A = 5, 1 and
# B = -2 ln 2 = -1.3862943611198906, 0. Two hidden channels: A + 1 and 4 B, then 1 · first + 2 · second + 3:
#   6 + 2 · 0.01 · 4 · B + 3 = 9 + 0.08 B      A + B + that = 14 + 1.08 B = 12.502802089990518
#   2 + 0 + 3 = 5                              1 + 0 + 5 = 6
GOLDEN = {
    "q": [[[[1.0]]]],
    "k": [[[[5.0], [1.0]]]],
    "q_positions": [[3]],
    "k_positions": [[2, 3]],
    "parameters": {
        "over.log_r1": [math.log(2)],
        "over.log_r2": [0.0],
        "weight_in": [[[[1.0], [0.0]], [[0.0], [4.0]]]],
        "bias_in": [[1.0, 0.0]],
        "weight_out": [[[[1.0], [2.0]]]],
        "bias_out": [[3.0]],
    },
    "options": {"width": 2},
    "scores": [[[[12.502802089990518, 6.0]]]],
}
# By the modules AliBi_C and ParallelKerpleLog_C of chuanyang-Zheng/DAPE bde344a (megatron/model/positional_embeddings.py) in
# float64, given q·k/√D; 0 where a causal query does not see the key.
QUERIES = [
    [[0.44, 1.36], [-0.79, -1.16], [1.09, 0.88], [-1.32, -0.54]],
    [[1.46, 0.16], [-1.5, 0.22], [1.44, -0.6], [-1.29, 0.93]],
]
KEYS = [
    [[1.34, 0.5], [-1.47, -0.12], [1.5, -0.26], [-1.43, 0.63]],
    [[1.27, -0.96], [-1.02, 1.22], [0.71, -1.4], [-0.35, 1.49]],
]
NETWORK = {
    "weight_in": [
        [
            [[0.22], [1.44], [-0.6], [-1.29]],
            [[0.93], [1.05], [-1.2], [-0.74]],
            [[1.39], [0.38], [-1.49], [0.0]],
        ]
    ],
    "bias_in": [[0.37, 1.39, -0.73]],
    "weight_out": [[[[0.51], [1.33], [-0.86]], [[-1.11], [1.14], [0.82]]]],
    "bias_out": [[0.65, 1.26]],
}
KERPLE = {"over.log_r1": [math.log(0.8), math.log(1.2)], "over.log_r2": [math.log(0.3), math.log(0.9)]}
RELEASED = [
    {
        "source": "chuanyang-Zheng/DAPE@bde344a",
        "options": {"over": over, "width": 3},
        "parameters": NETWORK | (KERPLE if over == "kerple_log" else {}),
        "q": QUERIES,
        "k": KEYS,
        "q_positions": [0, 1, 2, 3],
        "k_positions": [0, 1, 2, 3],
        "scores": of_heads,
        "rtol": 1e-6,  # slopes held in float32 there
    }
    for over, of_heads in (
        (
            "alibi",
            [
                [
                    [6.520366532552436, 0.0, 0.0, 0.0],
                    [-0.5728382007102861, 6.670337028977392, 0.0, 0.0],
                    [7.8988752011740875, -0.6229952523658877, 6.838210182167652, 0.0],
                    [-0.985646085478342, 8.042378265633076, -0.716482493273227, 6.921252180296232],
                ],
                [
                    [4.6856260803381815, 0.0, 0.0, 0.0],
                    [-0.2546706505683256, 4.7913044474365805, 0.0, 0.0],
                    [6.239569065549541, -0.31539655568260794, 4.978674210427223, 0.0],
                    [-0.5587741147236323, 6.413575175056133, -0.3292985810365505, 5.157729147204301],
                ],
            ],
        ),
        (
            "kerple_log",
            [
                [
                    [6.520366532552436, 0.0, 0.0, 0.0],
                    [-0.7067311865174966, 6.670337028977392, 0.0, 0.0],
                    [9.819701447319236, -0.7568882381730982, 6.838210182167652, 0.0],
                    [-1.284017616958168, 9.963204511778226, -0.8503754790804374, 6.921252180296232],
                ],
                [
                    [4.6856260803381815, 0.0, 0.0, 0.0],
                    [-1.0226617992254114, 4.7913044474365805, 0.0, 0.0],
                    [4.772443620483298, -1.0833877043396938, 4.978674210427223, 0.0],
                    [-2.1199508502214517, 4.946449729989892, -1.0972897296936364, 5.157729147204301],
                ],
            ],
        ),
    )
]
