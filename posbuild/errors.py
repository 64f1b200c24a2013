"""The one error that a person can mend: a setting that is wrong, said before anything is trained."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ConfigError(Exception):
    """A setting that cannot be used.

    The message reads: the setting as typed, its value, why it cannot be used, what would work. The command line prints
    it as one message without a traceback and exits with status 2.
    """


class RunError(Exception):
    """A run that cannot go on for a reason that a person can act on (a full disk, a checkpoint that does not fit)."""


class Diverged(RunError):
    """The training loss stopped being a finite number."""


def first_line(error: BaseException) -> str:
    """The first line of what an error of a library says, without a full stop."""
    return str(error).strip().partition("\n")[0].rstrip(". ")


def nearest(word: str, known: Iterable[str]) -> str:
    """A sentence naming the known words, the nearest first if one is near: for the end of an error message."""
    known = sorted(known)
    near = difflib.get_close_matches(word, known, n=1)
    return (f"Nearest: '{near[0]}'. " if near else "") + f"Known: {', '.join(known)}."
