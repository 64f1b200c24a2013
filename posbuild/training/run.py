"""One whole job in this process: from settings to a run folder with weights and record."""

from __future__ import annotations

import errno
import functools
import io
import shlex
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from posbuild import records, registry
from posbuild.data import corpora
from posbuild.data.batches import BatchStream, validation_windows
from posbuild.data.corpora import Corpus
from posbuild.data.vocabulary import vocabulary_of
from posbuild.errors import ConfigError, Diverged, RunError
from posbuild.evaluation import masked
from posbuild.evaluation.lengths import check_lengths
from posbuild.evaluation.losses import validation_loss
from posbuild.evaluation.measure import Part, parts
from posbuild.evaluation.probes import signal_rms
from posbuild.evaluation.windows import sizes
from posbuild.folders import is_complete, status_of
from posbuild.model import Transformer, model_of
from posbuild.paths import shown
from posbuild.records import Record, Row
from posbuild.settings import Settings, check_trainable, typed_form
from posbuild.tracking import Tracker, tracking
from posbuild.training.callbacks import (
    Checkpoints,
    Guard,
    Interrupted,
    Interruption,
    LearningCurve,
    Progress,
    Stopwatch,
)
from posbuild.training.datamodule import Windows
from posbuild.training.facts import data_facts, environment, model_facts
from posbuild.training.load import WEIGHTS, check_checkpoint, write_settings
from posbuild.training.module import LanguageModel
from posbuild.training.trainer import quiet, trainer

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FRACTIONS = (0.25, 0.5, 1.0)  # of the budget, at which the record has the validation loss

Report = Callable[[str], None]


def run(settings: Settings, folder: Path, command: str, report: Report = print) -> str:
    """Train and measure in `folder`, or go on there from its last checkpoint; return the status, as in status.json.

    Raises nothing that a person or the machine can cause: such errors become the status (refused, failed, diverged) and
    its reason. In a further process of one run (trainer=ddp) it trains along and writes nothing; there an error that
    the first process may not know of is raised.
    """
    if is_first_process():
        if is_complete(folder):
            report(f"{folder} is complete; nothing is left to do.")
            return records.COMPLETE
        if status_of(folder) == records.COMPLETE:
            report(f"{shown(folder)} has no record that can be read: it is measured again.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for left in folder.rglob("*.partial"):  # by a process that was killed while it wrote
                left.unlink()
            (folder / "error.txt").unlink(missing_ok=True)
            write_settings(folder, settings, command)
            records.write_status(folder, records.RUNNING)
        except OSError as error:
            why = error.strerror or error
            report(f"The run folder {folder} cannot be written: {why}. Choose another study=, or make it writable.")
            return records.REFUSED
    interruption = Interruption()
    with interruption.caught():
        status, reason = attempt(lambda: job(settings, folder, command, report, interruption), folder)
    if is_first_process():
        if reason:
            report(f"{settings.run_name} {status}: {reason}")
        try:
            records.write_status(folder, status, reason)
        except OSError as error:
            report(f"{folder}/status.json cannot be written: {error.strerror or error}.")
    return status


def is_first_process() -> bool:
    """Whether this process writes what the run leaves on disk: always, but in further processes of trainer=ddp."""
    return rank_zero_only.rank == 0  # type: ignore[attr-defined]


def attempt(work: Callable[[], str], folder: Path) -> tuple[str, str]:
    """Do the work; return status and reason, which of completed work is what it returns."""
    try:
        return records.COMPLETE, work()
    except ConfigError as error:
        return records.REFUSED, str(error)
    except Diverged as error:
        return records.DIVERGED, str(error)
    except (Interrupted, KeyboardInterrupt):
        return records.FAILED, interrupted(folder)
    except RunError as error:
        return records.FAILED, str(error)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            again = f"resume={shlex.quote(str(folder))}"
            return records.FAILED, f"no room left on its disk ({error.strerror}). Make room, then go on with {again}"
        if not is_first_process():
            raise  # so that Lightning ends the others, which would wait for this one
        note_traceback(folder)
        return records.FAILED, f"{type(error).__name__}: {error}"


def interrupted(folder: Path) -> str:
    return f"interrupted; go on with resume={shlex.quote(str(folder))}"


def note_traceback(folder: Path) -> None:
    """Write folder/error.txt."""
    try:
        (folder / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
    except OSError:  # a full disk, say: the reason still reaches the terminal
        traceback.print_exc()


def job(settings: Settings, folder: Path, command: str, report: Report, interruption: Interruption) -> str:
    """Train, measure and write the record; return what could not be measured and why, or nothing."""
    check_trainable(settings)
    corpus = corpora.load(settings.data)
    check_lengths(corpus, settings)
    group, facts = settings.study or folder.parent.name, {"data_sha256": corpus.sha256}
    first = is_first_process()
    with tracking(settings, folder, group, facts, report) if first else nullcontext(Tracker(None, report)) as tracker:
        threads = torch.get_num_threads()
        trained = train(settings, folder, corpus, tracker, report, interruption)
        if not first:
            return ""
        torch.set_num_threads(threads)  # Lightning shares them out among processes; the others are gone
        record = Record(
            scheme=settings.scheme,
            seed=settings.seed,
            hash=settings.hash,
            command=command,
            settings=settings.plain(),
            rows=learning_rows(trained.curve, settings, corpus),
            data=data_facts(corpus, settings.train.length),
            model=trained.model_facts,
            training=trained.training_facts,
            environment=environment(trained.device, trained.precision),
        )
        model = trained.model.to(trained.device)
        asked = parts(model, settings, corpus, precision=trained.precision, report=report)
        lacking = measure(asked, record, folder)
        tracker.log_rows(record.rows)
        return lacking


def measure(asked: Sequence[Part], record: Record, folder: Path) -> str:
    """Do the measurements and write the record after each; return what failed and why.

    The first, the losses, has to succeed. An error in another costs its own rows only: the record's settings then say
    that it was not asked for.
    """
    wanted = dict(record.settings["eval"])
    record.settings["eval"] |= {"probes": False, "cost_rounds": 0}
    failed = []
    for name, part in asked:
        try:
            record.rows = records.merge(record.rows, part())
        except Exception as error:
            if name == "lengths":
                raise
            note_traceback(folder)
            again = f"posbuild evaluate {shlex.quote(str(folder))} eval.{name}={typed_form(wanted[name])}"
            failed.append(f"eval.{name} was not measured: {type(error).__name__}: {error}. {again} tries again")
            continue
        record.settings["eval"][name] = wanted[name]
        records.write_record(folder, record)
    return "; ".join(failed)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What training leaves: the model on the CPU in evaluation mode, and what the record needs of it."""

    model: Transformer
    curve: LearningCurve
    device: torch.device  # that it was trained on
    precision: str
    model_facts: dict[str, Any]
    training_facts: dict[str, Any]


def train(
    settings: Settings, folder: Path, corpus: Corpus, tracker: Tracker, report: Report, interruption: Interruption
) -> Trained:
    """Train, from the last checkpoint if there is one, and write the final weights."""
    checkpoint, steps = folder / "checkpoints" / "last.ckpt", settings.train.steps
    windows = validation_windows(corpus.validation, settings.train.length, settings.train.validation_windows)
    model = model_of(settings)
    about_model = model_facts(model, registry.scheme(settings.scheme)) | {
        "signal_rms": signal_rms(model, windows[:, :-1])
    }
    stopwatch = Stopwatch()
    curve = LearningCurve(steps, scorer(settings, windows), stopwatch)

    def due(step: int) -> bool:
        every = (settings.train.log_every, settings.train.checkpoint_every)
        return step == steps or step in curve.points or any(step % number == 0 for number in every)

    callbacks = [
        Guard(due),
        curve,
        Progress(settings, stopwatch, report, settings.trainer["enable_progress_bar"]),
        Checkpoints(checkpoint, settings, due, stopwatch, interruption),
    ]
    with quiet():
        fit = trainer(settings, folder, callbacks, tracker.lightning_logger)
        module, data = LanguageModel(settings, model), Windows(settings, corpus)
        BatchStream(data.batches, world_size=fit.world_size)  # refuses an uneven share before further processes start
        resumed = checkpoint.exists()
        if resumed:
            check_checkpoint(checkpoint, module.state_dict(), corpus)
            report(f"Going on from {shown(checkpoint)}.")
        try:
            fit.fit(module, data, ckpt_path=checkpoint if resumed else None)
        except SystemExit as stop:  # what Lightning makes of KeyboardInterrupt
            raise KeyboardInterrupt from stop
    if is_first_process():
        save_weights(folder / WEIGHTS, model)
    trained = model_of(settings)  # another than the one that may be compiled for the train length
    trained.load_state_dict(model.state_dict())
    tokens = steps * settings.train.accumulate * settings.train.batch_size * settings.train.length
    return Trained(
        model=trained.eval(),
        curve=curve,
        device=fit.strategy.root_device,
        precision=fit.precision,
        model_facts=about_model,
        training_facts={
            "steps": steps,
            "tokens": tokens,
            "tokens_per_parameter": tokens / about_model["parameters"],
            "seconds": stopwatch.seconds,
            "tokens_per_second": tokens / stopwatch.seconds,
            "history": curve.history,
            "pe_lr_mult": settings.pe_lr_mult,
            "resumed": curve.resumed,
            "processes": fit.world_size,
        },
    )


def scorer(settings: Settings, windows: torch.Tensor) -> Callable[[Transformer], float]:
    """The validation loss of a model by its objective. windows: (N, L + 1), inputs and the last one's target"""
    batch_tokens = settings.eval.batch_tokens
    if settings.masked:
        return functools.partial(
            masked.validation_loss, windows=windows[:, :-1], objective=settings.objective, batch_tokens=batch_tokens
        )
    return functools.partial(validation_loss, windows=windows, batch_tokens=batch_tokens)


def save_weights(path: Path, model: Transformer) -> None:
    """Write the parameters by name, whole or not at all."""
    content = io.BytesIO()
    # Straight into the file a full disk would be a RuntimeError that does not say so.
    torch.save(model.state_dict(), content)
    with records.whole(path) as partial:
        partial.write_bytes(content.getbuffer())


def learning_rows(curve: LearningCurve, settings: Settings, corpus: Corpus) -> list[Row]:
    windows, length = settings.train.validation_windows, settings.train.length
    text = validation_windows(corpus.validation, length, windows).numpy()
    targets = text[:, 1:]
    if settings.masked:
        vocabulary = vocabulary_of(settings.data).size
        targets = masked.targets_of(masked.masked_windows(text[:, :-1], settings.objective, vocabulary, length))
    facts: dict[str, Any] = {
        "unit": "nats/token",
        "count": targets.size,
        "bytes": int(sizes(corpus.validation, targets).sum()),
        "note": f"{windows} windows, one drawn from each equal share of the validation text; they may overlap"
        + "; the loss of their masked tokens" * settings.masked,
    }
    losses = [Row(measure="training/loss", at={"fraction": part}, value=curve.at(part), **facts) for part in FRACTIONS]
    return [*losses, Row(measure="training/slope", value=curve.at(0.75) - curve.at(1.0), **facts)]
