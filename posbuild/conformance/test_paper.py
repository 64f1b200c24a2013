"""Part 1: every scheme, with every value of every option, equals the slow float64 formula written from its paper."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from posbuild.conformance.cases import (
    Case,
    accepted,
    choices_of,
    drawn,
    option_names,
    other_value,
    started,
    values_of,
)
from posbuild.conformance.layer import gathered, random, scores
from posbuild.conformance.paper import (
    gathers_in_its_own_way,
    paper_gathered,
    paper_inputs,
    paper_scores,
    reference,
    rows,
)
from posbuild.conformance.rows import assert_gives_row
from posbuild.encodings.base import Encoding
from posbuild.errors import ConfigError

PART = (1, "equals its paper")
pytestmark = pytest.mark.part(PART)

# Places of queries and keys of one row: few enough for a table of the train length.
GEOMETRIES: dict[str, tuple[list[int], list[int]]] = {
    "one token at 0": ([0], [0]),
    "one token at 15": ([15], [15]),
    "in order, an odd length": (list(range(7)), list(range(7))),
    "queries are the last keys": ([4, 5, 6], list(range(7))),
    "unsorted and repeated": ([9, 2, 2, 15, 0], [3, 3, 14, 0, 9, 8]),
    "queries are no keys": ([13, 1], [4, 6, 15]),
    "left padding": ([0, 0, 0, 1, 2], [0, 0, 0, 1, 2]),
}


def assert_equals_paper(
    encoding: Encoding,
    name: str,
    q: Tensor,
    k: Tensor,
    x: Tensor,
    q_positions: Tensor,
    k_positions: Tensor,
    layer: int = 0,
    rtol: float = 1e-11,
    atol: float = 1e-11,
) -> None:
    """Scores, token vectors and what attention gathers against the slow formula; x stands at the query positions.

    1e-11: some hundred roundings of float64, of angles up to 131 072 one of 1.5e-11.
    """
    where, v = (q_positions, k_positions, layer), k.flip(2)
    with torch.no_grad():
        actual = [scores(encoding, q, k, *where), encoding.at_input(x, q_positions)]
        if gathers_in_its_own_way(name):
            actual.append(gathered(encoding, q, k, v, *where))
    assert [each.dtype for each in actual] == [q.dtype, x.dtype, v.dtype][: len(actual)]
    expected = [paper_scores(encoding, name, q, k, *where), paper_inputs(encoding, name, x, q_positions)]
    if gathers_in_its_own_way(name):
        expected.append(paper_gathered(encoding, name, q, k, v, *where))
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def test_every_combination_of_options(case: Case) -> None:
    width = 2 * case.least_width if case.axes == 1 else case.least_width
    encoding = case.build(case.dims(width=width))
    q_positions = torch.cat([case.at(2, 2, 15, 0), case.at(1, 2, 3, 4)])
    k_positions = torch.cat([case.at(3, 3, 14, 0, 9), case.at(5, 4, 3, 15, 5)])
    q, k, x = random(2, 3, 4, width, seed=1), random(2, 3, 5, width, seed=2), random(2, 4, 3 * width, seed=3)
    for layer in (0, 1):
        assert_equals_paper(encoding, case.name, q, k, x, q_positions, k_positions, layer)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("heads", [1, 3, 6, 12])
def test_every_geometry(default: Case, heads: int, geometry: str) -> None:
    q_positions, k_positions = (default.at(*row) for row in GEOMETRIES[geometry])
    queries, keys, width = q_positions.shape[1], k_positions.shape[1], 2 if default.axes == 1 else 8
    q, k = random(1, heads, queries, width, seed=1), random(1, heads, keys, width, seed=2)
    x, encoding = random(1, queries, width * heads), default.build(default.dims(heads, width))
    assert_equals_paper(encoding, default.name, q, k, x, q_positions, k_positions)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 6])
def test_the_smallest_and_odd_widths_or_they_are_refused(default: Case, width: int) -> None:
    size, positions = default.dims(heads=1, width=width), default.at(0, 1, 7)
    if not accepted(default.name, {}, size):
        with pytest.raises(ConfigError, match=rf"\b{width}\b"):
            default.build(size)
        return
    q, x = random(1, 1, 3, width, seed=1), random(1, 3, width, seed=3)
    assert_equals_paper(default.build(size), default.name, q, q, x, positions, positions)


def test_rows_worked_out_by_hand(default: Case) -> None:
    """By the encoding and by the slow formula."""
    found = rows(default.name, "GOLDEN")
    assert found, f"{default.name}: its reference holds no row worked out by hand, GOLDEN"
    for row in found:
        assert_gives_row(default.name, row, 1e-12)


# Options


def test_the_table_of_option_values_covers_every_option(default: Case) -> None:
    """A new option without a second value is one that no test has seen."""
    reference(default.name)
    table = values_of(default.name)
    assert {*table} == option_names(default.name)
    for option, values in table.items():
        assert values[0] == getattr(default.scheme.options(), option), f"{option}: the default comes first"
        every = list(choices_of(default.name, option) or ([False, True] if isinstance(values[0], bool) else []))
        assert len(values) > 1, f"pe.{option} has no second value: give some in VALUES of its reference"
        assert not [each for each in every if each not in values], f"{option}: a value is missing"


def outcome(case: Case) -> tuple[list[Any], list[Tensor]]:
    """Shapes of the parameters, and what an encoding does with them drawn at random and as training finds them."""
    width = 16 if case.axes == 1 else case.least_width
    encoding, found = case.build(case.dims(width=width, layers=6)), []
    near, far = case.at(0, 1, 2, 3, 5, 7, 11, 15), case.at(0, 1, 2, 3, 5, 9, 19, 60 if case.axes == 1 else 26)
    x, q = random(1, 8, 3 * width, seed=3), random(1, 3, 8, width, seed=1)
    with torch.no_grad():
        for set_parameters in (drawn, started):
            set_parameters(encoding)
            found.append(encoding.at_input(x, near))
            for layer in range(6):
                found += [scores(encoding, q, q, positions, positions, layer) for positions in (near, far)]
                found.append(gathered(encoding, q, q, q, far, far, layer))
    return [(key, value.shape) for key, value in encoding.named_parameters()], found


def test_every_option_changes_the_outcome(option: tuple[Case, str]) -> None:
    case, name = option
    others = getattr(reference(case.name), "AT_WORK", {})
    reaching = case.reaching(61) if case.axes == 1 else case
    shapes, found = outcome(reaching._replace(options=reaching.options | others))
    value = other_value(case.name, name)
    other_shapes, other_found = outcome(reaching._replace(options=reaching.options | others | {name: value}))
    same = all(torch.allclose(one, other, atol=1e-6) for one, other in itertools.zip_longest(found, other_found))
    assert shapes != other_shapes or not same, f"pe.{name}={value} changes nothing"
