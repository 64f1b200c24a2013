"""RNoPE: rope, but nothing in every n-th layer.

Yang et al. 2025, "Rope to Nope and Back Again: A New Hybrid Attention Strategy" (arXiv:2501.18795), section 3: three layers
with rope for one without. Which one: SmolLM3 and Llama 4 (transformers 5.24.0; meta-llama/llama-models a9c89c4,
models/llama4/model.py, is_nope_layer) leave layer i out, counted from 0, where (i + 1) % n is 0. The window of the paper's
layers with rope is left to the attention.
"""

from tests.reference import rope

VALUES = rope.VALUES | {"interval": [None, 3]}


def scores(q, k, q_positions, k_positions, turns, base=10000.0, layout="half", fraction=1.0):
    """q (B, H, Q, D), k (B, H, K, D), positions (B, Q) and (B, K) to (B, H, Q, K)."""
    radians = rope.frequencies(q.shape[3], base, fraction) if turns else []
    return rope.turned(q, k, q_positions, k_positions, radians, layout)


def arguments(model):
    """What `scores` takes beside queries, keys and positions, of a model's encoding."""
    given = dict(model["options"])
    interval = given.pop("interval") or max(2, min(4, model["layers"]))
    return given | {"turns": (model["layer"] + 1) % interval != 0}


# q = k = (1, 1, 0, 0) at distance 2. Of layers 0 to 3 the last is without: there 2 / √4 = 1; in the one before,
# rope: (cos 2 + cos 0.02) / 2 = 0.2918265850597177
GOLDEN = {
    "q": [[[[1.0, 1.0, 0.0, 0.0]]]],
    "k": [[[[1.0, 1.0, 0.0, 0.0]]]],
    "q_positions": [[9]],
    "k_positions": [[7]],
    "layer": 3,
    "options": {"interval": 4},
    "scores": [[[[1.0]]]],
}
GOLDEN_BEFORE = GOLDEN | {"layer": 2, "scores": [[[[0.2918265850597177]]]]}
