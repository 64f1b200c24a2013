"""Text corpora: tokens by document, split by document. A token is a byte, or an entry of a tokenizer file.

The text is split before it is tokenized, so it is split in one way whatever the tokens are. The rules of the split are in
`_split_by_document`; all depend on names and contents alone, so every machine splits one text in one way. There are no
special tokens. Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from posbuild.data.sources import SOURCES, Texts
from posbuild.data.vocabulary import BYTES, Vocabulary, vocabulary_of
from posbuild.errors import ConfigError

if TYPE_CHECKING:
    from posbuild.settings import DataSettings

LONG_TEST_SET = 12  # documents, for corpora of at least ten times as many
FEWEST_DOCUMENTS = 3  # one for each split; below it documents are cut into parts
OF_PATH = ("files", "hf")  # read from data.path: of any size, so they may be cut into parts


@dataclass(frozen=True, eq=False)
class Document:
    """One text. `tokens` (length,) are those of its vocabulary, uint8 where they are its UTF-8 bytes; a slice of them is a
    view and costs nothing.
    """

    name: str
    tokens: np.ndarray
    vocabulary: Vocabulary = BYTES

    def __len__(self) -> int:
        return len(self.tokens)

    def part(self, start: int, stop: int) -> Document:
        """The tokens from `start` up to `stop`, as a document of its own that shares their memory."""
        return replace(self, name=f"{self.name}[{start}:{stop}]", tokens=self.tokens[start:stop])

    def tokenized(self, vocabulary: Vocabulary) -> Document:
        """A document of bytes in the tokens of a vocabulary. Raises ConfigError if they do not give it back."""
        if vocabulary is BYTES:
            return self
        return Document(self.name, vocabulary.encode(self.tokens.tobytes(), self.name), vocabulary)


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents by split, each list in the order of the names.

    sha256  of the texts that were read, concatenated in the order of their names
    facts   for the record, plain values: source, licence, how it was split, documents, tokens and bytes by split, the
            tokenizer, what was left out and why
    """

    name: str
    train: list[Document]
    validation: list[Document]
    test: list[Document]
    sha256: str
    facts: dict[str, Any]

    def __str__(self) -> str:
        """What was read, how it was split and what a token is, in a line."""
        facts = self.facts
        of_path = f" {self.facts['source']}" * (self.name in OF_PATH)
        left_out = f", {len(facts['left_out']):,} of them left out" * bool(facts["left_out"])
        tokenizer = facts["tokenizer"]
        sizes = ", ".join(
            f"{split} {size:,} bytes" + (f" in {facts['tokens'][split]:,} tokens" if tokenizer else "")
            for split, size in facts["bytes"].items()
        )
        return (
            f"Data: {self.name}{of_path}, {facts['files']:,} documents{left_out}, SHA-256 {self.sha256[:8]}. "
            f"Split {facts['split']}: {sizes}."
            + (f" Tokens: {tokenizer['entries']:,} entries of {tokenizer['file']}." if tokenizer else "")
        )


def load(settings: DataSettings) -> Corpus:
    """Read, split and tokenize the corpus that the settings name.

    The test set is the longest documents, in bytes. Raises ConfigError if the corpus is missing, cannot be read as UTF-8
    text or has too little text to be split, or if the tokenizer cannot be used for it.
    """
    name = settings.name.name
    vocabulary = vocabulary_of(settings)
    texts = SOURCES[name](settings)
    documents = _distinct(texts)
    by_part = len(documents) < FEWEST_DOCUMENTS and name in OF_PATH
    splits = _split_by_part(documents, settings) if by_part else _split_by_document(documents, texts, settings)
    facts = texts.facts | {
        "files": len(texts.by_name),
        "split": "by part" if by_part else "by document",
        "documents": {split: len(chosen) for split, chosen in splits.items()},
        "bytes": {split: sum(map(len, chosen)) for split, chosen in splits.items()},
        "left_out": texts.left_out,
        "tokenizer": vocabulary.facts,
    }
    tokenized = {split: [document.tokenized(vocabulary) for document in chosen] for split, chosen in splits.items()}
    facts["tokens"] = {split: sum(map(len, chosen)) for split, chosen in tokenized.items()}
    return Corpus(name=name, sha256=texts.sha256, facts=facts, **tokenized)


def with_window(documents: Sequence[Document], length: int, split: str) -> list[Document]:
    """The documents that hold a window: `length` inputs and their targets. Raises ConfigError if none does."""
    longest = max(map(len, documents), default=0)
    if longest <= length:
        raise ConfigError(
            f"train.length={length} is longer than the data: a window needs {length + 1} tokens "
            f"and the longest {split} document has {longest}. Use a shorter train.length, or longer documents."
        )
    return [document for document in documents if len(document) > length]


def shorter_than_window(documents: Iterable[Document], length: int) -> dict[str, int]:
    """How many documents, and tokens in them, are too short for a window: `length` inputs and their targets."""
    short = [len(document) for document in documents if len(document) <= length]
    return {"documents": len(short), "tokens": sum(short)}


# ----------------------------------------------------------------------------------------------------------- splits


def _distinct(texts: Texts) -> list[Document]:
    """One document a text. Further copies are left out: in another split they would give the answers away."""
    first: dict[bytes, str] = {}
    for name, text in texts.by_name.items():
        if first.setdefault(text, name) != name:
            texts.left_out[name] = f"a copy of {first[text]}"
    return [Document(name, np.frombuffer(text, dtype=np.uint8)) for text, name in first.items()]


def _split_by_document(documents: list[Document], texts: Texts, settings: DataSettings) -> dict[str, list[Document]]:
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
