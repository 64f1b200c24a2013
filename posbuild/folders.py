"""Run folders that several launches may meet in: whose turn it is, and how far a run has come."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from posbuild import records
from posbuild.errors import ConfigError, RunError
from posbuild.settings import from_plain


@contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Whether no other process works on the run folder; none of another launch begins to while inside.

    A lock tells, not the status: the system lets go of it however its process ends, while a status may say "running"
    with a number that some other process has by now. It is inheritable, so that a job that is started as a command of
    its own (`close_fds=False`) holds on to it even if the launch is killed.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.set_inheritable(handle, True)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except BlockingIOError:
            free = False
        except OSError:  # a file system without locks: the status is all there is
            free = status_of(folder) != records.RUNNING
        yield free
    finally:
        os.close(handle)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One launch at a time."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks: two launches that begin at once may lose a line
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def study_of(run: Path) -> Path:
    """The folder of the study that a run belongs to; its own if it stands alone."""
    return run.parent if (run.parent / "study.json").exists() else run


def is_complete(folder: Path) -> bool:
    """Whether a run is complete, with a record that can be read: if it is lost or damaged the run goes on, to measure."""
    try:
        from_plain(records.read_record(folder).settings)
    except (ConfigError, RunError):
        return False
    return status_of(folder) == records.COMPLETE


def status_of(folder: Path) -> str | None:
    """The status of a run folder, None if it has none that can be read."""
    try:
        return str(records.read_status(folder)["status"])
    except (RunError, KeyError):
        return None
