"""A tiny job on a text made up on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from posbuild.settings import SECTIONS, Settings, from_plain

TINY: dict[str, dict[str, Any]] = {
    "pe": {"name": "alibi"},
    "model": {"d_model": 16, "n_layers": 2, "n_heads": 2},
    "train": {
        "length": 16,
        "steps": 10,
        "batch_size": 4,
        "log_every": 4,
        "checkpoint_every": 4,
        "validation_windows": 8,
    },
    "optim": {"warmup": 2},
    "eval": {
        "multiples": [1, 2],
        "whole_window_tokens": 64,
        "fixed_targets": 16,
        "recall_passages": 0,
        "order_windows": 0,
        "probes": False,
        "cost_rounds": 0,
    },
    "trainer": {"accelerator": "cpu"},
    "logger": {"name": "none"},
}


def write_corpus(folder: Path) -> Path:
    """Twenty documents of words drawn at random: enough to split, to learn something from, and quick to count."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    words = ["".join(generator.choice(list("abcdefgh"), size=size)) for size in generator.integers(2, 7, size=50)]
    for number in range(20):
        (folder / f"text {number}.txt").write_text(
            " ".join(generator.choice(words, size=200 + number)), encoding="utf-8"
        )
    return folder


def tiny(corpus: Path, **sections: Any) -> Settings:
    """Settings of a tiny job; `sections` are changed key by key, or replaced where they are no group of settings."""
    content: dict[str, Any] = {name: dict(TINY.get(name, {})) for name in ("pe", *SECTIONS)} | {"seed": 0}
    content["data"] = {"name": "files", "path": str(corpus)}
    for name, value in sections.items():
        content[name] = {**content[name], **value} if isinstance(value, dict) else value
    return from_plain(content)
