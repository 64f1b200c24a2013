"""What the record of a run says of its model beside numbers."""

from __future__ import annotations

import pytest

from posbuild import records
from posbuild.training.run import run
from tests.training.helpers import tiny


@pytest.mark.parametrize(("scheme", "stable"), [("rope", True), ("longrope", False)])
def test_a_record_says_whether_decoding_gives_what_reading_at_once_gives(corpus, tmp_path, scheme, stable):
    settings = tiny(corpus, pe={"name": scheme}, train={"steps": 2})
    assert run(settings, tmp_path, f"python train.py pe={scheme}", lambda line: None) == "complete"
    assert records.read_record(tmp_path).model["prefix_stable"] is stable
