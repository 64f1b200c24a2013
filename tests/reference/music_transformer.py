"""Relative attention of the Music Transformer: a vector for each distance and head, times the query.

Huang et al. 2018, "Music Transformer" (arXiv:1809.04281), section 3: softmax((Q Kᵀ + S_rel)/√D_h) V, S_rel the product of
queries with the embeddings E of relative distances, each row moved to its place ("skewing"). Here nothing is moved: the
product of a query and a key is that with the vector of their distance.

Code of the authors, tensorflow/tensor2tensor bafdc1b, tensor2tensor/layers/common_attention.py,
dot_product_self_attention_relative_v2: max_relative_position rows, the last for distance 0, where here the first is; a
shorter table is filled up with zeros, so keys further away get nothing added; one table for each head, or one for all with
heads_share_relative_embedding; those of a layer are its own. For keys after the query the code leaves what happens to stand
there; here they get nothing.
"""

import numpy as np


def scores(q, k, q_positions, k_positions, table):
    """(q·k + q·table[h, i - j])/√D: q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K), table (H or 1, rows, D)."""
    batch, heads, queries, width = q.shape
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, h in np.ndindex(batch, heads):
        own = table[h if len(table) > 1 else 0]
        for i, query in enumerate(q_positions[b]):
            with_each = own @ q[b, h, i]
            for j, key in enumerate(k_positions[b]):
                extra = with_each[query - key] if 0 <= query - key < len(own) else 0.0
                out[b, h, i, j] = (q[b, h, i] @ k[b, h, j] + extra) / width**0.5
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"max_distance": [None, 5], "share_heads": [False, True]}


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    return {"table": model["parameters"]["table"][model["layer"]]}


# Two heads of width 1, three rows; q = 2 and -1 at position 6, keys 1 at 6, 5, 4, 3: distances 0, 1, 2, and 3, which has none.
#   head 0, table (1, 10, 100):  2 + 2 = 4     2 + 20 = 22     2 + 200 = 202     2
#   head 1, table (5, 6, 7):    -1 - 5 = -6   -1 - 6 = -7     -1 - 7 = -8      -1
GOLDEN = {
    "q": [[[[2.0]], [[-1.0]]]],
    "k": [[[[1.0], [1.0], [1.0], [1.0]], [[1.0], [1.0], [1.0], [1.0]]]],
    "q_positions": [[6]],
    "k_positions": [[3, 4, 5, 6]],
    "parameters": {"table": [[[[1.0], [10.0], [100.0]], [[5.0], [6.0], [7.0]]]]},
    "options": {"max_distance": 3},
    "scores": [[[[2.0, 202.0, 22.0, 4.0]], [[-1.0, -8.0, -7.0, -6.0]]]],
}


def wave(step, *shape):
    """Numbers to compare with: sin(step), sin(2 step), ... to three digits, in this shape."""
    return np.sin(step * np.arange(1, int(np.prod(shape)) + 1)).round(3).reshape(shape)


# dot_product_self_attention_relative_v2 of tensor2tensor bafdc1b, two heads of width 2, nine tokens, run with numpy in place of
# TensorFlow: scores of the last three queries, 0 where a key comes later. Its last row is that of distance 0.
RELEASED = [
    {
        "source": f"tensorflow/tensor2tensor@bafdc1b, {rows} rows",
        "options": {"max_distance": rows, "share_heads": share},
        "parameters": {"table": wave(1.9, 1, 1 if share else 2, rows, 2)[:, :, ::-1].tolist()},
        "q": wave(0.9, 2, 9, 2)[:, 6:].tolist(),
        "k": wave(1.1, 2, 9, 2).tolist(),
        "q_positions": [6, 7, 8],
        "k_positions": list(range(9)),
        "scores": scores,
        "rtol": 1e-9,
    }
    for rows, share, scores in (
        (
            9,
            False,
            [
                [
                    [
                        -0.4423419607,
                        -0.2870768679,
                        0.921705204,
                        -1.0135965586,
                        0.4724208689,
                        0.3569588169,
                        -0.9326158616,
                        0.0,
                        0.0,
                    ],
                    [
                        1.4064184172,
                        -1.4104786244,
                        0.5246194915,
                        0.5043269411,
                        -0.933028812,
                        0.5899858566,
                        0.0601394317,
                        -0.3744766802,
                        0.0,
                    ],
                    [
                        0.4502693348,
                        -0.2043715374,
                        -0.016654486,
                        0.107985105,
                        -0.1211090068,
                        0.1663970749,
                        -0.2737634614,
                        0.3376689439,
                        -0.2133199737,
                    ],
                ],
                [
                    [
                        -0.1940668703,
                        0.2285623675,
                        -0.1462325108,
                        -0.1172637602,
                        0.4512755478,
                        -0.6167512625,
                        0.4296974772,
                        0.0,
                        0.0,
                    ],
                    [
                        -0.7591293342,
                        0.7201161317,
                        0.0412137187,
                        -1.0315690917,
                        1.4591671689,
                        -0.87594691,
                        -0.4141347641,
                        1.5301507902,
                        0.0,
                    ],
                    [
                        0.1623368677,
                        -0.9605578932,
                        1.1436441023,
                        -0.6170107707,
                        -0.22677763,
                        0.8144710464,
                        -0.8121001174,
                        0.3377806667,
                        0.1835861336,
                    ],
                ],
            ],
        ),
        (
            4,
            False,
            [
                [
                    [
                        -0.4606588547,
                        0.0622451957,
                        0.387904638,
                        -1.0427180443,
                        0.5428953734,
                        0.2750164546,
                        -0.873848217,
                        0.0,
                        0.0,
                    ],
                    [
                        1.0584624839,
                        -0.740103212,
                        -0.1882544526,
                        0.961284799,
                        -0.823666263,
                        0.4964992691,
                        0.0977165003,
                        -0.3401367465,
                        0.0,
                    ],
                    [
                        -0.0195507954,
                        0.2733802095,
                        -0.3023206759,
                        0.082106411,
                        0.2051840031,
                        0.1459128985,
                        -0.3018073163,
                        0.4025254849,
                        -0.2876248756,
                    ],
                ],
                [
                    [
                        0.2327512681,
                        0.0534120178,
                        -0.2956781148,
                        -0.0134138156,
                        0.4354151427,
                        -0.6962555205,
                        0.5707666943,
                        0.0,
                        0.0,
                    ],
                    [
                        -0.6156715104,
                        1.0392624135,
                        -0.6071826935,
                        -0.3241031003,
                        1.6000985001,
                        -1.0880846012,
                        -0.2199349577,
                        1.4349042139,
                        0.0,
                    ],
                    [
                        0.0473839325,
                        -0.5261433066,
                        0.571784928,
                        -0.1469679018,
                        -0.3991971333,
                        0.6465459138,
                        -0.6997457996,
                        0.3289206188,
                        0.0858880181,
                    ],
                ],
            ],
        ),
        (
            4,
            True,
            [
                [
                    [
                        -0.4606588547,
                        0.0622451957,
                        0.387904638,
                        -1.0427180443,
                        0.5428953734,
                        0.2750164546,
                        -0.873848217,
                        0.0,
                        0.0,
                    ],
                    [
                        1.0584624839,
                        -0.740103212,
                        -0.1882544526,
                        0.961284799,
                        -0.823666263,
                        0.4964992691,
                        0.0977165003,
                        -0.3401367465,
                        0.0,
                    ],
                    [
                        -0.0195507954,
                        0.2733802095,
                        -0.3023206759,
                        0.082106411,
                        0.2051840031,
                        0.1459128985,
                        -0.3018073163,
                        0.4025254849,
                        -0.2876248756,
                    ],
                ],
                [
                    [
                        0.2327512681,
                        0.0534120178,
                        -0.2956781148,
                        0.7565575868,
                        -0.5369910318,
                        0.072180046,
                        0.3278981424,
                        0.0,
                        0.0,
                    ],
                    [
                        -0.6156715104,
                        1.0392624135,
                        -0.6071826935,
                        -0.3241031003,
                        0.6426518768,
                        -0.9529324537,
                        0.5247729337,
                        0.1219667274,
                        0.0,
                    ],
                    [
                        0.0473839325,
                        -0.5261433066,
                        0.571784928,
                        -0.1469679018,
                        -0.3991971333,
                        0.3123488642,
                        0.2108740914,
                        -0.7780310056,
                        0.9259195604,
                    ],
                ],
            ],
        ),
    )
]
