"""Schemes for positions of several axes: all that the tests of text ask of a scheme, with coordinates in place of counts."""

from __future__ import annotations

import ast
import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import posbuild
from posbuild import cli, registry, show
from posbuild.declaration import ActsOn, Dims
from posbuild.errors import ConfigError
from posbuild.model import Transformer, init_parameters, scores_of
from posbuild.settings import ModelSettings, options_of, plain
from tests.encodings import building
from tests.encodings.building import (
    arguments,
    as_field,
    build,
    case_id,
    choices_of,
    drawn,
    generator,
    option_names,
    random,
    reference,
    started,
)
from tests.reference.test_reference_is_independent import ALLOWED, FOLDER, imported

SCHEMES = [name for name, scheme in registry.all_schemes().items() if 1 not in scheme.axes]
TRAIN_LENGTH = 16
# The values of each option, the default first, from the references.
VALUES = {
    name: {
        option: [as_field(choices_of(name, option), value) for value in values]
        for option, values in reference(name).VALUES.items()
    }
    for name in SCHEMES
}
OTHER = {
    name: {option: next(value for value in values if value != values[0]) for option, values in table.items()}
    for name, table in VALUES.items()
}


def dims(heads=2, width=24, causal=True, layers=2, kv_heads=None):
    """Heads so wide that two and three axes share them out, whole and by half."""
    return Dims(
        d_model=heads * width,
        n_layers=layers,
        n_heads=heads,
        n_kv_heads=kv_heads or heads,
        train_length=TRAIN_LENGTH,
        causal=causal,
    )


def axes(name, options):
    return registry.scheme(name).options(**options).number_of_axes()


def combinations(name):
    """Each option by itself, and all choices with all others, once with the default numbers and once with none of them."""
    found = [{}, *({option: value} for option, values in VALUES[name].items() for value in values[1:])]
    for place in (0, -1):
        columns = [values if building.is_choice(values) else [values[place]] for values in VALUES[name].values()]
        found += [dict(zip(VALUES[name], row, strict=True)) for row in itertools.product(*columns)]
    distinct = [options for n, options in enumerate(found) if options not in found[:n]]
    return [options for options in distinct if accepted(name, options, dims())]


def accepted(name, options, size):
    try:
        registry.scheme(name).options(**options).check(size)
    except ConfigError:
        return False
    return True


CASES = [(name, options) for name in SCHEMES for options in combinations(name)]
every_case = pytest.mark.parametrize(("name", "options"), CASES, ids=case_id)
every_scheme = pytest.mark.parametrize("name", SCHEMES)
UNBOUNDED = [name for name in SCHEMES if registry.scheme(name).options().sizes(dims()) is None]


def block(count, side=3, first=0):
    """Positions of a square or cube, row by row, (1, T, axes)."""
    return torch.cartesian_prod(*[torch.arange(first, first + side)] * count)[None]


def positions_of(rows, count):
    """Positions (1, T, axes) from coordinates (first, second): a third is their sum, at most 6."""
    return torch.tensor([[[*row, min(sum(row), 6)][:count] for row in rows]])


def expected_scores(encoding, name, q, k, q_positions, k_positions, layer=0):
    """The scores by the slow formula of the scheme, or q·k/√D."""
    q, k = q.detach().double().numpy(), k.detach().double().numpy()
    if not hasattr(reference(name), "scores"):
        return q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    rows = [each.expand(len(q), -1, -1).tolist() for each in (q_positions, k_positions)]
    return reference(name).scores(q, k, *rows, **arguments(encoding, name, layer))


def expected_inputs(encoding, name, x, positions):
    """The token vectors by the slow formula."""
    x = x.detach().double().numpy()
    if not hasattr(reference(name), "inputs"):
        return x
    return reference(name).inputs(x, positions.expand(len(x), -1, -1).tolist(), **arguments(encoding, name))


def assert_equals_reference(encoding, name, q, k, x, q_positions, k_positions, layer=0, rtol=1e-11, atol=1e-11):
    with torch.no_grad():
        actual = scores_of(encoding, q, k, q_positions, k_positions, layer), encoding.at_input(x, q_positions)
    assert actual[0].dtype == q.dtype and actual[1].dtype == x.dtype
    expected = (
        expected_scores(encoding, name, q, k, q_positions, k_positions, layer),
        expected_inputs(encoding, name, x, q_positions),
    )
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def attended(encoding, x, positions, causal, layer=0):
    """One layer of attention with queries, keys and values all equal to the token vectors, (B, T, M)."""
    x = encoding.at_input(x, positions)
    heads = x.unflatten(-1, (encoding.dims.n_heads, -1)).transpose(1, 2)
    scores = scores_of(encoding, heads, heads, positions, positions, layer)
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:]).tril().bool(), -math.inf)
    return (scores.softmax(-1) @ heads).transpose(1, 2).flatten(-2)


# What is covered


def test_every_scheme_is_tested_as_one_for_text_or_as_one_for_several_axes():
    """The two harnesses share the registry out by the axes that schemes declare."""
    assert {*building.VALUES} | {*SCHEMES} == {*registry.all_schemes()}
    assert {*building.VALUES} == {*registry.schemes()} and not {*building.VALUES} & {*SCHEMES}
    assert {name.partition("/")[0] for name in SCHEMES} == {"grid"}


@every_scheme
def test_a_scheme_has_the_axes_that_it_declares(name):
    assert {axes(name, options) for options in combinations(name)} == {*registry.scheme(name).axes}


@every_scheme
def test_every_option_has_values_here(name):
    defaults = registry.scheme(name).options()
    assert {*VALUES[name]} == option_names(name)
    for option, values in VALUES[name].items():
        assert values[0] == getattr(defaults, option) and len(values) > 1, option
        known = choices_of(name, option) or ([False, True] if isinstance(values[0], bool) else [])
        assert {*known} <= {*values} if known else True, option


def test_every_reference_is_of_a_scheme_and_borrows_nothing():
    files = sorted(path for path in (FOLDER / "grid").glob("*.py") if path.stem != "__init__")
    assert [f"grid/{path.stem}" for path in files] == SCHEMES
    for path in files:
        assert {*imported(path)} <= ALLOWED
        assert "arXiv:" in ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


# Equal to the formula

GEOMETRIES = {
    "one token at the corner": ([(0, 0)], [(0, 0)]),
    "one token, not at the corner": ([(6, 3)], [(6, 3)]),
    "a square": ([(0, 0), (0, 1), (1, 0), (1, 1)], [(0, 0), (0, 1), (1, 0), (1, 1)]),
    "a column and a row": ([(0, 2), (1, 2), (6, 2)], [(3, 0), (3, 1), (3, 6)]),
    "the last keys": ([(1, 0), (1, 1)], [(0, 0), (0, 1), (1, 0), (1, 1)]),
    "unsorted and repeated": ([(6, 0), (0, 6), (2, 2), (2, 2)], [(5, 5), (0, 0), (6, 0), (5, 5)]),
}


@every_case
@pytest.mark.parametrize("causal", [True, False])
def test_every_combination_of_options_equals_the_reference(name, options, causal):
    encoding, count = build(name, dims(causal=causal), **options), axes(name, options)
    q_rows, k_rows = [(6, 0), (0, 6), (2, 2), (2, 2), (1, 3)], [(5, 5), (0, 0), (6, 0)]
    q_positions = torch.cat([positions_of(q_rows, count), positions_of(q_rows[::-1], count)])
    k_positions = torch.cat([positions_of(k_rows, count), positions_of(k_rows[::-1], count)])
    q, k, x = random(2, 2, 5, 24, seed=1), random(2, 2, 3, 24, seed=2), random(2, 5, 48, seed=3)
    for layer in (0, 1):
        assert_equals_reference(encoding, name, q, k, x, q_positions, k_positions, layer)


@every_scheme
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_every_geometry_equals_the_reference(name, heads, geometry):
    q_positions, k_positions = (positions_of(rows, axes(name, {})) for rows in GEOMETRIES[geometry])
    queries, keys = q_positions.shape[1], k_positions.shape[1]
    q, k, x = random(1, heads, queries, 8, seed=1), random(1, heads, keys, 8, seed=2), random(1, queries, 8 * heads)
    encoding = build(name, dims(heads=heads, width=8))
    assert_equals_reference(encoding, name, q, k, x, q_positions, k_positions)


@pytest.mark.parametrize("name", [name for name in SCHEMES if registry.scheme(name).acts_on is ActsOn.queries_and_keys])
def test_query_heads_of_one_key_head_turn_as_it_does(name):
    """Four query heads in two groups: as if each key head were written out twice."""
    grouped, positions = build(name, dims(heads=4, width=8, kv_heads=2)), block(axes(name, {}), 2)
    written_out = build(name, dims(heads=4, width=8))
    with torch.no_grad():
        for own, one in zip(written_out.parameters(), grouped.parameters(), strict=True):
            own.copy_(one.repeat_interleave(2, dim=2))
    q, k = random(1, 4, positions.shape[1], 8, seed=1), random(1, 2, positions.shape[1], 8, seed=2)
    actual = scores_of(grouped, q, k, positions, positions, layer=1)
    expected = scores_of(written_out, q, k.repeat_interleave(2, dim=1), positions, positions, layer=1)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


def typed_options(name, options):
    return {key: as_field(choices_of(name, key), value) for key, value in options.items()}


def rows_of(name, prefix):
    return [value for key, value in vars(reference(name)).items() if key.startswith(prefix)]


@pytest.mark.parametrize("kind", ["GOLDEN", "RELEASED"])
@every_scheme
def test_rows_worked_out_by_hand_and_rows_of_released_code(name, kind):
    """By the encoding and by the slow formula: to 1e-12 by hand, to what float32 leaves of released code."""
    rows = rows_of(name, kind)
    assert rows
    for row in rows:
        tolerance, heads = (1e-12, 1) if kind == "GOLDEN" else (row["rtol"], len(row["q"][0]) if "q" in row else 1)
        width = len(row["q"][0][0][0]) if "q" in row else row["dim"]
        encoding = build(name, dims(heads=heads, width=width, layers=1), **typed_options(name, row["options"]))
        with torch.no_grad():
            for key, value in row.get("parameters", {}).items():
                encoding.get_parameter(key).copy_(torch.tensor(value, dtype=torch.float64))
            if "codes" in row:
                codes = encoding.codes(torch.tensor(row["positions"]))
                given = arguments(encoding, name)
                given.pop("projection")
                found = codes, reference(name).codes(row["positions"], row["dim"], **given)
            else:
                q, k = (torch.tensor(row[key], dtype=torch.float64) for key in ("q", "k"))
                where = [torch.tensor(row[key]) for key in ("q_positions", "k_positions")]
                found = scores_of(encoding, q, k, *where), expected_scores(encoding, name, q, k, *where)
        for each in found:
            expected = row["codes" if "codes" in row else "scores"]
            np.testing.assert_allclose(each, expected, rtol=tolerance, atol=tolerance, err_msg=row.get("source", ""))


def outcome(name, options):
    """Shapes of the parameters, and what an encoding does with them drawn at random and as training finds them."""
    encoding, found = build(name, dims(), **options), []
    positions = positions_of([(0, 0), (0, 1), (3, 1), (6, 5)], axes(name, options))
    x, q = random(1, 4, 48, seed=3), random(1, 2, 4, 24, seed=1)
    with torch.no_grad():
        for set_parameters in (drawn, started):
            set_parameters(encoding)
            found.append(encoding.at_input(x, positions))
            found += [scores_of(encoding, q, q, positions, positions, layer) for layer in (0, 1)]
    return [value.shape for value in encoding.parameters()], found


@pytest.mark.parametrize(("name", "option"), [(name, option) for name in SCHEMES for option in OTHER[name]])
def test_every_option_changes_the_outcome(name, option):
    shapes, found = outcome(name, {})
    other_shapes, other_found = outcome(name, {option: OTHER[name][option]})
    same = all(torch.allclose(one, other, atol=1e-6) for one, other in zip(found, other_found, strict=True))
    assert shapes != other_shapes or not same


@every_case
def test_gradients_are_those_of_the_reference(name, options):
    """Autograd against central differences of the slow formula along random directions: queries, keys, inputs, parameters."""
    encoding = build(name, dims(heads=1, layers=1), **options)
    positions = positions_of([(1, 0), (3, 5)], axes(name, options))
    q, k, x = (random(*shape, seed=n).requires_grad_() for n, shape in enumerate([(1, 1, 2, 24)] * 2 + [(1, 2, 24)]))
    found = [scores_of(encoding, q, k, positions, positions), encoding.at_input(x, positions)]
    weight = random(sum(part.numel() for part in found), seed=5)
    (weight * torch.cat([part.flatten() for part in found])).sum().backward()
    assert all(parameter.grad is not None for parameter in encoding.parameters())

    def paper():
        parts = [
            expected_scores(encoding, name, q, k, positions, positions),
            expected_inputs(encoding, name, x, positions),
        ]
        return float(weight.numpy() @ np.concatenate([part.ravel() for part in parts]))

    for tensor in (q, k, x, *encoding.parameters()):
        for seed in range(3):
            direction, step, ends = random(*tensor.shape, seed=10 + seed), 1e-5, []
            for sign in (1, -1):
                with torch.no_grad():
                    tensor.add_(sign * step * direction)
                    ends.append(paper())
                    tensor.sub_(sign * step * direction)
            slope = 0.0 if tensor.grad is None else float((tensor.grad * direction).sum())
            np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-6, atol=1e-7)


# Shifts


@every_case
def test_scores_stay_when_all_positions_are_shifted_along_an_axis_if_declared(name, options):
    encoding, count = build(name, dims(), **options), axes(name, options)
    q, k = random(1, 2, 2**count, 24, seed=1), random(1, 2, 2**count, 24, seed=2)
    sizes = encoding.options.sizes(encoding.dims)
    x, changed = random(1, 2**count, 48, seed=3), []
    for axis in range(count):
        for shift in (1, 3) if sizes else (1, 3, 100_000):
            here, there = block(count, 2), block(count, 2) + shift * F.one_hot(torch.tensor(axis), count)
            with torch.no_grad():
                change = scores_of(encoding, q, k, there, there) - scores_of(encoding, q, k, here, here)
                change_of_input = encoding.at_input(x, there) - encoding.at_input(x, here)
            changed.append(float(max(change.abs().max(), change_of_input.abs().max())))
    if registry.scheme(name).shift_invariant:
        assert max(changed) < 1e-9
    else:
        assert min(changed) > 1e-3


def test_liere_knows_offsets_alone_where_its_matrices_commute():
    """With blocks of two channels they are rotations of a plane, as in RoPE-Mixed; with wider ones they are not."""
    q = random(1, 2, 4, 24)
    for channels, bound in ((2, (0, 1e-12)), (3, (1e-2, 100))):
        encoding = build("grid/liere", dims(), generator_dim=channels)
        with torch.no_grad():
            here, there = (scores_of(encoding, q, q, at, at) for at in (block(2, 2), block(2, 2, first=5)))
        assert bound[0] <= (there - here).abs().max() <= bound[1]


def test_liere_in_blocks_of_two_is_rope_mixed_of_the_same_frequencies():
    """exp([[0, u], [-u, 0]]) turns the other way, by which no score changes sign: u and -u are frequencies f and -f."""
    liere = build("grid/liere", dims(), generator_dim=2, span=2)
    mixed = build("grid/rope_mixed", dims())
    with torch.no_grad():
        mixed.freqs.copy_(-liere.generators[..., 0])
    q, k, positions = random(1, 2, 9, 24, seed=1), random(1, 2, 9, 24, seed=2), block(2)
    for layer in (0, 1):
        one, other = (scores_of(encoding, q, k, positions, positions, layer) for encoding in (liere, mixed))
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


# Order


@every_scheme
@pytest.mark.parametrize("causal", [True, False])
def test_equal_tokens_are_told_apart_by_each_axis(name, causal):
    """The fault to catch: an axis that is forgotten, or two that are swapped or added up."""
    encoding, count = build(name, dims(causal=causal)), axes(name, {})
    q = random(1, 2, 1, 24)
    x = random(1, 1, 48)
    for first, second in itertools.combinations(range(count), 2):
        places = torch.zeros(4, count, dtype=torch.int64)
        places[1, first], places[2, second], places[3, first], places[3, second] = 1, 1, 1, 1
        places = places[None] + 2
        with torch.no_grad():
            keys = q.expand(1, 2, 4, 24)
            scores = scores_of(encoding, keys[:, :, :1], keys, places[:, :1], places)[0, :, 0]
            codes = encoding.at_input(x.expand(1, 4, 48), places)[0]
        told = [
            (scores[:, i] - scores[:, j]).abs().max() + (codes[i] - codes[j]).abs().max()
            for i, j in itertools.combinations(range(4), 2)
        ]
        assert min(told) > 1e-10


@every_scheme
def test_tokens_in_another_order_with_their_positions_give_the_same(name):
    """Without a mask position alone says where a token is."""
    encoding, order = build(name, dims(causal=False)), torch.randperm(8, generator=generator(1))
    positions = block(axes(name, {}))[:, :8]
    x = random(1, 8, 48)
    with torch.no_grad():
        outputs = attended(encoding, x, positions, causal=False)
        reordered = attended(encoding, x[:, order], positions[:, order], causal=False)
        elsewhere = attended(encoding, x[:, order], positions, causal=False)
    torch.testing.assert_close(reordered, outputs[:, order], rtol=1e-12, atol=1e-12)
    assert (elsewhere - outputs[:, order]).abs().max() > 1e-3


@every_scheme
def test_a_picture_turned_over_gives_other_outputs_than_the_outputs_turned_over(name):
    """Left and right, and up and down, are not the same."""
    encoding, count = build(name, dims(causal=False)), axes(name, {})
    positions, x = block(count), random(1, 3**count, 48)
    for axis in range(count):
        turned = positions.clone()
        turned[..., axis] = 2 - turned[..., axis]
        with torch.no_grad():
            here, there = (attended(encoding, x, at, causal=False) for at in (positions, turned))
        assert (there - here).abs().max() > 1e-6  # width turns slowly in M-RoPE


@every_scheme
def test_rows_of_a_batch_have_positions_of_their_own(name):
    encoding, count = build(name, dims()), axes(name, {})
    x = random(3, 2**count, encoding.dims.d_model)
    positions = torch.cat([block(count, 2, first) for first in (0, 3, 1)])
    with torch.no_grad():
        batch = attended(encoding, x, positions, causal=True)
        alone = attended(encoding, x[1:2], positions[1:2], causal=True)
        shared = attended(encoding, x, positions[:1], causal=True)
        written_out = attended(encoding, x, positions[:1].expand(3, -1, -1), causal=True)
    torch.testing.assert_close(batch[1:2], alone, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(shared, written_out, rtol=1e-12, atol=1e-12)


# Precision and state

FAR = [(0, 0), (1, 255), (257, 256), (4096, 1), (32769, 65505), (131071, 131070), (131071, 131071)]


def far(count):
    return torch.tensor([[[*row, row[1]][:count] for row in FAR]])


@pytest.mark.parametrize("name", UNBOUNDED)
def test_float32_stays_close_to_position_131071(name):
    """Bound: 2e-6 + 3e-7 of the value. Angles formed in float32 would be off by 1e-2 there."""
    shapes = enumerate([(1, 2, len(FAR), 24)] * 2 + [(1, len(FAR), 48)])
    q, k, x = (random(*shape, seed=seed, dtype=torch.float32) for seed, shape in shapes)
    encoding, positions = build(name, dims(), dtype=torch.float32), far(axes(name, {}))
    assert_equals_reference(encoding, name, q, k, x, positions, positions, rtol=3e-7, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every_scheme
def test_a_model_in_half_precision_is_wrong_by_no_more_than_its_parameters(name, dtype):
    """Positions to 131071, or as far as the scheme goes, and inputs of float32: what is fixed has not been cast."""
    encoding = build(name, dims(), dtype=dtype)
    positions = far(axes(name, {})) if name in UNBOUNDED else positions_of([(0, 6), (6, 0), (3, 5)], axes(name, {}))
    shape = positions.shape[1]
    q, k = (random(1, 2, shape, 24, seed=seed, dtype=torch.float32) for seed in (1, 2))
    x = random(1, shape, 48, dtype=torch.float32)
    assert_equals_reference(encoding, name, q, k, x, positions, positions, rtol=3e-7, atol=3e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every_case
def test_queries_keys_and_codes_in_half_precision_are_one_rounding_away(name, options, dtype):
    """By 2⁻⁸ (2⁻¹¹) of the value, or of the largest channel that is turned into it, with and without autocast."""
    exact, encoding = (build(name, dims(), dtype=kind, **options) for kind in (torch.float64, dtype))
    exact.load_state_dict(encoding.state_dict())
    positions = positions_of([(0, 6), (6, 0), (3, 5), (2, 2)], axes(name, options))
    k, x = (random(*shape, dtype=torch.float32).to(dtype) for shape in ((1, 2, 4, 24), (1, 4, 48)))
    share = 2.0**-8 if dtype is torch.bfloat16 else 2.0**-11
    projects = "combine" in options and options["combine"].name == "concat"
    for autocast in (False, True):
        with torch.no_grad(), torch.autocast("cpu", dtype, enabled=autocast):
            keys = encoding.at_keys(k, positions, 0, encoding.prepare(positions))
            inputs = encoding.at_input(x, positions)
        with torch.no_grad():
            wide_keys = exact.at_keys(k.double(), positions, 0, exact.prepare(positions))
            wide_inputs = exact.at_input(x.double(), positions)
        assert keys.dtype == inputs.dtype == dtype
        assert (keys.double() - wide_keys).abs().max() <= share * wide_keys.abs().max()
        if not projects:  # else a matrix product of half precision follows
            largest = wide_inputs.abs().max() + x.abs().max()
            assert (inputs.double() - wide_inputs).abs().max() <= 2 * share * largest


@every_case
def test_autocast_changes_nothing_that_comes_from_positions(name, options):
    encoding, count = build(name, dims(), dtype=torch.float32, **options), axes(name, options)
    positions, ones = positions_of([(0, 6), (6, 0), (3, 5)], count), torch.ones(1, 2, 3, 24)

    def fixed():
        shared = encoding.prepare(positions)
        found = [encoding.at_queries(ones, positions, 1, shared), encoding.at_keys(ones, positions, 1, shared)]
        bias = encoding.at_scores(positions, positions, 1, shared)
        if bias is not None:
            found.append(bias.dense(positions, positions, torch.float32))
        if hasattr(encoding, "codes"):
            found.append(encoding.codes(positions))
        return found

    with torch.no_grad():
        plain_run = fixed()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = fixed()
    for one, other in zip(plain_run, mixed, strict=True):
        assert other.dtype in (torch.float32, torch.float64) and torch.equal(one, other)


@every_case
def test_built_on_the_meta_device_and_started_is_the_same_as_built_at_once(name, options):
    size, chosen = dims(), registry.scheme(name).options(**options)
    with torch.device("meta"):
        deferred = registry.encoding(name, chosen, size)
    assert not [*deferred.buffers()]
    deferred.to_empty(device="cpu")
    torch.manual_seed(1)
    state = torch.get_rng_state()
    direct, deferred = started(registry.encoding(name, chosen, size)), started(deferred)
    assert torch.equal(state, torch.get_rng_state())  # of the given generator alone
    for (key, one), other in zip(direct.named_parameters(), deferred.parameters(), strict=True):
        assert torch.equal(one, other) and one.isfinite().all(), key
    positions = positions_of([(0, 6), (6, 0), (3, 5)], axes(name, options))
    q, x = random(1, 2, 3, 24, dtype=torch.float32), random(1, 3, 48, dtype=torch.float32)
    with torch.no_grad():
        for call in (lambda e: scores_of(e, q, q, positions, positions, 1), lambda e: e.at_input(x, positions)):
            assert torch.equal(call(direct), call(deferred))


@every_case
def test_whether_it_learns_is_declared(name, options):
    encoding = build(name, dims(), **options)
    assert bool([*encoding.parameters()]) == encoding.options.has_parameters()


@every_case
def test_resolved_options_give_the_same_encoding(name, options):
    size, chosen = dims(), registry.scheme(name).options(**options)
    resolved = options_of(name, plain(chosen.resolved(size)))
    assert resolved.resolved(size) == resolved and None not in plain(resolved).values()
    one, other = (drawn(registry.encoding(name, each, size)).double() for each in (chosen, resolved))
    positions, q = positions_of([(0, 6), (6, 0), (3, 5)], axes(name, options)), random(1, 2, 3, 24)
    with torch.no_grad():
        assert torch.equal(*(scores_of(each, q, q, positions, positions) for each in (one, other)))


# In a model


def model_of(name, causal=True, options=None, **changes):
    settings = ModelSettings(**({"d_model": 48, "n_layers": 2, "n_heads": 4, "causal": causal} | changes))
    size = Dims(
        d_model=settings.d_model,
        n_layers=settings.n_layers,
        n_heads=settings.n_heads,
        n_kv_heads=settings.kv_heads,
        train_length=TRAIN_LENGTH,
        causal=causal,
    )
    encoding = registry.encoding(name, options_of(name, options or {}), size)
    model = Transformer(settings, encoding, size, vocab_size=7)
    init_parameters(model, seed=0)
    return model


def awake(model):
    """Parameters that start at zero would hide faults."""
    for number, parameter in enumerate(model.parameters()):
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.2, generator=generator(number))
    return model.double().eval()


@every_scheme
@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_decoding_with_a_cache_gives_what_reading_at_once_gives(name, chunk):
    """Two rows with positions of their own, unsorted; the cache has to grow."""
    model, count = awake(model_of(name, n_kv_heads=2)), axes(name, {})
    cells = positions_of([(a, b) for a in range(5) for b in range(4)], count)
    order = [torch.randperm(20, generator=generator(seed)) for seed in (1, 2)]
    positions, tokens = torch.cat([cells[:, each] for each in order]), torch.randint(7, (2, 20), generator=generator(3))
    with torch.inference_mode():
        whole, cache = model(tokens, positions), model.new_cache(2, capacity=4)
        parts = [
            model(tokens[:, first : first + chunk], positions[:, first : first + chunk], cache=cache)
            for first in range(0, 20, chunk)
        ]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-10, atol=1e-10)
    assert cache.positions_BC.shape[2:] == (count,) and torch.equal(cache.positions_BC[:, :20], positions)


@every_scheme
@pytest.mark.parametrize("causal", [True, False])
def test_packed_pictures_padding_and_one_row_of_positions(name, causal):
    """Two pictures in a row, and padding, give each what it gives alone; one row of positions serves the batch."""
    model, count = awake(model_of(name, causal)), axes(name, {})
    one, other = positions_of([(a, b) for a in range(3) for b in range(2)], count), block(count, 2)
    tokens = torch.randint(7, (2, one.shape[1] + other.shape[1] + 2), generator=generator(4))
    padding = torch.zeros(1, 2, count, dtype=torch.int64)
    positions = torch.cat([padding, one, other], dim=1)
    documents = torch.tensor([[-1] * 2 + [0] * one.shape[1] + [1] * other.shape[1]])
    first, second = slice(2, 2 + one.shape[1]), slice(2 + one.shape[1], None)
    with torch.inference_mode():
        packed = model(tokens, positions, documents.expand(2, -1))
        of_each_row = model(tokens, positions.expand(2, -1, -1), documents.expand(2, -1))
        torch.testing.assert_close(packed, of_each_row, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(packed[:, first], model(tokens[:, first], one), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(packed[:, second], model(tokens[:, second], other), rtol=1e-10, atol=1e-10)


@every_scheme
def test_queries_in_chunks_give_the_same(name):
    """Without gradients attention takes 128 queries at once, with them all; more tokens than that, in windows of one row."""
    model, count = awake(model_of(name)), axes(name, {})
    cells = positions_of([(a, b) for a in range(6) for b in range(6)], count)
    positions, documents = cells.repeat(1, 4, 1), torch.arange(4).repeat_interleave(36)[None]
    tokens = torch.randint(7, (1, 144), generator=generator(5))
    with torch.inference_mode():
        chunked = model(tokens, positions, documents), model(tokens, positions)
    whole = model(tokens, positions, documents).detach(), model(tokens, positions).detach()
    for one, other in zip(chunked, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@every_scheme
def test_a_compiled_model_gives_the_same_logits(name):
    model, positions = awake(model_of(name)), block(axes(name, {}))
    tokens = torch.randint(7, (2, positions.shape[1]), generator=generator(6))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=model.encoding.options.sizes(model.dims) is None)
    torch.testing.assert_close(compiled(tokens, positions), model(tokens, positions), rtol=1e-9, atol=1e-9)


@every_scheme
def test_positions_are_asked_for_and_of_the_scheme_s_own_axes(name):
    model, count = model_of(name), axes(name, {})
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    for given, said in (
        (None, "None"),
        (torch.arange(4)[None], r"\(1, 4\)"),
        (torch.zeros(1, 4, count + 1, dtype=torch.int64), rf"\(1, 4, {count + 1}\)"),
        (torch.zeros(4, count, dtype=torch.int64), rf"\(4, {count}\)"),
    ):
        with pytest.raises(
            ConfigError, match=rf"positions of the shape \(B or 1, T, {count}\), and those given have {said}"
        ):
            model(tokens, given)
    with pytest.raises(ConfigError, match=r"of the shape \(B or 1, T\), and those given have \(1, 4, 2\)"):
        model_of("rope")(tokens, torch.zeros(1, 4, 2, dtype=torch.int64))


def test_a_text_scheme_counts_as_before():
    model = awake(model_of("rope"))
    tokens = torch.randint(7, (1, 5), generator=generator(6))
    assert torch.equal(model(tokens), model(tokens, torch.arange(5)[None]))


@pytest.mark.parametrize("name", sorted({*SCHEMES} - {*UNBOUNDED}))
def test_positions_beyond_a_table_are_refused(name):
    """The fault to catch: a row, or an offset, of another place of the table."""
    model = model_of(name, options={"extent": [3, 7]} if name == "grid/axial_learned" else {"window": 7})
    high = 3 if name == "grid/axial_learned" else 7
    tokens = torch.zeros(1, 1, dtype=torch.int64)
    model(tokens, torch.tensor([[[high - 1, 6]]]))
    for bad in ([high, 0], [0, 7], [-1, 0], [0, -1]):
        with pytest.raises(
            ConfigError, match=rf"defined for {high} x 7 positions, counted from 0, and those given reach"
        ):
            model(tokens, torch.tensor([[bad]]))
        with pytest.raises(IndexError):  # also where nothing has looked before
            if name == "grid/axial_learned":
                model.encoding.codes(torch.tensor([bad]))
            else:
                origin = torch.tensor([[[6 * (each < 0) for each in bad]]])
                model.encoding.prepare(origin)[0].dense(torch.tensor([[bad]]), origin, torch.float32)


# From Python and from the command line


def test_scores_and_codes_from_python():
    q, positions = random(1, 2, 4, 24), block(2, 2)[0]
    for name in SCHEMES:
        count = axes(name, {})
        at = positions if count == 2 else torch.cat([positions, positions[:, :1]], dim=1)
        if registry.scheme(name).acts_on is ActsOn.input:
            codes = posbuild.codes(name, at, 48)
            assert codes.shape == (4, 48) and len(codes.unique(dim=0)) == 4
            with pytest.raises(ConfigError, match="of the shape"):
                posbuild.codes(name, at[:, 0], 48)
            continue
        scores = posbuild.scores(name, q, q, at, at)
        assert scores.shape == (1, 2, 4, 4)
        assert torch.equal(scores, posbuild.scores(name, q, q, at[None], at[None]))
        with pytest.raises(ConfigError, match="of the shape"):
            posbuild.scores(name, q, q, at[:, 0], at[:, 0])
    with pytest.raises(ConfigError, match="defined for 14 x 14 positions"):
        posbuild.codes("grid/axial_learned", positions + 13, 48)
    with pytest.raises(ConfigError, match="defined for 7 x 7 positions"):
        posbuild.scores("grid/swin", q, q, positions + 6, positions)


@every_scheme
def test_training_on_text_is_refused(name):
    with pytest.raises(ConfigError, match=f"pe={name} encodes positions of .* axes, and text has one"):
        posbuild.build(f"pe={name}")


def test_list_shows_schemes_by_their_axes(capsys, monkeypatch):
    def names(*arguments):
        monkeypatch.setattr("sys.argv", ["posbuild", "list", *arguments])
        assert cli.main() == 0
        return {line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]}

    assert names("--axes", "1") == names() == {*registry.schemes()}
    assert names("--axes", "2") == {name for name in SCHEMES if 2 in registry.scheme(name).axes}
    assert names("--axes", "3") == {*SCHEMES} - {"grid/swin", "grid/rope_mixed"}
    assert names("--axes", "2", "--beyond", "--learned") == {"grid/rope_mixed", "grid/liere"}


@every_scheme
def test_show_says_how_many_axes_and_draws(name):
    scheme = registry.scheme(name)
    text = show.description(scheme)
    assert f"on {' or '.join(map(str, scheme.axes))} axes" in text
    drawn_rows = show.picture(scheme).splitlines()[1:]
    assert len(drawn_rows) == show.TOKENS and len({*"".join(drawn_rows)} - {" "}) > 1
    assert "axes" not in show.description(registry.scheme("rope"))


# Single schemes


@pytest.mark.parametrize(
    ("name", "options", "width", "said"),
    [
        ("axial_sinusoidal", {}, 6, "pe.axes=2 .*d_model=6.* multiple of 4"),
        ("axial_sinusoidal", {"axes": 3}, 8, "pe.axes=3 .*d_model=8.* multiple of 6"),
        ("axial_learned", {}, 7, r"pe.extent=\[14,14\] .*d_model=7.* multiple of 2"),
        ("axial_learned", {"extent": [5]}, 8, r"pe.extent=\[5\] has 1 numbers"),
        ("axial_rope", {}, 6, "pe.axes=2 .* 6 channels .* multiple of 4"),
        ("axial_rope", {"axes": 3}, 8, "pe.axes=3 .* 8 channels .* multiple of 6"),
        ("axial_rope", {}, 7, "pe.fraction=1 of the head width 7 .*even"),
        ("rope_mixed", {}, 6, "6 channels .* multiple of 4"),
        ("mrope", {}, 4, "pe.sections=null does not share out 2 channel pairs .* wider heads"),
        ("mrope", {"sections": [1, 1, 1]}, 8, r"pe.sections=\[1,1,1\] does not share out 4 .* sum is 4"),
        ("mrope", {"sections": [2, 2]}, 8, r"pe.sections=\[2,2\] does not share out 4"),
        ("mrope", {"sections": [1, 2, 1], "interleave": True}, 8, "would have 1 and 1 pairs"),
        ("liere", {"generator_dim": 9}, 8, "pe.generator_dim=9 turns 9 channels together, and a head has 8"),
        ("liere", {}, 1, "pe.generator_dim=null turns 1 channels together"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(name, options, width, said):
    with pytest.raises(ConfigError, match=said):
        build(f"grid/{name}", dims(heads=1, width=width), **options)


def test_axial_rope_turns_half_of_the_pairs_by_each_axis():
    """As rope of half the width on each half of the channels, whose base is the same."""
    axial, rope = (
        build("grid/axial_rope", dims()),
        build("rope", dims(width=12), base=100.0, layout=VALUES["grid/axial_rope"]["layout"][0]),
    )
    k, positions = random(1, 2, 9, 24), block(2, first=40)
    turned = axial.at_keys(k, positions, 0, axial.prepare(positions))
    for axis, channels in enumerate((slice(0, 12), slice(12, 24))):
        alone = positions[..., axis]
        torch.testing.assert_close(turned[..., channels], rope.at_keys(k[..., channels], alone, 0, rope.prepare(alone)))


@pytest.mark.parametrize("interleave", [False, True])
@pytest.mark.parametrize("layout", VALUES["grid/mrope"]["layout"])
def test_mrope_of_text_is_rope(interleave, layout):
    """The same number on all axes."""
    mrope, rope = (
        build("grid/mrope", dims(), interleave=interleave, layout=layout),
        build("rope", dims(), base=1e6, layout=layout),
    )
    q, positions = random(1, 2, 7, 24), torch.tensor([[0, 1, 2, 9, 500, 70_000, 131_071]])
    on_each = positions[..., None].expand(-1, -1, 3)
    torch.testing.assert_close(
        scores_of(mrope, q, q, on_each, on_each), scores_of(rope, q, q, positions, positions), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    ("interleave", "pairs", "sections"),
    [
        (False, 64, [16, 24, 24]),
        (True, 64, [24, 20, 20]),
        (False, 3, [1, 1, 1]),
        (True, 3, [1, 1, 1]),
        (False, 4, [2, 1, 1]),
    ],
)
def test_mrope_sections_of_the_released_models(interleave, pairs, sections):
    """16, 24, 24 in Qwen2-VL; 24, 20, 20 in Qwen3-VL."""
    size = dims(heads=1, width=2 * pairs)
    options = registry.scheme("grid/mrope").options(interleave=interleave)
    options.check(size)
    assert options.resolved(size).sections == sections
    of_pair = options.axis_of_pair(size)
    assert [of_pair.count(axis) for axis in range(3)] == sections
    assert of_pair == (sorted(of_pair) if not interleave else reference("grid/mrope").axes(sections, True))


def test_swin_offsets_have_the_numbers_of_the_released_code():
    """microsoft/Swin-Transformer@f82860b, relative_position_index of a window of 3: nine cells, row by row."""
    encoding = build("grid/swin", dims(heads=1, layers=1), window=3)
    with torch.no_grad():
        encoding.table.copy_(torch.arange(25.0).view(1, 25, 1))
        index = encoding.prepare(block(2))[0].dense(block(2), block(2), torch.float64)[0, 0]
    assert index.int().tolist() == reference("grid/swin").INDEX_AS_RELEASED


def test_swin_starts_as_released():
    """Normal, standard deviation 0.02."""
    encoding = started(registry.encoding("grid/swin", options_of("grid/swin", {}), dims(layers=12)))
    assert encoding.table.shape == (12, 169, 2)
    table = encoding.table.detach()
    assert abs(float(table.std()) - 0.02) < 1e-3 and abs(float(table.mean())) < 1e-3


def test_rope_mixed_starts_as_released():
    """As init_random_2d_freqs for the angles drawn; each head and layer has one of its own, or none."""
    encoding = started(registry.encoding("grid/rope_mixed", options_of("grid/rope_mixed", {}), dims(width=8)).double())
    angles = torch.atan2(encoding.freqs[1, :, :, 0], encoding.freqs[0, :, :, 0])
    assert len(angles.flatten().unique()) == 4
    for layer, head in np.ndindex(2, 2):
        expected = reference("grid/rope_mixed").start(float(angles[layer, head]), 8)
        np.testing.assert_allclose(encoding.freqs[:, layer, head].detach(), expected, rtol=0, atol=1e-12)
    row = reference("grid/rope_mixed").STARTS_AS_RELEASED
    for angle, freqs in zip(row["angles"], row["freqs"], strict=True):
        np.testing.assert_allclose(reference("grid/rope_mixed").start(angle, 8), freqs, rtol=0, atol=1e-6)
    straight = started(build("grid/rope_mixed", dims(width=8), rotate=False))
    assert straight.freqs[0, ..., :2].abs().min() > 0.3 and straight.freqs[0, ..., 2:].abs().max() < 1e-12


def test_rope_mixed_angles_are_exact_far_away():
    """A frequency of float32 times position 131071 to twelve digits: in float32 the angle is off by 4e-3, in bf16 by 300."""
    encoding = build("grid/rope_mixed", dims(heads=1, width=4, layers=1), dtype=torch.float32)
    with torch.no_grad():
        encoding.freqs.copy_(torch.tensor([[[[0.7, 0.1]]], [[[0.3, 0.9]]]]))
    position = torch.tensor([[[131_071, 131_070]]])
    for autocast in (False, True):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            cos, _ = encoding.prepare(position)[0]
        exact = encoding.freqs.detach().double()
        angle = 131_071 * exact[0, 0, 0] + 131_070 * exact[1, 0, 0]
        np.testing.assert_allclose(cos[0, 0, 0, ::2], angle.cos(), rtol=0, atol=1e-12)


def test_liere_forms_a_rotation_for_each_distinct_position_once(monkeypatch):
    formed = []
    exponential = torch.matrix_exp
    monkeypatch.setattr(torch, "matrix_exp", lambda exponent: formed.append(len(exponent)) or exponential(exponent))
    encoding, positions = build("grid/liere", dims()), block(2).repeat(4, 1, 1)
    encoding.prepare(torch.cat([positions, positions + 1], dim=1))
    assert formed == [14, 14]  # of each layer: 9 cells and 9 cells, 4 of them the same


def test_liere_rotations_keep_lengths():
    encoding, positions = build("grid/liere", dims(), dtype=torch.float32), far(2)
    k = random(1, 2, len(FAR), 24, dtype=torch.float32)
    with torch.no_grad():
        turned = encoding.at_keys(k, positions, 0, encoding.prepare(positions))
    torch.testing.assert_close(turned.norm(dim=-1), k.norm(dim=-1), rtol=3e-6, atol=0)


@pytest.mark.parametrize("join", VALUES["grid/axial_learned"]["join"])
@pytest.mark.parametrize("combine", VALUES["grid/axial_learned"]["combine"])
@pytest.mark.parametrize("extent", [(14, 14), (7, 21), (28, 5), (1, 14)])
def test_axial_tables_resize_as_the_grid_of_codes_does(extent, join, combine):
    """torch's bicubic interpolation of all codes as one image, which DeiT and MAE apply to a table of all places."""
    encoding = build("grid/axial_learned", dims(), extent=[14, 10], join=join, combine=combine)
    resized = encoding.resized(extent)
    assert resized.options.extent == [*extent] and encoding.options.extent == [14, 10]
    grid, new = (torch.cartesian_prod(*map(torch.arange, sizes)) for sizes in ((14, 10), extent))
    with torch.no_grad():
        image = encoding.codes(grid).unflatten(0, (14, 10)).permute(2, 0, 1)[None]
        expected = F.interpolate(image, size=extent, mode="bicubic")[0].permute(1, 2, 0).flatten(0, 1)
        torch.testing.assert_close(resized.codes(new), expected, rtol=1e-12, atol=1e-12)
        if resized.projection is not None:
            assert torch.equal(resized.projection, encoding.projection)


# A task on a grid

SIDE, SYMBOLS = 6, 4


def solved(name):
    """The share of cells whose symbol up and left of them a small model names after training, (chance: 1 in 4)."""
    settings = ModelSettings(d_model=48, n_layers=1, n_heads=2, causal=False, bias=True, allow_orderless=True)
    size = dims(causal=False, layers=1)
    options = {  # of the size of the task: waves as long as six cells, codes as large as the token vectors
        "grid/liere": {"span": SIDE, "generator_dim": 6},
        "grid/mrope": {"base": 10.0, "interleave": True},
        "grid/axial_sinusoidal": {"scale": 1.0},
        "grid/axial_learned": {"init_std": 0.5},
    }
    encoding = registry.encoding(name, options_of(name, options.get(name, {})), size)
    model = Transformer(settings, encoding, size, SYMBOLS)
    init_parameters(model, seed=0)
    cells = torch.cartesian_prod(torch.arange(SIDE), torch.arange(SIDE))[None]
    count = encoding.options.number_of_axes()
    positions = {1: None, 2: cells, 3: F.pad(cells, (1, 0))}[count]  # a picture is one moment
    optimizer, draws = torch.optim.Adam(model.parameters(), lr=1e-2), torch.Generator().manual_seed(1)
    for step in range(STEPS + 1):
        symbols = torch.randint(SYMBOLS, (32, SIDE, SIDE), generator=draws)
        logits = model(symbols.flatten(1), positions).unflatten(1, (SIDE, SIDE))[:, 1:, 1:]
        targets = symbols[:, :-1, :-1]
        if step == STEPS:
            return float((logits.argmax(-1) == targets).float().mean())
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 2), targets.flatten()).backward()
        optimizer.step()


STEPS = 150


@pytest.mark.parametrize("name", SCHEMES)
def test_a_model_learns_to_look_up_and_left(name):
    assert solved(name) > 0.6


def test_a_model_without_positions_does_not():
    assert solved("none") < 0.4
