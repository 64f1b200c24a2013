"""How a job gets its process: this one, a child of its own, or a command that Lightning can start again."""

from __future__ import annotations

import importlib
import io
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from posbuild import records
from posbuild.folders import status_of
from posbuild.settings import LoggerName, Settings

GRACE = 20  # seconds that an interrupted job has to write its checkpoint


class Terminated(KeyboardInterrupt):
    """SIGTERM: unlike Ctrl-C in a terminal it reaches this process alone."""


def run(settings: Settings, folder: Path, command: str, *, alone: bool) -> None:
    """Train and measure in `folder`. `alone`: in this process, since no other job depends on it.

    Raises KeyboardInterrupt if a person or the system ended it; the folder says so by then.
    """
    if in_several_processes(settings.trainer):
        by_command(settings, folder, command)
    elif alone:
        here(settings, folder, command)
    else:
        in_child(settings, folder, command)


def in_several_processes(trainer: dict[str, Any]) -> bool:
    """Whether Lightning will start further processes, each of which runs the command again."""
    devices = trainer["devices"]
    one = devices == 1 or (isinstance(devices, list) and len(devices) == 1)
    return not one or trainer["strategy"].startswith("ddp")


def needed(settings: Settings) -> list[str]:
    """Modules that take a job seconds to import, in the order in which that is quickest.

    wandb.init() imports wandb.sdk.launch, whose classes look through every module there is as they are made: before
    torch and Lightning that is a third of a second, after them it may be four.
    """
    wandb = ["wandb.sdk.launch.inputs.internal"] if settings.logger.name is LoggerName.wandb else []
    return ["posbuild.jobs", *wandb, "posbuild.training.run"]


def here(settings: Settings, folder: Path, command: str) -> None:
    for module in needed(settings):
        with suppress(ImportError):  # what is missing is said where it is used
            importlib.import_module(module)
    from posbuild.training.run import interrupted
    from posbuild.training.run import run as train_and_measure

    status = train_and_measure(settings, folder, command)
    if status == records.FAILED and records.read_status(folder)["reason"] == interrupted(folder):
        raise KeyboardInterrupt


def in_child(settings: Settings, folder: Path, command: str) -> None:
    """In a process forked from a server that has torch loaded: it dies alone, and its peak memory is its own."""
    child = server(settings).Process(target=work, args=(settings, folder, command, dict(os.environ)))
    child.start()
    try:
        child.join()
    except KeyboardInterrupt as stop:
        if isinstance(stop, Terminated):
            child.terminate()
        child.join(GRACE)
        child.kill()
        child.join()
        raise
    finally:
        note_death(folder, child.exitcode or 0)


def server(settings: Settings) -> multiprocessing.context.ForkServerContext:
    """The process that jobs are forked from; started by the first call, it imports what they need while others plan."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(needed(settings))
    multiprocessing.forkserver.ensure_running()
    return context


def work(settings: Settings, folder: Path, command: str, environment: dict[str, str]) -> None:
    """In the child: run, with the launch's environment, and end when the launch does."""
    os.environ.update(environment)
    print_line_by_line()
    threading.Thread(target=end_with_launch, daemon=True).start()
    from posbuild.training.run import run as train_and_measure

    train_and_measure(settings, folder, command)


def print_line_by_line() -> None:
    """What several processes print into one pipe stays in order, and names of files may have any letters."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")


def end_with_launch() -> None:
    """A launch that was killed must leave no job behind that works on in its folder."""
    launch_process = multiprocessing.parent_process()
    assert launch_process is not None
    multiprocessing.connection.wait([launch_process.sentinel])
    os.kill(os.getpid(), signal.SIGKILL)


def by_command(settings: Settings, folder: Path, command: str) -> None:
    """As a command of its own, which Lightning can start once more for each further process."""
    from posbuild.training.load import write_settings

    write_settings(folder, settings, command)
    package = Path(__file__).resolve().parent.parent  # may be a checkout that is not installed
    path = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, "-m", "posbuild.training.job", str(folder)],
        env=os.environ | {"PYTHONPATH": path},
        close_fds=False,  # the claim on the folder goes with it
    )
    try:
        process.wait()
    except KeyboardInterrupt as stop:
        if isinstance(stop, Terminated):
            process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    finally:
        note_death(folder, process.returncode or 0)


def note_death(folder: Path, code: int) -> None:
    """Write down that a job ended without a word: by a signal, or before it could say what went wrong."""
    if code < 0:
        reason = f"killed by signal {-code} ({signal.Signals(-code).name})"
        reason += ", by a person or for want of memory" if -code == signal.SIGKILL else ""
    elif code > 0 and status_of(folder) in (None, records.RUNNING, records.DIED):
        reason = f"its process ended with exit status {code}"
    else:
        return
    print(f"{folder.name} died: {reason}")
    records.write_status(folder, records.DIED, reason)
