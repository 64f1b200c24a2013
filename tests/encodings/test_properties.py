"""What holds of every encoding whatever its formula, and known faults of position code: each a test of the whole kind."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from posbuild import registry
from posbuild.attention import Pattern, exact_attention
from posbuild.bias import OfContent
from posbuild.declaration import ActsOn
from posbuild.errors import ConfigError
from posbuild.model import Transformer
from posbuild.model.scores import hooked
from posbuild.settings import ModelSettings
from tests.encodings.building import (
    BLIND_TO_SIDES,
    ENDING,
    NOT_SHIFT_INVARIANT,
    OTHER_VALUE,
    SHIFT_INVARIANT,
    TRAIN_LENGTH,
    VALUES,
    accepted,
    build,
    case_id,
    cases,
    dims,
    directions,
    drawn,
    gathered,
    random,
    reaching,
    reference,
    scores,
    started,
    vectors,
    weights,
)

SCHEMES = sorted(registry.schemes())
RELATIVE = [name for name in SCHEMES if registry.scheme(name).shift_invariant]
OPTIONS = [(name, option) for name in SCHEMES for option in OTHER_VALUE[name]]


def shifts_change(name, options):
    """Whether scores depend on positions in another way than by distance."""
    if name not in RELATIVE:
        return not any(given.items() <= options.items() for given in SHIFT_INVARIANT[name])
    return any(given.items() <= options.items() for given in NOT_SHIFT_INVARIANT[name])


SHIFTED = [case for case in cases() if shifts_change(case[0], case[2])]
UNSHIFTED = [case for case in cases() if not shifts_change(case[0], case[2])]


def attention(encoding, x, positions, causal, layer=0):
    """One layer of attention with queries, keys and values all equal to the token vectors: (B, T, M) to (B, T, M)."""
    x = encoding.at_input(x, positions)
    heads = x.unflatten(-1, (encoding.dims.n_heads, -1)).transpose(1, 2)
    q, k, _, *rest = hooked(encoding, heads, heads, positions, positions, layer, x)
    gathered = exact_attention(q, k, heads, Pattern(positions, positions, causal=causal), *rest)
    return gathered.transpose(1, 2).flatten(-2)


def counted(length, start=0):
    return torch.arange(start, start + length)[None]


# Order


@pytest.mark.parametrize(("name", "causal", "options"), cases(), ids=case_id)
def test_identical_tokens_are_told_apart_by_all_but_none(name, causal, options):
    """The fault to catch: one row of the table at every position, or a bias that is forgotten."""
    encoding = build(name, dims(causal=causal), **options)
    x = random(1, 1, 12).expand(1, 16, 12)
    with torch.no_grad():
        x = encoding.at_input(x, counted(16))
        heads = x.unflatten(-1, (3, 4)).transpose(1, 2)
        rows = weights(encoding, heads, heads, counted(16), counted(16), x=x)[0, :, -1]  # it has each distance
    spread = (rows.amax(-1) - rows.amin(-1)).min()
    assert spread < 1e-12 if name == "none" else spread > 1e-9


@pytest.mark.parametrize("name", [name for name in SCHEMES if False in directions(name)])
def test_without_a_mask_reordered_tokens_give_reordered_outputs_only_for_orderless_schemes(name):
    encoding, order = build(name, dims(causal=False)), torch.tensor([3, 0, 4, 1, 2])
    x = random(1, 5, 12)
    with torch.no_grad():
        outputs = attention(encoding, x, counted(5), causal=False)
        reordered = attention(encoding, x[:, order], counted(5), causal=False)
    difference = (reordered - outputs[:, order]).abs().max()
    # Scores of a network drawn at random are so far apart that all weights are near 0 or 1.
    assert difference < 1e-12 if registry.scheme(name).orderless else difference > 1e-9


@pytest.mark.parametrize(("name", "causal", "options"), [case for case in cases() if not case[1]], ids=case_id)
def test_left_and_right_in_a_bidirectional_model(name, causal, options):
    """A text read backwards gives the outputs backwards exactly where a scheme cannot tell left from right.

    The textbook formula of `relative`, by |i - j|, cannot; its signed form can, and is what a bidirectional model gets.
    """
    encoding, x = build(name, dims(causal=False), **options), random(1, 16, 12)
    with torch.no_grad():
        outputs = attention(encoding, x, counted(16), causal=False)
        backwards = attention(encoding, x.flip(1), counted(16), causal=False)
    difference = (backwards - outputs.flip(1)).abs().max()
    blind = any(given.items() <= options.items() for given in BLIND_TO_SIDES[name])
    assert difference < 1e-12 if blind else difference > 1e-4


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


@pytest.mark.parametrize("name", SCHEMES)
def test_a_text_gives_the_same_alone_and_as_a_row_of_a_batch(name):
    """The fault to catch: codes added along the batch. Each row has positions of its own here."""
    encoding, x = build(name), random(5, 6, 12)
    positions = torch.stack([torch.arange(start, start + 6) for start in (0, 9, 4, 2, 7)])
    with torch.no_grad():
        batch = attention(encoding, x, positions, causal=True)
        alone = attention(encoding, x[3:4], positions[3:4], causal=True)
    torch.testing.assert_close(batch[3:4], alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", SCHEMES)
def test_one_row_of_positions_serves_a_batch(name):
    encoding, x = build(name), random(5, 6, 12)
    with torch.no_grad():
        shared = attention(encoding, x, counted(6), causal=True)
        written_out = attention(encoding, x, counted(6).expand(5, 6), causal=True)
    torch.testing.assert_close(shared, written_out, rtol=1e-12, atol=1e-12)


# Shifts and lengths


@pytest.mark.parametrize(("name", "causal", "options"), UNSHIFTED, ids=case_id)
def test_schemes_declared_shift_invariant_are(name, causal, options):
    encoding, q, k = build(name, dims(causal=causal), **options), random(1, 3, 9, 4, seed=1), random(1, 3, 9, 4, seed=2)
    with torch.no_grad():
        assert encoding.at_input(q, counted(9)) is q
        here = scores(encoding, q, k, counted(9), counted(9))
        for shift in (1, 3, 100_000):
            there = scores(encoding, q, k, counted(9, shift), counted(9, shift))
            torch.testing.assert_close(there, here, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("name", "causal", "options"), SHIFTED, ids=case_id)
def test_the_others_are_not(name, causal, options):
    """Further on by 3 tokens where the scheme ends at the train length, else by 3 train lengths, beyond which some change,
    and a token, since some count in groups of them."""
    encoding, x = build(name, dims(causal=causal, width=8, layers=3), **options), random(1, 9, 24)
    shift = 3 if encoding.options.longest(encoding.dims) else 3 * TRAIN_LENGTH + 1
    with torch.no_grad():
        here, there = (
            torch.stack([attention(encoding, x, counted(9, start), causal=True, layer=layer) for layer in range(3)])
            for start in (0, shift)
        )
    assert (there - here).abs().max() > 1e-5


@pytest.mark.parametrize("name", RELATIVE)
def test_shift_invariance_in_float32_does_not_wear_off(name):
    """At 100 000 tokens within 2e-6: tables formed in bf16 are off by 0.1 at 4096."""
    encoding, q = build(name, dims(width=8), dtype=torch.float32), random(1, 3, 9, 8, seed=1, dtype=torch.float32)
    with torch.no_grad():
        here, there = (scores(encoding, q, q, counted(9, start), counted(9, start)) for start in (0, 100_000))
    torch.testing.assert_close(there, here, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", SCHEMES)
def test_longer_inputs_leave_the_first_rows_as_they_were(name):
    """Lengths 1, L, L + 1, 2 L and 16 L; the fault to catch: a table shorter than the input, or rebuilt with other values.

    Schemes that are not prefix-stable: up to the train length, and not beyond.
    """
    encoding, x = build(name, **reaching(name, 16 * TRAIN_LENGTH)), random(1, 16 * TRAIN_LENGTH, 12)
    lengths = (1, TRAIN_LENGTH, TRAIN_LENGTH + 1, 2 * TRAIN_LENGTH, 16 * TRAIN_LENGTH)
    stable_to = lengths[-1] if registry.scheme(name).prefix_stable else TRAIN_LENGTH
    with torch.no_grad():
        read = {length: attention(encoding, x[:, :length], counted(length), causal=True) for length in lengths}
    for length in lengths:
        shorter, longer = (read[each] for each in sorted((length, stable_to)))
        longer = longer[:, : shorter.shape[1]]
        if length <= stable_to:
            torch.testing.assert_close(shorter, longer, rtol=1e-10, atol=1e-10)
        else:
            assert (longer - shorter).abs().max() > 1e-3, length


@pytest.mark.parametrize("name", SCHEMES)
def test_declared_length_limits(name):
    """Only a table ends, and says where."""
    scheme = registry.scheme(name)
    assert scheme.options().longest(dims()) == (TRAIN_LENGTH if name in ENDING else None)


@pytest.mark.parametrize("chunk", [1, 2, 5])
@pytest.mark.parametrize("name", SCHEMES)
def test_queries_in_chunks_see_the_same_scores(name, chunk):
    """The fault to catch: positions counted from the number of queries, so that a cached step has no bias or another's."""
    encoding, x = build(name), random(1, 12, 12)
    with torch.no_grad():
        x = encoding.at_input(x, counted(12))
        heads = x.unflatten(-1, (3, 4)).transpose(1, 2)
        whole = scores(encoding, heads, heads, counted(12), counted(12), x=x)
        for start in range(0, 12, chunk):
            stop = min(start + chunk, 12)
            q, k, positions = heads[:, :, start:stop], heads[:, :, :stop], counted(12)[:, :stop]
            part = scores(encoding, q, k, positions[:, start:], positions, x=x[:, :stop])
            torch.testing.assert_close(part, whole[:, :, start:stop, :stop], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "causal", "options"), cases(), ids=case_id)
def test_position_numbers_matter_unless_the_options_say_that_order_alone_does(name, causal, options):
    encoding, x = build(name, dims(causal=causal), **options), random(1, 9, 12)
    with torch.no_grad():
        plain, others = (
            attention(encoding, x, torch.tensor([row]), causal=causal)
            for row in (range(9), [0, 1, 3, 4, 6, 7, 10, 11, 15])
        )
    assert torch.equal(others, plain) != encoding.options.reads_positions()


@pytest.mark.parametrize("name", [name for name in SCHEMES if registry.scheme(name).options().takes_fractions()])
def test_fractions_are_positions_where_no_table_is_looked_up(name):
    """As positions=cape numbers tokens: whole numbers as floats are the same positions, and halves lie between."""
    encoding, x = build(name), random(1, 9, 12)
    with torch.no_grad():
        whole, floats, halves = (
            attention(encoding, x, positions, causal=True)
            for positions in (counted(9), counted(9).double(), counted(9).double() / 2)
        )
    torch.testing.assert_close(floats, whole, rtol=1e-12, atol=1e-12)
    assert halves.isfinite().all()


# Precision and state


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


@pytest.mark.parametrize(("name", "causal", "options"), cases(), ids=case_id)
def test_autocast_changes_nothing_that_comes_from_positions(name, causal, options):
    """The fault to catch: angles as a matrix product, which autocast turns to bf16."""
    encoding = build(name, dims(causal=causal), dtype=torch.float32, **options)
    with torch.no_grad():
        plain = fixed(encoding)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = fixed(encoding)
    for one, other in zip(plain, mixed, strict=True):
        assert other.dtype in (torch.float32, torch.float64) and torch.equal(one, other)


@pytest.mark.parametrize(("name", "causal", "options"), cases(), ids=case_id)
def test_a_cast_of_the_model_rounds_its_parameters_alone(name, causal, options):
    """The fault to catch: frequencies in a buffer, which `.to(bfloat16)` rounds.

    A model cast down and up again has rounded parameters; one built with those parameters must compute the same.
    """
    for dtype in (torch.bfloat16, torch.float16):
        cast = build(name, dims(causal=causal), dtype=torch.float32, **options).to(dtype)
        direct = build(name, dims(causal=causal), dtype=torch.float32, **options)
        assert list(cast.state_dict()) == [key for key, _ in direct.named_parameters()]
        direct.load_state_dict(cast.state_dict())
        with torch.no_grad():
            for one, other in zip(fixed(cast.to(torch.float32)), fixed(direct), strict=True):
                assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["rope", "alibi", "sinusoidal"])
def test_a_cast_changes_no_scheme_without_parameters(name):
    assert not list(build(name).parameters())
    for one, other in zip(fixed(build(name, dtype=torch.bfloat16)), fixed(build(name)), strict=True):
        assert other.dtype in (torch.float32, torch.float64) and torch.equal(one, other)


@pytest.mark.parametrize(("name", "causal", "options"), cases(), ids=case_id)
def test_built_on_the_meta_device_and_started_is_the_same_as_built_at_once(name, causal, options):
    """The fault to catch: a buffer filled in the constructor, left as garbage by `to_empty`."""
    size, chosen = dims(causal=causal), registry.scheme(name).options(**options)
    with torch.device("meta"):
        deferred = registry.encoding(name, chosen, size)
    deferred.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*deferred.parameters(), *deferred.buffers()):
            tensor.fill_(math.nan)
        direct = started(registry.encoding(name, chosen, size))
        for one, other in zip(fixed(started(deferred)), fixed(direct), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize(("name", "causal", "options"), cases(), ids=case_id)
def test_the_start_draws_from_the_given_generator_alone(name, causal, options):
    size, chosen = dims(causal=causal), registry.scheme(name).options(**options)
    torch.manual_seed(1)
    one = started(registry.encoding(name, chosen, size))
    state = torch.get_rng_state()
    other = started(registry.encoding(name, chosen, size))
    assert torch.equal(state, torch.get_rng_state())
    for (key, first), second in zip(one.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(first, second) and first.isfinite().all(), key


@pytest.mark.parametrize("name", sorted(name for name in SCHEMES if "combine" in VALUES[name]))
def test_a_joined_code_starts_as_the_same_function_as_an_added_one(name):
    add, concat = (started(build(name, combine=combine)) for combine in VALUES[name]["combine"])
    x = random(2, 5, 12)
    with torch.no_grad():
        torch.testing.assert_close(concat.at_input(x, counted(5)), add.at_input(x, counted(5)), rtol=1e-12, atol=1e-12)
    assert concat.projection.shape == (12, 24)


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_encodings_with_other_options_in_one_process_share_nothing(name, option):
    """The fault to catch: a cache of the module or class keyed on some of the options."""
    one = build(name)
    with torch.no_grad():
        before = fixed(one)
        fixed(build(name, **{option: OTHER_VALUE[name][option]}))
        for first, second in zip(before, fixed(one), strict=True):
            assert torch.equal(first, second)


# Single schemes


def pairs(x, layout):
    """First and second channels of each pair."""
    return x.chunk(2, -1) if layout.name == "half" else (x[..., 0::2], x[..., 1::2])


@pytest.mark.parametrize("layout", VALUES["sinusoidal"]["layout"])
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


@pytest.mark.parametrize(("name", "causal", "options"), [case for case in cases() if case[0] == "alibi"], ids=case_id)
def test_alibi_weights_grow_towards_the_query(name, causal, options):
    """Also with learned slopes, drawn at random here: they cannot change sign."""
    encoding, zero = build(name, dims(causal=causal), **options), torch.zeros(1, 3, 16, 1, dtype=torch.float64)
    with torch.no_grad():
        weights = scores(encoding, zero, zero, counted(16), counted(16))[0].softmax(-1)
        assert (weights[:, -1].diff(dim=-1) > 0).all()  # keys before the query
        if not causal:
            assert (weights[:, 0].diff(dim=-1) < 0).all()  # keys after it


@pytest.mark.parametrize("per_head", [True, False])
@pytest.mark.parametrize("form", VALUES["alibi"]["form"])
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


@pytest.mark.parametrize("layout", VALUES["rope"]["layout"])
@pytest.mark.parametrize(("width", "fraction", "angles"), [(16, 0.25, [1, 0.01]), (32, 0.25, [1, 0.1, 0.01, 0.001])])
def test_rope_turns_its_fraction_and_leaves_the_rest(width, fraction, angles, layout):
    """Exponents run over the rotary width: over the head width the second angle would be 0.3162."""
    encoding = build("rope", dims(heads=2, width=width), fraction=fraction, layout=layout)
    key, position, rotary = random(1, 2, 1, width), torch.tensor([[1]]), int(width * fraction)
    rotated = encoding.at_keys(key, position, 0, encoding.prepare(position))
    assert torch.equal(rotated[..., rotary:], key[..., rotary:])
    turned = torch.complex(*pairs(rotated[..., :rotary], layout)) / torch.complex(*pairs(key[..., :rotary], layout))
    np.testing.assert_allclose(turned.angle()[0, :, 0], [angles] * 2, rtol=1e-12)


@pytest.mark.parametrize(("width", "fraction"), [(16, 0.0625), (16, 0.1875), (8, 0.1), (6, 0.5), (7, 1.0), (1, 1.0)])
def test_rope_refuses_widths_that_are_odd_broken_or_empty(width, fraction):
    with pytest.raises(ConfigError, match=rf"pe\.fraction={fraction:g} of the head width {width} .*even"):
        build("rope", dims(width=width), fraction=fraction)


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


@pytest.mark.parametrize("name", SCHEMES)
def test_every_parameter_is_used(name):
    """No parameter without a gradient, with any option: distributed training refuses those."""
    for case, causal, options in cases():
        if case == name:
            encoding = build(name, dims(causal=causal), **options)
            x = random(1, 9, 12)
            heads = encoding.at_input(x, counted(9)).unflatten(-1, (3, 4)).transpose(1, 2)
            where = counted(9), counted(9)
            found = [scores(encoding, heads, heads, *where, layer).tril() for layer in (0, 1)]
            found += [gathered(encoding, heads, heads, heads, *where, layer) for layer in (0, 1)]
            total = sum((each * random(*each.shape, seed=7)).sum() for each in found)
            if list(encoding.parameters()):
                total.backward()
            assert all(value.grad is not None and value.grad.abs().max() > 0 for value in encoding.parameters()), (
                options
            )


def test_a_causal_alibi_is_refused_without_a_mask():
    causal = {"form": VALUES["alibi"]["form"][-1]}
    assert accepted("alibi", causal, dims(causal=True)) and not accepted("alibi", causal, dims(causal=False))
    assert accepted("alibi", {}, dims(causal=True)) and accepted("alibi", {}, dims(causal=False))
