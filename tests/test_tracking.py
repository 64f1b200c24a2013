"""What wandb gets, read back from its offline files, and that nothing that wandb does costs a run."""

from __future__ import annotations

import dataclasses
import getpass
import json
import os
import platform
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from posbuild import records, tracking
from posbuild.comparison.compare import compare
from posbuild.records import NOT_SUPPORTED, Row
from posbuild.settings import ObjectiveName, ObjectiveSettings, Settings
from posbuild.tracking import log_comparison
from posbuild.training.run import run
from tests.training.helpers import tiny, write_corpus

FAKE_KEY = "a1b2" * 10
NOWHERE = "http://127.0.0.1:9"  # no server listens there
AXES = [("eval/*", "eval/length"), ("recall/*", "recall/distance")]
ROWS = [
    *(
        Row(
            measure="loss/whole_windows",
            at={"length": length, "window": window},
            value=length / 10,
            unit="nats/token",
            count=64,
            bytes=150,
        )
        for length in (32, 16)
        for window in (0, 16)
    ),
    Row(measure="loss/by_position", at={"length": 16, "position": 8}, value=2.0, unit="nats/token", count=8),
    Row(measure="recall/gain", at={"distance": 8}, value=0.5, unit="nats/token", count=4),
    Row(
        measure="loss/whole_windows",
        at={"length": 64, "window": 0},
        unit="nats/token",
        status=NOT_SUPPORTED,
        reason="not supported beyond 32",
    ),
]


@contextmanager
def without_account(folder: Path) -> Iterator[pytest.MonkeyPatch]:
    """Neither the settings nor the server of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            patch.delenv(name)
        patch.setenv("WANDB_BASE_URL", NOWHERE)
        patch.setenv("WANDB_CONFIG_DIR", str(folder / "wandb config"))
        patch.setenv("WANDB_DATA_DIR", str(folder / "wandb data"))
        patch.setenv("HOME", str(folder / "home"))
        yield patch
        if "wandb" in sys.modules:
            import wandb

            wandb.teardown()


@pytest.fixture(autouse=True)
def no_account(tmp_path):
    with without_account(tmp_path):
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def settings(corpus) -> Settings:
    return tiny(corpus, logger={"name": "wandb"}, study="study")


# -------------------------------------------------------------------------------------------------- reading it back


def transactions(path: Path) -> Iterator[Any]:
    """Records of a .wandb file: LevelDB's log format, blocks of 32 KiB after a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, place, joined = path.read_bytes(), 7, b""
    while place + 7 <= len(content):
        if (room := 32768 - place % 32768) < 7:  # what is left of a block is too small for a header
            place += room
            continue
        _, size, kind = struct.unpack("<IHB", content[place : place + 7])
        joined += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            record = Record()
            record.ParseFromString(joined)
            joined = b""
            yield record


def values(items: Any) -> dict[str, Any]:
    """Names and values of a history, summary or config entry; a nested value comes as one item a leaf."""
    content: dict[str, Any] = {}
    for item in items:
        *path, last = list(item.nested_key) or [item.key]
        inner = content
        for name in path:
            inner = inner.setdefault(name, {})
        inner[last] = json.loads(item.value_json)
    return content


class Logged:
    """One offline run as its files have it."""

    def __init__(self, folder: Path) -> None:
        (self.file,) = folder.glob("run-*.wandb")
        entries = list(transactions(self.file))
        run = next(entry.run for entry in entries if entry.HasField("run"))
        self.id, self.name, self.group, self.job_type = run.run_id, run.display_name, run.run_group, run.job_type
        self.project, self.tags = run.project, list(run.tags)
        self.config = values(run.config.update)
        self.metrics = [
            (m.name or m.glob_name, m.step_metric) for m in (e.metric for e in entries if e.HasField("metric"))
        ]
        self.history = [values(entry.history.item) for entry in entries if entry.HasField("history")]
        self.summary: dict[str, Any] = {}
        for entry in entries:
            if entry.HasField("summary"):
                self.summary |= values(entry.summary.update)
        self.exit_codes = [entry.exit.exit_code for entry in entries if entry.HasField("exit")]

    def series(self, *names: str) -> list[tuple]:
        """The entries that have all these names."""
        return [tuple(entry[name] for name in names) for entry in self.history if all(name in entry for name in names)]

    def table(self, name: str) -> dict:
        (reference,) = [entry[name] for entry in self.history if name in entry]
        return json.loads((self.file.parent / "files" / reference["path"]).read_text(encoding="utf-8"))


def logged(study: Path) -> dict[str, Logged]:
    """The offline runs of a study by name, once wandb has written all that it holds."""
    import wandb

    wandb.teardown()
    runs = [Logged(folder) for folder in sorted((study / "wandb").glob("offline-run-*"))]
    named = {each.name: each for each in runs}
    assert len(named) == len(runs)
    return named


def column(table: dict, *names: str) -> list[tuple]:
    """The cells of these columns."""
    return [tuple(row[table["columns"].index(name)] for name in names) for row in table["data"]]


def log_rows(settings: Settings, folder: Path, report=lambda line: None) -> tracking.Tracker:
    with tracking.tracking(settings, folder, "study", {"data_sha256": "abc"}, report) as tracker:
        tracker.log_rows(ROWS)
    return tracker


@pytest.fixture(scope="module")
def offline(corpus, tmp_path_factory) -> Path:
    """The study folder of one run with the rows above, on a machine whose user has a name and a secret."""
    study = tmp_path_factory.mktemp("outputs") / "study"
    with without_account(study.parent) as patch:
        patch.setenv("USER", "jane-of-the-machine")
        patch.setenv("SOME_TOKEN", "s3cr3t-t0k3n")
        assert getpass.getuser() == "jane-of-the-machine"
        log_rows(tiny(corpus, logger={"name": "wandb"}, study="study"), study / "run")
    return study


# ------------------------------------------------------------------------------------------------------ what is logged


def test_whole_jobs_in_one_process_are_runs_of_their_own(corpus, tmp_path):
    """A job that ends well, one that fails and one that is refused."""
    study, lines = tmp_path / "a study, 研究", []
    chosen = {"logger": {"name": "wandb"}, "study": "a study, 研究"}
    good, bad = tiny(corpus, **chosen), tiny(corpus, optim={"lr": 1e30, "clip": None}, pe={"name": "rope"}, **chosen)
    assert run(good, study / "good", "command", lines.append) == records.COMPLETE
    assert run(bad, study / "bad", "command", lines.append) == records.DIVERGED
    assert (
        run(tiny(corpus, eval={"lengths": [10**6]}, **chosen), study / "refused", "command", lines.append)
        == records.REFUSED
    )

    runs = logged(study)
    assert runs.keys() == {"good", "bad"}
    assert runs["good"].id != runs["bad"].id
    assert (runs["good"].exit_codes, runs["bad"].exit_codes) == ([0], [1])
    for name, settings in (("good", good), ("bad", bad)):
        each = runs[name]
        assert (each.group, each.job_type, each.project) == (study.name, "train", "posbuild")
        assert sorted(each.tags) == sorted(
            [f"pe:{settings.scheme}", "model:tiny", "data:files", "objective:next_token", "seed:0"]
        )
        expected = settings.plain() | {"data": settings.plain()["data"] | {"path": corpus.name}}
        assert {name: each.config[name] for name in expected} == expected
        assert len(each.config["data_sha256"]) == 64
        assert not any(mark in json.dumps(each.config) for mark in ("${", "???"))
    record = records.read_record(study / "good")
    assert runs["good"].series("trainer/global_step", "validation/loss") == [
        tuple(point) for point in record.training["history"]
    ]
    assert [step for step, _ in runs["good"].series("trainer/global_step", "train/loss")] == [4, 8, 10]
    assert [length for length, _ in runs["good"].series("eval/length", "eval/loss/whole_windows")] == [16, 32]
    assert len(runs["good"].table("tables/rows")["data"]) == len(record.rows)
    log_comparison(study, compare([study]), study.name, good.logger, lambda line: None)
    compared = logged(study)[f"{study.name}-compare"]
    assert [status for *_, status in sorted(column(compared.table("tables/runs"), "folder", "status"))] == [
        "diverged",
        "complete",
        "refused",
    ]
    chart = compared.table("plots/whole_windows_table")["data"]
    assert [(x, label) for x, label, _ in chart] == [(16, "alibi"), (32, "alibi")]
    assert [y for *_, y in chart] == [loss for _, loss in runs["good"].series("eval/length", "eval/loss/whole_windows")]

    assert not any(line.startswith("wandb") for line in lines)  # a launch says it once, at its end


def test_axes_curves_summary_and_table(offline):
    (one,) = logged(offline).values()
    assert [metric for metric in one.metrics if metric[1]] == [*AXES, ("*", "trainer/global_step")]
    assert one.series("eval/length", "eval/loss/whole_windows", "eval/loss/whole_windows_window_16") == [
        (16, 1.6, 1.6),
        (32, 3.2, 3.2),
    ]
    assert not any(
        name.startswith("eval/") and ("position" in name or "64" in name) for entry in one.history for name in entry
    )
    assert one.series("recall/distance", "recall/gain") == [(8, 0.5)]
    assert one.summary["recall/gain_distance_8"] == 0.5
    table = one.table("tables/rows")
    assert table["columns"] == ["measure", "at", "value", "unit", "count", "bytes", "status", "reason", "note"]
    assert column(table, "count", "bytes")[0] == (64, 150)
    assert table["data"][-1] == [
        "loss/whole_windows",
        '{"length": 64, "window": 0}',
        None,
        "nats/token",
        None,
        None,
        "not supported",
        "not supported beyond 32",
        "",
    ]


def test_an_encoder_has_a_tag_of_its_own(settings):
    masked = dataclasses.replace(settings, objective=ObjectiveSettings(name=ObjectiveName.masked))
    assert "objective:next_token" in tracking.tags(settings) and "objective:masked" in tracking.tags(masked)


def test_comparison_is_a_run_of_its_own(settings, tmp_path):
    from PIL import Image

    study = tmp_path / "study"
    (study / "figures").mkdir(parents=True)
    Image.new("RGB", (30, 20)).save(study / "figures" / "length_curve.png")
    page = (
        f"<p>the page: python train.py -m pe=alibi,learned data.path=/home/jane/texts/secret.txt {Path.home()}/x</p>"
        "<p>next: python train.py pe=rope data.path=/home/jane/texts/secret.txt seed=0,1,2 &#39;optim.tuned=/home/jane/a b&#39;</p>"
    )
    (study / "comparison.html").write_text(page, encoding="utf-8")
    summary = [
        {"budget": 1, "label": label, "measure": "loss/whole_windows", "at": {"length": length, "window": 0}, "mean": mean, "status": status}
        for label, length, mean, status in [
            ("alibi", 32, 1.2, "measured"), ("alibi", 16, 1.3, "measured"), ("learned", 16, 1.4, "measured"), ("learned", 32, None, "not supported"),
        ]
    ] + [
        {"budget": 1, "label": "alibi", "measure": "recall/gain", "at": {"distance": distance}, "mean": mean, "status": "measured"}
        for distance, mean in ((32, 0.1), (8, 0.5))
    ]  # fmt: skip
    comparison = {
        "command": "python train.py -m pe=alibi,learned data.path=/home/jane/texts/secret.txt 'study=a b'",
        "margin": 0.02,
        "labels": {"alibi": "alibi", "learned": "learned"},
        "runs": [
            {
                "label": "alibi",
                "seed": 0,
                "status": "complete",
                "parameters": 1000,
                "command": "python train.py pe=alibi data.path=/home/jane/texts/secret.txt 'optim.tuned=/home/jane/a b'",
            },
            {
                "label": "learned",
                "seed": 0,
                "status": "failed",
                "parameters": None,
                "reason": f"interrupted; go on with resume={Path.cwd()}/outputs/s/r",
            },
        ],
        "rows": [{"label": "alibi", "at": {"length": 16}, "value": 1.3}],
        "summary": summary,
        "outcomes": [
            {
                "pair": ["alibi", "learned"],
                "measure": "loss/whole_windows",
                "at": {"length": 16},
                "outcome": "undecided",
                "difference": -0.1,
            }
        ],
    }

    def told(public, name):
        return {"guide": [{"study": str(name), "command": public["command"]}]}

    log_comparison(study, comparison, "another name", settings.logger, lambda line: None, told)
    (one,) = logged(study).values()
    assert (one.name, one.group, one.job_type, one.exit_codes) == ("study-compare", "another name", "compare", [0])
    assert one.config["command"] == "python train.py -m pe=alibi,learned data.path=secret.txt 'study=a b'"
    assert column(one.table("tables/outcomes"), "pair", "outcome") == [('["alibi", "learned"]', "undecided")]
    assert len(one.table("tables/summary")["data"]) == 6 and len(one.table("tables/runs")["data"]) == 2
    assert one.series("eval/length", "eval/whole_windows/alibi") == [(16, 1.3), (32, 1.2)]
    assert one.series("eval/length", "eval/whole_windows/learned") == [(16, 1.4)]
    assert one.series("recall/distance", "recall/gain/alibi") == [(8, 0.5), (32, 0.1)]
    assert [metric for metric in one.metrics if metric[1]] == AXES
    assert one.table("tables/guide") == one.table("tables/guide") | {
        "columns": ["study", "command"],
        "data": [["study", "python train.py -m pe=alibi,learned data.path=secret.txt 'study=a b'"]],
    }
    chart = one.table("plots/whole_windows_table")
    assert sorted(chart["data"], key=str) == sorted(
        [[16, "alibi", 1.3], [32, "alibi", 1.2], [16, "learned", 1.4]], key=str
    )
    (picture,) = [entry["viz/length_curve"] for entry in one.history if "viz/length_curve" in entry]
    assert (picture["width"], picture["height"]) == (30, 20)
    (page,) = [entry["viz/comparison"] for entry in one.history if "viz/comparison" in entry]
    text = (one.file.parent / "files" / page["path"]).read_text(encoding="utf-8")
    assert "the page: python train.py" in text and "data.path=secret.txt" in text and "~/x" in text
    assert "next: python train.py pe=rope data.path=secret.txt seed=0,1,2 &#39;optim.tuned=a b&#39;" in text
    written = [path for path in one.file.parent.rglob("*") if path.is_file()]
    assert not any(b"jane" in path.read_bytes() for path in written)
    tables = b"".join(path.read_bytes() for path in written if path.suffix in (".json", ".html"))
    assert str(Path.cwd()).encode() not in tables and str(Path.home()).encode() not in tables
    assert "interrupted; go on with resume=outputs/s/r" in str(one.table("tables/runs"))


def test_paths_are_told_from_the_working_folder_or_by_their_last_part(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = f"python /home/jane/train.py data.path={tmp_path}/texts/*.txt study=s\nposbuild train data.path=~/a"
    assert tracking.command_without_folders(command) == (
        "python train.py 'data.path=texts/*.txt' study=s\nposbuild train data.path=a"
    )
    tuned = "posbuild train optim.tuned=null,/home/jane/outputs/tune"
    assert tracking.command_without_folders(tuned) == "posbuild train optim.tuned=null,tune"


def wandb_answers(*words: str) -> str:
    command = [sys.executable, "-m", "wandb", *words]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout


def test_of_the_files_of_a_run_no_folder_is_told(settings, tmp_path, monkeypatch):
    told = {}

    @contextmanager
    def opened(*arguments, **wanted):
        told.update(wanted)
        yield tracking.Tracker(None, print)

    monkeypatch.setattr(tracking, "_open", opened)
    data = dataclasses.replace(settings.data, path="/home/jane/texts", tokenizer="/home/jane/bpe.json")
    with tracking.tracking(dataclasses.replace(settings, data=data), tmp_path, "study"):
        pass
    assert (told["config"]["data"]["path"], told["config"]["data"]["tokenizer"]) == ("texts", "bpe.json")


def test_one_line_says_how_to_view_and_upload_all_runs_of_a_study(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study, lines = tmp_path / "my study", []
    for name in ("one", "two"):
        log_rows(settings, study / name, lines.append)
    tracking.say_where(study, settings.logger, lines.append)
    (line,) = lines
    assert line.startswith("wandb: offline (no API key). ")
    words = shlex.split(line)
    assert words[words.index("View:") + 1 :][:3] == ["wandb", "leet", "my study/wandb"]
    assert words[words.index("Upload:") + 1 :] == ["wandb", "sync", "my study/wandb"]
    assert "Would sync 2 run(s)" in wandb_answers(*words[words.index("sync") :], "--dry-run")
    names = {
        json.loads(wandb_answers("leet", "inspect", "--summary", "--json", str(file.parent)))["name"]
        for file in tracking.offline_runs(Path(words[words.index("leet") + 1]).parent)
    }
    assert names == {"one", "two"}


def test_where_is_said_only_of_what_is_there(settings, offline, tmp_path, monkeypatch):
    lines: list[str] = []
    tracking.say_where(tmp_path, settings.logger, lines.append)
    assert lines == []
    shutil.copytree(offline, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
    tracking.say_where(tmp_path, settings.logger, lines.append)
    assert lines.pop().startswith("wandb: 1 of these runs not uploaded. View: ")
    (file,) = tracking.offline_runs(tmp_path)
    file.with_name(f"{file.name}.synced").touch()
    tracking.say_where(tmp_path, settings.logger, lines.append)
    assert lines == []
    monkeypatch.setenv("WANDB_MODE", "disabled")
    tracking.say_where(tmp_path, settings.logger, lines.append)
    assert lines == ["wandb: off (WANDB_MODE=disabled)."]


COMPARISON = {
    "command": "posbuild train",
    "margin": 0.02,
    "labels": {},
    "outcomes": [],
    "runs": [{"label": "alibi"}],
} | {
    "rows": [],
    "summary": [
        {"budget": 1, "label": "alibi", "measure": "loss/whole_windows", "at": {"length": 16, "window": 0}, "mean": 1.0}
    ],
}


def test_a_comparison_is_logged_once_and_a_changed_one_in_its_place(settings, tmp_path):
    study, lines = tmp_path / "study", []

    def log(margin: float) -> Logged:
        log_comparison(study, COMPARISON | {"margin": margin}, "study", settings.logger, lines.append)
        (one,) = logged(study).values()
        return one

    first, again, changed = log(0.02), log(0.02), log(0.03)
    assert again.file == first.file and changed.file != first.file
    assert changed.id == first.id and changed.config["margin"] == 0.03 and lines == []
    shutil.rmtree(study / "wandb")
    assert log(0.03).id == first.id


def test_a_comparison_and_the_run_that_it_lies_beside_are_two_runs(settings, tmp_path):
    """A single run in a folder of its own choice is its own study."""
    log_rows(settings, tmp_path / "run")
    log_comparison(tmp_path / "run", COMPARISON, "run", settings.logger, lambda line: None)
    ((run,), (compared,)) = logged(tmp_path).values(), logged(tmp_path / "run").values()
    assert run.id != compared.id


def test_a_password_in_the_address_of_the_server_is_not_printed(settings, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)

    def fail(*_):
        raise RuntimeError("no answer from https://jane:secret@wandb.example/api")

    monkeypatch.setattr(tracking, "_start", fail)
    lines: list[str] = []
    log_rows(settings, tmp_path / "study" / "run", lines.append)
    assert lines == ["wandb: nothing is logged: no answer from https://wandb.example/api"]


def test_what_is_uploaded_does_not_name_the_machine_or_its_user(offline):
    (one,) = logged(offline).values()
    (run,) = [entry.run for entry in transactions(one.file) if entry.HasField("run")]
    assert not run.host and not run.HasField("git") and "executable" not in one.config
    content = one.file.read_bytes()
    for secret in ("jane-of-the-machine", "s3cr3t-t0k3n", sys.executable, f'"{platform.node()}"'):
        assert secret.encode() not in content
    assert not list(one.file.parent.glob("files/*metadata*")) and not list(one.file.parent.glob("files/*.log"))


def test_resumed_run_keeps_its_id(settings, tmp_path):
    for _ in range(2):
        log_rows(settings, tmp_path / "study" / "run")
    files = list((tmp_path / "study" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2
    assert {file.stem for file in files} == {"run-" + (tmp_path / "study" / "run" / "wandb_id").read_text()}


# ----------------------------------------------------------------------------------------------------- modes and keys


@pytest.mark.parametrize(
    ("variables", "mode", "resolved", "why"),
    [
        ({}, "auto", "offline", "no API key"),
        ({}, "online", "offline", "online needs an API key"),
        ({"WANDB_API_KEY": FAKE_KEY}, "auto", "online", ""),
        ({"WANDB_API_KEY": FAKE_KEY}, "offline", "offline", "logger.mode=offline"),
        ({"WANDB_API_KEY": FAKE_KEY, "WANDB_MODE": "offline"}, "online", "offline", "WANDB_MODE=offline"),
        ({"WANDB_API_KEY": FAKE_KEY, "WANDB_MODE": "online"}, "offline", "online", ""),
        ({"WANDB_API_KEY": "too short"}, "auto", "offline", "API key"),
        ({"WANDB_MODE": "disabled"}, "online", "disabled", "WANDB_MODE=disabled"),
        ({"WANDB_MODE": "no such"}, "auto", "offline", "WANDB_MODE=no such is not one of online, offline"),
        ({"WANDB_MODE": "online"}, "auto", "offline", "online needs an API key"),
    ],
)
def test_mode(variables, mode, resolved, why, settings, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings.logger.mode = type(settings.logger.mode)[mode]
    found, reason = tracking.resolve_mode(settings.logger)
    assert found == resolved and why in reason and bool(reason) == bool(why)


def test_key_without_network_goes_on_offline(settings, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
    monkeypatch.setattr(tracking, "INIT_TIMEOUT", 2)
    lines: list[str] = []
    log_rows(settings, tmp_path / "study" / "run", lines.append)
    assert len(lines) == 1 and lines[0].startswith("wandb: run is logged offline: ")
    assert logged(tmp_path / "study")["run"].exit_codes == [0]


def test_key_is_written_nowhere(settings, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
    monkeypatch.setenv("WANDB_MODE", "offline")
    log_rows(settings, tmp_path / "study" / "run")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 3
    assert [path for path in files if FAKE_KEY.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("off", ["logger", "variable"])
def test_nothing_is_written_when_it_is_off(off, settings, corpus, tmp_path, monkeypatch):
    if off == "variable":
        monkeypatch.setenv("WANDB_MODE", "disabled")
    else:
        settings = tiny(corpus)
    tracker = log_rows(settings, tmp_path / "study" / "run")
    assert tracker.lightning_logger is None
    assert not (tmp_path / "study" / "wandb").exists()


def test_wandb_is_not_imported_when_it_is_off(corpus, tmp_path):
    code = f"""
import sys
from pathlib import Path
from posbuild import tracking
from tests.training.helpers import tiny
with tracking.tracking(tiny(Path({str(corpus)!r})), Path({str(tmp_path)!r}), "study") as tracker:
    tracker.log_scalars({{"a": 1}})
assert not {{"wandb", "pytorch_lightning", "torch"}} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------------------------------------------- wandb's faults


def test_place_that_cannot_be_written_costs_nothing(settings, tmp_path):
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "wandb").write_text("a file in its way")
    lines: list[str] = []
    tracker = log_rows(settings, tmp_path / "study" / "run", lines.append)
    assert tracker.run is None
    assert len(lines) == 1 and lines[0].startswith("wandb: nothing is logged")


def test_id_that_cannot_be_kept_costs_nothing(settings, tmp_path):
    (tmp_path / "study" / "run" / "wandb_id").mkdir(parents=True)
    lines: list[str] = []
    assert log_rows(settings, tmp_path / "study" / "run", lines.append).run is None
    assert len(lines) == 1 and lines[0].startswith("wandb: nothing is logged")


def test_killed_service_costs_nothing(settings, tmp_path):
    """wandb's own process is killed between two numbers."""
    lines: list[str] = []
    with tracking.tracking(settings, tmp_path / "study" / "run", "study", report=lines.append) as tracker:
        tracker.log_scalars({"train/loss": 1.0}, 1)
        logger = tracker.lightning_logger
        for service in children_named("wandb-core"):
            os.kill(service, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while tracker.run is not None and time.monotonic() < deadline:
            logger.log_metrics({"train/loss": 1.0}, 2)
            time.sleep(0.05)
        tracker.log_rows(ROWS)
        done = True
    assert done and tracker.run is None
    assert any("logging stopped" in line for line in lines)


def children_named(name: str) -> list[int]:
    """Processes that this one started, by the name of their program."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            program, _, rest = path.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        if program.startswith(name) and int(rest.split()[1]) == os.getpid():
            found.append(int(path.parent.name))
    assert found
    return found


def test_killed_run_can_be_read_and_is_not_finished(corpus, tmp_path):
    code = f"""
import os, time
from pathlib import Path
from posbuild import tracking
from tests.training.helpers import tiny
settings = tiny(Path({str(corpus)!r}), logger={{"name": "wandb", "mode": "offline"}})
with tracking.tracking(settings, Path({str(tmp_path / "study" / "run")!r}), "study") as tracker:
    for step in range(200):
        tracker.log_scalars({{"train/loss": 1.0}}, step)
    time.sleep(1)
    os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == -signal.SIGKILL
    one = logged(tmp_path / "study")["run"]
    assert len(one.series("trainer/global_step", "train/loss")) > 100
    assert 0 not in one.exit_codes


def test_exception_in_the_block_marks_the_run_failed_and_is_not_swallowed(settings, tmp_path):
    with (
        pytest.raises(ZeroDivisionError),
        tracking.tracking(settings, tmp_path / "study" / "run", "study", report=lambda line: None),
    ):
        1 / 0  # noqa: B018
    assert logged(tmp_path / "study")["run"].exit_codes == [1]
