"""Llama 3.1's rope: by wavelength, keep the fast pairs, divide the slow ones by a factor, and blend between.

Grattafiori et al. 2024, "The Llama 3 Herd of Models" (arXiv:2407.21783) gives the base only; the formula is in Meta's code,
meta-llama/llama-models a9c89c4, models/llama3/model.py, apply_scaling: of the wavelength λ = 2π/θ, θ where λ < L/high, θ/s
where λ > L/low, and (1 - m) θ/s + m θ with m = (L/λ - low) / (high - low) between. There L = 8192, low = 1, high = 4, s = 8.
"""

import math

from tests.reference import rope

VALUES = rope.VALUES | {
    "factor": [8.0, 3.0],
    "original_length": [None, 8],
    "low": [1.0, 0.5],
    "high": [4.0, 1.5],
}
REFUSED = [({"low": 5.0}, {}, r"pe\.low=5 must be less than pe\.high=4")]
AT_WORK = {"original_length": 32}


def slower(theta, factor, length, low, high):
    """A frequency of rope, as it is with the scaling."""
    wavelength = 2 * math.pi / theta
    if wavelength < length / high:
        return theta
    if wavelength > length / low:
        return theta / factor
    m = (length / wavelength - low) / (high - low)
    return (1 - m) * theta / factor + m * theta


def scores(q, k, q_positions, k_positions, factor, length, low, high, base=10000.0, layout="half", fraction=1.0):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K)."""
    radians = [slower(theta, factor, length, low, high) for theta in rope.frequencies(q.shape[3], base, fraction)]
    return rope.turned(q, k, q_positions, k_positions, radians, layout)


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    given = dict(model["options"])
    return given | {"length": given.pop("original_length") or model["train_length"]}


# Width 8: θ = 1, 0.1, 0.01, 0.001; L = 1000, so L/λ = 159.15, 15.915, 1.5915494309189535, 0.159. The first two are above 4
# and stay, the last is below 1 and becomes 0.000125. m = 0.5915494309189535 / 3 = 0.19718314363965116 makes the third
# 0.01 (0.8028168563603488 / 8 + 0.19718314363965116) = 0.002975352506846947. Distance 200, over √8:
#   cos 200 + cos 20 + cos 0.5950705 + cos 0.025 = 0.487187675 + 0.408082062 + 0.828108980 + 0.999687516
GOLDEN = {
    "q": [[[[1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]]]],
    "k": [[[[1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]]]],
    "q_positions": [[207]],
    "k_positions": [[7]],
    "options": {"original_length": 1000},
    "scores": [[[[0.9627492995730619]]]],
}
RELEASED_FREQUENCIES = [
    {
        "source": "meta-llama/llama-models@a9c89c4, models/llama3/model.py, apply_scaling, dim 16",
        "options": {"original_length": 8192},
        "width": 16,
        "frequencies": [
            *(1.0, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786),
            *(0.000213607578, 3.95284733e-05),
        ],
    },
    {
        "source": "meta-llama/llama-models@a9c89c4, models/llama3/model.py, apply_scaling, dim 64",
        "options": {"original_length": 8192, "base": 500_000.0},
        "width": 64,
        "frequencies": [
            *(1.0, 0.663601279, 0.440366626, 0.292227834, 0.193922758, 0.128687382, 0.0853971019, 0.0566696189),
            *(0.0376060307, 0.0249554086, 0.0165604409, 0.0109895291, 0.00729266508, 0.00483942125, 0.00321144611),
            *(0.00137189368, 0.000524846022, 0.000178507791, 7.78465546e-05, 5.16590699e-05, 3.42810235e-05),
            *(2.2748929e-05, 1.50962178e-05, 1.00178686e-05, 6.64786967e-06, 4.41153452e-06, 2.92749974e-06),
            *(1.94269251e-06, 1.28917316e-06, 8.55496921e-07, 5.6770881e-07, 3.7673226e-07),
        ],
    },
]
