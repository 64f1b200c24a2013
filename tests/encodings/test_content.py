"""Schemes whose scores depend on content, or that replace softmax: what all must hold, and known faults, each a test."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from posbuild import registry
from posbuild.attention import Pattern, exact
from posbuild.conformance.cases import build, cases, dims, of_text, reaching, started
from posbuild.conformance.layer import gathered, of_content, random, scores, weights
from posbuild.conformance.paper import reference
from posbuild.encodings.base import Encoding
from posbuild.schemes.dape import Prior
from posbuild.schemes.window import Inner
from tests.model import small

SCHEMES = [name for name in registry.schemes() if of_content(build(name))]
CASES = [case for case in of_text(cases()) if case[0] in SCHEMES]
every_scheme = pytest.mark.parametrize("name", SCHEMES)


def counted(length, start=0):
    return torch.arange(start, start + length)[None]


def zeros(heads, length, width=1, dtype=torch.float64):
    return torch.zeros(1, heads, length, width, dtype=dtype)


# All of them


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_reach_every_parameter_at_the_start(case):
    name, causal, options = case
    encoding = started(build(name, dims(causal=causal), **options))
    q, k, v = (random(1, 3, 12, 4, seed=seed) for seed in (1, 2, 3))
    found = [gathered(encoding, q, k, v, counted(12), counted(12), layer) for layer in (0, 1)]
    if list(encoding.parameters()):
        (torch.stack(found) * random(2, 1, 3, 12, 4, seed=5)).sum().backward()
    for key, value in encoding.named_parameters():
        assert value.grad is not None and value.grad.isfinite().all(), key
        moves_all_scores_alike = key.endswith("bias_out")
        assert value.grad.abs().max() > 1e-9 or moves_all_scores_alike, key


@every_scheme
@pytest.mark.parametrize("size", [1.0, 30.0])
def test_numbers_stay_finite_at_sixteen_train_lengths(name, size):
    """In float32, with scores of some hundreds too; values and gradients."""
    encoding = started(build(name, dtype=torch.float32, **reaching(name, 256)))
    q, k, v = (size * random(1, 3, 256, 4, seed=seed, dtype=torch.float32) for seed in (1, 2, 3))
    q.requires_grad_()
    out = gathered(encoding, q, k, v, counted(256), counted(256), x=random(1, 256, 12, dtype=torch.float32))
    out.square().mean().backward()
    assert out.isfinite().all() and q.grad.isfinite().all()
    assert all(value.grad.isfinite().all() for value in encoding.parameters() if value.grad is not None)


@every_scheme
def test_a_later_token_changes_nothing_before_it(name):
    """The fault to catch: CoPE's gates on masked keys, DAPE V2's convolution over keys after the query."""
    encoding = build(name)
    heads, x = random(1, 3, 12, 4, seed=1), random(1, 12, 12, seed=4)
    with torch.no_grad():
        before = weights(encoding, heads, heads, counted(12), counted(12), x=x)
        heads, x = heads.clone(), x.clone()
        heads[:, :, 9:] *= -3
        x[:, 9:] *= -3
        after = weights(encoding, heads, heads, counted(12), counted(12), x=x)
    assert torch.equal(before[:, :, :9], after[:, :, :9])
    assert not before.triu(1).any() and not torch.equal(before[:, :, 9:], after[:, :, 9:])


@every_scheme
def test_what_is_kept_of_tokens_is_never_in_half_precision(name):
    encoding, x = build(name, dtype=torch.bfloat16), random(1, 5, 12)
    for given in (x.float(), x.bfloat16()):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            kept = encoding.at_tokens(given, 1)
        assert (kept is None) == (type(encoding).at_tokens is Encoding.at_tokens)
        assert kept is None or kept.dtype in (torch.float32, torch.float64)


# Neighbours of DAPE V2 are those of the row, so its documents must not interleave.
@pytest.mark.parametrize("name", [name for name in SCHEMES if name != "dape_v2"])
def test_interleaved_documents_equal_each_alone(name):
    """Sums, counts and products run over the tokens of one document, wherever they stand; padding is one more (-1)."""
    model, texts = small.build(name).double(), [small.tokens(1, length, seed=length) for length in (9, 12)]
    documents = torch.tensor([[-1, 0, 1, 1, 0, -1, 1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 1, 0, 1]])
    together = torch.full_like(documents, 5)
    for number, text in enumerate(texts):
        together[documents == number] = text[0]
    with torch.no_grad():
        found = model(together, documents=documents)
        cache = model.new_cache(1)
        parts = zip(together.split(4, dim=1), documents.split(4, dim=1), strict=True)
        decoded = torch.cat([model(part, documents=where, cache=cache) for part, where in parts], dim=1)
        for number, text in enumerate(texts):
            for logits in (found, decoded):
                torch.testing.assert_close(logits[documents == number], model(text)[0], rtol=0, atol=1e-9)


# FoX and CABLE


@pytest.mark.parametrize(("name", "start"), [("fox", 0.0), ("fox", 5.0), ("cable", 0.0), ("cable", -2.0)])
def test_at_the_start_each_token_between_lets_the_same_share_pass(name, start):
    """In bf16, 4096 tokens through a cache in two parts: the bias is the number of tokens times log sigmoid(start).

    The fault to catch: sums in bf16, which are off by whole units there, and sums of the new tokens alone.
    """
    size, length = dims(heads=2, layers=1), 4096
    encoding = started(build(name, size, dtype=torch.bfloat16, gate_start=start))
    with torch.no_grad():
        encoding.weight.zero_()
        x = random(1, length, size.d_model, dtype=torch.bfloat16)
        kept = torch.cat([encoding.at_tokens(part, 0) for part in x.split([4000, 96], dim=1)], dim=1)
        q, k = zeros(2, 1, dtype=torch.bfloat16), zeros(2, length, dtype=torch.bfloat16)
        pattern = Pattern(counted(1, length - 1), counted(length), causal=True)
        bias = encoding.at_scores(pattern.q_positions_BQ, pattern.k_positions_BK, 0, None)
        found = bias.scores(pattern.seen(q, k, 1.0, kept))[0, :, 0]
    expected = -math.log1p(math.exp(-start)) * np.arange(length - 1, -1, -1)
    np.testing.assert_allclose(found, [expected] * 2, rtol=1e-6)


def test_cable_is_fox_with_the_opposite_sign():
    """-softplus(z) = log sigmoid(-z): a checkpoint of one read as the other forgets where it should keep."""
    fox, cable, q = build("fox"), build("cable"), random(1, 3, 6, 4)
    with torch.no_grad():
        assert not torch.allclose(*(scores(each, q, q, counted(6), counted(6)) for each in (fox, cable)))
        for one, other in zip(fox.parameters(), cable.parameters(), strict=True):
            one.copy_(-other)
        torch.testing.assert_close(*(scores(each, q, q, counted(6), counted(6)) for each in (fox, cable)))


@pytest.mark.parametrize("length", [1, 5, 100])
def test_cable_reads_texts_of_any_length(length):
    """The released mask is for block_size tokens, and shorter texts fail."""
    encoding, q = build("cable"), random(1, 3, length, 4)
    with torch.no_grad():
        assert scores(encoding, q, q, counted(length), counted(length)).isfinite().all()


# CoPE


def counting(encoding):
    """CoPE with a table that adds the position itself to the score of a query of ones."""
    with torch.no_grad():
        encoding.table.copy_(torch.arange(encoding.table.shape[1])[:, None].expand_as(encoding.table[0]))
    return encoding


def test_cope_counts_what_the_query_sees_alone():
    """Gates of one half everywhere: the key d tokens back has position (d + 1)/2, whatever comes after the query."""
    encoding = counting(build("cope", dims(heads=1, width=1, layers=1), max_position=20))
    with torch.no_grad():
        found = scores(encoding, zeros(1, 6) + 1, zeros(1, 6), counted(6), counted(6))[0, 0]
    back = torch.arange(6)[:, None] - torch.arange(6)
    torch.testing.assert_close(found, ((back + 1) / 2).tril().double())


def test_cope_counts_beyond_256_in_a_bf16_model():
    """Gates of one on 1000 keys; a sum in bf16 would stop at 256. Positions are read where the table is exact in bf16."""
    encoding = counting(build("cope", dims(heads=1, width=1, layers=1), dtype=torch.bfloat16, max_position=1024))
    ones, length = torch.ones(1, 1, 1, 1, dtype=torch.bfloat16), 1000
    keys = torch.full((1, 1, length, 1), 100.0, dtype=torch.bfloat16)
    with torch.no_grad():
        pattern = Pattern(counted(1, length - 1), counted(length), causal=True)
        bias = encoding.at_scores(pattern.q_positions_BQ, pattern.k_positions_BK, 0, None)
        found = bias.scores(pattern.seen(ones, keys, 1.0))[0, 0, 0] - 100
    assert found[[1000 - 1000, 1000 - 512, 1000 - 264, 1000 - 3]].tolist() == [1000, 512, 264, 3]


def test_cope_shares_one_position_beyond_the_largest():
    encoding = counting(build("cope", dims(heads=1, width=1, layers=1), max_position=2))
    with torch.no_grad():
        found = scores(encoding, zeros(1, 1) + 1, zeros(1, 9), counted(1, 8), counted(9))[0, 0, 0]
    assert found.tolist() == [2, 2, 2, 2, 2, 2, 1.5, 1, 0.5]


# Stick-breaking


@pytest.mark.parametrize("own_token", [False, True])
@pytest.mark.parametrize("size", [0.1, 5.0, 1000.0])
def test_nothing_of_the_stick_is_lost(own_token, size):
    """Shares near 0 and 1: a product of 4096 factors in place of a sum of logarithms would be 0 or keep rounding."""
    encoding = build("stick_breaking", dtype=torch.float32, own_token=own_token)
    q, k = (size * random(1, 3, 64, 4, seed=seed, dtype=torch.float32) for seed in (1, 2))
    found = weights(encoding, q, k, counted(64), counted(64))
    assert (found >= 0).all() and not found.triu(1).any()
    torch.testing.assert_close(found.sum(-1), torch.ones(1, 3, 64), rtol=0, atol=1e-5)


def test_small_shares_of_many_keys_are_geometric():
    """Shares of σ(-9) on 4096 keys: the key d back gets σ(-9) (1 - σ(-9))^(d - 1), and the own value the rest."""
    encoding = build("stick_breaking", dims(heads=1, width=1), dtype=torch.float32)
    q, k = zeros(1, 1, dtype=torch.float32) + 1, zeros(1, 4097, dtype=torch.float32) - 9
    found = weights(encoding, q, k, counted(1, 4096), counted(4097))[0, 0, 0]
    share = 1 / (1 + math.exp(9))
    expected = [share * (1 - share) ** (back - 1) for back in range(4096, 0, -1)]
    np.testing.assert_allclose(found, [*expected, (1 - share) ** 4096], rtol=1e-5)


# The window


@pytest.mark.parametrize("over", Inner)
@pytest.mark.parametrize(("width", "sinks"), [(1, 0), (1, 2), (5, 4), (100, 4)])
def test_a_query_sees_the_window_and_the_first_tokens(over, width, sinks):
    encoding, q = build("window", width=width, sinks=sinks, over=over), random(1, 3, 30, 4)
    found = weights(encoding, q, q, counted(30), counted(30))[0, 0] > 0
    for i in range(30):
        assert found[i].nonzero().flatten().tolist() == [j for j in range(i + 1) if j < sinks or j > i - width]


def test_places_over_a_rotary_encoding_are_those_in_the_cache():
    """Equal vectors: once the cache is full its weights stay as they are, however far the text has come.

    The fault to catch: sinks at their places in the text, at angles that grow without end.
    """
    encoding = build("window", dims(heads=1, width=8), width=6, sinks=3, over=Inner.rope)
    q = random(1, 1, 1, 8).expand(1, 1, 400, 8)
    found = weights(encoding, q, q, counted(400), counted(400))[0, 0]
    full = found[8][found[8] > 0]
    assert len(full) == 9
    for i in (9, 30, 399):
        torch.testing.assert_close(found[i][found[i] > 0], full, rtol=1e-9, atol=0)
    cache_alone = scores(build("rope", dims(heads=1, width=8)), q[:, :, :1], q[:, :, :9], counted(1, 8), counted(9))
    torch.testing.assert_close(full, cache_alone[0, 0, 0].softmax(-1), rtol=1e-9, atol=0)


# DAPE


@pytest.mark.parametrize("over", Prior)
def test_dape_v2_does_not_change_its_mind_when_another_token_comes(over):
    """In the released code the last query has no hidden key after it, and other scores once it is not the last."""
    encoding, heads = build("dape_v2", over=over), random(1, 3, 7, 4)
    with torch.no_grad():
        whole = scores(encoding, heads, heads, counted(7), counted(7))
        first = scores(encoding, heads[:, :, :6], heads[:, :, :6], counted(6), counted(6))
    torch.testing.assert_close(first, whole[:, :, :6, :6], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("over", Prior)
def test_the_bias_under_dape_starts_as_the_scheme_does(over):
    inner = build("dape", over=over).over
    alone = build(over.name)
    assert {key: value.shape for key, value in inner.named_parameters()} == {
        key: value.shape for key, value in alone.named_parameters()
    }
    for name in ("dape", "dape_v2"):
        encoding = build(name, over=over)
        with torch.no_grad():
            encoding.weight_out.zero_()
            encoding.bias_out.zero_()
            alone.load_state_dict(encoding.over.state_dict())
            q = random(1, 3, 9, 4)
            torch.testing.assert_close(
                scores(encoding, q, q, counted(9), counted(9)), scores(alone, q, q, counted(9), counted(9)).tril()
            )


# RetNet


@pytest.mark.parametrize("heads", [1, 4, 8])
def test_rates_of_retnet(heads):
    """1 - 2^(-5 - head), read from two keys that are alike, a turn by 1 apart: the row's length cancels."""
    encoding, ones = build("retnet", dims(heads=heads, width=2)), zeros(heads, 2, width=2)
    ones[..., 0] = 1
    found = scores(encoding, ones[:, :, 1:], ones, counted(1, 1), counted(2))[0, :, 0]
    rates = found[:, 0] / found[:, 1] / math.cos(1)
    np.testing.assert_allclose(rates, 1 - 2.0 ** (-5 - np.arange(heads)), rtol=1e-12)


def test_retention_of_far_keys_fades_to_nothing_and_no_row_exceeds_one():
    encoding, q = build("retnet", dtype=torch.float32), 50 * random(1, 3, 64, 4, dtype=torch.float32)
    positions = torch.arange(64)[None] * 2000
    found = weights(encoding, q, q, positions, positions)
    assert found.isfinite().all() and (found.abs().sum(-1) < 1 + 1e-5).all()
    assert found[0, 0, -1, 0].abs() < 1e-30 < found[0, 0, -1, -1].abs()


# PaTH


def test_two_equal_reflections_undo_each_other():
    """Strength 2 along the same direction twice: the key two tokens back is as it was."""
    encoding = build("path", dims(heads=1, width=4, layers=1))
    q, k = random(1, 1, 1, 4, seed=1), random(1, 1, 3, 4, seed=2)
    with torch.no_grad():
        encoding.weight_strength.zero_()
        encoding.bias_strength.fill_(100.0)
        x = random(1, 1, 4).expand(1, 3, 4) * 1e4
        found = scores(encoding, q, k, counted(1, 2), counted(3), x=x)[0, 0, 0]
    plain = (k @ q.mT)[0, 0, :, 0] / 2
    torch.testing.assert_close(found[[0, 2]], plain[[0, 2]], rtol=1e-9, atol=1e-9)
    assert (found[1] - plain[1]).abs() > 0.1


def test_path_over_256_tokens_in_float32_equals_the_matrices_multiplied_one_by_one():
    """The fault to catch: keys changed in place token by token, whose errors add up."""
    size = dims(heads=1, width=4, layers=1)
    encoding = build("path", size, dtype=torch.float32)
    q, k = (random(1, 1, length, 4, seed=length, dtype=torch.float32) for length in (1, 256))
    x = random(1, 256, 4, dtype=torch.float32)
    with torch.no_grad():
        found = scores(encoding, q, k, counted(1, 255), counted(256), x=x)
    own = {key: value[0].double().numpy() for key, value in encoding.state_dict().items()}
    expected = reference("path").scores(q.double().numpy(), k.double().numpy(), None, None, x.double().numpy(), **own)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@every_scheme
def test_weights_in_chunks_through_kept_tokens_are_those_of_the_whole(name):
    """Queries of a few tokens at a time, what is kept joined as a cache joins it."""
    encoding, heads, x = build(name), random(1, 3, 15, 4), random(1, 15, 12, seed=4)
    where = counted(15)
    with torch.no_grad():
        whole = weights(encoding, heads, heads, where, where, x=x)
        shared = encoding.prepare(where)
        q, k = (hook(heads, where, 0, shared) for hook in (encoding.at_queries, encoding.at_keys))
        kept, begin = None, 0
        for stop in (1, 4, 5, 12, 15):
            new = encoding.at_tokens(x[:, begin:stop], 0)
            kept = new if kept is None or new is None else torch.cat([kept, new], dim=1)
            pattern = Pattern(where[:, begin:stop], where[:, :stop], causal=True)
            bias = encoding.at_scores(pattern.q_positions_BQ, pattern.k_positions_BK, 0, shared)
            part = exact.weights(q[:, :, begin:stop], k[:, :, :stop], pattern, bias, 0.5, kept)
            torch.testing.assert_close(part, whole[:, :, begin:stop, :stop], rtol=1e-12, atol=1e-12)
            begin = stop


def test_a_window_may_stand_over_every_scheme_that_turns_by_frequencies_alone():
    turning = {name for name, each in registry.schemes().items() if each.maths == "posbuild.encodings.rope:Rope"}
    assert {inner.name for inner in Inner} == turning | {"none"}
