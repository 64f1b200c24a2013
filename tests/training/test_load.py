"""Weights read back: the same model, or an error that lists what does not fit; never a model that is partly random."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch

import posbuild
from posbuild import cli, records
from posbuild.errors import RunError
from posbuild.model import model_of
from posbuild.training.run import run
from tests.training.helpers import tiny

TIED = {"model": {"tie_embeddings": True}, "pe": {"name": "t5"}, "train": {"steps": 4}, "optim": {"warmup": 1}}


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory) -> Path:
    """A run with tied embeddings."""
    folder = tmp_path_factory.mktemp("study") / "run"
    assert run(tiny(corpus, **TIED), folder, "command", lambda line: None) == records.COMPLETE
    return folder


def test_a_run_is_read_back_without_its_configuration(finished, corpus, tmp_path, monkeypatch):
    """From another folder, with all that it holds equal to what was saved."""
    monkeypatch.chdir(tmp_path)
    copy = shutil.copytree(finished, tmp_path / "moved")
    model, settings = posbuild.load(copy)
    assert settings == tiny(corpus, **TIED)
    saved = torch.load(copy / "weights.pt", weights_only=True)
    assert all(torch.equal(value, saved[name]) for name, value in model.state_dict().items())
    assert any(
        not torch.equal(value, saved[name]) for name, value in model_of(settings).state_dict().items()
    )  # it was trained


def test_tied_embeddings_stay_tied(finished):
    model, settings = posbuild.load(finished)
    assert settings.model.tie_embeddings and model.head.weight is model.embedding.weight
    x = torch.zeros(1, 3, dtype=torch.int64)
    with torch.no_grad():
        before = model(x)
        model.embedding.weight[7] += 1
        assert not torch.allclose(model(x)[..., 7], before[..., 7])


def renamed(state):
    return {f"model.{name}": value for name, value in state.items()}


def without_a_layer(state):
    return {name: value for name, value in state.items() if not name.startswith("blocks.1.")}


def wrong_width(state):
    return {name: torch.cat([value, value], dim=-1) if value.ndim == 2 else value for name, value in state.items()}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (renamed, ["Missing: ", "embedding.weight", "not in the model: model.embedding.weight"]),
        (without_a_layer, ["Missing: ", "blocks.1."]),
        (wrong_width, ["embedding.weight is (256, 32), not (256, 16)"]),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(change, words, finished, tmp_path, monkeypatch, capsys):
    copy = shutil.copytree(finished, tmp_path / "run")
    torch.save(change(torch.load(copy / "weights.pt", weights_only=True)), copy / "weights.pt")
    with pytest.raises(RunError, match="does not fit the model") as error:
        posbuild.load(copy)
    assert all(word.casefold() in str(error.value).casefold() for word in words)
    before = (copy / "record.json").read_bytes()
    monkeypatch.setattr(sys, "argv", ["posbuild", "evaluate", str(copy), "eval.lengths=[32]"])
    assert cli.main() != 0
    told = capsys.readouterr().err
    assert "does not fit the model" in told and "Traceback" not in told
    assert (copy / "record.json").read_bytes() == before


def with_infinity(content):
    content["embedding.weight"][3, 3] = -torch.inf
    return content


def complex_valued(content):
    return content | {"embedding.weight": content["embedding.weight"].to(torch.complex64)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_infinity, ["not finite", "embedding.weight", "Delete it"]),
        (complex_valued, ["embedding.weight is torch.complex64, not torch.float32"]),
    ],
)
def test_weights_of_values_that_no_training_leaves_are_refused(change, words, finished, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "run")
    torch.save(change(torch.load(copy / "weights.pt", weights_only=True)), copy / "weights.pt")
    with pytest.raises(RunError) as error:
        posbuild.load(copy)
    assert all(word in str(error.value) for word in [str(copy / "weights.pt"), *words])
