"""Training on masked tokens: what its loss counts, what is refused, and a whole run with what it leaves."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import posbuild
from posbuild import cli, records, registry, remeasure
from posbuild.conformance.cases import drawn
from posbuild.data import corpora
from posbuild.data.batches import validation_windows
from posbuild.data.masking import NO_TARGET, Masked
from posbuild.errors import ConfigError
from posbuild.evaluation import masked
from posbuild.model import model_of
from posbuild.overrides import settings_of
from posbuild.settings import check, check_trainable, from_plain
from posbuild.training.datamodule import Windows
from posbuild.training.module import LanguageModel
from posbuild.training.run import run
from tests.training.helpers import tiny

ENCODER = {
    "pe": {"name": "t5"},
    "objective": {"name": "masked"},
    "model": {"dropout": 0.1},
    "train": {"accumulate": 2, "checkpoint_every": 3},
    "eval": {"recall_passages": 4, "order_windows": 4, "pseudo_targets": 4},
}
COMMAND = "python train.py objective=masked pe=t5"


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "encoder"
    assert run(tiny(corpus, **ENCODER), folder, COMMAND, lambda line: None) == records.COMPLETE
    return folder


# --------------------------------------------------------------------------------------------------------- settings


def test_the_objective_alone_makes_the_model_bidirectional():
    settings = settings_of("objective=masked", "pe=t5")
    assert settings.model.causal is False and settings.dims.causal is False
    assert settings_of("pe=t5").model.causal is True
    check_trainable(settings)
    assert model_of(settings).vocab_size == 257 and model_of(settings_of("pe=t5")).vocab_size == 256
    assert posbuild.build("objective=masked", "pe=alibi")(torch.zeros(1, 5, dtype=torch.int64)).shape == (1, 5, 257)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["objective=masked", "model.causal=true"],
            "model.causal=true with objective=masked .* Leave model.causal out",
        ),
        (["model.causal=false"], "model.causal=false with objective=next_token .* objective=masked"),
        (["objective=masked", "pe=none"], r"pe=none in a bidirectional model \(objective=masked\).*allow_orderless"),
        (["objective=masked", "pe=alibi", "pe.form=causal"], "pe.form=causal rewards keys after the query"),
        (["objective.mask_prob=0.3"], "objective.mask_prob=0.3 is read by objective=masked only"),
        (["objective=masked", "objective.random_replace_prob=0.3"], "mask_replace_prob=0.8 and .*=0.3 are more than 1"),
    ],
)
def test_what_does_not_go_together_is_refused(overrides, words):
    with pytest.raises(ConfigError, match=words):
        check_trainable(settings_of(*overrides))


def test_shares_out_of_range_are_refused():
    with pytest.raises(ConfigError, match=r"objective.mask_prob=0.0 is out of range: it must be > 0 and <= 0.9"):
        settings_of("objective=masked", "objective.mask_prob=0.0")


def test_a_scheme_that_needs_a_causal_mask_is_refused_with_its_reason(monkeypatch):
    settings = settings_of("objective=masked", "pe=t5")
    declared = dataclasses.replace(registry.scheme("t5"), causal_only="it counts gates backwards")
    monkeypatch.setattr(registry, "scheme", lambda name: declared)
    with pytest.raises(
        ConfigError, match="pe=t5 needs a causal mask, and objective=masked .*: it counts gates backwards"
    ):
        check(settings)


def test_the_hash_knows_the_objective_and_old_settings_have_the_first():
    causal, encoder = settings_of("pe=t5"), settings_of("pe=t5", "objective=masked")
    more = dataclasses.replace(encoder, objective=dataclasses.replace(encoder.objective, mask_prob=0.3))
    assert len({causal.hash, encoder.hash, more.hash}) == 3
    old = {name: value for name, value in causal.plain().items() if name != "objective"}
    assert from_plain(old) == causal


# --------------------------------------------------------------------------------------------------------- the loss


@pytest.mark.parametrize(
    "scheme", [name for name, scheme in registry.schemes().items() if not (scheme.orderless or scheme.causal_only)]
)
def test_the_loss_counts_the_masked_tokens_alone(scheme, corpus):
    settings = tiny(corpus, **ENCODER | {"pe": {"name": scheme}, "model": {}})
    module = LanguageModel(settings, drawn(model_of(settings)))
    batch = Windows(settings, corpora.load(settings.data)).batches.batch(0)
    assert isinstance(batch, Masked) and batch.inputs.shape == batch.labels.shape == (4, 16)
    scored = batch.labels != NO_TARGET
    assert scored.sum() == 4 * settings.objective.scored(16)
    expected = F.cross_entropy(module.model(batch.inputs)[scored], batch.labels[scored])
    assert module.training_step(batch, 0).item() == pytest.approx(expected.item(), rel=1e-5)


def test_loss_of_equal_parts_is_their_mean(corpus):
    settings = tiny(corpus, **ENCODER | {"model": {}})
    module = LanguageModel(settings, drawn(model_of(settings)))
    whole = Windows(settings, corpora.load(settings.data)).batches.batch(1)
    parts = [Masked(*(each[rows] for each in whole)) for rows in (slice(0, 2), slice(2, 4))]
    losses = [module.training_step(part, 0).item() for part in parts]
    assert module.training_step(whole, 0).item() == pytest.approx(sum(losses) / 2, rel=1e-5)


@pytest.mark.slow
def test_a_cycle_is_learned_from_both_sides(corpus):
    """0, 1, ..., 12, 0, ...: the token between 4 and 6, and the one before 0."""
    settings = tiny(corpus, **ENCODER | {"model": {}, "pe": {"name": "rope"}})
    module = LanguageModel(settings, model_of(settings))
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(0)
    for first in torch.randint(13, (300, 16, 1), generator=generator):
        text = (first + torch.arange(16)) % 13
        hidden = torch.rand(text.shape, generator=generator) < 0.15
        loss = module.training_step(Masked(text.where(~hidden, 256), text.where(hidden, NO_TARGET)), 0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.3
    text = torch.tensor([[256, 0, 1, 2, 3, 4, 256, 6, 7]])
    assert module.model(text)[0, [0, 6]].argmax(dim=-1).tolist() == [12, 5]


# ------------------------------------------------------------------------------------------------------- a whole run


def test_a_run_leaves_a_record_with_all_of_it(finished, corpus):
    record = records.read_record(finished)
    assert record.settings["objective"]["name"] == "masked" and record.settings["model"]["causal"] is False
    assert set(record.data["counts"]["validation"]) == {"unigram", "bigram", "trigram", "neighbours"}
    measured = {row.measure for row in record.rows if row.status == records.MEASURED}
    assert measured >= {
        "training/loss", "training/slope", "loss/whole_windows", "loss/fixed_targets", "loss/by_position", "loss/pseudo",
        "accuracy/whole_windows", "accuracy/fixed_targets", "recall/gain", "order/change",
    }  # fmt: skip
    last = next(row for row in record.rows if row.at.get("fraction") == 1.0)
    assert last.count == 8 * 2 and "masked tokens" in last.note
    model, settings = posbuild.load(finished)
    windows = validation_windows(corpora.load(settings.data).validation, 16, 8)[:, :-1]
    assert masked.validation_loss(model, windows, settings.objective) == pytest.approx(last.value, abs=1e-6)


def test_a_run_that_was_cut_short_ends_with_the_same_weights(finished, corpus, tmp_path):
    def interrupt(line: str) -> None:
        if line.startswith("step  4"):
            os.kill(os.getpid(), signal.SIGINT)

    assert run(tiny(corpus, **ENCODER), tmp_path, COMMAND, interrupt) == "failed"
    assert run(tiny(corpus, **ENCODER), tmp_path, COMMAND, lambda line: None) == "complete"
    one, two = (torch.load(folder / "weights.pt", weights_only=True) for folder in (finished, tmp_path))
    assert all(torch.equal(one[name], two[name]) for name in one)
    histories = [records.read_record(folder).training["history"] for folder in (finished, tmp_path)]
    assert histories[0] == histories[1]


def test_more_is_measured_and_writing_is_refused(finished, monkeypatch, capsys):
    def posbuild_(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["posbuild", *words])
        return cli.main()

    monkeypatch.setattr(remeasure, "compare", lambda folders, out: None)
    before = {row.key for row in records.read_record(finished).rows}
    assert posbuild_("evaluate", str(finished), "eval.lengths=[64]") == 0
    after = {row.key for row in records.read_record(finished).rows}
    assert before < after and ("loss/pseudo", ("length", 64), ("window", 0)) in after - before
    capsys.readouterr()
    assert posbuild_("generate", str(finished), "--prompt", "x") == 2
    assert "holds a bidirectional model, which fills gaps and does not go on from a prompt" in capsys.readouterr().err
