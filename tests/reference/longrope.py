"""LongRoPE: every pair has a rescale factor, one list in texts within the original length, another in longer ones.

Ding et al. 2024, "LongRoPE" (arXiv:2402.13753), section 3: θ_c / λ_c, with λ found by a search, and with the first n̂
tokens left as they were. microsoft/LongRoPE c9e56aa, rope/longrope.py, has one list; it lengthens queries and keys by
√(1 + ln s / ln L), s the ratio of the new to the original length L. transformers 5.24.0 (`longrope`), as Phi-3, has a list
for texts of up to L tokens and one for longer ones, all tokens of them, the same lengthening at every length, and no n̂.
"""

import math

from tests.reference import rope

VALUES = rope.VALUES | {
    "factor": [16.0, 3.0],
    "original_length": [None, 12],
    "short": [None, [1.5]],
    "long": [None, [2.5]],
}
REFUSED = [
    ({"long": [1.0, 2.0, 3.0]}, {}, r"pe\.long=\[1\.0,2\.0,3\.0\] has 3 numbers, and 2 pairs"),
    ({"short": []}, {}, r"pe\.short=\[\] has 0 numbers, and 2 pairs"),
    ({"long": [1.0, -2.0]}, {}, r"pe\.long=\[1\.0,-2\.0\] is out of range: each must be > 0"),
]


def scores(q, k, q_positions, k_positions, factor, length, short, long, base=10000.0, layout="half", fraction=1.0):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K).

    short, long: a number for each pair, or one for all.
    """

    def of_length(present):
        factors = long if present > length else short
        radians = [
            theta / factors[c % len(factors)] for c, theta in enumerate(rope.frequencies(q.shape[3], base, fraction))
        ]
        return radians, math.sqrt(1 + math.log(factor) / math.log(length))

    return rope.turned_by_length(q, k, q_positions, k_positions, of_length, layout)


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    given = dict(model["options"])
    given["length"] = given.pop("original_length") or model["train_length"]
    return given | {"short": given["short"] or [1.0], "long": given["long"] or [given["factor"]]}


# Width 4: θ = 1 and 0.01. L = 16 and s = 4: scores grow by 1 + ln 4 / ln 16 = 1.5. Distance 2.
# The last token at 16 makes the text 17 long: λ = 2 and 4: 1.5 (cos 1 + cos 0.005) / 2 = 1.155217354420636
# At 15 it is 16 long: 1.5 (cos 2 + cos 0.02) / 2 = 1.5 · 0.2918265850597177 = 0.4377398775895765
GOLDEN = {
    "q": [[[[1.0, 1.0, 0.0, 0.0]]]],
    "k": [[[[1.0, 1.0, 0.0, 0.0]]]],
    "q_positions": [[16]],
    "k_positions": [[14]],
    "options": {"factor": 4.0, "original_length": 16, "long": [2.0, 4.0]},
    "scores": [[[[1.155217354420636]]]],
}
GOLDEN_WITHIN = GOLDEN | {"q_positions": [[15]], "k_positions": [[13]], "scores": [[[[0.4377398775895765]]]]}
RELEASED_FREQUENCIES = [
    {
        "source": "microsoft/LongRoPE@c9e56aa, LongRoPEScaledRotaryEmbedding, from 64 to 512 tokens",
        "options": {"original_length": 64, "factor": 8.0, "long": [1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0]},
        "width": 16,
        "length": 512,
        "magnitude": 1.224744871391589,
        "frequencies": [
            *(1.0, 0.252982229, 0.0666666701, 0.0158113893, 0.00333333341, 0.000790569466),
            *(0.000166666665, 3.95284733e-05),
        ],
    }
]
