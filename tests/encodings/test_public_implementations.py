"""Values and gradients against the implementations that people use: transformers and x-transformers.

Nothing installs that computes `relative` (a scalar for each clipped distance), KERPLE, Sandwich or FIRE, or has no encoding
to compare; those are held to their formula, and to released code, in test_equals_paper.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from posbuild.schemes.alibi import Form
from posbuild.schemes.dynamic_bias import Activation
from posbuild.schemes.rope import Pairing
from posbuild.schemes.sinusoidal import Layout
from tests.encodings.building import build, dims, random, scores

pytest.importorskip("transformers", minversion="5")
x_transformers = pytest.importorskip("x_transformers.x_transformers")

from transformers import GPT2Config, GPT2Model, GPTNeoXConfig, LlamaConfig, Swinv2Config, T5Config  # noqa: E402
from transformers.models.bloom.modeling_bloom import build_alibi_tensor as bloom_alibi  # noqa: E402
from transformers.models.falcon.modeling_falcon import build_alibi_tensor as falcon_alibi  # noqa: E402
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox  # noqa: E402
from transformers.models.gptj import modeling_gptj as gptj  # noqa: E402
from transformers.models.llama import modeling_llama as llama  # noqa: E402
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding  # noqa: E402
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor as mpt_alibi  # noqa: E402
from transformers.models.roformer import modeling_roformer as roformer  # noqa: E402
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention  # noqa: E402
from transformers.models.t5.modeling_t5 import T5Attention  # noqa: E402
from transformers.models.xglm.modeling_xglm import XGLMSinusoidalPositionalEmbedding  # noqa: E402

HEADS, WIDTH, LENGTH = 4, 16, 512
POSITIONS = torch.arange(LENGTH)[None]


def assert_same(ours, theirs, inputs, atol):
    """Values, and gradients of one random weighting of them with respect to each input."""
    assert ours.shape == theirs.shape
    torch.testing.assert_close(ours, theirs.to(ours.dtype), rtol=0, atol=atol)
    weight = random(*ours.shape, seed=9).to(ours.dtype)
    gradients = [torch.autograd.grad((weight * out).sum(), inputs, retain_graph=True) for out in (ours, theirs)]
    for one, other in zip(*gradients, strict=True):
        assert one.abs().max() > 0
        torch.testing.assert_close(one, other, rtol=1e-4, atol=atol)


# Rotary. Theirs form angles in float32, off by 512 · 2⁻²⁴ at the end of these inputs: hence 1e-4.


def heads_in(seed):
    return random(2, HEADS, LENGTH, WIDTH, seed=seed, dtype=torch.float32).requires_grad_()


def rotated(q, k, **options):
    encoding = build("rope", dims(heads=HEADS, width=WIDTH), **options)
    shared = encoding.prepare(POSITIONS)
    return encoding.at_queries(q, POSITIONS, 0, shared), encoding.at_keys(k, POSITIONS, 0, shared)


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


@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_interleaved_rope_of_gptj(fraction):
    """GPT-J holds (B, T, H, D), and cuts the channels that turn off before it calls this function."""
    q, k, width = heads_in(1), heads_in(2), int(fraction * WIDTH)
    sine, cosine = gptj.create_sinusoidal_positions(LENGTH, width).chunk(2, -1)
    ours = rotated(q, k, layout=Pairing.interleaved, fraction=fraction)
    for one, x in zip(ours, (q, k), strict=True):
        turned = gptj.apply_rotary_pos_emb(x.transpose(1, 2)[..., :width], sine[None], cosine[None]).transpose(1, 2)
        assert_same(one, torch.cat([turned, x[..., width:]], -1), [x], atol=1e-4)


def test_interleaved_rope_of_roformer():
    """The authors' own, by way of transformers."""
    q, k = heads_in(1), heads_in(2)
    table = roformer.RoFormerSinusoidalPositionalEmbedding(LENGTH, WIDTH).create_weight()[None, None]
    theirs = roformer.RoFormerSelfAttention.apply_rotary_position_embeddings(table, q, k)
    for x, one, other in zip((q, k), rotated(q, k, layout=Pairing.interleaved), theirs, strict=True):
        assert_same(one, other, [x], atol=1e-4)


@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_rope_of_x_transformers(fraction):
    """Interleaved; its Attention turns half of the head width unless told otherwise."""
    q, k = heads_in(1), heads_in(2)
    angles, _ = x_transformers.RotaryEmbedding(int(fraction * WIDTH)).forward(POSITIONS[0])
    ours = rotated(q, k, layout=Pairing.interleaved, fraction=fraction)
    for one, x in zip(ours, (q, k), strict=True):
        assert_same(one, x_transformers.apply_rotary_pos_emb(x, angles), [x], atol=1e-4)


def test_half_and_interleaved_layouts_are_one_permutation_apart():
    """Weights move between the layouts by a permutation of each head's rows; for 8 channels 0, 2, 4, 6, 1, 3, 5, 7."""
    order = torch.cat([torch.arange(0, WIDTH, 2), torch.arange(1, WIDTH, 2)])
    q, k = heads_in(1), heads_in(2)
    interleaved, half = rotated(q, k, layout=Pairing.interleaved), rotated(q[..., order], k[..., order])
    for one, other in zip(interleaved, half, strict=True):
        assert torch.equal(one[..., order], other)


# ALiBi


def bias_of(encoding, length):
    positions = torch.arange(length)[None]
    zero = torch.zeros(1, encoding.dims.n_heads, length, 4, dtype=torch.float64)
    return scores(encoding, zero, zero, positions, positions)


def against_the_query(by_key):
    """Biases by key alone (H, 1, K), which softmax takes up to a constant a row, as biases by distance (1, H, K, K)."""
    return (by_key - by_key.transpose(-1, -2))[None]


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 8, 12, 40])
def test_alibi_of_bloom_and_mpt(heads):
    """Both give slope · key position, counted from the first or back from the last key: the same after softmax."""
    ours = bias_of(build("alibi", dims(heads=heads)), 64)
    bloom = bloom_alibi(torch.ones(1, 64, dtype=torch.int64), heads, torch.float64)
    for theirs in (bloom, mpt_alibi(heads, 64).double()):
        torch.testing.assert_close(ours, against_the_query(theirs), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("heads", [3, 8])
def test_alibi_of_falcon_is_divided_by_the_root_of_the_head_width(heads):
    """Falcon adds ALiBi before the division by √D and rounds slopes to bf16: a bias √D times weaker than in the paper."""
    ours = bias_of(build("alibi", dims(heads=heads)), 16)
    theirs = falcon_alibi(torch.ones(1, 16, dtype=torch.int64), heads, torch.float64) / math.sqrt(WIDTH)
    # Its slope · key position is a bf16 number too: at most 15 slopes, so wrong by up to 15 · 2⁻⁹.
    torch.testing.assert_close(ours / math.sqrt(WIDTH), against_the_query(theirs), rtol=0, atol=15 * 2**-9)


@pytest.mark.parametrize("heads", [1, 3, 4, 6, 8, 12])
def test_symmetric_alibi_of_x_transformers(heads):
    theirs = x_transformers.AlibiPositionalBias(heads)
    ours = bias_of(build("alibi", dims(heads=heads, causal=False), form=Form.symmetric), 64)
    torch.testing.assert_close(ours, theirs(64, 64).double()[None], rtol=1e-6, atol=0)
    positions = torch.tensor([[5, 40, 3, 3]])
    zero = torch.zeros(1, heads, 4, 4, dtype=torch.float64)
    ours = scores(
        build("alibi", dims(heads=heads, causal=False), form=Form.symmetric), zero, zero, positions, positions
    )
    torch.testing.assert_close(ours, theirs.forward_custom_pos(positions).double(), rtol=1e-6, atol=0)


# T5


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (32, 64), (16, 40)])
def test_t5_of_transformers(buckets, max_distance, causal):
    """The bias with the weights copied, and its gradient; then the buckets of far distances.

    T5 itself does not scale q·k by 1/√D, so a table copied from a checkpoint serves a model with that scale only.
    """
    config = T5Config(
        d_model=HEADS * WIDTH,
        d_kv=WIDTH,
        num_heads=HEADS,
        is_decoder=causal,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=max_distance,
    )
    attention = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double()
    encoding = build("t5", dims(heads=HEADS, causal=causal), buckets=buckets, max_distance=max_distance)
    encoding.table = attention.relative_attention_bias.weight
    assert_same(bias_of(encoding, 200), attention.compute_bias(200, 200), [encoding.table], atol=1e-12)
    distances = torch.cat([torch.arange(-3000, 3000), torch.tensor([-10_000_000, 10_000_000])])
    theirs = T5Attention._relative_position_bucket(-distances, not causal, buckets, max_distance)
    assert torch.equal(encoding.bucket(distances), theirs)


@pytest.mark.parametrize("causal", [True, False])
def test_t5_of_x_transformers(causal):
    """x-transformers multiplies the bias by a scale, √D in its Attention; here 1."""
    theirs = x_transformers.RelativePositionBias(1.0, causal=causal, num_buckets=32, max_distance=128, heads=HEADS)
    encoding = build("t5", dims(heads=HEADS, causal=causal), max_distance=128)
    encoding.table = theirs.double().relative_attention_bias.weight
    assert_same(bias_of(encoding, 200), theirs(200, 200)[None], [encoding.table], atol=1e-12)


# Dynamic bias


def adopt(encoding, **tensors):
    """Put tensors in the places of parameters: gradients reach what they were made of."""
    for name, tensor in tensors.items():
        del encoding._parameters[name]
        setattr(encoding, name, tensor)


@pytest.mark.parametrize("depth", [1, 3])
def test_dynamic_bias_of_x_transformers(depth):
    theirs = x_transformers.DynamicPositionBias(8, heads=HEADS, depth=depth, log_distance=True)
    layers = [*(block[0] for block in theirs.mlp[:-1]), theirs.mlp[-1]]
    encoding = build(
        "dynamic_bias", dims(heads=HEADS), hidden_layers=depth, width=8, activation=Activation.silu, dtype=torch.float32
    )
    for part in ("weight", "bias"):
        first, *between, last = (getattr(layer, part) for layer in layers)
        adopt(encoding, **{f"{part}_in": first, f"{part}_out": last})
        if between:
            adopt(encoding, **{f"{part}_hidden": torch.stack(between)})
    learned = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    # Theirs in float32: 40 000 pairs are summed in the gradients.
    assert_same(bias_of(encoding, 200), theirs(200, 200)[None], learned, atol=1e-3)


def test_dynamic_bias_of_swin_v2_along_one_axis():
    """Its network is given two coordinates, 8/8 of the distance in a window of 9, and log2 over log2(8), three."""
    attention = Swinv2SelfAttention(Swinv2Config(), dim=HEADS * 4, num_heads=HEADS, window_size=(9, 9)).double()
    first, _, last = attention.continuous_position_bias_mlp
    encoding = build("dynamic_bias", dims(heads=HEADS, causal=False), width=512)
    adopt(encoding, weight_in=first.weight[:, :1] / math.log(8), bias_in=first.bias, weight_out=last.weight)
    adopt(encoding, bias_out=torch.zeros(HEADS, dtype=torch.float64))
    theirs = attention.continuous_position_bias_mlp(attention.relative_coords_table[0, :, 8].double())
    ours = encoding.bias(torch.arange(-8, 9)).T
    assert_same(ours, theirs, [first.weight, first.bias, last.weight], atol=1e-6)  # their coordinates are float32


# Codes at the input


def codes(name, dim, positions, **options):
    return build(name, dims(heads=1, width=dim), **options).codes(positions)


@pytest.mark.parametrize("dim", [7, 64])
def test_sinusoidal_of_marian(dim):
    """Sines first; of an odd width the middle channel is a sine without its cosine, as here."""
    theirs = MarianSinusoidalPositionalEmbedding(LENGTH, dim).create_weight()
    ours = codes("sinusoidal", dim, POSITIONS[0], scale=1.0, layout=Layout.half)
    torch.testing.assert_close(ours, theirs.double(), rtol=0, atol=1e-6)


def test_sinusoidal_of_xglm():
    """tensor2tensor's frequencies, 10000^(-i / (d/2 - 1)): those of the paper for the base 10000^((d/2) / (d/2 - 1)).

    Its positions start at 2, which `forward` adds; the row of the padding token, not built here, is zero.
    """
    theirs = XGLMSinusoidalPositionalEmbedding(LENGTH, 64)(POSITIONS)[0]
    ours = codes("sinusoidal", 64, POSITIONS[0] + 2, scale=1.0, layout=Layout.half, base=10_000.0 ** (32 / 31))
    torch.testing.assert_close(ours, theirs.double(), rtol=0, atol=1e-4)  # float32 angles of theirs


def test_scaled_sinusoidal_of_x_transformers():
    """A learned amplitude, d^(-1/2) at the start there."""
    theirs = x_transformers.ScaledSinusoidalEmbedding(64)
    encoding = build("sinusoidal", dims(heads=1, width=64), learn_scale=True, layout=Layout.half)
    encoding.scale = theirs.scale
    ours = encoding.codes(POSITIONS[0]).float()
    assert_same(ours, theirs(torch.zeros(1, LENGTH, 64)), [theirs.scale], atol=1e-4)


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
