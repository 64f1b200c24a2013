"""Leaky ReRoPE: rotary encoding at the distance d = i - j within a window w, at w + (d - w)/f beyond it.

Su 2023, "Transformer升级之路：12、无限外推的ReRoPE？" (kexue.fm/archives/9708), on RoFormer (arXiv:2104.09864). The released code
(bojone/rerope acfe788, leaky_rerope_patch.py) turns queries and keys by positions over f, the queries w(f - 1)/f
further, and takes those scores where |i - j| >= w; its w is 512 and its f 16 for a train length L of 4096. It always
multiplies the query at p by max(1, ln(p + 1)/ln L). A key after the query is hidden; seen, it stands at its own
distance here. Channels c and c + D/2 are a pair.
"""

from tests.reference import rerope


def scores(q, k, q_positions, k_positions, window, factor, **given):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K)."""

    def distance(query, key):
        apart = query - key
        return apart if apart < window else window + (apart - window) / factor

    return rerope.turned_scores(q, k, q_positions, k_positions, distance, **given)


# The values of each option that the tests go through, the default first.
VALUES = rerope.VALUES | {"factor": [16.0, 2.5]}
SHIFT_INVARIANT = rerope.SHIFT_INVARIANT
arguments = rerope.arguments


# Width 2, one pair, θ = 1; window 3, factor 2, queries do not grow. q = (1, 0) at 9, over √2:
#   k = (1, 0) at 9, 7, 6, 5, 2: distances 0 and 2 as they are, 3, then 3 + (4 - 3)/2 = 3.5 and 3 + (7 - 3)/2 = 5
#   k = (0, 1) at 2: Re(-i e^(5i)) = sin 5
#   cos 3.5 = -0.93645668729079634, cos 5 = 0.28366218546322625, sin 5 = -0.95892427466313845; cos 2 and cos 3 are
#   -0.41614683654714241 and -0.98999249660044542
GOLDEN = {
    "q": [[[[1.0, 0.0]]]],
    "k": [[[[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]],
    "q_positions": [[9]],
    "k_positions": [[9, 7, 6, 5, 2, 2]],
    "options": {"window": 3, "factor": 2.0, "log_n": False},
    "scores": [
        [
            [
                [
                    0.70710678118654746,
                    -0.29426025009181417,
                    -0.70003040766997504,
                    -0.6621748738708122,
                    0.20057945490724338,
                    -0.67806185725869661,
                ]
            ]
        ]
    ],
}


# The attention weights of forward_with_leaky_rerope in float32, its window set to 3, its scaling_factor to 4 and its
# training_length to 16, for six tokens at once; the last row is the same, to the last digits, in decoding.
RELEASED = [
    {
        "source": "bojone/rerope@acfe788, leaky_rerope_patch.py",
        "options": {"window": 3, "factor": 4.0},
        "q": [rerope.numbers((4, 5), 4, 0, 2)],
        "k": [rerope.numbers(range(6), 4, 1, 2)],
        "q_positions": [22, 23],
        "k_positions": [0, 4, 17, 20, 22, 23],
        "weights": [
            [
                [
                    0.12444443255662918,
                    0.004512985236942768,
                    0.11549694091081619,
                    0.4005332291126251,
                    0.3550124168395996,
                    0,
                ],
                [
                    0.17734530568122864,
                    0.021625082939863205,
                    0.01450925599783659,
                    0.04204513877630234,
                    0.14985555410385132,
                    0.5946196913719177,
                ],
            ]
        ],
        "rtol": 1e-5,
    }
]
