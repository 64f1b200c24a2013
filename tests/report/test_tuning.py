"""Tuning in the terminal, in Markdown and on the page: the same tables and sentences."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from posbuild import records
from posbuild.comparison.compare import compare
from posbuild.report import page, tables, tuning
from tests.comparison.test_tuning import GOOD, results
from tests.comparison.tunings import trial, tried
from tests.report.test_report import Page, markdown_tables


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Three schemes over four rates; rope passes alibi at its best, and a rate of t5 diverged."""
    study = tmp_path_factory.mktemp("outputs") / "tune"
    tried(study, "alibi", GOOD | {3e-2: 1.37})
    tried(study, "rope", GOOD | {3e-3: 1.45, 1e-2: 1.30})
    tried(study, "t5", GOOD | {3e-2: None})
    return compare([study])


def shown(comparison: dict[str, Any]) -> str:
    stream = io.StringIO()
    tables.print_comparison(comparison, None, Console(file=stream, color_system=None, highlight=False))
    return stream.getvalue()


def test_losses_by_rate_and_multiplier_and_the_best_of_each(tuned: dict[str, Any]) -> None:
    (section,) = tuning.sections(tuned)
    by_rate, by_multiplier, best = (grid for _, grid in section.tables)
    ((_, pairs),) = section.pairs
    assert by_rate.header == ["scheme", "multiplier", "rate 0.001", "rate 0.003", "rate 0.01", "rate 0.03"]
    assert by_rate.rows[2] == ["t5", "30", "1.500", "1.400", "1.380", "diverged"]
    assert by_multiplier.header == ["scheme", "rate", "× 1", "× 3", "× 10", "× 30", "× 100"]
    assert by_multiplier.rows == [["t5", "0.01", "1.390", "1.390", "1.390", "1.380", "1.390"]]
    assert best.rows == [
        ["alibi", "0.03", "–", "1.370", "1.400", "−0.030"],
        ["rope", "0.01", "–", "1.300", "1.450", "−0.150"],
        ["t5", "0.01", "30", "1.380", "1.400", "−0.020"],
    ]
    assert pairs.rows[0] == ["alibi and rope", "indication (−0.050)", "indication (+0.070)", "flips"]
    assert section.sentences[0] == (
        "Trials a scheme: 4 for alibi and rope; 8 for t5. The lowest of more trials is lower by chance, too."
    )
    assert section.sentences[1] == (
        "On the validation documents the outcome of 2 of 3 pairs flips between the shared rate and each scheme's best, another "
        "scheme being ahead: alibi against rope is indication (−0.050), then indication (+0.070); rope against t5 is "
        "indication (+0.050), then indication (−0.080)."
    )
    assert "validation documents with tuning seed 0" in section.scope


def test_terminal_markdown_and_page_say_the_same(tuned: dict[str, Any]) -> None:
    (section,) = tuning.sections(tuned)
    text, markdown, html = shown(tuned), tables.as_markdown(tuned), page.render(tuned, {})
    seen = Page(html)
    assert seen.open == []
    for sentence in section.sentences:
        assert sentence in text and sentence in html.replace("&#39;", "'")
    for _, grid in section.tables:
        assert [grid.header, *grid.rows] in markdown_tables(markdown)
        assert all(cell in seen.cells and cell in text for row in grid.rows for cell in row)
    note = "The best rate of alibi, 0.03, lies at the edge of the grid: widen it with optim.lr=0.09 in the same study."
    assert all(note in each for each in (text, html)) and "Nothing was measured" not in text + html
    assert "16 of 16 runs in the comparison" in html and "Not in the comparison" not in html
    assert "<dt>indication</dt>" in html


def test_a_pair_of_which_nothing_changes(tmp_path: Path) -> None:
    for scheme in ("alibi", "rope"):
        tried(tmp_path / "s", scheme, GOOD)
    (section,) = tuning.sections(compare([tmp_path / "s"]))
    told = "On the validation documents the outcome of none of 1 pair differs between the shared rate and each scheme's best."
    assert section.sentences == [told]


def test_a_run_that_failed_stands_among_those_that_are_not_in_the_comparison(tmp_path: Path) -> None:
    tried(tmp_path / "s", "rope", GOOD)
    trial(tmp_path / "s", "alibi", 1e-3, None, status=records.FAILED)
    grid = tables.failures(compare([tmp_path / "s"]))
    assert [row[0] for row in grid.rows] == ["failed"]


def test_results_at_both_stand_side_by_side(tmp_path: Path) -> None:
    comparison = results(tmp_path / "s")
    (section,) = tuning.sections(comparison)
    ((_, losses),) = section.tables
    near, far = (grid for _, grid in section.pairs)
    header = ["scheme", "rate", "multiplier", "at 64, shared", "at 64, best", "at 1024, shared", "at 1024, best"]
    assert losses.header == header
    assert losses.rows[1][:3] == ["rope", "0.01", "–"]
    assert [cell.partition(" ")[0] for cell in losses.rows[1][3:5]] == ["1.404", "1.204"]
    assert losses.rows[0][3] == losses.rows[0][4]
    assert near.rows == [["alibi and rope", "better (−0.102)", "worse (+0.098)", "flips"]]
    assert far.rows[0][3] == ""
    assert section.sentences == [
        "At 64 tokens the outcome of 1 of 1 pair flips between the shared rate and each scheme's best, another scheme being "
        "ahead: alibi against rope is better (−0.102), then worse (+0.098).",
        "At 1024 tokens the outcome of none of 1 pair differs between the shared rate and each scheme's best.",
    ]
    text = shown(comparison)
    assert all(sentence in text for sentence in section.sentences)


def test_other_studies_have_no_such_section(tmp_path: Path) -> None:
    from tests.comparison.studies import starter

    assert tuning.sections(compare([starter(tmp_path / "s", seeds=(0,), schemes=("alibi", "rope"))])) == []


def test_pairs_without_an_outcome_are_not_counted(tmp_path: Path) -> None:
    tried(tmp_path / "s", "alibi", GOOD)
    tried(tmp_path / "s", "rope", dict.fromkeys(GOOD, 2.4))  # not learned
    (section,) = tuning.sections(compare([tmp_path / "s"]))
    told = "On the validation documents no pair has an outcome both at the shared rate and at each scheme's best."
    assert section.sentences == [told]


def test_the_page_does_not_call_runs_that_tried_rates_absent(tuned: dict[str, Any]) -> None:
    text = page.render(tuned, {})
    opening = text[text.index("<h1>") : text.index("<nav")]
    assert "runs in the comparison" in opening and "are not in the comparison" not in opening
