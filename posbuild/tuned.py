"""What a tuning study found best for a scheme, for the studies that train with it (optim.tuned). Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from posbuild import records
from posbuild.declaration import typed_form
from posbuild.errors import ConfigError, RunError
from posbuild.paths import expanded, shown


def best(study: str, pe: Mapping[str, Any]) -> tuple[float, float | None]:
    """The rate and multiplier that a tuning study chose for a scheme; a scheme that learns nothing has no multiplier.

    study  its folder, as typed
    pe     name and options of the scheme, plain

    Raises ConfigError for a folder that is no tuning study, or has no choice for the scheme with these options.
    """
    found = [choice for choice in choices(study) if choice["pe"] == pe]
    options = (f"pe.{name}={typed_form(value)}" for name, value in pe.items() if name != "name")
    scheme = " ".join([f"pe={pe['name']}", *options])
    if not found:
        known = ", ".join(sorted({choice["label"] for choice in choices(study)})) or "nothing"
        raise ConfigError(f"optim.tuned={study} has no best rate for {scheme}. It tuned {known}.")
    if len(found) > 1:
        raise ConfigError(
            f"optim.tuned={study} tuned {scheme} with several budgets, and one has to be meant. Give a study of one."
        )
    (choice,) = found
    if choice["unfinished"]:
        raise ConfigError(
            f"optim.tuned={study} has not finished tuning {scheme}: {choice['unfinished']}. Its command, given again, goes "
            "on with it."
        )
    if choice["lr"] is None:
        raise ConfigError(f"optim.tuned={study} has no best rate for {scheme}: none that was tried has a loss.")
    return choice["lr"], choice["pe_lr_mult"]


def choices(study: str) -> list[dict[str, Any]]:
    """What a tuning study chose, one entry a scheme and budget. Raises ConfigError for a folder that is none."""
    folder = expanded(study)
    if folder.name == "latest" and folder.is_symlink():
        real = shown(folder.with_name(folder.resolve().name))
        raise ConfigError(
            f"optim.tuned={study} names the newest study, and soon that is another. Use optim.tuned={real}."
        )
    if not (folder / "comparison.json").is_file():
        lacking = "no comparison.json in" if folder.is_dir() else "no folder"
        raise ConfigError(
            f"optim.tuned={study}: there is {lacking} {folder}. Give a study by experiment=tune, such as outputs/STUDY."
        )
    try:
        content = records.read_json(folder / "comparison.json")
        with records.intact(folder / "comparison.json"):
            found = [choice for entry in content.get("tuning", []) for choice in entry["choices"]]
    except RunError as error:
        raise ConfigError(f"optim.tuned={study}: {error}") from None
    if not found:
        raise ConfigError(
            f"optim.tuned={study} is no study that tuned. Give one by experiment=tune, such as outputs/STUDY."
        )
    return found
