"""Part 7: in a causal model no token reaches an earlier one: by gradient, by change, by being there at all, with a cache.

The order of the tokens says who is earlier, whatever their positions. The last, that those that follow may be absent, holds
of schemes that are not prefix-stable up to the original length; of texts of one length all of it holds for them, too.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from posbuild.conformance.cases import TRAIN_LENGTH, Case
from posbuild.conformance.models import VOCABULARY, assert_same, model_of, places, room, settled, tokens
from posbuild.model import Transformer

PART = (7, "no future token")
pytestmark = pytest.mark.part(PART)

LENGTH = 24  # beyond the train length
AT = 11  # a token with others before and after it


def vectors_and_logits(model: Transformer, text: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor]:
    """Token vectors, from which gradients can be asked for, and logits."""
    embedded = model.embedding(text).detach().requires_grad_()
    hook = model.embedding.register_forward_hook(lambda *_: embedded)
    logits = model(text, positions)
    hook.remove()
    return embedded, logits


def reach(case: Case, at: int = AT) -> Tensor:
    """How much the output of a token changes with the vector of each, (T,): sizes of gradients."""
    length = room(case, LENGTH)
    embedded, logits = vectors_and_logits(model_of(case), tokens(1, length), places(case, length))
    weights = torch.linspace(-1, 1, VOCABULARY, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(logits[0, at] @ weights, embedded)
    return gradient[0].abs().sum(-1)


def changed(text: Tensor, start: int) -> Tensor:
    """The text with other tokens from a place on."""
    other = text.clone()
    other[:, start:] = (text[:, start:] + 1) % VOCABULARY
    return other


@pytest.mark.where(lambda case: case.causal)
def test_no_gradient_from_an_output_to_a_later_token(case: Case) -> None:
    """Exactly none; and some to the token and the one before it, so that there is something to see."""
    found = reach(case)
    assert not found[AT + 1 :].any(), f"later tokens reach an output, from {int(found[AT + 1 :].argmax())} on after it"
    assert found[AT] > 0 and found[AT - 1] > 0


@pytest.mark.where(lambda case: not case.causal)
def test_in_a_bidirectional_model_later_tokens_do_reach_an_output(direction: Case) -> None:
    """Else the tests here would pass of a mask that is always there, and an encoder would read half of its text."""
    found = reach(direction)
    assert found[AT + 1] > 0 and found[AT - 1] > 0


@pytest.mark.where(lambda case: case.causal)
def test_later_tokens_change_no_earlier_output(case: Case) -> None:
    """To the last bit: a text of the same length goes through the same sums. The outputs from there on do change."""
    model, length = model_of(case), room(case, LENGTH)
    text, where = tokens(1, length), places(case, length)
    with torch.no_grad():
        before, after = model(text, where), model(changed(text, AT), where)
    assert torch.equal(before[:, :AT], after[:, :AT]), "later tokens change earlier outputs"
    assert (before[:, AT] - after[:, AT]).abs().max() > 1e-6


@pytest.mark.where(lambda case: case.causal)
def test_later_positions_change_no_earlier_output(case: Case) -> None:
    """Positions of later tokens in another order, the largest of all left where it was: a text of the same length.

    The fault to catch: distances or counts from the end of the text.
    """
    model, length = model_of(case), room(case, TRAIN_LENGTH)
    text, numbers = tokens(1, length), [*range(length)]
    moved = numbers[:AT] + numbers[AT:-1][::-1] + numbers[-1:]
    with torch.no_grad():
        before, after = model(text, case.at(*numbers)), model(text, case.at(*moved))
    assert torch.equal(before[:, :AT], after[:, :AT]), "positions of later tokens change earlier outputs"


@pytest.mark.where(lambda case: case.causal)
def test_later_tokens_may_be_absent(case: Case) -> None:
    """Up to the original length of schemes that are not prefix-stable; the fault to catch: anything by the length read.

    1e-12: sums over more keys, of which the later are zero, take other paths.
    """
    model, length = model_of(case), settled(case, LENGTH)
    text, where = tokens(1, length), places(case, length)
    with torch.no_grad():
        whole = model(text, where)
        for end in (1, length - 1):
            first = model(text[:, :end], places(case, end))
            assert_same(first, whole[:, :end])


@pytest.mark.where(lambda case: case.causal)
@pytest.mark.parametrize("held", [0, 5])
def test_with_a_cache_later_tokens_of_a_chunk_change_no_earlier_output(direction: Case, held: int) -> None:
    """The fault to catch: a mask by the place in the chunk, not in the text, and keys that are left from another text."""
    model, text = model_of(direction), tokens(1, TRAIN_LENGTH)
    where, found = places(direction, TRAIN_LENGTH), []
    with torch.no_grad():
        for read in (text, changed(text, AT)):
            cache = model.new_cache(1, capacity=TRAIN_LENGTH)
            for part in (slice(0, held), slice(held, None)):
                if read[:, part].shape[1]:
                    logits = model(read[:, part], None if where is None else where[:, part], cache=cache)
            found.append(logits)
    before, after = (each[:, : AT - held] for each in found)
    assert torch.equal(before, after), "later tokens of a chunk change earlier outputs"
    assert (found[0][:, AT - held] - found[1][:, AT - held]).abs().max() > 1e-6


@pytest.mark.where(lambda case: case.causal)
def test_what_a_cache_has_room_for_is_not_seen(default: Case) -> None:
    """Whatever numbers lie in the room that is still free, the largest among them."""
    model, text, where = model_of(default), tokens(1, TRAIN_LENGTH), places(default, TRAIN_LENGTH)
    clean, dirty = model.new_cache(1, capacity=64), model.new_cache(1, capacity=64)
    for each in (dirty.keys_NBGCD, dirty.values_NBGCD):
        each.fill_(float("nan"))
    dirty.positions_BC.fill_(2**40)
    dirty.documents_BC.fill_(3)
    with torch.no_grad():
        for part in (slice(0, 6), slice(6, 7), slice(7, None)):
            now = None if where is None else where[:, part]
            one, other = (model(text[:, part], now, cache=cache) for cache in (clean, dirty))
            assert torch.equal(one, other), "numbers beyond the tokens that a cache holds are read"
