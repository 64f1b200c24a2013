"""What is said of encoders: masked tokens, both sides, and the count model that they have to beat."""

from __future__ import annotations

from typing import Any

import pytest

from posbuild.comparison.compare import compare
from posbuild.guide.claims import claims
from posbuild.report import answer, figures, page
from tests.comparison.studies import COUNTS, add_run, measured, record


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("outputs") / "encoders"
    for scheme in ("alibi", "rope"):
        for seed in (0, 1):
            content = record(scheme, seed)
            content.settings["objective"]["name"], content.settings["model"]["causal"] = "masked", False
            content.rows += [
                measured("loss/pseudo", 0.9, length=64, window=0, count=512),
                measured("accuracy/whole_windows", 0.7, unit="share", length=64, window=0, count=2560),
                measured("accuracy/fixed_targets", 0.75, unit="share", length=64, window=0, count=2560),
            ]
            add_run(folder, content)
    return compare([folder])


def test_the_page_speaks_of_masked_tokens(comparison: dict[str, Any]) -> None:
    text = page.render(comparison, {1: []})
    assert "bidirectional" in text and "15% of each window masked" in text
    assert f"unigram {COUNTS['unigram']:.3f} and neighbours {COUNTS['neighbours']:.3f}" in text
    assert f"A run that ends above {COUNTS['neighbours']:.3f} has not learned." in text
    assert "Loss at N: mean over all masked tokens of windows of N tokens." in text
    assert "logarithm of pseudo-perplexity, length 64" in text
    assert "accuracy, whole windows, length 64 (share)" in text and "0.700" in text
    assert "Other measures" not in text
    assert "attention cut to 63 tokens on each side (dashed)" in text
    assert "the last 64 tokens" not in text and "trigram" not in text.split('id="methods"')[1]
    for said in ("15% of them masked", "nats per masked token", "each masked alone", "A token is a byte."):
        assert said in text


def test_what_is_in_view_is_on_both_sides(comparison: dict[str, Any]) -> None:
    (budget,) = comparison["budgets"]
    sentences = " ".join(answer.findings(comparison, budget))
    assert "of context in view instead of 63 tokens on each side, the loss" in sentences
    captions = {name: describe(comparison, budget).caption for name, _, describe in figures.FIGURES}
    assert "Dashed: attention cut to 63 tokens on each side." in captions["length_curve"]
    assert captions["length_curve"].startswith("Mean loss of all masked tokens of windows")
    assert "above the neighbours line" in captions["learning"]
    assert "the loss on a masked token changes" in captions["order"]
    told = {verdict.name: verdict.reason for verdict in claims(comparison)}
    assert "instead of 63 on each side" in told["alibi_is_window_attention"]


def test_encoders_that_have_not_learned_are_held_against_their_own_count_model(comparison: dict[str, Any]) -> None:
    assert {run["state"] for run in comparison["runs"]} == {"learned"}
    (budget,) = comparison["budgets"]
    held = comparison | {"runs": [run | {"state": "not learned"} for run in comparison["runs"]]}
    (sentence,) = answer.findings(held, budget)
    assert "above that of a neighbours count model" in sentence
