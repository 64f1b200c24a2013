"""Rope beside transformers and x-transformers: queries and keys turned, and their gradients."""

from __future__ import annotations

import pytest
import torch

from posbuild.conformance.cases import build, dims
from posbuild.conformance.layer import random
from posbuild.conformance.test_public import PART
from posbuild.schemes.rope import Pairing
from tests.public.common import assert_same, turned

pytest.importorskip("transformers", minversion="5")
x_transformers = pytest.importorskip("x_transformers.x_transformers")

from transformers import GPTNeoXConfig, LlamaConfig  # noqa: E402
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox  # noqa: E402
from transformers.models.gptj import modeling_gptj as gptj  # noqa: E402
from transformers.models.llama import modeling_llama as llama  # noqa: E402
from transformers.models.roformer import modeling_roformer as roformer  # noqa: E402

pytestmark = pytest.mark.part(PART)

HEADS, WIDTH, LENGTH = 4, 16, 512
POSITIONS = torch.arange(LENGTH)[None]

# Theirs form angles in float32, off by 512 · 2⁻²⁴ at the end of these inputs: hence 1e-4.


def heads_in(seed):
    return random(2, HEADS, LENGTH, WIDTH, seed=seed, dtype=torch.float32).requires_grad_()


def rotated(q, k, **options):
    return turned(build("rope", dims(heads=HEADS, width=WIDTH), **options), q, k, POSITIONS)


@pytest.mark.public("transformers", "rope")
@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
def test_rope_of_llama(base):
    config = LlamaConfig(
        hidden_size=HEADS * WIDTH,
        num_attention_heads=HEADS,
        max_position_embeddings=LENGTH,
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )
    q, k = heads_in(1), heads_in(2)
    theirs = llama.apply_rotary_pos_emb(q, k, *llama.LlamaRotaryEmbedding(config)(q, POSITIONS))
    for x, one, other in zip((q, k), rotated(q, k, base=base), theirs, strict=True):
        assert_same(one, other, [x], atol=1e-4)


@pytest.mark.public("transformers", "rope")
def test_partial_rope_of_gpt_neox():
    config = GPTNeoXConfig(
        hidden_size=HEADS * WIDTH,
        num_attention_heads=HEADS,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.25},
    )
    q, k = heads_in(1), heads_in(2)
    theirs = gpt_neox.apply_rotary_pos_emb(q, k, *gpt_neox.GPTNeoXRotaryEmbedding(config)(q, POSITIONS))
    for x, one, other in zip((q, k), rotated(q, k, fraction=0.25), theirs, strict=True):
        assert_same(one, other, [x], atol=1e-4)


@pytest.mark.public("transformers", "rope")
@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_interleaved_rope_of_gptj(fraction):
    """GPT-J holds (B, T, H, D), and cuts the channels that turn off before it calls this function."""
    q, k, width = heads_in(1), heads_in(2), int(fraction * WIDTH)
    sine, cosine = gptj.create_sinusoidal_positions(LENGTH, width).chunk(2, -1)
    ours = rotated(q, k, layout=Pairing.interleaved, fraction=fraction)
    for one, x in zip(ours, (q, k), strict=True):
        turned = gptj.apply_rotary_pos_emb(x.transpose(1, 2)[..., :width], sine[None], cosine[None]).transpose(1, 2)
        assert_same(one, torch.cat([turned, x[..., width:]], -1), [x], atol=1e-4)


@pytest.mark.public("transformers", "rope")
def test_interleaved_rope_of_roformer():
    """The authors' own, by way of transformers."""
    q, k = heads_in(1), heads_in(2)
    table = roformer.RoFormerSinusoidalPositionalEmbedding(LENGTH, WIDTH).create_weight()[None, None]
    theirs = roformer.RoFormerSelfAttention.apply_rotary_position_embeddings(table, q, k)
    for x, one, other in zip((q, k), rotated(q, k, layout=Pairing.interleaved), theirs, strict=True):
        assert_same(one, other, [x], atol=1e-4)


@pytest.mark.public("x-transformers", "rope")
@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_rope_of_x_transformers(fraction):
    """Interleaved; its Attention turns half of the head width unless told otherwise."""
    q, k = heads_in(1), heads_in(2)
    angles, _ = x_transformers.RotaryEmbedding(int(fraction * WIDTH)).forward(POSITIONS[0])
    ours = rotated(q, k, layout=Pairing.interleaved, fraction=fraction)
    for one, x in zip(ours, (q, k), strict=True):
        assert_same(one, x_transformers.apply_rotary_pos_emb(x, angles), [x], atol=1e-4)
