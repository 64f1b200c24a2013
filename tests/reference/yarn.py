"""YaRN: NTK-by-parts, with queries and keys lengthened by √(1/t) = 0.1 ln s + 1.

Peng et al. 2024, "YaRN" (arXiv:2309.00071), section 3.4, definition 3, with the value for LLaMA; the
ramp of section 3.2 and that of released code are in rope_by_parts. In jquesnelle/yarn 995db5b and transformers 5.24.0 the
factor multiplies cosine and sine of queries and keys, so scores get its square, and channels that do not turn get none.
"""

import math

from tests.reference import rope, rope_by_parts

VALUES = rope_by_parts.VALUES
REFUSED = rope_by_parts.REFUSED
AT_WORK = rope_by_parts.AT_WORK
arguments = rope_by_parts.arguments


def magnitude(factor):
    """√(1/t)."""
    return 0.1 * math.log(factor) + 1


def scores(q, k, q_positions, k_positions, factor, layout="half", **given):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K)."""
    radians = rope_by_parts.radians(q.shape[3], factor, **given)
    return rope.turned(q, k, q_positions, k_positions, radians, layout, magnitude(factor))


# As in rope_by_parts, times (0.1 ln 4 + 1)² = 1.138629436111989² = 1.2964769927807062:
#   1.2964769927807062 · 0.8746242415586898 = 1.1339302065091161
GOLDEN = rope_by_parts.GOLDEN | {"scores": [[[[1.1339302065091161]]]]}
# Of vectors that do not turn apart (distance 0) half of the channels turns: (1 + 1) · 1.2964769927807062 + (1 + 1) = 4.592953985561412,
# over √8: 1.6238544544341275
GOLDEN_PARTIAL = GOLDEN | {
    "q": [[[[1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0]]]],
    "k": [[[[1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0]]]],
    "k_positions": [[27]],
    "options": {"factor": 4.0, "original_length": 1000, "fraction": 0.5},
    "scores": [[[[1.6238544544341275]]]],
}
# Factors 4, 16 and 32 as the code gave them.
RELEASED_FREQUENCIES = [
    row | {"magnitude": {4.0: 1.138629436111989, 16.0: 1.2772588722239782}[row["options"]["factor"]]}
    for row in rope_by_parts.RELEASED_FREQUENCIES
]
