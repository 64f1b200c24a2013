"""Part 8: gradients are those of the paper and reach everything that a scheme learns; its options say what that is."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posbuild import registry
from posbuild.conformance.cases import TRAIN_LENGTH, Case, drawn, started
from posbuild.conformance.layer import attention, gathered, random, scores, visible
from posbuild.conformance.models import model_of, places, room, tokens
from posbuild.conformance.paper import known_reference, paper_gathered, paper_inputs, paper_scores
from posbuild.encodings.base import Encoding
from posbuild.model import init_parameters
from posbuild.settings import OptimSettings, plain
from posbuild.settings import options_of as options_from
from posbuild.training.module import parameter_groups

PART = (8, "gradients and parameters")
pytestmark = pytest.mark.part(PART)

STEP = 1e-5  # of central differences: off by its square, 1e-10, times the third derivative
learning = pytest.mark.where(lambda case: case.chosen.has_parameters())
# head, then output projections, then what feeds attention; two more where a scheme has a zero start of its own.
STEPS = 5


def slope(function: Callable[[], float], tensor: Tensor, direction: Tensor) -> float:
    """The change of a function as a tensor is moved in place, by central differences."""
    kept, ends = tensor.detach().clone(), []
    for sign in (1, -1):
        tensor.detach().copy_(kept + sign * STEP * direction)
        ends.append(function())
    tensor.detach().copy_(kept)
    return (ends[0] - ends[1]) / (2 * STEP)


def test_gradients_are_those_of_the_paper(case: Case) -> None:
    """Autograd through the encoding against central differences of the slow formula: of queries, keys, values, token
    vectors and parameters, along directions drawn at random.

    The faults to catch: a `detach`, a table that is read under `no_grad`, rounding or clamping that stops a gradient.
    """
    encoding, positions = case.build(case.dims(heads=1, layers=1)), case.at(1, 11)
    width = case.least_width
    q, k, v, x = (
        random(*shape, seed=seed).requires_grad_()
        for seed, shape in enumerate([(1, 1, 2, width)] * 3 + [(1, 2, width)])
    )
    found = [
        scores(encoding, q, k, positions, positions, x=x),
        gathered(encoding, q, k, v, positions, positions, x=x),
        encoding.at_input(x, positions),
    ]
    weights = [random(*each.shape, seed=5) for each in found]
    torch.stack([(weight * each).sum() for weight, each in zip(weights, found, strict=True)]).sum().backward()

    def paper() -> float:
        parts = [
            paper_scores(encoding, case.name, q, k, positions, positions, x=x),
            paper_gathered(encoding, case.name, q, k, v, positions, positions, x=x),
            paper_inputs(encoding, case.name, x, positions),
        ]
        return float(sum((weight.numpy() * part).sum() for weight, part in zip(weights, parts, strict=True)))

    learned = dict(encoding.named_parameters())
    for name, tensor in ({"queries": q, "keys": k, "values": v, "token vectors": x} | learned).items():
        for seed in (10, 11):  # no wrong number is at right angles to both
            direction = random(*tensor.shape, seed=seed) / tensor.numel() ** 0.5
            actual = 0.0 if tensor.grad is None else float((tensor.grad * direction).sum())
            # 1e-8: third derivatives of some 100 times 1e-10, and roundings of 1e-16 over the step.
            np.testing.assert_allclose(
                actual, slope(paper, tensor, direction), rtol=1e-7, atol=1e-8, err_msg=f"the gradient of {name}"
            )


def test_gradients_of_whole_attention_are_its_own_slope(direction: Case) -> None:
    """In each layer, of several heads and more tokens than the slow formula is asked for: `gradcheck` in float64, which
    also asks for the same bits at every call."""
    encoding, positions = direction.build(direction.dims(heads=2)), direction.counted(5)
    x = random(1, 5, encoding.dims.d_model).requires_grad_()

    def read(x: Tensor, *learned: Tensor) -> Tensor:
        return torch.cat([attention(encoding, x, positions, layer) for layer in (0, 1)])

    # Central differences of values near 1: roundings of 1e-16 over the step are 1e-10, times the numbers that are added.
    assert torch.autograd.gradcheck(read, (x, *encoding.parameters()), eps=1e-6, rtol=1e-6, atol=1e-7, fast_mode=True)


def outcome(case: Case, encoding: Encoding) -> Tensor:
    """A number that depends on all that one encoding does in all of its layers, weighed at random."""
    x, where = random(1, 9, encoding.dims.d_model), case.counted(9)
    vectors = encoding.at_input(x, where)
    heads = vectors.unflatten(-1, (encoding.dims.n_heads, -1)).transpose(1, 2)
    found = [vectors]
    for layer in range(encoding.dims.n_layers):
        seen = torch.from_numpy(visible(encoding, 9, 9))
        found.append(scores(encoding, heads, heads, where, where, layer).where(seen, 0))
        found.append(gathered(encoding, heads, heads, heads, where, where, layer))
    return torch.stack([(random(*each.shape, seed=7) * each).sum() for each in found]).sum()


@learning
def test_every_parameter_is_used(case: Case) -> None:
    """The fault to catch: a parameter that some option leaves idle, which distributed training refuses."""
    encoding = case.build()
    outcome(case, encoding).backward()
    learned = encoding.named_parameters()
    idle = [name for name, each in learned if each.grad is None or each.grad.abs().max() < 1e-9]
    assert not idle, f"no gradient reaches {', '.join(idle)}: leave it out with these options"


@learning
def test_every_parameter_leaves_its_start(case: Case) -> None:
    """Two steps of SGD from the start of training. The fault to catch: two factors that both start at zero, of which
    neither ever moves."""
    encoding = started(case.build())
    learned = dict(encoding.named_parameters())
    before = {name: each.detach().clone() for name, each in learned.items()}
    for _ in range(2):
        encoding.zero_grad()
        outcome(case, encoding).backward()
        with torch.no_grad():
            for each in learned.values():
                assert each.grad is not None and each.grad.isfinite().all()
                each.sub_(1e-3 * each.grad)
    still = [name for name, each in learned.items() if (each.detach() - before[name]).abs().max() < 1e-9]
    assert not still, f"{', '.join(still)} does not move from the start"


# In a model


def loss(case: Case, model: nn.Module) -> Tensor:
    length = room(case, TRAIN_LENGTH)
    text = tokens(2, length + 1)
    logits = model(text[:, :-1], places(case, length))
    return F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


@learning
def test_every_parameter_of_a_model_gets_a_gradient(case: Case) -> None:
    model = model_of(case)
    loss(case, model).backward()
    learned = model.named_parameters()
    assert [name for name, each in learned if each.grad is None or not each.grad.any()] == []


def test_every_parameter_of_a_model_leaves_its_start(direction: Case) -> None:
    """The start of training has zeros of its own: the output projections and the head."""
    model = model_of(direction)
    init_parameters(model, seed=0)
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(direction, model).backward()
        optimizer.step()
    stayed = [name for name, each in model.named_parameters() if torch.equal(each, before[name])]
    # A number added to all scores of a query moves by roundings alone, if at all: that scores depend on it is asked above.
    assert [name for name in stayed if not name.startswith("encoding.")] == []


@pytest.mark.parametrize("tied", [False, True])
def test_each_parameter_is_in_one_group(direction: Case, tied: bool) -> None:
    """What the scheme learns has a rate of its own and no decay, matrices and vectors alike."""
    model, optim, own = model_of(direction), OptimSettings(weight_decay=0.5), 7.0
    if tied:
        model.head.weight = model.embedding.weight
    groups = {group["name"]: group for group in parameter_groups(model, optim, own)}
    placed = [id(each) for group in groups.values() for each in group["params"]]
    assert sorted(placed) == sorted(id(each) for each in model.parameters())
    encoding = groups.pop("encoding", {"params": [], "lr": optim.lr * own, "weight_decay": 0.0})
    assert {*map(id, encoding["params"])} == {*map(id, model.encoding.parameters())}
    assert encoding["weight_decay"] == 0.0 and encoding["lr"] == optim.lr * own
    assert all(group["lr"] == optim.lr for group in groups.values())
    decaying = {id(each) for each in groups["matrices"]["params"]}
    assert decaying == {id(each) for each in model.blocks.parameters() if each.ndim >= 2}
    assert (groups["matrices"]["weight_decay"], groups["rest"]["weight_decay"]) == (0.5, 0.0)


# What options say of it


def test_whether_it_learns_is_declared(case: Case) -> None:
    learned, chosen = [*case.build().parameters()], case.chosen
    assert bool(learned) == chosen.has_parameters(), "has_parameters() of the options says otherwise"
    if case.scheme.learns == "nothing":
        assert not learned, 'the declaration says learns="nothing"'


def test_a_scheme_that_learns_with_some_options_does_not_say_nothing(default: Case) -> None:
    """And what it says of its default options begins with "nothing" if they learn nothing."""
    assert default.scheme.learns.startswith("nothing") != bool([*default.build().parameters()])


def test_resolved_options_give_the_same_encoding(case: Case) -> None:
    """With all that depends on the model written out, in words that a file keeps, and nothing left to resolve.

    At positions that grow, as those of a text do: of others a causal mask makes no two forms of a bias equal.
    """
    size, chosen = case.dims(heads=2, width=max(8, case.least_width)), case.chosen
    resolved = options_from(case.name, plain(chosen.resolved(size)))
    assert resolved.resolved(size) == resolved
    unset = {key for key, value in plain(resolved).items() if value is None}
    unset -= {*getattr(known_reference(case.name), "NULL_IS_NONE", [])}
    assert not unset, f"resolved() leaves {', '.join(unset)} to the model"
    one, other = (drawn(registry.encoding(case.name, each, size)).double() for each in (chosen, resolved))
    assert [(key, each.shape) for key, each in one.named_parameters()] == [
        (key, each.shape) for key, each in other.named_parameters()
    ]
    near, far = case.at(0, 1, 2, 3, 4), case.at(0, 2, 6, 13, 15)
    q, x = random(1, 2, 5, size.head_dim, seed=1), random(1, 5, size.d_model, seed=3)
    with torch.no_grad():
        for positions, layer in itertools.product((near, far), (0, 1)):
            assert torch.equal(*(gathered(each, q, q, q, positions, positions, layer) for each in (one, other)))
            assert torch.equal(*(each.at_input(x, positions) for each in (one, other)))
