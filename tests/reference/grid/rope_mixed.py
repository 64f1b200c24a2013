"""RoPE-Mixed: rotary encoding by both coordinates at once, at learned frequencies.

Heo et al. 2024, "Rotary Position Embedding for Vision Transformer" (arXiv:2403.13298), RoPE-Mixed, and released code,
naver-ai/rope-vit@ce85c2e, models/vit_rope.py: pair c of a head of a layer turns by x fx_c + y fy_c (compute_mixed_cis), x the
column. At the start (init_random_2d_freqs) the first half of the pairs has frequencies 10^(-4c/D) along (cos φ, sin φ), the
second the same along (cos(φ + π/2), sin(φ + π/2)), φ drawn from 0 to 2π for each layer and head.
"""

import cmath
import math

import numpy as np


def scores(q, k, q_positions, k_positions, freqs, layer=0, layout="interleaved"):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q, 2) and (B, K, 2), freqs (2, layers, H, pairs) to (B, H, Q, K)."""
    batch, heads, queries, width = q.shape
    pairs = freqs.shape[-1]
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, h, i, j in np.ndindex(out.shape):
        right, down = (q_positions[b][i][axis] - k_positions[b][j][axis] for axis in (0, 1))
        total = float(np.dot(q[b, h, i, 2 * pairs :], k[b, h, j, 2 * pairs :]))
        for c in range(pairs):
            first, second = (c, c + pairs) if layout == "half" else (2 * c, 2 * c + 1)
            query, key = complex(q[b, h, i, first], q[b, h, i, second]), complex(k[b, h, j, first], k[b, h, j, second])
            angle = right * freqs[0, layer, h, c] + down * freqs[1, layer, h, c]
            total += (query * key.conjugate() * cmath.exp(1j * angle)).real
        out[b, h, i, j] = total / math.sqrt(width)
    return out


def start(angle, width, base=10.0):
    """Frequencies of one head at the start, (2, width / 2), for a drawn angle."""
    out = np.zeros((2, width // 2))
    for c in range(width // 4):
        speed = base ** (-4 * c / width)
        for half, direction in enumerate((angle, angle + math.pi / 2)):
            out[:, half * (width // 4) + c] = speed * math.cos(direction), speed * math.sin(direction)
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"layout": ["interleaved", "half"], "base": [10.0, 50.0], "fraction": [1.0, 0.5], "rotate": [True, False]}
REFUSED = [
    ({}, {"heads": 1, "width": 6}, "6 channels .* multiple of 4"),
]


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    return {"freqs": model["parameters"]["freqs"], "layer": model["layer"], "layout": model["options"]["layout"]}


# Width 4, one head: fx = (0.5, 0), fy = (0.25, 2). q = (1, 0, 1, 0) at (4, 1): both pairs are 1.
# k = (0, 1, 0, 0) at (2, 5): angle 2 · 0.5 - 4 · 0.25 = 0, Re(conj(i)) = 0
# k = (0, 1, 0, 0) at (0, 1): angle 4 · 0.5 = 2, Re(conj(i) e^(2i)) = sin 2, over √4: 0.45464871341284085
# k = (0, 0, 0, 1) at (9, 0): angle -5 · 0 + 1 · 2 = 2: the same
GOLDEN = {
    "q": [[[[1.0, 0.0, 1.0, 0.0]]]],
    "k": [[[[0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]]],
    "q_positions": [[[4, 1]]],
    "k_positions": [[[2, 5], [0, 1], [9, 0]]],
    "parameters": {"freqs": [[[[0.5, 0.0]]], [[[0.25, 2.0]]]]},
    "layers": 1,
    "options": {},
    "scores": [[[[0.0, 0.45464871341284085, 0.45464871341284085]]]],
}

# Two heads, a grid of three columns and two rows, positions (column, row), in float32.
RELEASED = {
    "q": [
        [
            [
                [-1.5, -0.8, -0.7, -1.6, -0.1, -0.6, -1, -1.6],
                [-0.7, 0.3, -0.8, -0.3, -0.2, 1.7, 0.2, 0.5],
            ],
            [
                [-0.9, 0.5, 0.1, -0.4, 0.8, 0.4, 1.2, 2],
                [0.1, 0.9, -0.2, -0.6, 1.5, -0.9, -3.3, -0.7],
            ],
        ]
    ],
    "k": [
        [
            [
                [-1, 0.9, -1.3, -1.1, -1.2, 1.2, -1.1, -0.1],
                [-0.9, 0.3, -0.6, -0.2, 1, -0.8, -0.2, -0.4],
                [-1.5, -0.5, -0.8, 0.5, 0, 0, 1.1, 0.9],
                [0.5, -0.5, 0.1, 2.8, 0.1, 1.1, 0.3, 1.8],
                [-0.8, 1.8, -0.3, -0.3, -1.3, 0, -0.2, -0.7],
                [1.2, 0.4, -1.2, -0.7, -0.9, -0.9, -1, -0.1],
            ],
            [
                [-1, 0.3, -1.6, 1.8, 0, 1.6, -0.6, 1.1],
                [0.8, -1.2, -0.6, -0.4, -2, 0.8, -0.8, -0.1],
                [1.1, -0.6, -1.5, -0.2, -0.9, 1.6, -0.2, 0.9],
                [2.1, -1, 0.2, -0.1, -0.3, 0.3, 0.2, 2.1],
                [
                    0.9,
                    0.1,
                    -0.1,
                    0.8,
                    0.6,
                    -0.8,
                    0.3,
                    0.2,
                ],
                [2.1, 1.1, 0, 1.1, -1.5, -0.2, -1, -1.6],
            ],
        ]
    ],
    "q_positions": [[[1, 1], [2, 1]]],
    "k_positions": [[[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]]],
    "parameters": {
        "freqs": [
            [
                [
                    [-0.1, 0.4, -0.8, 0.1],
                    [0.7, -0.3, 1.6, -1.6],
                ]
            ],
            [
                [
                    [-0.1, -0.3, 0.2, -0.2],
                    [0.9, 0.2, 0.6, 0.4],
                ]
            ],
        ]
    },
    "options": {},
    "scores": [
        [
            [
                [1.80877827, 1.23228141, 0.295503616, -3.21085161, 0.671751537, 0.604133964],
                [0.284653013, 0.201617893, 0.778891242, -0.508302088, -0.0839903258, -0.406586376],
            ],
            [
                [-0.630969903, -0.346807493, -0.831420608, -1.33408541, -0.0601040423, -0.103420971],
                [0.0994941753, 0.8754683, -1.21529623, 0.10514934, -0.345195956, 1.02176922],
            ],
        ]
    ],
    "rtol": 1e-6,
    "source": "naver-ai/rope-vit@ce85c2e, models/vit_rope.py, compute_mixed_cis and apply_rotary_emb",
}
# init_random_2d_freqs(8, 2, 10.0) after torch.manual_seed(5): the angle of each head, and its frequencies (2, 4).
STARTS_AS_RELEASED = {
    "angles": [5.2166266441345215, 0.7923782467842102],
    "freqs": [
        [
            [0.48314011096954346, 0.15278232097625732, 0.875542938709259, 0.276870995759964],
            [-0.8755430579185486, -0.2768710255622864, 0.4831402599811554, 0.1527823656797409],
        ],
        [
            [0.7021539211273193, 0.2220405638217926, -0.7120252251625061, -0.22516214847564697],
            [0.7120251655578613, 0.22516211867332458, 0.7021538615226746, 0.2220405489206314],
        ],
    ],
}
