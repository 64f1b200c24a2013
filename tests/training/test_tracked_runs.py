"""Runs and wandb: where a run leaves its files whatever the tracking, and whose wandb run is whose."""

from __future__ import annotations

import time
from pathlib import Path

from posbuild import records
from posbuild.training.run import run
from tests.test_tracking import logged, no_account  # noqa: F401 (the fixture keeps wandb away from the machine's own settings)
from tests.training.helpers import tiny

BRIEF = {"train": {"steps": 2, "checkpoint_every": 1}, "optim": {"warmup": 0}}


def start(corpus: Path, folder: Path, **sections) -> None:
    assert run(tiny(corpus, **(BRIEF | sections)), folder, "command", lambda line: None) == records.COMPLETE


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_files_lie_in_the_same_places_whatever_the_tracking(corpus, tmp_path, monkeypatch):
    """Offline, disabled and off; and nothing in the folder in which the command is typed."""
    monkeypatch.chdir(tmp_path)
    start(corpus, tmp_path / "off" / "run", logger={"name": "none"})
    start(corpus, tmp_path / "offline" / "run", logger={"name": "wandb", "mode": "offline"})
    monkeypatch.setenv("WANDB_MODE", "disabled")
    start(corpus, tmp_path / "disabled" / "run", logger={"name": "wandb"})
    expected = files(tmp_path / "off")
    assert "run/checkpoints/last.ckpt" in expected and "run/weights.pt" in expected
    assert files(tmp_path / "disabled") == expected
    tracked = files(tmp_path / "offline")
    assert {file for file in tracked if not file.startswith("wandb/")} == expected | {"run/wandb_id"}
    assert {path.name for path in tmp_path.iterdir()} <= {
        "off",
        "offline",
        "disabled",
        "home",
        "wandb config",
        "wandb data",
    }


def test_the_same_command_twice_is_two_runs(corpus, tmp_path, monkeypatch):
    """Also where the environment fixes an id: two runs under it would be one."""
    monkeypatch.setenv("WANDB_RUN_ID", "fixed")
    ids = []
    for study in ("first", "second"):
        start(corpus, tmp_path / study / "run", logger={"name": "wandb", "mode": "offline"})
        (one,) = logged(tmp_path / study).values()
        ids.append(one.id)
    assert len({*ids, "fixed"}) == 3


def test_a_large_setting_does_not_hold_up_the_start(corpus, tmp_path):
    """100 000 evaluation lengths: the wandb run is open within 5 s, far from the 15 MB that its server takes."""
    from posbuild.tracking import tracking

    settings = tiny(corpus, logger={"name": "wandb", "mode": "offline"})
    settings.eval.lengths = list(range(1, 100_001))
    before = time.process_time()
    with tracking(settings, tmp_path / "study" / "run", "study", report=lambda line: None):
        assert time.process_time() - before < 5
    (one,) = logged(tmp_path / "study").values()
    assert one.file.stat().st_size < 15e6
