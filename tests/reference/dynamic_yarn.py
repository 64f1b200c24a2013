"""Dynamic YaRN: YaRN with the factor s = max(1, l/L), l the present length of the text, L the original one.

Peng et al. 2024, "YaRN" (arXiv:2309.00071), section 3.3 (dynamic scaling), with definitions 2 and 3. Frequencies and
factor are those of all tokens of the text, so the keys are turned anew as it grows. In jquesnelle/yarn 995db5b
(LlamaDynamicYaRNScaledRotaryEmbedding) s never shrinks again after a long text; here each text has its own.
"""

from tests.reference import rope, rope_by_parts, yarn

VALUES = {option: values for option, values in rope_by_parts.VALUES.items() if option != "factor"}
REFUSED = rope_by_parts.REFUSED
AT_WORK = rope_by_parts.AT_WORK
arguments = rope_by_parts.arguments


def scores(q, k, q_positions, k_positions, length, layout="half", **given):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K)."""

    def of_length(present):
        factor = present / length if present > length else 1.0
        return rope_by_parts.radians(q.shape[3], factor, length, **given), yarn.magnitude(factor)

    return rope.turned_by_length(q, k, q_positions, k_positions, of_length, layout)


# The last token at 3999 makes the text 4000 long, 4 times the original length of 1000: as in yarn.
GOLDEN = yarn.GOLDEN | {
    "q_positions": [[3999]],
    "k_positions": [[3979]],
    "options": {"original_length": 1000},
}
# At 999 it is 1000 long: rope. (cos 20 + cos 2 + cos 0.2 + cos 0.02) / √8
#   = (0.40808206181339196 - 0.4161468365471424 + 0.9800665778412416 + 0.9998000066665778) / 2.8284271247461903
GOLDEN_WITHIN = GOLDEN | {
    "q_positions": [[999]],
    "k_positions": [[979]],
    "scores": [[[[0.6971372154235756]]]],
}
RELEASED_FREQUENCIES = [
    {
        "source": f"jquesnelle/yarn@995db5b, LlamaDynamicYaRNScaledRotaryEmbedding, dim 16, {length} tokens",
        "options": {"original_length": 64},
        "width": 16,
        "length": length,
        "magnitude": magnitude,
        "frequencies": frequencies,
    }
    for length, magnitude, frequencies in (
        (
            64,
            1.0,
            [
                *(1.0, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786),
                *(0.00100000005, 0.000316227786),
            ],
        ),
        (
            65,
            1.0015504186535966,
            [
                *(1.0, 0.314606071, 0.098974362, 0.0311362725, 0.00984615367, 0.0031136272),
                *(0.000984615413, 0.000311362732),
            ],
        ),
        (
            1024,
            1.2772588722239782,
            [
                *(1.0, 0.217406571, 0.0374999978, 0.00197642366, 0.000624999986, 0.000197642366),
                *(6.2500003e-05, 1.97642366e-05),
            ],
        ),
    )
]
