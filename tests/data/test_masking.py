"""Masks: the shares of the field, a function of seed and step alone, and never the answer in view."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from posbuild.data.batches import BatchStream, MaskedBatches, TrainingBatches
from posbuild.data.corpora import Document
from posbuild.data.masking import NO_TARGET, hide, mask
from posbuild.settings import ObjectiveName, ObjectiveSettings

VOCABULARY = 256  # bytes

MASKED = ObjectiveSettings(name=ObjectiveName.masked)
TEXT = [Document("text", np.random.default_rng(0).integers(0, VOCABULARY, 5000).astype(np.uint8))]


def batch_of(rows: int, length: int, objective: ObjectiveSettings = MASKED):
    generator = np.random.default_rng(1)
    tokens = generator.integers(0, VOCABULARY, (rows, length)).astype(np.uint8)
    numbers = generator.integers(0, 2**64, (rows, 3, length), dtype=np.uint64)
    return tokens, *(each.numpy() for each in mask(tokens, objective, VOCABULARY, numbers))


@pytest.mark.parametrize("length, count", [(4, 1), (16, 2), (64, 10), (100, 15), (128, 19)])
def test_each_window_has_the_same_number_of_targets(length, count):
    _, _, labels = batch_of(50, length)
    assert ((labels != NO_TARGET).sum(axis=1) == count).all()
    assert MASKED.scored(length) == count and ObjectiveSettings().scored(length) == length


def test_eight_of_ten_are_the_mask_one_is_random_and_one_stays():
    tokens, inputs, labels = batch_of(4000, 64)
    picked = labels != NO_TARGET
    assert (labels[picked] == tokens[picked]).all() and (inputs[~picked] == tokens[~picked]).all()
    hidden, stays = inputs[picked] == VOCABULARY, inputs[picked] == labels[picked]
    assert hidden.mean() == pytest.approx(0.8, abs=0.01)
    assert stays.mean() == pytest.approx(0.1 + 0.1 / VOCABULARY, abs=0.01)
    random = inputs[picked][~hidden & ~stays]
    assert random.size / picked.sum() == pytest.approx(0.1, abs=0.01)
    assert random.min() == 0 and random.max() == VOCABULARY - 1
    assert labels.max() < VOCABULARY  # the mask token is never to be found
    assert picked.mean(axis=0) == pytest.approx(np.full(64, 10 / 64), abs=0.03)  # every place alike


def test_shares_of_ones_own():
    shares = {"mask_prob": 0.5, "mask_replace_prob": 0.0, "random_replace_prob": 1.0}
    _, inputs, labels = batch_of(100, 32, ObjectiveSettings(name=ObjectiveName.masked, **shares))
    assert (inputs < VOCABULARY).all() and (labels != NO_TARGET).mean() == 0.5


def masked_batches(seed: int = 0) -> MaskedBatches:
    return MaskedBatches(TEXT, 32, 8, seed, MASKED, VOCABULARY)


def test_masks_are_a_function_of_seed_and_step():
    one, again, later, other = (masked_batches(seed).batch(step) for seed, step in ((0, 5), (0, 5), (0, 6), (1, 5)))
    assert torch.equal(one.inputs, again.inputs) and torch.equal(one.labels, again.labels)
    places = one.labels != NO_TARGET
    assert not torch.equal(places, later.labels != NO_TARGET) and not torch.equal(places, other.labels != NO_TARGET)


def test_the_windows_are_those_of_causal_training():
    batch, windows = masked_batches().batch(3), TrainingBatches(TEXT, 32, 8, 0).batch(3)[:, :-1]
    places = batch.labels != NO_TARGET
    assert torch.equal(torch.where(places, batch.labels, batch.inputs), windows)


def test_a_share_of_the_rows_is_masked_as_in_the_whole_batch():
    whole = masked_batches().batch(2)
    shares = [next(iter(BatchStream(masked_batches(), 2, rank, 2))) for rank in (0, 1)]
    for name in ("inputs", "labels"):
        assert torch.equal(torch.cat([getattr(share, name) for share in shares]), getattr(whole, name))


def test_in_evaluation_the_mask_stands_for_every_scored_token():
    tokens = np.arange(10, dtype=np.uint8)[None]
    hidden, scored = np.zeros((2, 1, 10), dtype=bool)
    hidden[0, 2], scored[0, 5] = True, True
    inputs, labels = hide(tokens, hidden, scored, VOCABULARY)
    assert inputs.tolist() == [[0, 1, 256, 3, 4, 256, 6, 7, 8, 9]]
    assert labels.tolist() == [[NO_TARGET] * 5 + [5] + [NO_TARGET] * 4]
