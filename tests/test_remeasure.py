"""`posbuild evaluate`: what is measured again, and what the record then says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from posbuild import records, remeasure
from posbuild.errors import ConfigError, RunError
from posbuild.evaluation import measure
from posbuild.records import Record, Row
from posbuild.settings import from_plain
from posbuild.training.run import run
from tests.training.helpers import tiny, write_corpus

WHOLE = "loss/whole_windows"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "finished"
    assert run(tiny(corpus, train={"steps": 2}), folder, "a command", lambda line: None) == "complete"
    return folder


@pytest.fixture
def folder(finished, tmp_path, monkeypatch) -> Path:
    """A finished run, with no comparison made of it."""
    monkeypatch.setattr(remeasure, "compare", lambda folders, out: None)
    return Path(shutil.copytree(finished, tmp_path / "run"))


def evaluate(folder: Path, *typed: str) -> Record:
    assert remeasure.remeasure(folder, typed) == 0
    return records.read_record(folder)


def draws(record: Record, measure: str = WHOLE) -> dict[int, str]:
    return {row.at["length"]: row.draw for row in record.rows if row.measure == measure and not row.at["window"]}


def test_it_says_what_text_it_reads_and_what_it_finds(folder, capsys):
    record = evaluate(folder, "eval.lengths=[64]")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Data: files ") and record.data["sha256"][:8] in lines[0]
    (row,) = (row for row in record.rows if row.measure == WHOLE and row.at == {"length": 64, "window": 0})
    assert any(f"64 tokens: whole windows {row.value:.3f}" in line for line in lines)


def test_a_further_length_leaves_the_others_as_they_were(folder):
    before = records.read_record(folder)
    after = evaluate(folder, "eval.lengths=[64]")
    assert [row for row in after.rows if row.key in {row.key for row in before.rows}] == before.rows
    assert draws(after).keys() == {16, 32, 64} and len(set(draws(after).values())) == 1
    assert from_plain(after.settings).eval_lengths == [16, 32, 64]


def test_a_second_time_the_first_is_not_forgotten(folder):
    evaluate(folder, "eval.lengths=[64]", "eval.order_windows=8")
    after = evaluate(folder, "eval.lengths=[48]")
    assert from_plain(after.settings).eval_lengths == [16, 32, 48, 64]
    assert after.settings["eval"]["order_windows"] == 8


def test_other_tokens_are_scored_at_every_length_or_at_none(folder, capsys):
    before = evaluate(folder, "eval.lengths=[64]")
    capsys.readouterr()
    after = evaluate(folder, "eval.lengths=[16]", "eval.whole_window_tokens=1024", "eval.window_control=false")
    assert "eval.lengths=[16,32,64]" in capsys.readouterr().out
    assert draws(after).keys() == {16, 32, 64}
    assert not set(draws(after).values()) & set(draws(before).values())
    assert {row.count for row in after.rows if row.measure == WHOLE} == {1024}
    assert after.settings["eval"]["window_control"]


def test_cost_is_measured_in_the_precision_of_the_training(folder, monkeypatch):
    asked = {}
    monkeypatch.setattr(measure, "cost", lambda *models, **given: asked.update(given) or [])
    record = records.read_record(folder)
    record.environment["precision"] = "bf16-mixed"
    records.write_record(folder, record)
    after = evaluate(folder, "eval.cost_rounds=1")
    assert asked["precision"] == "bf16-mixed" and after.settings["eval"]["cost_rounds"] == 1


@pytest.mark.parametrize(("name", "other"), [("device", "Another Machine"), ("threads", 77)])
def test_cost_on_another_machine_is_not_mixed_in(name, other, folder, monkeypatch, capsys):
    monkeypatch.setattr(measure, "cost", lambda *models, **given: pytest.fail("cost was measured"))
    record = records.read_record(folder)
    record.environment[name] = other
    record.rows.append(Row(measure="cost/decoding_speed", value=1.0))
    records.write_record(folder, record)
    after = evaluate(folder, "eval.cost_rounds=1")
    assert "Cost is not measured" in capsys.readouterr().out
    assert after.settings["eval"]["cost_rounds"] == 0
    assert [row.value for row in after.rows if row.measure.startswith("cost/")] == [1.0]


def test_an_error_in_the_last_part_costs_that_part_alone(folder, monkeypatch):
    def broken(*models, **given):
        raise MemoryError("too little")

    monkeypatch.setattr(measure, "cost", broken)
    with pytest.raises(MemoryError):
        evaluate(folder, "eval.lengths=[64]", "eval.cost_rounds=1")
    after = records.read_record(folder)
    assert draws(after).keys() == {16, 32, 64} and after.settings["eval"]["cost_rounds"] == 0


def test_a_number_may_come_to_stand_where_none_was(folder):
    record = records.read_record(folder)
    at = {"length": 16, "window": 0}
    lost = Row(measure=WHOLE, at=at, status=records.NOT_FINITE, reason="broken")
    record.rows = records.merge(record.rows, [lost])
    records.write_record(folder, record)
    (row,) = [row for row in evaluate(folder).rows if row.key == lost.key]
    assert row.status == records.MEASURED and not row.reason


def test_another_text_is_refused(folder):
    record = records.read_record(folder)
    record.data["sha256"] = "0" * 64
    records.write_record(folder, record)
    with pytest.raises(RunError, match="is not the text"):
        evaluate(folder)


def test_lengths_that_the_text_cannot_fill_are_refused_as_typed(folder):
    with pytest.raises(ConfigError, match=r"eval.lengths=\[99999\]"):
        evaluate(folder, "eval.lengths=[99999]")
