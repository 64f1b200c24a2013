"""Lightning's Trainer, from the settings."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.loggers import Logger
from pytorch_lightning.profilers import AdvancedProfiler, Profiler, SimpleProfiler
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from posbuild.errors import ConfigError, nearest
from posbuild.settings import Settings

# Others train in processes that keep the learning curve for themselves, or share out the weights of one model.
STRATEGIES = ("auto", "ddp", "ddp_find_unused_parameters_true")

PROFILERS: dict[str, type[Profiler]] = {"simple": SimpleProfiler, "advanced": AdvancedProfiler}

# Lightning's adverts and hints that do not apply here; all other warnings stand.
NOISE = (
    r".*does not have many workers.*",  # a batch is made in microseconds
    r".*LeafSpec.*is deprecated.*",
    r".*treespec.*is deprecated.*",
    r".*`isinstance\(treespec, LeafSpec\)`.*",
    r".*The `?srun`? command is available.*",
    r".*Checkpoint directory .* exists and is not empty.*",
)


def trainer(settings: Settings, folder: Path, callbacks: Sequence[Callback], logger: Logger | None) -> Trainer:
    """The Trainer of a run. Raises ConfigError for an argument that it does not have or cannot use on this machine."""
    chosen = arguments(settings, folder)
    try:
        return Trainer(
            **chosen,
            max_steps=settings.train.steps,
            max_epochs=-1,
            accumulate_grad_batches=settings.train.accumulate,
            gradient_clip_val=settings.optim.clip,
            log_every_n_steps=1,  # nothing is logged through Lightning's own counter
            limit_val_batches=0,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            enable_checkpointing=False,
            callbacks=list(callbacks),
            logger=logger or False,
            default_root_dir=folder,
        )
    except (MisconfigurationException, ValueError, TypeError, RuntimeError) as error:
        typed = " ".join(
            f"trainer.{name}={value}"
            for name, value in settings.trainer.items()
            if name in ("accelerator", "devices", "strategy", "precision")
        )
        raise ConfigError(f"{typed} cannot be used here: {' '.join(str(error).split())}") from error


def arguments(settings: Settings, folder: Path) -> dict[str, Any]:
    """`settings.trainer` with the precision resolved, a profiler that writes into the run folder, and without
    Lightning's progress bar: posbuild has its own.

    Raises ConfigError for a strategy or profiler that posbuild does not offer.
    """
    chosen = {**settings.trainer, "enable_progress_bar": False, "precision": precision(settings.trainer)}
    for name, offered in (("strategy", STRATEGIES), ("profiler", PROFILERS)):
        if chosen[name] is not None and chosen[name] not in offered:
            raise ConfigError(f"trainer.{name}={chosen[name]} is not offered. {nearest(chosen[name], offered)}")
    if chosen["profiler"] is not None:
        chosen["profiler"] = PROFILERS[chosen["profiler"]](dirpath=folder, filename="profile")
    return chosen


def precision(chosen: dict[str, Any]) -> str:
    """The precision by Lightning's name; null: bf16-mixed on a GPU that has bf16, else 32-true.

    Raises ConfigError for float16 on the CPU.
    """
    accelerator, asked = chosen["accelerator"], chosen["precision"]
    if asked is None:
        on_gpu = accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
        return "bf16-mixed" if on_gpu and torch.cuda.is_bf16_supported() else "32-true"
    on_cpu = accelerator == "cpu" or (accelerator == "auto" and not torch.accelerator.is_available())
    if on_cpu and asked in ("16", "16-mixed", "16-true"):
        raise ConfigError(
            f"trainer.precision={asked} does not work on a CPU. Use trainer.precision=bf16-mixed or 32-true, or null to have it chosen."
        )
    if on_cpu and asked.startswith("bf16") and not has_bf16():
        warnings.warn(
            f"trainer.precision={asked}: this CPU has no bf16 units, so it is slower than 32-true.", stacklevel=2
        )
    return asked


def has_bf16() -> bool:
    """Whether the CPU computes in bf16; True where the system does not tell."""
    try:
        return "bf16" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True


@contextmanager
def quiet() -> Iterator[None]:
    """Without Lightning's adverts and the hints in `NOISE`."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        for message in NOISE:
            warnings.filterwarnings("ignore", message=message)
        for logger in loggers:
            logger.setLevel(logging.WARNING)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
