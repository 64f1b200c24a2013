"""Sinusoidal codes.

Vaswani et al. 2017, "Attention Is All You Need" (arXiv:1706.03762), section 3.5, the two unnumbered equations:

    PE(pos, 2i) = sin(pos / 10000^(2i/d))        PE(pos, 2i+1) = cos(pos / 10000^(2i/d))

`layout="half"` holds the same numbers with all sines first. (The authors' tensor2tensor has that layout with other
frequencies, 10000^(-i/(d/2 - 1)).) The last sine of an odd width has no cosine.
"""

import math

import numpy as np


def codes(positions, dim, base=10000.0, scale=1.0, layout="interleaved"):
    """The code of each position: positions (T,) to (T, dim)."""
    out = np.zeros((len(positions), dim))
    for t, position in enumerate(positions):
        sines = [math.sin(float(position) / base ** (2 * i / dim)) for i in range((dim + 1) // 2)]
        cosines = [math.cos(float(position) / base ** (2 * i / dim)) for i in range(dim // 2)]
        if layout == "half":
            out[t] = sines + cosines
        else:
            out[t, 0::2] = sines
            out[t, 1::2] = cosines
    return scale * out


def inputs(x, positions, projection=None, **options):
    """Token vectors x (B, T, M) with the codes of positions (B, T): added, or joined and projected by (M, 2M)."""
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
    "layout": ["interleaved", "half"],
}


def arguments(model):
    """What `inputs` takes beside token vectors and positions, of a model's encoding."""
    options, parameters = model["options"], model["parameters"]
    scale = float(parameters.get("scale", options["scale"]))
    given = {"base": options["base"], "scale": scale, "layout": options["layout"]}
    return given | {"projection": parameters.get("projection")}


# Width 4, base 10000, so the two wavelengths are 2π and 200π; position 3:
#   sin(3/1) = 0.1411200080598672      cos(3/1) = -0.9899924966004454
#   sin(3/100) = 0.03 - 0.03³/6 + 0.03⁵/120 = 0.03 - 0.0000045 + 0.0000000002025 = 0.0299955002025 (next term -4e-15)
#   cos(3/100) = 1 - 0.03²/2 + 0.03⁴/24 - 0.03⁶/720 = 1 - 0.00045 + 0.00000003375 - 0.0000000000010125 = 0.9995500337489875
GOLDEN = {
    "positions": [3],
    "dim": 4,
    "options": {"scale": 1.0},
    "codes": [[0.1411200080598672, -0.9899924966004454, 0.0299955002024957, 0.9995500337489875]],
}
