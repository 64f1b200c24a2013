"""What stands in the record beside the rows: the model, the data and the machine."""

from __future__ import annotations

import functools
import math
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import pytorch_lightning
import torch

import posbuild
from posbuild.data.corpora import Corpus, shorter_than_window
from posbuild.data.ngrams import NgramModel
from posbuild.declaration import Scheme
from posbuild.evaluation.cost import count
from posbuild.model import Transformer

PRODUCT = 2048  # rows of the square float32 product that tells how fast the machine is


def model_facts(model: Transformer, scheme: Scheme) -> dict[str, Any]:
    """Numbers of parameters, and whether decoding gives what reading a text at once gives.

    The embedding's parameters are those of the token vectors and of an output matrix of its own.
    """
    total = count(model)
    embedding = sum(parameter.numel() for parameter in {model.embedding.weight, model.head.weight})
    return {
        "parameters": total,
        "embedding_parameters": embedding,
        "parameters_without_embeddings": total - embedding,
        "positional_parameters": count(model.encoding),
        "prefix_stable": scheme.prefix_stable,
    }


def data_facts(corpus: Corpus, length: int) -> dict[str, Any]:
    """What was read, how it was split, what training on windows of `length` tokens leaves out, and what counts predict."""
    model = NgramModel(corpus.train)
    return {
        "name": corpus.name,
        "sha256": corpus.sha256,
        **corpus.facts,
        "shorter_than_window": shorter_than_window(corpus.train, length),
        "counts": {
            split: model.losses(documents)
            for split, documents in (("validation", corpus.validation), ("test", corpus.test))
        },
    }


def environment(device: torch.device, precision: str) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning": pytorch_lightning.__version__,
        "posbuild": posbuild.__version__,
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "precision": precision,
        "gflops_float32": round(gflops(), 1),
        "commit": commit(),
    }


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


@functools.cache
def gflops() -> float:
    """10^9 float32 operations a second of the CPU in a square product: the better of two, the first also warms up."""
    left = right = torch.ones(PRODUCT, PRODUCT)
    fastest = math.inf
    for _ in range(2):
        start = time.perf_counter()
        left @ right
        fastest = min(fastest, time.perf_counter() - start)
    return 2 * PRODUCT**3 / fastest / 1e9


def commit() -> str | None:
    """The commit of the checkout that posbuild runs from, with -dirty if files differ; None for an installed one."""
    checkout = Path(posbuild.__file__).resolve().parent.parent
    if not (checkout / ".git").exists():
        return None
    try:
        command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        answer = subprocess.run(
            command,
            cwd=checkout,
            capture_output=True,
            text=True,
            timeout=10,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None
