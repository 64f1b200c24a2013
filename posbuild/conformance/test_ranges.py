"""Part 1 where a range is open: options, sizes and places drawn from all that a scheme declares to accept."""

from __future__ import annotations

from dataclasses import Field, fields, replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from posbuild.conformance.cases import Case, accepted, directions
from posbuild.conformance.layer import random
from posbuild.conformance.test_paper import PART, assert_equals_paper
from posbuild.declaration import Dims, written_type

pytestmark = pytest.mark.part(PART)

FURTHEST = 131_071
SIDE = 4095  # of pictures and films; powers of a matrix lose a digit for every ten times as far
REACH = 20
MOST_ROWS = 300  # of a table, a network or a series: what is wrong at one size is wrong at a small one
# Of numbers without a bound: beyond them the formulas themselves overflow float64, or nothing is left of a float64 of 1.
LEAST, MOST = 1e-3, 1e6
ANY = 30.0  # of numbers that may be negative, such as the start of a gate: a sigmoid is 0 or 1 beyond


def numbers(item: Field[Any], whole: bool) -> st.SearchStrategy[Any]:
    """Numbers within the declared range, near its lower end more often than not."""
    above, least, most = (item.metadata[bound] for bound in ("above", "least", "most"))
    if whole:
        lowest = int(least if least is not None else 0 if above is None else above + 1)
        highest = int(min(MOST_ROWS, MOST_ROWS if most is None else most))
        return st.integers(lowest, min(highest, lowest + 8)) | st.integers(lowest, highest)
    bounded = least is not None or above is not None
    low: float = -ANY if not bounded else max(LEAST, *(bound for bound in (above, least) if bound is not None))
    high = min(MOST if bounded else ANY, MOST if most is None else most)
    found = st.floats(low, high, exclude_min=above == low)
    return st.just(least) | found if least == 0 else found


def lists(item: Field[Any], whole: bool, length: int, total: int) -> st.SearchStrategy[list[Any]]:
    """Lists of a few numbers, of one for each channel pair, or that share out the pairs."""
    each = numbers(item, whole)
    found = st.lists(each, min_size=1, max_size=3) | st.lists(each, min_size=length, max_size=length)
    if whole and total > 1:
        cuts = st.lists(st.integers(1, total - 1), min_size=1, max_size=2, unique=True).map(sorted)
        found |= cuts.map(lambda cut: [b - a for a, b in zip([0, *cut], [*cut, total], strict=True)])
    return found


def values(item: Field[Any], default: Any, size: Dims) -> st.SearchStrategy[Any]:
    """Values of an option, null where that is the default."""
    kind, pairs = written_type(item), max(1, size.head_dim // 2)
    if item.metadata["choices"]:
        found: st.SearchStrategy[Any] = st.sampled_from([*item.metadata["choices"]])
    elif kind.startswith("bool"):
        found = st.booleans()
    elif kind.startswith("list"):
        found = lists(item, "int" in kind, pairs, pairs)
    else:
        assert kind.startswith(("int", "float")), f"pe.{item.name}: no values of a {kind} are known here"
        found = numbers(item, kind.startswith("int"))
    return st.none() | found if default is None else found


@st.composite
def drawn_options(draw: st.DrawFn, case: Case, size: Dims) -> dict[str, Any]:
    """Options drawn in any order, each kept if the scheme accepts it with those before."""
    found: dict[str, Any] = {}
    defaults = case.scheme.options()
    for item in draw(st.permutations(fields(case.scheme.options))):
        more = found | {item.name: draw(values(item, getattr(defaults, item.name), size))}
        if accepted(case.name, more, size):
            found = more
    return found


@st.composite
def places(draw: st.DrawFn, sizes: list[int] | None, axes: int) -> tuple[Tensor, Tensor]:
    """Places of two queries and three keys, (1, T) or (1, T, axes): close together in any order, or anywhere, growing,
    the queries those of the last keys: nothing of a decay that is turned round, or sums to 0, is left of far ones."""
    far, rows = draw(st.booleans()), []
    furthest = FURTHEST if axes == 1 else SIDE
    for limit in [min(furthest, size - 1) for size in sizes or [furthest + 1] * axes]:
        first = draw(st.integers(0, limit))
        near = st.integers(max(0, first - REACH), min(limit, first + REACH))
        rows.append(sorted(draw(st.integers(0, limit)) for _ in range(3)) if far else [draw(near) for _ in range(5)])
    found = torch.tensor(rows).T[None]
    found = found if axes > 1 else found[..., 0]
    return found[:, -2:], found[:, :3]


@settings(
    max_examples=25,
    derandomize=True,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.generate],  # the smallest case that fails would take a minute to find
)
@given(data=st.data())
def test_all_that_is_declared_equals_the_paper(default: Case, data: st.DataObject) -> None:
    """The faults to catch: a formula that holds for the defaults alone, a bound that lets through what it cannot do."""
    case = default._replace(causal=data.draw(st.sampled_from(directions(default.name)), "causal"))
    heads, layers = data.draw(st.integers(1, 5), "heads"), data.draw(st.integers(1, 3), "layers")
    width = data.draw(st.integers(1, 12), "width") * (1 if case.axes == 1 else 4)
    size = replace(case.dims(heads, width, layers), train_length=data.draw(st.integers(2, 200), "train length"))
    if not accepted(case.name, {}, size):
        size = replace(size, d_model=2 * size.d_model)
    options = data.draw(drawn_options(case, size), "options")
    assume(accepted(case.name, options, size))
    chosen = case.scheme.options(**options)
    encoding, axes = case.build(size, **options), chosen.number_of_axes()
    q_positions, k_positions = data.draw(places(chosen.sizes(size), axes), "places")
    q, k = random(1, heads, 2, size.head_dim, seed=1), random(1, heads, 3, size.head_dim, seed=2)
    x, layer = random(1, 2, size.d_model, seed=3), data.draw(st.integers(0, layers - 1), "layer")
    # Angles of 131 071 radians are rounded by 1.5e-11, what they are the angles of may be large, and a score sums up to 24
    # products of such; a formula that is wrong is so by far more.
    atol = 1e-9 * max(1.0, float(encoding.at_input(x, q_positions).detach().abs().max()))
    assert_equals_paper(encoding, case.name, q, k, x, q_positions, k_positions, layer, rtol=1e-10, atol=atol)
