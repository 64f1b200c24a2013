"""Schemes that depend on content beside their public implementations."""

from __future__ import annotations

import pytest
import torch

from posbuild.conformance.cases import build, dims
from posbuild.conformance.layer import random, scores
from posbuild.conformance.test_public import PART

x_transformers = pytest.importorskip("x_transformers.x_transformers")

pytestmark = pytest.mark.part(PART)
HEADS, WIDTH, LENGTH = 3, 8, 40
POSITIONS = torch.arange(LENGTH)[None]


@pytest.mark.public("x-transformers", "fox")
@pytest.mark.parametrize("start", [0.0, 5.0])
def test_fox_of_x_transformers(start):
    """Bias and gradients where the query sees the key, in float32 and of a whole text, where theirs is right."""
    theirs = x_transformers.DataDependentAlibi(HEADS * WIDTH, HEADS, bias_init=start)
    linear = theirs.to_forget_gates[0]
    encoding, x = build("fox", dims(heads=HEADS, width=WIDTH, layers=1)), random(2, LENGTH, HEADS * WIDTH)
    with torch.no_grad():
        encoding.weight.copy_(linear.weight)
        encoding.bias.copy_(linear.bias)
    zero = torch.zeros(2, HEADS, LENGTH, WIDTH, dtype=torch.float64)
    ours, bias = scores(encoding, zero, zero, POSITIONS, POSITIONS, x=x), theirs(x.float()).tril()
    torch.testing.assert_close(ours.float(), bias, rtol=1e-5, atol=1e-4)
    weight = random(*ours.shape, seed=9)
    (ours * weight).sum().backward()
    (bias * weight).sum().backward()
    torch.testing.assert_close(encoding.weight.grad[0].float(), linear.weight.grad, rtol=1e-3, atol=1e-2)
    torch.testing.assert_close(encoding.bias.grad[0].float(), linear.bias.grad, rtol=1e-3, atol=1e-2)


@pytest.mark.public("x-transformers", "fox")
def test_fox_of_x_transformers_is_another_with_a_cache():
    """Given the last ten tokens alone theirs has no bias for the keys before; ours is that of the whole text."""
    theirs = x_transformers.DataDependentAlibi(HEADS * WIDTH, HEADS)
    x = random(1, LENGTH, HEADS * WIDTH).float()
    whole, new = theirs(x), theirs(x[:, -10:])
    assert whole.shape[-1] == LENGTH and new.shape[-1] == 10
    encoding = build("fox", dims(heads=HEADS, width=WIDTH, layers=1))
    with torch.no_grad():
        encoding.weight.copy_(theirs.to_forget_gates[0].weight)
        encoding.bias.copy_(theirs.to_forget_gates[0].bias)
        zero = torch.zeros(1, HEADS, LENGTH, WIDTH, dtype=torch.float64)
        ours = scores(encoding, zero[:, :, -10:], zero, POSITIONS[:, -10:], POSITIONS, x=x)
    torch.testing.assert_close(ours.float(), whole[:, :, -10:].tril(LENGTH - 10), rtol=1e-5, atol=1e-4)


@pytest.mark.public("x-transformers", "cope")
def test_cope_of_x_transformers():
    """Theirs adds the scores of positions undivided, as the paper prints it; its gates need masked scores to be given."""
    theirs = x_transformers.CoPE(WIDTH, HEADS, max_pos=16).double()
    encoding = build("cope", dims(heads=HEADS, width=WIDTH, layers=1), max_position=15, divided=False)
    q, k = random(2, HEADS, LENGTH, WIDTH, seed=1), random(2, HEADS, LENGTH, WIDTH, seed=2)
    table = random(16, WIDTH, seed=3)
    with torch.no_grad():
        theirs.pos_emb.copy_(table)
        encoding.table.copy_(table[None])
    plain = q @ k.mT / WIDTH**0.5
    seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    masked = plain.masked_fill(~seen, -torch.finfo(torch.float64).max)
    added = theirs(q, masked)
    ours = scores(encoding, q, k, POSITIONS, POSITIONS)
    torch.testing.assert_close(ours, (plain + added).tril(), rtol=1e-10, atol=1e-10)
    weight = random(*ours.shape, seed=4).tril()
    (ours * weight).sum().backward()
    (added * weight).sum().backward()
    torch.testing.assert_close(encoding.table.grad[0], theirs.pos_emb.grad, rtol=1e-9, atol=1e-9)
    leaking = theirs(q, plain)  # gates of keys after the query counted
    assert (leaking - added).tril().abs().max() > 0.1
