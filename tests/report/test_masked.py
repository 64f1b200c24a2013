"""What is said of encoders: masked tokens, both sides, and the count model that they have to beat."""

from __future__ import annotations

from typing import Any

import pytest

from posbuild.comparison.compare import compare
from posbuild.guide.answers import count_model
from posbuild.guide.claims import claims
from posbuild.report import answer, figures, page
from tests.comparison.studies import COUNTS, add_run, measured, record
from tests.guide.test_guide import own

BEFORE_AND_AFTER = "a count model that sees the byte before and the byte after"


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
    assert f"above the line of {BEFORE_AND_AFTER} (neighbours) has not learned" in captions["learning"]
    assert "the loss on a masked token changes" in captions["order"]
    told = {verdict.name: verdict.reason for verdict in claims(comparison)}
    assert "instead of 63 on each side" in told["alibi_is_window_attention"]


def test_encoders_that_have_not_learned_are_held_against_their_own_count_model(comparison: dict[str, Any]) -> None:
    assert {run["state"] for run in comparison["runs"]} == {"learned"}
    (budget,) = comparison["budgets"]
    held = comparison | {"runs": [run | {"state": "not learned"} for run in comparison["runs"]]}
    (sentence,) = answer.findings(held, budget)
    assert f"above that of {BEFORE_AND_AFTER}): they show" in sentence
    stuck = {"state": "not learned"}
    held = comparison | {"runs": [run | (stuck if run["label"] == "rope" else {}) for run in comparison["runs"]]}
    assert answer.findings(held, budget)[0].endswith(f"above that of {BEFORE_AND_AFTER}): rope.")
    assert f"above that of {BEFORE_AND_AFTER}" in own(held, "bidirectional_encoder").ruled_out[0]
    text = page.render(held, {1: []})
    assert "neighbours count model" not in text and "trigram" not in text.split('id="words"')[0]
    assert text.count("That model counts in the training documents what stands between the two") == 1
    bpe = budget | {"data": budget["data"] | {"tokenizer": {"file": "bpe.json"}}}
    assert count_model(bpe) == BEFORE_AND_AFTER.replace("byte", "token")
