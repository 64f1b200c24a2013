"""What the tests of the measurements share: settings, texts, and models whose losses are known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from posbuild import registry
from posbuild.data.corpora import Corpus, Document
from posbuild.declaration import Dims
from posbuild.model import Transformer, model_of
from posbuild.positions import Numbering
from posbuild.settings import (
    DataSettings,
    EvalSettings,
    LoggerSettings,
    ModelSettings,
    ObjectiveName,
    ObjectiveSettings,
    OptimSettings,
    PositionsSettings,
    Settings,
    TrainSettings,
    options_of,
)

LENGTH = 16


def settings(
    scheme: str = "alibi",
    *,
    length: int = LENGTH,
    model: dict | None = None,
    pe: dict | None = None,
    masked: bool = False,
    **evaluation: Any,
) -> Settings:
    sizes = {"d_model": 16, "n_layers": 2, "n_heads": 2} | (model or {})
    return Settings(
        scheme=registry.scheme(scheme).name,
        pe=options_of(scheme, pe or {}),
        model=ModelSettings(**sizes),
        data=DataSettings(),
        train=TrainSettings(length=length, batch_size=4),
        optim=OptimSettings(),
        eval=EvalSettings(**evaluation),
        trainer={},
        logger=LoggerSettings(),
        objective=ObjectiveSettings(name=ObjectiveName.masked if masked else ObjectiveName.next_token),
    )


def model(scheme: str = "alibi", **given: Any) -> Transformer:
    """An untrained model whose output layers start at random: its losses differ from token to token."""
    built = model_of(settings(scheme, **given)).eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in built.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.3, generator=generator)
    return built


def uniform_model(scheme: str = "rope", **given: Any) -> Transformer:
    """All logits equal."""
    built = model(scheme, **given)
    nn.init.zeros_(built.head.weight)
    return built


def documents(*sizes: int) -> list[Document]:
    """Random bytes."""
    rng = np.random.default_rng(0)
    return [Document(f"text{n}", rng.integers(0, 256, size).astype(np.uint8)) for n, size in enumerate(sizes)]


def corpus(test: list[Document]) -> Corpus:
    enough = documents(1000)  # to train on
    return Corpus(name="files", train=enough, validation=enough, test=test, sha256="", facts={})


class Oracle(nn.Module):
    """A model that gives the next byte by a rule `chance` and shares the rest equally; the rest as for a Transformer.

    Subclasses say for each input what they expect next, -1 where they know nothing (all bytes equally likely).
    """

    chance = 0.9
    longest: int | None = None
    vocab_size = 256
    head = nn.Identity()
    dims = Dims(d_model=1, n_layers=1, n_heads=1, n_kv_heads=1, train_length=LENGTH, causal=True)
    numbering = Numbering(PositionsSettings(), LENGTH, seed=0)

    def __init__(self) -> None:
        super().__init__()
        self.anchor = nn.Parameter(torch.zeros(()))  # tells the device

    def expected(self, tokens: Tensor, window: int | None) -> Tensor:
        raise NotImplementedError

    def vectors(self, tokens: Tensor, positions: Tensor | None = None, window: int | None = None) -> Tensor:
        expected = self.expected(tokens, window)
        logits = torch.zeros(*tokens.shape, 256)
        known = torch.full_like(logits, math.log((1 - self.chance) / 255)).scatter(
            -1, expected.clamp(min=0)[..., None], math.log(self.chance)
        )
        return torch.where(expected[..., None] >= 0, known, logits)


class Successor(Oracle):
    """Expects the byte that is one more than the last."""

    def expected(self, tokens: Tensor, window: int | None) -> Tensor:
        return (tokens + 1) % 256


class Copier(Oracle):
    """Expects what came after the latest earlier place where the last two bytes stood, at most `reach` tokens back."""

    def __init__(self, reach: int) -> None:
        super().__init__()
        self.reach = reach

    def expected(self, tokens: Tensor, window: int | None) -> Tensor:
        expected = torch.full_like(tokens, -1)
        for row, text in enumerate(tokens.tolist()):
            seen: dict[tuple[int, int], int] = {}
            for place in range(1, len(text)):
                pair = (text[place - 1], text[place])
                if pair in seen and place - seen[pair] <= min(self.reach, window or self.reach):
                    expected[row, place] = text[seen[pair] + 1]
                seen[pair] = place
        return expected


class Bigram(Oracle):
    """Knows nothing but the last byte: whatever the window, a target's loss depends on the byte before it alone."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(256, 256, generator=torch.Generator().manual_seed(0)))
        self.read: list[Tensor] = []

    def vectors(self, tokens: Tensor, positions: Tensor | None = None, window: int | None = None) -> Tensor:
        self.read.append(tokens)
        return self.table[tokens]

    def losses(self, text: np.ndarray) -> np.ndarray:
        """Loss of each byte of the text but the first."""
        return -self.table.detach().log_softmax(dim=-1).numpy()[text[:-1], text[1:]]
