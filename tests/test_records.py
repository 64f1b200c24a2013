"""Rows and files on disk."""

from __future__ import annotations

import json
import math

import pytest

from posbuild.records import MEASURED, NOT_FINITE, Record, Row, read_record, write_record


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
