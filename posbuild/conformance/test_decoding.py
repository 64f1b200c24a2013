"""Part 5: a text read in pieces through the cache gives what it gives read at once, with every option and at any length.

Where a scheme turns all keys anew as the text grows that cannot be: it declares prefix_stable=False, and then this holds of
the newest tokens alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import pytest
import torch

from posbuild import show
from posbuild.conformance.cases import TRAIN_LENGTH, Case, values_of
from posbuild.conformance.models import assert_same, decoded, model_of, places, settled, tokens
from posbuild.training.facts import model_facts

PART = (5, "cached decoding")
pytestmark = pytest.mark.part(PART)

FAR = 5 * TRAIN_LENGTH  # beyond every window, original length, last bucket and largest distance of the cases
CHANGED = 1e-3  # of logits of about 1: no rounding


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.mark.where(lambda case: case.causal)
def test_decoding_with_every_combination_of_options(case: Case) -> None:
    """Five times the train length, or as far as the tables of the scheme go; query heads share key heads by two.

    The faults to catch: positions of a chunk counted from 0, a bias of the new tokens alone, a switch by the length of a
    chunk.
    """
    model, length = model_of(case), settled(case, FAR)
    text, where = tokens(2, length), places(case, length)
    assert_same(decoded(model, text, 7, where), model(text, where))


@pytest.mark.parametrize("chunk", [1, 33])
def test_decoding_in_chunks(default: Case, chunk: int) -> None:
    """Three times the train length, by tables as long: a token at a time, and chunks longer than the train length."""
    case = default.reaching(3 * TRAIN_LENGTH)
    model, length = model_of(case), settled(case)
    text, where = tokens(2, length), places(case, length)
    assert_same(decoded(model, text, chunk, where), model(text, where))


@pytest.mark.parametrize("key_heads", [1, 4])
def test_decoding_with_one_key_head_and_with_as_many_as_query_heads(default: Case, key_heads: int) -> None:
    model, length = model_of(default, key_heads=key_heads), min(20, settled(default, 20))
    text, where = tokens(2, length), places(default, length)
    assert_same(decoded(model, text, 2, where), model(text, where))


@pytest.mark.parametrize("chunk", [1, 5])
def test_decoding_at_positions_of_each_row_in_any_order(default: Case, chunk: int) -> None:
    """The cache notes the positions of both rows as it grows from room for two tokens.

    The fault to catch: keys taken to lie at 0, 1, 2, ..., or both rows at the places of the first.
    """
    model, text = model_of(default), tokens(2, TRAIN_LENGTH)
    orders = [torch.randperm(TRAIN_LENGTH, generator=torch.Generator().manual_seed(seed)).tolist() for seed in (1, 2)]
    positions = torch.cat([default.at(*order) for order in orders])
    cache = model.new_cache(2, capacity=2)
    found = decoded(model, text, chunk, positions, cache=cache)
    assert_same(found, model(text, positions))
    assert torch.equal(cache.positions_BC[:, :TRAIN_LENGTH], positions)


@pytest.mark.where(lambda case: not case.ends)
def test_decoding_far_from_the_start(default: Case) -> None:
    """From position 100 000 on, where factors of the position have overflown and angles formed in float32 are off."""
    model, text = model_of(default, layers=1), tokens(2, 40)
    positions = default.counted(40, shift=100_000)
    if not default.scheme.prefix_stable:  # all in one length: the first token is the last in place
        positions = positions.flip(1)
    # An angle of 1e5 has a rounding of 1.5e-11.
    assert_same(decoded(model, text, 7, positions), model(text, positions), atol=1e-9)


# Texts that grow


def test_a_prefix_stays_as_it_is_as_declared(default: Case) -> None:
    """Beyond the train length the outputs of the first tokens change with those that follow exactly where that is declared.

    The fault to catch: frequencies by the length that is read, in a scheme that does not say so.
    """
    case = default.reaching(3 * TRAIN_LENGTH)
    model, text, where = model_of(case), tokens(2, 3 * TRAIN_LENGTH), places(case, 3 * TRAIN_LENGTH)
    whole = model(text, where)
    stable, original = case.scheme.prefix_stable, settled(case, TRAIN_LENGTH)
    for length in (1, original, 2 * TRAIN_LENGTH) if stable else (original,):
        apart = float((model(text[:, :length], places(case, length)) - whole[:, :length]).abs().max())
        assert (apart < 1e-12) if stable else (apart > CHANGED), (
            f"prefix_stable={stable} is declared, and read in a longer text the first {length} outputs change by {apart}"
        )


@pytest.mark.where(lambda case: case.causal and not case.scheme.prefix_stable)
@pytest.mark.parametrize("chunk", [1, 7])
def test_a_decoded_token_sees_keys_as_they_are_in_a_text_as_long_as_now(case: Case, chunk: int) -> None:
    """One layer, so that what earlier tokens put out plays no part: each chunk is what a pass over the text so far gives.

    The fault to catch: a cache of keys turned for the length at which they came (transformers, vLLM and llama.cpp).
    """
    model, text, read = model_of(case, layers=1), tokens(2, 2 * TRAIN_LENGTH), 0
    cache, where = model.new_cache(2, capacity=5), places(case, 2 * TRAIN_LENGTH)
    for part in text.split(chunk, dim=1):
        now = slice(read, read + part.shape[1])
        read = now.stop
        whole = model(text[:, :read], None if where is None else where[:, :read])
        step = model(part, None if where is None else where[:, now], cache=cache)
        assert_same(step, whole[:, now])


def test_what_is_declared_of_growing_texts_is_shown_and_stands_in_the_record_of_a_run(default: Case) -> None:
    """So that whoever serves a model knows whether decoding it gives what it was measured with."""
    model, stable = model_of(default), default.scheme.prefix_stable
    assert model.encoding.keys_change == (not stable), "keys change as a text grows just where prefix_stable=False"
    assert model_facts(model, default.scheme)["prefix_stable"] is stable
    assert (
        "decoding     gives what reading the whole text at once gives" in show.description(default.scheme)
    ) == stable


@pytest.mark.where(lambda case: not case.causal)
def test_a_bidirectional_model_has_no_cache(direction: Case) -> None:
    """Earlier tokens would have to see later ones."""
    model = model_of(direction)
    with pytest.raises(ValueError, match="causal models only"):
        model(tokens(1, 2), places(direction, 2), cache=model.new_cache(1))


def test_every_length_among_the_options_has_a_value_within_the_texts_that_are_decoded(default: Case) -> None:
    """A window, an original length or a largest distance beyond them would be a switch that no test goes across."""
    for item in fields(default.scheme.options):
        found = [TRAIN_LENGTH if each is None else each for each in values_of(default.name)[item.name]]
        if item.metadata["unit"] == "tokens":
            assert min(found) < FAR, f"pe.{item.name}={found}: give it a value below {FAR} in VALUES of its reference"
