"""What accompanies training: divergence, validation losses, checkpoints, progress."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from posbuild import records
from posbuild.errors import Diverged, RunError
from posbuild.settings import Settings
from posbuild.training.module import LanguageModel, rate

POINTS = 20  # of the learning curve, beside that before the first step; a multiple of 4
BAR_REFRESH = 10  # a second


class Interrupted(RunError):
    """A person or the system asked the run to end."""


class Interruption:
    """Ctrl-C and SIGTERM. While `deferred`, the first is noted and the step under way is finished; all others raise
    KeyboardInterrupt at once.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.asked = False
        self.deferred = False

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Handle the signals inside the block. Only a main thread can; in another the block runs as it is."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._handle) for number in self.SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def install(self) -> None:
        """Take the signals, also from Lightning, which has a handler of its own for SIGTERM while it trains."""
        if threading.current_thread() is threading.main_thread():
            for number in self.SIGNALS:
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        at_once = self.asked or not self.deferred
        self.asked = True
        if at_once:
            raise KeyboardInterrupt


class Stopwatch:
    """Seconds of training: what is `paused` does not count."""

    def __init__(self) -> None:
        self.held = 0.0  # seconds when it was last stopped
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        return self.held + (0.0 if self._since is None else time.perf_counter() - self._since)

    def start(self) -> None:
        self._since = time.perf_counter()

    def stop(self) -> None:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # the steps under way belong to the time before
        self.held, self._since = self.seconds, None

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.stop()
        yield
        self.start()


class AfterStep(Callback):
    """Does something after each optimiser step; a batch in the middle of an accumulation ends none."""

    def on_train_batch_end(
        self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            self.after_step(trainer, module, trainer.global_step)

    def after_step(self, trainer: Trainer, module: LightningModule, step: int) -> None:
        """step: how many are done."""
        raise NotImplementedError


class Guard(AfterStep):
    """Ends the run as diverged when a loss or a weight stops being a finite number, before that is saved or scored.

    One process on the CPU looks at every step; elsewhere a look waits for the device or the other processes, so only
    the steps `due` have one.
    """

    def __init__(self, due: Callable[[int], bool]) -> None:
        self.due = due

    def after_step(self, trainer: Trainer, module: LightningModule, step: int) -> None:
        if not (self.due(step) or (trainer.world_size == 1 and module.device.type == "cpu")):
            return
        assert isinstance(module, LanguageModel)
        sound = bool(module.losses.isfinite().all())
        # Finite losses can leave infinite gradients, and these weights that are no numbers.
        if sound and self.due(step):
            sound = all(bool(parameter.isfinite().all()) for parameter in module.model.parameters())
        if not trainer.strategy.reduce_boolean_decision(sound, all=True):
            raise Diverged(diverged(step, trainer.max_steps))


def diverged(step: int, steps: int) -> str:
    return f"the training loss stopped being a finite number by step {step} of {steps}. A smaller optim.lr, or optim.clip, may help."


class LearningCurve(AfterStep):
    """The validation loss before training and at some twenty equal parts of the budget, so also at its quarters.

    history  (step, nats/token), ascending
    resumed  how often the run was taken up again
    """

    def __init__(self, steps: int, validation_loss: Callable[[Any], float], stopwatch: Stopwatch) -> None:
        self.steps, self.validation_loss, self.stopwatch = steps, validation_loss, stopwatch
        self.points = {step_at(steps, part / POINTS) for part in range(1, POINTS + 1)}
        self.history: list[tuple[int, float]] = []
        self.resumed = 0

    def at(self, fraction: float) -> float:
        """The validation loss at this fraction of the budget."""
        return dict(self.history)[step_at(self.steps, fraction)]

    def state_dict(self) -> dict[str, Any]:
        return {"history": self.history, "seconds": self.stopwatch.seconds, "resumed": self.resumed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.history, self.stopwatch.held, self.resumed = state["history"], state["seconds"], state["resumed"] + 1

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        self.stopwatch.start()
        if not self.history:
            self.measure(trainer, module, 0)

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        self.stopwatch.stop()

    def after_step(self, trainer: Trainer, module: LightningModule, step: int) -> None:
        if step in self.points:
            self.measure(trainer, module, step)

    def measure(self, trainer: Trainer, module: LightningModule, step: int) -> None:
        with self.stopwatch.paused():
            loss = self.validation_loss(module.model)
        if not math.isfinite(loss):
            raise Diverged(diverged(step, self.steps))
        self.history.append((step, loss))
        log(trainer, {"validation/loss": loss}, step)


def step_at(steps: int, fraction: float) -> int:
    """The first step by which this fraction of the budget is used."""
    return math.ceil(round(fraction * POINTS) * steps / POINTS)


class Checkpoints(AfterStep):
    """Writes checkpoints/last.ckpt every so many steps, at the end, and when the run is asked to end, whole or not at all.

    Always between two steps: the state in the middle of one is not a state that an uninterrupted run goes through.
    One process can end after any step; several agree to at the steps `due`.
    """

    def __init__(
        self,
        path: Path,
        settings: Settings,
        due: Callable[[int], bool],
        stopwatch: Stopwatch,
        interruption: Interruption,
    ) -> None:
        self.path, self.steps, self.every = path, settings.train.steps, settings.train.checkpoint_every
        self.due, self.stopwatch, self.interruption = due, stopwatch, interruption

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        self.interruption.install()
        self.interruption.deferred = True

    def after_step(self, trainer: Trainer, module: LightningModule, step: int) -> None:
        asked = self.interruption.asked
        if trainer.world_size > 1:
            asked = self.due(step) and trainer.strategy.reduce_boolean_decision(asked, all=False)
        if asked or step % self.every == 0 or step == self.steps:
            self.save(trainer)
        if asked:
            raise Interrupted(f"interrupted at step {step}")

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        self.interruption.deferred = False

    def on_exception(self, trainer: Trainer, module: LightningModule, exception: BaseException) -> None:
        self.interruption.deferred = False

    def save(self, trainer: Trainer) -> None:
        writing = records.whole(self.path) if trainer.is_global_zero else nullcontext(self.path)  # of further processes
        with self.stopwatch.paused(), writing as path:
            trainer.save_checkpoint(path)


class Progress(AfterStep):
    """Loss, rate and speed every `log_every` steps, to the loggers and to a person: a bar in a terminal, else a line.

    bar  None: a bar if the output is a terminal
    """

    def __init__(
        self, settings: Settings, stopwatch: Stopwatch, report: Callable[[str], None], bar: bool | None
    ) -> None:
        train = settings.train
        self.steps, self.log_every, self.stopwatch, self.report = train.steps, train.log_every, stopwatch, report
        self.optim = settings.optim
        self.tokens_per_step = train.batch_size * train.accumulate * train.length
        self.wanted = sys.stdout.isatty() if bar is None else bar
        self.title = settings.run_name
        self.bar: Any = None
        self.last = (0, 0.0)  # step and seconds of the last report

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        self.last = (trainer.global_step, self.stopwatch.seconds)
        if self.wanted and trainer.is_global_zero:
            self.bar = progress_bar()
            self.bar.add_task(self.title, total=self.steps, completed=trainer.global_step, facts="")
            self.bar.start()

    def after_step(self, trainer: Trainer, module: LightningModule, step: int) -> None:
        facts = {}
        if step % self.log_every == 0 or step == self.steps:
            facts = {"facts": self.facts(trainer, module, step)}  # type: ignore[arg-type]
            if self.bar is None and trainer.is_global_zero:
                self.report(f"step {step:>{len(str(self.steps))}} of {self.steps}   {facts['facts']}")
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=step, **facts)

    def facts(self, trainer: Trainer, module: LanguageModel, step: int) -> str:
        loss = float(module.take_loss())
        before, self.last = self.last, (step, self.stopwatch.seconds)
        speed = (step - before[0]) * self.tokens_per_step / max(self.last[1] - before[1], 1e-9)
        used = self.optim.lr * rate(step - 1, self.optim, self.steps)  # the optimiser holds the next step's already
        log(trainer, {"train/loss": loss, "train/rate": used, "train/tokens_per_second": speed}, step)
        return f"loss {loss:.4f}   rate {used:.2e}   {speed:,.0f} tokens/s"

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        if self.bar is not None:
            self.bar.stop()

    def on_exception(self, trainer: Trainer, module: LightningModule, exception: BaseException) -> None:
        self.on_train_end(trainer, module)


def progress_bar() -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"),
        TimeRemainingColumn(),
    ]
    return Progress(*columns, refresh_per_second=BAR_REFRESH)


def log(trainer: Trainer, metrics: dict[str, float | Tensor], step: int) -> None:
    for logger in trainer.loggers:
        logger.log_metrics(metrics, step)  # type: ignore[arg-type]
