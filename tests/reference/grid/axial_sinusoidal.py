"""Sinusoidal codes by axis.

He et al. 2021, "Masked Autoencoders Are Scalable Vision Learners" (arXiv:2111.06377), says "sine-cosine version" alone; the
formula is that of the released code, facebookresearch/mae@efb2a80, util/pos_embed.py, get_2d_sincos_pos_embed_from_grid:
of d channels each of the A axes has w = d / A, all its sines before all its cosines, with the frequencies of Vaswani et al.
2017 (arXiv:1706.03762, section 3.5) for a width of w:

    code(p) = [sin(p_1 ω_0), sin(p_1 ω_1), ..., cos(p_1 ω_0), ..., sin(p_2 ω_0), ...],   ω_c = 10000^(-2c/w)

There the first axis is the column of a patch. `layout="interleaved"`, sine beside cosine, is that of DETR, which counts from 1,
scales each axis to 2π and puts rows first.
"""

import math

import numpy as np


def codes(positions, dim, base=10_000.0, scale=1.0, layout="half"):
    """The code of each position: positions (T, A) to (T, dim)."""
    rows = []
    for position in positions:
        row, width = [], dim // len(position)
        for coordinate in position:
            angles = [float(coordinate) * base ** (-2 * c / width) for c in range(width // 2)]
            if layout == "half":
                row += [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]
            else:
                row += [value for angle in angles for value in (math.sin(angle), math.cos(angle))]
        rows.append([scale * value for value in row])
    return np.array(rows)


def inputs(x, positions, projection=None, **options):
    """Token vectors x (B, T, M) with the codes of positions (B, T, A): added, or joined and projected by (M, 2M)."""
    out = np.zeros(x.shape)
    for b in range(x.shape[0]):
        code = codes(positions[b], x.shape[2], **options)
        for t in range(x.shape[1]):
            out[b, t] = x[b, t] + code[t] if projection is None else projection @ np.concatenate([x[b, t], code[t]])
    return out


# The values of each option that the tests go through, the default first.
VALUES = {
    "combine": ["add", "concat"],
    "base": [10_000.0, 50.0],
    "scale": [0.1, 1.0],
    "learn_scale": [False, True],
    "layout": ["half", "interleaved"],
    "axes": [2, 3],
}
REFUSED = [
    ({}, {"heads": 1, "width": 6}, r"pe\.axes=2 .*d_model=6.* multiple of 4"),
    ({"axes": 3}, {"heads": 1, "width": 8}, r"pe\.axes=3 .*d_model=8.* multiple of 6"),
]


def arguments(model):
    """What `inputs` takes beside token vectors and positions, of a model's encoding."""
    options, parameters = model["options"], model["parameters"]
    scale = float(parameters.get("scale", options["scale"]))
    given = {"base": options["base"], "scale": scale, "layout": options["layout"]}
    return given | {"projection": parameters.get("projection")}


# Width 8, so 4 channels an axis with ω = 1 and 10000^(-1/2) = 0.01; position (3, 0): the first half is that of the
# sinusoidal code of 3 in 4 channels, the second half sin 0, sin 0, cos 0, cos 0.
#   sin 3 = 0.1411200080598672, sin 0.03 = 0.0299955002024957, cos 3 = -0.9899924966004454, cos 0.03 = 0.9995500337489875
GOLDEN = {
    "positions": [[3, 0]],
    "dim": 8,
    "options": {"scale": 1.0},
    "codes": [
        [
            *(0.1411200080598672, 0.0299955002024957, -0.9899924966004454, 0.9995500337489875),
            *(0.0, 0.0, 1.0, 1.0),
        ]
    ],
}

# Cells of a 3 x 3 grid, positions (column, row); theirs in float32.
RELEASED = {
    "positions": [[2, 0], [1, 2]],
    "dim": 8,
    "options": {"scale": 1.0},
    "codes": [
        [0.909297427, 0.0199986667, -0.416146837, 0.999800007, 0, 0, 1, 1],
        [0.841470985, 0.00999983333, 0.540302306, 0.99995, 0.909297427, 0.0199986667, -0.416146837, 0.999800007],
    ],
    "rtol": 1e-6,
    "source": "facebookresearch/mae@efb2a80, util/pos_embed.py, get_2d_sincos_pos_embed",
}
