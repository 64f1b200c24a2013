"""The claims: each is supported by one study, contradicted once one number moves, and undecided with one seed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from posbuild.comparison.compare import compare
from posbuild.guide.claims import CLAIMS, Verdict, claims
from posbuild.records import MEASURED, NOT_FINITE, NOT_MEASURED, NOT_SUPPORTED, Record, Row
from tests.comparison.studies import add_run, measured, record

SCHEMES = ("none", "sinusoidal", "learned", "rope", "alibi")
LOSS = {"none": 1.5, "sinusoidal": 1.33, "learned": 1.30, "rope": 1.295, "alibi": 1.31}  # at the train length of 64

# What a study measures, with the numbers that the claims rest on: all but one are then supported.
NUMBERS: dict[str, float] = {
    **{f"{scheme} loss": loss for scheme, loss in LOSS.items()},
    "none longer": 0.9,  # loss with 1024 tokens of context minus that with 64
    "sinusoidal longer": 1.0,
    "rope longer": 0.0,
    "alibi longer": 0.0,
    "none full": 0.9,  # loss with all 1024 tokens in view minus that with the last 64
    "sinusoidal full": 0.9,
    "rope full": -0.1,
    "alibi full": 0.0,
    "sinusoidal near": -0.85,  # rank correlation of similarity with distance
    "learned near": -0.95,
    "rope near": -0.40,
    "rope speed": 0.95,  # times that without encoding
    "alibi speed": 0.98,
    "table": 64 * 64,  # parameters of the learned table
    "none order": 1e-15,  # reference probes
    "none order by the mask": 1.1,
    "sinusoidal rotation": 8e-15,
    "rope shift": 9e-16,
    "unsigned mirror": 7e-16,
}
FLAT = "flat_loss_uses_context"  # contradicted where ALiBi's loss is flat and equals window attention's

# What each claim rests on, and the value that turns its verdict over.
TURNS = {
    "none_bidirectional_ignores_order": ("none order", 0.2),
    "none_causal_sees_order": ("none order by the mask", 1e-15),
    "sinusoidal_shift_is_rotation": ("sinusoidal rotation", 0.3),
    "near_is_alike": ("rope near", 0.1),
    "learned_is_more_flexible": ("sinusoidal loss", 1.3),
    "learned_table_ends": ("table", 32 * 64),
    "unsigned_relative_is_mirrored": ("unsigned mirror", 0.2),
    "rope_is_relative": ("rope shift", 0.4),
    "rope_extrapolates": ("rope longer", 1.5),
    "alibi_extrapolates": ("alibi longer", 0.05),
    "sinusoidal_degrades": ("sinusoidal longer", 0.0),
    "rope_is_cheap": ("rope speed", 0.7),
    "alibi_is_cheap": ("alibi speed", 0.7),
    "learned_is_good_enough": ("rope loss", 1.25),
    "flat_loss_uses_context": ("alibi full", -0.1),
    "alibi_is_window_attention": ("alibi full", -0.1),
}
OF_ENCODINGS_ALONE = {claim.name for claim in CLAIMS if claim.alone}


def run(scheme: str, seed: int, numbers: dict[str, float], half: float, **options: Any) -> Record:
    """A record that varies a little over seeds, and otherwise than those of the other schemes."""
    moved = 0.01 * seed + 0.0004 * (seed * (1 + SCHEMES.index(scheme)) % 3)
    loss = numbers[f"{scheme} loss"] + moved
    rows = [
        *(measured("loss/whole_windows", loss, length=64, window=0, count=4096),),
        *(measured("loss/fixed_targets", loss, length=64, window=0, count=4096),),
        *(measured("training/loss", value, fraction=fraction) for fraction, value in ((0.5, half), (1.0, 1.3))),
    ]
    if scheme == "learned":
        at = {"length": 1024, "window": 0}
        reason = "not supported beyond 64"
        rows += [
            Row(measure=f"loss/{windows}", at=at, status=NOT_SUPPORTED, reason=reason, unit="nats/token")
            for windows in ("whole_windows", "fixed_targets")
        ]
    else:
        far = loss + numbers[f"{scheme} longer"] + 0.1 * moved
        rows += [
            measured("loss/whole_windows", far, length=1024, window=0, count=4096),
            measured("loss/fixed_targets", far, length=1024, window=0, count=4096),
            measured(
                "loss/fixed_targets", far - numbers[f"{scheme} full"] + 0.1 * moved, length=1024, window=64, count=4096
            ),
        ]
    if f"{scheme} near" in numbers:
        value = numbers[f"{scheme} near"] + (moved if scheme == "learned" else 0.0)
        rows.append(measured("probe/spearman", value, unit="", of="codes", parameters="trained", count=64))
    if f"{scheme} speed" in numbers:
        for what, speed in (("train_speed", 1.0), ("decoding_speed", numbers[f"{scheme} speed"])):
            rows.append(measured("cost/ratio", speed + moved, unit="times none", what=what))
    content = record(scheme, seed, options, found=rows)
    content.model["positional_parameters"] = numbers["table"] if scheme == "learned" else 0
    return content


def reference(scheme: str, measure: str, value: float, **at: Any) -> dict[str, Any]:
    found = {"scheme": scheme, "measure": measure, "at": at, "value": value, "unit": "", "status": MEASURED}
    return found | {"reason": "", "note": ""}


def references(numbers: dict[str, float]) -> list[dict[str, Any]]:
    return [
        reference("none", "probe/order", numbers["none order"], attention="bidirectional", change="characters"),
        reference("none", "probe/order", 1e-15, attention="bidirectional", change="reversal"),
        reference("none", "probe/order", 1.4, attention="causal", change="characters"),
        reference("none", "probe/order", numbers["none order by the mask"], attention="causal", change="reversal"),
        reference("sinusoidal", "probe/linear_map", numbers["sinusoidal rotation"], map="rotation", offset=8),
        reference("sinusoidal", "probe/linear_map", 0.9, map="fitted", offset=8),
        reference("rope", "probe/shift", numbers["rope shift"], offset=32),
        reference("relative unsigned", "probe/order", 0.1, attention="bidirectional", change="characters"),
        reference(
            "relative unsigned", "probe/order", numbers["unsigned mirror"], attention="bidirectional", change="reversal"
        ),
    ]


def study(folder: Path, seeds: Sequence[int] = (0, 1, 2), half: float = 1.5, **moved: float) -> dict[str, Any]:
    """The comparison of a study with the numbers above, but for those that are `moved`."""
    numbers = NUMBERS | {name.replace("_", " "): value for name, value in moved.items()}
    for scheme in SCHEMES:
        for seed in seeds:
            add_run(folder, run(scheme, seed, numbers, half if scheme == "learned" else 1.5))
    return compare([folder]) | {"references": references(numbers)}


def by_name(comparison: dict[str, Any]) -> dict[str, Verdict]:
    return {verdict.name: verdict for verdict in claims(comparison)}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    return by_name(study(tmp_path_factory.mktemp("outputs") / "s"))


def test_names_are_unique_and_every_claim_has_a_sentence_and_a_source() -> None:
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS) == len(TURNS)
    assert all(claim.sentence.endswith(".") and claim.source for claim in CLAIMS)
    assert {claim.name for claim in CLAIMS} == TURNS.keys()


def test_a_claim_on_an_encoding_alone_has_no_budget(found: dict[str, Verdict]) -> None:
    assert {name for name, verdict in found.items() if verdict.budget is None} == OF_ENCODINGS_ALONE
    assert {verdict.budget for verdict in found.values()} == {None, 1}


@pytest.mark.parametrize("name", TURNS)
def test_one_number_turns_the_verdict(name: str, found: dict[str, Verdict], tmp_path: Path) -> None:
    number, value = TURNS[name]
    turned = by_name(study(tmp_path / "s", **{number.replace(" ", "_"): value}))[name]
    before, after = ("contradicted", "supported") if name == FLAT else ("supported", "contradicted")
    assert (found[name].verdict, turned.verdict) == (before, after), (found[name].reason, turned.reason)
    assert found[name].reason != turned.reason


def test_one_seed_decides_nothing_but_what_is_so_in_every_seed(tmp_path: Path) -> None:
    alone = by_name(study(tmp_path / "s", seeds=(0,)))
    decided = {name for name, verdict in alone.items() if verdict.verdict != "undecided"}
    assert decided == OF_ENCODINGS_ALONE | {"learned_table_ends"}
    told = {verdict.reason for name, verdict in alone.items() if name not in decided}
    assert all(reason.endswith("an indication from one seed") for reason in told)


def test_what_is_absent_is_not_measured(tmp_path: Path) -> None:
    add_run(tmp_path / "s", record("t5", found=[measured("loss/whole_windows", 1.3, length=64, window=0)]))
    verdicts = claims(compare([tmp_path / "s"]) | {"references": []})
    assert {verdict.verdict for verdict in verdicts} == {"not measured"}
    assert len(verdicts) == len(CLAIMS)
    assert all(verdict.reason for verdict in verdicts)


def test_a_comparison_made_before_references_were_recorded_reads_as_not_measured(tmp_path: Path) -> None:
    comparison = study(tmp_path / "s", seeds=(0,))
    del comparison["references"]
    verdicts = by_name(comparison)
    assert {verdicts[name].verdict for name in OF_ENCODINGS_ALONE} == {"not measured"}


def test_a_reference_without_a_number_gives_its_reason(tmp_path: Path) -> None:
    comparison = study(tmp_path / "s", seeds=(0,))
    lost = {"value": None, "status": NOT_FINITE, "reason": "the value is nan"}
    comparison["references"] = [row | lost if row["scheme"] == "rope" else row for row in comparison["references"]]
    verdict = by_name(comparison)["rope_is_relative"]
    assert (verdict.verdict, verdict.reason) == (NOT_MEASURED, "the value is nan")


def test_the_numbers_are_told(found: dict[str, Verdict]) -> None:
    assert (
        found["rope_is_relative"].reason
        == "a shift of all positions changes the outputs by at most 9e−16 times the largest output"
    )
    assert found["sinusoidal_degrades"].reason.startswith("sinusoidal: loss +1.001 ± 0.00")
    assert found["sinusoidal_degrades"].reason.endswith(" nats/token with 1024 tokens of context instead of 64")
    assert found["near_is_alike"].reason == ("rope: rank correlation of similarity with distance −0.40; the worst of 3")
    assert found["learned_table_ends"].reason == (
        "learned: a table of 64 vectors; a loss up to 64 tokens, none at 1024"
    )


def test_a_rise_inside_the_margin_is_none(tmp_path: Path) -> None:
    verdicts = by_name(study(tmp_path / "s", alibi_longer=0.01))
    assert verdicts["alibi_extrapolates"].verdict == "supported"
    assert by_name(study(tmp_path / "t", sinusoidal_longer=0.01))["sinusoidal_degrades"].verdict == "contradicted"


def test_an_interval_across_the_margin_is_undecided(tmp_path: Path) -> None:
    verdicts = by_name(study(tmp_path / "s", alibi_longer=0.0185))
    assert verdicts["alibi_extrapolates"].verdict == "undecided"
    assert "one seed" not in verdicts["alibi_extrapolates"].reason


def test_a_pair_that_still_learns_is_undecided_for_that_reason(tmp_path: Path) -> None:
    verdicts = by_name(study(tmp_path / "s", half=1.9))
    for name in ("learned_is_more_flexible", "learned_is_good_enough"):
        assert verdicts[name].verdict == "undecided"
        assert verdicts[name].reason.endswith(
            "still learning: the gap moved by 0.400 nats/token over the last half of the budget"
        )


def test_a_run_that_has_not_learned_says_nothing_of_length(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        content = run("rope", seed, NUMBERS, 1.5)
        content.rows = [row for row in content.rows if row.measure != "training/loss"]
        add_run(tmp_path / "s", content)
        content.rows.append(measured("training/loss", 2.43, fraction=1.0))
        add_run(tmp_path / "t", content)
    assert by_name(compare([tmp_path / "s"]))["rope_extrapolates"].verdict == "supported"
    verdict = by_name(compare([tmp_path / "t"]))["rope_extrapolates"]
    assert (verdict.verdict, verdict.reason) == ("undecided", "a run of rope has not learned")


def test_a_scheme_that_has_not_learned_does_not_keep_another_from_being_good_enough(tmp_path: Path) -> None:
    for scheme, end in (("learned", 1.3), ("rope", 1.3), ("none", 2.43)):
        for seed in (0, 1, 2):
            content = run(scheme, seed, NUMBERS, 1.5)
            content.rows = [row for row in content.rows if row.at != {"fraction": 1.0}]
            add_run(tmp_path / "s", content)
            content.rows.append(measured("training/loss", end, fraction=1.0))
            add_run(tmp_path / "t", content)
    verdict = by_name(compare([tmp_path / "t"]))["learned_is_good_enough"]
    assert verdict.verdict == "supported"
    assert verdict.reason.startswith("loss of learned minus that of rope: +0.00")
    verdict = by_name(compare([tmp_path / "s"]))["learned_is_good_enough"]
    assert (verdict.verdict, "may still move" in verdict.reason) == ("undecided", True)


def test_the_only_variant_of_a_scheme_stands_for_it_and_the_one_with_its_defaults_before_all(tmp_path: Path) -> None:
    variant = {seed: run("rope", seed, NUMBERS | {"rope longer": 1.5}, 1.5, base=500000.0) for seed in (0, 1, 2)}
    for seed, content in variant.items():
        add_run(tmp_path / "s", content, f"variant_{seed}")
    verdict = by_name(compare([tmp_path / "s"]))["rope_extrapolates"]
    assert verdict.verdict == "contradicted"
    assert verdict.reason.startswith("rope base=500000: loss +1.5")
    add_run(tmp_path / "s", run("rope", 0, NUMBERS, 1.5, base=1000.0), "another")
    assert (
        by_name(compare([tmp_path / "s"]))["rope_extrapolates"].reason
        == "several variants of rope, none with its defaults"
    )
    for seed in variant:
        add_run(tmp_path / "s", run("rope", seed, NUMBERS, 1.5), f"default_{seed}")
    assert by_name(compare([tmp_path / "s"]))["rope_extrapolates"].verdict == "supported"


def test_long_windows_are_not_short(tmp_path: Path) -> None:
    comparison = study(tmp_path / "s")
    comparison["budgets"][0]["train_length"] = 1024
    verdict = by_name(comparison)["learned_is_good_enough"]
    assert (verdict.verdict, verdict.reason) == (NOT_MEASURED, "a train length of 1024 tokens is not short (up to 512)")


def test_each_budget_has_its_own_verdict(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        add_run(tmp_path / "s", run("rope", seed, NUMBERS, 1.5), f"a_{seed}")
        content = run("rope", seed, NUMBERS | {"rope longer": 1.5}, 1.5)
        content.settings["train"]["steps"] = 1600
        add_run(tmp_path / "s", content, f"b_{seed}")
    verdicts = claims(compare([tmp_path / "s"]))
    assert [(each.budget, each.verdict) for each in verdicts if each.name == "rope_extrapolates"] == [
        (1, "supported"),
        (2, "contradicted"),
    ]
    assert [each.budget for each in verdicts if each.name == "rope_is_relative"] == [None]


def test_claims_are_read_without_the_heavy_libraries() -> None:
    code = "import sys, posbuild.guide.claims; sys.exit(bool({'torch', 'scipy', 'matplotlib'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
