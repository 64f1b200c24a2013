"""Half precision in the whole model: what meets in attention has one dtype, on either path, trained and decoded."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from posbuild.attention import exact_attention, fused_attention
from posbuild.model import transformer
from tests.model.small import build, every_scheme, tokens

PATHS = {"exact": exact_attention, "fused": fused_attention}
MODES = ["bf16-true", "bf16-mixed", "16-true"]


def in_mode(scheme, mode):
    """A model, and the context that it runs in."""
    model = build(scheme)
    if mode.endswith("-true"):
        return model.to(torch.bfloat16 if mode == "bf16-true" else torch.float16), nullcontext()
    return model, torch.autocast("cpu", torch.bfloat16)


@every_scheme
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", PATHS)
def test_queries_keys_and_values_share_a_dtype_and_train(scheme, mode, path, monkeypatch):
    """The fault to catch: tables in float32 that lift queries and keys, not values."""
    half, seen = (torch.float16 if mode == "16-true" else torch.bfloat16), []

    def attention(q, k, v, *how):
        seen.append((q.dtype, k.dtype, v.dtype))
        return PATHS[path](q, k, v, *how)

    monkeypatch.setattr(transformer, "fused_attention", attention)
    model, context = in_mode(scheme, mode)
    with context:
        logits = model(tokens(2, 20))
    logits.float().square().mean().backward()
    assert seen == [(half, half, half)] * 2
    assert logits.dtype == half
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


@every_scheme
@pytest.mark.parametrize("mode", MODES)
def test_decoding_in_half_precision_equals_the_full_forward(scheme, mode):
    model, context = in_mode(scheme, mode)
    x = tokens(2, 24)
    with torch.no_grad(), context:
        cache = model.new_cache(2)
        decoded = torch.cat([model(part, cache=cache) for part in x.split(5, dim=1)], dim=1).float()
        whole = model(x).float()
    assert (decoded - whole).abs().mean() < 0.02 * whole.std()
