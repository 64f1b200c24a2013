"""Rows and files on disk."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from posbuild import records
from posbuild.errors import RunError
from posbuild.records import MEASURED, NOT_FINITE, Record, Row, read_record, write_record

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_a_row_with_the_reason(value):
    row = Row.of(value, measure="loss/x", at={"length": 4}, unit="nats/token")
    assert (row.status, row.value) == (NOT_FINITE, None)
    assert row.reason == f"the value is {value}"
    with pytest.raises(ValueError, match="not finite"):
        Row(measure="loss/x", value=value)


def test_rows_are_read_as_they_were_written(tmp_path):
    rows = [
        Row.of(1.5, measure="loss/x", at={"length": 4}, count=8, groups=[("a", 12.0, 8)], draw="0f", note="noisy"),
        Row.of(0.0, measure="loss/y"),
        Row.of(math.nan, measure="loss/z"),
    ]
    record = Record(
        scheme="none",
        seed=0,
        hash="",
        command="",
        settings={},
        rows=rows,
        data={},
        model={},
        training={},
        environment={},
    )
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record
    plain = json.loads((tmp_path / "record.json").read_text())["rows"]
    assert plain[0]["note"] == "noisy" and plain[0]["draw"] == "0f"
    assert plain[1] == {"measure": "loss/y", "at": {}, "value": 0.0, "status": MEASURED}


def test_a_text_without_an_encoding_is_read_as_it_was_written(tmp_path):
    content = {"schema": 1, "name": os.fsdecode(b"caf\xe9 \xe7\x8c\xab")}
    records.write_json(tmp_path / "a.json", content)
    assert records.read_json(tmp_path / "a.json") == content
    assert "猫" in (tmp_path / "a.json").read_text(encoding="utf-8")


def test_a_process_that_ends_while_it_is_asked_for_has_died(tmp_path, monkeypatch):
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    content = {"schema": 1, "status": records.RUNNING, "reason": "", "pid": int(ended.stdout)}
    records.write_json(tmp_path / "status.json", content)
    monkeypatch.setattr(os, "kill", lambda pid, signal: None)  # it was there a moment ago
    assert records.read_status(tmp_path)["status"] == records.DIED


@pytest.mark.parametrize(
    ("name", "content", "read"),
    [
        ("record.json", '{"schema": 1}', records.read_record),
        ("record.json", '{"schema": 0, "rows": []}', records.read_record),
        ("record.json", '{"schema": 1, "rows": [{"measure": 3, "valve": 1}]}', records.read_record),
        ("status.json", '{"schema": 1}', records.read_status),
        ("status.json", '{"schema": 1, "status": "running", "reason": "", "pid": "x"}', records.read_status),
        ("status.json", '{"schema": 1, "status": "running", "reason": "", "pid": 1e30}', records.read_status),
    ],
)
def test_a_damaged_file_is_one_message_that_names_it(tmp_path, name, content, read):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(RunError, match=name):
        read(tmp_path)


def test_a_file_is_never_seen_half_written_by_two_writers(tmp_path):
    """Two processes write one file again and again; every read finds one or the other."""
    code = "import sys; from pathlib import Path; from posbuild.records import write_json\n"
    code += "for _ in range(40): write_json(Path(sys.argv[1]), [sys.argv[2]] * 20000)"
    path = tmp_path / "shared.json"
    records.write_json(path, ["a"])
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), word], cwd=ROOT) for word in "ab"]
    while any(writer.poll() is None for writer in writers):
        assert set(json.loads(path.read_text(encoding="utf-8"))) in ({"a"}, {"b"})
    assert [writer.returncode for writer in writers] == [0, 0]
    assert [item.name for item in tmp_path.iterdir()] == ["shared.json"]
