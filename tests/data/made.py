"""Small tokenizers and datasets, made on the spot with the libraries whose files posbuild reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

WORDS = "the cat chases an old mouse; 猫追老鼠。 café, naïve\n\n\tЕщё\r\n"


def byte_level_bpe(path: Path, texts: Iterable[str], size: int = 300, *, prefix: bool = False) -> Path:
    """As GPT-2's: BPE over the bytes of words."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return saved(tokenizer, path)


def single_bytes(path: Path) -> Path:
    """A tokenizer that does what posbuild does without one: token n is byte n."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return saved(tokenizer, path)


def sentencepiece(path: Path, *, prefix: bool = False) -> Path:
    """As Gemma's, or with a prefix as Llama 2's: BPE over text in which a space is ▁, and bytes of what it does not know."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁thecasnoldmu猫", "th", "the", "▁the", "▁▁"]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "▁")]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True))
    space = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), space]) if prefix else space
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return saved(tokenizer, path)


def characters(path: Path, known: str) -> Path:
    """A token a character, and [UNK]."""
    vocabulary = {character: number for number, character in enumerate(["[UNK]", *sorted(set(known))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    return saved(tokenizer, path)


def word_piece(path: Path, texts: Iterable[str]) -> Path:
    """As BERT's: lower case, and words without what stands between them."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return saved(tokenizer, path)


def saved(tokenizer: Tokenizer, path: Path) -> Path:
    tokenizer.save(str(path))
    return path


def changed(path: Path, to: Path, **parts: object) -> Path:
    """A tokenizer file with some of its parts replaced."""
    to.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | parts), encoding="utf-8")
    return to


def json_lines(folder: Path, rows: Sequence[dict]) -> Path:
    """A dataset as a folder with one file, train.jsonl."""
    folder.mkdir(parents=True)
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "train.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder
