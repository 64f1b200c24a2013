"""Loss, parameter groups and rates."""

from __future__ import annotations

import math

import pytest
import torch

from posbuild import registry
from posbuild.model import model_of
from posbuild.settings import OptimSettings, Schedule
from posbuild.training.module import LanguageModel, mean_loss, parameter_groups, rate
from tests.training.helpers import tiny


@pytest.mark.parametrize("scheme", sorted(registry.schemes()))
@pytest.mark.parametrize("tied", [False, True])
def test_each_parameter_is_in_one_group(corpus, scheme, tied):
    settings = tiny(corpus, pe={"name": scheme}, model={"tie_embeddings": tied, "bias": True})
    model = model_of(settings)
    groups = {group["name"]: group for group in parameter_groups(model, settings.optim, 7.0)}
    placed = [id(parameter) for group in groups.values() for parameter in group["params"]]
    assert sorted(placed) == sorted(id(parameter) for parameter in model.parameters())
    assert {id(p) for p in groups.get("encoding", {"params": []})["params"]} == {
        id(p) for p in model.encoding.parameters()
    }
    assert {id(p) for p in groups["matrices"]["params"]} == {
        id(p)
        for name, p in model.named_parameters()
        if name.startswith("blocks.") and name.endswith("weight") and "norm" not in name
    }
    assert [group["weight_decay"] for group in groups.values()] == [settings.optim.weight_decay, 0.0, 0.0][
        : len(groups)
    ]
    assert all(
        group["lr"] == settings.optim.lr * (7.0 if name == "encoding" else 1.0) for name, group in groups.items()
    )


@pytest.mark.parametrize("schedule", Schedule)
@pytest.mark.parametrize("warmup, steps", [(0, 1), (1, 1), (0, 10), (1, 10), (5, 10), (10, 10)])
@pytest.mark.parametrize("final", [0.0, 0.1, 1.0])
def test_rates_are_finite_and_reach_the_peak(schedule, warmup, steps, final):
    optim = OptimSettings(warmup=warmup, schedule=schedule, final_lr=final)
    rates = [rate(step, optim, steps) for step in range(steps + 5)]
    assert all(math.isfinite(each) and 0 <= each <= 1 for each in rates)
    assert all(each > 0 for each in rates[:steps]), "a step that does not move is a step lost"
    assert rates[0] == (1 / warmup if warmup else 1.0)
    assert rates[max(0, warmup - 1)] == 1.0
    assert rates[steps:] == [final] * 5


def test_shapes_of_the_schedules():
    def at(step: int, **chosen) -> float:
        return rate(step, OptimSettings(warmup=0, **chosen), 100)

    assert at(50, schedule=Schedule.linear) == pytest.approx(0.5)
    assert at(50, schedule=Schedule.cosine) == pytest.approx(0.5)
    assert at(25, schedule=Schedule.cosine) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    assert at(79, schedule=Schedule.constant, decay_fraction=0.2) == 1.0
    assert at(90, schedule=Schedule.constant, decay_fraction=0.2) == pytest.approx(0.5)
    assert at(90, schedule=Schedule.constant, decay_fraction=0.2, final_lr=0.5) == pytest.approx(0.75)


def test_loss_is_computed_in_float32():
    logits = (3 * torch.randn(2, 5, 256, generator=torch.Generator().manual_seed(0))).bfloat16()
    targets = torch.arange(10).view(2, 5)
    exact = -logits.double().log_softmax(-1).gather(-1, targets[..., None]).mean()
    loss = mean_loss(logits, targets)
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(float(exact), rel=1e-6)


def test_loss_of_equal_parts_is_their_mean(corpus):
    """Accumulated and shared-out batches are cut into equal parts, so their gradient is that of the whole."""
    model = model_of(tiny(corpus, pe={"name": "t5"})).double()
    windows = torch.randint(256, (8, 17), generator=torch.Generator().manual_seed(0))

    def gradient(parts: int) -> torch.Tensor:
        model.zero_grad()
        for part in windows.chunk(parts):
            (mean_loss(model(part[:, :-1]), part[:, 1:]) / parts).backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    assert torch.allclose(gradient(1), gradient(4), atol=1e-6)


def test_compiling_leaves_the_names_clean(corpus):
    settings = tiny(corpus, train={"compile": True})
    module = LanguageModel(settings, model_of(settings))
    assert set(module.state_dict()) == {f"model.{name}" for name in model_of(settings).state_dict()}


def test_processes_keep_their_own_losses(corpus):
    """Lightning copies the buffers of the first process into the others."""
    settings = tiny(corpus)
    assert not list(LanguageModel(settings, model_of(settings)).buffers())
