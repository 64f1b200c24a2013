"""Dynamic NTK: NTK-aware rope whose base grows with the present length l of the text, beyond the original length L.

emozilla 2023, as in Peng et al. 2024, "YaRN" (arXiv:2309.00071), section 3.3, with definition 1 and s = max(1, l/L). In code,
jquesnelle/yarn 995db5b (LlamaDynamicScaledRotaryEmbedding, `ntk`) and transformers 5.24.0 (`dynamic`, `factor`), the
base becomes b · (f · l/L - (f - 1))^(D/(D-2)), that of the paper with f = 1. In jquesnelle/yarn it never shrinks again.
"""

from tests.reference import rope, rope_ntk

VALUES = rope.VALUES | {"factor": [1.0, 3.0], "original_length": [None, 8]}


def scores(q, k, q_positions, k_positions, factor, length, base=10000.0, layout="half", fraction=1.0):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K)."""
    turning = round(fraction * q.shape[3])

    def of_length(present):
        stretch = factor * max(present, length) / length - (factor - 1)
        larger = base * stretch ** (turning / (turning - 2)) if turning > 2 else base
        return rope.frequencies(q.shape[3], larger, fraction), 1.0

    return rope.turned_by_length(q, k, q_positions, k_positions, of_length, layout)


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    given = dict(model["options"])
    return given | {"length": given.pop("original_length") or model["train_length"]}


# The last token at 39 makes the text 40 long, 4 times the original length: as rope_ntk with the factor 4, distance 2; and
# with factor 3 and 20 tokens, 3 · 20/10 - 2 = 4, the same.
GOLDEN = rope_ntk.GOLDEN | {
    "q_positions": [[39]],
    "k_positions": [[37, 37]],
    "options": {"original_length": 10, "base": 1e6},
    "scores": [[[[0.6465849335706799, 0.6465849335706799]]]],
}
GOLDEN_FACTOR = GOLDEN | {
    "q_positions": [[19]],
    "k_positions": [[17, 17]],
    "options": {"original_length": 10, "base": 1e6, "factor": 3.0},
}
# At 9 it is 10 long: rope. (cos 2 + cos 0.02 + cos 0.0002) / √6
#   = (-0.4161468365471424 + 0.9998000066665778 + 0.99999998) / 2.449489742783178
GOLDEN_WITHIN = GOLDEN | {
    "q_positions": [[9]],
    "k_positions": [[7, 7]],
    "scores": [[[[0.646523691223971, 0.646523691223971]]]],
}
RELEASED_FREQUENCIES = [
    {
        "source": f"jquesnelle/yarn@995db5b, LlamaDynamicScaledRotaryEmbedding, dim 16, ntk {factor:g}, {length} tokens",
        "options": {"original_length": 64, "factor": factor},
        "width": 16,
        "length": length,
        "frequencies": frequencies,
    }
    for factor, length, frequencies in (
        (
            1.0,
            256,
            [
                *(1.0, 0.259412825, 0.0672950074, 0.017457189, 0.00452861842, 0.00117478159),
                *(0.000304753397, 7.90569466e-05),
            ],
        ),
        (
            2.0,
            256,
            [
                *(1.0, 0.239481375, 0.057351321, 0.0137345716, 0.00328917382, 0.00078769587),
                *(0.000188638471, 4.51753949e-05),
            ],
        ),
        (
            2.0,
            65,
            [
                *(1.0, 0.314840704, 0.0991246626, 0.0312084779, 0.00982569903, 0.00309352996),
                *(0.000973969174, 0.000306645117),
            ],
        ),
        (
            2.0,
            64,
            [
                *(1.0, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786),
                *(0.00100000005, 0.000316227786),
            ],
        ),
    )
]
