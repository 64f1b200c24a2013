"""Part 3: scores know the distance alone where that is declared, and the order of the tokens reaches the output."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from posbuild.conformance.cases import TRAIN_LENGTH, Case
from posbuild.conformance.layer import attention, gathered, random, scores, weights
from posbuild.conformance.models import model_of, tokens
from posbuild.conformance.paper import known_reference, marked, needs_checkout
from posbuild.conformance.test_paper import assert_equals_paper
from posbuild.encodings.base import Encoding
from posbuild.errors import ConfigError

PART = (3, "shifts and order")
pytestmark = pytest.mark.part(PART)

FURTHEST = 131_071
LAYERS = 3  # some schemes leave out every second layer, or all but every fourth from the first on
SAME = 1e-12  # sums of some ten float64 numbers near 1 in another order
SHIFTS = (1, 100_000)
# Angles at 100 000 are rounded by 1.5e-11 each, of which two meet in a distance; scores are some ten products of these.
SHIFTED = 1e-9


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def built(case: Case, dtype: torch.dtype = torch.float64) -> Encoding:
    """Wide enough that a scheme has fast and slow channels of each axis."""
    return case.build(case.dims(width=8 if case.axes == 1 else 24, layers=LAYERS), dtype)


def block(case: Case, side: int) -> Tensor:
    """So many tokens in a row, or row by row the square or cube of this side, (1, T) or (1, T, axes)."""
    if case.axes == 1:
        return torch.arange(side)[None]
    return torch.cartesian_prod(*[torch.arange(side)] * case.axes)[None]


def along(case: Case, axis: int, shift: int) -> Tensor:
    """What is added to a place to move it along one axis."""
    return shift * F.one_hot(torch.tensor(axis), case.axes) if case.axes > 1 else torch.tensor(shift)


def layers_of(encoding: Encoding, x: Tensor, positions: Tensor) -> Tensor:
    """What each layer by itself makes of token vectors, (layers, B, T, M)."""
    return torch.stack([attention(encoding, x, positions, layer) for layer in range(encoding.dims.n_layers)])


def apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


# Shifts


def knows_distance_alone(case: Case) -> bool:
    """By the declaration, or with some options by the reference."""
    constant = "NOT_SHIFT_INVARIANT" if case.scheme.shift_invariant else "SHIFT_INVARIANT"
    return marked(case.name, constant, case.options) != case.scheme.shift_invariant


def within(case: Case, encoding: Encoding, reach: int, shifts: tuple[int, ...]) -> list[int]:
    """The shifts after which tokens at positions below `reach` still stand within the tables of the scheme."""
    sizes = encoding.options.sizes(encoding.dims)
    found = [each for each in shifts if sizes is None or reach + each <= min(sizes)]
    assert found, f"the tables of {case} are too small for any shift here"
    return found


def read(encoding: Encoding, x: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Scores and what is gathered, in each layer: what is added to a whole row of scores shows in the first alone."""
    heads = x.unflatten(-1, (encoding.dims.n_heads, -1)).transpose(1, 2)
    return [
        (scores(encoding, heads, heads, positions, positions, layer), attention(encoding, x, positions, layer))
        for layer in range(encoding.dims.n_layers)
    ]


def moved(one: list[tuple[Tensor, Tensor]], other: list[tuple[Tensor, Tensor]]) -> float:
    return max(apart(*pair) for layers in zip(one, other, strict=True) for pair in zip(*layers, strict=True))


@pytest.mark.where(lambda case: knows_distance_alone(case))
def test_what_knows_the_distance_alone_is_the_same_further_on(case: Case) -> None:
    """Token vectors stay as they came, and scores and what is gathered the same, along each axis and far away."""
    needs_checkout(case.name)
    encoding, here = built(case), block(case, 9 if case.axes == 1 else 2)
    x = random(1, here.shape[1], encoding.dims.d_model, seed=1)
    assert encoding.at_input(x, here) is x, "what is done to token vectors depends on where they stand"
    plain, shifts = read(encoding, x, here), within(case, encoding, int(here.max()) + 1, SHIFTS)
    for axis, shift in itertools.product(range(case.axes), shifts):
        change = moved(plain, read(encoding, x, here + along(case, axis, shift)))
        assert change < SHIFTED, f"{shift} further on along axis {axis}: declare shift_invariant=False, or mend it"


def group(case: Case) -> int:
    """The shifts that change nothing are multiples of this; 0: there are none."""
    for given, option in getattr(known_reference(case.name), "SHIFT_INVARIANT_BY", []):
        if given.items() <= {key: getattr(value, "name", value) for key, value in case.options.items()}.items():
            return int(case.options[option])
    return 0


@pytest.mark.where(lambda case: not knows_distance_alone(case))
def test_what_does_not_is_not(case: Case) -> None:
    """Along each axis. Further on by 3 tokens where a table ends, else by 3 train lengths, beyond which some change, and a
    token, for some count in groups; by whole groups nothing changes where the reference says so."""
    needs_checkout(case.name)
    encoding, here = built(case), block(case, 9 if case.axes == 1 else 2)
    x = random(1, here.shape[1], encoding.dims.d_model, seed=1)
    plain, shift = read(encoding, x, here), 3 if case.ends else 3 * TRAIN_LENGTH + 1
    for axis in range(case.axes):
        change = moved(plain, read(encoding, x, here + along(case, axis, shift)))
        assert change > 1e-5, f"axis {axis}: declare shift_invariant=True, or look where positions are lost"
    for times in (1, 10_000) if group(case) else ():
        assert moved(plain, read(encoding, x, here + times * group(case))) < SHIFTED, f"{times} groups further on"


@pytest.mark.where(lambda case: knows_distance_alone(case))
def test_shift_invariance_in_float32_does_not_wear_off(direction: Case) -> None:
    """At 100 000 tokens within 2e-6, some roundings of float32 scores: tables formed in bf16 are off by 0.1 at 4096."""
    needs_checkout(direction.name)
    encoding, here = built(direction, torch.float32), block(direction, 9 if direction.axes == 1 else 2)
    q = random(1, 3, here.shape[1], encoding.dims.head_dim, seed=1, dtype=torch.float32)
    there = here + within(direction, encoding, int(here.max()) + 1, SHIFTS)[-1]
    for layer in range(LAYERS):
        one, other = (scores(encoding, q, q, at, at, layer) for at in (here, there))
        torch.testing.assert_close(other, one, rtol=0, atol=2e-6)


def test_a_whole_model_further_on(direction: Case) -> None:
    """Logits are the same only where the distance is all that counts. The fault to catch: a second place in the model where
    positions are read, such as a count from the first token."""
    needs_checkout(direction.name)
    case = direction.reaching(600) if direction.axes == 1 else direction
    model, here = model_of(case), case.counted(TRAIN_LENGTH if case.axes == 1 else 8)
    text, sizes = tokens(2, here.shape[1]), case.chosen.sizes(case.dims())
    shift = 500 if sizes is None or case.axes == 1 else min(sizes) - int(here.max()) - 1
    change = apart(model(text, here + shift), model(text, here))
    # Angles at 500 are rounded by 6e-14, and two layers of logits near 1 add some hundred of them.
    assert change < 1e-10 if knows_distance_alone(case) else change > 1e-3, change


# Order


def test_the_order_of_earlier_tokens_reaches_the_last(case: Case) -> None:
    """In one layer, where what a causal mask hides cannot tell: over all tokens before the last it hides nothing. Some
    schemes act in some layers only. The fault to catch: a scheme that is forgotten in attention."""
    encoding, here, found = built(case), case.counted(9), []
    x = random(1, 9, encoding.dims.d_model)
    for each in (x, x[:, [3, 0, 7, 4, 1, 6, 2, 5, 8]]):
        vectors = encoding.at_input(each, here)
        vectors = 0.3 * vectors / vectors.std()  # small: else all weights are near 0 or 1
        heads = vectors.unflatten(-1, (encoding.dims.n_heads, -1)).transpose(1, 2)
        layers = range(LAYERS)
        found.append(
            torch.stack([gathered(encoding, heads, heads, heads, here, here, n, vectors)[:, :, -1] for n in layers])
        )
    change = apart(*found)
    if case.scheme.orderless:
        assert change < SAME, "declared orderless, and the order of the tokens before it changes the output of the last"
    else:
        assert change > 1e-6, "the order of the tokens before it does not change the output of the last in any layer"


def test_identical_tokens_are_told_apart(case: Case) -> None:
    """By their vectors or by the weights that the last gives them, in each head. The fault to catch: one row of a table at
    every position, or a bias that is forgotten."""
    encoding, here = built(case), block(case, TRAIN_LENGTH if case.axes == 1 else 3)
    x = encoding.at_input(random(1, 1, encoding.dims.d_model).expand(1, here.shape[1], -1), here)
    heads = x.unflatten(-1, (encoding.dims.n_heads, -1)).transpose(1, 2)
    found = torch.stack([weights(encoding, heads, heads, here, here, layer, x)[0, :, -1] for layer in range(LAYERS)])
    spread = (found.amax(-1) - found.amin(-1)).amax(0)
    if case.scheme.orderless:
        assert spread.max() < SAME, "declared orderless, and identical tokens are told apart"
    else:
        assert spread.min() > 1e-9, f"heads that weigh identical tokens alike: {(spread <= 1e-9).nonzero().flatten()}"


@pytest.mark.where(lambda case: case.axes > 1)
def test_each_axis_is_told_apart(case: Case) -> None:
    """Of identical tokens at the corners of a square in each plane. The fault to catch: an axis that is forgotten, or two
    that are added up, so that the corners on its diagonal are one place."""
    encoding = built(case)
    x, q = random(1, 1, encoding.dims.d_model), random(1, 3, 1, encoding.dims.head_dim)
    for first, second in itertools.combinations(range(case.axes), 2):
        corners = torch.zeros(1, 4, case.axes, dtype=torch.int64)
        corners[0, [1, 3], first] = corners[0, [2, 3], second] = 1
        keys = q.expand(-1, -1, 4, -1)
        found = [encoding.at_input(x.expand(1, 4, -1), corners + 2)[0]]
        found += [
            scores(encoding, q, keys, corners[:, :1] + 2, corners + 2, layer)[0, :, 0].T for layer in range(LAYERS)
        ]
        told = [sum(apart(each[i], each[j]) for each in found) for i, j in itertools.combinations(range(4), 2)]
        assert min(told) > 1e-10, f"axes {first} and {second}"  # the slowest pairs turn by 1e-5, in scores its square


@pytest.mark.where(lambda case: not case.causal)
def test_tokens_in_another_order_with_their_positions_give_the_same(case: Case) -> None:
    """Without a mask position alone says where a token is, unless the options say that it goes by the order of the tokens
    or by those beside one in the row. The fault to catch: a place in the row in place of a position."""
    needs_checkout(case.name)
    encoding, here, order = built(case), case.counted(9), torch.tensor([3, 0, 7, 4, 1, 8, 6, 2, 5])
    x = random(1, 9, encoding.dims.d_model)
    change = apart(layers_of(encoding, x[:, order], here[:, order]), layers_of(encoding, x, here)[:, :, order])
    by_row = not case.chosen.reads_positions() or marked(case.name, "BY_NEIGHBOURS", case.options)
    if case.scheme.orderless or not by_row:
        assert change < SAME, "the order in which tokens stand in the row makes a difference beside their positions"
    else:
        assert change > 1e-6, "it does not go by the order of the tokens: see reads_positions() and BY_NEIGHBOURS"


@pytest.mark.where(lambda case: not case.causal)
def test_left_and_right_in_a_bidirectional_model(case: Case) -> None:
    """Tokens in mirrored order along an axis give the outputs so mirrored exactly where a scheme cannot tell left from
    right (BLIND_TO_SIDES of its reference). The fault to catch: |i - j| in place of i - j."""
    needs_checkout(case.name)
    encoding, here = built(case), block(case, 16 if case.axes == 1 else 3)
    x, side = random(1, here.shape[1], encoding.dims.d_model), int(here.max()) + 1
    outputs = layers_of(encoding, x, here)
    for axis in range(case.axes):
        mirror = torch.arange(here.shape[1]).view([side] * case.axes).flip(axis).flatten()
        change = apart(layers_of(encoding, x[:, mirror], here), outputs[:, :, mirror])
        if marked(case.name, "BLIND_TO_SIDES", case.options):
            assert change < SAME, f"axis {axis}: BLIND_TO_SIDES of its reference says that sides make no difference"
        else:
            assert change > 1e-6, f"axis {axis}: left and right are alike; if so, say so in BLIND_TO_SIDES"


# Lengths


@pytest.mark.where(lambda case: case.causal)
def test_longer_inputs_leave_the_first_rows_as_they_were(direction: Case) -> None:
    """Lengths 1, L, L + 1, 2 L and 16 L; the fault to catch: a table shorter than the input, or rebuilt with other values.

    Schemes that are not prefix-stable: up to the train length, and not beyond.
    """
    lengths = (1, TRAIN_LENGTH, TRAIN_LENGTH + 1, 2 * TRAIN_LENGTH, 16 * TRAIN_LENGTH)
    case, stable = direction.reaching(lengths[-1]), direction.scheme.prefix_stable
    encoding = case.build()
    x, stable_to = random(1, lengths[-1], encoding.dims.d_model), lengths[-1] if stable else TRAIN_LENGTH
    read = {length: attention(encoding, x[:, :length], case.counted(length)) for length in lengths}
    for length in lengths:
        shorter, longer = (read[each] for each in sorted((length, stable_to)))
        longer = longer[:, : shorter.shape[1]]
        if length <= stable_to:  # sums over more keys, of which the later are zero, take other paths
            torch.testing.assert_close(shorter, longer, rtol=1e-10, atol=1e-10)
        else:
            assert apart(longer, shorter) > 1e-3, f"{length} tokens: declare prefix_stable=True"


def test_what_is_declared_of_lengths(case: Case) -> None:
    """A scheme without sizes reads far positions; one with them reads the last of each axis, unlike the one before it, and
    by itself refuses the next and those before 0: the fault to catch is the row of another place."""
    encoding = built(case)
    sizes, longest = encoding.options.sizes(encoding.dims), encoding.options.longest(encoding.dims)
    assert sizes is None or len(sizes) == case.axes, "sizes() has a number for each axis"
    assert longest == (None if sizes is None else math.prod(sizes)), "longest() and sizes() differ"
    last = torch.tensor(sizes or [FURTHEST + 1] * case.axes) - 1
    x = random(1, 2, encoding.dims.d_model)

    def read(*at: Tensor) -> Tensor:
        positions = torch.stack(at)[None]
        return layers_of(encoding, x, positions if case.axes > 1 else positions[..., 0])

    assert read(last * 0, last).isfinite().all(), f"not finite at position {last.tolist()}"
    for axis in range(case.axes if sizes else 0):
        step = F.one_hot(torch.tensor(axis), case.axes)
        assert apart(read(last * 0, last), read(last * 0, last - step)) > 1e-9, "the last two positions are one"
        for within, beyond in ((last * 0, last + step), (last, last * (1 - step) - step)):
            with pytest.raises((IndexError, ConfigError)):
                read(within, beyond)


# What a position is


def test_position_numbers_matter_unless_the_options_say_that_order_alone_does(case: Case) -> None:
    """The fault to catch: tokens counted where positions are given, or the other way round."""
    encoding, x = built(case), random(1, 9, 3 * (8 if case.axes == 1 else 24))
    plain, others = (layers_of(encoding, x, case.at(*row)) for row in (range(9), [0, 1, 3, 4, 6, 7, 10, 11, 15]))
    if case.chosen.reads_positions():
        assert apart(others, plain) > 1e-9, "positions make no difference: reads_positions() is to be False"
    else:
        assert torch.equal(others, plain), "positions make a difference: reads_positions() is to be True"


@pytest.mark.where(lambda case: case.chosen.takes_fractions())
def test_fractions_are_positions_where_no_table_is_looked_up(case: Case) -> None:
    """As positions=cape numbers tokens: whole numbers as floats are the same positions, and halves are what the formula
    makes of them. The fault to catch: positions that are made whole."""
    encoding, here = built(case), case.counted(9)
    q, k = (random(1, 3, 9, encoding.dims.head_dim, seed=seed) for seed in (1, 2))
    x = random(1, 9, encoding.dims.d_model, seed=3)
    whole, floats = (attention(encoding, x, each) for each in (here, here.double()))
    torch.testing.assert_close(floats, whole, rtol=SAME, atol=SAME)
    assert_equals_paper(encoding, case.name, q, k, x, here.double() / 2, here.double() / 2)
