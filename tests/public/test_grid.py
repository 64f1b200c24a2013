"""Schemes for positions of several axes against the implementations of transformers."""

from __future__ import annotations

import pytest
import torch

from posbuild.conformance.cases import build, dims
from posbuild.conformance.layer import random, scores
from posbuild.conformance.test_public import PART
from posbuild.schemes.grid.axial_learned import Join
from posbuild.schemes.sinusoidal import Layout

pytest.importorskip("transformers", minversion="5")

from transformers import Qwen2VLTextConfig, Qwen3VLTextConfig, ReformerConfig
from transformers.models.detr.modeling_detr import (
    DetrLearnedPositionEmbedding,
    DetrSinePositionEmbedding,
)
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2_vl
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3_vl
from transformers.models.reformer.modeling_reformer import AxialPositionEmbeddings
from transformers.models.swin.modeling_swin import SwinRelativePositionBias

pytestmark = pytest.mark.part(PART)


@pytest.mark.public("transformers", "grid/mrope")
@pytest.mark.parametrize(
    ("config", "rotary", "apply", "options"),
    [
        (Qwen2VLTextConfig, qwen2_vl.Qwen2VLRotaryEmbedding, qwen2_vl.apply_rotary_pos_emb, {}),
        (Qwen2VLTextConfig, qwen2_vl.Qwen2VLRotaryEmbedding, qwen2_vl.apply_rotary_pos_emb, {"sections": [8, 10, 14]}),
        (Qwen3VLTextConfig, qwen3_vl.Qwen3VLTextRotaryEmbedding, qwen3_vl.apply_rotary_pos_emb, {"interleave": True}),
        (
            Qwen3VLTextConfig,
            qwen3_vl.Qwen3VLTextRotaryEmbedding,
            qwen3_vl.apply_rotary_pos_emb,
            {"interleave": True, "sections": [16, 9, 7]},
        ),
    ],
    ids=["Qwen2-VL", "Qwen2-VL, other sections", "Qwen3-VL", "Qwen3-VL, other sections"],
)
def test_mrope_turns_as_qwen(config, rotary, apply, options):
    """Queries and keys, and the gradient of a score; theirs form angles in float32, hence 1e-4 at positions to 499."""
    width = 64 if "sections" in options else 128
    sections = options.get("sections") or ([24, 20, 20] if "interleave" in options else [16, 24, 24])
    theirs = rotary(
        config(
            hidden_size=2 * width,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=width,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": sections},
        )
    )
    ours = build("grid/mrope", dims(heads=2, width=width), dtype=torch.float32, **options)
    positions = torch.randint(500, (2, 30, 3), generator=torch.Generator().manual_seed(0))
    q, k = (random(2, 2, 30, width, seed=seed, dtype=torch.float32).requires_grad_() for seed in (1, 2))
    shared = ours.prepare(positions)
    found = ours.at_queries(q, positions, 0, shared), ours.at_keys(k, positions, 0, shared)
    expected = apply(q, k, *theirs(q, positions.movedim(-1, 0)))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-4)
    weight = random(2, 2, 30, 30, seed=3, dtype=torch.float32)
    gradients = [torch.autograd.grad((weight * (a @ b.mT)).sum(), (q, k)) for a, b in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-2)


@pytest.mark.public("transformers", "grid/swin")
@pytest.mark.parametrize("window", [1, 2, 7])
def test_swin_bias_is_that_of_transformers(window):
    """Values, and gradients of the table; cells of a window row by row."""
    theirs, ours = (
        SwinRelativePositionBias(3, (window, window)),
        build("grid/swin", dims(heads=3, width=8, layers=1), window=window),
    )
    table = random((2 * window - 1) ** 2, 3, dtype=torch.float64)
    with torch.no_grad():
        theirs.double().relative_position_bias_table.copy_(table)
        ours.table.copy_(table[None])
    zero = torch.zeros(1, 3, window**2, 8, dtype=torch.float64)
    places = cells(window, window)[None]
    bias = scores(ours, zero, zero, places, places)
    assert torch.equal(bias, theirs())
    weight = random(*bias.shape, seed=4)
    for found in (bias, theirs()):
        (weight * found).sum().backward()
    torch.testing.assert_close(ours.table.grad[0], theirs.relative_position_bias_table.grad, rtol=1e-12, atol=1e-12)


def cells(height, width, first=0):
    """Positions (row, column), row by row, (T, 2)."""
    return torch.cartesian_prod(torch.arange(first, first + height), torch.arange(first, first + width))


@pytest.mark.public("transformers", "grid/axial_sinusoidal")
def test_axial_sinusoidal_codes_are_detr_s():
    """DETR counts from 1, gives the rows the first channels, and sets sine beside cosine."""
    theirs = DetrSinePositionEmbedding(32)(torch.Size([1, 3, 5, 7]), "cpu", torch.float64)[0].flatten(1).T
    ours = build("grid/axial_sinusoidal", dims(heads=1, width=64), scale=1.0, layout=Layout.interleaved)
    torch.testing.assert_close(ours.codes(cells(5, 7, first=1)), theirs, rtol=0, atol=1e-12)


@pytest.mark.public("transformers", "grid/axial_learned")
def test_axial_learned_codes_are_detr_s():
    """DETR gives the columns the first channels."""
    theirs, ours = (
        DetrLearnedPositionEmbedding(8),
        build("grid/axial_learned", dims(heads=1, width=16), extent=[50, 50]),
    )
    with torch.no_grad():
        theirs.double().column_embeddings.weight.copy_(ours.table[:50])
        theirs.row_embeddings.weight.copy_(ours.table[50:])
        expected = theirs(torch.Size([1, 3, 5, 7]), "cpu", torch.float64)[0].flatten(1).T
        assert torch.equal(ours.codes(cells(5, 7).flip(-1)), expected)


@pytest.mark.public("transformers", "grid/axial_learned")
def test_axial_learned_codes_are_reformer_s():
    """A text of 35 tokens laid out in five rows; both axes have half of the channels."""
    config = ReformerConfig(axial_pos_shape=[5, 7], axial_pos_embds_dim=[8, 8], hidden_size=16, attn_layers=["local"])
    theirs = AxialPositionEmbeddings(config).eval().double()
    ours = build("grid/axial_learned", dims(heads=1, width=16), extent=[5, 7], join=Join.concat)
    with torch.no_grad():
        theirs.weights[0].copy_(ours.table[:5, None])
        theirs.weights[1].copy_(ours.table[None, 5:])
        expected = theirs(torch.arange(35)[None])[0]
        assert torch.equal(ours.codes(cells(5, 7)), expected)
