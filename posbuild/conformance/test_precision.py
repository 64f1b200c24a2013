"""Part 4: in float32, bf16 and fp16, cast or under autocast, what positions say stays as exact as the dtype can hold."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from posbuild import registry
from posbuild.attention import exact_attention, fused_attention
from posbuild.bias import OfContent
from posbuild.conformance.cases import Case, accepted, other_value, started
from posbuild.conformance.layer import gathered, of_content, random, vectors, weights
from posbuild.conformance.models import decoded, model_of, options_of, places, room, tokens
from posbuild.conformance.paper import paper_gathered, paper_inputs
from posbuild.conformance.test_paper import assert_equals_paper
from posbuild.declaration import ActsOn
from posbuild.encodings.base import AbsoluteCode, Encoding
from posbuild.model import Transformer, transformer
from posbuild.model.scores import hooked

PART = (4, "precision and casts")
pytestmark = pytest.mark.part(PART)

FURTHEST = 131_071
# Around the positions where bf16 (256), fp16 (2048, 65 504) and a count of 16 bits end.
FAR = [0, 1, 255, 256, 257, 2047, 2049, 4095, 32_769, 65_504, 65_537, 131_070, FURTHEST]
HALF = [torch.bfloat16, torch.float16]
# Half a unit in the last place, as a share of the number.
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
half = pytest.mark.parametrize("dtype", HALF, ids=str)
mixed = pytest.mark.parametrize("autocast", [False, True], ids=["cast", "autocast"])
# Precision is a matter of formulas: those of a direction are gone through with the default options.
once = pytest.mark.where(lambda case: case.causal or options_of(case) == case.scheme.options())


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def adds_of_positions(case: Case) -> bool:
    """Whether it adds a function of positions alone to the scores."""
    return case.scheme.acts_on is ActsOn.scores and not of_content(case.build())


def width(case: Case) -> int:
    return 8 if case.axes == 1 else 24


def sized(case: Case, dtype: torch.dtype = torch.float32) -> Encoding:
    """Parameters drawn at random; a projection of joined codes, whose sums would be large, as large as a trained one."""
    encoding = case.build(case.dims(width=width(case)), torch.float64)
    if isinstance(encoding, AbsoluteCode) and encoding.projection is not None:
        encoding.projection.mul_(encoding.projection.shape[1] ** -0.5)
    return encoding.to(dtype)


def in_float64(encoding: Encoding, case: Case) -> Encoding:
    """Another with the same parameters, those of half precision as they were rounded."""
    wide = case.build(encoding.dims)
    wide.load_state_dict(encoding.state_dict())
    return wide


def far(case: Case, positions: list[int] | None = None) -> Tensor:
    """Places far apart on each axis, or as far as the tables of a scheme go, (1, T) or (1, T, axes)."""
    numbers = torch.tensor(positions or FAR)
    sizes = options_of(case).sizes(case.dims()) or [FURTHEST + 1] * case.axes
    found = torch.stack([numbers.roll(5 * axis).clamp(max=size - 1) for axis, size in enumerate(sizes)], dim=-1)
    return found[None] if case.axes > 1 else found[None, :, 0]


def inputs(case: Case, tokens: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and token vectors, of numbers that this dtype holds."""
    q, k = (random(1, 3, tokens, width(case), seed=seed, dtype=dtype) for seed in (0, 1))
    return q, k, random(1, tokens, 3 * width(case), seed=2, dtype=dtype)


# Far positions


@once
@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
def test_a_model_is_wrong_by_no_more_than_its_parameters_are_rounded(case: Case, dtype: torch.dtype) -> None:
    """Of parameters in this dtype, given queries, keys and token vectors in float32, to position 131 071.

    Bound: 2e-6 + 3e-7 of the value, some roundings of 6e-8. Angles formed in float32 would be off by 1e-3 there, in bf16
    by whole turns; the faults to catch are these, and parameters that meet each other before they are made wide.
    """
    encoding, positions = sized(case, dtype), far(case)
    q, k, x = inputs(case, positions.shape[1], torch.float32)
    if isinstance(encoding, AbsoluteCode) and encoding.projection is not None and dtype != torch.float32:
        # A layer of the model's dtype takes vectors of its dtype: what is before it is asked for by itself.
        codes, wide = encoding.codes(positions).double(), encoding.projection.double()
        found = F.linear(torch.cat([x.double(), codes], dim=-1), wide)
        np.testing.assert_allclose(found, paper_inputs(encoding, case.name, x, positions), rtol=3e-7, atol=2e-6)
        return
    assert_equals_paper(encoding, case.name, q, k, x, positions, positions, rtol=3e-7, atol=2e-6)


@once
@mixed
def test_what_comes_in_half_precision_leaves_it_one_rounding_away(case: Case, autocast: bool) -> None:
    """Queries, keys and token vectors, which are rounded by 2⁻⁸ (2⁻¹¹) of a number, of float32 arithmetic before that by
    1e-6. Joined codes are multiplied in half precision: a rounding of each factor and of the sum."""
    positions = far(case)
    for dtype, share in ROUNDING.items():
        encoding = sized(case, torch.float32 if autocast else dtype)
        given = inputs(case, positions.shape[1], dtype)
        with torch.autocast("cpu", dtype, enabled=autocast):
            found = hooks(encoding, *given, positions)
        wide = in_float64(encoding, case)
        expected = hooks(wide, *(each.double() for each in given), positions)
        bounds = [each.abs() * share + 1e-6 for each in expected]
        if isinstance(wide, AbsoluteCode):
            vectors_and_codes = given[2].double().abs(), wide.codes(positions).abs().expand_as(given[2])
            added = sum(vectors_and_codes, torch.zeros(()))
            if wide.projection is not None:
                added = 2 * F.linear(torch.cat(vectors_and_codes, dim=-1), wide.projection.abs())
            bounds[2] = bounds[2] + share * added
        for what, one, other, bound in zip(("queries", "keys", "token vectors"), found, expected, bounds, strict=True):
            assert one.dtype == dtype, f"{what} in {dtype} leave the encoding in {one.dtype}"
            assert_within(one, other, bound, f"{what} in {dtype}")


def hooks(encoding: Encoding, q: Tensor, k: Tensor, x: Tensor, positions: Tensor) -> list[Tensor]:
    """Queries, keys and token vectors as they leave the encoding, of the second layer."""
    shared = encoding.prepare(positions)
    turned = encoding.at_queries(q, positions, 1, shared), encoding.at_keys(k, positions, 1, shared)
    return [*turned, encoding.at_input(x, positions)]


def assert_within(found: Tensor, expected: Tensor, bound: Tensor, what: str) -> None:
    apart = (found.double() - expected).abs()
    assert (apart <= bound).all(), (
        f"{what} are off by {float(apart.max())}, by up to {float((apart / bound).max()):.3g} bounds"
    )


@half
@mixed
def test_attention_in_half_precision_stays_close_to_the_slow_formula(
    direction: Case, dtype: torch.dtype, autocast: bool
) -> None:
    """What a layer gathers. Queries and keys that were turned are rounded once more, which moves each score by at most 2
    roundings of their lengths' product, and a weight by twice that; what is gathered is rounded at the end.

    The faults to catch: a bias, a decay or a count in half precision, and one that leaves the range of float16.
    """
    encoding, positions = sized(direction, torch.float32 if autocast else dtype), far(direction)
    q, k, x = inputs(direction, positions.shape[1], dtype)
    v, share = k.flip(2), ROUNDING[dtype]
    with torch.autocast("cpu", dtype, enabled=autocast):
        found = gathered(encoding, q, k, v, positions, positions, 1, x)
    expected = torch.as_tensor(paper_gathered(encoding, direction.name, q, k, v, positions, positions, 1, x))
    turned, moved = hooks(encoding, q, k, x, positions), 0.0
    if turned[0] is not q or turned[1] is not k:
        lengths = [float(each.double().norm(dim=-1).max()) for each in turned[:2]]
        moved = 2 * share * math.prod(lengths) / width(direction) ** 0.5
    assert found.dtype == dtype
    bound = (
        share * expected.abs() + 2 * moved * float(v.abs().max()) + 1e-5
    )  # float32 of the scores, some ten roundings
    assert_within(found, expected, bound, "vectors that attention gathers")


@half
@pytest.mark.where(lambda case: case.causal and adds_of_positions(case))
def test_far_biases_in_half_precision_by_the_kernel(case: Case, dtype: torch.dtype) -> None:
    """Which adds them in half precision: those of keys that count are rounded once. What float16 does not hold is -inf, a
    weight of nothing; the fault to catch is one that is +inf, of which softmax makes NaN."""
    encoding, positions = sized(case, dtype), far(case)
    q, k, _ = inputs(case, positions.shape[1], dtype)
    args, v = hooked(encoding, q, k, positions, positions), k.flip(2)
    bias = args[3]
    assert bias is not None and not isinstance(bias, OfContent)
    found, expected = (function(*args[:2], v, *args[2:]).double() for function in (fused_attention, exact_attention))
    counts = weights(encoding, q, k, positions, positions) > 1e-8
    moved = ROUNDING[dtype] * float((bias.dense(positions, positions, torch.float32).abs() * counts).max())
    # The kernel rounds weights, of which the sum is 1, and the result; q·k in float32.
    bound = 2 * moved * float(v.abs().max()) + 4 * ROUNDING[dtype] * float(v.abs().max())
    assert ((found - expected).abs() <= bound).all(), float((found - expected).abs().max())


# Nothing but parameters is rounded


def fixed(encoding: Encoding, case: Case) -> list[Tensor]:
    """All that an encoding computes from positions in both layers: codes, rotations, biases, weights."""
    positions = far(case, [*range(0, 4096, 257), 4095])
    ones = torch.ones(1, 3, positions.shape[1], encoding.dims.head_dim)
    shared, x, found = encoding.prepare(positions), vectors(encoding, ones), []
    for layer in (0, 1):
        found += [encoding.at_queries(ones, positions, layer, shared), encoding.at_keys(ones, positions, layer, shared)]
        kept, bias = encoding.at_tokens(x, layer), encoding.at_scores(positions, positions, layer, shared)
        found += [] if kept is None else [kept]
        if isinstance(bias, OfContent):
            found.append(weights(encoding, ones, ones, positions, positions, layer, x))
        elif bias is not None:
            found.append(bias.dense(positions, positions, torch.float32))
    return [*found, encoding.codes(positions)] if isinstance(encoding, AbsoluteCode) else found


def assert_same_fixed(found: list[Tensor], expected: list[Tensor], what: str) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.dtype in (torch.float32, torch.float64), f"{what}: it is {one.dtype}"
        assert torch.equal(one, other), f"{what}: off by {float((one - other).abs().max())}"


def test_autocast_changes_nothing_that_comes_from_positions(case: Case) -> None:
    """The fault to catch: angles as a matrix product, which autocast turns to bf16."""
    encoding = sized(case)
    plain = fixed(encoding, case)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = fixed(encoding, case)
    assert_same_fixed(found, plain, "under autocast")


def test_a_cast_of_the_model_rounds_its_parameters_alone(case: Case) -> None:
    """The fault to catch: frequencies in a buffer, which `.to(bfloat16)` rounds.

    Of a model cast down, stored and loaded, and cast up again parameters are rounded; one built anew, and given those, must
    compute the same.
    """
    for dtype in HALF:
        cast, direct, file = sized(case, dtype), sized(case), io.BytesIO()
        torch.save(cast.state_dict(), file)
        file.seek(0)
        stored = torch.load(file, weights_only=True)
        assert [*stored] == [key for key, _ in direct.named_parameters()], "something is stored beside parameters"
        assert all(each.dtype == dtype for each in stored.values()), "a parameter is not cast"
        direct.load_state_dict(stored, strict=True)
        assert_same_fixed(fixed(cast.to(torch.float32), case), fixed(direct, case), f"after a cast to {dtype} and back")


def test_built_on_the_meta_device_and_started_is_the_same_as_built_at_once(case: Case) -> None:
    """The fault to catch: a buffer filled in the constructor, left as garbage by `to_empty`."""
    size, chosen = case.dims(width=width(case)), options_of(case)
    with torch.device("meta"):
        deferred = registry.encoding(case.name, chosen, size)
    deferred.to_empty(device="cpu")
    for tensor in (*deferred.parameters(), *deferred.buffers()):
        tensor.fill_(math.nan)
    direct = started(registry.encoding(case.name, chosen, size))
    assert_same_fixed(fixed(started(deferred), case), fixed(direct, case), "built on the meta device")


def test_the_start_draws_from_the_given_generator_alone(case: Case) -> None:
    """The fault to catch: a second source of chance, by which two ranks or two runs start otherwise."""
    size, chosen = case.dims(), options_of(case)
    torch.manual_seed(1)
    one, state = started(registry.encoding(case.name, chosen, size)), torch.get_rng_state()
    other = started(registry.encoding(case.name, chosen, size))
    assert torch.equal(state, torch.get_rng_state()), "building or starting it draws from torch's own generator"
    for (key, first), second in zip(one.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(first, second) and first.isfinite().all(), f"{key} does not start as the generator says"


def test_encodings_with_other_options_in_one_process_share_nothing(option: tuple[Case, str]) -> None:
    """The fault to catch: a cache of the module or class keyed on some of the options."""
    case, name = option
    one = sized(case)
    before, other = fixed(one, case), case._replace(options={name: other_value(case.name, name)})
    if accepted(case.name, other.options, other.dims(width=width(other))):
        fixed(sized(other), other)
    assert_same_fixed(fixed(one, case), before, f"after another encoding with pe.{name}={other.options[name]}")
    assert_same_fixed(fixed(sized(case), case), before, f"built again after one with pe.{name}={other.options[name]}")


# Every position has a code of its own

LENGTH = 4096


def in_a_row(case: Case) -> Tensor:
    """Positions 0 to 4095, the same number on all axes: the slow pairs of a single axis may turn by less than a rounding."""
    found = torch.arange(LENGTH)[None]
    return found if case.axes == 1 else found[..., None].expand(-1, -1, case.axes)


def lasting(case: Case) -> Case:
    """With tables that hold so many, whatever the options say of that."""
    found = case._replace(options={}).reaching(LENGTH).options
    on_all_axes = {key: [LENGTH] * case.axes if isinstance(each, list) else each for key, each in found.items()}
    return case._replace(options=case.options | on_all_axes)


def one_head(case: Case, dtype: torch.dtype) -> Encoding:
    """Of 64 channels, of several axes of 24."""
    return case.build(case.dims(heads=1, width=64 if case.axes == 1 else 24, layers=1), dtype)


def assert_distinct(rows: Tensor, dtype: torch.dtype) -> None:
    assert rows.dtype == dtype
    assert len(torch.unique(rows, dim=0)) == len(rows), f"{len(rows)} positions have fewer codes in {dtype}"


@half
@mixed
@pytest.mark.where(lambda case: case.causal and case.scheme.acts_on is ActsOn.input)
def test_codes_to_position_4095_are_distinct(case: Case, dtype: torch.dtype, autocast: bool) -> None:
    """The fault to catch: positions in half precision, which repeat from 257 (bf16) or 2049 (float16) on."""
    encoding = one_head(lasting(case), torch.float32 if autocast else dtype)
    x = torch.zeros(1, LENGTH, encoding.dims.d_model, dtype=dtype)
    with torch.autocast("cpu", dtype, enabled=autocast):
        assert_distinct(encoding.at_input(x, in_a_row(case))[0], dtype)


@half
@pytest.mark.where(lambda case: case.causal and case.scheme.acts_on is ActsOn.queries_and_keys)
def test_turned_keys_to_position_4095_are_distinct(case: Case, dtype: torch.dtype) -> None:
    """The fault to catch: angles in bf16, which leave 769 keys of 4096. Fast pairs tell neighbours apart by far more than a
    rounding, and slow ones what lies far apart."""
    encoding, positions = one_head(lasting(case), dtype), in_a_row(case)
    channels = encoding.dims.head_dim
    key = random(channels, dtype=torch.float32).to(dtype).expand(1, 1, LENGTH, channels)
    with torch.autocast("cpu", dtype):
        assert_distinct(encoding.at_keys(key, positions, 0, encoding.prepare(positions))[0, 0], dtype)


# Whole models


def in_half(case: Case, dtype: torch.dtype, autocast: bool) -> tuple[Transformer, AbstractContextManager[object]]:
    """A model in half precision, or one in float32 and the context that it runs in."""
    model = model_of(case).to(torch.float32 if autocast else dtype)
    return model, torch.autocast("cpu", dtype) if autocast else nullcontext()


@half
@mixed
@pytest.mark.parametrize("attention", [exact_attention, fused_attention])
def test_a_model_in_half_precision_trains(
    default: Case, dtype: torch.dtype, autocast: bool, attention: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries, keys and values share the dtype on either path. The fault to catch: tables in float32 that lift queries and
    keys, not values."""
    seen = []

    def watched(q: Tensor, k: Tensor, v: Tensor, *how: object) -> Tensor:
        seen.append({q.dtype, k.dtype, v.dtype})
        return attention(q, k, v, *how)

    monkeypatch.setattr(transformer, "fused_attention", watched)
    (model, context), length = in_half(default, dtype, autocast), room(default, 20)
    with torch.enable_grad(), context:
        logits = model(tokens(2, length), places(default, length))
        logits.float().square().mean().backward()
    assert seen == [{dtype}] * 2, f"queries, keys and values are {seen}"
    assert logits.dtype == dtype
    wrong = [name for name, each in model.named_parameters() if each.grad is None or not each.grad.isfinite().all()]
    assert not wrong, f"no gradient, or none that is finite: {', '.join(wrong)}"


@half
@mixed
def test_a_model_in_half_precision_gives_nearly_the_logits_of_float64(
    default: Case, dtype: torch.dtype, autocast: bool
) -> None:
    """Read at once or through a cache: on average within 5 roundings, of two layers that round some ten times each."""
    model, context = in_half(default, dtype, autocast)
    wide, length = copy.deepcopy(model).double(), room(default, 24)
    text, where = tokens(2, length), places(default, length)
    with context:
        found = model(text, where).double()
    expected = wide(text, where)
    assert (found - expected).abs().mean() < 5 * ROUNDING[dtype] * expected.std(), "far from the logits of float64"
    if default.scheme.prefix_stable:
        with context:
            in_pieces = decoded(model, text, 5, where).double()
        assert (in_pieces - found).abs().mean() < 5 * ROUNDING[dtype] * expected.std(), "decoded otherwise than read"


@pytest.mark.where(lambda case: case.ends)
def test_places_of_a_long_table(default: Case) -> None:
    """The fault to catch: places in bf16, which holds each whole number to 256 alone."""
    case, where = default.reaching(600), torch.tensor([[255, 256, 257, 258, 599]])
    where = where if case.axes == 1 else torch.stack([where, where.flip(1), where][: case.axes], dim=-1)
    encoding = case.build(case.dims(heads=1, width=width(case), layers=1))
    q, k, x = random(1, 1, 5, width(case), seed=1), random(1, 1, 5, width(case), seed=2), random(1, 5, width(case))
    assert_equals_paper(encoding, case.name, q, k, x, where, where)
