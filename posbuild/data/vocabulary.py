"""What the tokens of a text stand for: its bytes, or the entries of a tokenizer file.

A tokenizer serves if each of its entries stands for bytes of its own, and the bytes of the tokens of a text, one after
the other, are the text. `Vocabulary.encode` checks that on every text that it is given. So it is known how many bytes
any scored token stands for, and a loss in bits per byte is exact. Nothing here imports torch.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os.path
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from posbuild.errors import ConfigError, first_line

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from posbuild.settings import DataSettings

INSTALL = "pip install 'tokenizers>=0.20'"
LARGEST = 2**21 - 1  # entries: so the number of any run of three tokens fits into 63 bits
PIECE = 2**20  # characters tokenized at once: what a tokenizer says of a text takes a hundred times its memory
SHOWN = 24  # bytes of a text in a message
SPACE = "▁"  # that SentencePiece writes for a space


class Vocabulary:
    """The entries of a vocabulary, and the way from text to tokens.

    entries  the bytes that each token stands for
    sizes    (V,) int64: how many they are
    dtype    the smallest unsigned integer that holds every token
    """

    def __init__(
        self, entries: Sequence[bytes], tokenizer: Tokenizer | None = None, path: str = "", sha256: str = ""
    ) -> None:
        self.entries = list(entries)
        self.sizes = np.array([len(entry) for entry in entries], dtype=np.int64)
        self.dtype = np.min_scalar_type(len(entries) - 1)
        self._tokenizer, self._path, self._sha256 = tokenizer, path, sha256

    @property
    def size(self) -> int:
        return len(self.entries)

    @property
    def facts(self) -> dict[str, Any] | None:
        """For the record; None where tokens are bytes."""
        if self._tokenizer is None:
            return None
        return {"file": os.path.basename(self._path), "sha256": self._sha256, "entries": self.size}

    def encode(self, text: bytes, name: str) -> np.ndarray:
        """The tokens of a text, which errors call `name`. Raises ConfigError if they do not give the text back."""
        if self._tokenizer is None:
            return np.frombuffer(text, dtype=np.uint8)
        try:
            pieces = list(_pieces(text.decode()))
        except UnicodeDecodeError as error:
            raise ConfigError(f"{name} is not UTF-8 (at byte {error.start}), and a tokenizer takes text.") from None
        return np.concatenate([np.zeros(0, self.dtype), *(self._tokens(piece, name) for piece in pieces)])

    def _tokens(self, piece: str, name: str) -> np.ndarray:
        assert self._tokenizer is not None
        tokens = self._tokenizer.encode(piece, add_special_tokens=False).ids
        text, back = piece.encode(), b"".join([self.entries[token] for token in tokens])
        if text != back:
            place = next(
                (n for n, (one, other) in enumerate(zip(text, back, strict=False)) if one != other),
                min(len(text), len(back)),
            )
            had, has = (repr(each[place : place + SHOWN].decode(errors="replace")) for each in (text, back))
            raise ConfigError(
                f"data.tokenizer={self._path} does not give the text back: where {name} has {had}, its tokens have {has} "
                f"({_steps(self._tokenizer)}). So a loss per byte would not be that of the text. Use a tokenizer that keeps "
                "every character and adds none, such as byte-level BPE without a space put in front."
            )
        return np.array(tokens, dtype=self.dtype)


BYTES = Vocabulary([bytes([value]) for value in range(256)])


def vocabulary_of(settings: DataSettings) -> Vocabulary:
    """The vocabulary of the data: bytes, or that of data.tokenizer. Raises ConfigError if that cannot be used."""
    content = settings.tokenizer_content()
    return BYTES if content is None else _read(content, str(settings.tokenizer))


@functools.lru_cache(maxsize=2)
def _read(content: bytes, path: str) -> Vocabulary:
    """The vocabulary of a tokenizer.json. What it has for batches (truncation, padding), for training (dropout) and to
    add special tokens is left aside, and what looks like a special token in a text is text.
    """
    if importlib.util.find_spec("tokenizers") is None:
        raise ConfigError(
            f"data.tokenizer={path} needs the package tokenizers, which is not installed. Install it with: {INSTALL}"
        )
    from tokenizers import Tokenizer

    try:
        told = json.loads(content)
        told |= {"truncation": None, "padding": None, "post_processor": None}
        if "dropout" in told["model"]:
            told["model"]["dropout"] = None
        tokenizer = Tokenizer.from_str(json.dumps(told))
    except Exception as error:  # the library raises no class of its own
        raise ConfigError(
            f"data.tokenizer={path} is no file that Hugging Face's tokenizers has written (tokenizer.json): "
            f"{type(error).__name__}: {first_line(error)}."
        ) from None
    tokenizer.encode_special_tokens = True
    entries = _entries(tokenizer)
    if not 1 < len(entries) <= LARGEST:
        raise ConfigError(f"data.tokenizer={path} has {len(entries):,} entries; 2 to {LARGEST:,} can be used.")
    return Vocabulary(entries, tokenizer, path, hashlib.sha256(content).hexdigest())


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces of at most PIECE characters, which end with a line where they can."""
    start = 0
    while start < len(text):
        end = start + PIECE
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield text[start:end]
        start = end


# ------------------------------------------------------------------------------------------- how entries are written


def _entries(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes of each token by its number; none for a number without entry."""
    known, added, read = tokenizer.get_vocab(), tokenizer.get_added_tokens_decoder(), _reader(tokenizer)
    entries = [b""] * (max(known.values(), default=-1) + 1)
    for written, token in known.items():
        entries[token] = written.encode() if token in added else read(written)
    return entries


def _reader(tokenizer: Tokenizer) -> Callable[[str], bytes]:
    """From an entry as it is written to its bytes, by what the steps of the tokenizer write. Where this reads an entry
    in a wrong way, `encode` refuses the text.
    """
    told = json.loads(tokenizer.to_str())
    steps = [told["normalizer"], told["pre_tokenizer"], told["decoder"]]
    if "ByteLevel" in _types(steps):
        alphabet = _byte_level_alphabet()
        return lambda written: b"".join([alphabet.get(character, character.encode()) for character in written])
    space = SPACE if SPACE in json.dumps(steps, ensure_ascii=False) else " "
    fallback = re.compile("<0x([0-9A-F]{2})>" if told["model"].get("byte_fallback") else "(?!)")

    def read(written: str) -> bytes:
        byte = fallback.fullmatch(written)
        return bytes.fromhex(byte[1]) if byte else written.replace(space, " ").encode()

    return read


def _byte_level_alphabet() -> dict[str, bytes]:
    """The character that byte-level BPE writes for each byte (Radford et al. 2019, GPT-2): a printable one of Latin-1
    for itself, the others from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted({*range(0x100)} - {*printable})
    return {chr(byte): bytes([byte]) for byte in printable} | {
        chr(0x100 + number): bytes([byte]) for number, byte in enumerate(others)
    }


def _steps(tokenizer: Tokenizer) -> str:
    """What the tokenizer does with a text, in its own words: "normalizer Lowercase, model WordPiece"."""
    told = json.loads(tokenizer.to_str())
    found = {part: _types(told[part]) for part in ("normalizer", "pre_tokenizer")} | {"model": [told["model"]["type"]]}
    return ", ".join(f"{part} {' + '.join(types)}" for part, types in found.items() if types)


def _types(node: Any) -> list[str]:
    """The types of a step and of those that it is a sequence of."""
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    own = [node["type"]] if isinstance(node, dict) and isinstance(node.get("type"), str) else []
    return [name for name in own if name != "Sequence"] + [name for child in children for name in _types(child)]
