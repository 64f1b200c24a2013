"""Tokens of a tokenizer file: their bytes are the text, or the file is refused."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from posbuild.data import vocabulary
from posbuild.data.corpora import load
from posbuild.data.vocabulary import BYTES, Vocabulary, vocabulary_of
from posbuild.errors import ConfigError
from posbuild.settings import Corpus, DataSettings
from tests.data.made import (
    WORDS,
    byte_level_bpe,
    changed,
    characters,
    sentencepiece,
    single_bytes,
    word_piece,
)

LOSSLESS = {
    "byte-level BPE": lambda path: byte_level_bpe(path, [WORDS]),
    "single bytes": single_bytes,
    "SentencePiece with byte fallback": sentencepiece,
    "characters": lambda path: characters(path, WORDS),
}


def read(path: Path) -> Vocabulary:
    return vocabulary_of(DataSettings(tokenizer=str(path)))


def text_of(tokens: np.ndarray, entries: Vocabulary) -> bytes:
    return b"".join(entries.entries[token] for token in tokens)


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_level_bpe(tmp_path_factory.mktemp("bpe") / "tokenizer.json", [WORDS] * 2)


def test_without_a_file_a_token_is_a_byte():
    assert vocabulary_of(DataSettings()) is BYTES
    assert BYTES.encode(b"\x00a\xff", "x").tolist() == [0, 97, 255]
    assert (BYTES.size, BYTES.dtype, BYTES.facts, set(BYTES.sizes)) == (256, np.uint8, None, {1})


@pytest.mark.parametrize("kind", LOSSLESS)
def test_the_bytes_of_the_tokens_are_the_text(kind, tmp_path):
    path = LOSSLESS[kind](tmp_path / "t.json")
    mine, text = read(path), WORDS * 3
    tokens = mine.encode(text.encode(), "x")
    assert text_of(tokens, mine) == text.encode()
    assert mine.sizes[tokens].sum() == len(text.encode())
    assert tokens.tolist() == Tokenizer.from_file(str(path)).encode(text, add_special_tokens=False).ids
    assert mine.size == len(mine.entries) == Tokenizer.from_file(str(path)).get_vocab_size()


@settings(max_examples=40, deadline=None)
@given(st.text())
def test_byte_level_bpe_takes_any_text(bpe, text):
    mine = read(bpe)
    assert text_of(mine.encode(text.encode(), "x"), mine) == text.encode()


def test_single_bytes_are_the_bytes(tmp_path):
    mine = read(single_bytes(tmp_path / "t.json"))
    assert mine.entries == BYTES.entries
    assert np.array_equal(mine.encode(WORDS.encode(), "x"), BYTES.encode(WORDS.encode(), "x"))


@pytest.mark.parametrize(
    ("size", "dtype"), [(256, np.uint8), (257, np.uint16), (2**16, np.uint16), (2**16 + 1, np.uint32)]
)
def test_tokens_have_the_smallest_type_that_holds_them(size, dtype):
    assert Vocabulary([b"x"] * size).dtype == dtype


def test_a_long_text_is_read_in_pieces_that_end_with_a_line(bpe, monkeypatch):
    mine, text = read(bpe), f"{WORDS}{'x' * 50}\n{WORDS}"
    monkeypatch.setattr(vocabulary, "PIECE", 20)
    pieces = list(vocabulary._pieces(text))
    assert "".join(pieces) == text and max(map(len, pieces)) <= 20 and len(pieces) > 4
    assert sum(piece.endswith("\n") for piece in pieces) >= 2
    assert text_of(mine.encode(text.encode(), "x"), mine) == text.encode()


def test_no_special_token_is_added_or_found_in_the_text(bpe):
    mine = read(bpe)
    special = mine.entries.index(b"<|end|>")
    tokens = mine.encode(b"the <|end|> mouse", "x")
    assert special not in tokens and text_of(tokens, mine) == b"the <|end|> mouse"


def test_what_a_file_has_for_batches_and_training_is_left_aside(bpe, tmp_path):
    told = json.loads(bpe.read_text(encoding="utf-8"))
    cls = {"SpecialToken": {"id": "<|end|>", "type_id": 0}}
    busy = changed(
        bpe,
        tmp_path / "busy.json",
        truncation={"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
        padding={
            "strategy": {"Fixed": 50},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "<|end|>",
        },
        post_processor={
            "type": "TemplateProcessing",
            "single": [cls, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [0], "tokens": ["<|end|>"]}},
        },
        model=told["model"] | {"dropout": 0.9},
    )
    assert Tokenizer.from_file(str(busy)).encode("the").ids[0] == 0
    assert np.array_equal(read(busy).encode(WORDS.encode(), "x"), read(bpe).encode(WORDS.encode(), "x"))


# -------------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("make", "text", "had", "has", "step"),
    [
        (lambda path: word_piece(path, [WORDS]), "a Cat", "' Cat'", "'cat'", "normalizer BertNormalizer"),
        (lambda path: byte_level_bpe(path, [WORDS], prefix=True), "cat", "'cat'", "' cat'", "pre_tokenizer ByteLevel"),
        (lambda path: sentencepiece(path, prefix=True), "cat", "'cat'", "' cat'", "normalizer Prepend + Replace"),
        (lambda path: sentencepiece(path), "a ▁", "'▁'", "' '", "normalizer Replace, model BPE"),
        (lambda path: characters(path, "abc"), "abxc", "'xc'", "'[UNK]c'", "pre_tokenizer Split, model WordLevel"),
    ],
)
def test_a_tokenizer_that_changes_text_is_refused(make, text, had, has, step, tmp_path):
    with pytest.raises(ConfigError) as error:
        read(make(tmp_path / "t.json")).encode(text.encode(), "a.txt")
    said = str(error.value)
    assert said.startswith(f"data.tokenizer={tmp_path / 't.json'} does not give the text back: where a.txt has ")
    assert f"has {had}, its tokens have {has} (" in said
    assert step in said and said.endswith("such as byte-level BPE without a space put in front.")


def test_a_text_that_one_normal_form_would_change_is_refused(bpe, tmp_path):
    nfc = changed(bpe, tmp_path / "nfc.json", normalizer={"type": "NFC"})
    assert text_of(read(nfc).encode("é".encode(), "x"), read(nfc)) == "é".encode()
    with pytest.raises(ConfigError, match="normalizer NFC"):
        read(nfc).encode("e\u0301".encode(), "x")


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path):
    for content in (b"", b"{}", b"[]", b"\xff", b'{"model": {"type": "BPE"}}'):
        (tmp_path / "t.json").write_bytes(content)
        with pytest.raises(
            ConfigError, match=r"data.tokenizer=\S+/t.json is no file that Hugging Face's tokenizers has wr"
        ):
            read(tmp_path / "t.json")
    for path, why in ((tmp_path / "none.json", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=rf"data.tokenizer={path} cannot be read \({why}\)"):
            read(path)


def test_an_empty_vocabulary_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="has 1 entries; 2 to 2,097,151 can be used"):
        read(characters(tmp_path / "t.json", ""))


def test_a_missing_package_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch):
    path, found = characters(tmp_path / "t.json", "abc"), importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tokenizers" else found(name))
    with pytest.raises(ConfigError) as error:
        read(path)
    assert str(error.value) == (
        f"data.tokenizer={path} needs the package tokenizers, which is not installed. "
        "Install it with: pip install 'tokenizers>=0.20'"
    )


def test_a_prompt_that_is_no_text_is_refused(bpe):
    with pytest.raises(ConfigError, match=r"the prompt is not UTF-8 \(at byte 1\), and a tokenizer takes text"):
        read(bpe).encode(b"a\xff", "the prompt")


# ---------------------------------------------------------------------------------------------------------------- corpora


def test_a_corpus_is_split_before_it_is_tokenized(bpe, tmp_path):
    for number in range(30):
        (tmp_path / f"{number:02}.txt").write_text(WORDS * (number + 1), encoding="utf-8")
    bytewise = load(DataSettings(name=Corpus.files, path=str(tmp_path / "*.txt")))
    corpus = load(DataSettings(name=Corpus.files, path=str(tmp_path / "*.txt"), tokenizer=str(bpe)))
    assert corpus.sha256 == bytewise.sha256 and corpus.facts["bytes"] == bytewise.facts["tokens"]
    for split in ("train", "validation", "test"):
        mine, theirs = getattr(corpus, split), getattr(bytewise, split)
        assert [document.name for document in mine] == [document.name for document in theirs]
        for document, raw in zip(mine, theirs, strict=True):
            assert document.tokens.dtype == np.uint16 and len(document) < len(raw)
            assert text_of(document.tokens, document.vocabulary) == raw.tokens.tobytes()
        assert corpus.facts["tokens"][split] == sum(map(len, mine))
    assert corpus.facts["tokenizer"] == {
        "file": "tokenizer.json",
        "sha256": hashlib.sha256(bpe.read_bytes()).hexdigest(),
        "entries": read(bpe).size,
    }
    test = corpus.facts["tokens"]["test"]
    assert f" bytes in {test:,} tokens. Tokens: {read(bpe).size:,} entries of tokenizer.json." in str(corpus)
    assert bytewise.facts["tokenizer"] is None and "Tokens:" not in str(bytewise)


def test_a_document_that_the_tokenizer_changes_is_named(tmp_path):
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(name * 50, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"does not give the text back: where d.txt has 'dd"):
        load(DataSettings(name=Corpus.files, path=str(tmp_path), tokenizer=str(characters(tmp_path / "t.json", "abc"))))
