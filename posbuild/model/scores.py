"""The scores of an encoding outside a model: its hooks in turn, then the exact path."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posbuild.attention import Pattern, exact
from posbuild.bias import Bias
from posbuild.encodings.base import Encoding
from posbuild.errors import ConfigError


def scores_of(
    encoding: Encoding,
    q: Tensor,
    k: Tensor,
    q_positions: Tensor,
    k_positions: Tensor,
    layer: int = 0,
    x: Tensor | None = None,
) -> Tensor:
    """What softmax is given by one layer, before the mask, (B, H, Q, K): q (B, H, Q, D), k (B, G, K, D), positions (B or 1, T).

    positions of several axes are (B or 1, T, axes).

    x  (B, K, M): the token vectors that queries and keys are made of, for encodings that read them; the queries are then
       those of the last Q tokens
    """
    return exact.scores(*hooked(encoding, q, k, q_positions, k_positions, layer, x))


def hooked(
    encoding: Encoding,
    q: Tensor,
    k: Tensor,
    q_positions: Tensor,
    k_positions: Tensor,
    layer: int = 0,
    x: Tensor | None = None,
) -> tuple[Tensor, Tensor, Pattern, Bias | None, float, Tensor | None]:
    """What the exact path takes, given what `scores_of` is: queries, keys, pattern, bias, scale, what is kept of tokens."""
    reads_tokens = type(encoding).at_tokens is not Encoding.at_tokens
    if reads_tokens and x is None:
        raise ConfigError(
            f"{type(encoding).__name__} reads the token vectors that queries and keys are made of: give x, (B, K, d_model)."
        )
    rows = max(len(q_positions), len(k_positions))
    shared = encoding.prepare(
        torch.cat([each.expand(rows, *each.shape[1:]) for each in (k_positions, q_positions)], dim=1)
    )
    scale = 1 / math.sqrt(q.shape[-1])
    q, k = encoding.at_queries(q, q_positions, layer, shared), encoding.at_keys(k, k_positions, layer, shared)
    kept = encoding.at_tokens(x, layer) if reads_tokens and x is not None else None
    bias = encoding.at_scores(q_positions, k_positions, layer, shared)
    pattern = Pattern(q_positions, k_positions, causal=encoding.dims.causal)
    return q, k, pattern, bias, scale, kept
