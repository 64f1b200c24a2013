"""PoPE: polar coordinate position embedding.

Gopalakrishnan et al. 2025, "Decoupling the "What" and "Where" With Polar Coordinate Positional Embeddings"
(arXiv:2509.10534), section 3: each channel of queries and keys becomes a complex number of the size softplus(x) = ln(1
+ e^x) (equation 3), turned by its position times θ_c = base^(-(c-1)/D), c from 1 to D (equation 4); a score is the real
part of their product, Σ_c |q_c| |k_c| cos((j - i)θ_c + δ_c) with a learned δ_c on keys (equations 5 and 6). The paper
starts δ at 0 or evenly in [-2π, 0], and clamps it there; the cosine takes δ and δ + 2π for the same, so here it is not
clamped.

The authors' code (agopal42/pope) could not be had; lucidrains/PoPE-pytorch ee11cab and x-transformers have δ by head,
one for all layers, starting at 0, with the clamp. Here each layer has its own, as in the paper's figures 6 and 7.
"""

import math

import numpy as np


def scores(q, k, q_positions, k_positions, phase, base):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K), phase (H, D) to (B, H, Q, K)."""
    batch, heads, queries, width = q.shape
    out = np.zeros((batch, heads, queries, k.shape[2]))
    for b, h, i, j in np.ndindex(out.shape):
        back = k_positions[b][j] - q_positions[b][i]
        for c in range(width):
            size = math.log1p(math.exp(q[b, h, i, c])) * math.log1p(math.exp(k[b, h, j, c]))
            out[b, h, i, j] += size * math.cos(back * base ** (-c / width) + phase[h, c])
    return out / math.sqrt(width)


# The values of each option that the tests go through, the default first.
VALUES = {"base": [10_000.0, 50.0], "start": ["zero", "uniform"]}


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    return {"phase": model["parameters"]["phase"][model["layer"]], "base": model["options"]["base"]}


# Width 2, θ = 1 and 0.01, phases -1 and 0; softplus(0) = ln 2 = 0.69314718055994529 and softplus(ln(e - 1)) = 1,
# ln(e - 1) = 0.54132485461291802. q = (ln(e - 1), 0) at 3, sizes 1 and ln 2; over √2:
#   k = (ln(e - 1), ln(e - 1)) at 3: cos(-1) + ln 2 = 0.54030230586813977 + 0.69314718055994529 = 1.2334494864280851
#   k = (0, 0) at 1: ln 2 cos(-2 - 1) + (ln 2)² cos 0.02 = -0.68621050779409998 + 0.48035692651839512
GOLDEN = {
    "q": [[[[0.54132485461291802, 0.0]]]],
    "k": [[[[0.54132485461291802, 0.54132485461291802], [0.0, 0.0]]]],
    "q_positions": [[3]],
    "k_positions": [[3, 1]],
    "parameters": {"phase": [[[-1.0, 0.0]]]},
    "options": {},
    "scores": [[[[0.87218049610436332, -0.145560463251587]]]],
}
