"""ALiBi: a penalty on the scores, linear in distance.

Press et al. 2022, "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation"
(arXiv:2108.12409), section 3: softmax(q_i·K + m · [-(i-1), ..., -2, -1, 0]), where m is a slope of the head and the bias
is not scaled by 1/√D. For n heads the slopes are a geometric sequence that starts at 2^(-8/n) with that same ratio. For
n that is no power of two the authors' code (fairseq/models/transformer.py, get_slopes) takes the sequence of the power
below and then every second slope of the sequence of twice that power.

The paper is causal. The symmetric form is the first proposal for encoders in the authors' repository (issue 5). Its
others tell left from right: half of the heads see only the past and half only the future, or each head has learned
slopes of its own for either side. `asymmetric` is the last of these with another start: there slopes are learned from
N(-2, 1) through a sigmoid, here they are fixed, those of 2n heads dealt out in turn, left side first (this project's
choice). `split` is the other: the heads of either side have the slopes of n/2 heads, as in the code given there.

One slope for all heads is not in the paper either: here it is the geometric mean of the heads' slopes.
"""

import math

import numpy as np


def slopes(heads):
    """The slopes of the heads, positive."""
    power = 2 ** math.floor(math.log2(heads))
    out = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    for h in range(1, 2 * power + 1, 2):
        if len(out) < heads:
            out.append(2 ** (-8 * h / (2 * power)))
    return out


def sides(heads, form="causal", per_head=True):
    """The slopes for keys before the query and for keys after it, one a head each, positive."""
    if form == "asymmetric":
        dealt = slopes(2 * heads)
        before, after = [dealt[2 * h] for h in range(heads)], [dealt[2 * h + 1] for h in range(heads)]
    elif form == "split":
        before = after = 2 * slopes(heads // 2)
    else:
        before = after = slopes(heads)
    if not per_head:
        before, after = [math.prod(before) ** (1 / heads)] * heads, [math.prod(after) ** (1 / heads)] * heads
    return before, after


def scores(q, k, q_positions, k_positions, form="causal", per_head=True, before=None, after=None):
    """q·k/√D - slope·|distance|: q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K).

    before, after: learned slopes in place of the fixed ones. In the causal form keys after the query are masked by the
    model; the same line goes on there, above zero.
    """
    batch, heads, queries, width = q.shape
    fixed_before, fixed_after = sides(heads, form, per_head)
    before = fixed_before if before is None else before
    after = fixed_after if after is None else after
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, h, i, j in np.ndindex(out.shape):
        distance = float(q_positions[b][i]) - float(k_positions[b][j])
        is_before = distance >= 0 or form == "causal"
        bias = -before[h] * distance if is_before else -after[h] * abs(distance)
        if form == "split" and (distance < 0 if h < heads // 2 else distance > 0):
            bias = -math.inf
        out[b, h, i, j] = np.dot(q[b, h, i], k[b, h, j]) / math.sqrt(width) + bias
    return out


# Exponents of two of the slopes by number of heads: 2^(-8/n), 2^(-16/n), ...; for 3: 2 heads, then 1st of 4; for 6: 4
# heads, then 1st and 3rd of 8; for 12: 8 heads, then 1st, 3rd, 5th, 7th of 16.
EXPONENTS = {
    1: [-8],
    2: [-4, -8],
    3: [-4, -8, -2],
    4: [-2, -4, -6, -8],
    6: [-2, -4, -6, -8, -1, -3],
    8: [-1, -2, -3, -4, -5, -6, -7, -8],
    12: [-1, -2, -3, -4, -5, -6, -7, -8, -0.5, -1.5, -2.5, -3.5],
}


# The values of each option that the tests go through, the default first.
VALUES = {
    "form": [None, "symmetric", "asymmetric", "split", "causal"],
    "learn_slopes": [False, True],
    "per_head": [True, False],
}
REFUSED = [
    ({"form": "causal"}, {"causal": False}, r"pe\.form=causal rewards keys after the query"),
    ({"form": "asymmetric"}, {}, r"pe\.form=asymmetric has slopes for keys after the query"),
    ({"form": "split"}, {"heads": 4}, r"pe\.form=split has slopes for keys after the query"),
    ({"form": "split"}, {"causal": False}, r"model\.n_heads=3 is odd"),
]
# Options with which a bidirectional model cannot tell left from right.
BLIND_TO_SIDES = [{"form": None}, {"form": "symmetric"}]


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    options, heads = model["options"], model["heads"]
    form = options["form"] or ("causal" if model["causal"] else "symmetric")
    given = {"form": form, "per_head": options["per_head"]}
    if options["learn_slopes"]:
        learned = np.exp(model["parameters"]["log_slopes"])
        before, after = np.split(learned, 2) if form == "asymmetric" else (learned, learned)
        given |= {"before": np.broadcast_to(before, heads), "after": np.broadcast_to(after, heads)}
    return given


# Two heads of width 1, slopes 2⁻⁴ = 0.0625 and 2⁻⁸ = 0.00390625. q = 2 in both, at position 10; k = 3, 1 at positions 10
# and 2, so distances 0 and 8:
#   head 1: 2·3 - 0 = 6      2·1 - 8 · 0.0625 = 2 - 0.5 = 1.5
#   head 2: 2·3 - 0 = 6      2·1 - 8 · 0.00390625 = 2 - 0.03125 = 1.96875
GOLDEN = {
    "q": [[[[2.0]], [[2.0]]]],
    "k": [[[[3.0], [1.0]], [[3.0], [1.0]]]],
    "q_positions": [[10]],
    "k_positions": [[10, 2]],
    "options": {},
    "scores": [[[[6.0, 1.5]], [[6.0, 1.96875]]]],
}
