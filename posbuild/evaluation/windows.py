"""Stretches of text to measure on, drawn from counter-based generators: the same for every scheme, seed and machine.

A stretch lies inside one document. There are no special tokens: nothing is put in front of any window, at any length.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from posbuild.data.corpora import Document


def random_numbers(key: int, *shape: int) -> np.ndarray:
    """uint64 of any shape that depend on the key alone. Raw output, which numpy promises to stay the same."""
    return np.random.Philox(key=np.array([key, 0], dtype=np.uint64)).random_raw(int(np.prod(shape))).reshape(shape)


def starts(documents: Sequence[Document], size: int, spacing: int) -> np.ndarray:
    """(N, 2): document and start of every stretch of `size` tokens, the starts `spacing` apart in each document."""
    places = [np.arange(0, len(document.tokens) - size + 1, spacing) for document in documents]
    numbers = np.repeat(np.arange(len(documents)), [len(place) for place in places])
    return np.stack([numbers, np.concatenate([np.zeros(0, dtype=np.int64), *places])], axis=1)


def draw(places: np.ndarray, count: int, key: int) -> np.ndarray:
    """`count` of the places without replacement, in the order of the text. There must be as many."""
    if count > len(places):
        raise ValueError(f"{count} places were asked for and there are {len(places)}.")
    return places[np.sort(np.argsort(random_numbers(key, len(places)), kind="stable")[:count])]


def cut(documents: Sequence[Document], places: np.ndarray, size: int) -> np.ndarray:
    """The stretches of `size` tokens that start at the places, (N, size) uint8."""
    stretches = [documents[number].tokens[start : start + size] for number, start in places]
    return np.stack(stretches) if stretches else np.zeros((0, size), dtype=np.uint8)


def names(documents: Sequence[Document], places: np.ndarray) -> list[str]:
    """The name of the document of each place."""
    return [documents[number].name for number in places[:, 0]]


def digest(documents: Sequence[Document], places: np.ndarray, *, first: int, scored: int) -> str:
    """Twelve hexadecimal digits over what is scored: of each stretch, `scored` tokens from its `first` on (from 0)."""
    content = [scored, [(documents[number].name, int(start) + first) for number, start in places]]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


def sizes(documents: Sequence[Document], tokens: np.ndarray) -> np.ndarray:
    """How many bytes of text each of these tokens of the documents stands for."""
    return documents[0].vocabulary.sizes[tokens]
