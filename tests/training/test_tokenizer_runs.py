"""Whole jobs on the tokens of a tokenizer file: what their records say, and that the run folder needs no other file."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from posbuild import records, remeasure
from posbuild.comparison.compare import compare
from posbuild.records import Record
from posbuild.report import tables
from posbuild.training.load import load, read_settings
from posbuild.training.run import run
from tests.data.made import byte_level_bpe, single_bytes
from tests.training.helpers import tiny, write_corpus


def job(corpus: Path, folder: Path, tokenizer: Path | None = None, **sections) -> Record:
    data = {"tokenizer": str(tokenizer)} if tokenizer else {}
    settings = tiny(corpus, data={"name": "files", "path": str(corpus), **data}, **sections)
    assert run(settings, folder, "a command", lambda line: None) == "complete"
    return records.read_record(folder)


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def study(texts, tmp_path_factory) -> Path:
    """One run on bytes, one on single bytes by a tokenizer, one on BPE."""
    folder = tmp_path_factory.mktemp("study")
    files = tmp_path_factory.mktemp("tokenizers")
    job(texts, folder / "bytes")
    job(texts, folder / "single", single_bytes(files / "single.json"))
    written = [path.read_text(encoding="utf-8") for path in texts.glob("*.txt")]
    job(texts, folder / "bpe", byte_level_bpe(files / "bpe.json", written, 320), train={"length": 8})
    shutil.rmtree(files)
    return folder


def losses(record: Record) -> dict[tuple, tuple]:
    return {row.key: (row.value, row.count, row.bytes) for row in record.rows}


def test_a_tokenizer_of_single_bytes_changes_nothing_but_the_name(study):
    plain, single = (records.read_record(study / name) for name in ("bytes", "single"))
    assert losses(single) == losses(plain)
    assert single.data["counts"] == plain.data["counts"] and single.data["sha256"] == plain.data["sha256"]
    assert single.data["tokenizer"]["entries"] == 256 and plain.data["tokenizer"] is None
    assert single.hash != plain.hash


def test_the_record_says_what_was_tokenized_and_what_each_loss_covers(study):
    record = records.read_record(study / "bpe")
    data = record.data
    assert data["tokenizer"]["file"] == "bpe.json" and data["tokenizer"]["entries"] == 320
    assert data["tokens"]["train"] < data["bytes"]["train"]
    rows = [row for row in record.rows if row.measure.startswith("loss/") or row.measure.startswith("training/")]
    assert len(rows) > 5
    assert all(row.count < row.bytes < 20 * row.count for row in rows)
    assert record.model["embedding_parameters"] == 2 * 320 * 16


def test_the_run_folder_is_all_that_a_run_needs(study, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(study / "bpe", tmp_path / "moved"))
    model, settings = load(folder)
    assert model.vocab_size == 320 and settings.hash == records.read_record(folder).hash
    assert settings.data.tokenizer == str(folder / "tokenizer.json")
    monkeypatch.setattr(remeasure, "compare", lambda folders, out: None)
    before = losses(records.read_record(folder))
    assert remeasure.remeasure(folder, ["eval.lengths=[32]"]) == 0
    after = records.read_record(folder)
    assert before.items() <= losses(after).items() and len(after.rows) > len(before)


def test_a_run_that_was_cut_short_goes_on_though_the_file_is_gone(texts, study, tmp_path):
    file, folder = tmp_path / "bpe.json", tmp_path / "run"
    shutil.copy(study / "bpe" / "tokenizer.json", file)
    whole = job(texts, folder, file)
    for name in ("record.json", "status.json", "weights.pt"):
        (folder / name).unlink()
    file.unlink()
    settings, command = read_settings(folder)
    assert run(settings, folder, command, lambda line: None) == "complete"
    assert losses(records.read_record(folder)) == losses(whole)


def test_losses_of_other_tokens_are_never_paired_and_compare_in_bits_per_byte(study):
    comparison = compare([study])
    budgets = {run["folder"]: run["budget"] for run in comparison["runs"]}
    assert len({*budgets.values()}) == 3
    assert comparison["outcomes"] == []
    assert any("only bits per byte compare, never nats per token" in note for note in comparison["notes"])
    grid = tables.across_tokenizers(comparison)
    by_token = {row[2]: dict(zip(grid.header, row, strict=True)) for row in grid.rows}
    assert by_token.keys() == {"a byte", "an entry of single.json", "an entry of bpe.json"}
    for name, token in (("bytes", "a byte"), ("single", "an entry of single.json"), ("bpe", "an entry of bpe.json")):
        record = records.read_record(study / name)
        length = record.settings["train"]["length"]
        (row,) = [
            r for r in record.rows if r.measure == "loss/whole_windows" and r.at == {"length": length, "window": 0}
        ]
        bits = row.value * row.count / row.bytes / math.log(2)
        assert by_token[token]["at the train length"] == f"{bits:.3f} ({length} tokens)"
    assert float(by_token["an entry of bpe.json"]["bytes a token"]) > 1.5
    bpe = next(budget for budget in comparison["budgets"] if budget["number"] == budgets["bpe"])
    assert "(tokenizer bpe.json: 320 entries, " in bpe["scope"]


def test_a_tokenizer_that_loses_text_refuses_the_run(texts, tmp_path):
    prefixed = byte_level_bpe(tmp_path / "t.json", ["a b"], prefix=True)
    settings = tiny(texts, data={"name": "files", "path": str(texts), "tokenizer": str(prefixed)})
    assert run(settings, tmp_path / "run", "a command", lambda line: None) == "refused"
    assert "does not give the text back" in records.read_status(tmp_path / "run")["reason"]
