"""Learned absolute codes: one row of a table for each position.

Gehring et al. 2017, "Convolutional Sequence to Sequence Learning" (arXiv:1705.03122), section 3.1 (e = w + p); used by
Devlin et al. 2019, "BERT" (arXiv:1810.04805), figure 2, and by GPT-2.
"""

import numpy as np


def codes(positions, dim, table):
    """The code of each position: positions (T,), table (max_positions, dim) to (T, dim)."""
    out = np.zeros((len(positions), dim))
    for t, position in enumerate(positions):
        out[t] = table[position]
    return out


def inputs(x, positions, table, projection=None):
    """Token vectors x (B, T, M) with the codes of positions (B, T): added, or joined and projected by (M, 2M)."""
    out = np.zeros(x.shape)
    for b in range(x.shape[0]):
        code = codes(positions[b], x.shape[2], table)
        for t in range(x.shape[1]):
            out[b, t] = x[b, t] + code[t] if projection is None else projection @ np.concatenate([x[b, t], code[t]])
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"max_positions": [None, 40], "init_std": [0.02, 0.5], "combine": ["add", "concat"]}
REFUSED = [
    ({"max_positions": 8}, {"train_length": 9}, r"pe\.max_positions=8 is shorter than train\.length=9.*=9 or more")
]


def arguments(model):
    """What `inputs` takes beside token vectors and positions, of a model's encoding."""
    return {"table": model["parameters"]["table"], "projection": model["parameters"].get("projection")}


# Three rows of width 2; position 2 takes the last row, position 0 the first.
GOLDEN = {
    "positions": [2, 0],
    "dim": 2,
    "parameters": {"table": [[0.5, -1.0], [2.0, 3.0], [-4.0, 0.25]]},
    "options": {"max_positions": 3},
    "codes": [[-4.0, 0.25], [0.5, -1.0]],
}
