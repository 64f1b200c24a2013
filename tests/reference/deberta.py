"""DeBERTa's disentangled attention: content meets a vector of the distance, on the side of the key and of the query.

He et al. 2020, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention" (arXiv:2006.03654), section 3.1:

    Ã_ij = Q_i·K_j + Q_i·K^r_δ(i,j) + K_j·Q^r_δ(j,i),    scores Ã/√(3d)                                       (4)
    δ(i, j) = 0 for i - j <= -k,  2k - 1 for i - j >= k,  else i - j + k                                      (3)

K^r = P W_K,r and Q^r = P W_Q,r of one table P (2k rows) for all layers. The released code divides by √((1 + terms) d) and
takes the last product at δ(i, j), not δ(j, i): microsoft/DeBERTa 4d7fe0b, DeBERTa/deberta/disentangled_attention.py, gathers
p2c_att with the index of c2p_att, and transformers 5.24, deberta_v2, comes to the same through two changes of sign. Both
are here. Version 2 puts distances in buckets first (da_utils.py, make_log_bucket_position): with m = buckets // 2

    bucket(d) = d for |d| <= m,  else sign(d) (m + ⌈ ln(|d|/m) / ln((max_distance - 1)/m) · (m - 1) ⌉),

|d| at most max_distance - 1, and δ = bucket + buckets. Decided here in whole numbers. A causal model has the rows of
distances from 0 up alone, unless the two terms take opposite distances.
"""

import math

import numpy as np


def bucket(distance, buckets, max_distance):
    """Signed bucket of query position minus key position; as many buckets as distances: the distance itself."""
    if buckets == max_distance:
        return distance
    middle, size = buckets // 2, min(abs(distance), max_distance - 1)
    steps = 0
    # The ceiling is the least number of steps with (size/m)^(m - 1) <= ((max_distance - 1)/m)^steps.
    while size ** (middle - 1) * middle**steps > (max_distance - 1) ** steps * middle ** (middle - 1):
        steps += 1
    place = size if size <= middle else middle + steps
    return place if distance >= 0 else -place


def row(distance, buckets, max_distance, one_sided):
    """δ, the row of P."""
    place = bucket(distance, buckets, max_distance)
    if one_sided:
        return min(max(place, 0), buckets - 1)
    return min(max(place + buckets, 0), 2 * buckets - 1)


def scores(q, k, q_positions, k_positions, table, key, query, buckets, max_distance, opposite, one_sided):
    """Ã/√((1 + terms) D): q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K).

    key is W_K,r of one layer, (H, D, M), query W_Q,r and its bias, (H, D, M) and (H, D); None: without that term.
    """
    batch, heads, queries, width = q.shape
    out = np.zeros((batch, heads, queries, k.shape[2]))
    terms = 1 + (key is not None) + (query is not None)
    for b, h, i, j in np.ndindex(out.shape):
        distance = int(q_positions[b][i]) - int(k_positions[b][j])
        total = q[b, h, i] @ k[b, h, j]
        if key is not None:
            total += q[b, h, i] @ (key[h] @ table[row(distance, buckets, max_distance, one_sided)])
        if query is not None:
            vector = table[row(-distance if opposite else distance, buckets, max_distance, one_sided)]
            total += k[b, h, j] @ (query[0][h] @ vector + query[1][h])
        out[b, h, i, j] = total / math.sqrt(terms * width)
    return out


# The values of each option that the tests go through, the default first.
VALUES = {
    "buckets": [32, 8],
    "max_distance": [64, 40],
    "c2p": [True, False],
    "p2c": [True, False],
    "p2c_distance": ["query_minus_key", "key_minus_query"],
}
REFUSED = [
    ({"c2p": False, "p2c": False}, {}, r"pe\.c2p=false with pe\.p2c=false .*pe=none"),
    ({"buckets": 65}, {}, r"pe\.buckets=65 is more than pe\.max_distance=64.*pe\.buckets=64"),
    ({"buckets": 7}, {}, r"pe\.buckets=7 is odd.*pe\.max_distance=7"),
]


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    parameters, options, layer = model["parameters"], model["options"], model["layer"]
    opposite = options["p2c"] and options["p2c_distance"] == "key_minus_query"
    return {
        "table": parameters["table"],
        "key": parameters["key_weight"][layer] if options["c2p"] else None,
        "query": (parameters["query_weight"][layer], parameters["query_bias"][layer]) if options["p2c"] else None,
        "buckets": options["buckets"],
        "max_distance": options["max_distance"],
        "opposite": opposite,
        "one_sided": model["causal"] and not opposite,
    }


# Buckets 4, max_distance 10, both directions: m = 2, so distances to 2 have a bucket of their own, and bucket 2 + 1 all beyond:
# ⌈ln(|d|/2)/ln(9/2)·1⌉ = 1 for 2 < |d| <= 9. One head of width 1, d_model 1, W_K,r = 10, W_Q,r = 100, bias 1000, P = 0..7, so
# row r gives K^r = 10 r and Q^r = 100 r + 1000. q = 2 at position 20, k = 3 at 20, 19, 13, 21, 40: distances 0, 1, 7, -1, -20,
# buckets 0, 1, 3, -1, -3 and rows 4, 5, 7, 3, 1. (2·3 + 2·10 r + 3·(100 r + 1000))/√3 = (3006 + 320 r)/√3.
GOLDEN = {
    "q": [[[[2.0]]]],
    "k": [[[[3.0], [3.0], [3.0], [3.0], [3.0]]]],
    "q_positions": [[20]],
    "k_positions": [[20, 19, 13, 21, 40]],
    "parameters": {
        "table": [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0], [6.0], [7.0]],
        "key_weight": [[[[10.0]]]],
        "query_weight": [[[[100.0]]]],
        "query_bias": [[[1000.0]]],
    },
    "options": {"buckets": 4, "max_distance": 10},
    "causal": False,
    "scores": [
        [[[4286 / math.sqrt(3), 4606 / math.sqrt(3), 5246 / math.sqrt(3), 3966 / math.sqrt(3), 3326 / math.sqrt(3)]]]
    ],
}
# The same by the paper: no buckets, k = 4, so rows i - j + 4 from 0 to 7, and Q^r at the opposite distance. Distances 0, 1, 7,
# -1, -20: rows 4, 5, 7, 3, 0, and of the opposite 4, 3, 0, 5, 7. 6 + 20 r + 300 s + 3000 with r and s.
GOLDEN_PAPER = GOLDEN | {
    "options": {"buckets": 4, "max_distance": 4, "p2c_distance": "key_minus_query"},
    "scores": [
        [[[4286 / math.sqrt(3), 4006 / math.sqrt(3), 3146 / math.sqrt(3), 4566 / math.sqrt(3), 5106 / math.sqrt(3)]]]
    ],
}
# One term and a causal model: rows by bucket, P = 0..3, (6 + 20 r)/√2 at the distances 7, 1, 0.
GOLDEN_CAUSAL = GOLDEN | {
    "k": [[[[3.0], [3.0], [3.0]]]],
    "k_positions": [[13, 19, 20]],
    "parameters": {"table": [[0.0], [1.0], [2.0], [3.0]], "key_weight": [[[[10.0]]]]},
    "options": {"buckets": 4, "max_distance": 10, "p2c": False},
    "causal": True,
    "scores": [[[[66 / math.sqrt(2), 26 / math.sqrt(2), 6 / math.sqrt(2)]]]],
}


def wave(step, *shape):
    """Numbers to compare with: sin(step), sin(2 step), ... to three digits, in this shape."""
    return np.sin(step * np.arange(1, math.prod(shape) + 1)).round(3).reshape(shape)


# DisentangledSelfAttention of DeBERTa 4d7fe0b, two heads of width 2, 24 tokens: the scores of three queries with seven keys, with
# log buckets (position_buckets 8, max_relative_positions 16) and without (max_relative_positions 6).
RELEASED = [
    {
        "source": f"microsoft/DeBERTa@4d7fe0b, {buckets} buckets",
        "options": {"buckets": buckets, "max_distance": max_distance},
        "parameters": {
            "table": wave(1.9, 2 * buckets, 4).tolist(),
            "key_weight": [wave(0.7, 2, 2, 4).tolist()],
            "query_weight": [wave(1.3, 2, 2, 4).tolist()],
            "query_bias": [wave(2.1, 2, 2).tolist()],
        },
        "causal": False,
        "q": wave(0.9, 2, 24, 2)[:, [0, 11, 23]].tolist(),
        "k": wave(1.1, 2, 24, 2)[:, [0, 3, 7, 11, 15, 20, 23]].tolist(),
        "q_positions": [0, 11, 23],
        "k_positions": [0, 3, 7, 11, 15, 20, 23],
        "scores": scores,
        "rtol": 1e-9,
    }
    for buckets, max_distance, scores in (
        (
            8,
            16,
            [
                [
                    [
                        1.6594220433,
                        0.1488591965,
                        -0.6582562102,
                        -0.505778854,
                        0.1650656371,
                        -0.3781005737,
                        -0.2752113215,
                    ],
                    [-0.4951371242, 0.6896491782, -0.8641131731, 0.6453962919, 0.769937516, 0.4506791609, -0.323485335],
                    [
                        -1.3536314287,
                        -1.1240239291,
                        1.6603082364,
                        -1.167272267,
                        0.6920903792,
                        -1.0812463117,
                        0.2977643051,
                    ],
                ],
                [
                    [
                        0.072011223,
                        -0.6154089763,
                        0.9316223796,
                        -0.946889703,
                        -0.3788367491,
                        -1.6433051295,
                        -1.6149117663,
                    ],
                    [
                        -1.4438107587,
                        -0.2243020762,
                        0.8094714558,
                        0.1566795359,
                        0.2783015561,
                        -1.5501529317,
                        -1.7455657639,
                    ],
                    [
                        -0.1190270002,
                        -0.0030547558,
                        0.5088872606,
                        -0.2732088693,
                        0.7037596185,
                        -0.452077931,
                        0.6122693497,
                    ],
                ],
            ],
        ),
        (
            6,
            6,
            [
                [
                    [
                        -0.2913758864,
                        1.5526664801,
                        -0.0101487553,
                        -0.3739311421,
                        0.6387176213,
                        0.2364130524,
                        0.4222082456,
                    ],
                    [
                        -0.2048812968,
                        -0.1203785796,
                        0.4128252045,
                        -0.5539148894,
                        0.0800870282,
                        0.0660985944,
                        0.3137760635,
                    ],
                    [
                        -1.083618841,
                        -0.9776655338,
                        1.2938477013,
                        -0.7219123171,
                        0.2763149725,
                        -0.399037306,
                        -1.0827404943,
                    ],
                ],
                [
                    [
                        -1.75295595,
                        -0.2134044809,
                        0.6107315274,
                        -0.6473426503,
                        0.5005343348,
                        -0.4458000374,
                        -0.2717883682,
                    ],
                    [
                        -1.8078874007,
                        -1.9484232939,
                        0.9866125237,
                        -0.6379011125,
                        -0.9035445102,
                        -0.6562912622,
                        -0.5570180157,
                    ],
                    [
                        -0.4487227633,
                        -0.4800734677,
                        0.7194466244,
                        -0.031881695,
                        -0.0127511165,
                        0.7568702525,
                        -0.3977784977,
                    ],
                ],
            ],
        ),
    )
]
# make_log_bucket_position(d, 8, 16) of the same for d = 0 to 20.
RELEASED_BUCKETS = [0, 1, 2, 3, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]
