"""Sweeps with wandb, offline and without a key: one run a job, each with its own settings and end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import posbuild
from posbuild import records
from posbuild.data import corpora
from posbuild.data.batches import validation_windows
from posbuild.evaluation.losses import validation_loss
from posbuild.overrides import plan, take_apart
from tests.test_launch import SHORT, in_comparison, started, statuses
from tests.test_tracking import logged, no_account  # noqa: F401 (the fixture keeps wandb away from the machine's own settings)

TRACKED = [setting for setting in SHORT if setting != "logger=none"]


@pytest.mark.slow
def test_each_job_of_a_sweep_is_a_run_of_its_own_and_a_failed_one_shows_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs fail once their wandb runs have begun, between two good ones; nobody is there to log in."""
    monkeypatch.setenv("WANDB_RUN_ID", "fixed")  # jobs that share an id would be one run
    study, arguments = tmp_path / "outputs" / "s", ["-m", "pe=none,rope,t5,alibi", *TRACKED, "study=s"]
    failing = {"rope", "t5"}
    jobs = plan(take_apart(arguments)).jobs
    for job in jobs:
        if job.settings.scheme in failing:
            (tmp_path / job.folder).mkdir(parents=True)
            (tmp_path / job.folder / "checkpoints").touch()  # a file in the way of the first checkpoint
    sweep = started(arguments, tmp_path)
    out, _ = sweep.communicate(timeout=300)
    assert sweep.returncode == 1, out
    ends = {name: "failed" if name in failing else "complete" for name in ("none", "rope", "t5", "alibi")}
    assert statuses(study) == ends
    found = in_comparison(study)
    assert {name: status for name, (status, _) in found.items()} == ends
    assert all("checkpoints" in found[name][1] for name in failing)
    place = "outputs/s/wandb"
    said = [line for line in out.splitlines() if line.startswith("wandb")]
    assert said == [f"wandb: offline (no API key). View: wandb leet {place}   Upload: wandb sync {place}"]
    assert out.splitlines()[-1] == said[0]

    runs = logged(study)
    compared = runs.pop("s-compare")
    assert runs.keys() == {job.folder.name for job in jobs}
    assert len({run.id for run in [*runs.values(), compared]} | {"fixed"}) == 6
    for job in jobs:
        run = runs[job.folder.name]
        assert {name: run.config[name] for name in job.settings.plain()} == job.settings.plain()
        assert run.exit_codes == [1 if job.settings.scheme in failing else 0]
    assert not any(mark in repr(run.config) for run in runs.values() for mark in ("${", "???"))


@pytest.mark.slow
def test_a_sweep_of_runs_in_two_processes_is_as_many_runs_as_jobs(tmp_path: Path) -> None:
    """No further folder, no further wandb run, and what is scored does not depend on the number of processes."""
    uneven = 5  # validation windows, which two processes could not share equally
    folder = tmp_path / "work"
    study = folder / "outputs" / "s"
    folder.mkdir()
    arguments = ["-m", "pe=rope,alibi", *TRACKED, "trainer=ddp", "trainer.accelerator=cpu", "study=s"]
    arguments.append(f"train.validation_windows={uneven}")
    jobs = plan(take_apart(arguments)).jobs
    sweep = started(arguments, folder)
    out, _ = sweep.communicate(timeout=500)
    assert sweep.returncode == 0, out
    names = {job.folder.name for job in jobs}
    assert {path.name for path in study.iterdir() if path.is_dir()} == names | {"figures", "wandb"}
    assert sorted(os.listdir(folder)) == ["outputs"] and sorted(os.listdir(study.parent)) == ["latest", "s"]
    runs = logged(study)
    assert runs.keys() == names | {"s-compare"}
    for job in jobs:
        record, run = records.read_record(study / job.folder.name), runs[job.folder.name]
        assert record.training["processes"] == 2
        assert run.exit_codes == [0] and run.config["pe"]["name"] == job.settings.scheme
        assert [
            length for length, _ in run.series("eval/length", "eval/loss/whole_windows")
        ] == job.settings.eval_lengths
        assert [step for step, _ in run.series("trainer/global_step", "train/loss")] == [4]
        model, settings = posbuild.load(study / job.folder.name)
        windows = validation_windows(corpora.load(settings.data).validation, settings.train.length, uneven)
        assert record.training["history"][-1][1] == pytest.approx(validation_loss(model, windows), abs=1e-5)
        losses = [row for row in record.rows if row.measure == "training/loss"]
        assert {row.count for row in losses} == {uneven * settings.train.length}
