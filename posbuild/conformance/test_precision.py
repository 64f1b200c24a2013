"""Part 4: in half precision, under autocast and after a cast every scheme is wrong by the roundings of what it is given."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from posbuild import registry
from posbuild.bias import OfContent
from posbuild.conformance.cases import Case, other_value, started
from posbuild.conformance.layer import gathered, random, scores, weights
from posbuild.conformance.models import model_of, tokens
from posbuild.conformance.paper import gathers_in_its_own_way, paper_gathered, paper_inputs, paper_scores
from posbuild.declaration import ActsOn
from posbuild.encodings.base import Encoding

PART = (4, "precision and casts")
pytestmark = pytest.mark.part(PART)

# Beyond 256 bf16 no longer holds each whole number, beyond 2048 fp16, and beyond 65 504 it overflows. Neighbours stand
# side by side: rounded, they are one place.
FAR = [0, 1, 2, 256, 257, 1000, 4095, 4096, 32_769, 131_070, 131_071]
QUERIES = 4  # the last
ROWS = 4096  # of a table that ends
SIDE = 300  # of each axis where there are several: offsets of two are 599 squared
HALVES = [torch.bfloat16, torch.float16]
half = pytest.mark.parametrize("dtype", HALVES, ids=["bf16", "fp16"])
# Sums of some ten float32 numbers, each rounded by 6e-8 of it, of values to about 10. Angles formed in float32 would be
# off by 4e-3 at 131 071, positions in bf16 by a whole token from 257 on.
RTOL, ATOL = 3e-7, 2e-6


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def roomy(case: Case) -> Case:
    """With tables so long that half precision cannot number their rows, if it has some that end and are not given."""
    return case.reaching(ROWS if case.axes == 1 else SIDE)


def built(case: Case, dtype: torch.dtype, heads: int = 3) -> Encoding:
    return case.build(case.dims(heads=heads, width=8 if case.axes == 1 else 24), dtype)


def far(case: Case) -> Tensor:
    """Places to 131 071, or to the end of a table, (1, T) or (1, T, axes)."""
    sizes = case.chosen.sizes(case.dims())
    last = (min(sizes) if sizes else FAR[-1] + 1) - 1
    numbers = torch.tensor([number for number in FAR if number < last - 1] + [last - 1, last])
    if case.axes == 1:
        return numbers[None]
    # One axis is far where the other is near, and the other way round.
    rows = [numbers if axis == 0 else numbers.flip(0) if axis == 1 else numbers // 2 for axis in range(case.axes)]
    return torch.stack(rows, dim=-1)[None]


def all_places(case: Case) -> Tensor:
    """Every position to 4095, or to the end of a table; of several axes all together, as far as half precision needs."""
    sizes = case.chosen.sizes(case.dims())
    numbers = torch.arange(min([ROWS if case.axes == 1 else 2 * SIDE, *(sizes or [])]))
    return numbers[None] if case.axes == 1 else numbers[None, :, None].expand(-1, -1, case.axes)


def unit(dtype: torch.dtype) -> float:
    """The largest share by which rounding to it changes a number."""
    return torch.finfo(dtype).eps / 2


def assert_near(found: Tensor, expected: np.ndarray | Tensor, what: str, allowed: Tensor | float = 0.0) -> None:
    """To some roundings of float32, beside what is allowed."""
    expected = torch.as_tensor(expected).double()
    excess = (found.double() - expected).abs() - ATOL - RTOL * expected.abs() - allowed
    excess = excess.masked_fill(found == expected, 0.0)  # infinite, both
    assert excess.max() <= 0, f"{what}: off by {float(excess.max()):.2g} more than roundings are"  # of NaN neither


def product_roundings(encoding: Encoding, x: Tensor, positions: Tensor, expected: Tensor, dtype: torch.dtype) -> Tensor:
    """Of token vectors joined with codes and projected in this dtype: of both factors, and of the product."""
    product, codes = encoding.get_parameter("projection").abs().double(), encoding.codes(positions)  # type: ignore[operator]
    joined, share = torch.cat([x.abs().double(), codes.abs().double().expand_as(x)], dim=-1), unit(dtype)
    of_factors = ((1 + share) ** 2 - 1) * (joined @ product.T)
    return of_factors + share * (expected.abs() + of_factors)


def projects(encoding: Encoding) -> bool:
    """Whether codes are joined with token vectors: then a product follows that is as wrong as any of a model."""
    return getattr(encoding, "projection", None) is not None


# Against the slow formula


def assert_equals_paper_under(case: Case, encoding: Encoding, modes: list[torch.dtype | None]) -> None:
    """Scores, token vectors and what is gathered, of inputs in float32, under autocast to each of these or under none."""
    positions, size = far(case), encoding.dims
    count, where = positions.shape[1], (positions[:, -QUERIES:], positions)
    q, k, v = (
        random(1, size.n_heads, length, size.head_dim, seed=seed, dtype=torch.float32)
        for seed, length in enumerate((where[0].shape[1], count, count))
    )
    x, own = random(1, count, size.d_model, seed=3, dtype=torch.float32), gathers_in_its_own_way(case.name)
    expected = {"scores": paper_scores(encoding, case.name, q, k, *where)}
    expected["token vectors"] = paper_inputs(encoding, case.name, x, positions)
    if own:
        expected["what is gathered"] = paper_gathered(encoding, case.name, q, k, v, *where)
    for mode in modes:
        with torch.autocast("cpu", mode or torch.bfloat16, enabled=mode is not None):
            found = [scores(encoding, q, k, *where), encoding.at_input(x, positions)]
            found += [gathered(encoding, q, k, v, *where)] if own else []
        for one, (what, other) in zip(found, expected.items(), strict=True):
            allowed: Tensor | float = 0.0
            if what == "token vectors" and projects(encoding):
                allowed = product_roundings(encoding, x, positions, torch.as_tensor(other), mode or torch.float32)
            else:
                assert one.dtype == torch.float32, f"{what} of inputs in float32 come in {one.dtype}"
            assert_near(one, other, f"{what} under {mode}" if mode else what, allowed)


def test_float32_and_autocast_stay_near_the_slow_formula(case: Case) -> None:
    """To position 131 071. The faults to catch: positions, angles or a bias in half precision, with autocast or always."""
    assert_equals_paper_under(roomy(case), built(roomy(case), torch.float32), [None, *HALVES])


@half
def test_a_cast_model_is_wrong_by_its_parameters_alone(direction: Case, dtype: torch.dtype) -> None:
    """By the slow formula of its rounded parameters. The fault to catch: what is fixed takes the dtype of the model."""
    assert_equals_paper_under(roomy(direction), built(roomy(direction), dtype), [None])


@half
def test_distances_to_4095_in_a_cast_model(direction: Case, dtype: torch.dtype) -> None:
    """Scores of one query for the 40 keys before it and some of the others: each border of a window or of buckets is among
    them. The faults to catch: distances that half precision makes the same; bf16 does from 257 on, fp16 from 2049."""
    case = roomy(direction)
    encoding, places = built(case, dtype), all_places(case)
    positions = torch.cat([places[:, :-40:37], places[:, -40:]], dim=1)
    q, k = (random(1, 3, length, encoding.dims.head_dim, dtype=torch.float32) for length in (1, positions.shape[1]))
    where = positions[:, -1:], positions
    assert_near(scores(encoding, q, k, *where), paper_scores(encoding, case.name, q, k, *where), "scores")


# Against itself in float64


def as_wide(case: Case, encoding: Encoding) -> Encoding:
    """The same in float64, with these parameters."""
    wide = built(case, torch.float64, encoding.dims.n_heads)
    wide.load_state_dict(encoding.state_dict())
    return wide


@half
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.where(lambda case: case.causal)
def test_queries_keys_and_token_vectors_are_rounded_once(case: Case, dtype: torch.dtype, autocast: bool) -> None:
    """In half precision, as a model hands them over, in a cast model and under autocast. A token vector is rounded twice:
    its code, and the sum. The fault to catch: sines rounded before they are multiplied."""
    case = roomy(case)
    encoding, positions = built(case, torch.float32 if autocast else dtype), far(case)
    wide, shape = as_wide(case, encoding), (1, 3, positions.shape[1], encoding.dims.head_dim)
    q, k = (random(*shape, seed=seed, dtype=torch.float32).to(dtype) for seed in (1, 2))
    x = random(1, positions.shape[1], encoding.dims.d_model, dtype=torch.float32).to(dtype)
    with torch.autocast("cpu", dtype, enabled=autocast):
        shared, inputs = encoding.prepare(positions), encoding.at_input(x, positions)
        turned = encoding.at_queries(q, positions, 1, shared), encoding.at_keys(k, positions, 1, shared)
    assert inputs.dtype == turned[0].dtype == turned[1].dtype == dtype
    exact, expected = wide.prepare(positions), wide.at_input(x.double(), positions)
    heads = wide.at_queries(q.double(), positions, 1, exact), wide.at_keys(k.double(), positions, 1, exact)
    for found, other, what in zip(turned, heads, ("queries", "keys"), strict=True):
        assert_near(found, other, what, unit(dtype) * other.abs())
    if projects(encoding):
        allowed = product_roundings(wide, x, positions, expected, dtype)
    else:
        allowed = unit(dtype) * ((expected - x).abs() + expected.abs())
    assert_near(inputs, expected, "token vectors", (1 + unit(dtype)) * allowed)


@half
@pytest.mark.where(lambda case: case.causal and case.scheme.acts_on in (ActsOn.input, ActsOn.queries_and_keys))
def test_every_position_keeps_a_code_or_rotation_of_its_own(direction: Case, dtype: torch.dtype) -> None:
    """In a model in half precision, and in one under autocast. The fault to catch: positions from 257 (bf16) or 2049 (fp16)
    on that repeat: computed wide, rounded last, 32 channel pairs tell neighbours apart by the fast ones."""
    direction, places = roomy(direction), all_places(roomy(direction))
    size = direction.dims(heads=1, width=64 if direction.axes == 1 else 24)
    key = random(size.head_dim, dtype=torch.float32).to(dtype).expand(1, 1, places.shape[1], -1)
    for autocast in (False, True):
        encoding = direction.build(size, torch.float32 if autocast else dtype)
        with torch.autocast("cpu", dtype, enabled=autocast):
            if direction.scheme.acts_on is ActsOn.input:
                rows = encoding.at_input(torch.zeros(1, places.shape[1], size.d_model, dtype=dtype), places)[0]
            else:
                rows = encoding.at_keys(key, places, 0, encoding.prepare(places))[0, 0]
        same = places.shape[1] - len(torch.unique(rows, dim=0))
        assert rows.dtype == dtype and not same, f"{same} of {places.shape[1]} positions repeat another"


@half
@pytest.mark.parametrize("autocast", [False, True])
def test_a_whole_model_in_half_precision(default: Case, dtype: torch.dtype, autocast: bool) -> None:
    """Far along, against itself in float64 with its rounded parameters: logits are wrong by 2.6 roundings of a number of
    this dtype at most, as a whole, in two layers; 4 are allowed. The fault to catch: a model that casts positions with
    its inputs, in fp16 2049 and the next odd ones."""
    case = roomy(default)
    places, text, model = all_places(case)[:, -48:-32], tokens(2, 16), model_of(case)
    for parameter in model.parameters():
        parameter.copy_(parameter.to(dtype))
    expected = model(text, places)
    low = model.float() if autocast else model.to(dtype)
    with torch.autocast("cpu", dtype, enabled=autocast):
        found = low(text, places).double()
    share = float((found - expected).norm() / expected.norm())
    assert share <= 4 * unit(dtype), f"logits are wrong by {share:.2g} of their size"


# What comes from positions alone


def fixed(case: Case, encoding: Encoding) -> list[Tensor]:
    """All that an encoding computes from positions, in each layer: turns of ones, biases, weights, codes."""
    positions, found = far(case), []
    ones = torch.ones(1, encoding.dims.n_heads, positions.shape[1], encoding.dims.head_dim)
    shared = encoding.prepare(positions)
    for layer in range(encoding.dims.n_layers):
        found += [encoding.at_queries(ones, positions, layer, shared), encoding.at_keys(ones, positions, layer, shared)]
        bias = encoding.at_scores(positions, positions, layer, shared)
        if isinstance(bias, OfContent):
            found.append(weights(encoding, ones, ones, positions, positions, layer))
        elif bias is not None:
            found.append(bias.dense(positions, positions, torch.float32))
    return [*found, encoding.codes(positions)] if hasattr(encoding, "codes") else found  # type: ignore[operator]


def assert_same(found: list[Tensor], expected: list[Tensor], why: str) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype in (torch.float32, torch.float64), f"what comes from positions is in {one.dtype}"
        assert torch.equal(one, other), why


def test_autocast_changes_nothing_that_comes_from_positions(case: Case) -> None:
    """The fault to catch: angles, or a network of distances, as a matrix product, which autocast rounds."""
    case = roomy(case)
    encoding = built(case, torch.float32)
    plain = fixed(case, encoding)
    for dtype in HALVES:
        with torch.autocast("cpu", dtype):
            mixed = fixed(case, encoding)
        assert_same(mixed, plain, f"autocast to {dtype} changes what comes from positions")


@half
def test_a_cast_rounds_parameters_alone_and_a_stored_state_keeps_them(direction: Case, dtype: torch.dtype) -> None:
    """A model cast down and up again has rounded parameters, and one built otherwise and given those from a file computes
    the same. The fault to catch: frequencies in a buffer, which `.to(bfloat16)` rounds."""
    direction, file = roomy(direction), io.BytesIO()
    cast = built(direction, torch.float32).to(dtype)
    torch.save(cast.state_dict(), file)
    file.seek(0)
    fresh = registry.encoding(direction.name, direction.chosen, cast.dims)
    fresh.load_state_dict(torch.load(file, weights_only=True), strict=True)
    assert [*cast.state_dict()] == [name for name, _ in cast.named_parameters()], "a cast rounds what lies in buffers"
    assert_same(fixed(direction, cast.float()), fixed(direction, fresh), "a cast rounds more than parameters")


def test_built_on_the_meta_device_and_started_is_the_same_as_built_at_once(case: Case) -> None:
    """The fault to catch: a buffer, or numbers filled in by the constructor, left as garbage by `to_empty`."""
    case = roomy(case)
    size, options = case.dims(width=8 if case.axes == 1 else 24), case.chosen
    with torch.device("meta"):
        deferred = registry.encoding(case.name, options, size)
    deferred.to_empty(device="cpu")
    for tensor in (*deferred.parameters(), *deferred.buffers()):
        tensor.fill_(math.nan)
    direct = started(registry.encoding(case.name, options, size))
    assert_same(fixed(case, started(deferred)), fixed(case, direct), "the constructor fills in what to_empty loses")


def test_the_start_draws_from_the_given_generator_alone(case: Case) -> None:
    torch.manual_seed(1)
    one, state = started(registry.encoding(case.name, case.chosen, case.dims())), torch.get_rng_state()
    other = started(registry.encoding(case.name, case.chosen, case.dims()))
    assert torch.equal(state, torch.get_rng_state()), "the start draws from the generator of all"
    for (name, first), second in zip(one.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(first, second) and first.isfinite().all(), f"{name} starts at chance, or not finite"


def test_encodings_with_other_options_in_one_process_share_nothing(option: tuple[Case, str]) -> None:
    """The fault to catch: a cache of the module or class keyed on some of the options."""
    case, name = option
    changed = case._replace(options={name: other_value(case.name, name)})
    one, other = (built(each, torch.float32) for each in (case, changed))
    before = fixed(case, one)
    assert_equals_paper_under(changed, other, [None])
    assert_same(fixed(case, one), before, f"an encoding with another pe.{name} changes this one")
