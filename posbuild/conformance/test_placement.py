"""Part 6: what a text gives does not depend on what stands beside it, around it, or in which order it is written down."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from posbuild.conformance.cases import Case
from posbuild.conformance.layer import attention, gathered, random, scores
from posbuild.conformance.models import VOCABULARY, assert_same, decoded, model_of, places, settled, tokens
from posbuild.conformance.paper import marked, paper_gathered

PART = (6, "padding, packing and places")
pytestmark = pytest.mark.part(PART)

TEXT = 10  # tokens
LAYER = 1e-12  # of scores in the hundreds by networks drawn at random: some hundred roundings of float64


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def joined(case: Case, *rows: list[tuple[int, int]]) -> tuple[Tensor | None, Tensor]:
    """Positions and documents of rows, each of some (tokens, document) one after another; -1 is padding, which stands at 0."""
    documents = torch.tensor([[name for length, name in row for _ in range(length)] for row in rows])
    if case.axes == 1:
        return None, documents  # the model counts in each document
    positions = [
        torch.cat([case.at(*[0] * length) if name == -1 else case.counted(length) for length, name in row], dim=1)
        for row in rows
    ]
    return torch.cat(positions), documents


# Padding


def test_padding_with_every_combination_of_options(case: Case) -> None:
    """On the left, and on the right, of one batch. The faults to catch: positions counted from the padding, and padding
    that is counted as keys.
    """
    model, text, fill = model_of(case, layers=1), tokens(1, TEXT), tokens(1, 6, seed=1)
    alone = model(text, places(case, TEXT))
    positions, documents = joined(case, [(6, -1), (TEXT, 0)], [(TEXT, 0), (6, -1)])
    rows = torch.cat([torch.cat([fill, text], dim=1), torch.cat([text, fill], dim=1)])
    left, right = model(rows, positions, documents)
    assert_same(left[6:], alone[0])
    assert_same(right[:TEXT], alone[0])


@pytest.mark.parametrize("amount", [1, 30])
def test_any_amount_and_any_filler(direction: Case, amount: int) -> None:
    """Whatever the id of the filler, a token of the text among them, and also where the padding is longer than all that
    the scheme was built for."""
    model, text = model_of(direction), tokens(1, TEXT)
    alone = model(text, places(direction, TEXT))
    for filler in (0, int(text[0, 4]), VOCABULARY - 1):
        fill = torch.full((1, amount), filler)
        positions, documents = joined(direction, [(amount, -1), (TEXT, 0), (amount, -1)])
        found = model(torch.cat([fill, text, fill], dim=1), positions, documents)
        assert_same(found[:, amount : amount + TEXT], alone)


# Packing


def test_packed_documents_equal_each_alone(direction: Case) -> None:
    """The fault to catch: positions, a count of tokens or a normalisation that go on from one document to the next."""
    model, lengths = model_of(direction), (TEXT, 7, 13)
    texts = [tokens(1, length, seed=length) for length in lengths]
    positions, documents = joined(direction, [*zip(lengths, (4, 0, 9), strict=True)])
    packed = model(torch.cat(texts, dim=1), positions, documents)
    for text, found in zip(texts, packed.split(lengths, dim=1), strict=True):
        assert_same(found, model(text, places(direction, text.shape[1])))


def test_documents_may_be_written_in_turn(direction: Case) -> None:
    """A token of one, a token of the other: who belongs together is told by the documents alone.

    But for schemes whose scores look at the keys beside a key (BY_NEIGHBOURS): there what the other document says changes
    nothing.
    """
    model, texts, other = model_of(direction), tokens(2, 8), tokens(1, 8, seed=1)[0]
    where, documents = places(direction, 8), torch.tensor([[0, 1] * 8])
    positions = None if where is None else where.repeat_interleave(2, dim=1)
    found = model(texts.T.reshape(1, 16), positions, documents)
    beside_another = model(torch.stack([texts[0], other]).T.reshape(1, 16), positions, documents)
    assert torch.equal(beside_another[:, ::2], found[:, ::2]), "tokens of one document see those of another"
    if marked(direction.name, "BY_NEIGHBOURS", direction.options):
        return
    for text, own in zip(texts, (found[:, ::2], found[:, 1::2]), strict=True):
        assert_same(own, model(text[None], where))


@pytest.mark.where(lambda case: case.causal)
def test_packed_rows_decoded_with_a_cache(direction: Case) -> None:
    """Two rows of other documents, the first padded on the left, in chunks through one cache."""
    model, text = model_of(direction), tokens(2, 20)
    positions, documents = joined(direction, [(5, -1), (15, 0)], [(8, 3), (12, 1)])
    found = decoded(model, text, 6, positions, documents)
    whole = model(text, positions, documents)
    assert_same(found[documents >= 0], whole[documents >= 0])


@pytest.mark.where(lambda case: not case.scheme.prefix_stable)
def test_a_long_text_leaves_no_trace_and_does_not_slow_its_neighbours(default: Case) -> None:
    """The fault to catch: a base that stays enlarged after a long text, or one length for all rows of a batch."""
    model, text, longer = model_of(default), tokens(1, TEXT), tokens(1, 48, seed=1)
    before = model(text)
    rows = torch.cat([torch.cat([text, tokens(1, 38, seed=2)], dim=1), longer])
    together = model(rows, documents=torch.tensor([[0] * TEXT + [-1] * 38, [0] * 48]))
    assert_same(together[:1, :TEXT], before)
    assert_same(together[1:], model(longer))
    assert torch.equal(model(text), before)


# Batches


def test_a_text_gives_the_same_alone_and_as_a_row_of_a_batch(direction: Case) -> None:
    """The fault to catch: codes added along the batch. Each row has positions of its own here."""
    encoding, x = direction.build(), random(5, 6, 3 * direction.least_width)
    positions = torch.cat([direction.at(*((row + n * (row + 1)) % 16 for n in range(6))) for row in range(5)])
    batch, alone = attention(encoding, x, positions), attention(encoding, x[3:4], positions[3:4])
    assert_same(batch[3:4], alone, rtol=LAYER)


def test_one_row_of_positions_serves_a_batch(direction: Case) -> None:
    encoding, x, positions = direction.build(), random(3, 6, 3 * direction.least_width), direction.at(3, 1, 4, 15, 9, 2)
    shared, written_out = (attention(encoding, x, each) for each in (positions, torch.cat([positions] * 3)))
    assert_same(shared, written_out, rtol=LAYER)


def test_a_row_of_a_model_is_the_same_alone_and_in_a_batch(direction: Case) -> None:
    model, batch, where = model_of(direction), tokens(5, 16), places(direction, 16)
    assert_same(model(batch, where)[3:4], model(batch[3:4], where))


# Queries


def test_queries_that_are_a_slice_of_the_keys_see_the_same_scores(case: Case) -> None:
    """The fault to catch: positions counted from the number of queries, so that a cached step has no bias or another's."""
    length = settled(case, 12)
    encoding, positions, x = case.build(), case.counted(length), random(1, length, 3 * case.least_width)
    x = encoding.at_input(x, positions)
    heads = x.unflatten(-1, (3, -1)).transpose(1, 2)
    whole = scores(encoding, heads, heads, positions, positions, x=x)
    for start, stop in ((0, 5), (5, 6), (6, length)) if case.causal else ((5, length), (length - 1, length)):
        q, k, now = heads[:, :, start:stop], heads[:, :, :stop], positions[:, :stop]
        part = scores(encoding, q, k, now[:, start:], now, x=x[:, :stop])
        assert_same(part, whole[:, :, start:stop, :stop], rtol=LAYER)


def test_without_gradients_many_queries_are_taken_in_pieces(direction: Case) -> None:
    """128 at once, against all of them, in rows of packed texts and of one text.

    The fault to catch: a piece that is given the positions, the documents or the mask of another.
    """
    case = direction.reaching(144)
    model, text = model_of(case), tokens(1, 144)
    for parts in ([(36, name) for name in range(4)], [(144, 0)]):
        positions, documents = joined(case, parts)
        in_pieces = model(text, positions, documents)
        with torch.enable_grad():
            whole = model(text, positions, documents).detach()
        assert_same(in_pieces, whole)


# Positions in any order


def test_unsorted_and_repeated_positions_by_the_slow_formula(case: Case) -> None:
    """What a whole layer gathers; the fault to catch: a distance, or a table, that takes neighbours to be one apart."""
    encoding, positions = case.build(), torch.cat([case.at(9, 2, 2, 15, 0, 7), case.at(0, 15, 15, 3, 1, 1)])
    q, k, v = (random(2, 3, 6, case.least_width, seed=seed) for seed in (1, 2, 3))
    found = gathered(encoding, q, k, v, positions, positions, layer=1)
    expected = paper_gathered(encoding, case.name, q, k, v, positions, positions, layer=1)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)  # as in part 1
