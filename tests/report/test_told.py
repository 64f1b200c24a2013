"""The guide's answers and the claims as records: what they say is what the guide and the claims say."""

from __future__ import annotations

from pathlib import Path

from posbuild.guide import guide, published
from posbuild.guide.answers import NO_PICK
from posbuild.guide.claims import claims
from posbuild.report.told import told
from tests.guide.fixtures import study


def test_each_scenario_has_both_answers_and_the_next_study() -> None:
    comparison = study()
    found = {each["scenario"]: each for each in told(comparison, Path("outputs/fixture"))["guide"]}
    for advice in guide.advice(comparison, study=Path("outputs/fixture")):
        row = found.pop(advice.scenario.name)
        assert advice.measured is not None
        assert row["published"] == (advice.published.pick or NO_PICK)
        assert row["measured"] == (advice.measured.pick or NO_PICK)
        assert row["measured_reason"] == advice.measured.reason and row["scope"] == advice.measured.scope
        assert row["confidence"] == advice.measured.confidence and row["next_study"] == advice.command
        for place in filter(None, row["published_rows"].split("; ")):  # each is a table with columns that it has
            table, _, columns = place.partition(": ")
            assert set(columns.split(", ")) <= {str(column) for column in published.table(table).columns}
            assert published.table(table).citation in " ".join(advice.published.numbers)
        assert bool(row["published_rows"]) or row["published"] == NO_PICK
    assert not found


def test_each_claim_has_its_verdict_and_numbers() -> None:
    comparison = study()
    rows = told(comparison, Path("s"))["claims"]
    assert [(row["claim"], row["verdict"], row["numbers"], row["source"]) for row in rows] == [
        (each.sentence, each.verdict, each.reason, each.source) for each in claims(comparison)
    ]
