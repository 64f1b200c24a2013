"""The exact path: the formula, step by step, in float32 or better. Every fast path is tested against it in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from posbuild.attention.pattern import Pattern
from posbuild.bias import Bias, OfContent, Seen, softmax


def scores(
    q_BHQD: Tensor, k_BGKD: Tensor, pattern: Pattern, bias: Bias | None, scale: float, kept_BKC: Tensor | None = None
) -> Tensor:
    """Scores after scaling and bias, before mask and softmax, (B, H, Q, K). H is a multiple of G, the key/value heads."""
    with unrounded(q_BHQD):
        return scored(pattern.seen(q_BHQD, k_BGKD, scale, kept_BKC), bias).to(q_BHQD.dtype)


def weights(
    q_BHQD: Tensor,
    k_BGKD: Tensor,
    pattern: Pattern,
    bias: Bias | None,
    scale: float,
    kept_BKC: Tensor | None = None,
    queries: slice | None = None,
) -> Tensor:
    """The weights with which keys' values are gathered, (B, H, Q, K), in float32 or better; `queries`: of these alone."""
    with unrounded(q_BHQD):
        seen = pattern.seen(q_BHQD, k_BGKD, scale, kept_BKC, queries)
        return weighed(scored(seen, bias), seen, bias)


def exact_attention(
    q_BHQD: Tensor,
    k_BGKD: Tensor,
    v_BGKD: Tensor,
    pattern: Pattern,
    bias: Bias | None,
    scale: float,
    kept_BKC: Tensor | None = None,
    queries: slice | None = None,
) -> Tensor:
    """softmax(scores where visible) v, or what the bias does in its place, (B, H, Q, D); `queries`: of these alone."""
    with unrounded(q_BHQD):
        seen = pattern.seen(q_BHQD, k_BGKD, scale, kept_BKC, queries)
        weights_BHQK = weighed(scored(seen, bias), seen, bias)
        v_BHKD = v_BGKD.to(weights_BHQK.dtype).repeat_interleave(q_BHQD.shape[1] // v_BGKD.shape[1], dim=1)
        gathered_BHQD = weights_BHQK @ v_BHKD
        if isinstance(bias, OfContent) and bias.values is not None:
            gathered_BHQD = gathered_BHQD + bias.values(weights_BHQK, seen)
        return gathered_BHQD.to(v_BGKD.dtype)


def scored(seen: Seen, bias: Bias | None) -> Tensor:
    """Scores of what is seen, before mask and softmax."""
    if isinstance(bias, OfContent):
        return bias.scores(seen)
    if bias is None:
        return seen.scores
    return seen.scores + bias.dense(seen.q_positions_BQ, seen.k_positions_BK, seen.q_BHQD.dtype)


def weighed(scores_BHQK: Tensor, seen: Seen, bias: Bias | None) -> Tensor:
    """Weights from scores."""
    return bias.weights(scores_BHQK, seen) if isinstance(bias, OfContent) else softmax(scores_BHQK, seen)


def unrounded(tensor: Tensor) -> torch.autocast:
    """Within it autocast rounds nothing to half precision."""
    return torch.autocast(tensor.device.type, enabled=False)
