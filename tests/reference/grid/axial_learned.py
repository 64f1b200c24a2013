"""Learned codes by axis: a row of a table for each coordinate.

Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words" (arXiv:2010.11929), appendix D.4, "2-dimensional positional
embedding": a table for each axis, of half the width, whose rows are joined. Ho et al. 2019, "Axial Attention in
Multidimensional Transformers" (arXiv:1912.12180), adds rows of the whole width (`join="add"`).
"""

import numpy as np


def codes(positions, dim, table, extent=(14, 14), join="concat"):
    """The code of each position: positions (T, A), the tables of the axes below each other, to (T, dim)."""
    tables, first = [], 0
    for rows in extent:
        tables.append(table[first : first + rows])
        first += rows
    out = np.zeros((len(positions), dim))
    for t, position in enumerate(positions):
        parts = [of_axis[coordinate] for of_axis, coordinate in zip(tables, position, strict=True)]
        out[t] = np.concatenate(parts) if join == "concat" else sum(parts)
    return out


def inputs(x, positions, projection=None, **given):
    """Token vectors x (B, T, M) with the codes of positions (B, T, A): added, or joined and projected by (M, 2M)."""
    out = np.zeros(x.shape)
    for b in range(x.shape[0]):
        code = codes(positions[b], x.shape[2], **given)
        for t in range(x.shape[1]):
            out[b, t] = x[b, t] + code[t] if projection is None else projection @ np.concatenate([x[b, t], code[t]])
    return out


# The values of each option that the tests go through, the default first.
VALUES = {
    "extent": [[14, 14], [16, 10, 12]],
    "join": ["concat", "add"],
    "init_std": [0.02, 0.5],
    "combine": ["add", "concat"],
}
REFUSED = [
    ({}, {"heads": 1, "width": 7}, r"pe\.extent=\[14,14\] .*d_model=7.* multiple of 2"),
    ({"extent": [5]}, {"heads": 1, "width": 8}, r"pe\.extent=\[5\] has 1 numbers"),
    ({"extent": [5, 5, 5, 5]}, {"heads": 1, "width": 8}, r"pe\.extent=\[5,5,5,5\] has 4 numbers"),
]


def arguments(model):
    """What `inputs` takes beside token vectors and positions, of a model's encoding."""
    options, parameters = model["options"], model["parameters"]
    given = {"table": parameters["table"], "extent": options["extent"], "join": options["join"]}
    return given | {"projection": parameters.get("projection")}


# Two rows and three columns, width 2: the first table is 0.5, -1, the second 2, 3, -4. Position (1, 2) takes the last of
# each, (0, 1) the first and the second.
GOLDEN = {
    "positions": [[1, 2], [0, 1]],
    "dim": 2,
    "parameters": {"table": [[0.5], [-1.0], [2.0], [3.0], [-4.0]]},
    "options": {"extent": [2, 3]},
    "codes": [[-1.0, -4.0], [0.5, 3.0]],
}
# The same positions with rows of two channels, added: (-1, 1) + (-4, 8) and (0.5, 2) + (3, 6).
GOLDEN_ADDED = GOLDEN | {
    "parameters": {"table": [[0.5, 2.0], [-1.0, 1.0], [2.0, 4.0], [3.0, 6.0], [-4.0, 8.0]]},
    "options": {"extent": [2, 3], "join": "add"},
    "codes": [[-5.0, 9.0], [3.5, 8.0]],
}

RELEASED = {
    "positions": [[0, 2], [1, 1]],
    "dim": 4,
    "parameters": {
        "table": [
            [0.3, -1.3],
            [0.5, 0.4],
            [0, 1.9],
            [-0.2, 0.3],
            [1.3, 0.4],
        ]
    },
    "options": {"extent": [2, 3], "join": "concat"},
    "codes": [[0.3, -1.3, 1.3, 0.4], [0.5, 0.4, -0.2, 0.3]],
    "rtol": 1e-7,
    "source": "lucidrains/axial-positional-embedding@c1fc8cb, AxialPositionalEmbedding",
}
RELEASED_ADDED = {
    "positions": [[0, 2], [1, 1]],
    "dim": 4,
    "parameters": {
        "table": [
            [0.3, -1.3, 0.5, 0.4],
            [-0.6, -0.7, -0.1, -0.1],
            [0, 1.9, -0.2, 0.3],
            [1.3, 0.4, 0.4, 0.3],
            [0.7, 1.1, -0.8, -0.3],
        ]
    },
    "options": {"extent": [2, 3], "join": "add"},
    "codes": [[1, -0.2, -0.3, 0.1], [0.7, -0.3, 0.3, 0.2]],
    "rtol": 1e-7,
    "source": "lucidrains/axial-positional-embedding@c1fc8cb, AxialPositionalEmbedding",
}
