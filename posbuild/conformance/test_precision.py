"""Part 4: in float32, bf16 and fp16, cast or under autocast, what positions say stays as exact as the dtype can hold."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from posbuild.conformance.cases import Case
from posbuild.conformance.layer import gathered, random
from posbuild.conformance.models import options_of
from posbuild.conformance.paper import paper_gathered, paper_inputs
from posbuild.conformance.test_paper import assert_equals_paper
from posbuild.encodings.base import AbsoluteCode, Encoding

PART = (4, "precision and casts")
pytestmark = pytest.mark.part(PART)

FURTHEST = 131_071
# Around the positions where bf16 (256), fp16 (2048, 65 504) and a count of 16 bits end.
FAR = [0, 1, 255, 256, 257, 2047, 2049, 4095, 32_769, 65_504, 65_537, 131_070, FURTHEST]
HALF = [torch.bfloat16, torch.float16]
# Half a unit in the last place, as a share of the number.
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
half = pytest.mark.parametrize("dtype", HALF, ids=str)


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


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


def to_the_end(case: Case) -> Case:
    """With a table as long as the furthest position, where it has one axis: of all pairs of two it would fill the memory."""
    return case.reaching(FURTHEST + 1) if case.axes == 1 else case


def inputs(case: Case, tokens: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and token vectors, of numbers that this dtype holds."""
    q, k = (random(1, 3, tokens, width(case), seed=seed, dtype=dtype) for seed in (0, 1))
    return q, k, random(1, tokens, 3 * width(case), seed=2, dtype=dtype)


# Far positions


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


@half
@pytest.mark.parametrize("autocast", [False, True], ids=["cast", "autocast"])
def test_what_comes_in_half_precision_leaves_it_one_rounding_away(
    case: Case, dtype: torch.dtype, autocast: bool
) -> None:
    """Queries, keys and token vectors, which are rounded by 2⁻⁸ (2⁻¹¹) of a number, of float32 arithmetic before that by
    1e-6. Joined codes are multiplied in half precision: a rounding of each factor and of the sum."""
    encoding, positions = sized(case, torch.float32 if autocast else dtype), far(case)
    q, k, x = inputs(case, positions.shape[1], dtype)
    wide, share, layer = in_float64(encoding, case), ROUNDING[dtype], 1
    with torch.autocast("cpu", dtype, enabled=autocast):
        shared = encoding.prepare(positions)
        found = [
            encoding.at_queries(q, positions, layer, shared),
            encoding.at_keys(k, positions, layer, shared),
            encoding.at_input(x, positions),
        ]
    shared = wide.prepare(positions)
    expected = [
        wide.at_queries(q.double(), positions, layer, shared),
        wide.at_keys(k.double(), positions, layer, shared),
        wide.at_input(x.double(), positions),
    ]
    bounds = [each.abs() * share + 1e-6 for each in expected]
    if isinstance(wide, AbsoluteCode):
        joined = torch.cat([x.double(), wide.codes(positions).expand_as(x)], dim=-1).abs()
        added = (
            joined.unflatten(-1, (2, -1)).sum(-2)
            if wide.projection is None
            else 2 * F.linear(joined, wide.projection.abs())
        )
        bounds[2] = bounds[2] + share * added  # a code is rounded before it is added
    for what, one, other, bound in zip(("queries", "keys", "token vectors"), found, expected, bounds, strict=True):
        assert one.dtype == dtype, f"{what} leave the encoding in {one.dtype}"
        assert ((one.double() - other).abs() <= bound).all(), (
            f"{what} are off by {float((one.double() - other).abs().max())}"
        )


@half
@pytest.mark.parametrize("autocast", [False, True], ids=["cast", "autocast"])
def test_attention_in_half_precision_stays_close_to_the_slow_formula(
    case: Case, dtype: torch.dtype, autocast: bool
) -> None:
    """What a layer gathers. Queries and keys that were turned are rounded once more, which moves each score by at most 2
    roundings of their lengths' product, and a weight by twice that; what is gathered is rounded at the end.

    The faults to catch: a bias, a decay or a count in half precision, and one that leaves the range of float16.
    """
    encoding, positions = sized(case, torch.float32 if autocast else dtype), far(case)
    q, k, x = inputs(case, positions.shape[1], dtype)
    v, share = k.flip(2), ROUNDING[dtype]
    with torch.autocast("cpu", dtype, enabled=autocast):
        found = gathered(encoding, q, k, v, positions, positions, x=x)
    expected = torch.as_tensor(paper_gathered(encoding, case.name, q, k, v, positions, positions, x=x))
    wide = in_float64(encoding, case)
    shared, moved = wide.prepare(positions), 0.0
    turned = wide.at_queries(q.double(), positions, 0, shared), wide.at_keys(k.double(), positions, 0, shared)
    if turned[0] is not q:
        moved = 2 * share * float(turned[0].norm(dim=-1).max() * turned[1].norm(dim=-1).max()) / width(case) ** 0.5
    bound = share * expected.abs() + 2 * moved * float(v.abs().max()) + 1e-5
    assert found.dtype == dtype
    assert ((found.double() - expected).abs() <= bound).all(), float(((found.double() - expected).abs() - bound).max())


@pytest.mark.where(lambda case: case.ends)
def test_places_of_a_long_table(default: Case) -> None:
    """The fault to catch: places in bf16, which holds each whole number to 256 alone."""
    case, places = default.reaching(600), torch.tensor([[255, 256, 257, 258, 599]])
    places = places if case.axes == 1 else torch.stack([places, places.flip(1), places][: case.axes], dim=-1)
    encoding = case.build(case.dims(heads=1, width=width(case), layers=1))
    q, k, x = random(1, 1, 5, width(case), seed=1), random(1, 1, 5, width(case), seed=2), random(1, 5, width(case))
    assert_equals_paper(encoding, case.name, q, k, x, places, places)
