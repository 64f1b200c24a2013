"""Biases by distance beside transformers and x-transformers: values and gradients, with the weights copied."""

from __future__ import annotations

import math

import pytest
import torch

from posbuild.conformance.cases import build, dims
from posbuild.conformance.layer import scores
from posbuild.conformance.test_public import PART
from posbuild.schemes.alibi import Form
from posbuild.schemes.dynamic_bias import Activation
from tests.public.common import adopt, assert_same, bias_of

pytest.importorskip("transformers", minversion="5")
x_transformers = pytest.importorskip("x_transformers.x_transformers")

from transformers import Swinv2Config, T5Config  # noqa: E402
from transformers.models.bloom.modeling_bloom import build_alibi_tensor as bloom_alibi  # noqa: E402
from transformers.models.falcon.modeling_falcon import build_alibi_tensor as falcon_alibi  # noqa: E402
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor as mpt_alibi  # noqa: E402
from transformers.models.swin.modeling_swin import SwinRelativePositionBias  # noqa: E402
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention  # noqa: E402
from transformers.models.t5.modeling_t5 import T5Attention  # noqa: E402

pytestmark = pytest.mark.part(PART)

HEADS, WIDTH = 4, 16

# ALiBi


def against_the_query(by_key):
    """Biases by key alone (H, 1, K), which softmax takes up to a constant a row, as biases by distance (1, H, K, K)."""
    return (by_key - by_key.transpose(-1, -2))[None]


@pytest.mark.public("transformers", "alibi")
@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 8, 12, 40])
def test_alibi_of_bloom_and_mpt(heads):
    """Both give slope · key position, counted from the first or back from the last key: the same after softmax."""
    ours = bias_of(build("alibi", dims(heads=heads)), 64)
    bloom = bloom_alibi(torch.ones(1, 64, dtype=torch.int64), heads, torch.float64)
    for theirs in (bloom, mpt_alibi(heads, 64).double()):
        torch.testing.assert_close(ours, against_the_query(theirs), rtol=1e-6, atol=1e-5)


@pytest.mark.public("transformers", "alibi")
@pytest.mark.parametrize("heads", [3, 8])
def test_alibi_of_falcon_is_divided_by_the_root_of_the_head_width(heads):
    """Falcon adds ALiBi before the division by √D and rounds slopes to bf16: a bias √D times weaker than in the paper."""
    ours = bias_of(build("alibi", dims(heads=heads)), 16)
    theirs = falcon_alibi(torch.ones(1, 16, dtype=torch.int64), heads, torch.float64) / math.sqrt(WIDTH)
    # Its slope · key position is a bf16 number too: at most 15 slopes, so wrong by up to 15 · 2⁻⁹.
    torch.testing.assert_close(ours / math.sqrt(WIDTH), against_the_query(theirs), rtol=0, atol=15 * 2**-9)


@pytest.mark.public("x-transformers", "alibi")
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


@pytest.mark.public("transformers", "t5")
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


@pytest.mark.public("x-transformers", "t5")
@pytest.mark.parametrize("causal", [True, False])
def test_t5_of_x_transformers(causal):
    """x-transformers multiplies the bias by a scale, √D in its Attention; here 1."""
    theirs = x_transformers.RelativePositionBias(1.0, causal=causal, num_buckets=32, max_distance=128, heads=HEADS)
    encoding = build("t5", dims(heads=HEADS, causal=causal), max_distance=128)
    encoding.table = theirs.double().relative_attention_bias.weight
    assert_same(bias_of(encoding, 200), theirs(200, 200)[None], [encoding.table], atol=1e-12)


# Relative


@pytest.mark.public("transformers", "relative")
@pytest.mark.parametrize("causal", [True, False])
def test_relative_is_t5_without_wide_buckets(causal):
    """T5 told that distances end where its buckets of one distance do: the others, but the last, stay empty."""
    config = T5Config(
        d_model=HEADS * WIDTH,
        d_kv=WIDTH,
        num_heads=HEADS,
        is_decoder=causal,
        relative_attention_num_buckets=20 if causal else 40,
        relative_attention_max_distance=11,
    )
    attention = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double()
    table = attention.relative_attention_bias.weight
    before = [*range(10), 10, 19]  # distances 0 to 10, and all further ones
    after = [20 + row for row in before[1:]]
    encoding = build("relative", dims(heads=HEADS, causal=causal), max_distance=11)
    rows = before if causal else after[::-1] + before
    adopt(encoding, table=table[rows].T.expand_as(encoding.table))
    ours, theirs = bias_of(encoding, 60), attention.compute_bias(60, 60)
    if causal:  # T5 gives keys after the query the bias of its own place, where nothing is seen
        ours, theirs = ours.tril(), theirs.tril()
    assert_same(ours, theirs, [table], atol=1e-12)


@pytest.mark.public("transformers", "relative")
def test_relative_is_swin_along_one_axis():
    """A window one cell high."""
    swin = SwinRelativePositionBias(HEADS, (1, 20)).double()
    table = swin.relative_position_bias_table
    torch.nn.init.normal_(table, generator=torch.Generator().manual_seed(0))
    encoding = build("relative", dims(heads=HEADS, causal=False), max_distance=19)
    adopt(encoding, table=table.T.expand_as(encoding.table))
    assert_same(bias_of(encoding, 20), swin(), [table], atol=1e-12)


# Dynamic bias


@pytest.mark.public("x-transformers", "dynamic_bias")
@pytest.mark.parametrize("depth", [1, 3])
def test_dynamic_bias_of_x_transformers(depth):
    theirs = x_transformers.DynamicPositionBias(8, heads=HEADS, depth=depth, log_distance=True)
    layers = [*(block[0] for block in theirs.mlp[:-1]), theirs.mlp[-1]]
    encoding = build(
        "dynamic_bias", dims(heads=HEADS), hidden_layers=depth, width=8, activation=Activation.silu, dtype=torch.float32
    )
    given = {}
    for part in ("weight", "bias"):
        first, *between, last = (getattr(layer, part) for layer in layers)
        given |= {f"{part}_in": first, f"{part}_out": last}
        if between:
            given[f"{part}_hidden"] = torch.stack(between)
    adopt(encoding, **given)
    learned = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    # Theirs in float32: 40 000 pairs are summed in the gradients.
    assert_same(bias_of(encoding, 200), theirs(200, 200)[None], learned, atol=1e-3)


@pytest.mark.public("transformers", "dynamic_bias")
def test_dynamic_bias_of_swin_v2_along_one_axis():
    """Its network is given two coordinates, 8/8 of the distance in a window of 9, and log2 over log2(8), three."""
    attention = Swinv2SelfAttention(Swinv2Config(), dim=HEADS * 4, num_heads=HEADS, window_size=(9, 9)).double()
    first, _, last = attention.continuous_position_bias_mlp
    encoding = build("dynamic_bias", dims(heads=HEADS, causal=False), width=512)
    adopt(
        encoding,
        weight_in=first.weight[:, :1] / math.log(8),
        bias_in=first.bias,
        weight_out=last.weight,
        bias_out=torch.zeros(HEADS, dtype=torch.float64),
    )
    theirs = attention.continuous_position_bias_mlp(attention.relative_coords_table[0, :, 8].double())
    ours = encoding.bias(torch.arange(-8, 9)).T
    assert_same(ours, theirs, [first.weight, first.bias, last.weight], atol=1e-6)  # their coordinates are float32
