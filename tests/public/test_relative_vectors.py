"""Vectors for distances against transformers: scores, weights and gradients with weights copied.

TUPE, the Music Transformer and learnable Fourier features have no implementation there.
"""

from __future__ import annotations

import pytest
import torch

from posbuild.conformance.cases import build, dims
from posbuild.conformance.layer import random, scores
from posbuild.conformance.test_public import PART
from tests.public.common import adopt, assert_same

pytest.importorskip("transformers", minversion="5")

from transformers import DebertaV2Config, Wav2Vec2BertConfig, XLNetConfig, XLNetModel
from transformers.models.deberta_v2.modeling_deberta_v2 import (
    DisentangledSelfAttention,
    make_log_bucket_position,
)
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import (
    Wav2Vec2BertSelfAttention,
    _apply_relative_key_position_encoding,
)

pytestmark = pytest.mark.part(PART)
HEADS, WIDTH, LENGTH = 2, 4, 50
CHANNELS = HEADS * WIDTH
POSITIONS = torch.arange(LENGTH)[None]


# Shaw, keys alone


@pytest.mark.public("transformers", "shaw")
@pytest.mark.parametrize("causal", [False, True])
def test_shaw_of_wav2vec2_bert(causal):
    """Its table stands by key minus query and may reach further to the left than to the right: that is a causal one here."""
    left, right = 6, 3 if causal else 6
    config = Wav2Vec2BertConfig(
        hidden_size=CHANNELS,
        num_attention_heads=HEADS,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=left,
        right_max_position_embeddings=right,
    )
    attention = Wav2Vec2BertSelfAttention(config).double()
    table = attention.distance_embedding.weight
    encoding = build("shaw", dims(HEADS, WIDTH, causal, layers=1), max_distance=left, values=False)
    adopt(encoding, key_table=(table[: left + 1] if causal else table).flip(0)[None])
    q, k = random(2, HEADS, LENGTH, WIDTH, seed=1), random(2, HEADS, LENGTH, WIDTH, seed=2)
    _, bias = _apply_relative_key_position_encoding(attention, q, k)
    theirs = q @ k.transpose(-2, -1) * attention.scaling + bias
    ours = scores(encoding, q, k, POSITIONS, POSITIONS)
    assert_same(ours.tril() if causal else ours, theirs.tril() if causal else theirs, [table], atol=1e-10, rtol=1e-6)


# DeBERTa


@pytest.mark.public("transformers", "deberta")
@pytest.mark.parametrize("terms", [["c2p", "p2c"], ["c2p"], ["p2c"]])
@pytest.mark.parametrize(("buckets", "max_distance"), [(8, 30), (16, 16)])
def test_deberta_v2(buckets, max_distance, terms):
    """Both terms at the vector of query minus key: it holds the sign of both deltas. A row a distance: position_buckets -1.

    From max_distance on it gives keys after the query the row 0, which nothing else has, where the authors' code gives
    them the last bucket's: no distance with buckets is as large here.
    """
    config = DebertaV2Config(
        hidden_size=CHANNELS,
        num_attention_heads=HEADS,
        relative_attention=True,
        pos_att_type=terms,
        position_buckets=-1 if buckets == max_distance else buckets,
        max_relative_positions=max_distance,
        share_att_key=False,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    attention = DisentangledSelfAttention(config).double()
    length = max_distance if buckets != max_distance else LENGTH
    table, x = random(2 * buckets, CHANNELS, seed=3).requires_grad_(), random(2, length, CHANNELS, seed=4)
    learned, given = [table], {"table": table}
    if "c2p" in terms:
        torch.nn.init.zeros_(attention.pos_key_proj.bias)  # it adds the same to all scores of a query
        given["key_weight"] = attention.pos_key_proj.weight.view(1, HEADS, WIDTH, CHANNELS)
        learned.append(attention.pos_key_proj.weight)
    if "p2c" in terms:
        projection = attention.pos_query_proj
        torch.nn.init.normal_(projection.bias, generator=torch.Generator().manual_seed(0))
        given["query_weight"] = projection.weight.view(1, HEADS, WIDTH, CHANNELS)
        given["query_bias"] = projection.bias.view(1, HEADS, WIDTH)
        learned += [projection.weight, projection.bias]
    chosen = {"c2p": "c2p" in terms, "p2c": "p2c" in terms}
    encoding = build(
        "deberta", dims(HEADS, WIDTH, False, layers=1), buckets=buckets, max_distance=max_distance, **chosen
    )
    adopt(encoding, **given)
    seen = torch.ones(2, 1, length, length, dtype=torch.bool)
    _, theirs = attention(x, seen, output_attentions=True, rel_embeddings=table)
    q, k = (
        each(x).unflatten(-1, (HEADS, WIDTH)).transpose(1, 2) for each in (attention.query_proj, attention.key_proj)
    )
    where = torch.arange(length)[None]
    # Theirs divides by a square root in float32.
    assert_same(scores(encoding, q, k, where, where).softmax(-1), theirs, learned, atol=1e-6)


@pytest.mark.public("transformers", "deberta")
@pytest.mark.parametrize(("buckets", "max_distance"), [(8, 16), (32, 64), (256, 512)])
def test_buckets_of_deberta_v2(buckets, max_distance):
    distances = torch.arange(-max_distance + 2, max_distance - 1)
    theirs = make_log_bucket_position(distances, buckets, max_distance).long() + buckets
    encoding = build("deberta", dims(causal=False), buckets=buckets, max_distance=max_distance)
    assert torch.equal(encoding.rows(distances), theirs)


# Transformer-XL


@pytest.mark.public("transformers", "transformer_xl")
@pytest.mark.parametrize("clamp", [None, 7])
@pytest.mark.parametrize("causal", [False, True])
def test_transformer_xl_of_xlnet(causal, clamp):
    """Its content and position terms, in both directions; its segments are left out."""
    config = XLNetConfig(
        vocab_size=9,
        d_model=CHANNELS,
        n_layer=1,
        n_head=HEADS,
        d_inner=8,
        attn_type="uni" if causal else "bi",
        clamp_len=-1 if clamp is None else clamp,
        dropout=0.0,
    )
    model = XLNetModel(config).double()
    attention = model.layer[0].rel_attn
    learned = [attention.r, attention.r_w_bias, attention.r_r_bias]
    for number, parameter in enumerate(learned):
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(number))
    encoding = build("transformer_xl", dims(HEADS, WIDTH, causal, layers=1), clamp=clamp)
    adopt(encoding, weight=attention.r.permute(1, 2, 0)[None], u=attention.r_w_bias[None], v=attention.r_r_bias[None])
    q, k = random(2, HEADS, LENGTH, WIDTH, seed=1), random(2, HEADS, LENGTH, WIDTH, seed=2)
    sinusoid = model.relative_positional_encoding(LENGTH, LENGTH, bsz=2).double()
    projected = torch.einsum("ibh,hnd->ibnd", sinusoid, attention.r)
    hidden = torch.ones(LENGTH, LENGTH, dtype=torch.float64).triu(1)[:, :, None, None] if causal else None
    given = (each.permute(2, 0, 1, 3) for each in (q, k, k))  # length, batch, heads, width
    _, theirs = attention.rel_attn_core(*given, projected, attn_mask=hidden, output_attentions=True)
    ours = scores(encoding, q, k, POSITIONS, POSITIONS)
    if causal:
        ours = ours.masked_fill(torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1), -torch.inf)
    # Theirs has a sinusoid in float32.
    assert_same(ours.softmax(-1), theirs.permute(2, 3, 0, 1), learned, atol=1e-5)
