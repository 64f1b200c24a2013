"""`posbuild generate`: text that a trained model writes after a prompt."""

from __future__ import annotations

import codecs
import itertools
import sys
from pathlib import Path
from typing import TextIO

import numpy as np
import torch

from posbuild.data.vocabulary import BYTES, vocabulary_of
from posbuild.errors import ConfigError
from posbuild.model.sampling import sample
from posbuild.training.load import load


def generate(
    folder: Path,
    prompt: bytes,
    *,
    tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
    out: TextIO,
) -> None:
    """Write the prompt and `tokens` more tokens of the model of a run folder, each as soon as it is drawn.

    A character is written once all its bytes are there, and what is no UTF-8 as U+FFFD.

    Raises ConfigError for values out of range and for a prompt that the model or its tokenizer cannot take, RunError for a folder
    without a trained model.
    """
    check(prompt, tokens, temperature, top_k, top_p, seed)
    model, settings = load(folder)
    if not model.dims.causal:
        raise ConfigError(f"{folder} holds a bidirectional model, which fills gaps and does not go on from a prompt.")
    vocabulary = vocabulary_of(settings.data)
    start = torch.from_numpy(vocabulary.encode(prompt, "the prompt").astype(np.int64))
    if model.longest is not None and len(start) > model.longest:
        unit = "tokens (bytes)" if vocabulary is BYTES else "tokens"
        raise ConfigError(
            f"The prompt has {len(start)} {unit}, and the encoding of {folder} is defined for {model.longest}. "
            f"Give {model.longest} or fewer."
        )
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    out.write(decoder.decode(prompt))
    most = tokens if model.longest is None else min(tokens, model.longest - len(start))
    drawn = sample(model, start, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, most=most)
    written = 0
    for token in itertools.islice(drawn, tokens):
        out.write(decoder.decode(vocabulary.entries[token]))
        out.flush()
        written += 1
    out.write(decoder.decode(b"", final=True) + "\n")
    if written < tokens:
        print(f"Ended after {written} tokens: the encoding is defined for {model.longest}.", file=sys.stderr)


def check(prompt: bytes, tokens: int, temperature: float, top_k: int | None, top_p: float | None, seed: int) -> None:
    """Raise ConfigError for a value out of range, by the name of its flag."""
    if not prompt:
        raise ConfigError("The prompt is empty. Give some text: --prompt TEXT, or on standard input.")
    for flag, value, fits, needed in (
        ("--tokens", tokens, tokens >= 1, "at least 1"),
        ("--temperature", temperature, 0 <= temperature < float("inf"), "0 (the most probable token) or more"),
        ("--top-k", top_k, top_k is None or top_k >= 1, "at least 1"),
        ("--top-p", top_p, top_p is None or 0 < top_p <= 1, "above 0 and at most 1"),
        ("--seed", seed, 0 <= seed < 2**64, "at least 0, and below 2^64"),
    ):
        if not fits:
            raise ConfigError(f"{flag} {value} is out of range: it must be {needed}.")
