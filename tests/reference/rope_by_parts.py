"""NTK-by-parts: pairs that turn often over the original length keep their frequency, slow ones get it over the factor.

Peng et al. 2024, "YaRN" (arXiv:2309.00071), section 3.2, definition 2: θ' = (1 - γ) θ/s + γ θ with γ(r) from 0 at r = α to
1 at r = β turns, r = L θ / 2π (ramp `turns`). Released code instead finds the pair c, not a whole number, that turns r
times, c(r) = D ln(L / 2π r) / (2 ln b), and lets γ fall linearly in the number of the pair from 1 at max(⌊c(β)⌋, 0) to
0 at min(⌈c(α)⌉, D - 1), D the channels that turn (ramp `pair`): jquesnelle/yarn 995db5b and transformers 5.24.0. Where
⌈c(α)⌉ < 0, no pair turns α times and γ is 0 for all; the code divides by a negative number there and gives 1 for all.
α and β are `low` and `high`.
"""

import math

from tests.reference import rope

VALUES = rope.VALUES | {
    "factor": [16.0, 3.0],
    "original_length": [None, 8],
    "low": [1.0, 0.5],
    "high": [32.0, 1.5],
    "ramp": ["pair", "turns"],
}
REFUSED = [
    ({"low": 32.0}, {}, r"pe\.low=32 must be less than pe\.high=32"),
    ({"high": 1.0}, {}, r"pe\.low=1 must be less than pe\.high=1"),
]
# Options with which each of the others makes a difference in a small model.
AT_WORK = {"original_length": 32}


def kept(c, rotary_width, base, length, low, high, ramp):
    """γ of pair c."""
    if ramp == "turns":
        r = length * rope.frequency(c, rotary_width, base) / (2 * math.pi)
        return 0.0 if r < low else 1.0 if r > high else (r - low) / (high - low)

    def pair_that_turns(r):
        return rotary_width * math.log(length / (2 * math.pi * r)) / (2 * math.log(base))

    start, end = math.floor(pair_that_turns(high)), math.ceil(pair_that_turns(low))
    if end < 0:
        return 0.0
    start, end = max(start, 0), min(end, rotary_width - 1)
    return 1.0 if c <= start else 0.0 if c >= end else (end - c) / (end - start)


def radians(width, factor, length, low, high, ramp, base=10000.0, fraction=1.0):
    """θ' of every pair of a head of this width."""
    rotary_width, out = round(fraction * width), []
    for c, theta in enumerate(rope.frequencies(width, base, fraction)):
        gamma = kept(c, rotary_width, base, length, low, high, ramp)
        out.append((1 - gamma) * theta / factor + gamma * theta)
    return out


def scores(q, k, q_positions, k_positions, layout="half", **given):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K)."""
    return rope.turned(q, k, q_positions, k_positions, radians(q.shape[3], **given), layout)


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    given = dict(model["options"])
    return given | {"length": given.pop("original_length") or model["train_length"]}


# Width 8: θ = 1, 0.1, 0.01, 0.001. Original length 1000, so the pairs turn 159.2, 15.92, 1.592 and 0.1592 times; factor 4.
# c(r) = 8 ln(1000 / 2π r) / (2 ln 10 000) = log10(159.15 / r): 0.697 for r = 32, down to 0, and 2.202 for r = 1, up to 3.
# γ = 1, 2/3, 1/3, 0, so θ is multiplied by 1, 1/3 · 1/4 + 2/3 = 3/4, 2/3 · 1/4 + 1/3 = 1/2 and 1/4.
# q = k = (1, 1, 1, 1, 0, 0, 0, 0) at distance 20, over √8 = 2.82842712474619:
#   cos 20 + cos 1.5 + cos 0.1 + cos 0.005 = 0.40808206181 + 0.07073720167 + 0.99500416528 + 0.99998750003
GOLDEN = {
    "q": [[[[1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]]]],
    "k": [[[[1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]]]],
    "q_positions": [[27]],
    "k_positions": [[7]],
    "options": {"factor": 4.0, "original_length": 1000},
    "scores": [[[[0.8746242415586898]]]],
}
# By the paper: γ = 1, (15.9155 - 1) / 31 = 0.48114497771579 and (1.59155 - 1) / 31 = 0.01908223970731, 0, so θ' = 1,
# 0.0610858733286844, 0.002643116797803 and 0.00025.
GOLDEN_TURNS = GOLDEN | {
    "options": {"factor": 4.0, "original_length": 1000, "ramp": "turns"},
    "scores": [[[[0.971813987490552]]]],
}
YARN = "jquesnelle/yarn@995db5b, LlamaYaRNScaledRotaryEmbedding"
RELEASED_FREQUENCIES = [
    {
        "source": f"{YARN}, dim 16, original length {length}, scale {factor:g}, ramp from {ramp}",
        "options": {"factor": factor, "original_length": length} | more,
        "width": 16,
        "frequencies": frequencies,
    }
    for length, factor, more, ramp, frequencies in (
        (
            64,
            4.0,
            {},
            "0 to 3",
            [
                *(1.0, 0.237170815, 0.049999997, 0.00790569466, 0.00249999994, 0.000790569466),
                *(0.000250000012, 7.90569466e-05),
            ],
        ),
        (
            2048,
            16.0,
            {},
            "2 to 6",
            [
                *(1.0, 0.316227764, 0.100000001, 0.0242111888, 0.00531250006, 0.000938801211),
                *(6.2500003e-05, 1.97642366e-05),
            ],
        ),
        (
            4096,
            4.0,
            {"base": 500_000.0},
            "1 to 4",
            [
                *(1.0, 0.193922758, 0.028204523, 0.0036463323, 0.000353553361, 6.85620471e-05),
                *(1.32957393e-05, 2.57834631e-06),
            ],
        ),
        (
            64,
            4.0,
            {"low": 2.0, "high": 8.0},
            "0 to 2",
            [
                *(1.0, 0.197642356, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466),
                *(0.000250000012, 7.90569466e-05),
            ],
        ),
    )
]
