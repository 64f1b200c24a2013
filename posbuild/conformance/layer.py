"""One layer of attention by the hooks of an encoding.

q (B, H, Q, D), k and v (B, H, K, D), positions (B or 1, Q and K), of several axes (B or 1, Q and K, axes), and for
encodings that read them token vectors x (B, K, M). The queries are the last Q of the K tokens, as in a model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from posbuild.attention import exact, exact_attention
from posbuild.bias import OfContent
from posbuild.encodings.base import Encoding
from posbuild.model.scores import hooked, scores_of


def generator(seed: int, name: str = "") -> torch.Generator:
    return torch.Generator().manual_seed(1000 * seed + sum(map(ord, name)))


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64).to(dtype)


def scores(
    encoding: Encoding,
    q: Tensor,
    k: Tensor,
    q_positions: Tensor,
    k_positions: Tensor,
    layer: int = 0,
    x: Tensor | None = None,
) -> Tensor:
    """q·k/√D with all that the encoding does to it, (B, H, Q, K)."""
    x = vectors(encoding, k) if x is None else x
    return where_defined(encoding, scores_of(encoding, q, k, q_positions, k_positions, layer, x))


def weights(
    encoding: Encoding,
    q: Tensor,
    k: Tensor,
    q_positions: Tensor,
    k_positions: Tensor,
    layer: int = 0,
    x: Tensor | None = None,
) -> Tensor:
    """The weights of the values, (B, H, Q, K)."""
    x = vectors(encoding, k) if x is None else x
    return exact.weights(*hooked(encoding, q, k, q_positions, k_positions, layer, x))


def gathered(
    encoding: Encoding,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_positions: Tensor,
    k_positions: Tensor,
    layer: int = 0,
    x: Tensor | None = None,
) -> Tensor:
    """What attention makes of the values, (B, H, Q, D)."""
    x = vectors(encoding, k) if x is None else x
    q, k, pattern, bias, scale, kept = hooked(encoding, q, k, q_positions, k_positions, layer, x)
    return exact_attention(q, k, v, pattern, bias, scale, kept)


def attention(encoding: Encoding, x: Tensor, positions: Tensor, layer: int = 0) -> Tensor:
    """One layer with queries, keys and values all equal to the token vectors, (B, T, M) to (B, T, M)."""
    x = encoding.at_input(x, positions)
    heads = x.unflatten(-1, (encoding.dims.n_heads, -1)).transpose(1, 2)
    q, k, pattern, bias, scale, kept = hooked(encoding, heads, heads, positions, positions, layer, x)
    return exact_attention(q, k, heads, pattern, bias, scale, kept).transpose(1, 2).flatten(-2)


def vectors(encoding: Encoding, k: Tensor) -> Tensor:
    """Token vectors for the encodings that read them, (B, K, M)."""
    return random(len(k), k.shape[2], encoding.dims.d_model, seed=4, dtype=k.dtype)


def where_defined(encoding: Encoding, scores_BHQK: Any) -> Any:
    """Scores that depend on content mean something where the query sees the key: elsewhere 0."""
    if not of_content(encoding):
        return scores_BHQK
    seen = torch.from_numpy(visible(encoding, *scores_BHQK.shape[-2:]))
    return scores_BHQK.where(seen, 0) if isinstance(scores_BHQK, Tensor) else np.where(seen, scores_BHQK, 0)


def visible(encoding: Encoding, queries: int, keys: int) -> np.ndarray:
    """(Q, K): whether a query sees a key, by their order."""
    return np.tri(queries, keys, keys - queries if encoding.dims.causal else keys, dtype=bool)


def of_content(encoding: Encoding) -> bool:
    """Whether scores depend on queries, keys or token vectors in another way than by their product."""
    axes = encoding.options.number_of_axes()
    position = torch.zeros((1, 1) if axes == 1 else (1, 1, axes), dtype=torch.int64)
    return isinstance(encoding.at_scores(position, position, 0, encoding.prepare(position)), OfContent)
