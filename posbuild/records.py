"""What lies on disk: the record of a run, its status, and the plan of a study.

Every file is JSON and carries `schema`. A file of a newer schema is refused; an older one is upgraded by one function a
step (`UPGRADES`). Files are written whole or not at all, so a reader never sees half of one.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posbuild.errors import RunError

SCHEMA = 1
UPGRADES: dict[int, Callable[[dict], dict]] = {}  # schema n -> function from a file of schema n to one of n + 1

MEASURED, NOT_SUPPORTED, NOT_MEASURED, NOT_FINITE = "measured", "not supported", "not measured", "not finite"
RUNNING, COMPLETE, FAILED, DIVERGED, REFUSED, DIED = "running", "complete", "failed", "diverged", "refused", "died"

REFERENCE = "reference/"  # measures of encodings that a run is not about, in place of "probe/"

AGAIN = "The launch that made it, given again, makes it anew."

Coordinate = int | float | str | bool


@dataclass(frozen=True, kw_only=True)
class Row:
    """One number that was measured, or the reason why there is none.

    measure  what was measured, for example "loss/whole_windows"; with `at` it is the key by which rows are merged
    at       where: coordinates by name, for example {"length": 1024}
    value    the number, None unless status is "measured"
    unit     of the value, for example "nats/token"
    count    what the mean was taken over (scored tokens, passages, pairs), None where the value is no mean
    bytes    of a loss: the UTF-8 bytes of text that the scored tokens stand for; value * count / bytes is nats a byte
    groups   for a mean: (name, sum, count) of each document that went in, so that documents can be drawn again
    draw     digest of what the mean was taken over, where that was drawn: two rows compare only if it is the same
    reason   why there is no number
    note     what else one has to know to read it
    """

    measure: str
    at: dict[str, Coordinate] = field(default_factory=dict)
    value: float | None = None
    unit: str = ""
    count: int | None = None
    bytes: int | None = None
    groups: list[tuple[str, float, int]] = field(default_factory=list)
    draw: str = ""
    status: str = MEASURED
    reason: str = ""
    note: str = ""

    @classmethod
    def of(cls, value: float, **facts: Any) -> Row:
        """The row of a value that may not be finite: then the status says so."""
        if math.isfinite(value):
            return cls(value=value, **facts)
        return cls(status=NOT_FINITE, reason=f"the value is {value}", **facts)

    def __post_init__(self) -> None:
        if (self.value is None) == (self.status == MEASURED):
            raise ValueError(f"{self.measure} {self.at}: a measured row needs a value, another must not have one.")
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(
                f"{self.measure} {self.at} is {self.value}; a number that is not finite is no measurement."
            )

    @property
    def key(self) -> tuple:
        return (self.measure, *sorted(self.at.items()))


@dataclass(kw_only=True)
class Record:
    """All that one run measured, and the settings it ran with: complete in itself."""

    scheme: str
    seed: int
    hash: str  # of the settings that decide the result; the end of the run folder's name
    command: str  # that makes this run again
    settings: dict[str, Any]  # every setting, resolved to plain values
    rows: list[Row]
    data: dict[str, Any]  # name, sha256 of the text read, documents and tokens by split, tokenizer, count-model losses
    model: dict[str, Any]  # parameters, embedding_parameters, positional_parameters, prefix_stable, signal_rms, ...
    training: dict[str, Any]  # tokens, tokens_per_parameter, seconds, history (step, loss), pe_lr_mult, ...
    environment: dict[str, Any]  # versions, device, threads, precision
    schema: int = SCHEMA


def merge(rows: Iterable[Row], newer: Iterable[Row]) -> list[Row]:
    """Rows of both; where two have one key the newer stands, in the older's place."""
    merged = {row.key: row for row in rows}
    merged.update({row.key: row for row in newer})
    return list(merged.values())


def write_json(path: Path, content: Any) -> None:
    """Write `content` as JSON, whole or not at all."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with whole(path) as partial:
        # A name of a file that is no UTF-8 has letters without an encoding: escaped as in JSON, they can be read back.
        partial.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path of this process beside `path`, to be written inside; then it is flushed to disk and renamed to `path`.

    After an error it is removed: on a full disk it would take the room that the next file needs.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def read_json(path: Path) -> dict[str, Any]:
    """The content of a file of ours, upgraded to today's schema.

    Raises RunError for a file that cannot be read, is not ours, or is newer than this version of posbuild.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        schema = content["schema"]
    except FileNotFoundError:
        raise RunError(f"{path} is missing. {AGAIN}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{path} cannot be read as a file of posbuild: {type(error).__name__}: {error}. If it is damaged, delete it. {AGAIN}"
        ) from error
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise RunError(f"{path} has schema {schema!r}, which no posbuild has written: the file is damaged.")
    if schema > SCHEMA:
        raise RunError(f"{path} has schema {schema}; this posbuild reads up to {SCHEMA}. Install a newer posbuild.")
    while content["schema"] < SCHEMA:
        content = UPGRADES[content["schema"]](content)
    return content


def write_record(folder: Path, record: Record) -> None:
    """Write `folder`/record.json."""
    content = dataclasses.asdict(record)
    content["rows"] = [
        {name: value for name, value in row.items() if value not in (None, [], "")} for row in content["rows"]
    ]
    write_json(folder / "record.json", content)


def read_record(folder: Path) -> Record:
    """Read `folder`/record.json. Raises RunError if it cannot be read."""
    path = folder / "record.json"
    content = read_json(path)
    with intact(path):
        rows = [
            Row(**{**row, "groups": [tuple(group) for group in row.get("groups", [])]}) for row in content.pop("rows")
        ]
        return Record(rows=rows, **content)


def write_status(folder: Path, status: str, reason: str = "") -> None:
    """Write `folder`/status.json: where the run stands, and the process that works on it."""
    write_json(folder / "status.json", {"schema": SCHEMA, "status": status, "reason": reason, "pid": os.getpid()})


def read_status(folder: Path) -> dict[str, Any]:
    """The status of a run; one that says "running" and whose process is gone has died."""
    path = folder / "status.json"
    content = read_json(path)
    with intact(path):
        if content["status"] == RUNNING and not _alive(content["pid"]):
            content |= {"status": DIED, "reason": content["reason"] or "its process ended without a word"}
    return content


@contextmanager
def intact(path: Path) -> Iterator[None]:
    """Turn what goes wrong in taking apart the content of a file into RunError: it was written by something else."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RunError(f"{path} is damaged: {type(error).__name__}: {error}. Delete it. {AGAIN}") from error


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # A killed child that nobody has waited for yet still has a pid; it does no work any more.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except PermissionError:
        return True
    except FileNotFoundError:  # a system without /proc, or the process has ended since
        return not Path("/proc/self").exists()
    except ProcessLookupError:
        return False
