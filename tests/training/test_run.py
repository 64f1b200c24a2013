"""Whole jobs: what they leave on disk, how they end, and that a resumed one ends as if never interrupted."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch

import posbuild
from posbuild import records
from posbuild.data import corpora
from posbuild.evaluation import length_curve, measure
from posbuild.model import Transformer
from posbuild.settings import Settings
from posbuild.training.load import read_settings, write_settings
from posbuild.training.run import run
from tests.training.helpers import tiny

RESUMABLE = {"model": {"dropout": 0.1}, "train": {"accumulate": 2, "checkpoint_every": 3}}
COMMAND = "python train.py pe=alibi"


def start(settings: Settings, folder: Path, report=lambda line: None) -> str:
    return run(settings, folder, COMMAND, report)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "weights.pt", weights_only=True)


def assert_same(first: Path, second: Path) -> None:
    """Equal to the bit: weights and learning curve."""
    one, two = weights(first), weights(second)
    assert one.keys() == two.keys()
    assert [name for name in one if not torch.equal(one[name], two[name])] == []
    histories = [records.read_record(folder).training["history"] for folder in (first, second)]
    assert histories[0] == histories[1]


def reason(folder: Path) -> str:
    return json.loads((folder / "status.json").read_text())["reason"]


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory) -> Path:
    """A run that was never interrupted."""
    folder = tmp_path_factory.mktemp("study") / "whole [1], 完"
    assert start(tiny(corpus, **RESUMABLE), folder) == "complete"
    return folder


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory) -> Path:
    """The folder of a run whose record is still to be written."""
    folder = tmp_path_factory.mktemp("study") / "trained"
    assert start(tiny(corpus), folder) == "complete"
    for name in ("status.json", "record.json"):
        (folder / name).unlink()
    return folder


@pytest.fixture
def unmeasured(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


# ------------------------------------------------------------------------------------------------ what a job leaves


def test_record_is_complete_in_itself(finished, corpus):
    settings = tiny(corpus, **RESUMABLE)
    record = records.read_record(finished)
    assert (record.scheme, record.seed, record.hash, record.command) == ("alibi", 0, settings.hash, COMMAND)
    assert record.settings == settings.plain()
    model, training = record.model, record.training
    assert model["parameters"] == sum(tensor.numel() for tensor in weights(finished).values())
    assert model["embedding_parameters"] == 2 * 256 * 16
    assert model["parameters_without_embeddings"] == model["parameters"] - model["embedding_parameters"]
    assert model["positional_parameters"] == 0
    assert model["signal_rms"]["tokens"] > 0
    assert training["tokens"] == 10 * 2 * 4 * 16
    assert training["tokens_per_parameter"] == training["tokens"] / model["parameters"]
    assert training["tokens_per_second"] == pytest.approx(training["tokens"] / training["seconds"])
    assert training["resumed"] == 0
    assert (
        record.data["counts"]["validation"].keys()
        == record.data["counts"]["test"].keys()
        == {"unigram", "bigram", "trigram", "neighbours"}
    )
    assert record.data["tokens"]["train"] > 0 and len(record.data["sha256"]) == 64
    assert record.environment["precision"] == "32-true" and record.environment["gflops_float32"] > 0
    assert {"python", "torch", "lightning", "posbuild", "device", "threads", "commit"} <= record.environment.keys()


def test_learning_is_scored_at_a_quarter_a_half_and_all(finished):
    record = records.read_record(finished)
    losses = dict(map(tuple, record.training["history"]))
    assert list(losses) == list(range(11))  # 10 steps, fewer than points
    at = {row.at.get("fraction"): row.value for row in record.rows if row.measure == "training/loss"}
    assert at == {0.25: losses[3], 0.5: losses[5], 1.0: losses[10]}  # 2.5 steps are used up by step 3
    slope = next(row.value for row in record.rows if row.measure == "training/slope")
    assert slope == losses[8] - losses[10] > 0
    assert any(row.measure == "loss/whole_windows" for row in record.rows)


def test_last_loss_is_that_of_the_weights(finished, corpus):
    from posbuild.data.batches import validation_windows
    from posbuild.evaluation.losses import validation_loss

    model, settings = posbuild.load(finished)
    assert settings == tiny(corpus, **RESUMABLE) and not model.training
    windows = validation_windows(corpora.load(settings.data).validation, 16, 8)
    assert validation_loss(model, windows) == pytest.approx(
        records.read_record(finished).training["history"][-1][1], abs=1e-6
    )


def test_each_split_is_used_for_its_own_purpose_only(corpus, tmp_path, monkeypatch):
    """Each split has bytes of its own, so what the model is given tells where it is from."""
    settings = tiny(corpus, eval={"recall_passages": 4, "order_windows": 4})
    whole = corpora.load(settings.data)
    splits = {"train": whole.train, "validation": whole.validation, "test": whole.test}
    marked = {
        name: [dataclasses.replace(document, tokens=document.tokens % 64 + 64 * number) for document in documents]
        for number, (name, documents) in enumerate(splits.items())
    }
    given = {True: set(), False: set()}  # in training, else
    vectors = Transformer.vectors

    def watched(model, tokens, *others, **named):
        given[model.training].update((tokens // 64).unique().tolist())
        return vectors(model, tokens, *others, **named)

    monkeypatch.setattr(corpora, "load", lambda _: dataclasses.replace(whole, **marked))
    monkeypatch.setattr(Transformer, "vectors", watched)
    assert start(settings, tmp_path / "run") == "complete"
    assert given == {True: {0}, False: {1, 2}}
    rows = records.read_record(tmp_path / "run").rows
    scored = {name for row in rows for name, _, _ in row.groups}
    assert scored and scored <= {document.name for document in whole.test}


def test_names_of_files_may_be_any_bytes(corpus, tmp_path):
    for number, text in enumerate(sorted(corpus.iterdir())):
        shutil.copy(text, tmp_path / os.fsdecode(b"caf\xe9 %02d.txt" % number))
    assert start(tiny(tmp_path), tmp_path / "run") == "complete"
    documents = corpora.load(tiny(tmp_path).data).test
    scored = {name for row in records.read_record(tmp_path / "run").rows for name, _, _ in row.groups}
    assert scored and scored <= {document.name for document in documents}


def test_checkpoint_holds_plain_values_only(finished):
    content = torch.load(finished / "checkpoints" / "last.ckpt", weights_only=True)
    assert content["Windows"]["sha256"] == records.read_record(finished).data["sha256"]
    assert {name.removeprefix("model.") for name in content["state_dict"]} == weights(finished).keys()
    assert sorted(path.name for path in (finished / "checkpoints").iterdir()) == ["last.ckpt"]


def test_complete_run_says_so_and_is_left_alone(finished, corpus):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    lines: list[str] = []
    assert start(tiny(corpus, **RESUMABLE), finished, lines.append) == "complete"
    assert len(lines) == 1 and "is complete" in lines[0]
    assert before == {path: path.stat().st_mtime_ns for path in finished.rglob("*")}


def test_log_is_a_few_lines_without_noise(corpus, tmp_path, capfd):
    lines: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert start(tiny(corpus), tmp_path, lines.append) == "complete"
    assert [str(warning.message) for warning in caught] == []
    told = [line.split("   ") for line in lines if line.startswith("step")]
    assert [line[0] for line in told] == ["step  4 of 10", "step  8 of 10", "step 10 of 10"]
    assert told[0][1].startswith("loss ") and told[0][3].endswith("tokens/s")
    assert capfd.readouterr() == ("", "")


def test_bar_on_request(corpus, tmp_path, capfd):
    lines: list[str] = []
    assert start(tiny(corpus, trainer={"enable_progress_bar": True}), tmp_path, lines.append) == "complete"
    assert not any(line.startswith("step") for line in lines)
    assert "10/10" in capfd.readouterr().out


def test_profile_is_written_into_the_folder(corpus, tmp_path):
    assert start(tiny(corpus, trainer={"profiler": "simple"}), tmp_path) == "complete"
    assert "run_training_batch" in (tmp_path / "fit-profile.txt").read_text()


# ------------------------------------------------------------------------------------------------ interrupted, resumed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_ends_with_the_same_weights(number, finished, corpus, tmp_path):
    settings, before = tiny(corpus, **RESUMABLE), signal.getsignal(number)

    def interrupt(line: str) -> None:
        if line.startswith("step  4"):
            os.kill(os.getpid(), number)

    assert start(settings, tmp_path, interrupt) == "failed"
    assert reason(tmp_path) == f"interrupted; go on with resume={tmp_path}"
    checkpoint = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)
    assert checkpoint["global_step"] == 4
    assert not (tmp_path / "weights.pt").exists() and not (tmp_path / "error.txt").exists()
    assert signal.getsignal(number) is before
    # Workers prepare the batches now: what they are does not depend on it.
    assert start(tiny(corpus, **{**RESUMABLE, "train": {**RESUMABLE["train"], "workers": 2}}), tmp_path) == "complete"
    assert_same(finished, tmp_path)
    training = records.read_record(tmp_path).training
    assert training["resumed"] == 1
    assert training["seconds"] > checkpoint["callbacks"]["LearningCurve"]["seconds"] > 0


def test_killed_run_ends_with_the_same_weights(finished, corpus, tmp_path):
    """kill -9 of a process somewhere after a checkpoint."""
    write_settings(tmp_path, tiny(corpus, **RESUMABLE), COMMAND)
    checkpoint = tmp_path / "checkpoints" / "last.ckpt"
    with subprocess.Popen(
        [sys.executable, "-m", "posbuild.training.job", str(tmp_path)], stdout=subprocess.DEVNULL
    ) as process:
        while not checkpoint.exists() and process.poll() is None:
            time.sleep(0.001)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert records.read_status(tmp_path)["status"] == "died"
    assert 3 <= torch.load(checkpoint, weights_only=True)["global_step"] <= 10
    assert start(tiny(corpus, **RESUMABLE), tmp_path) == "complete"
    assert_same(finished, tmp_path)


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_second_interruption_does_not_wait_for_the_step(second, corpus, tmp_path):
    def interrupt_twice(line: str) -> None:
        if line.startswith("step"):
            os.kill(os.getpid(), second)
            os.kill(os.getpid(), second)

    assert start(tiny(corpus), tmp_path, interrupt_twice) == "failed"
    assert "interrupted" in reason(tmp_path)


def test_interruption_while_measuring(finished, corpus, tmp_path):
    def interrupt(line: str) -> None:
        if line.startswith("length curve"):
            os.kill(os.getpid(), signal.SIGTERM)

    assert start(tiny(corpus, **RESUMABLE), tmp_path, interrupt) == "failed"
    assert "interrupted" in reason(tmp_path)
    assert start(tiny(corpus, **RESUMABLE), tmp_path) == "complete"
    assert_same(finished, tmp_path)


def test_checkpoint_of_another_model_is_refused(corpus, unmeasured):
    assert start(tiny(corpus, pe={"name": "learned"}, model={"d_model": 24}), unmeasured) == "failed"
    assert "does not fit" in reason(unmeasured)
    assert "Missing: model.encoding.table" in reason(unmeasured)
    assert "model.embedding.weight is (256, 16), not (256, 24)" in reason(unmeasured)


def test_checkpoint_of_another_text_is_refused(corpus, unmeasured, tmp_path):
    other = Path(shutil.copytree(corpus, tmp_path / "other"))
    with (other / "text 0.txt").open("a", encoding="utf-8") as file:
        file.write("!")
    saved = torch.load(unmeasured / "checkpoints" / "last.ckpt", weights_only=True)["Windows"]["sha256"]
    assert start(tiny(other), unmeasured) == "failed"
    assert "another text" in reason(unmeasured) and saved in reason(unmeasured)
    assert corpora.load(tiny(other).data).sha256 in reason(unmeasured)
    assert not (unmeasured / "record.json").exists()


def test_broken_checkpoint_is_named_and_without_it_the_run_begins_anew(corpus, unmeasured):
    checkpoint = unmeasured / "checkpoints" / "last.ckpt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:5000])
    assert start(tiny(corpus), unmeasured) == "failed"
    assert str(checkpoint) in reason(unmeasured) and "cannot be read" in reason(unmeasured)
    checkpoint.unlink()
    assert start(tiny(corpus), unmeasured) == "complete"


class Malicious:
    """Pickled, it makes a file as it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def not_a_number(content, tmp_path):
    content["state_dict"]["model.embedding.weight"][0, 0] = math.nan


def moment_not_a_number(content, tmp_path):
    content["optimizer_states"][0]["state"][0]["exp_avg"][0] = math.nan


def half_precision(content, tmp_path):
    content["state_dict"]["model.embedding.weight"] = content["state_dict"]["model.embedding.weight"].half()


def no_text(content, tmp_path):
    del content["Windows"]


def no_optimizer(content, tmp_path):
    content["optimizer_states"] = []


def code(content, tmp_path):
    content["epoch"] = Malicious(tmp_path / "was here")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (not_a_number, ["not finite", "state_dict.model.embedding.weight"]),
        (moment_not_a_number, ["not finite", "optimizer_states.0.state.0.exp_avg"]),
        (half_precision, ["model.embedding.weight is torch.float16, not torch.float32"]),
        (no_text, ["has no Windows.batches, Windows.sha256"]),
        (no_optimizer, ["has no optimizer_states"]),
        (code, ["could run code"]),
    ],
)
def test_checkpoint_of_what_no_training_leaves_is_named(change, words, corpus, unmeasured, tmp_path):
    checkpoint = unmeasured / "checkpoints" / "last.ckpt"
    content = torch.load(checkpoint, weights_only=True)
    change(content, tmp_path)
    torch.save(content, checkpoint)
    assert start(tiny(corpus), unmeasured) == "failed"
    assert all(word in reason(unmeasured) for word in [str(checkpoint), *words])
    assert not (unmeasured / "error.txt").exists() and not (tmp_path / "was here").exists()


@pytest.mark.parametrize("lost", [True, False])
def test_a_complete_run_without_a_record_is_measured_again(lost, corpus, unmeasured):
    """From its checkpoint: the weights stay as they are."""
    before, lines = weights(unmeasured), []
    if not lost:
        (unmeasured / "record.json").write_text('{"schema": 1', encoding="utf-8")
    records.write_status(unmeasured, records.COMPLETE)
    assert start(tiny(corpus), unmeasured, lines.append) == "complete"
    assert "measured again" in lines[0] and not any(line.startswith("step") for line in lines)
    assert any(row.measure == "loss/whole_windows" for row in records.read_record(unmeasured).rows)
    assert all(torch.equal(value, before[name]) for name, value in weights(unmeasured).items())


# ------------------------------------------------------------------------------------------------ a full disk


@pytest.mark.parametrize(
    ("room", "at", "saved"), [(50_000, "step  4", 3), (10_000, "step 10", 9), (3_000, "length curve", 10)]
)
def test_a_full_disk_is_one_message_and_the_run_goes_on_from_its_last_checkpoint(
    room, at, saved, finished, corpus, tmp_path
):
    """From some line of the log on no file may grow beyond `room` bytes: a checkpoint or the record breaks off."""
    run_folder, lines, limits = tmp_path / "run", [], resource.getrlimit(resource.RLIMIT_FSIZE)

    def report(line: str) -> None:
        lines.append(line)
        if line.startswith(at):
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))

    try:
        assert start(tiny(corpus, **RESUMABLE), run_folder, report) == "failed"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert reason(run_folder).startswith("no room left on its disk (File too large)")
    assert f"resume={run_folder}" in lines[-1] and not (run_folder / "error.txt").exists()
    assert [str(path) for path in run_folder.rglob("*.partial")] == []
    checkpoint = torch.load(run_folder / "checkpoints" / "last.ckpt", weights_only=True)
    assert checkpoint["global_step"] == saved and not (run_folder / "record.json").exists()
    (run_folder / "record.json.123.partial").touch()  # by a process that was killed as it wrote
    assert start(tiny(corpus, **RESUMABLE), run_folder) == "complete"
    assert_same(finished, run_folder)
    assert [str(path) for path in run_folder.rglob("*.partial")] == []


# ------------------------------------------------------------------------------------------------ what is measured


def test_cost_is_measured_in_the_precision_of_the_training(corpus, unmeasured, monkeypatch):
    asked = {}
    monkeypatch.setattr(measure, "cost", lambda *models, **given: asked.update(given) or [])
    assert start(tiny(corpus, eval={"cost_rounds": 1}), unmeasured) == "complete"
    assert asked["precision"] == "32-true"  # null in the settings


def test_the_record_is_written_before_probes_and_cost(corpus, unmeasured, monkeypatch):
    def check(*given):
        record = records.read_record(unmeasured)
        assert any(row.measure == "loss/whole_windows" for row in record.rows)
        assert not record.settings["eval"]["probes"] and not record.settings["eval"]["cost_rounds"]
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "probes", check)
    assert start(tiny(corpus, eval={"probes": True, "cost_rounds": 1}), unmeasured) == "failed"
    assert "interrupted" in reason(unmeasured)
    assert (unmeasured / "record.json").exists()


def test_lack_of_memory_costs_only_the_rows_that_it_struck(corpus, unmeasured, monkeypatch):
    def broken(*models, **given):
        raise MemoryError("too little")

    monkeypatch.setattr(measure, "cost", broken)
    assert start(tiny(corpus, eval={"probes": True, "cost_rounds": 3}), unmeasured) == "complete"
    assert reason(unmeasured) == (
        "eval.cost_rounds was not measured: MemoryError: too little. "
        f"posbuild evaluate {unmeasured} eval.cost_rounds=3 tries again"
    )
    assert "MemoryError" in (unmeasured / "error.txt").read_text()
    record = records.read_record(unmeasured)
    assert record.settings["eval"]["probes"] and record.settings["eval"]["cost_rounds"] == 0
    assert {row.measure.split("/")[0] for row in record.rows} == {"training", "loss", "probe", "reference"}


def test_a_length_without_a_finite_loss_does_not_cost_the_others(corpus, unmeasured, monkeypatch):
    score = length_curve.token_losses

    def overflowing(model, windows, **given):
        losses = score(model, windows, **given)
        return losses if windows.shape[1] <= 17 else losses * math.nan

    monkeypatch.setattr(length_curve, "token_losses", overflowing)
    assert start(tiny(corpus), unmeasured) == "complete"
    rows = [row for row in records.read_record(unmeasured).rows if row.measure == "loss/whole_windows"]
    assert {(row.at["length"], row.status) for row in rows} == {(16, records.MEASURED), (32, records.NOT_FINITE)}


# ------------------------------------------------------------------------------------------------ ends of other kinds


def test_loss_that_is_not_finite_ends_the_run(corpus, tmp_path):
    assert start(tiny(corpus, optim={"lr": 1e30, "clip": None}), tmp_path) == "diverged"
    assert "stopped being a finite number by step" in reason(tmp_path)
    assert not (tmp_path / "checkpoints" / "last.ckpt").exists() and not (tmp_path / "record.json").exists()


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"eval": {"lengths": [16, 100_000]}}, "eval.lengths=[16,100000]"),
        ({"train": {"length": 5000}}, "5000"),
        ({"trainer": {"accelerator": "cuda"}}, "trainer.accelerator=cuda"),
        ({"trainer": {"accelerator": "cpu", "precision": "16-mixed"}}, "trainer.precision=16-mixed"),
        ({"trainer": {"strategy": "ddp_spawn"}}, "trainer.strategy=ddp_spawn"),
        ({"trainer": {"profiler": "simpel"}}, "Nearest: 'simple'"),
        ({"trainer": {"devices": 3, "strategy": "ddp"}}, "train.batch_size=4"),
        ({"data": {"path": "/no/such/text"}}, "/no/such/text"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_training(sections, said, corpus, tmp_path):
    if sections.get("trainer", {}).get("accelerator") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has what the case lacks")
    lines: list[str] = []
    assert start(tiny(corpus, **sections), tmp_path, lines.append) == "refused"
    assert said in reason(tmp_path) and "Traceback" not in "".join(lines)
    assert not any(line.startswith("step") for line in lines)


def test_folder_that_cannot_be_written(corpus, tmp_path):
    (tmp_path / "file").write_text("in the way")
    lines: list[str] = []
    assert start(tiny(corpus), tmp_path / "file" / "run", lines.append) == "refused"
    assert len(lines) == 1 and str(tmp_path / "file" / "run") in lines[0] and "cannot be written" in lines[0]


def test_other_errors_fail_the_run_and_leave_a_traceback(corpus, tmp_path):
    (tmp_path / "checkpoints").write_text("in the way of the checkpoints")
    lines: list[str] = []
    assert start(tiny(corpus), tmp_path, lines.append) == "failed"
    assert "Error: " in reason(tmp_path) and "checkpoints" in reason(tmp_path)
    assert "Traceback" in (tmp_path / "error.txt").read_text() and "Traceback" not in "".join(lines)
    (tmp_path / "checkpoints").unlink()
    assert start(tiny(corpus), tmp_path) == "complete"
    assert not (tmp_path / "error.txt").exists()


def test_bf16_on_the_cpu_is_close_to_float32(corpus, trained, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a CPU without bf16 units is warned of
        assert start(tiny(corpus, trainer={"precision": "bf16-mixed"}), tmp_path) == "complete"
    checkpoint = torch.load(trained / "checkpoints" / "last.ckpt", weights_only=True)
    histories = checkpoint["callbacks"]["LearningCurve"]["history"], records.read_record(tmp_path).training["history"]
    losses = [history[-1][1] for history in histories]
    assert losses[0] != losses[1] and losses[0] == pytest.approx(losses[1], abs=0.02)


# ------------------------------------------------------------------------------------------------ several processes


def train_losses(lines: list[str]) -> list[float]:
    """What the lines of the log say: the mean loss over all processes since the line before."""
    return [float(line.split("loss ")[1].split()[0]) for line in lines if line.startswith("step")]


@pytest.mark.slow
def test_two_processes_train_as_one(corpus, tmp_path):
    train = {"train": {"steps": 4, "checkpoint_every": 2, "log_every": 4}}
    lines: list[str] = []
    assert start(tiny(corpus, **train), tmp_path / "one", lines.append) == "complete"
    two = tmp_path / "two"
    two.mkdir()
    settings = tiny(
        corpus, **train, trainer={"devices": 2, "strategy": "ddp"}, logger={"name": "wandb", "mode": "offline"}
    )
    write_settings(two, settings, COMMAND)
    done = subprocess.run(
        [sys.executable, "-m", "posbuild.training.job", str(two)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert records.read_status(two)["status"] == "complete"
    assert train_losses(done.stdout.splitlines()) == pytest.approx(train_losses(lines), abs=1e-4)
    one, other = (records.read_record(folder).training for folder in (tmp_path / "one", two))
    assert (one["processes"], other["processes"]) == (1, 2)
    assert [step for step, _ in one["history"]] == [step for step, _ in other["history"]]
    assert [loss for _, loss in other["history"]] == pytest.approx([loss for _, loss in one["history"]], abs=1e-5)
    assert len(list((tmp_path / "wandb").glob("offline-run-*"))) == 1
    assert read_settings(two) == (settings, COMMAND)
