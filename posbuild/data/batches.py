"""Windows of tokens for training and validation, as a pure function of seed and batch number.

A window is `length` inputs and their targets: length + 1 tokens of one document, never across two. There are no special
tokens and no padding, so every token id, 0 included, counts. No generator has a state: batch 1000 is the same whether
or not the 999 before it were made, in whichever worker and on whichever machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from posbuild.data.corpora import Document, with_window
from posbuild.data.masking import Masked, mask
from posbuild.errors import ConfigError
from posbuild.settings import ObjectiveSettings


class _Windows:
    """All windows of length + 1 tokens inside documents, numbered from 0 in the order of the documents."""

    def __init__(self, documents: Sequence[Document], length: int, split: str) -> None:
        usable = [document.tokens for document in with_window(documents, length, split)]
        self._tokens = np.concatenate(usable)
        sizes = np.array([len(tokens) for tokens in usable])
        self._ends = np.cumsum(sizes - length)  # window number at which each document's windows end
        self._skipped = np.arange(len(usable)) * length  # places before each document's windows at which none starts
        self._span = np.arange(length + 1)
        self.count = int(self._ends[-1])

    def take(self, numbers: np.ndarray) -> torch.Tensor:
        """Numbers (B,) of windows -> (B, length + 1) int64 tokens."""
        starts = numbers + self._skipped[np.searchsorted(self._ends, numbers, side="right")]
        return torch.from_numpy(self._tokens[starts[:, None] + self._span].astype(np.int64))


class TrainingBatches:
    """Batches of windows drawn uniformly, with replacement, from all windows of the documents.

    Raises ConfigError if no document holds a window.
    """

    def __init__(self, documents: Sequence[Document], length: int, batch_size: int, seed: int) -> None:
        self.batch_size, self.seed = batch_size, seed
        self._windows = _Windows(documents, length, "training")

    def batch(self, step: int, rows: slice = slice(None)) -> torch.Tensor:
        """Batch number `step` (batch_size, length + 1) int64, or some of its rows.

        Under gradient accumulation each micro-batch has a number of its own.
        """
        numbers = _random_uint64(self.seed, step, self.batch_size) % np.uint64(self._windows.count)
        return self._windows.take(numbers[rows].astype(np.int64))


class MaskedBatches(TrainingBatches):
    """The same windows without their last token, with tokens masked by numbers of seed and step alone."""

    def __init__(
        self,
        documents: Sequence[Document],
        length: int,
        batch_size: int,
        seed: int,
        objective: ObjectiveSettings,
        vocabulary: int,
    ) -> None:
        super().__init__(documents, length, batch_size, seed)
        self.objective, self.vocabulary = objective, vocabulary

    def batch(self, step: int, rows: slice = slice(None)) -> Masked:  # type: ignore[override]
        """Batch number `step`, or some of its rows: each row is masked as it is in the whole batch."""
        tokens = super().batch(step)[:, :-1].numpy()
        numbers = _random_uint64(self.seed, step, 3 * tokens.size, stream=1).reshape(len(tokens), 3, -1)
        return mask(tokens[rows], self.objective, self.vocabulary, numbers[rows])


class BatchStream(IterableDataset):
    """Batches number first, first + 1, ... without end: for a DataLoader with `batch_size=None` and any `num_workers`.

    Of every batch, rank r of n processes gets the r-th of n equal shares of rows, so the global batch does not depend
    on the number of processes. Raises ConfigError if it cannot be shared out equally.
    """

    def __init__(self, batches: TrainingBatches, first: int = 0, rank: int = 0, world_size: int = 1) -> None:
        super().__init__()
        if batches.batch_size % world_size:
            raise ConfigError(
                f"train.batch_size={batches.batch_size} cannot be shared equally by {world_size} processes "
                f"(trainer.devices). Use a multiple of {world_size}, or other trainer.devices."
            )
        share = batches.batch_size // world_size
        self.batches, self.first, self.rows = batches, first, slice(rank * share, (rank + 1) * share)

    def __iter__(self) -> Iterator[torch.Tensor | Masked]:
        # A DataLoader takes from its workers in turn, so each makes every n-th batch.
        worker = get_worker_info()
        step, stride = (self.first + worker.id, worker.num_workers) if worker else (self.first, 1)
        while True:
            yield self.batches.batch(step, self.rows)
            step += stride


def validation_windows(documents: Sequence[Document], length: int, count: int, seed: int = 0) -> torch.Tensor:
    """(count, length + 1) int64: one window drawn from each of `count` equal shares of all windows of the documents.

    Fixed by the documents and the arguments, so the same for every scheme. Raises ConfigError if no document holds one.
    """
    windows = _Windows(documents, length, "validation")
    within = (_random_uint64(seed, 0, count) % np.uint64(windows.count)).astype(np.int64)
    return windows.take((np.arange(count) * windows.count + within) // count)


def _random_uint64(seed: int, step: int, count: int, stream: int = 0) -> np.ndarray:
    """(count,) uint64 from a counter-based generator keyed by (seed, step); its streams share no number.

    Raw output, because numpy promises it to stay the same in all versions, and does not for the methods of Generator.
    """
    counter = np.array([0, 0, 0, stream], dtype=np.uint64)
    return np.random.Philox(key=np.array([seed, step], dtype=np.uint64), counter=counter).random_raw(count)
