"""The path that training and evaluation take: torch's fused attention, with a dense bias where there is one."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from posbuild.attention.exact import exact_attention
from posbuild.attention.pattern import Pattern
from posbuild.bias import Bias, OfContent

CHUNK = 128  # queries that go to the kernel at once where it is given a mask and no gradient is asked for


def fused_attention(
    q_BHQD: Tensor,
    k_BGKD: Tensor,
    v_BGKD: Tensor,
    pattern: Pattern,
    bias: Bias | None,
    scale: float,
    kept_BKC: Tensor | None = None,
) -> Tensor:
    """As `exact_attention`, (B, H, Q, D)."""
    n_queries = q_BHQD.shape[2]
    whole = torch.is_grad_enabled() or n_queries <= CHUNK
    # A compiled model is not asked how many parts there are where there is one: it would be made anew for each length.
    parts = [] if whole else [slice(begin, min(begin + CHUNK, n_queries)) for begin in range(0, n_queries, CHUNK)]
    if isinstance(bias, OfContent):
        given = (q_BHQD, k_BGKD, v_BGKD, pattern, bias, scale, kept_BKC)
        if whole:
            return exact_attention(*given)
        return torch.cat([exact_attention(*given, queries) for queries in parts], dim=2)
    if v_BGKD.shape[-1] < k_BGKD.shape[-1]:  # a kernel that takes both keeps a score for every pair of tokens
        filled = pad(v_BGKD, (0, k_BGKD.shape[-1] - v_BGKD.shape[-1]))
        return fused_attention(q_BHQD, k_BGKD, filled, pattern, bias, scale)[..., : v_BGKD.shape[-1]]
    groups = q_BHQD.shape[1] // k_BGKD.shape[1]
    if groups > 1:
        k_BGKD, v_BGKD = k_BGKD.repeat_interleave(groups, dim=1), v_BGKD.repeat_interleave(groups, dim=1)
    if bias is None and pattern.plain:
        return scaled_dot_product_attention(q_BHQD, k_BGKD, v_BGKD, is_causal=pattern.plain == "causal", scale=scale)
    mask = pattern.visible() if bias is None else pattern.added(bias, q_BHQD.dtype)
    if whole:
        return scaled_dot_product_attention(q_BHQD, k_BGKD, v_BGKD, attn_mask=mask, scale=scale)
    chunks = []  # given a mask the kernel visits every key: those out of reach of a chunk of queries are left out
    for queries in parts:
        keys = pattern.reach(queries)
        q, k, v = q_BHQD[:, :, queries], k_BGKD[:, :, keys], v_BGKD[:, :, keys]
        chunks.append(scaled_dot_product_attention(q, k, v, attn_mask=mask[:, :, queries, keys], scale=scale))
    return torch.cat(chunks, dim=2)
