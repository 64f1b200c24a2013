"""Relative encoding of Transformer-XL: queries times a projection of the sinusoid of the distance.

Dai et al. 2019, "Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context" (arXiv:1901.02860), section 3.3:

    A_ij = q_i·k_j + q_i·(W_R R_{i-j}) + u·k_j + v·(W_R R_{i-j}),        scores A/√D

R_d is the sinusoid of Vaswani et al. 2017 at d, of width d_model, all sines before all cosines as in the authors' code
(kimiyoung/transformer-xl 44781ed, pytorch/mem_transformer.py, PositionalEmbedding); u and v are one for all layers, or one
each there with untie_r (tf/model.py); W_R is a layer's own. With clamp_len distances are clipped. Keys after the query have
negative distances here; that code makes R for the distances 0 and up alone, and its _rel_shift puts at later keys what
belongs to another row. The last sine of an odd width has no cosine.
"""

import math

import numpy as np


def sinusoid(distance, width):
    """R of a distance, (width,)."""
    angles = [distance / 10000.0 ** (2 * pair / width) for pair in range((width + 1) // 2)]
    return np.array([math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles[: width // 2]])


def scores(q, k, q_positions, k_positions, u, v, weight, clamp):
    """A/√D: q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K), u and v (H, D), weight (H, D, M) to (B, H, Q, K)."""
    batch, heads, queries, width = q.shape
    out = np.zeros((batch, heads, queries, k.shape[2]))
    known = {}
    for b, h, i, j in np.ndindex(out.shape):
        distance = q_positions[b][i] - k_positions[b][j]
        if clamp is not None:
            distance = max(-clamp, min(clamp, distance))
        if (h, distance) not in known:
            known[h, distance] = weight[h] @ sinusoid(distance, weight.shape[-1])
        projected = known[h, distance]
        terms = [q[b, h, i] @ k[b, h, j], q[b, h, i] @ projected, u[h] @ k[b, h, j], v[h] @ projected]
        out[b, h, i, j] = sum(terms) / math.sqrt(width)
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"clamp": [None, 3], "share_biases": [True, False]}
NULL_IS_NONE = ["clamp"]  # distances as they are


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    parameters, layer = model["parameters"], model["layer"]
    biases = {name: parameters[name][0 if model["options"]["share_biases"] else layer] for name in ("u", "v")}
    return {"weight": parameters["weight"][layer], "clamp": model["options"]["clamp"], **biases}


# One head of width 2, d_model 2: R_d = (sin d, cos d). W_R = ((2, 0), (0, 1)), so W_R R_d = (2 sin d, cos d). u = (1, 0),
# v = (0, 3), q = (1, 1). Query at 4, keys (2, 5) at 4 and (0, 0) at 2, √D = 1.4142135623730951.
#   d = 0: q·k = 7, u·k = 2, (q + v)·(0, 1) = (1, 4)·(0, 1) = 4                          13/√2 = 9.192388155425117
#   d = 2: (1, 4)·(2 sin 2, cos 2) = 2·0.9092974268256817 + 4·(-0.4161468365471424)
#          = 1.8185948536513634 - 1.6645873461885696 = 0.1540075074627938                /√2 = 0.10889975288990557
GOLDEN = {
    "q": [[[[1.0, 1.0]]]],
    "k": [[[[0.0, 0.0], [2.0, 5.0]]]],
    "q_positions": [[4]],
    "k_positions": [[2, 4]],
    "parameters": {"u": [[[1.0, 0.0]]], "v": [[[0.0, 3.0]]], "weight": [[[[2.0, 0.0], [0.0, 1.0]]]]},
    "options": {},
    "scores": [[[[0.1540075074627938 / math.sqrt(2), 13 / math.sqrt(2)]]]],
}
# A key after the query has the sine with the other sign: (1, 4)·(-2 sin 2, cos 2) = -1.8185948536513634 - 1.6645873461885696
# = -3.483182199839933; at 9 places, clipped to 2, the same.
GOLDEN_LATER = GOLDEN | {
    "k": [[[[0.0, 0.0], [0.0, 0.0]]]],
    "k_positions": [[6, 13]],
    "options": {"clamp": 2},
    "causal": False,
    "scores": [[[[-3.483182199839933 / math.sqrt(2)] * 2]]],
}


def wave(step, *shape):
    """Numbers to compare with: sin(step), sin(2 step), ... to three digits, in this shape."""
    return np.sin(step * np.arange(1, math.prod(shape) + 1)).round(3).reshape(shape)


# RelPartialLearnableMultiHeadAttn of transformer-xl 44781ed, two heads of width 2, six tokens of memory and three queries, without
# and with clamp_len 4: the scores before softmax, 0 where a key comes later. Queries and keys are what its projections made of
# its inputs.
RELEASED = [
    {
        "source": f"kimiyoung/transformer-xl@44781ed, clamp_len {clamp}",
        "options": {"clamp": clamp},
        "parameters": {
            "u": [wave(2.1, 2, 2).tolist()],
            "v": [wave(2.3, 2, 2).tolist()],
            "weight": [wave(1.3, 2, 2, 4).tolist()],
        },
        "q": [
            [
                [1.683738, -1.263942],
                [-1.110576, 0.499626],
                [0.306611, 0.369033],
            ],
            [
                [0.69634, -0.04877],
                [0.171179, -0.82135],
                [-1.004085, 1.522077],
            ],
        ],
        "k": [
            [
                [-1.572458, 1.904342],
                [1.688611, -1.399636],
                [0.534216, -1.044264],
                [-2.017163, 2.041507],
                [0.705129, -0.210254],
                [1.582442, -1.911043],
                [-0.603701, 1.18781],
                [1.376366, -1.773173],
                [-1.864483, 1.99154],
            ],
            [
                [-2.01562, 1.894609],
                [0.948666, -0.389188],
                [1.433252, -1.65656],
                [-1.829445, 1.40706],
                [-0.308834, 0.791512],
                [2.018263, -1.892896],
                [-1.634254, 1.89162],
                [1.964551, -1.929288],
                [-1.887922, 1.567046],
            ],
        ],
        "q_positions": [6, 7, 8],
        "k_positions": list(range(9)),
        "scores": scores,
        "rtol": 1e-9,
    }
    for clamp, scores in (
        (
            None,
            [
                [
                    [
                        -7.9359749636,
                        3.1857516531,
                        2.4278558806,
                        -5.0724301609,
                        3.2758816763,
                        5.7248307436,
                        -4.7675878974,
                        0.0,
                        0.0,
                    ],
                    [
                        0.0929288447,
                        0.7138196548,
                        1.0028296775,
                        0.5148815039,
                        0.3234368811,
                        0.4117828065,
                        0.0683746554,
                        0.8088690607,
                        0.0,
                    ],
                    [
                        -1.5618436209,
                        1.5163472151,
                        -0.282003993,
                        -3.4703387349,
                        0.3203239658,
                        2.4298687729,
                        -0.3763312091,
                        1.6480342002,
                        -3.1946677104,
                    ],
                ],
                [
                    [
                        1.4424961446,
                        1.5249795756,
                        -0.0215657094,
                        -0.967283311,
                        -0.6163458146,
                        0.0004853705,
                        1.429874135,
                        0.0,
                        0.0,
                    ],
                    [
                        -0.3307622496,
                        0.0692400149,
                        -0.0744532955,
                        -0.6925359025,
                        -0.6088990594,
                        -0.2232311212,
                        -0.3684491308,
                        0.1461239391,
                        0.0,
                    ],
                    [
                        4.6593291128,
                        -0.529037246,
                        -2.0367248974,
                        5.7176070724,
                        3.0233737972,
                        -4.0785216935,
                        4.3952683908,
                        -4.0371000084,
                        5.5158986022,
                    ],
                ],
            ],
        ),
        (
            4,
            [
                [
                    [
                        -5.8192706049,
                        5.0434407486,
                        2.4278558806,
                        -5.0724301609,
                        3.2758816763,
                        5.7248307436,
                        -4.7675878974,
                        0.0,
                        0.0,
                    ],
                    [
                        0.4731469265,
                        0.772219921,
                        0.8807390355,
                        0.5148815039,
                        0.3234368811,
                        0.4117828065,
                        0.0683746554,
                        0.8088690607,
                        0.0,
                    ],
                    [
                        -2.3153902673,
                        1.5567081361,
                        0.4755889051,
                        -2.7319619535,
                        0.3203239658,
                        2.4298687729,
                        -0.3763312091,
                        1.6480342002,
                        -3.1946677104,
                    ],
                ],
                [
                    [
                        0.2632856321,
                        0.4565224438,
                        -0.0215657094,
                        -0.967283311,
                        -0.6163458146,
                        0.0004853705,
                        1.429874135,
                        0.0,
                        0.0,
                    ],
                    [
                        -0.7057080301,
                        -0.3656132814,
                        -0.3312890164,
                        -0.6925359025,
                        -0.6088990594,
                        -0.2232311212,
                        -0.3684491308,
                        0.1461239391,
                        0.0,
                    ],
                    [
                        6.0688044739,
                        0.1610945,
                        -2.307392931,
                        5.1193636682,
                        3.0233737972,
                        -4.0785216935,
                        4.3952683908,
                        -4.0371000084,
                        5.5158986022,
                    ],
                ],
            ],
        ),
    )
]
