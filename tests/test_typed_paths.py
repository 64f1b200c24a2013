"""Relative paths mean what they mean in the folder in which the command is typed, alone and in a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from posbuild import records
from tests.test_launch import SHORT, Say, quick_train, train  # noqa: F401 (two are fixtures)

SMALL = [
    "eval.whole_window_tokens=64",
    "eval.fixed_targets=16",
    "eval.recall_passages=0",
    "eval.order_windows=0",
    "train.validation_windows=4",
]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder beside that of the texts: paths between them go up and down."""
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(6):
        (texts / f"{number}.txt").write_text(f"{number} the quick brown fox and a lazy dog. " * 200, encoding="utf-8")
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


def cut_short(run: Path) -> bytes:
    """Make a complete run one that was stopped at its last checkpoint; return its weights."""
    weights = (run / "weights.pt").read_bytes()
    for name in ("record.json", "weights.pt"):
        (run / name).unlink()
    records.write_status(run, records.FAILED, "cut short")
    return weights


@pytest.mark.parametrize("multirun", [[], pytest.param(["-m"], marks=pytest.mark.slow)], ids=["one run", "sweep"])
@pytest.mark.parametrize("path", ["../texts", "../texts/*.txt"])
def test_a_text_and_a_run_named_from_elsewhere(
    multirun: list[str],
    path: str,
    here: Path,
    quick_train: Say,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(here)
    status, out, err = quick_train(
        *multirun, "pe=none", *SHORT, *SMALL, "data=files", f"data.path={path}", "hydra.job.chdir=false", "study=s"
    )
    assert status == 0, out + err
    (run,) = (here / "outputs" / "s").glob("none_*")
    record = records.read_record(run)
    assert Path(record.settings["data"]["path"]).is_absolute() and record.data["documents"]
    weights = cut_short(run)
    (here.parent / "there").mkdir()
    monkeypatch.chdir(here.parent / "there")
    status, out, err = quick_train(f"resume=../here/{run.relative_to(here)}")
    assert status == 0, out + err
    assert (run / "weights.pt").read_bytes() == weights
    assert records.read_record(run).data == record.data
    assert [*(here.parent / "there").iterdir()] == []


def test_a_text_that_is_not_there_is_refused_with_the_path_that_was_tried(
    here: Path,
    train: Say,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(here)
    for multirun in ([], ["-m"]):
        status, _, err = train(*multirun, "pe=none", *SHORT, "data=files", "data.path=texts/*.txt", "study=s")
        assert status == 2 and f"{here}/texts/*.txt" in err and [*here.iterdir()] == []
    status, _, err = train("resume=outputs/s/none")
    assert status == 2 and f"{here}/outputs/s/none" in err
