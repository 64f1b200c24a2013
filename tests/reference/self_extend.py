"""Self-Extend: rotary encoding at the distance i - j within a window w, at i//g - j//g + w - w//g beyond it.

Jin et al. 2024, "LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning" (arXiv:2401.01325), section 3.2:
floor division of positions by the group g, shifted so that both kinds of attention meet at the window, one softmax over
both. In the released code (datamllab/LongLM cdbbb06, self_extend_patch/Llama.py) keys less than w tokens back are
neighbours; w is 1024 and g 8 by default; with flash attention decoding shifts by w - w//g, all else by w - w/g, which
differs where g does not divide w. With `scale_base` it multiplies the query at p by max(1, ln(p + 1)/ln scale_base);
off by default. A key after the query is hidden; seen, it stands at its own distance here. Channels c and c + D/2 are a
pair.
"""

import math

import numpy as np


def rotation(angles, layout):
    """The orthogonal matrix that turns pair c by angle c."""
    width = 2 * len(angles)
    matrix = np.zeros((width, width))
    for c, angle in enumerate(angles):
        first, second = (c, c + len(angles)) if layout == "half" else (2 * c, 2 * c + 1)
        matrix[first, first] = matrix[second, second] = math.cos(angle)
        matrix[second, first] = math.sin(angle)
        matrix[first, second] = -math.sin(angle)
    return matrix


def scores(q, k, q_positions, k_positions, window, group, log_length, base, layout, fraction):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K); log_length None: no growth."""
    batch, heads, queries, width = q.shape
    rotary_width = round(fraction * width)
    theta = base ** (-np.arange(0, rotary_width, 2) / rotary_width)
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, i, j in np.ndindex(batch, queries, k.shape[2]):
        query, key = q_positions[b][i], k_positions[b][j]
        near, grouped = query - key, query // group + window - window // group - key // group
        apart = near if near < window else grouped
        whole = np.eye(width)
        whole[:rotary_width, :rotary_width] = rotation(apart * theta, layout)
        grown = 1.0 if log_length is None else max(1.0, math.log(query + 1) / math.log(log_length))
        for h in range(heads):
            out[b, h, i, j] = grown * (k[b, h, j] @ whole @ q[b, h, i]) / math.sqrt(width)
    return out


# The values of each option that the tests go through, the default first.
VALUES = {
    "original_length": [None, 40],
    "window": [None, 5],
    "group": [8, 3],
    "log_n": [False, True],
    "layout": ["half", "interleaved"],
    "base": [10_000.0, 50.0],
    "fraction": [1.0, 0.5],
}
# Shifts by whole groups change nothing: probes shift by 16 tokens.
AT_WORK = {"group": 5}
SHIFT_INVARIANT_BY = [({"log_n": False}, "group")]


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    given = dict(model["options"])
    original = given.pop("original_length") or max(model.get("train_length", 2), 2)
    if given["window"] is None:
        given["window"] = max(original // 4, 1)
    given["log_length"] = original if given.pop("log_n") else None
    return given


# Width 2, one pair, θ = 1; window 3, group 2, so the shift is 3 - 3//2 = 2. q = (1, 0) at 9, group 4, over √2:
#   k = (1, 0) at 9 and 7, neighbours: distances 0 and 2
#   k = (1, 0) at 6, 5, 4, 0, groups 3, 2, 2, 0: 4 + 2 - 3 = 3, then 4, 4 and 6
#   k = (0, 1) at 1, group 0: sin 6
#   cos 2 = -0.41614683654714241, cos 3 = -0.98999249660044542, cos 4 = -0.65364362086361194, cos 6 = 0.96017028665036597,
#   sin 6 = -0.27941549819892586
GOLDEN = {
    "q": [[[[1.0, 0.0]]]],
    "k": [[[[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]],
    "q_positions": [[9]],
    "k_positions": [[9, 7, 6, 5, 4, 0, 1]],
    "options": {"window": 3, "group": 2},
    "scores": [
        [
            [
                [
                    0.70710678118654746,
                    -0.29426025009181417,
                    -0.70003040766997504,
                    -0.46219583679198867,
                    -0.46219583679198867,
                    0.67894292078430485,
                    -0.19757659354507801,
                ]
            ]
        ]
    ],
}


def numbers(tokens, width, shift, factor=1):
    """Queries or keys of tokens 0, 1, ..., for the runs of released code: (T, D)."""
    return [[factor * round(math.sin(1.3 * t + c * c + shift), 2) for c in range(width)] for t in tokens]


# The attention weights of self_extend_forward in float32 for the last of 20 tokens, read at once; the first row is the
# same, to the last digits, in decoding. The second has scale_base=16, which is the train length of the tests.
RELEASED = [
    {
        "source": "datamllab/LongLM@cdbbb06, self_extend_patch/Llama.py",
        "options": options,
        "q": [numbers([19], 4, 0, 2)],
        "k": [numbers(range(20), 4, 1, 2)],
        "q_positions": [19],
        "k_positions": list(range(20)),
        "weights": [[weights]],
        "rtol": 1e-5,
    }
    for options, weights in (
        (
            {"window": 4, "group": 2},
            [
                0.00422639911994338,
                0.0020077291410416365,
                0.02271050214767456,
                0.09370430558919907,
                0.0636415109038353,
                0.026648622006177902,
                0.005063759163022041,
                0.0031456071883440018,
                0.06367071717977524,
                0.20171640813350677,
                0.005349259357899427,
                0.0018408535979688168,
                0.060735467821359634,
                0.23586837947368622,
                0.0195432398468256,
                0.0034506807569414377,
                0.007073903921991587,
                0.005393167492002249,
                0.10641905665397644,
                0.06779048591852188,
            ],
        ),
        (
            {"window": 4, "group": 2, "log_n": True},
            [
                0.0032642921432852745,
                0.0014605160104110837,
                0.020082490518689156,
                0.09287305921316147,
                0.061143212020397186,
                0.02387014590203762,
                0.0039683454670012,
                0.0023724655620753765,
                0.06117353215813637,
                0.2126525491476059,
                0.004210630431771278,
                0.0013298036064952612,
                0.05813216790556908,
                0.25180596113204956,
                0.0170740969479084,
                0.0026220183353871107,
                0.005694826599210501,
                0.0042479876428842545,
                0.10656070709228516,
                0.06546120345592499,
            ],
        ),
        (
            {"window": 6, "group": 3},
            [
                0.009171553887426853,
                0.005276100244373083,
                0.026178091764450073,
                0.03205728530883789,
                0.07335870712995529,
                0.030717508867383003,
                0.005836928263306618,
                0.003625897690653801,
                0.0331108495593071,
                0.2325158566236496,
                0.024415038526058197,
                0.002360186306759715,
                0.02389580011367798,
                0.25013458728790283,
                0.02818836085498333,
                0.003977553453296423,
                0.00815399456769228,
                0.006216632202267647,
                0.1226678267121315,
                0.07814119011163712,
            ],
        ),
    )
]
