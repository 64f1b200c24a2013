"""A Hugging Face dataset as text, read from a local folder in every form that such a folder has."""

from __future__ import annotations

import importlib.util
import json
from contextlib import suppress
from pathlib import Path

import datasets
import pytest

from posbuild.data.corpora import load
from posbuild.errors import ConfigError
from posbuild.overrides import settings_of
from posbuild.settings import Corpus, DataSettings, check
from tests.data.made import json_lines

ROWS = [{"text": f"row {number} 猫 " * (number + 5), "id": number} for number in range(40)]


@pytest.fixture(autouse=True)
def without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


def hf(path: Path | str, **settings):
    return load(DataSettings(name=Corpus.hf, path=str(path), **settings))


def texts(corpus) -> list[str]:
    """Of all documents, in the order of their names."""
    found = {document.name: document for split in (corpus.train, corpus.validation, corpus.test) for document in split}
    return [found[name].tokens.tobytes().decode() for name in sorted(found)]


def json_folder(folder: Path) -> Path:
    return json_lines(folder, ROWS)


def parquet_folder(folder: Path) -> Path:
    folder.mkdir()
    datasets.Dataset.from_list(ROWS).to_parquet(folder / "train-00000-of-00001.parquet")
    return folder


def saved_folder(folder: Path) -> Path:
    datasets.Dataset.from_list(ROWS).save_to_disk(folder)
    return folder


def saved_splits(folder: Path) -> Path:
    datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)}).save_to_disk(folder)
    return folder


def arrow_folder(folder: Path) -> Path:
    """The Arrow file alone, without what save_to_disk says of it."""
    saved_folder(folder)
    for file in folder.glob("*.json"):
        file.unlink()
    (file,) = folder.glob("*.arrow")
    file.rename(folder / "train.arrow")
    return folder


@pytest.mark.parametrize("make", [json_folder, parquet_folder, arrow_folder, saved_folder, saved_splits])
def test_each_row_of_a_local_folder_is_a_document(make, tmp_path):
    corpus = hf(make(tmp_path / "my data"))
    assert texts(corpus) == [row["text"] for row in ROWS]
    assert corpus.facts["documents"] == {"train": 34, "validation": 2, "test": 4}
    assert [document.name for document in corpus.test] == [f"{number:09}" for number in (37, 38, 39, 40)]  # the longest
    assert corpus.facts["rows"] == {"read": 40, "empty": 0, "copies": 0} and corpus.facts["limit_reached"] is False
    assert json.loads(json.dumps(corpus.facts)) == corpus.facts


def test_every_form_of_a_dataset_is_the_same_text(tmp_path):
    hashes = {hf(make(tmp_path / make.__name__)).sha256 for make in (json_folder, parquet_folder, saved_folder)}
    assert len(hashes) == 1


def test_rows_are_read_whole_up_to_the_limit(tmp_path):
    folder, sizes = json_folder(tmp_path / "d"), [len(row["text"].encode()) for row in ROWS]
    limit = sum(sizes[:12]) + 1
    corpus = hf(folder, limit=limit)
    assert texts(corpus) == [row["text"] for row in ROWS[:13]]
    assert corpus.facts["rows"]["read"] == 13 and corpus.facts["limit_reached"] is True
    assert texts(hf(folder, limit=limit - 1)) == [row["text"] for row in ROWS[:12]]


def test_rows_without_text_and_copies_are_counted_and_left_out(tmp_path):
    rows = [{"text": ""}, {"text": None}, *ROWS[:20], ROWS[3], {"id": 7, "text": "the last"}]
    corpus = hf(json_lines(tmp_path / "d", rows))
    assert texts(corpus) == [row["text"] for row in ROWS[:20]] + ["the last"]
    assert corpus.facts["rows"] == {"read": 24, "empty": 2, "copies": 1}
    assert corpus.facts["left_out"] == {}


def test_column_and_split_are_chosen(tmp_path):
    folder = json_lines(tmp_path / "d", [{"text": "not this", "body": row["text"]} for row in ROWS])
    (folder / "train.jsonl").rename(folder / "test.jsonl")
    assert texts(hf(folder, column="body", split="test")) == [row["text"] for row in ROWS]


def test_one_row_is_cut_into_parts(tmp_path):
    corpus = hf(json_lines(tmp_path / "d", [{"text": "one long row " * 100}]))
    assert corpus.facts["split"] == "by part" and len(corpus.train) == len(corpus.test) == 1


def test_a_line_says_what_was_read(tmp_path):
    corpus = hf(json_folder(tmp_path / "d"))
    assert str(corpus).startswith(
        f"Data: hf Hugging Face dataset {tmp_path}/d, 40 documents, SHA-256 {corpus.sha256[:8]}."
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"column": "txet"}, ["data.column=txet is no column of data.path=", "Nearest: 'text'", "Known: id, text."]),
        ({"column": "id"}, ["data.column=id holds int in row 1 of data.path=", "another of its columns: id, text."]),
        ({"split": "validation"}, ["data.split=validation cannot be read as a Hugging Face dataset: ValueError: "]),
        ({"config": "no"}, ["data.config=no cannot be read as a Hugging Face dataset: ValueError: "]),
    ],
)
def test_what_the_dataset_does_not_have_is_named(settings, words, tmp_path):
    folder = json_folder(tmp_path / "d")
    with pytest.raises(ConfigError) as error:
        hf(folder, **settings)
    assert all(word in str(error.value) for word in [*words, str(folder)])


@pytest.mark.parametrize(
    ("make", "settings", "words"),
    [
        (saved_folder, {"split": "test"}, "ValueError: save_to_disk wrote it without splits. Leave data.split out."),
        (saved_splits, {"split": "test"}, "KeyError: "),
        (saved_folder, {"config": "x"}, "it has no configurations. Leave data.config out."),
    ],
)
def test_a_saved_dataset_has_the_splits_it_was_saved_with(make, settings, words, tmp_path):
    with pytest.raises(ConfigError) as error:
        hf(make(tmp_path / "d"), **settings)
    assert words in str(error.value)


def test_a_dataset_without_text_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="has no text in column text of its 2 rows"):
        hf(json_lines(tmp_path / "d", [{"text": ""}, {"text": ""}]))


def test_a_name_that_cannot_be_had_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        hf("nobody/nothing")
    assert str(error.value).startswith(
        "data.path=nobody/nothing data.split=train cannot be read as a Hugging Face dataset: "
    )
    assert "Give the name of a dataset, or a folder with Parquet, JSON lines or Arrow files." in str(error.value)


def test_a_missing_package_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "datasets" else found(name))
    with pytest.raises(ConfigError) as error:
        hf("any")
    assert str(error.value) == (
        "data=hf needs the package datasets, which is not installed. Install it with: pip install 'datasets>=4'"
    )


def test_a_folder_means_the_same_from_anywhere_and_a_name_stays_a_name(tmp_path, monkeypatch):
    json_folder(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    assert settings_of("data=hf", "data.path=mine").data.path == str(tmp_path / "mine")
    assert settings_of("data=hf", "data.path=Salesforce/wikitext").data.path == "Salesforce/wikitext"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["data=hf"], "data=hf needs data.path: the name of a Hugging Face dataset"),
        (["data.path=texts"], "data.path=.*/texts is read by data=files and data=hf only; data=sotu has its own text"),
        (["data.limit=5"], "data.limit=5 is read by data=hf only, and this is data=sotu. Add data=hf, or leave it out"),
        (["data=files", "data.path=x", "data.column=body"], "data.column=body is read by data=hf only"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(overrides, words):
    with pytest.raises(ConfigError, match=words):
        check(settings_of(*overrides))


def test_no_code_of_a_dataset_is_run(tmp_path):
    folder = json_folder(tmp_path / "d")
    (folder / "d.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')", encoding="utf-8")
    with suppress(ConfigError):
        hf(folder)
    assert not (tmp_path / "run").exists()
