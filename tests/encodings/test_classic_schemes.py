"""Facts of the classic schemes, worked out beforehand: sinusoidal, learned, relative, alibi, t5, rope."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from posbuild import registry
from posbuild.bias import OfContent
from posbuild.conformance.cases import TRAIN_LENGTH, build, cases, dims, drawn, of_text, started, values_of
from posbuild.conformance.layer import random, scores, vectors, weights
from posbuild.conformance.paper import reference
from posbuild.declaration import ActsOn
from posbuild.model import Transformer
from posbuild.settings import ModelSettings

SCHEMES = sorted(registry.schemes())


def counted(length, start=0):
    return torch.arange(start, start + length)[None]


@pytest.mark.parametrize("signed", [False, True])
def test_left_and_right_in_a_whole_bidirectional_model_with_relative(signed):
    """A text read backwards: logits backwards by |i - j|, others by the signed form."""
    size = dims(causal=False)
    encoding = build("relative", size, signed=signed)
    model = drawn(
        Transformer(
            ModelSettings(d_model=12, n_heads=3, n_layers=2, causal=False), encoding, size, vocab_size=7
        ).double()
    ).eval()
    tokens = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 0]])
    with torch.no_grad():
        logits, backwards = model(tokens), model(tokens.flip(1)).flip(1)
    difference = (backwards - logits).abs().max() / logits.abs().max()
    assert difference > 0.01 if signed else difference < 1e-12


def test_relative_is_signed_by_default_in_a_bidirectional_model_only():
    far = registry.scheme("relative").options().max_distance
    assert build("relative", dims(causal=False)).table.shape[-1] == 2 * far + 1
    assert build("relative", dims(causal=True)).table.shape[-1] == far + 1


def fixed(encoding):
    """All that an encoding computes from positions: codes, rotations and biases, at positions to 4095 where it has them."""
    length = encoding.options.longest(encoding.dims) or 4096
    positions = torch.tensor([[*range(0, length, 1 + length // 16), length - 1]])
    ones = torch.ones(1, encoding.dims.n_heads, positions.shape[1], encoding.dims.head_dim)
    shared, wide = encoding.prepare(positions), torch.float32
    found = [encoding.at_keys(ones, positions, 0, shared)]
    bias = encoding.at_scores(positions, positions, 0, shared)
    if isinstance(bias, OfContent):
        found.append(weights(encoding, ones, ones, positions, positions, x=vectors(encoding, ones)))
    elif bias is not None:
        found.append(bias.dense(positions, positions, wide))
    if hasattr(encoding, "codes"):
        found.append(encoding.codes(positions))
    return found


@pytest.mark.parametrize("name", ["rope", "alibi", "sinusoidal"])
def test_a_cast_changes_no_scheme_without_parameters(name):
    assert not list(build(name).parameters())
    for one, other in zip(fixed(build(name, dtype=torch.bfloat16)), fixed(build(name)), strict=True):
        assert other.dtype in (torch.float32, torch.float64) and torch.equal(one, other)


@pytest.mark.parametrize("name", sorted(name for name in SCHEMES if "combine" in values_of(name)))
def test_a_joined_code_starts_as_the_same_function_as_an_added_one(name):
    add, concat = (started(build(name, combine=combine)) for combine in values_of(name)["combine"])
    x = random(2, 5, 12)
    with torch.no_grad():
        torch.testing.assert_close(concat.at_input(x, counted(5)), add.at_input(x, counted(5)), rtol=1e-12, atol=1e-12)
    assert concat.projection.shape == (12, 24)


# Single schemes


def pairs(x, layout):
    """First and second channels of each pair."""
    return x.chunk(2, -1) if layout.name == "half" else (x[..., 0::2], x[..., 1::2])


@pytest.mark.parametrize("layout", values_of("sinusoidal")["layout"])
@pytest.mark.parametrize("width", [2, 8, 64])
def test_sine_and_cosine_of_a_pair_have_one_frequency(layout, width):
    """So sin² + cos² = 1, and the code of p + 3 is one fixed rotation of that of p, pair by pair."""
    codes = build("sinusoidal", dims(heads=1, width=width), scale=1.0, layout=layout).codes(torch.arange(2000))
    sine, cosine = pairs(codes, layout)
    torch.testing.assert_close(sine**2 + cosine**2, torch.ones_like(sine), rtol=0, atol=1e-12)
    turn = 3 * 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    turned = sine * turn.cos() + cosine * turn.sin(), cosine * turn.cos() - sine * turn.sin()
    torch.testing.assert_close(turned[0][:-3], sine[3:], rtol=0, atol=1e-10)
    torch.testing.assert_close(turned[1][:-3], cosine[3:], rtol=0, atol=1e-10)


@pytest.mark.parametrize("heads", sorted(reference("alibi").EXPONENTS))
def test_alibi_slopes(heads):
    """The faults to catch: 2^(-8h/6) for six heads, an exponent off by one, the sign turned."""
    zero = torch.zeros(1, heads, 2, 1, dtype=torch.float64)
    bias = scores(build("alibi", dims(heads=heads, width=1)), zero, zero, counted(2), counted(2))
    np.testing.assert_allclose((-bias[0, :, 1, 0]).log2(), reference("alibi").EXPONENTS[heads], rtol=0, atol=1e-12)


def test_alibi_one_slope_for_all_is_the_geometric_mean():
    """Four heads: exponents -2, -4, -6, -8, mean -5."""
    zero = torch.zeros(1, 4, 2, 1, dtype=torch.float64)
    bias = scores(build("alibi", dims(heads=4, width=1), per_head=False), zero, zero, counted(2), counted(2))
    np.testing.assert_allclose((-bias[0, :, 1, 0]).log2(), [-5] * 4, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", [case for case in of_text(cases()) if case[0] == "alibi"], ids=str)
def test_alibi_weights_grow_towards_the_query(case):
    """Also with learned slopes, drawn at random here: they cannot change sign."""
    name, causal, options = case
    encoding, zero = build(name, dims(causal=causal), **options), torch.zeros(1, 3, 16, 1, dtype=torch.float64)
    with torch.no_grad():
        weights = scores(encoding, zero, zero, counted(16), counted(16))[0].softmax(-1)
        assert (weights[:, -1].diff(dim=-1) > 0).all()  # keys before the query
        if not causal:
            assert (weights[:, 0].diff(dim=-1) < 0).all()  # keys after it


@pytest.mark.parametrize("per_head", [True, False])
@pytest.mark.parametrize("form", values_of("alibi")["form"])
def test_alibi_learned_slopes_start_at_the_fixed_ones(form, per_head):
    size = dims(heads=4, causal=form is None or form.name == "causal")
    zero = torch.zeros(1, 4, 9, 4, dtype=torch.float64)
    fixed_slopes = build("alibi", size, form=form, per_head=per_head)
    learned = started(build("alibi", size, form=form, per_head=per_head, learn_slopes=True))
    expected = scores(fixed_slopes, zero, zero, counted(9), counted(9))
    torch.testing.assert_close(scores(learned, zero, zero, counted(9), counted(9)), expected, rtol=1e-12, atol=1e-12)


def test_t5_buckets_of_the_paper():
    """32 buckets, max_distance 128, causal, read from the scores by a table that holds the bucket's number."""
    encoding = build("t5", dims(heads=1, width=1), max_distance=128)
    with torch.no_grad():
        encoding.table.copy_(torch.arange(32)[:, None])

        def bucket(distance):
            zero = torch.zeros(1, 1, 1, 1, dtype=torch.float64)
            return int(scores(encoding, zero, zero, torch.tensor([[distance]]), torch.tensor([[0]])))

        of = [bucket(distance) for distance in range(301)]
        assert of[:16] == list(range(16))
        assert [of.index(row) for row in range(16, 32)] == [
            16,
            19,
            21,
            24,
            27,
            31,
            35,
            40,
            46,
            52,
            59,
            67,
            77,
            87,
            99,
            113,
        ]
        assert of == sorted(of) and of[-1] == bucket(10_000_000) == 31


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(4, 3), (8, 20), (32, 64), (32, 128), (64, 1000)])
def test_t5_buckets_are_right_at_every_border(buckets, max_distance, causal):
    """Decided in whole numbers by the reference: a logarithm can put a distance on the wrong side of a border."""
    encoding, distances = (
        build("t5", dims(causal=causal), buckets=buckets, max_distance=max_distance),
        range(-1100, 1100),
    )
    expected = [reference("t5").bucket(distance, buckets, max_distance, causal) for distance in distances]
    assert encoding.bucket(torch.tensor(distances)).tolist() == expected


@pytest.mark.parametrize("layout", values_of("rope")["layout"])
@pytest.mark.parametrize(("width", "fraction", "angles"), [(16, 0.25, [1, 0.01]), (32, 0.25, [1, 0.1, 0.01, 0.001])])
def test_rope_turns_its_fraction_and_leaves_the_rest(width, fraction, angles, layout):
    """Exponents run over the rotary width: over the head width the second angle would be 0.3162."""
    encoding = build("rope", dims(heads=2, width=width), fraction=fraction, layout=layout)
    key, position, rotary = random(1, 2, 1, width), torch.tensor([[1]]), int(width * fraction)
    rotated = encoding.at_keys(key, position, 0, encoding.prepare(position))
    assert torch.equal(rotated[..., rotary:], key[..., rotary:])
    turned = torch.complex(*pairs(rotated[..., :rotary], layout)) / torch.complex(*pairs(key[..., :rotary], layout))
    np.testing.assert_allclose(turned.angle()[0, :, 0], [angles] * 2, rtol=1e-12)


def test_rope_turns_by_position_and_not_by_head():
    encoding, positions = build("rope", dims(heads=2, width=8)), torch.tensor([[3, 9]])
    rotated = encoding.at_keys(random(1, 1, 1, 8).expand(1, 2, 2, 8), positions, 0, encoding.prepare(positions))
    assert torch.equal(rotated[:, 0], rotated[:, 1])
    assert (rotated[:, :, 0] - rotated[:, :, 1]).abs().max() > 0.1


def test_a_scheme_acts_where_it_says():
    """Through its hooks: at the input, at queries and keys, at the scores."""
    for name in SCHEMES:
        encoding, x, q, positions = build(name), random(1, 4, 12), random(1, 3, 4, 4), counted(4)
        shared = encoding.prepare(positions)
        with torch.no_grad():
            acts = {
                ActsOn.input: encoding.at_input(x, positions) is not x,
                ActsOn.queries_and_keys: encoding.at_queries(q, positions, 0, shared) is not q,
                ActsOn.scores: encoding.at_scores(positions, positions, 0, shared) is not None,
            }
        declared = registry.scheme(name).acts_on
        if declared in (ActsOn.attention, ActsOn.values):  # through the scores, and perhaps elsewhere too
            assert acts[ActsOn.scores]
            continue
        assert [place for place, is_true in acts.items() if is_true] == [place for place in acts if place is declared]


def test_sinusoidal_codes_of_an_odd_width():
    rows = build("sinusoidal", dims(heads=1, width=5), scale=1.0).codes(torch.arange(3))
    expected = [
        [0, 1, 0, 1, 0],
        [0.84147, 0.54030, 0.025116, 0.999685, 0.00063096],
        [0.90930, -0.41615, 0.050217, 0.998738, 0.0012619],
    ]
    np.testing.assert_allclose(rows, expected, rtol=0, atol=6e-6)


def test_a_learned_table_in_float32_is_exact_at_its_last_row():
    encoding = build("learned", dtype=torch.float32, max_positions=131072)
    rows = encoding.codes(torch.tensor([0, 65505, 131071]))
    assert torch.equal(rows, encoding.table[[0, 65505, 131071]])


@pytest.mark.parametrize("layout", values_of("rope")["layout"])
def test_rope_in_bf16_is_one_rounding_away_from_the_paper(layout):
    """bf16 keys and a bf16 model at every position to 4095: only the result is rounded, by up to 2⁻⁸ of it."""
    encoding = build("rope", dims(heads=1, width=64), dtype=torch.bfloat16, layout=layout)
    positions, key = torch.arange(4096)[None], random(64, dtype=torch.bfloat16)
    rotated = encoding.at_keys(key.expand(1, 1, 4096, 64), positions, 0, encoding.prepare(positions))
    assert rotated.dtype == torch.bfloat16
    paper = reference("rope")
    for position in [*range(0, 4096, 97), 255, 256, 257, 1000, 4095]:
        expected = paper.rotate(key.double().numpy(), position, layout=layout.name)
        np.testing.assert_allclose(rotated[0, 0, position].double(), expected, rtol=2.0**-8, atol=1e-6)


def test_positions_of_the_train_length_are_all_in_a_learned_table():
    encoding = build("learned")
    assert encoding.table.shape[0] == TRAIN_LENGTH == encoding.options.longest(encoding.dims)
    with pytest.raises(IndexError):
        encoding.codes(torch.tensor([TRAIN_LENGTH]))
