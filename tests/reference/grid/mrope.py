"""M-RoPE: rotary encoding whose pairs are shared out among time, height and width.

Wang et al. 2024, "Qwen2-VL" (arXiv:2409.12191), "Multimodal Rotary Position Embedding": rotary encoding (arXiv:2104.09864) in
three components; text has the same number in all, and is turned as by one. How many pairs each has is in the released
models: sections of 16, 24, 24 of the 64 pairs, from fast to slow, base 1 000 000 (transformers, Qwen2VLRotaryEmbedding).
`interleave=True` is Qwen3-VL's (Qwen3VLTextRotaryEmbedding): pairs 1, 4, 7, ... are those of height and 2, 5, 8, ... those of
width, as many as their sections say (24, 20, 20), all others those of time.
"""

import cmath
import math

import numpy as np


def axes(sections, interleave):
    """The axis of each pair: 0 time, 1 height, 2 width."""
    pairs = sum(sections)
    if not interleave:
        return [0] * sections[0] + [1] * sections[1] + [2] * sections[2]
    out = [0] * pairs
    for n in range(sections[1]):
        out[3 * n + 1] = 1
    for n in range(sections[2]):
        out[3 * n + 2] = 2
    return out


def default_sections(pairs, interleave):
    """In the proportion of the released models, time having what is left over."""
    each = max(1, math.floor(pairs * (20 if interleave else 24) / 64))
    return [pairs - 2 * each, each, each]


def scores(
    q,
    k,
    q_positions,
    k_positions,
    sections=None,
    interleave=False,
    base=1_000_000.0,
    layout="half",
    fraction=1.0,
):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q, 3) and (B, K, 3) to (B, H, Q, K), by the offsets alone."""
    batch, heads, queries, width = q.shape
    rotary = round(fraction * width)
    of_pair = axes(sections or default_sections(rotary // 2, interleave), interleave)
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, h, i, j in np.ndindex(out.shape):
        total = float(np.dot(q[b, h, i, rotary:], k[b, h, j, rotary:]))
        for c, axis in enumerate(of_pair):
            offset = q_positions[b][i][axis] - k_positions[b][j][axis]
            first, second = (c, c + rotary // 2) if layout == "half" else (2 * c, 2 * c + 1)
            query, key = complex(q[b, h, i, first], q[b, h, i, second]), complex(k[b, h, j, first], k[b, h, j, second])
            total += (query * key.conjugate() * cmath.exp(1j * offset * base ** (-2 * c / rotary))).real
        out[b, h, i, j] = total / math.sqrt(width)
    return out


# The values of each option that the tests go through, the default first.
VALUES = {
    "layout": ["half", "interleaved"],
    "base": [1_000_000.0, 50.0],
    "fraction": [1.0, 0.5],
    "sections": [None, [6, 3, 3], [3, 2, 1]],
    "interleave": [False, True],
}
REFUSED = [
    ({}, {"heads": 1, "width": 4}, r"pe\.sections=null does not share out 2 channel pairs .* wider heads"),
    ({"sections": [1, 1, 1]}, {"heads": 1, "width": 8}, r"pe\.sections=\[1,1,1\] does not share out 4 .* sum is 4"),
    ({"sections": [2, 2]}, {"heads": 1, "width": 8}, r"pe\.sections=\[2,2\] does not share out 4"),
    ({"sections": [1, 2, 1], "interleave": True}, {"heads": 1, "width": 8}, "would have 1 and 1 pairs"),
]


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    return dict(model["options"])


# Width 6, a pair for each axis: θ = 1, 10^-2, 10^-4. q = (1, 1, 1, 0, 0, 0) at (3, 100, 20000): all pairs are 1.
# k = (0, 0, 0, 1, 0, 0) at (1, 0, 0): time alone, offset 2: Re(conj(i) e^(2i)) = sin 2 = 0.9092974268256817, over √6.
# k = (0, 0, 0, 0, 1, 0) at (0, -100, 0): height, offset 200 · 0.01 = 2; k = (0, 0, 0, 0, 0, 1) at (0, 0, 0): width,
#   20000 · 0.0001 = 2: the same
GOLDEN = {
    "q": [[[[1.0, 1.0, 1.0, 0.0, 0.0, 0.0]]]],
    "k": [[[[0.0, 0.0, 0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]]]],
    "q_positions": [[[3, 100, 20000]]],
    "k_positions": [[[1, 0, 0], [0, -100, 0], [0, 0, 0]]],
    "options": {},
    "scores": [[[[0.9092974268256817 / math.sqrt(6)] * 3]]],
}

# In float32; text at first, then cells of a picture, and a far one.
RELEASED = {
    "q": [
        [
            [
                [
                    -0.1,
                    2,
                    0,
                    -1.1,
                    1,
                    0.8,
                    -1.4,
                    0.6,
                    0.9,
                    -0.7,
                    0.7,
                    -0.4,
                ],
                [
                    -0.5,
                    -1.7,
                    0.7,
                    -0.6,
                    0.7,
                    1.2,
                    0.5,
                    -1.6,
                    0.2,
                    1.9,
                    -2.5,
                    -0.6,
                ],
            ]
        ]
    ],
    "k": [
        [
            [
                [
                    -0.8,
                    0.1,
                    -0.8,
                    -0.8,
                    -0.9,
                    -1,
                    1.2,
                    -0.4,
                    0,
                    0.8,
                    -1.6,
                    0.6,
                ],
                [
                    2,
                    -0.1,
                    -0.4,
                    1.2,
                    0,
                    0.8,
                    -1.9,
                    0.9,
                    -1.7,
                    0.6,
                    1.1,
                    -0.9,
                ],
                [
                    -1.4,
                    0.1,
                    -1.9,
                    0.1,
                    -1.4,
                    0.6,
                    -0.8,
                    0.8,
                    -1.3,
                    0.5,
                    -2.3,
                    -0.5,
                ],
                [
                    -0.2,
                    -1.4,
                    0.2,
                    -0.4,
                    -1.3,
                    -1.5,
                    1,
                    0.7,
                    -1.3,
                    -0.2,
                    -1.4,
                    -1.4,
                ],
                [
                    -1,
                    0.4,
                    0.1,
                    -1.1,
                    0.1,
                    -1.6,
                    -0.3,
                    -1.5,
                    -0.1,
                    -0.5,
                    0.8,
                    0.2,
                ],
            ]
        ]
    ],
    "q_positions": [[[6, 7, 9], [300, 301, 302]]],
    "k_positions": [[[0, 0, 0], [5, 5, 5], [6, 7, 9], [6, 8, 6], [300, 301, 302]]],
    "options": {"sections": [3, 2, 1]},
    "scores": [
        [
            [
                [-1.27478597, 0.829472501, -0.583123737, -2.09865171, -0.902940236],
                [1.1325351, -0.294687705, 2.4596955, 1.33927178, -0.617764816],
            ]
        ]
    ],
    "rtol": 1e-5,
    "source": "transformers 5.24.0, Qwen2VLRotaryEmbedding and apply_rotary_pos_emb",
}
RELEASED_INTERLEAVED = RELEASED | {
    "options": {"sections": [3, 2, 1], "interleave": True},
    "scores": [
        [
            [
                [-1.28720963, 0.884473462, -0.583123696, -2.16118381, -0.902738028],
                [1.15013652, -0.307848048, 2.45725575, 1.26603911, -0.617764778],
            ]
        ]
    ],
    "source": "transformers 5.24.0, Qwen3VLTextRotaryEmbedding and apply_rotary_pos_emb",
}
