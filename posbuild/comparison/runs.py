"""Find the runs of a comparison on disk, and say of each what became of it."""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from posbuild import records, registry
from posbuild.comparison import learning
from posbuild.declaration import Dims, Options, typed_form
from posbuild.errors import ConfigError, RunError
from posbuild.settings import ObjectiveSettings, PositionsSettings, from_plain, plain

NOT_STARTED = "not started"


@dataclass(kw_only=True)
class Run:
    """One run folder, or one planned job that has none yet.

    folder    its name, with that of the study before it where the runs of several studies are compared
    label     the scheme, with the options that differ from its defaults
    record    what it measured; None unless its status is "complete"
    budget    the number of its group of runs that may be compared; None for a run that is not in the comparison
    state     whether it has learned enough to be compared
    settings  plain, as far as they are known
    tuned     the study that found the rate and multiplier it was trained with; None: as typed
    tuning    the number of the group of runs that tried rates and multipliers, of which it is one that came to an end
    """

    folder: str
    scheme: str
    label: str
    seed: int | None
    status: str
    reason: str = ""
    record: records.Record | None = None
    budget: int | None = None
    state: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    tuned: str | None = None
    tuning: int | None = None

    @property
    def measured(self) -> records.Record:
        """The record of a run that has one."""
        assert self.record is not None, f"{self.folder} is {self.status}"
        return self.record

    @property
    def tries(self) -> bool:
        """Whether it is one of a study that tunes: it tried a rate or a multiplier, and is compared with none but such."""
        return _tries(self.settings)


def find(folders: Sequence[Path]) -> list[Run]:
    """Every run in these study folders and run folders, planned jobs included, in the order of their names.

    A run whose scheme does best at the shared rate, and which was planned as both, is there as both.

    Raises ConfigError for a folder that holds no run, RunError for a study.json that cannot be read.
    """
    jobs = {(folder / job["folder"]).resolve(): job for folder in folders for job in _jobs(folder)}
    paths = sorted({path.resolve() for folder in folders for path in _run_paths(folder)})
    one_study = len({path.parent for path in paths}) == 1
    found = []
    for path in paths:
        job = _job(path, jobs)
        run = _read_run(path, path.name if one_study else f"{path.parent.name}/{path.name}", job)
        found += [replace(run, tuned=study) for study in job.get("tuned", [run.tuned])]
    return found


def title(folders: Sequence[Path]) -> str:
    """The name of the study; of several folders, their names."""
    return " + ".join(dict.fromkeys(_study(folder).get("study", folder.resolve().name) for folder in folders))


def command(folders: Sequence[Path]) -> str:
    """The command that makes it all again: the study's own; of several folders, the one that compares them."""
    own = _study(folders[0]).get("command") if len(folders) == 1 else None
    return own or shlex.join(["posbuild", "compare", *map(str, folders)])


def label(settings: dict[str, Any]) -> str:
    """The scheme with the options that differ from its defaults, and what numbers it was trained on if not plain ones:
    "rope base=500000", "alibi form=symmetric", "rope positions=randomised largest=512".

    A multiplier that is tried in a study that tunes, or was found in one, tells no schemes apart.
    """
    name = settings["pe"]["name"]
    declared = registry.schemes().get(name)
    # Of a scheme that this version does not know no default is known, so every option is shown.
    defaults = _defaults(declared.options(), settings) if declared else {}
    changed = {
        key: value for key, value in settings["pe"].items() if key != "name" and value not in defaults.get(key, ())
    }
    optim = settings.get("optim", {})
    typed = not _tries(settings) and optim.get("tuned") is None
    if typed and optim.get("pe_lr_mult") is not None:
        changed["pe_lr_mult"] = optim["pe_lr_mult"]
    return " ".join(
        [name, *(f"{key}={_typed(value)}" for key, value in sorted(changed.items())), *_positions(settings)]
    )


def _positions(settings: dict[str, Any]) -> list[str]:
    """The choice of position numbers, with the settings of it that differ from their defaults; nothing for plain ones."""
    defaults, chosen = plain(PositionsSettings()), settings.get("positions", {})
    if chosen.get("name", defaults["name"]) == defaults["name"]:
        return []
    changed = {key: value for key, value in sorted(chosen.items()) if key != "name" and value != defaults.get(key)}
    return [f"positions={chosen['name']}", *(f"{key}={_typed(value)}" for key, value in changed.items())]


def _tries(settings: dict[str, Any]) -> bool:
    return settings.get("optim", {}).get("pe_lr_mult_grid") is not None


def _defaults(options: Options, settings: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """What stands for the default of each option: the value itself, and what it comes to in this model."""
    sizes = settings | {"pe": {"name": "none"}, "optim": {}, "seed": 0}  # which all runs of a study share
    try:
        written_out = plain(options.resolved(_dims(json.dumps(sizes))))
    except ConfigError:  # of another version
        written_out = plain(options)
    return {key: (value, written_out[key]) for key, value in plain(options).items()}


@functools.lru_cache(maxsize=64)
def _dims(settings: str) -> Dims:
    """The sizes of the model that settings, as JSON, describe: to read them takes longer than all else that a label does."""
    return from_plain(json.loads(settings)).dims


def _run_paths(folder: Path) -> Iterable[Path]:
    if _is_run(folder):
        return [folder]
    found = [path for path in sorted(folder.iterdir()) if _is_run(path)] if folder.is_dir() else []
    planned = [folder / job["folder"] for job in _jobs(folder)]
    if not found and not planned:
        raise ConfigError(
            f"'{folder}': "
            + ("no run is in this folder. " if folder.is_dir() else "there is no such folder. ")
            + "Give a study folder (outputs/STUDY, outputs/latest) or run folders, which hold status.json or record.json."
        )
    return [*found, *planned]


def _is_run(folder: Path) -> bool:
    return (folder / "status.json").is_file() or (folder / "record.json").is_file()


def _study(folder: Path) -> dict[str, Any]:
    path = folder / "study.json"
    return records.read_json(path) if path.exists() else {}


def _jobs(study: Path) -> list[dict[str, Any]]:
    jobs = _study(study).get("jobs", [])
    with records.intact(study / "study.json"):
        return [{**job, "folder": str(job["folder"])} for job in jobs]


def _job(run: Path, jobs: dict[Path, dict[str, Any]]) -> dict[str, Any]:
    """What was planned for this run: by the study compared or, for a run folder given alone, by the one it lies in."""
    return jobs.get(run) or next((job for job in _jobs(run.parent) if job["folder"] == run.name), {})


def _read_run(path: Path, folder: str, job: dict[str, Any]) -> Run:
    """A run as it lies on disk; whatever is wrong with its files becomes its reason, and costs no other run."""
    status, reason = _status(path)
    record = None
    if status == records.COMPLETE:
        try:
            record = records.read_record(path)
            with records.intact(path / "record.json"):
                label(record.settings)
                int(record.settings["train"]["length"])
        except RunError as error:
            record, status, reason = None, records.FAILED, f"its record cannot be read: {error}"
    settings = record.settings if record else _settings(path)
    scheme = record.scheme if record else job.get("scheme") or settings.get("pe", {}).get("name") or path.name
    seed = record.seed if record else job.get("seed", settings.get("seed"))
    return Run(
        folder=folder,
        scheme=scheme,
        label=label(settings) if "pe" in settings else job.get("label") or scheme,
        seed=seed,
        status=status,
        reason=reason,
        record=record,
        settings=settings,
        tuned=settings.get("optim", {}).get("tuned"),
    )


def _status(path: Path) -> tuple[str, str]:
    if not (path / "status.json").exists():
        return (records.COMPLETE, "") if (path / "record.json").exists() else (NOT_STARTED, "")
    try:
        content = records.read_status(path)
        working = "its process is still at work" if content["status"] == records.RUNNING else ""
        return content["status"], content["reason"] or working
    except RunError as error:
        return records.FAILED, f"its status cannot be read: {error}"


def _settings(path: Path) -> dict[str, Any]:
    """The settings of a run without a record, empty where it ended before they were written."""
    try:
        settings = json.loads((path / "settings.json").read_text(encoding="utf-8"))
        with records.intact(path / "settings.json"):
            label(settings)
    except (OSError, ValueError, RunError):
        return {}
    return {name: value for name, value in settings.items() if name not in ("schema", "command")}


def _typed(value: Any) -> str:
    """A value as one types it on the command line, 500000.0 as 500000."""
    return typed_form(int(value) if isinstance(value, float) and value.is_integer() else value)


def objective(settings: Mapping[str, Any]) -> str:
    """What a run was trained to do, with the shares that differ from the defaults: "next_token", "masked mask_prob=0.3"."""
    defaults = plain(ObjectiveSettings())
    if not learning.is_masked(settings):
        return defaults["name"]
    chosen = settings["objective"]
    shares = [f"{name}={value:g}" for name, value in chosen.items() if name != "name" and value != defaults.get(name)]
    return " ".join([chosen["name"], *shares])
