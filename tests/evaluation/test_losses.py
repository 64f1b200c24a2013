import math

import numpy as np
import pytest
import torch

from posbuild import registry
from posbuild.conformance.cases import reaching
from posbuild.evaluation import losses
from posbuild.evaluation.losses import mean_row, token_losses, validation_loss
from posbuild.evaluation.recall import recall
from tests.evaluation.small import Bigram, Oracle, Successor, documents, model, uniform_model

UNIFORM = pytest.approx(math.log(256), rel=1e-7)
CYCLE = 13


def windows(count: int, length: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (count, length + 1)).astype(np.uint8)


@pytest.mark.parametrize("length", [1, 7, 16])
@pytest.mark.parametrize("batch_tokens", [1, 40, 10_000])
def test_uniform_model_loses_ln_v_on_every_token(length, batch_tokens):
    losses = token_losses(uniform_model(), windows(5, length), batch_tokens=batch_tokens)
    assert losses.shape == (5, length)
    assert losses == pytest.approx(np.full((5, length), math.log(256)), rel=1e-7)
    assert validation_loss(uniform_model(), windows(5, length), batch_tokens) == UNIFORM


def test_a_text_full_of_token_0_counts():
    assert token_losses(uniform_model(), np.zeros((3, 9), dtype=np.uint8)).sum() == pytest.approx(
        3 * 8 * math.log(256), rel=1e-7
    )


@pytest.mark.parametrize("scheme", registry.schemes())
def test_batch_size_and_order_change_nothing(scheme):
    text = windows(5, 16)
    expected = token_losses(model(scheme), text)
    assert expected.std() > 0.1
    for batch_tokens in (1, 33, 48):
        assert np.abs(token_losses(model(scheme), text, batch_tokens=batch_tokens) - expected).max() < 2e-6
    assert np.abs(token_losses(model(scheme), text[::-1].copy(), batch_tokens=48)[::-1] - expected).max() < 2e-6


def test_batches_of_unequal_size_and_loss_average_by_token():
    known, unknown = np.arange(9, dtype=np.uint8), np.full(9, 7, dtype=np.uint8)
    found = validation_loss(
        Successor(), np.stack([known, known, known, known, unknown]), batch_tokens=16
    )  # 2, 2 and 1 windows
    assert found == pytest.approx((4 * -math.log(0.9) + -math.log(0.1 / 255)) / 5, rel=1e-6)


def test_equal_batches_of_unequal_loss_average_before_any_exponential():
    known, unknown = np.arange(9, dtype=np.uint8), np.full(9, 7, dtype=np.uint8)
    found = validation_loss(Successor(), np.stack([known, unknown]), batch_tokens=8)
    assert math.exp(found) == pytest.approx(math.sqrt(1 / 0.9 * 255 / 0.1), rel=1e-6)


def test_the_target_is_the_next_token():
    class Same(Oracle):
        def expected(self, tokens, window):
            return tokens

    text = np.arange(20, dtype=np.uint8)[None]
    assert token_losses(Successor(), text) == pytest.approx(np.full((1, 19), -math.log(0.9)), rel=1e-5)
    assert token_losses(Same(), text).min() > 7


def test_a_trained_model_gives_the_next_token_of_a_cycle():
    trained = model("rope", model={"n_layers": 1})
    optimizer = torch.optim.AdamW(trained.parameters(), lr=3e-2)
    starts = torch.randint(CYCLE, (60, 8, 1), generator=torch.Generator().manual_seed(0))
    for first in starts:
        text = (first + torch.arange(17)) % CYCLE
        loss = torch.nn.functional.cross_entropy(trained(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert validation_loss(trained, (torch.arange(3)[:, None] + torch.arange(17)) % CYCLE) < 0.1
    assert trained(torch.tensor([[0, 1, 2]]))[0, -1].argmax() == 3


def test_last_scores_the_last_targets_only():
    text = windows(3, 12)
    assert np.allclose(token_losses(model(), text, last=4), token_losses(model(), text)[:, -4:], atol=1e-6)
    for last in (0, 13):
        with pytest.raises(ValueError, match=f"{last} targets"):
            token_losses(model(), text, last=last)


def test_logits_are_held_in_parts_however_many_tokens_are_in_a_batch(monkeypatch):
    held, text, made = model("rope"), windows(5, 16), []
    with torch.inference_mode():
        logits = held(torch.from_numpy(text[:, :-1]).long())
    targets = torch.from_numpy(text[:, 1:]).long()
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(5, 16)
    held.head.register_forward_hook(lambda module, given, logits: made.append(logits.numel()))
    monkeypatch.setattr(losses, "LOGITS", 7 * 256)
    assert token_losses(held, text) == pytest.approx(expected.numpy(), abs=1e-6)
    assert max(made) == 7 * 256 and sum(made) == 5 * 16 * 256
    made.clear()
    assert token_losses(held, text, last=3) == pytest.approx(expected[:, -3:].numpy(), abs=1e-6)
    assert sum(made) == 5 * 3 * 256  # of the scored tokens alone
    monkeypatch.setattr(losses, "LOGITS", 1)
    assert token_losses(held, text[:1, :4]).shape == (1, 3)


@pytest.mark.parametrize("scheme", [name for name in registry.schemes() if not reaching(name, 1)])
def test_leaving_out_what_a_window_hides_changes_nothing(scheme):
    held, text = model(scheme), windows(4, 64)
    with torch.inference_mode():
        logits = held(torch.from_numpy(text[:, :-1]).long(), window=5)[:, -3:]
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.from_numpy(text[:, -3:]).long().flatten(), reduction="none"
    )
    assert token_losses(held, text, last=3, window=5).ravel() == pytest.approx(expected.numpy(), abs=1e-5)
    assert np.abs(token_losses(held, text, last=3) - token_losses(held, text, last=3, window=5)).max() > 1e-3


def test_dropout_is_off_and_the_mode_is_kept():
    held = model("rope", model={"dropout": 0.5}).train()
    assert np.array_equal(token_losses(held, windows(3, 8)), token_losses(held, windows(3, 8)))
    assert held.training


def test_groups_add_up_to_the_mean():
    values = np.arange(12.0).reshape(4, 3)
    row = mean_row("loss/x", {}, values, ["b", "a", "b", "c"])
    assert row.groups == [("a", 12.0, 3), ("b", 24.0, 6), ("c", 30.0, 3)]
    assert (row.value, row.count) == (5.5, 12)
    assert sum(group[1] for group in row.groups) / sum(group[2] for group in row.groups) == row.value


def test_token_losses_are_those_of_the_text():
    text = documents(33)[0].tokens
    assert token_losses(Bigram(), text[None])[0] == pytest.approx(Bigram().losses(text), rel=1e-5)


def test_uniform_model_recalls_nothing():
    rows = recall(uniform_model(), documents(3000, 3000), train_length=16, passages=64, batch_tokens=500)
    assert [row.value for row in rows] == [0.0] * 5
