"""Two bases: rope with one base in most layers and a larger one in every n-th.

Gemma Team 2025, "Gemma 3 Technical Report" (arXiv:2503.19786), section 2: five local layers for one global, 10 000 and
1 000 000. transformers 5.24.0 (gemma3: layer i is global where (i + 1) % 6 is 0) and google/gemma_pytorch 014acb7
(attn_types: five local, then one global). Their windows and the factor 8 of the larger models are left out.
"""

from tests.reference import rope

VALUES = rope.VALUES | {"global_base": [1_000_000.0, 200.0], "interval": [None, 3]}


def scores(q, k, q_positions, k_positions, base, layout="half", fraction=1.0):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K)."""
    return rope.scores(q, k, q_positions, k_positions, base, layout, fraction)


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    given = dict(model["options"])
    interval, global_base = given.pop("interval") or max(2, min(6, model["layers"])), given.pop("global_base")
    return given | ({} if (model["layer"] + 1) % interval else {"base": global_base})


# Width 4: θ = 1 and base^(-1/2). q = k = (1, 1, 0, 0) at distance 200. Layer 5 of interval 6: θ = 1 and 0.001:
#   (cos 200 + cos 0.2) / 2 = (0.48718767500700594 + 0.9800665778412416) / 2 = 0.7336271264241238
# Layer 4: θ = 1 and 0.01: (cos 200 + cos 2) / 2 = (0.48718767500700594 - 0.4161468365471424) / 2 = 0.03552041922993176
GOLDEN = {
    "q": [[[[1.0, 1.0, 0.0, 0.0]]]],
    "k": [[[[1.0, 1.0, 0.0, 0.0]]]],
    "q_positions": [[207]],
    "k_positions": [[7]],
    "layer": 5,
    "options": {"interval": 6},
    "scores": [[[[0.7336271264241238]]]],
}
GOLDEN_LOCAL = GOLDEN | {"layer": 4, "scores": [[[[0.03552041922993176]]]]}
