"""Vectors for distances and positions: known faults of their implementations, each a test, and what their options mean."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from posbuild import registry
from posbuild.conformance.cases import TRAIN_LENGTH, build, cases, dims, of_text, started
from posbuild.conformance.layer import gathered, random, scores
from posbuild.conformance.paper import paper_scores, reference
from posbuild.errors import ConfigError
from posbuild.schemes.deberta import Distance

AT_THE_SCORES = ["shaw", "music_transformer", "transformer_xl", "deberta", "tupe"]
CASES = [case for case in of_text(cases()) if case[0] in AT_THE_SCORES]


def counted(length, start=0):
    return torch.arange(start, start + length)[None]


# All that act at the scores


class Largest(TorchDispatchMode):
    """The most numbers of any result inside the block."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        for each in results if isinstance(results, tuple | list) else [results]:
            if isinstance(each, torch.Tensor):
                self.numbers = max(self.numbers, each.numel())
        return results


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_vector_is_held_for_each_pair_of_tokens(case):
    """The fault to catch: a tensor (Q, K, D), as the textbook form of Shaw has it. A number a head, query and distance, of
    which there are fewer than twice as many as keys, is enough.
    """
    name, causal, options = case
    heads, width, length = 2, 16, 128
    options = options | ({"max_positions": length} if name == "tupe" else {})
    size, q = dims(heads, width, causal), random(1, heads, length, width)
    encoding = build(name, size, **options)
    with Largest() as largest, torch.no_grad():
        gathered(encoding, q, q, q, counted(length), counted(length))
    assert largest.numbers <= 2 * heads * length**2 < length**2 * width


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_added_is_that_of_the_own_distance_on_either_side(case):
    """Equal queries and keys: entry (i, j) is that of i - j. The fault to catch: a shift of products that leaves those of
    another row above the diagonal.
    """
    name, causal, options = case
    encoding, ones = build(name, dims(causal=causal), **options), torch.ones(1, 3, 5, 4, dtype=torch.float64)
    if name == "tupe":  # by position: that of the row, whatever stands beside it
        with torch.no_grad():
            whole = scores(encoding, ones, ones, counted(5), counted(5))[0]
            for i, j in ((0, 0), (3, 1), (4, 4)):
                pair = scores(encoding, ones[:, :, :1], ones[:, :, :1], torch.tensor([[i]]), torch.tensor([[j]]))
                torch.testing.assert_close(pair[0, :, 0, 0], whole[:, i, j])
        return
    with torch.no_grad():
        matrix = scores(encoding, ones, ones, counted(5), counted(5))[0]
    for distance in range(-4, 5):
        line = matrix.diagonal(-distance, dim1=-2, dim2=-1)
        torch.testing.assert_close(line, line[:, :1].expand_as(line), rtol=0, atol=1e-12)
    if not causal:
        assert (matrix - matrix.transpose(-2, -1)).abs().max() > 1e-3


@pytest.mark.parametrize("case", CASES, ids=str)
def test_queries_that_are_the_last_of_the_keys_get_the_rows_that_they_have_among_all(case):
    """The fault to catch: skewing and shifting take as many queries as keys for granted, which a cache does not give."""
    name, causal, options = case
    encoding = build(name, dims(causal=causal), **options)
    q, k, v = (random(2, 3, 12, 4, seed=seed) for seed in range(3))
    with torch.no_grad():
        whole = gathered(encoding, q, k, v, counted(12), counted(12))
        for queries in (1, 5):
            part = gathered(encoding, q[:, :, -queries:], k, v, counted(12)[:, -queries:], counted(12))
            torch.testing.assert_close(part, whole[:, :, -queries:], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_reach_every_parameter_at_the_start(case):
    name, causal, options = case
    encoding = started(build(name, dims(causal=causal), **options))
    q, k, v = (random(2, 3, 12, 4, seed=seed) for seed in range(3))
    total = sum(
        (gathered(encoding, q, k, v, counted(12), counted(12), layer) * random(2, 3, 12, 4)).sum() for layer in (0, 1)
    )
    total.backward()
    assert all(parameter.grad.abs().max() > 1e-6 for parameter in encoding.parameters())


# Shaw


def test_tables_of_shaw_serve_all_heads_and_one_layer():
    far = registry.scheme("shaw").options().max_distance
    for causal, rows in ((True, far + 1), (False, 2 * far + 1)):
        encoding = build("shaw", dims(heads=3, width=4, causal=causal, layers=2))
        assert [*encoding.key_table.shape] == [*encoding.value_table.shape] == [2, rows, 4]
    q = random(1, 1, 9, 4).expand(1, 3, 9, 4)
    with torch.no_grad():
        first, second = (scores(encoding, q, q, counted(9), counted(9), layer) for layer in (0, 1))
    torch.testing.assert_close(first, first[:, :1].expand_as(first), rtol=0, atol=1e-12)
    assert (first - second).abs().max() > 1e-3
    assert build("shaw", values=False).value_table is None


# Music Transformer


def test_music_transformer_adds_nothing_where_its_table_ends():
    encoding, q = build("music_transformer", max_distance=4), random(1, 3, 9, 4)
    with torch.no_grad():
        added = (scores(encoding, q, q, counted(9), counted(9)) - (q @ q.transpose(-2, -1) / 2).tril())[0]
    assert (added.tril(-4).abs() < 1e-12).all() and (added.diagonal(-3, dim1=-2, dim2=-1).abs() > 1e-6).all()
    assert registry.scheme("music_transformer").options().resolved(dims()).max_distance == TRAIN_LENGTH


# Transformer-XL


def test_the_factors_of_transformer_xl_are_its_sinusoid_at_far_positions():
    """Float32 queries at 10^6: a term of position computed in float32 would be off by its digits."""
    encoding, q = build("transformer_xl", dtype=torch.float32), random(1, 3, 4, 4, dtype=torch.float32)
    positions = torch.tensor([[999_990, 999_999, 1_000_000, 0]])
    with torch.no_grad():
        actual = scores(encoding, q, q, positions, positions)
    expected = paper_scores(encoding, "transformer_xl", q.double(), q.double(), positions, positions)
    np.testing.assert_allclose(actual, expected, rtol=3e-7, atol=2e-6)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("clamp", [None, 3])
@pytest.mark.parametrize("width", [4, 5])
def test_transformer_xl_by_its_factors_is_the_one_looked_up_by_distance(width, clamp, causal, monkeypatch):
    """Values and gradients; the factors are those of a compiled model, and of positions far apart."""
    q, k, positions = (
        random(2, 1, 9, width, seed=1),
        random(2, 1, 9, width, seed=2),
        torch.tensor([[0, 1, 2, 2, 3, 7, 8, 9, 4]]),
    )
    found = []
    for _ in range(2):
        encoding = build("transformer_xl", dims(1, width, causal), clamp=clamp)
        given = [q.clone().requires_grad_(), k.clone().requires_grad_(), *encoding.parameters()]
        total = scores(encoding, *given[:2], positions, positions)
        found.append([total, *torch.autograd.grad((total * random(2, 1, 9, 9)).sum(), given)])
        monkeypatch.setattr("posbuild.encodings.transformer_xl.each_once", lambda distance: None)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_transformer_xl_shares_its_biases_and_not_its_projections():
    for share, rows in ((True, 1), (False, 2)):
        encoding = build("transformer_xl", share_biases=share)
        assert len(encoding.u) == len(encoding.v) == rows and len(encoding.weight) == 2


# DeBERTa


@pytest.mark.parametrize(("buckets", "max_distance"), [(2, 5), (4, 10), (8, 16), (32, 64), (50, 64), (256, 512)])
def test_deberta_buckets_are_right_at_every_border(buckets, max_distance):
    """Decided in whole numbers by the reference: a logarithm can put a distance on the wrong side of a border."""
    encoding = build("deberta", dims(causal=False), buckets=buckets, max_distance=max_distance)
    distances = range(-max_distance - 9, max_distance + 10)
    expected = [reference("deberta").bucket(distance, buckets, max_distance) + buckets for distance in distances]
    assert encoding.rows(torch.tensor(distances)).tolist() == expected
    far = encoding.rows(torch.tensor([-10_000_000, 10_000_000])).tolist()
    assert far == [1, 2 * buckets - 1]


def test_deberta_buckets_are_those_of_the_code_of_the_authors():
    encoding = build("deberta", buckets=8, max_distance=16)
    assert encoding.rows(torch.arange(21)).tolist() == reference("deberta").RELEASED_BUCKETS


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("p2c_distance", Distance)
def test_deberta_with_a_row_a_distance_equals_the_paper(p2c_distance, causal):
    """As many buckets as max_distance; distances to both ends of the table and beyond."""
    encoding = build("deberta", dims(causal=causal), buckets=5, max_distance=5, p2c_distance=p2c_distance)
    q, k, positions = (
        random(1, 3, 9, 4, seed=1),
        random(1, 3, 9, 4, seed=2),
        torch.tensor([[0, 1, 4, 5, 6, 7, 11, 12, 90]]),
    )
    with torch.no_grad():
        actual = scores(encoding, q, k, positions, positions)
    np.testing.assert_allclose(
        actual, paper_scores(encoding, "deberta", q, k, positions, positions), rtol=0, atol=1e-12
    )


def test_deberta_divides_by_the_number_of_its_terms():
    """The fault to catch: √(3 D) whatever is left out. Zero projections leave q·k."""
    q = random(1, 3, 2, 4)
    plain = (q @ q.transpose(-2, -1) / 2).tril()
    for c2p, p2c, terms in ((True, True, 3), (True, False, 2), (False, True, 2)):
        encoding = build("deberta", c2p=c2p, p2c=p2c)
        with torch.no_grad():
            encoding.table.zero_()
            if p2c:
                encoding.query_bias.zero_()
            actual = scores(encoding, q, q, counted(2), counted(2))
        torch.testing.assert_close(actual, plain / math.sqrt(terms), rtol=1e-12, atol=1e-12)


def test_deberta_has_rows_for_one_side_in_a_causal_model_unless_its_terms_take_opposite_distances():
    for causal, options, sides in (
        (True, {}, 1),
        (True, {"p2c_distance": Distance.key_minus_query}, 2),
        (True, {"p2c_distance": Distance.key_minus_query, "p2c": False}, 1),
        (False, {}, 2),
    ):
        assert len(build("deberta", dims(causal=causal), **options).table) == 32 * sides
    options = registry.scheme("deberta").options
    unread = options(p2c=False, p2c_distance=Distance.key_minus_query)
    assert unread.resolved(dims()) == options(p2c=False).resolved(dims())


# TUPE


def test_the_content_term_of_tupe_is_divided_too():
    """The fault to catch: q·k/√D beside a term of position that is divided by √(2 D)."""
    encoding, q = build("tupe", relative=False), random(1, 3, 6, 4)
    with torch.no_grad():
        with_content = scores(encoding, q, q, counted(6), counted(6))
        without = scores(encoding, 0 * q, 0 * q, counted(6), counted(6))
    torch.testing.assert_close(with_content - without, (q @ q.transpose(-2, -1) / math.sqrt(8)).tril())


def test_the_table_of_tupe_is_normalised():
    """A larger table is the same table: the layer norm takes its size away (up to its epsilon)."""
    encoding, q = build("tupe"), random(1, 3, 6, 4)
    with torch.no_grad():
        before = scores(encoding, q, q, counted(6), counted(6))
        encoding.table.mul_(100)
        torch.testing.assert_close(scores(encoding, q, q, counted(6), counted(6)), before, rtol=1e-4, atol=1e-4)


def test_the_table_of_tupe_ends():
    options = registry.scheme("tupe").options
    assert options().longest(dims()) == TRAIN_LENGTH == len(build("tupe").table)
    assert options(max_positions=40).longest(dims()) == 40
    with pytest.raises(ConfigError, match=r"pe\.max_positions=8 is shorter than train\.length=16"):
        build("tupe", max_positions=8)
    with pytest.raises(ConfigError, match=r"pe\.buckets=31 does not split evenly"):
        build("tupe", buckets=31)
    assert build("tupe", buckets=31, relative=False).by_bucket is None
    assert options(buckets=8, relative=False).resolved(dims()) == options(relative=False).resolved(dims())


# Learnable Fourier features


def test_frequencies_start_with_the_variance_and_not_the_deviation_of_one_over_gamma_squared():
    """The fault to catch, of the package learnable_fourier_positional_encoding: γ⁻² as the standard deviation.

    Then features at a distance d have the product exp(-d²/(2 γ²)) / 2: here to within five of its 20 000 ths' roots.
    """
    encoding = started(build("learned_fourier", frequencies=20_000))
    assert float(encoding.frequency.detach().std()) == pytest.approx(0.1, rel=0.03)
    for distance in (1, 5, 10, 20):
        kernel = float((distance * encoding.frequency.detach()).cos().mean() / 2)
        assert kernel == pytest.approx(math.exp(-(distance**2) / 200) / 2, abs=5 / math.sqrt(20_000) / 2)


def test_learned_fourier_codes_of_a_place_are_the_same_in_a_text_of_any_length():
    """The fault to catch: positions divided by the length of the text."""
    encoding = build("learned_fourier")
    short, long = encoding.codes(torch.arange(9)), encoding.codes(torch.arange(2000))
    torch.testing.assert_close(short, long[:9], rtol=1e-12, atol=1e-12)
    assert registry.scheme("learned_fourier").options().resolved(dims()).frequencies == 6
    assert len(build("learned_fourier", dims(heads=1, width=5)).frequency) == 3
