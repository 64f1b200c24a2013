"""Known faults of learned and fixed biases by distance, each a test; and biases at distance 0 and at a million tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from posbuild import registry
from posbuild.bias import OfDistance, OfPositions, each_once
from posbuild.conformance.cases import biases, build, dims, started
from posbuild.conformance.layer import random, scores
from posbuild.conformance.paper import paper_scores, reference
from posbuild.schemes.alibi import Form

BIASES = biases()
KERPLE = pytest.mark.parametrize("name", ["kerple_log", "kerple_power"])
SEEDS = range(200)


def bias_of(encoding, queries, keys, layer=0):
    """What is added to the scores at these positions, (H, Q, K), in float64."""
    q_positions, k_positions = torch.tensor([queries]), torch.tensor([keys])
    bias = encoding.at_scores(q_positions, k_positions, layer, encoding.prepare(q_positions))
    return bias.dense(q_positions, k_positions, torch.float64)[0]


# All of them


@pytest.mark.parametrize("case", BIASES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_million_tokens_away_and_at_no_distance(case, dtype):
    """Values and their neighbours: in float32 a position of 10^6 is exact, in bf16 one of 257 is not."""
    name, causal, options = case
    encoding = build(name, dims(causal=causal), dtype=dtype, **options)
    positions = torch.tensor([[0, 1, 999_999, 1_000_000]])
    zero = torch.zeros(1, 3, 4, 4)
    with torch.no_grad():
        actual = scores(encoding, zero, zero, positions, positions)
    expected = paper_scores(encoding, name, zero.double(), zero.double(), positions, positions)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(actual, expected, rtol=3e-7, atol=2e-6)


@pytest.mark.parametrize("case", BIASES, ids=str)
def test_a_bias_looked_up_by_distance_is_the_one_computed_pair_by_pair(case, monkeypatch):
    """Values and gradients; the second way is that of a compiled model and of small inputs on a GPU."""
    name, causal, options = case
    found = []
    for _ in range(2):
        encoding = build(name, dims(causal=causal), **options)
        bias = bias_of(encoding, [3, 9, 9, 0, 14], [0, 1, 2, 3, 9, 15])
        learned = list(encoding.parameters())
        total = (bias * random(*bias.shape)).sum()
        found.append([bias, *(torch.autograd.grad(total, learned) if learned else [])])
        monkeypatch.setattr("posbuild.bias.each_once", lambda distance: None)
        monkeypatch.setattr("posbuild.bias.PART", 7)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_distances_stand_once_each_if_they_are_fewer_than_the_pairs():
    near, far = torch.tensor([[[0, 3], [-2, 1]]]), torch.tensor([[[0, 3], [-2, 10**6]]])
    assert each_once(torch.cat([near, near]))[[0, -1]].tolist() == [-2, 3]
    assert each_once(near) is None, "6 distances of 4 pairs"
    assert each_once(far) is None and each_once(near.expand(9, 2, 2).float()) is None


# Only a network or a sum over frequencies is worth the look-up: what it holds for a pair.
@pytest.mark.parametrize("name", ["sandwich", "dynamic_bias", "fire"])
def test_no_more_is_held_than_for_each_distance_or_part(name, monkeypatch):
    """The fault to catch: hidden layers or cosines for every pair of tokens, gigabytes at 4096 tokens."""
    widest, compute = [0], {"fire": OfPositions, "sandwich": OfDistance, "dynamic_bias": OfDistance}[name]
    encoding, positions = build(name), torch.arange(300)[None]
    bias = encoding.at_scores(positions, positions, 0, encoding.prepare(positions))
    monkeypatch.setattr("posbuild.bias.PART", 1000)

    def noting(*given):
        widest[0] = max(widest[0], given[0].numel())
        return bias.of(*given)

    with torch.no_grad():
        noted = compute(noting).dense(positions, positions, torch.float32)
        assert torch.equal(noted, bias.dense(positions, positions, torch.float32))
    assert widest[0] <= 1000


# KERPLE. The authors clamp parameters in place as they compute; others left them free, or never learned them.


@KERPLE
def test_kerple_penalises_distance_whatever_its_parameters(name):
    """The fault to catch: a negative parameter, which rewards distance or has no logarithm."""
    for seed in SEEDS:
        encoding = build(name)
        with torch.no_grad():
            for parameter in encoding.parameters():
                parameter.copy_(3 * random(*parameter.shape, seed=seed))
            penalty = bias_of(encoding, [4095], [4095, 4094, 4090, 4000, 0])[:, 0]
        assert penalty.isfinite().all() and (penalty[:, 0] == 0).all() and (penalty.diff(dim=-1) < 0).all()


@KERPLE
def test_kerple_learns_from_every_start_and_changes_no_parameter_as_it_computes(name):
    """The faults to catch: a clamp that stops the gradient, one that writes, and a parameter that is a constant zero."""
    encoding = started(build(name))
    before = [parameter.detach().clone() for parameter in encoding.parameters()]
    bias_of(encoding, [9], [0, 3, 9]).sum().backward()
    for parameter, value in zip(encoding.parameters(), before, strict=True):
        assert torch.equal(parameter, value)
        assert parameter.grad.isfinite().all() and (parameter.grad != 0).all()


@pytest.mark.parametrize(
    ("name", "parameter", "value", "most"),
    [
        ("kerple_log", "log_r1", torch.exp, 2),
        ("kerple_log", "log_r2", torch.exp, 1),
        ("kerple_power", "log_r1", torch.exp, 1),
        ("kerple_power", "logit_r2", lambda logit: 2 * logit.sigmoid(), 2),
    ],
)
def test_kerple_starts_uniformly_as_in_the_code_of_the_authors(name, parameter, value, most):
    drawn = value(started(build(name, dims(heads=4000, width=1))).get_parameter(parameter).detach())
    assert 0.01 - 1e-12 <= drawn.min() < 0.02 and 0.999 * most < drawn.max() <= most
    # Of n uniform numbers the mean is off by most/sqrt(12 n), here 0.0046 of it, and five times that is never seen.
    assert float(drawn.mean()) == pytest.approx(most / 2, rel=0.046)


@KERPLE
def test_kerple_is_not_divided_with_the_scores_unless_asked(name):
    plain, divided = (bias_of(build(name, dims(width=16), divided=choice), [9], [0, 9]) for choice in (False, True))
    torch.testing.assert_close(plain, 4 * divided, rtol=1e-12, atol=0)
    other_width = bias_of(build(name, dims(width=4)), [9], [0, 9])
    assert torch.equal(plain, other_width)


def test_the_power_of_no_distance_has_a_gradient_of_zero():
    """The fault to catch: d^r = exp(r log d) at d = 0 gives 0 with the gradient nan."""
    encoding = build("kerple_power")
    bias_of(encoding, [5, 5], [5, 5]).sum().backward()
    assert all(torch.equal(parameter.grad, torch.zeros(3, dtype=torch.float64)) for parameter in encoding.parameters())


# Sandwich. Others multiply by the ratio, take frequencies from 0, or as many as the head is wide.


def test_sandwich_divides_by_ratios_that_grow_from_head_to_head():
    bias = bias_of(build("sandwich", dims(heads=4)), [500], [500, 400, 0])[:, 0]
    assert torch.equal(bias[:, 0], torch.zeros(4, dtype=torch.float64))
    assert (bias[:, 1:] < 0).all()
    ratios = torch.tensor([[1.0], [2], [3], [4]], dtype=torch.float64).expand(4, 2)
    torch.testing.assert_close(bias[0, 1:] / bias[:, 1:], ratios)
    eight_heads = bias_of(build("sandwich", dims(heads=8)), [500], [500, 400, 0])[:, 0]
    torch.testing.assert_close(eight_heads[[1, 3, 5, 7]], bias)


def test_sandwich_has_frequencies_of_its_own_and_not_of_the_head():
    narrow, wide = (bias_of(build("sandwich", dims(width=width)), [500], [0]) for width in (4, 64))
    assert torch.equal(narrow, wide)
    two = bias_of(build("sandwich", dims(heads=1), dim=4), [1], [0])
    assert float(two) == pytest.approx((math.cos(1) + math.cos(0.01) - 2) / 8, rel=1e-9)


def test_sandwich_falls_with_the_logarithm_of_the_distance():
    """The abstract: as KERPLE and T5. Of its dim/2 cosines those have fallen whose turn is shorter: ln 8 of ln 10000 more
    for eight times the distance, within a fifth, since it ripples.
    """
    by_distance = bias_of(build("sandwich", dims(heads=8)), [4096], [4096 - 8**n for n in (1, 2, 3)])[7, 0]
    step = 64 * math.log(8) / math.log(10_000) / 8
    assert all(0.8 * step < -fall < 1.2 * step for fall in by_distance.diff().tolist())


# Dynamic bias


def test_dynamic_bias_is_given_the_signed_logarithm():
    """A network that hands its input on: the sign of the distance reaches it, and 10^6 tokens are 14, not 10^6."""
    encoding = build("dynamic_bias", dims(heads=1), width=2)
    with torch.no_grad():
        for key, value in reference("dynamic_bias").GOLDEN["parameters"].items():
            encoding.get_parameter(key).copy_(torch.tensor(value))
    bias = bias_of(encoding, [10**6], [10**6, 0, 2 * 10**6])[0, 0]
    assert bias.tolist() == pytest.approx([1, 1 + 3 * math.log(10**6 + 1), 1 + 5 * math.log(10**6 + 1)], rel=1e-12)


# FIRE


def test_fire_goes_by_the_position_of_the_query_and_not_by_the_number_of_queries_or_keys():
    """The fault to catch: a square of all keys, and positions counted from it, under a cache."""
    encoding = build("fire", threshold=2.0)
    whole = bias_of(encoding, list(range(12)), list(range(12)))
    for query in (0, 5, 11):
        torch.testing.assert_close(bias_of(encoding, [query], list(range(12))), whole[:, query : query + 1])
        torch.testing.assert_close(bias_of(encoding, [query], [3]), whole[:, query : query + 1, 3:4])


def test_fire_is_given_shares_from_0_to_1_at_every_length():
    """Beyond the threshold the first token of a text lies at a share of 1 (up to the 10^-6 in the denominator)."""
    encoding = build("fire", dims(heads=1), threshold=4.0)
    with torch.no_grad():  # a network that hands its input on
        for name, parameter in encoding.named_parameters():
            parameter.fill_({"c": 0.1, "factor": 1.0}.get(name, 0.0))
        encoding.weight_in[:, 0] = encoding.weight_out[:, :, 0] = 1
    for query in (4, 100, 10**6):
        none, half, all_of_it = bias_of(encoding, [query], [query, query // 2, 0])[0, 0].tolist()
        assert none == 0 < half < all_of_it == pytest.approx(1, abs=1e-5)
    within = bias_of(encoding, [2], [2, 0])[0, 0].tolist()
    assert within == [0, pytest.approx(math.log(1.2) / math.log(1.4), rel=1e-5)]


@pytest.mark.parametrize("share_layers", [False, True])
def test_fire_has_a_network_a_layer_or_one(share_layers):
    encoding = build("fire", share_layers=share_layers)
    first, second = (bias_of(encoding, [9], [0], layer) for layer in (0, 1))
    assert torch.equal(first, second) == share_layers
    assert encoding.weight_in.shape[0] == (1 if share_layers else 2)


def test_fire_starts_as_in_its_code():
    """The fault to catch: half of the threshold, as one copy of the code has it."""
    encoding = started(build("fire", dims(layers=1, heads=12), threshold=512.0))
    assert [encoding.c.item(), encoding.factor.item(), encoding.threshold] == [0.1, 1.0, 512.0]
    assert encoding.weight_in.shape == (1, 32, 1) and encoding.weight_out.shape == (1, 12, 32)  # one hidden layer
    for parameter, bound in ((encoding.weight_in, 1), (encoding.weight_out, 32**-0.5)):
        assert 0.9 * bound < parameter.abs().max() <= bound
    with torch.no_grad():
        assert torch.equal(bias_of(encoding, [511], [0, 300]), bias_of(encoding, [512], [1, 301]))
        assert not torch.equal(bias_of(encoding, [512], [0, 300]), bias_of(encoding, [513], [1, 301]))


def test_the_threshold_of_fire_is_a_quarter_of_the_train_length():
    size = dims()
    assert build("fire").threshold == size.train_length / 4
    options = registry.scheme("fire").options
    assert options().resolved(size) == options(threshold=size.train_length / 4)


def test_a_negative_c_or_factor_of_fire_counts_as_a_positive_one():
    encoding = build("fire", threshold=3.0)
    before = bias_of(encoding, [1, 9], [0, 1])
    with torch.no_grad():
        encoding.c.neg_()
        encoding.factor.neg_()
    assert torch.equal(bias_of(encoding, [1, 9], [0, 1]), before)


# ALiBi of which half of the heads look to each side


@pytest.mark.parametrize("learn_slopes", [False, True])
@pytest.mark.parametrize("per_head", [True, False])
@pytest.mark.parametrize("heads", [2, 4, 6])
def test_split_alibi_equals_the_slow_formula(heads, per_head, learn_slopes):
    encoding = build(
        "alibi", dims(heads=heads, causal=False), form=Form.split, per_head=per_head, learn_slopes=learn_slopes
    )
    q_positions, k_positions = torch.tensor([[9, 2, 2, 15, 0]]), torch.tensor([[3, 3, 14, 0, 9]])
    q, k = random(1, heads, 5, 4, seed=1), random(1, heads, 5, 4, seed=2)
    actual = scores(encoding, q, k, q_positions, k_positions).detach()
    expected = paper_scores(encoding, "alibi", q, k, q_positions, k_positions)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)
    assert np.isneginf(expected[:, : heads // 2]).sum() > 0 and np.isneginf(expected[:, heads // 2 :]).sum() > 0


def test_split_alibi_has_each_head_look_to_one_side_and_its_own_token():
    """Four heads: slopes 1/16 and 1/256, those of two heads, to either side."""
    bias = bias_of(build("alibi", dims(heads=4, causal=False), form=Form.split), [5], [3, 5, 7])[:, 0]
    hidden = -math.inf
    expected = [[-1 / 8, 0, hidden], [-1 / 128, 0, hidden], [hidden, 0, -1 / 8], [hidden, 0, -1 / 128]]
    assert bias.tolist() == expected


def test_gradients_reach_the_slopes_of_split_alibi():
    encoding = started(build("alibi", dims(heads=4, causal=False), form=Form.split, learn_slopes=True))
    weights = bias_of(encoding, list(range(6)), list(range(6))).softmax(dim=-1)
    weights.square().sum().backward()
    assert encoding.log_slopes.grad.isfinite().all() and (encoding.log_slopes.grad != 0).all()
