"""Batches are a function of seed and number: whatever the workers, the processes, and the place of the restart."""

from __future__ import annotations

import hashlib
import itertools
import re

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from posbuild.data.batches import BatchStream, TrainingBatches, validation_windows
from posbuild.data.corpora import Document
from posbuild.errors import ConfigError

LENGTH, BATCH = 8, 6


def documents(*sizes: int) -> list[Document]:
    """Token i of document d is 7 d + i modulo 256, so a window tells whether it is contiguous."""
    return [Document(str(d), ((7 * d + np.arange(size)) % 256).astype(np.uint8)) for d, size in enumerate(sizes)]


def batches(seed: int = 0, length: int = LENGTH, batch_size: int = BATCH) -> TrainingBatches:
    return TrainingBatches(documents(100, 5, 300, 9), length, batch_size, seed)


def read(stream: BatchStream, count: int, workers: int = 0) -> list[torch.Tensor]:
    return list(itertools.islice(DataLoader(stream, batch_size=None, num_workers=workers), count))


def same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return len(left) == len(right) and all(map(torch.equal, left, right))


def test_a_batch_holds_windows_of_inputs_and_targets():
    batch = batches().batch(0)
    assert batch.shape == (BATCH, LENGTH + 1) and batch.dtype == torch.int64
    assert torch.equal(batch[:, 1:], (batch[:, :-1] + 1) % 256)  # inside one document


def test_equal_seed_and_number_give_equal_batches_in_any_order():
    forwards = [batches().batch(step) for step in range(5)]
    source = batches()
    backwards = [source.batch(step) for step in reversed(range(5))]
    assert same(forwards, backwards[::-1])


def test_batches_differ_over_numbers_and_seeds():
    drawn = {batches(seed).batch(step).numpy().tobytes() for seed in range(4) for step in range(25)}
    assert len(drawn) == 100


def test_a_batch_has_the_bytes_it_always_had():
    # Fixed by numpy's promise for raw Philox output; a change here changes every run's data.
    batch = TrainingBatches(documents(10_000, 20_000), 64, 16, seed=3).batch(1234)
    digest = hashlib.sha256(batch.numpy().astype("<i8").tobytes()).hexdigest()
    assert digest == "c4c368f0dd2823dce65f945606afc892ba44d36b16e7f697b69fe1b9cdc8092c"


def test_every_window_is_drawn_equally_often_and_short_documents_never():
    # Windows of 3 tokens: 3 in the first document, none in the second, 1 in the third, 2 in the fourth.
    texts = [Document(name, np.frombuffer(name.encode(), dtype=np.uint8)) for name in ("abcde", "xy", "fgh", "ijkl")]
    batch = TrainingBatches(texts, 2, 60_000, seed=0).batch(0).numpy().astype(np.uint8)
    drawn, counts = np.unique(batch.view("S3"), return_counts=True)
    assert list(drawn) == [b"abc", b"bcd", b"cde", b"fgh", b"ijk", b"jkl"]
    assert np.abs(counts - 10_000).max() < 5 * np.sqrt(10_000)


def test_token_zero_is_a_token_like_any_other():
    batch = TrainingBatches([Document("zeros", np.zeros(50, dtype=np.uint8))], LENGTH, BATCH, 0).batch(0)
    assert torch.equal(batch, torch.zeros(BATCH, LENGTH + 1, dtype=torch.int64))


def test_data_too_short_for_a_window_is_refused():
    message = (
        "train.length=300 is longer than the data: a window needs 301 tokens and the longest training document has 300."
    )
    with pytest.raises(ConfigError, match=re.escape(message)):
        batches(length=300)
    assert batches(length=299).batch(0).shape == (BATCH, 300)  # the one window of the longest document


# ----------------------------------------------------------------------------------------------- workers, processes


def expected(first: int, count: int) -> list[torch.Tensor]:
    return [batches().batch(step) for step in range(first, first + count)]


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("first", [0, 7])
def test_a_stream_gives_each_batch_once_and_in_order(workers, first):
    # A restart at batch 7 goes on with it, however many workers there were before.
    assert same(read(BatchStream(batches(), first), 7, workers), expected(first, 7))


def test_a_second_pass_over_a_stream_is_the_same():
    stream = BatchStream(batches(), 3)
    assert same(read(stream, 4), read(stream, 4))


@pytest.mark.parametrize(("world_size", "workers"), [(1, 0), (2, 0), (3, 0), (6, 0), (2, 2)])
def test_processes_together_get_the_global_batch(world_size, workers):
    ranks = [read(BatchStream(batches(), 5, rank, world_size), 4, workers) for rank in range(world_size)]
    assert all(len(share) == BATCH // world_size for rank in ranks for share in rank)
    assert same([torch.cat(shares) for shares in zip(*ranks, strict=True)], expected(5, 4))


def test_a_batch_that_cannot_be_shared_equally_is_refused():
    with pytest.raises(
        ConfigError, match=r"train.batch_size=6 cannot be shared equally by 4 processes \(trainer.devices"
    ):
        BatchStream(batches(), 0, 0, 4)


# ------------------------------------------------------------------------------------------------------- validation


def test_validation_windows_are_fixed_and_inside_documents():
    windows = validation_windows(documents(100, 5, 300), LENGTH, 20)
    assert windows.shape == (20, LENGTH + 1) and windows.dtype == torch.int64
    assert torch.equal(windows, validation_windows(documents(100, 5, 300), LENGTH, 20))
    assert torch.equal(windows[:, 1:], (windows[:, :-1] + 1) % 256)
    assert not torch.equal(windows, validation_windows(documents(100, 5, 300), LENGTH, 20, seed=1))


def test_validation_windows_come_from_all_parts_of_the_documents():
    # 400 windows in document order, of which one in each run of 40 is drawn.
    tokens = np.arange(408) // 2
    windows = validation_windows([Document("d", tokens.astype(np.uint8))], LENGTH, 10)
    assert [int(window) for window in windows[:, 0] // 20] == list(range(10))


def test_more_validation_windows_than_there_are_repeat_some():
    windows = validation_windows(documents(LENGTH + 2), LENGTH, 10)
    assert sorted(set(windows[:, 0].tolist())) == [0, 1]


def test_validation_documents_too_short_are_refused():
    with pytest.raises(ConfigError, match="train.length=8 is longer .* and the longest validation document has 8"):
        validation_windows(documents(8, 3), LENGTH, 4)
