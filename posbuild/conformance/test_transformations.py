"""Part 9: the same result compiled, in two processes, stored and loaded, copied, and whatever was read before."""

from __future__ import annotations

import copy
import functools
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from posbuild import registry
from posbuild.conformance.cases import Case, drawn, started
from posbuild.conformance.layer import attention, random
from posbuild.conformance.models import model_of, places, room, tokens
from posbuild.conformance.processes import Gradients, gradients, in_two_processes
from posbuild.encodings.base import Encoding

PART = (9, "compiled, distributed, stored")
pytestmark = pytest.mark.part(PART)

# What is compiled adds the same float64 numbers of about 1 in another order.
CLOSE = 1e-12


def read(encoding: Encoding, x: Tensor, positions: Tensor) -> Tensor:
    """One layer of attention, the last, whatever it starts with."""
    return attention(encoding, x, positions, encoding.dims.n_layers - 1)


def results(function: Callable[..., Tensor], module: nn.Module, *inputs: Any) -> list[Tensor]:
    """What a function makes of its inputs, and the gradients of that, in one direction, for them and for the parameters."""
    leaves = [each for each in (*inputs, *module.parameters()) if isinstance(each, Tensor) and each.requires_grad]
    found = function(*inputs)
    slopes = torch.autograd.grad((random(*found.shape, seed=9) * found).sum(), leaves)
    return [found.detach(), *slopes]


def assert_same_compiled(encoding: Encoding, case: Case, backend: str, close: float) -> None:
    torch._dynamo.reset()  # all schemes share one function, and so its limit of compilations
    x, positions = random(1, 9, encoding.dims.d_model).requires_grad_(), case.counted(9)
    whole = functools.partial(read, encoding)
    compiled = torch.compile(whole, backend=backend, fullgraph=True)
    for one, other in zip(
        results(compiled, encoding, x, positions), results(whole, encoding, x, positions), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=close, atol=close)


def test_compiled_attention_is_the_same(default: Case) -> None:
    """One layer, values and gradients, in one graph. The faults to catch: what depends on data or breaks the graph, and a
    formula for the compiler alone."""
    assert_same_compiled(default.build(default.dims(layers=1)), default, "aot_eager", CLOSE)


@pytest.mark.slow
def test_a_compiled_model_is_the_same_at_every_length(default: Case) -> None:
    torch._dynamo.reset()
    model = model_of(default)
    # The limits of tables of several axes are asked of the positions themselves.
    whole = default.axes == 1 or not default.ends
    compiled = torch.compile(model, backend="aot_eager", fullgraph=whole)
    for length in sorted({min(each, room(default)) for each in (32, 48, 40)}):
        text, where = tokens(1, length), places(default, length)
        with torch.no_grad():
            torch.testing.assert_close(compiled(text, where), model(text, where), rtol=CLOSE, atol=CLOSE)


def kind(case: Case) -> tuple[Any, ...]:
    """What decides on the path through attention."""
    encoding = case.build()
    positions = case.counted(2)
    bias = encoding.at_scores(positions, positions, 0, encoding.prepare(positions))
    reads_tokens = type(encoding).at_tokens is not Encoding.at_tokens
    return case.scheme.acts_on, type(bias), encoding.keys_change, reads_tokens, case.axes == 1


@functools.cache
def first_of_each_kind() -> list[str]:
    found: dict[tuple[Any, ...], str] = {}
    for name in registry.all_schemes():
        found.setdefault(kind(Case(name)), name)
    return [*found.values()]


@pytest.mark.slow
@pytest.mark.where(lambda case: case.name in first_of_each_kind())
def test_attention_compiled_to_code_is_the_same(default: Case) -> None:
    """By inductor, a scheme of each kind. 1e-9: its own sines and exponentials, of float64 angles."""
    assert_same_compiled(default.build(default.dims(layers=1)), default, "inductor", 1e-9)


# Two processes


@pytest.fixture(scope="module")
def shared_gradients(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By scheme, of all whose tests are asked for: starting two processes takes longer than all models together."""
    asked = [
        found
        for item in request.session.items
        if isinstance(item, pytest.Function) and "shared_gradients" in item.fixturenames
        for found in item.callspec.params.values()
        if isinstance(found, Case)
    ]
    folder: Path = tmp_path_factory.mktemp("processes")
    return in_two_processes(asked, folder)


def test_two_processes_have_the_gradients_of_one(default: Case, shared_gradients: dict[str, Gradients | str]) -> None:
    """Each with half of the batch. The fault to catch: a parameter that is not used, for which all wait in vain."""
    found = shared_gradients[default.name]
    assert not isinstance(found, str), f"two processes: {found}"
    alone = gradients(model_of(default), default, slice(None))
    assert [*found] == [*alone]
    for name, each in alone.items():
        # Means of two halves and of the whole: some roundings of 1e-16, of sums of some hundred terms.
        np.testing.assert_allclose(found[name], each, rtol=1e-10, atol=1e-12, err_msg=name)


# Stored and copied


def assert_same(one: Encoding, other: Encoding, case: Case) -> None:
    x, positions = random(1, 9, one.dims.d_model, seed=3), case.counted(9)
    with torch.no_grad():
        assert torch.equal(read(one, x, positions), read(other, x, positions))


def test_a_stored_state_gives_the_same_bits(case: Case) -> None:
    """Loaded into a fresh encoding, which started otherwise. The fault to catch: numbers that are held beside parameters."""
    encoding, file = case.build(), io.BytesIO()
    torch.save(encoding.state_dict(), file)
    file.seek(0)
    fresh = started(registry.encoding(case.name, case.chosen, case.dims()).double())
    fresh.load_state_dict(torch.load(file, weights_only=True), strict=True)
    assert_same(fresh, encoding, case)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))], ids=["deepcopy", "pickle"]
)
def test_a_copy_gives_the_same_bits_and_shares_nothing(direction: Case, copied: Callable[[Encoding], Encoding]) -> None:
    """Also of an encoding that has read something."""
    encoding = direction.build()
    assert_same(encoding, encoding, direction)
    other = copied(encoding)
    assert_same(other, encoding, direction)
    with torch.no_grad():
        for each in encoding.parameters():
            each.zero_()
    assert_same(other, direction.build(), direction)


def test_a_stored_model_gives_the_same_bits(default: Case) -> None:
    model, file, length = model_of(default), io.BytesIO(), room(default, 20)
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh = drawn(model_of(default), seed=1).eval()
    fresh.load_state_dict(torch.load(file, weights_only=True), strict=True)
    text, where = tokens(2, length), places(default, length)
    with torch.no_grad():
        expected = model(text, where)
        for each in (fresh, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert torch.equal(each(text, where), expected)


# What was read before

SHORT, LONG = 64, 512


def test_lengths_that_were_read_leave_no_trace(direction: Case) -> None:
    """64, 512 and again 64 tokens, and 512 first. The faults to catch: a table that grows, or frequencies that stay those of
    the longest text; anything that lies in a buffer and depends on what was read."""
    case = direction.reaching(LONG if direction.axes == 1 else LONG // 4)
    one, other = (case.build(case.dims(heads=1, layers=1)) for _ in range(2))
    before = pickle.dumps(one)
    x = random(1, LONG, one.dims.d_model, seed=3)

    def after(encoding: Encoding, length: int) -> Tensor:
        with torch.no_grad():
            return read(encoding, x[:, :length], case.counted(length))

    short, long, again = (after(one, length) for length in (SHORT, LONG, SHORT))
    assert torch.equal(short, again), "a longer text has left a trace"
    assert torch.equal(after(other, LONG), long), "a shorter text has left a trace"
    assert torch.equal(after(other, SHORT), short), "a longer text has left a trace"
    assert not [*one.named_buffers()], "an encoding has no buffers: a cast of the model would round them"
    assert pickle.dumps(one) == before, "reading has changed the encoding"
