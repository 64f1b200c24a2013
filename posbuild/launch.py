"""A launch: from a command line to run folders, a comparison and an exit status.

Hydra composes and expands. A job is in this process if it is the only one, else in a process of its own, so that what
kills one job costs no other. What became of a job is read from its folder.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from posbuild import jobs, overrides, records, tracking, tuning
from posbuild.comparison.runs import label
from posbuild.errors import ConfigError, RunError
from posbuild.folders import claimed, is_complete, locked, status_of, study_of
from posbuild.jobs import Terminated
from posbuild.overrides import Job, Plan, Typed
from posbuild.paths import conf_dir, expanded, shown
from posbuild.records import DIVERGED
from posbuild.settings import (
    LoggerName,
    Settings,
    check_trainable,
    from_config,
    from_plain,
    plain,
    typed_form,
)

if TYPE_CHECKING:
    from posbuild.data.corpora import Corpus

COMPLETED, SOME_FAILED, INTERRUPTED = 0, 1, 130  # exit statuses
OUTPUTS = Path("outputs")
LATEST = "latest"


def launch(arguments: Sequence[str], program: Sequence[str]) -> int:
    """Train, measure and compare what `arguments` describe; return the exit status.

    program  what was typed before them, such as ["python", "train.py"]: for the commands that are printed and recorded

    Raises ConfigError, before anything runs and without leaving a folder, for settings that cannot be used.
    """
    typed = overrides.take_apart(arguments)
    if typed.only_shows:
        if typed.flags.config_dir or typed.flags.config_path:  # Hydra starts callbacks before it prints
            overrides.plan(typed)
        hand_over(typed, program)
        return COMPLETED
    jobs.print_line_by_line()
    if (folder := typed.value("resume")) is not None:
        return resume(folder, typed, program)
    typed = typed.with_study()
    plan = overrides.plan(typed)
    if plan.multirun:
        jobs.server(plan.jobs[0].settings)
    refuse_what_cannot_run(plan, typed)
    prepare(plan, typed, program)
    if tuning.tunes(plan):
        print(tuning.announcement(plan))
    jobs_planned = [*plan.jobs]
    interrupted, handed_over = False, False
    try:
        with terminable():
            hand_over(typed, program)
            for sweep in tuning.multiplier_sweeps(typed, plan):
                more = overrides.plan(sweep)
                note_jobs(more, plan.study.absolute(), given_again(typed, program))
                jobs_planned += more.jobs
                hand_over(sweep, program)
        handed_over = True
    except KeyboardInterrupt:
        interrupted = True
    except SystemExit as error:  # Hydra's way to end after an error that it has printed
        handed_over = not error.code
    finally:
        compared = conclude(plan.study, plan.jobs[0].settings)
    if interrupted:
        return INTERRUPTED
    if tuning.tunes(plan) and compared and (command := tuning.results(typed, plan, program)):
        print(f"Results on test documents, at the shared rate and at the best of each scheme: {command}")
    return COMPLETED if handed_over and compared and all(map(done, jobs_planned)) else SOME_FAILED


def hand_over(typed: Typed, program: Sequence[str]) -> None:
    """Let Hydra take it from here."""
    flags = [option for option in typed.options if option not in ("-m", "--multirun")]

    def task(config: DictConfig) -> None:
        carry_out(config, [*program, *flags])

    overrides.offer_schemes()
    before = sys.argv
    sys.argv = [before[0], *typed.options, *typed.overrides]
    try:
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(task)()
    finally:
        sys.argv = before


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends what is inside as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: Any) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# --- before the first job ---------------------------------------------------------------------------------------------


def refuse_what_cannot_run(plan: Plan, typed: Typed) -> None:
    """Raise ConfigError if no job can run; of a sweep in which some can, say which cannot."""
    if plan.changes_folder:
        raise ConfigError(
            "hydra.job.chdir=true cannot be used: paths are taken from the folder in which the command is typed. Leave it "
            "out; the run folder has all that a run writes."
        )
    for setting in typed.settings:
        name = setting.partition("=")[0].lstrip("+")
        if name.startswith("hydra.job.env_set"):  # it may be a key, and a command is printed, kept and uploaded
            raise ConfigError(
                f"{name} cannot be used: its value would stand in the files of the run. Set the variable in the shell, "
                "before the command."
            )
    refuse_study_name(plan.jobs[0].settings.study)
    corpora_read: dict[str, Corpus] = {}
    obstacles = {job.folder: obstacle(job.settings, corpora_read) for job in plan.jobs}
    for job in plan.jobs:
        if not obstacles[job.folder]:
            refuse_another_text(job.folder, corpora_read[repr(job.settings.data)])
    reasons = dict.fromkeys(reason for reason in obstacles.values() if reason)
    if all(obstacles.values()):
        raise ConfigError("\n".join(reasons))
    for corpus in corpora_read.values():
        print(corpus)
    for reason in reasons:
        names = ", ".join(folder.name for folder, found in obstacles.items() if found == reason)
        print(f"{names} will be refused: {reason}", file=sys.stderr)


def refuse_study_name(study: str | None) -> None:
    if study is not None and (study in ("", ".", "..", LATEST) or "/" in study):
        raise ConfigError(
            f"study={study} cannot be the name of a folder in {OUTPUTS}/: use one without /, and not '{LATEST}', the link to "
            "the newest study. Another place is hydra.sweep.dir=FOLDER."
        )


def refuse_another_text(folder: Path, corpus: Corpus) -> None:
    """Raise ConfigError if a run that was measured had another text: beside it no other can be compared."""
    try:
        had = records.read_record(folder).data["sha256"]
    except (RunError, KeyError):
        return
    if had != corpus.sha256:
        raise ConfigError(
            f"data={corpus.name} is not the text that {shown(folder)} was trained on: its SHA-256 was {had} and is "
            f"{corpus.sha256} now. Put the text back, or take another study=NAME."
        )


def obstacle(settings: Settings, corpora_read: dict[str, Corpus]) -> str | None:
    """Why settings that are right each for itself cannot run, None if they can."""
    from posbuild.data import corpora
    from posbuild.evaluation.lengths import check_lengths

    try:
        check_trainable(settings)
        key = repr(settings.data)
        if key not in corpora_read:
            corpora_read[key] = corpora.load(settings.data)
        check_lengths(corpora_read[key], settings)
    except ConfigError as error:
        return str(error)
    return None


def prepare(plan: Plan, typed: Typed, program: Sequence[str]) -> None:
    """Make the study folder, note the jobs in it, and print the command that goes on with this launch."""
    again = given_again(typed, program)
    study = plan.study.absolute()
    try:
        for folder in (study, *(job.folder.absolute() for job in plan.jobs)):
            if folder.exists() and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
                raise ConfigError(
                    f"The folder {folder} cannot be written: {'no permission' if folder.is_dir() else 'it is a file'}."
                )
        study.mkdir(parents=True, exist_ok=True)
        note_jobs(plan, study, again)
    except OSError as error:
        raise ConfigError(
            f"The folder {study} cannot be written: {error.strerror or error}. Choose another place."
        ) from None
    print(f"Should it be cut short, go on with: {again}")
    if study.parent == OUTPUTS.absolute():
        point_latest_to(study)


def given_again(typed: Typed, program: Sequence[str]) -> str:
    """The command that goes on with this launch."""
    return shlex.join([*program, *typed.options, *typed.settings])


def note_jobs(plan: Plan, study: Path, command: str) -> None:
    """Add the launch to `study`/study.json: its jobs, and its command where it is another than those before.

    Of a run that is to stand for several studies which tuned, or for one and for the rate as typed, all are noted.
    """
    path = study / "study.json"
    with locked(study):
        content: dict[str, Any] = {"schema": records.SCHEMA, "study": study.name, "command": "", "jobs": []}
        known: dict[str, Any] = {}
        if path.exists():
            try:
                content |= records.read_json(path)
                with records.intact(path):
                    known = {job["folder"]: job for job in content["jobs"]}
            except RunError as error:
                raise ConfigError(str(error)) from None
        content["command"] = "\n".join(dict.fromkeys([*content["command"].splitlines(), command]))
        for job in plan.jobs:
            folder = os.path.relpath(job.folder.absolute(), study)
            before = known[folder].get("tuned", [None]) if folder in known else []
            tuned = [*dict.fromkeys([*before, job.settings.optim.tuned])]
            known[folder] = {
                "folder": folder,
                "scheme": job.settings.scheme,
                "label": label(job.settings.plain()),
                "seed": job.settings.seed,
                **({} if tuned == [None] else {"tuned": tuned}),
            }
        records.write_json(path, content | {"jobs": list(known.values())})


def point_latest_to(study: Path) -> None:
    """outputs/latest, replaced in one step: a reader always finds a study behind it."""
    partial = study.parent / f".{LATEST}.{os.getpid()}"
    try:
        partial.unlink(missing_ok=True)
        partial.symlink_to(study.name, target_is_directory=True)
        os.replace(partial, study.parent / LATEST)
    except OSError as error:
        partial.unlink(missing_ok=True)
        print(f"{OUTPUTS / LATEST} does not point to this study: {error.strerror or error}.", file=sys.stderr)


# --- jobs -------------------------------------------------------------------------------------------------------------


def carry_out(config: DictConfig, command: Sequence[str]) -> None:
    """Hydra's task: one job, composed. Raises nothing that would cost the other jobs of a sweep."""
    node = HydraConfig.get()
    settings, folder = from_config(config), Path(node.runtime.output_dir)
    again = shlex.join([*command, *node.overrides.task])
    with claimed(folder) as ours:
        if not ours:
            print(f"{shown(folder)} is left alone: another process is working on it.")
        elif status_of(folder) == DIVERGED:
            print(diverged(folder))
        elif not is_complete(folder):
            jobs.run(settings, folder, again, alone=node.mode != RunMode.MULTIRUN)
        elif lacking := not_measured(settings, folder):
            values = shlex.join([str(shown(folder)), *lacking])
            print(f"{shown(folder)} is complete, but less was measured. To measure more: posbuild evaluate {values}")
        else:
            print(complete(folder))


def complete(folder: Path) -> str:
    """That a run is complete, and on what: with trainer.precision=null another machine may compute otherwise."""
    made_on = records.read_record(folder).environment
    return f"{shown(folder)} is complete ({made_on['precision']} on {made_on['device']}); nothing is left to do."


def diverged(folder: Path) -> str:
    """A run that would diverge again: the same steps from the same start give the same loss."""
    return f"{shown(folder)} diverged: {records.read_status(folder)['reason']} Delete the folder to try again."


# --- what became of it ------------------------------------------------------------------------------------------------


def done(job: Job) -> bool:
    """Whether all that was asked for is there. Of a rate that is tried, it is a result that a run diverged."""
    if job.settings.optim.pe_lr_mult_grid is not None and status_of(job.folder) == DIVERGED:
        return True
    return is_complete(job.folder) and not not_measured(job.settings, job.folder)


def not_measured(asked: Settings, folder: Path) -> list[str]:
    """The eval settings asked for that go beyond those by which a complete run was measured, as one would type them."""
    had = from_plain(records.read_record(folder).settings)
    lengths = sorted({*asked.eval_lengths} - {*had.eval_lengths})
    lacking = [f"eval.lengths={typed_form(lengths)}"] if lengths else []
    before = plain(had.eval)
    for name, value in plain(asked.eval).items():
        if name not in ("name", "lengths", "multiples", "batch_tokens") and value > before[name]:
            lacking.append(f"eval.{name}={typed_form(value)}")
    return lacking


def conclude(study: Path, settings: Settings) -> bool:
    """Compare the runs of a study at the end of a launch, and say where wandb has them; whether comparing worked.

    A failure is printed, not raised.
    """
    try:
        compare([study], study, settings)
        return True
    except (ConfigError, RunError) as error:
        print(f"No comparison: {error}", file=sys.stderr)
    except Exception:
        traceback.print_exc()
        print(
            f"The comparison failed; the runs are safe. Once mended: posbuild compare {shlex.quote(str(study))}",
            file=sys.stderr,
        )
    finally:
        if settings.logger.name is LoggerName.wandb:
            tracking.say_where(study, settings.logger)
    return False


def compare(folders: Sequence[Path], out: Path, settings: Settings | None = None) -> None:
    """Compare the runs in `folders`, write the comparison into `out` and print it; log it beside a run with `settings`.

    Raises ConfigError if there is nothing to compare or `out` cannot be written.
    """
    from posbuild import report
    from posbuild.comparison.compare import compare as compared
    from posbuild.report.tables import print_comparison
    from posbuild.report.told import told

    with locked(out) if out.is_dir() else nullcontext():  # of two launches the last has the last word, with all runs
        comparison = compared(folders)
        try:
            out.mkdir(parents=True, exist_ok=True)
            page = report.write(out, comparison)
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(f"The comparison cannot be written to {out.absolute()}: {why}.") from None
        print_comparison(comparison, shown(page.absolute()))
        if settings is not None and settings.logger.name is LoggerName.wandb:
            tracking.log_comparison(out, comparison, settings.study or out.name, settings.logger, told=told)


def resume(folder: Path | str, typed: Typed, program: Sequence[str]) -> int:
    """Go on with one run, by its own settings; return the exit status."""
    path = expanded(folder)
    beside = [setting for setting in typed.settings if not setting.lstrip("+").startswith("resume=")] + typed.options
    if beside:
        why = ""
        if any(setting.startswith("train.steps=") for setting in beside):
            why = " train.steps decides the folder's name and how the rate decays: more steps are another run."
        raise ConfigError(
            f"{' '.join(beside)} beside resume={folder}: a run goes on with its own settings.{why} Leave it out."
        )
    if not (path / "settings.json").is_file():
        what = "has no settings.json" if path.is_dir() else "is not there"
        raise ConfigError(f"resume={folder} is no run folder: {path} {what}. Give one such as {OUTPUTS}/STUDY/RUN.")
    from posbuild.training.load import read_settings

    try:
        settings, command = read_settings(path)
    except RunError as error:
        raise ConfigError(str(error)) from None
    print(f"Should it be cut short, go on with: {shlex.join([*program, *typed.settings])}")
    if is_complete(path):
        print(complete(path))
        return COMPLETED
    if status_of(path) == DIVERGED:
        print(diverged(path))
        return SOME_FAILED
    interrupted = False
    with claimed(path) as ours:
        if not ours:
            raise ConfigError(f"resume={folder}: another process is working on {path}.")
        try:
            with terminable():
                jobs.run(settings, path, command, alone=True)
        except KeyboardInterrupt:
            interrupted = True
    compared = conclude(study_of(path), settings)
    if interrupted:
        return INTERRUPTED
    return COMPLETED if compared and is_complete(path) else SOME_FAILED
