"""The training loss: each next token once, whatever its id, and means that do not depend on how many there are."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from posbuild import registry
from posbuild.conformance.cases import drawn
from posbuild.evaluation.losses import token_losses
from posbuild.model import model_of
from posbuild.training.module import LanguageModel
from tests.training.helpers import tiny

CYCLE = 13


def module_of(corpus, scheme="rope", uniform=False) -> LanguageModel:
    settings = tiny(corpus, pe={"name": scheme})
    model = model_of(settings) if uniform else drawn(model_of(settings))  # at the start all logits are equal
    module = LanguageModel(settings, model)
    module._trainer = SimpleNamespace(global_rank=0, strategy=SimpleNamespace(reduce=lambda value, reduce_op: value))
    return module


@pytest.mark.parametrize("rows, length", [(1, 1), (3, 7), (8, 16)])
def test_a_uniform_model_loses_ln_v(rows, length, corpus):
    windows = torch.randint(256, (rows, length + 1), generator=torch.Generator().manual_seed(0))
    assert module_of(corpus, uniform=True).training_step(windows, 0).item() == pytest.approx(math.log(256), rel=1e-6)


@pytest.mark.parametrize("scheme", registry.schemes())
def test_training_and_evaluation_score_the_same_targets(scheme, corpus):
    windows = torch.randint(256, (4, 17), generator=torch.Generator().manual_seed(0))
    module = module_of(corpus, scheme)
    assert module.training_step(windows, 0).item() == pytest.approx(
        token_losses(module.model, windows).mean(), rel=1e-5
    )


def test_every_id_counts(corpus):
    """A text of ten tokens has nine targets, also where they are all of an id that others keep for padding or an end."""
    module = module_of(corpus)
    for token in (0, 1, 2, 3, 10, 32, 50, 255):
        text = torch.full((1, 10), token)
        losses = token_losses(module.model, text)
        assert losses.shape == (1, 9) and (losses > 0).all()
        assert module.training_step(text, 0).item() == pytest.approx(losses.mean(), rel=1e-5)


def test_the_mean_over_steps_is_not_divided_on_the_way(corpus):
    """Three steps at a loss of 2 each are reported as 2, and the count begins anew."""
    module = module_of(corpus)
    for count in (3, 1, 5):
        module.losses += torch.tensor([2.0 * count, count])
        assert float(module.take_loss()) == 2.0
    windows = [torch.randint(256, (2, 17), generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    losses = [module.training_step(window, 0).item() for window in windows]
    assert max(losses) - min(losses) > 0.1
    assert float(module.take_loss()) == pytest.approx(sum(losses) / 3, rel=1e-6)


def test_a_cycle_is_learned_as_its_next_token(corpus):
    """0, 1, ..., 12, 0, ...: after 2 comes 3; without a shift it would be 2, with two of them 4."""
    module = LanguageModel(tiny(corpus), model_of(tiny(corpus, pe={"name": "rope"})))
    optimizer = torch.optim.AdamW(module.parameters(), lr=2e-2)
    for first in torch.randint(CYCLE, (80, 8, 1), generator=torch.Generator().manual_seed(0)):
        optimizer.zero_grad()
        loss = module.training_step((first + torch.arange(17)) % CYCLE, 0)
        loss.backward()
        optimizer.step()
    assert loss < 0.1
    assert module.model(torch.tensor([[0, 1, 2]]))[0, -1].argmax() == 3
