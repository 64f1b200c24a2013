"""The gradient of a step: the same however its batch is cut into parts, and the loss that is reported with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pytorch_lightning import Callback
from torch.utils.data import DataLoader

from posbuild import registry
from posbuild.conformance.cases import drawn
from posbuild.model import model_of
from posbuild.training.module import LanguageModel
from posbuild.training.trainer import quiet, trainer
from tests.training.helpers import tiny


class Gradients(Callback):
    """Keeps the gradient and the mean loss of each step."""

    def __init__(self) -> None:
        self.found: list[tuple[torch.Tensor, float]] = []

    def on_before_optimizer_step(self, trainer, module, optimizer) -> None:
        gradient = torch.cat([parameter.grad.flatten() for parameter in module.model.parameters()])
        self.found.append((gradient, float(module.take_loss())))


def steps(corpus: Path, folder: Path, scheme: str, parts: int) -> list[tuple[torch.Tensor, float]]:
    """Two steps on the same sixteen windows of 16 tokens, eight a step, each batch of eight in `parts` parts."""
    train = {"steps": 2, "batch_size": 8 // parts, "accumulate": parts}
    settings = tiny(corpus, pe={"name": scheme}, train=train, optim={"warmup": 0, "clip": None})
    windows = torch.randint(256, (16, 17), generator=torch.Generator().manual_seed(0))
    callback, module = (
        Gradients(),
        LanguageModel(settings, drawn(model_of(settings)).double()),
    )  # roundings grow in a step
    with quiet():
        fit = trainer(settings, folder, [callback], None)
        fit.fit(module, DataLoader(windows.chunk(2 * parts), batch_size=None))
    assert fit.global_step == 2
    return callback.found


@pytest.mark.parametrize("scheme", registry.schemes())
def test_one_batch_of_eight_and_four_of_two_give_the_same_steps(scheme, corpus, tmp_path):
    whole, parts = (steps(corpus, tmp_path, scheme, number) for number in (1, 4))
    (first, _), (second, _) = whole
    assert (first - second).norm() > 0.1 * first.norm()
    for (gradient, mean), (expected, right) in zip(parts, whole, strict=True):
        assert (gradient - expected).norm() < 1e-5 * expected.norm()
        assert mean == pytest.approx(right, rel=1e-5)
