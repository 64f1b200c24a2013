"""The Lightning data module: training batches as a pure function of seed and step."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_lightning import LightningDataModule
from torch.utils.data import DataLoader

from posbuild.data.batches import BatchStream, MaskedBatches, TrainingBatches
from posbuild.data.corpora import Corpus
from posbuild.data.vocabulary import vocabulary_of
from posbuild.settings import Settings


class Windows(LightningDataModule):
    """Windows of training documents, from the batch on at which the run stands.

    A checkpoint holds its state by the name of this class: the next batch, and the SHA-256 of the text.
    """

    def __init__(self, settings: Settings, corpus: Corpus) -> None:
        super().__init__()
        train = settings.train
        self.workers = train.workers
        wanted = (corpus.train, train.length, train.batch_size, settings.seed)
        self.batches = (
            MaskedBatches(*wanted, settings.objective, vocabulary_of(settings.data).size)
            if settings.masked
            else TrainingBatches(*wanted)
        )
        self.sha256 = corpus.sha256
        self.first = 0

    def state_dict(self) -> dict[str, Any]:
        # Not the loader's own count: Lightning fetches a batch ahead.
        assert self.trainer is not None
        return {"batches": self.trainer.global_step * self.trainer.accumulate_grad_batches, "sha256": self.sha256}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.first = state["batches"]

    def train_dataloader(self) -> DataLoader:
        assert self.trainer is not None
        stream = BatchStream(self.batches, self.first, self.trainer.global_rank, self.trainer.world_size)
        return DataLoader(
            stream,
            batch_size=None,
            num_workers=self.workers,
            pin_memory=self.trainer.strategy.root_device.type == "cuda",
            generator=torch.Generator(),  # the loader draws a number for its workers; not from the global generator
        )
