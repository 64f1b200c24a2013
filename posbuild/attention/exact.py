"""The exact path: the formula, step by step, in the dtype of its inputs. Every fast path is tested against it in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from posbuild.attention.pattern import Pattern
from posbuild.bias import Bias


def scores(
    q_BHQD: Tensor, k_BGKD: Tensor, q_positions_BQ: Tensor, k_positions_BK: Tensor, bias: Bias | None, scale: float
) -> Tensor:
    """Scores after scaling and bias, before mask and softmax, (B, H, Q, K). H is a multiple of G, the key/value heads."""
    k_BHKD = k_BGKD.repeat_interleave(q_BHQD.shape[1] // k_BGKD.shape[1], dim=1)
    scores_BHQK = q_BHQD @ k_BHKD.transpose(-2, -1) * scale
    if bias is not None:
        wide = torch.promote_types(q_BHQD.dtype, torch.float32)
        scores_BHQK = scores_BHQK + bias.dense(q_positions_BQ, k_positions_BK, wide).to(scores_BHQK.dtype)
    return scores_BHQK


def exact_attention(
    q_BHQD: Tensor, k_BGKD: Tensor, v_BGKD: Tensor, pattern: Pattern, bias: Bias | None, scale: float
) -> Tensor:
    """softmax(scores where visible) v, (B, H, Q, D)."""
    scores_BHQK = scores(q_BHQD, k_BGKD, pattern.q_positions_BQ, pattern.k_positions_BK, bias, scale)
    weights_BHQK = scores_BHQK.masked_fill(~pattern.visible(), float("-inf")).softmax(dim=-1)
    return weights_BHQK @ v_BGKD.repeat_interleave(q_BHQD.shape[1] // v_BGKD.shape[1], dim=1)
