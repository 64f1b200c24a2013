"""TUPE: words meet words and positions meet positions, each by projections of their own.

Ke et al. 2021, "Rethinking Positional Encoding in Language Pre-training" (arXiv:2006.15595), section 3.1:

    α_ij = (x_i W_Q)·(x_j W_K)/√(2d) + (p_i U_Q)·(p_j U_K)/√(2d) + b_{j-i}

with one p, U_Q and U_K for all layers; b, by the buckets of T5, is in TUPE-R and not in TUPE-A. Code of the authors,
guolinke/TUPE 4c64ff7, fairseq/modules/transformer_sentence_encoder.py: p is a learned table behind a layer norm, both
projections have biases (that of the keys adds the same to all scores of a query, and is zero here); b is not divided; two
rows of the table and two of b are for the token [CLS] at the front, which is left out here.
"""

import math

import numpy as np


def normed(vector, weight, bias):
    """Layer norm of one vector."""
    centred = vector - vector.sum() / len(vector)
    return weight * centred / math.sqrt((centred**2).sum() / len(vector) + 1e-5) + bias


def bucket(distance, buckets, max_distance, causal):
    """T5's bucket of query position minus key position: the last whose first distance is not greater."""
    count = buckets if causal else buckets // 2
    size = max(distance, 0) if causal else abs(distance)
    exact = count // 2
    found = min(size, exact)
    for step in range(1, count - exact):
        # size >= exact (max_distance/exact)^(step/(count - exact)), in whole numbers
        if size ** (count - exact) * exact**step >= max_distance**step * exact ** (count - exact):
            found = exact + step
    return found + (count if distance < 0 and not causal else 0)


def scores(q, k, q_positions, k_positions, table, norm, query, key, by_bucket, buckets, max_distance, causal):
    """α: q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K).

    table (P, M), norm its weight and bias, query U_Q (H, D, M) and its bias (H, D), key U_K (H, D, M), by_bucket (buckets, H)
    or None.
    """
    batch, heads, queries, width = q.shape
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, h, i, j in np.ndindex(out.shape):
        at_query, at_key = q_positions[b][i], k_positions[b][j]
        left = query[0][h] @ normed(table[at_query], *norm) + query[1][h]
        right = key[h] @ normed(table[at_key], *norm)
        out[b, h, i, j] = (q[b, h, i] @ k[b, h, j] + left @ right) / math.sqrt(2 * width)
        if by_bucket is not None:
            out[b, h, i, j] += by_bucket[bucket(at_query - at_key, buckets, max_distance, causal)][h]
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"buckets": [32, 8], "max_distance": [64, 20], "max_positions": [None, 64], "relative": [True, False]}
REFUSED = [
    ({"max_positions": 8}, {}, r"pe\.max_positions=8 is shorter than train\.length=16"),
    ({"buckets": 31}, {}, r"pe\.buckets=31 does not split evenly"),
]


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    own, options = model["parameters"], model["options"]
    return {
        "table": own["table"],
        "norm": (own["norm_weight"], own["norm_bias"]),
        "query": (own["query_weight"], own["query_bias"]),
        "key": own["key_weight"],
        "by_bucket": own.get("by_bucket"),
        "buckets": options["buckets"],
        "max_distance": options["max_distance"],
        "causal": model["causal"],
    }


# One head of width 2, d_model 2. A row (1, 5) is centred to (-2, 2) with the mean square 4: ∓2/√4.00001, n = 0.9999987500023437
# with signs; (3, 1) likewise to (m, -m) with the mean square 1: m = 1/√1.00001 = 0.9999950000374997. Norm weight (1, 2), bias
# (0, 1): rows (-n, 2n + 1) and (m, 1 - 2m). U_Q = ((1, 0), (0, 1)), bias (10, 0); U_K = ((0, 1), (1, 0)). q = (1, 0), k = (4, 7).
#   query at 1, key at 0: (10 + m, 1 - 2m)·(2n + 1, -n) + 4, over √4 = 2; distance 1 adds 0.5
#   query at 1, key at 1: (10 + m, 1 - 2m)·(1 - 2m, m) + 4, over 2; distance 0 adds 0.25
N, M = 2 / math.sqrt(4.00001), 1 / math.sqrt(1.00001)
GOLDEN = {
    "q": [[[[1.0, 0.0]]]],
    "k": [[[[4.0, 7.0], [4.0, 7.0]]]],
    "q_positions": [[1]],
    "k_positions": [[0, 1]],
    "parameters": {
        "table": [[1.0, 5.0], [3.0, 1.0], *[[0.0, 0.0]] * 14],
        "norm_weight": [1.0, 2.0],
        "norm_bias": [0.0, 1.0],
        "query_weight": [[[1.0, 0.0], [0.0, 1.0]]],
        "query_bias": [[10.0, 0.0]],
        "key_weight": [[[0.0, 1.0], [1.0, 0.0]]],
        "by_bucket": [[0.25], [0.5], [0.0], [0.0]],
    },
    "options": {"buckets": 4, "max_distance": 8, "max_positions": 16},
    "scores": [
        [
            [
                [
                    ((10 + M) * (2 * N + 1) - (1 - 2 * M) * N + 4) / 2 + 0.5,
                    ((10 + M) * (1 - 2 * M) + (1 - 2 * M) * M + 4) / 2 + 0.25,
                ]
            ]
        ]
    ],
}


def wave(step, *shape):
    """Numbers to compare with: sin(step), sin(2 step), ... to three digits, in this shape."""
    return np.sin(step * np.arange(1, math.prod(shape) + 1)).round(3).reshape(shape)


# self_attn_bias of TransformerSentenceEncoder, TUPE 4c64ff7, two heads of width 2, 15 tokens, 8 buckets to 10: what is added to the
# content term, for three queries and six keys other than the first token, [CLS]. Position p has the row p + 1 there.
RELEASED = [
    {
        "source": f"guolinke/TUPE@4c64ff7, rel_pos {relative}",
        "options": {"buckets": 8, "max_distance": 10, "max_positions": 16, "relative": relative},
        "parameters": {
            "table": [*wave(1.9, 16, 4)[1:].tolist(), [0.0] * 4],
            "norm_weight": wave(0.3, 4).tolist(),
            "norm_bias": wave(0.5, 4).tolist(),
            "query_weight": wave(0.7, 2, 2, 4).tolist(),
            "query_bias": wave(2.1, 2, 2).tolist(),
            "key_weight": wave(1.3, 2, 2, 4).tolist(),
            **({"by_bucket": wave(1.1, 9, 2)[:8].tolist()} if relative else {}),
        },
        "causal": False,
        "q": np.zeros((2, 3, 2)).tolist(),
        "k": np.zeros((2, 6, 2)).tolist(),
        "q_positions": [1, 6, 14],
        "k_positions": [1, 2, 5, 6, 9, 14],
        "scores": scores,
        "rtol": 1e-9,
    }
    for relative, scores in (
        (
            True,
            [
                [
                    [-4.2333147439, -3.5102278283, -3.0104513503, -5.629191092, -1.5095035385, -2.3260583149],
                    [-4.0474909341, -3.6516027597, -4.1567995338, -3.9229540713, 0.1292414355, -2.3803863593],
                    [-3.0626310769, -1.6977534063, -1.8659093226, -2.9768857299, 0.6784605169, -0.0283692479],
                ],
                [
                    [3.9492341038, 3.320935517, 1.7756136755, 2.3145758878, -1.4850079715, -1.098514743],
                    [3.5752820743, 2.7875248892, 0.590175753, 3.8789895966, -0.0600268299, -0.9277817406],
                    [3.3609326698, 3.2964739215, 1.5421795227, 3.5567427919, -0.2497653851, 0.2747422058],
                ],
            ],
        ),
        (
            False,
            [
                [
                    [-5.1243147439, -3.0602278283, -3.9974513503, -4.917191092, -0.7975035385, -1.6140583149],
                    [-5.0354909341, -2.9456027597, -3.9987995338, -4.8139540713, -0.8577585645, -1.6683863593],
                    [-4.0506310769, -2.6857534063, -2.8539093226, -3.9648857299, -0.3095394831, -0.9193692479],
                ],
                [
                    [3.1412341038, 2.728935517, 1.4726136755, 3.2635758878, -0.5360079715, -0.149514743],
                    [2.9902820743, 2.4755248892, 1.542175753, 3.0709895966, -0.3630268299, 0.0212182594],
                    [2.7759326698, 2.7114739215, 0.9571795227, 2.9717427919, -0.8347653851, -0.5332577942],
                ],
            ],
        ),
    )
]
