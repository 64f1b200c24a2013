"""xPos and PoPE against the packages that have them: values, and gradients of queries, keys and phases."""

from __future__ import annotations

import math

import pytest
import torch

from posbuild.conformance.cases import build, dims
from posbuild.conformance.layer import random, scores
from posbuild.conformance.test_public import PART
from posbuild.schemes.rope import Pairing

pytestmark = pytest.mark.part(PART)
HEADS, WIDTH, LENGTH = 4, 16, 512
PLACES = torch.arange(LENGTH)[None]
SEEN = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()


def heads():
    """Queries and keys that collect gradients, float32 as what the packages compute."""
    return [random(2, HEADS, LENGTH, WIDTH, seed=seed, dtype=torch.float32).requires_grad_() for seed in (1, 2)]


def assert_same(ours, theirs, inputs, atol):
    """Values where a query sees a key, and gradients of one random weighting of them."""
    ours, theirs = (each[..., SEEN] for each in (ours, theirs))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)
    weight = random(*ours.shape, seed=9, dtype=torch.float32) / math.sqrt(LENGTH)
    found = [torch.autograd.grad((weight * out).sum(), inputs, retain_graph=True) for out in (ours, theirs)]
    for one, other in zip(*found, strict=True):
        assert one.abs().max() > 0
        torch.testing.assert_close(one, other, rtol=1e-3, atol=10 * atol)


# Theirs form angles in float32, off by 512 · 2⁻²⁴ at the end of these inputs: hence 1e-4, for scores of some 30.


@pytest.mark.public("x-transformers", "xpos")
def test_xpos_of_x_transformers():
    """It scales by the distance from the middle of the text, which no score shows."""
    theirs = pytest.importorskip("x_transformers.x_transformers")
    q, k = heads()
    angles, scale = theirs.RotaryEmbedding(WIDTH, use_xpos=True, scale_base=512)(PLACES[0])
    turned_q = theirs.apply_rotary_pos_emb(q, angles, scale)
    turned_k = theirs.apply_rotary_pos_emb(k, angles, scale**-1)
    expected = turned_q @ turned_k.transpose(-2, -1) / math.sqrt(WIDTH)
    encoding = build("xpos", dims(heads=HEADS, width=WIDTH), torch.float32, scale_base=512.0)
    assert encoding.options.layout is Pairing.interleaved
    assert_same(scores(encoding, q, k, PLACES, PLACES), expected, [q, k], atol=1e-4)


@pytest.mark.public("rotary-embedding-torch", "xpos")
def test_xpos_of_rotary_embedding_torch():
    theirs = pytest.importorskip("rotary_embedding_torch").RotaryEmbedding(
        dim=WIDTH, use_xpos=True, xpos_scale_base=512
    )
    q, k = heads()
    turned_q, turned_k = theirs.rotate_queries_and_keys(q, k)
    expected = turned_q @ turned_k.transpose(-2, -1) / math.sqrt(WIDTH)
    encoding = build("xpos", dims(heads=HEADS, width=WIDTH), torch.float32, scale_base=512.0)
    assert_same(scores(encoding, q, k, PLACES, PLACES), expected, [q, k], atol=1e-4)


@pytest.mark.public("x-transformers", "pope")
def test_pope_of_x_transformers():
    """With phases inside of its clamp; its attention divides by the square root of 2D, the width after, not of D."""
    theirs = pytest.importorskip("x_transformers.x_transformers")
    polar = theirs.PolarEmbedding(WIDTH, HEADS)
    with torch.no_grad():
        polar.learned_bias.copy_(-3 - random(HEADS, 1, WIDTH, seed=3, dtype=torch.float32).tanh())
    q, k = heads()
    angles, bias = polar(PLACES[0])
    expected = theirs.apply_polar_pos_emb(q, angles) @ theirs.apply_polar_pos_emb(k, angles + bias).transpose(-2, -1)
    encoding = build("pope", dims(heads=HEADS, width=WIDTH, layers=1), torch.float32)
    with torch.no_grad():
        encoding.phase.copy_(polar.learned_bias[None, :, 0])
    actual = scores(encoding, q, k, PLACES, PLACES)
    assert_same(actual, expected / math.sqrt(WIDTH), [q, k], atol=2e-4)
    weight = random(HEADS, LENGTH, LENGTH, seed=8, dtype=torch.float32).tril() / LENGTH
    (ours,) = torch.autograd.grad((weight * actual).sum(), encoding.phase, retain_graph=True)
    (other,) = torch.autograd.grad((weight * expected).sum() / math.sqrt(WIDTH), polar.learned_bias)
    torch.testing.assert_close(ours[0], other[:, 0], rtol=1e-3, atol=1e-3)
