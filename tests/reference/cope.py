"""CoPE: positions count the tokens that a query cares for.

Golovneva et al. 2024, "Contextual Position Encoding: Learning to Count What's Important" (arXiv:2405.18719), section 4:
g_ij = σ(q_i·k_j), p_ij = Σ g_il over j <= l <= i, at most p_max, and q_i·e[p_ij] is added to q_i·k_j, where e[p] stands
between e[⌊p⌋] and e[⌈p⌉]. By the released code (facebookresearch/RAM e6f051f, projects/cope/src/cope/context_position.py)
the gate takes q·k/√D, q·e is divided by √D too unless told otherwise, the table starts at zero, serves all heads and
holds block_size + 1 vectors.
"""

import math

import numpy as np


def scores(q, k, q_positions, k_positions, table, divided):
    """(q·k + q·e[p])/√D, or q·k/√D + q·e[p]: q (B, H, Q, D), k (B, H, K, D), table (p_max + 1, D).

    The queries are the last Q of the K tokens. Zero where a query does not see the key.
    """
    batch, heads, queries, width = q.shape
    keys = k.shape[2]
    out = np.zeros((batch, heads, queries, keys))
    for b, h, i in np.ndindex(batch, heads, queries):
        count = 0.0
        for j in range(keys - queries + i, -1, -1):
            plain = float(np.dot(q[b, h, i], k[b, h, j])) / math.sqrt(width)
            count += 1 / (1 + math.exp(-plain))
            position = min(count, len(table) - 1)
            low = math.floor(position)
            high = min(low + 1, len(table) - 1)
            vector = table[low] * (1 - (position - low)) + table[high] * (position - low)
            out[b, h, i, j] = plain + float(np.dot(q[b, h, i], vector)) / (math.sqrt(width) if divided else 1)
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"max_position": [None, 2], "divided": [True, False], "share_layers": [False, True]}


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    table = model["parameters"]["table"][0 if model["options"]["share_layers"] else model["layer"]]
    return {"table": table, "divided": model["options"]["divided"]}


# One head of width 1, one query q = 1, the last of three tokens, k = 0, ln 3, 0: the gates are 1/2, 3/4, 1/2 and their sums
# to the query 1.75, 1.25, 0.5. With p_max = 1 the positions are 1, 1, 0.5. Table (10, 20):
#   j = 2: 0 + 15    j = 1: ln 3 + 20 = 21.09861228866811    j = 0: 0 + 20
GOLDEN = {
    "q": [[[[1.0]]]],
    "k": [[[[0.0], [1.0986122886681098], [0.0]]]],
    "q_positions": [[2]],
    "k_positions": [[0, 1, 2]],
    "parameters": {"table": [[[10.0], [20.0]]]},
    "options": {"max_position": 1},
    "scores": [[[[20.0, 21.09861228866811, 15.0]]]],
}
# p_max = 2, table (10, 20, 60): positions 1.75 = 20 + 0.75 · 40, 1.25 = 20 + 0.25 · 40, and 0.5 as above.
GOLDEN_BETWEEN = GOLDEN | {
    "parameters": {"table": [[[10.0], [20.0], [60.0]]]},
    "options": {"max_position": 2},
    "scores": [[[[50.0, 31.09861228866811, 15.0]]]],
}
QUERIES = [
    [[0.44, 1.36], [-0.79, -1.16], [1.09, 0.88], [-1.32, -0.54]],
    [[1.46, 0.16], [-1.5, 0.22], [1.44, -0.6], [-1.29, 0.93]],
]
KEYS = [
    [[1.34, 0.5], [-1.47, -0.12], [1.5, -0.26], [-1.43, 0.63]],
    [[1.27, -0.96], [-1.02, 1.22], [0.71, -1.4], [-0.35, 1.49]],
]
TABLE = [[1.17, 0.77], [-1.37, -0.42], [1.48, 0.04], [-1.49, 0.35], [1.4, -0.71]]
# By the layer ContextPosSelfAttn of facebookresearch/RAM e6f051f (projects/cope/src/cope/context_position.py) in float64.
RELEASED = [
    {
        "source": "facebookresearch/RAM@e6f051f",
        "options": {"max_position": most, "divided": divided},
        "parameters": {"table": [TABLE[: most + 1]]},
        "q": QUERIES,
        "k": KEYS,
        "q_positions": [0, 1, 2, 3],
        "k_positions": [0, 1, 2, 3],
        "weights": of_heads,
        "rtol": 1e-12,
    }
    for most, divided, of_heads in (
        (
            4,
            True,
            [
                [
                    [1.0, 0.0, 0.0, 0.0],
                    [0.1815211617154164, 0.8184788382845836, 0.0, 0.0],
                    [0.8074103828398066, 0.010804223177983241, 0.18178539398221022, 0.0],
                    [0.007080033282970942, 0.21257081844693243, 0.11161851441992496, 0.6687306338501716],
                ],
                [
                    [1.0, 0.0, 0.0, 0.0],
                    [0.09038146245132576, 0.9096185375486743, 0.0, 0.0],
                    [0.8902608565616784, 0.0041530348795284595, 0.10558610855879305, 0.0],
                    [0.005028428211605517, 0.23658121137085092, 0.052298651743299354, 0.7060917086742442],
                ],
            ],
        ),
        (
            1,
            True,
            [
                [
                    [1.0, 0.0, 0.0, 0.0],
                    [0.1815211617154164, 0.8184788382845836, 0.0, 0.0],
                    [0.3925030258504961, 0.0340804088270309, 0.573416565322473, 0.0],
                    [0.03889929842830246, 0.6789286481547978, 0.04036094033425241, 0.24181111308264727],
                ],
                [
                    [1.0, 0.0, 0.0, 0.0],
                    [0.09038146245132576, 0.9096185375486743, 0.0, 0.0],
                    [0.4762880081112214, 0.019819675104024027, 0.5038923167847545, 0.0],
                    [0.019290952112273184, 0.6533340849545957, 0.02257580010179584, 0.3047991628313354],
                ],
            ],
        ),
        (
            4,
            False,
            [
                [
                    [1.0, 0.0, 0.0, 0.0],
                    [0.21941655282550426, 0.7805834471744957, 0.0, 0.0],
                    [0.8720114872954016, 0.005623414247421981, 0.12236509845717651, 0.0],
                    [0.003305022186910116, 0.12422975606475378, 0.15404253971147136, 0.7184226820368648],
                ],
                [
                    [1.0, 0.0, 0.0, 0.0],
                    [0.10727914063189069, 0.8927208593681093, 0.0, 0.0],
                    [0.9439025557254704, 0.001836631052414436, 0.05426081322211519, 0.0],
                    [0.0026121844395054676, 0.14082753925579392, 0.06538855724545826, 0.7911717190592423],
                ],
            ],
        ),
    )
]
