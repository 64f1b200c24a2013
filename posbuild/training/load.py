"""A trained model from its run folder, and a check that saved weights fit."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from posbuild import records
from posbuild.data.corpora import Corpus
from posbuild.errors import RunError, first_line
from posbuild.model import Transformer, model_of
from posbuild.settings import Settings, from_plain

WEIGHTS, TOKENIZER = "weights.pt", "tokenizer.json"
AGAIN = "Delete it and give the launch again."
PARTS = (  # of a checkpoint
    ("state_dict",),
    ("optimizer_states",),
    ("lr_schedulers",),
    ("loops", "fit_loop"),
    ("global_step",),
    ("epoch",),
    ("pytorch-lightning_version",),
    ("Windows", "batches"),
    ("Windows", "sha256"),
    ("callbacks", "LearningCurve", "history"),
    ("callbacks", "LearningCurve", "seconds"),
    ("callbacks", "LearningCurve", "resumed"),
)
NAMED = 5  # parameters named in a message


def load(folder: str | os.PathLike[str]) -> tuple[Transformer, Settings]:
    """The trained model of a run folder, on the CPU in evaluation mode, and the settings it ran with.

    Raises RunError if the folder holds no finished training or the weights do not fit its settings.
    """
    folder = Path(folder)
    if not (folder / "settings.json").is_file():
        raise RunError(f"{folder} is no run folder, for it has no settings.json. Give outputs/STUDY/RUN.")
    settings, _ = read_settings(folder)
    if not (folder / WEIGHTS).exists():
        raise RunError(f"{folder} has no {WEIGHTS}: its training has not ended. Go on with resume={folder}.")
    model = model_of(settings)
    state = read(folder / WEIGHTS)
    check_fit(folder / WEIGHTS, state, model.state_dict())
    check_finite(folder / WEIGHTS, state)
    model.load_state_dict(state)
    return model.eval(), settings


def write_settings(folder: Path, settings: Settings, command: str) -> None:
    """Write `folder`/settings.json: every setting, and the command that makes the run again. Of a tokenizer file the folder
    has a copy, so that the run can be used when that file is gone.
    """
    if content := settings.data.tokenizer_content():
        with records.whole(folder / TOKENIZER) as partial:
            partial.write_bytes(content)
    records.write_json(folder / "settings.json", {"schema": records.SCHEMA, "command": command, **settings.plain()})


def read_settings(folder: Path) -> tuple[Settings, str]:
    """Settings and command of a run folder, with the tokenizer file that it holds.

    Raises RunError if it has none, ConfigError if they cannot be used.
    """
    path = folder / "settings.json"
    content = records.read_json(path)
    with records.intact(path):
        del content["schema"]
        command = str(content.pop("command"))
        settings = from_plain(content)
    if settings.data.tokenizer:
        settings.data.tokenizer = str(folder.absolute() / TOKENIZER)
    return settings, command


def read(path: Path) -> Any:
    """The content of a file of torch.save, on the CPU. Raises RunError if it cannot be read."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        why = "it is damaged, or holds more than tensors and plain values, which is not read, since it could run code"
        raise RunError(f"{path} cannot be read: {why}. {AGAIN}") from error
    except (OSError, RuntimeError, EOFError, ValueError, LookupError, zipfile.BadZipFile) as error:
        raise RunError(f"{path} cannot be read: {type(error).__name__}: {first_line(error)}. {AGAIN}") from error


def check_checkpoint(path: Path, wanted: Mapping[str, Tensor], corpus: Corpus) -> None:
    """Raise RunError if a training with the tensors that are wanted, on this text, cannot go on from a checkpoint."""
    saved = read(path)
    lacking = [".".join(names) for names in PARTS if not has(saved, names)]
    if lacking:
        raise RunError(f"{path} is no checkpoint of a posbuild run, for it has no {some(lacking)}. {AGAIN}")
    sha256 = saved["Windows"]["sha256"]
    if sha256 != corpus.sha256:
        raise RunError(
            f"{path} comes from another text than data={corpus.name} reads now: their SHA-256 are {sha256} and "
            f"{corpus.sha256}. Put the text back, or train anew in another study."
        )
    check_fit(path, saved["state_dict"], wanted)
    check_finite(path, saved)


def has(content: Any, names: Sequence[str]) -> bool:
    """Whether names lead to something in nested mappings that is not empty."""
    for name in names:
        if not isinstance(content, Mapping) or name not in content:
            return False
        content = content[name]
    return content not in ([], {})


def check_fit(path: Path, saved: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Raise RunError naming what differs if the saved tensors are not those wanted, by name, shape and type."""
    if not isinstance(saved, Mapping) or not all(isinstance(tensor, Tensor) for tensor in saved.values()):
        raise RunError(f"{path} does not hold the tensors of a model by name. {AGAIN}")
    both = [(name, saved[name], wanted[name]) for name in wanted if name in saved]
    differences = {
        "missing": [name for name in wanted if name not in saved],
        "not in the model": [name for name in saved if name not in wanted],
        "of another shape": [
            f"{name} is {tuple(one.shape)}, not {tuple(other.shape)}"
            for name, one, other in both
            if one.shape != other.shape
        ],
        "of another type": [
            f"{name} is {one.dtype}, not {other.dtype}" for name, one, other in both if one.dtype != other.dtype
        ],
    }
    if any(differences.values()):
        told = "; ".join(f"{what}: {some(names)}" for what, names in differences.items() if names)
        raise RunError(f"{path} does not fit the model of these settings. {told[0].upper()}{told[1:]}.")


def check_finite(path: Path, saved: Any) -> None:
    """Raise RunError naming the tensors, at whatever depth, that hold values that are not finite numbers."""
    broken = [name for name, tensor in tensors(saved) if not tensor.isfinite().all()]
    if broken:
        raise RunError(f"{path} holds values that are not finite numbers, in {some(broken)}. {AGAIN}")


def tensors(content: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor in nested mappings and lists, by the names that lead to it."""
    if isinstance(content, Tensor):
        yield name, content
    elif isinstance(content, (Mapping, list, tuple)):
        for key, value in content.items() if isinstance(content, Mapping) else enumerate(content):
            yield from tensors(value, f"{name}.{key}" if name else str(key))


def some(names: list[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
