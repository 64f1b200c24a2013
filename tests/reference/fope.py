"""FoPE: each pair of rotary channels carries a Fourier series instead of one frequency.

Hua et al. 2024, "Fourier Position Embedding: Enhancing Attention's Periodic Extension for Length Generalization"
(arXiv:2412.17739), by the released code (TsinghuaC3I/Fourier-Position-Embedding bd94b20, olmo/model.py, with the
settings of all files under configs/): of θ_c = base^(-2c/D) those below 2π/L are dropped, L the train length; of the N
that remain P = min(N, D/4) pairs of channels (c, c + D/2), as complex numbers, are multiplied by Σ_n cos(pθ_n) A_nc + i
Σ_n sin(pθ_n) B_nc, for queries and keys alike, with A and B of their own in each layer and head. Both are drawn once,
around 1 where n = ⌈N/P⌉ c and 0 elsewhere, from normal numbers of the deviation gain·√(2/(NP + HP)), Xavier's for a
tensor (H, N, P); the gain is 0.3 (0.4 and 0.6 for larger models), and nothing is learned unless `fourier_learnable` is
set. The other pairs are filled up with 1, for the cosine and for the sine; of the frequency zero the sine is 0.

Here the fastest frequency always stays, and P is at least 1. Fixed coefficients are drawn by a number of their own,
from the uniform numbers of a Mersenne Twister, two for each normal one by Box and Muller; cosines come first, then by
layer, head, frequency and series.
"""

import math

import numpy as np


def frequencies(width, base, floor):
    """The frequencies that stay."""
    every = base ** (-2 * np.arange(width // 2) / width)
    return every[: max(int((every >= floor).sum()), 1)]


def scores(q, k, q_positions, k_positions, cosines, sines, base, floor, zero_sine):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K), coefficients (H, N, P) to (B, H, Q, K)."""
    theta = frequencies(q.shape[-1], base, floor)

    def multiplied(x, positions):
        """Pairs as complex numbers times their series, (B, H, T, D/2)."""
        half = x.shape[-1] // 2
        out = x[..., :half] + 1j * x[..., half:]
        for b, h, t, c in np.ndindex(out.shape):
            if c < cosines.shape[-1]:
                angles = positions[b][t] * theta
                real = sum(math.cos(angle) * a for angle, a in zip(angles, cosines[h, :, c], strict=True))
                imaginary = sum(math.sin(angle) * a for angle, a in zip(angles, sines[h, :, c], strict=True))
                out[b, h, t, c] *= complex(real, imaginary)
            else:
                out[b, h, t, c] *= complex(1, 0 if zero_sine else 1)
        return out

    products = np.einsum("bhic,bhjc->bhij", multiplied(q, q_positions), multiplied(k, k_positions).conj())
    return products.real / math.sqrt(q.shape[-1])


# The values of each option that the tests go through, the default first.
VALUES = {
    "base": [10_000.0, 50.0],
    "floor": [None, 0.001],
    "spread": [0.3, 1.0],
    "learn": [False, True],
    "draw": [0, 7],
    "zero_sine": [False, True],
}
REFUSED = [({}, {"width": 5}, "head width 5 .*not even")]
BY_KEY_HEAD = True  # each has coefficients of its own, which its query heads share


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    options = model["options"]
    floor = 2 * math.pi / model["train_length"] if options["floor"] is None else options["floor"]
    given = {"base": options["base"], "floor": floor, "zero_sine": options["zero_sine"]}
    if options["learn"]:
        return given | {name: table[model["layer"]] for name, table in model["parameters"].items()}
    inputs = len(frequencies(model["head_width"], options["base"], floor))
    outputs = min(inputs, max(model["head_width"] // 4, 1))
    shape = (2, model["layers"], model["heads"], inputs, outputs)
    uniform = np.random.RandomState([options["draw"]]).random_sample((math.prod(shape), 2))
    normal = np.sqrt(-2 * np.log(1 - uniform[:, 0])) * np.cos(2 * np.pi * uniform[:, 1])
    deviation = options["spread"] * math.sqrt(2 / ((inputs + model["heads"]) * outputs))
    step = math.ceil(inputs / outputs)
    own = [[1.0 if n == step * c else 0.0 for c in range(outputs)] for n in range(inputs)]
    cosines, sines = (deviation * normal.reshape(shape) + np.array(own))[:, model["layer"]]
    return given | {"cosines": cosines, "sines": sines}


# Width 4: pairs of channels (0, 2) and (1, 3), θ = 1 and 0.01, of which 0.05 leaves one: F(p) = 2 cos p + 3i sin p.
# q = (1, 1, 0, 0) at 2: 1 in both pairs; over √4:
#   k = (0, 0, 1, 0) at 1: the first pair is i, Re(F(2) · conj(i F(1))) = 6 (sin 2 cos 1 - cos 2 sin 1) = 6 sin 1
#   k = (1, 0, 0, 0) at 1: 4 cos 2 cos 1 + 9 sin 2 sin 1
#   k = (0, 5, 0, 0) at 1: the second pair has no series, |1 + i|² · 5 = 10
#   over 2: 3 sin 1 = 2.5244129544236893; 2.9934731148220104; 5
GOLDEN = {
    "q": [[[[1.0, 1.0, 0.0, 0.0]]]],
    "k": [[[[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 5.0, 0.0, 0.0]]]],
    "q_positions": [[2]],
    "k_positions": [[1, 1, 1]],
    "parameters": {"cosines": [[[[2.0]]]], "sines": [[[[3.0]]]]},
    "options": {"floor": 0.05, "learn": True},
    "scores": [[[[2.5244129544236893, 2.9934731148220104, 5.0]]]],
}
# Base 4, so θ = 1 and 0.5, both in one series: F(p) = 2 cos p + cos(p/2) + 3i sin p; the sine of the other pair is 0.
#   k = (1, 0, 0, 0) at 1: Re(F(2) conj F(1)) = (2 cos 2 + cos 1)(2 cos 1 + cos 0.5) + 9 sin 2 sin 1
#   k = (0, 5, 0, 0) at 1: 5
#   over 2: 3.1572764304983427; 2.5
GOLDEN_TWO_FREQUENCIES = GOLDEN | {
    "k": [[[[1.0, 0.0, 0.0, 0.0], [0.0, 5.0, 0.0, 0.0]]]],
    "k_positions": [[1, 1]],
    "parameters": {"cosines": [[[[2.0], [1.0]]]], "sines": [[[[3.0], [0.0]]]]},
    "options": {"base": 4.0, "floor": 0.1, "learn": True, "zero_sine": True},
    "scores": [[[[3.1572764304983427, 2.5]]]],
}


def numbers(tokens, width, shift):
    """Queries or keys of tokens 0, 1, ..., for the runs of released code: (T, D)."""
    return [[round(math.sin(1.3 * t + c * c + shift), 2) for c in range(width)] for t in tokens]


def tables(inputs, outputs):
    """Coefficients of two heads for the same."""
    at = [(head, n, c) for head in range(2) for n in range(inputs) for c in range(outputs)]
    cosines = [round(math.cos(1.7 * head + 2.3 * n + c), 2) for head, n, c in at]
    sines = [round(math.sin(1.1 * head + 0.7 * n + c), 2) for head, n, c in at]
    shape = (1, 2, inputs, outputs)
    return {"cosines": np.reshape(cosines, shape).tolist(), "sines": np.reshape(sines, shape).tolist()}


# Run in float32 with its class FourierEmbedding, coefficients put in: heads of 8 channels for texts of 2000 tokens,
# where three frequencies stay and two pairs of four have series, and heads of 16 for 512, four and four of eight.
RELEASED = [
    {
        "source": "TsinghuaC3I/Fourier-Position-Embedding@bd94b20, olmo/model.py",
        "options": {"floor": 2 * math.pi / length, "learn": True},
        "parameters": tables(stay, series),
        "q": [numbers([0], width, head) for head in (0, 1)],
        "k": [numbers(range(4), width, head + 1) for head in (0, 1)],
        "q_positions": [30],
        "k_positions": [0, 3, 17, 30],
        "scores": [[row] for row in scored],
        "rtol": 1e-5,
    }
    for width, length, stay, series, scored in (
        (
            8,
            2000,
            3,
            2,
            [
                [1.1019624471664429, -1.3657238483428955, -1.850263237953186, 0.08616025745868683],
                [0.5042105913162231, -1.6344174146652222, -2.052088499069214, 0.26561903953552246],
            ],
        ),
        (
            16,
            512,
            4,
            4,
            [
                [1.0228959321975708, -1.4290224313735962, -3.271669387817383, 1.3662186861038208],
                [1.4137834310531616, -0.3971658945083618, -2.8369898796081543, 0.7010250091552734],
            ],
        ),
    )
]
