"""Codes at the input beside transformers and x-transformers: values and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from posbuild.conformance.cases import build, dims
from posbuild.conformance.test_public import PART
from posbuild.schemes.sinusoidal import Layout
from tests.public.common import assert_same

pytest.importorskip("transformers", minversion="5")
x_transformers = pytest.importorskip("x_transformers.x_transformers")

from transformers import GPT2Config, GPT2Model  # noqa: E402
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding  # noqa: E402
from transformers.models.xglm.modeling_xglm import XGLMSinusoidalPositionalEmbedding  # noqa: E402

pytestmark = pytest.mark.part(PART)

LENGTH = 512
POSITIONS = torch.arange(LENGTH)[None]


def codes(name, dim, positions, **options):
    return build(name, dims(heads=1, width=dim), **options).codes(positions)


@pytest.mark.public("transformers", "sinusoidal")
@pytest.mark.parametrize("dim", [7, 64])
def test_sinusoidal_of_marian(dim):
    """Sines first; of an odd width the middle channel is a sine without its cosine, as here."""
    theirs = MarianSinusoidalPositionalEmbedding(LENGTH, dim).create_weight()
    ours = codes("sinusoidal", dim, POSITIONS[0], scale=1.0, layout=Layout.half)
    torch.testing.assert_close(ours, theirs.double(), rtol=0, atol=1e-6)


@pytest.mark.public("transformers", "sinusoidal")
def test_sinusoidal_of_xglm():
    """tensor2tensor's frequencies, 10000^(-i / (d/2 - 1)): those of the paper for the base 10000^((d/2) / (d/2 - 1)).

    Its positions start at 2, which `forward` adds; the row of the padding token, not built here, is zero.
    """
    theirs = XGLMSinusoidalPositionalEmbedding(LENGTH, 64)(POSITIONS)[0]
    ours = codes("sinusoidal", 64, POSITIONS[0] + 2, scale=1.0, layout=Layout.half, base=10_000.0 ** (32 / 31))
    torch.testing.assert_close(ours, theirs.double(), rtol=0, atol=1e-4)  # float32 angles of theirs


@pytest.mark.public("x-transformers", "sinusoidal")
def test_scaled_sinusoidal_of_x_transformers():
    """A learned amplitude, d^(-1/2) at the start there."""
    theirs = x_transformers.ScaledSinusoidalEmbedding(64)
    encoding = build("sinusoidal", dims(heads=1, width=64), learn_scale=True, layout=Layout.half)
    encoding.scale = theirs.scale
    ours = encoding.codes(POSITIONS[0]).float()
    assert_same(ours, theirs(torch.zeros(1, LENGTH, 64)), [theirs.scale], atol=1e-4)


@pytest.mark.public("transformers", "learned")
def test_learned_of_gpt2():
    """What the first layer of GPT-2 receives: token plus position vector."""
    model = GPT2Model(GPT2Config(vocab_size=50, n_positions=32, n_embd=12, n_layer=1, n_head=1, embd_pdrop=0.0))
    tokens = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    positions = torch.tensor([[0, 1, 2, 3, 4], [27, 28, 29, 30, 31]])
    encoding = build("learned", dims(), max_positions=32)
    encoding.table = model.wpe.weight
    theirs = model(tokens, position_ids=positions, output_hidden_states=True).hidden_states[0]
    assert_same(encoding.at_input(model.wte(tokens), positions), theirs, [model.wpe.weight, model.wte.weight], atol=0)
    np.testing.assert_array_equal(encoding.codes(positions).detach(), model.wpe(positions).detach())
