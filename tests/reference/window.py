"""A window over the last tokens, and attention sinks: the first few tokens, which every query sees.

Xiao et al. 2024, "Efficient Streaming Language Models with Attention Sinks" (arXiv:2309.17453), section 3.2, and the released
code (mit-han-lab/streaming-llm 2e50426, streaming_llm/kv_cache.py, pos_shift/modify_llama.py): a cache holds the first
tokens and the last ones, the query's own among them, 4 and 512 unless told otherwise, and rotary positions are places in
that cache. (Its perplexity script cuts the cache after the step, so that a query there sees one token more.)
Written here as that cache, token by token. Rotary encodings are those of their own references, with their defaults.
"""

import math

import numpy as np

from tests.reference import (
    hope_highfreq,
    llama3,
    rnope,
    rope,
    rope_by_parts,
    rope_linear,
    rope_local_global,
    rope_ntk,
    rope_proportional,
    yarn,
)

ROTARY = {
    "rope": rope,
    "rope_linear": rope_linear,
    "rope_ntk": rope_ntk,
    "rope_by_parts": rope_by_parts,
    "yarn": yarn,
    "llama3": llama3,
    "rope_proportional": rope_proportional,
    "hope_highfreq": hope_highfreq,
    "rnope": rnope,
    "rope_local_global": rope_local_global,
}


def held(own, width, sinks):
    """The places in the text of the tokens that the cache holds when token `own` is read, in order."""
    return [j for j in range(own + 1) if j < sinks or j > own - width]


def scores(q, k, q_positions, k_positions, width, sinks, over, given=None):
    """q·k/√D, over a rotary encoding of vectors turned to their places in the cache; 0 where a query does not see the key.

    The queries are the last Q of the K tokens. Where the text has lost no token the places are the positions given, and
    distances within the window are always theirs.
    """
    batch, heads, queries, size = q.shape
    keys = k.shape[2]
    out = np.zeros((batch, heads, queries, keys))
    for b, h, i in np.ndindex(batch, heads, queries):
        own = keys - queries + i
        cache = held(own, width, sinks)
        for j in range(own + 1):
            if over == "none":
                out[b, h, i, j] = np.dot(q[b, h, i], k[b, h, j]) / math.sqrt(size)
                continue
            distance = q_positions[b][i] - k_positions[b][j]
            if len(cache) < own + 1 and j < sinks:
                distance = len(cache) - 1 - cache.index(j)
            pair = q[b, h, i][None, None, None], k[b, h, j][None, None, None]
            out[b, h, i, j] = ROTARY[over].scores(*pair, [[distance]], [[0]], **given)[0, 0, 0, 0]
    return out


def weights(scores, visible, width, sinks, **_):
    """Softmax over what the cache holds."""
    out = np.zeros(scores.shape)
    for b, h, i in np.ndindex(scores.shape[:3]):
        cache = held(int(np.nonzero(visible[i])[0][-1]), width, sinks)
        shares = np.exp(scores[b, h, i, cache] - scores[b, h, i, cache].max())
        out[b, h, i, cache] = shares / shares.sum()
    return out


# The values of each option that the tests go through, the default first.
VALUES = {"width": [None, 2], "sinks": [4, 1], "over": ["none", *ROTARY]}
REFUSED = [({"over": "rope"}, {"width": 5}, "head width 5 .*even")]


def arguments(model):
    """What `scores` and `weights` take beside their inputs, of a model's encoding."""
    options = model["options"]
    given = options | {"width": options["width"] or max(1, model.get("train_length", 0) // 4)}
    if options["over"] == "none":
        return given
    inner = ROTARY[options["over"]]
    defaults = {name: values[0] for name, values in inner.VALUES.items()}
    return given | {"given": inner.arguments(model | {"options": defaults, "parameters": {}})}


# One head of width 2, one query, the last of five tokens, window 2, one sink: the cache holds tokens 0, 3, 4 in places 0, 1,
# 2. q = (1, 0), k = (0, 1) of token 0 and (1, 0) of the others. Turned, q·k of (1, 0) at a distance d is cos d, of (0, 1)
# sin d. Token 0 is 2 away in the cache, 4 in the text; token 3 is 1 away.
#   scores: sin 2 = 0.9092974268256817, cos 3 = -0.9899924966004454, cos 2 = -0.4161468365471424,
#   cos 1 = 0.5403023058681398, cos 0 = 1, each divided by √2
#   weights of tokens 0, 3, 4: 1.9021225165, 1.4652874347, 2.0281149816 = exp of their scores, over the sum 5.3955249328
GOLDEN = {
    "q": [[[[1.0, 0.0]]]],
    "k": [[[[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]]],
    "q_positions": [[4]],
    "k_positions": [[0, 1, 2, 3, 4]],
    "options": {"width": 2, "sinks": 1, "over": "rope"},
    "scores": [
        [[[0.642970376623918, -0.700030407669975, -0.29426025009181417, 0.38205142437008976, 0.7071067811865475]]]
    ],
    "weights": [[[[0.3525370636213396, 0.0, 0.0, 0.2715745831806025, 0.3758883531980579]]]],
}


def numbers(tokens, width, shift, factor=1):
    """Queries, keys or weights, for the runs of released code: (T, D)."""
    return [[factor * round(math.sin(1.3 * t + c * c + shift), 2) for c in range(width)] for t in tokens]


# The attention weights of llama_pos_shift_attention_forward in float32, token by token, with a StartRecentKVCache of the
# first 2 and the last 3 that makes room before each step; of the tokens that it no longer holds 0.
RELEASED = [
    {
        "source": "mit-han-lab/streaming-llm@2e50426, streaming_llm/pos_shift/modify_llama.py and kv_cache.py",
        "options": {"width": 3, "sinks": 2, "over": "rope"},
        "q": [numbers((tokens - 1,), 4, 0, 2)],
        "k": [numbers(range(tokens), 4, 1, 2)],
        "q_positions": [tokens - 1],
        "k_positions": [*range(tokens)],
        "weights": [[weights]],
        "rtol": 1e-5,
    }
    for tokens, weights in (
        (5, [0.0198356584, 0.0307258032, 0.0112416949, 0.825538516, 0.1126583889]),
        (9, [0.0148292528, 0.022672303, 0, 0, 0, 0, 0.0041925902, 0.448059082, 0.5102467537]),
    )
]
