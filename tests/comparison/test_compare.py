import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from posbuild import records
from posbuild.comparison.compare import compare, write
from posbuild.comparison.runs import label
from posbuild.errors import ConfigError, RunError
from posbuild.records import Row
from tests.comparison.studies import COUNTS, add_run, groups, measured, plan, record, rows, settings, starter


def run_with(
    scheme: str,
    seed: int,
    loss: float,
    *,
    beyond: float | None = None,
    half: float = 1.5,
    end: float = 1.3,
    fall: float = 0.03,
    more: tuple[Row, ...] = (),
    **extra: Any,
) -> records.Record:
    """A record with a loss at the train length (and at 1024), and a validation loss at half and all of the budget."""
    rows = [
        measured("loss/whole_windows", loss, documents=True, length=64, window=0),
        measured("training/loss", half, fraction=0.5),
        measured("training/loss", end, fraction=1.0),
        measured("training/slope", fall),
        *more,
    ]
    if beyond is not None:
        rows.append(measured("loss/whole_windows", beyond, documents=True, length=1024, window=0))
    return record(scheme, seed, found=rows, **extra)


def study_of(folder: Path, *contents: records.Record) -> Path:
    for content in contents:
        add_run(folder, content)
    return folder


def summary(comparison: dict, label: str, measure: str, **at: Any) -> dict:
    (found,) = [e for e in comparison["summary"] if (e["label"], e["measure"], e["at"]) == (label, measure, at)]
    return found


def outcome(comparison: dict, first: str, second: str, measure: str = "loss/whole_windows", **at: Any) -> dict:
    (found,) = [
        o for o in comparison["outcomes"] if (o["pair"], o["measure"], o["at"]) == ([first, second], measure, at)
    ]
    return found


def by_folder(comparison: dict) -> dict[str, dict]:
    return {run["folder"]: run for run in comparison["runs"]}


AT = {"length": 64, "window": 0}
FAR = {"length": 1024, "window": 0}


def test_means_over_seeds_with_student_intervals(tmp_path: Path) -> None:
    comparison = compare(
        [study_of(tmp_path / "s", *(run_with("rope", seed, loss) for seed, loss in enumerate((1.0, 2.0, 3.0))))]
    )
    entry = summary(comparison, "rope", "loss/whole_windows", **AT)
    assert (entry["n"], entry["mean"], entry["count"], entry["unit"]) == (3, 2.0, 16384, "nats/token")
    assert entry["half_width"] == pytest.approx(2.484138, abs=1e-6)


def test_one_seed_has_a_mean_and_no_interval(tmp_path: Path) -> None:
    comparison = compare([study_of(tmp_path / "s", run_with("rope", 0, 1.3), run_with("alibi", 0, 1.2))])
    assert summary(comparison, "rope", "loss/whole_windows", **AT)["half_width"] is None
    found = outcome(comparison, "alibi", "rope", **AT)
    assert found["outcome"] == "indication"
    assert found["interval"] is None
    assert found["difference"] == pytest.approx(-0.1)


@pytest.mark.parametrize(
    ("alibi", "rope", "expected"),
    [
        ((1.20, 1.21, 1.22), (1.30, 1.31, 1.32), "better"),  # alibi's loss is lower by the same in each seed
        ((1.30, 1.31, 1.32), (1.20, 1.21, 1.22), "worse"),
        ((1.30, 1.31, 1.32), (1.301, 1.309, 1.3205), "equivalent"),
        ((1.30, 1.35, 1.20), (1.32, 1.31, 1.25), "undecided"),
    ],
)
def test_outcomes_of_paired_seeds(tmp_path: Path, alibi: tuple, rope: tuple, expected: str) -> None:
    runs = [
        run_with(scheme, seed, loss)
        for scheme, losses in (("alibi", alibi), ("rope", rope))
        for seed, loss in enumerate(losses)
    ]
    found = outcome(compare([study_of(tmp_path / "s", *runs)]), "alibi", "rope", **AT)
    assert found["outcome"] == expected
    assert found["seeds"] == [0, 1, 2]
    assert (found["seeds_needed"] is not None) == (expected == "undecided")


def three_schemes(folder: Path, third: float, **extra: Any) -> dict:
    """alibi and rope differ by 0.05 to 0.056, which two seeds tell (p 0.036) and no more; t5 lies below both."""
    losses = {"alibi": (1.200, 1.300), "rope": (1.250, 1.356), "t5": (third, 1.0)}
    runs = [
        run_with(scheme, seed, loss, **(extra if scheme == "t5" else {}))
        for scheme, by_seed in losses.items()
        for seed, loss in enumerate(by_seed)
    ]
    return compare([study_of(folder, *runs)])


def test_outcomes_are_corrected_for_all_pairs_at_their_place(tmp_path: Path) -> None:
    alone = compare(
        [
            study_of(
                tmp_path / "pair",
                *(run_with("alibi", seed, loss) for seed, loss in enumerate((1.200, 1.300))),
                *(run_with("rope", seed, loss) for seed, loss in enumerate((1.250, 1.356))),
            )
        ]
    )
    found = outcome(alone, "alibi", "rope", **AT)
    p = 1 - 2 / math.pi * math.atan(0.053 / 0.003)
    assert (found["outcome"], found["p_difference"]) == ("better", pytest.approx(p))
    among = outcome(three_schemes(tmp_path / "three", third=0.5), "alibi", "rope", **AT)
    assert (among["outcome"], among["p_difference"]) == ("undecided", pytest.approx(3 * p))
    assert among["interval"] == pytest.approx(found["interval"])  # intervals stand for themselves
    assert among["seeds_needed"] == 3


def test_pairs_that_are_held_back_are_corrected_for_too(tmp_path: Path) -> None:
    comparison = three_schemes(tmp_path / "s", third=0.5, end=2.43, fall=0.001)
    assert outcome(comparison, "alibi", "t5", **AT)["outcome"] == "not learned"
    assert outcome(comparison, "alibi", "rope", **AT)["outcome"] == "undecided"


def test_pairs_elsewhere_are_a_family_of_their_own(tmp_path: Path) -> None:
    runs = [
        run_with(scheme, seed, loss + 0.001 * seed, beyond=loss)
        for scheme, loss in (("alibi", 1.2), ("rope", 1.3))
        for seed in (0, 1)
    ]
    comparison = compare([study_of(tmp_path / "s", *runs)])
    for at in (AT, FAR):
        assert outcome(comparison, "alibi", "rope", **at)["p_difference"] == pytest.approx(0, abs=1e-12)


def test_seeds_that_differ_more_than_the_schemes_hide_nothing(tmp_path: Path) -> None:
    # Over these seeds losses spread by 0.4 and paired differences by 0.001: an unpaired test would see nothing.
    runs = [
        run_with(scheme, seed, base + ahead + 0.001 * seed * ahead)
        for scheme, ahead in (("alibi", 0.0), ("rope", 0.05))
        for seed, base in enumerate((1.0, 1.4, 1.8))
    ]
    found = outcome(compare([study_of(tmp_path / "s", *runs)]), "alibi", "rope", **AT)
    assert (found["outcome"], found["difference"]) == ("better", pytest.approx(-0.05005))


def test_more_recall_is_better(tmp_path: Path) -> None:
    runs = [
        run_with(scheme, seed, 1.3, more=(measured("recall/gain", gain + 0.001 * seed, distance=32, count=64),))
        for scheme, gain in (("alibi", 0.05), ("t5", 0.25))
        for seed in (0, 1, 2)
    ]
    assert (
        outcome(compare([study_of(tmp_path / "s", *runs)]), "alibi", "t5", "recall/gain", distance=32)["outcome"]
        == "worse"
    )


def test_only_common_seeds_are_paired(tmp_path: Path) -> None:
    runs = [run_with("alibi", 0, 1.2), run_with("alibi", 1, 1.21), run_with("rope", 1, 1.3), run_with("rope", 2, 9.0)]
    found = outcome(compare([study_of(tmp_path / "s", *runs)]), "alibi", "rope", **AT)
    assert found["seeds"] == [1]
    assert found["difference"] == pytest.approx(-0.09)
    assert found["outcome"] == "indication"


def test_no_common_seed_gives_no_difference(tmp_path: Path) -> None:
    found = outcome(
        compare([study_of(tmp_path / "s", run_with("alibi", 0, 1.2), run_with("rope", 1, 1.3))]), "alibi", "rope", **AT
    )
    assert (found["outcome"], found["difference"]) == ("not measured", None)
    assert "no seed in common" in found["reason"]


def test_documents_are_redrawn_in_pairs(tmp_path: Path) -> None:
    # Documents differ by far more than the schemes, and by the same for both: the paired interval sees only the schemes.
    runs = [
        run_with(scheme, seed, loss + 0.01 * seed)
        for scheme, loss in (("alibi", 1.3), ("rope", 1.4))
        for seed in (0, 1)
    ]
    low, high = outcome(compare([study_of(tmp_path / "s", *runs)]), "alibi", "rope", **AT)["documents_interval"]
    assert low == pytest.approx(-0.1, abs=1e-9)
    assert high == pytest.approx(-0.1, abs=1e-9)


def test_not_supported_is_a_word_and_never_a_number(tmp_path: Path) -> None:
    comparison = compare([starter(tmp_path / "s", schemes=("learned", "alibi"))])
    entry = summary(comparison, "learned", "loss/whole_windows", **FAR)
    assert (entry["mean"], entry["status"], entry["reason"]) == (None, "not supported", "not supported beyond 64")
    found = outcome(comparison, "alibi", "learned", **FAR)
    assert (found["outcome"], found["difference"]) == ("not supported", None)


def test_every_planned_job_has_a_status_and_a_reason(tmp_path: Path) -> None:
    study = study_of(tmp_path / "s", record("alibi"))
    jobs = [("alibi_s0_0badcafe", "alibi", 0)]
    endings: dict[str, dict[str, Any]] = {
        "rope_s0_1": {"status": "failed", "reason": "OSError: No space left on device"},
        "rope_s1_2": {"status": "diverged", "reason": "loss is nan at step 7"},
        "rope_s2_3": {"status": "refused", "reason": "pe.base=0 is out of range"},
        "rope_s3_4": {"status": "running", "reason": "", "pid": dead_process()},
        "rope_s4_5": {"status": "running", "reason": "", "pid": os.getpid()},
    }
    for seed, (folder, content) in enumerate(endings.items()):
        (study / folder).mkdir()
        records.write_json(study / folder / "status.json", {"schema": 1, "pid": 1, **content})
        jobs.append((folder, "rope", seed))
    plan(study, [*jobs, ("t5_s0_6", "t5", 0)])
    runs = by_folder(compare([study]))
    assert {folder: run["status"] for folder, run in runs.items()} == {
        "alibi_s0_0badcafe": "complete",
        "rope_s0_1": "failed",
        "rope_s1_2": "diverged",
        "rope_s2_3": "refused",
        "rope_s3_4": "died",
        "rope_s4_5": "running",
        "t5_s0_6": "not started",
    }
    assert runs["rope_s0_1"]["reason"] == "OSError: No space left on device"
    assert runs["rope_s3_4"]["reason"]
    assert (runs["t5_s0_6"]["scheme"], runs["t5_s0_6"]["seed"], runs["t5_s0_6"]["budget"]) == ("t5", 0, None)


def test_jobs_may_lie_deeper_or_elsewhere(tmp_path: Path) -> None:
    add_run(tmp_path / "s" / "deep", record("alibi"), "a")
    plan(tmp_path / "s", [("deep/a", "alibi", 0), ("../elsewhere/b", "rope", 3)])
    runs = by_folder(compare([tmp_path / "s"]))
    assert (runs["deep/a"]["status"], runs["deep/a"]["budget"]) == ("complete", 1)
    assert (runs["elsewhere/b"]["status"], runs["elsewhere/b"]["seed"]) == ("not started", 3)


def test_a_planned_run_has_the_label_that_it_would_have_when_finished(tmp_path: Path) -> None:
    plan(tmp_path / "s", [("a", "rope", 0), ("b", "rope", 0), ("c", "rope", 0)])
    content = json.loads((tmp_path / "s" / "study.json").read_text(encoding="utf-8"))
    content["jobs"][0]["label"] = "rope base=500000"
    records.write_json(tmp_path / "s" / "study.json", content)
    (tmp_path / "s" / "b").mkdir()
    records.write_status(tmp_path / "s" / "b", records.FAILED, "no space")
    records.write_json(tmp_path / "s" / "b" / "settings.json", settings("rope", pe={"fraction": 0.5}))
    labels = {folder: run["label"] for folder, run in by_folder(compare([tmp_path / "s"])).items()}
    assert labels == {"a": "rope base=500000", "b": "rope fraction=0.5", "c": "rope"}


def test_lengths_of_a_budget_are_those_of_all_its_runs(tmp_path: Path) -> None:
    study = starter(tmp_path / "s", seeds=(0,), schemes=("learned", "alibi"))
    more = record("t5")
    more.rows.append(measured("loss/whole_windows", 1.3, length=2048, window=0))
    add_run(study, more)
    (budget,) = compare([study])["budgets"]
    assert budget["lengths"] == [64, 128, 256, 512, 1024]


def test_a_run_given_alone_is_known_from_its_study(tmp_path: Path) -> None:
    plan(tmp_path / "s", [("broken", "rope", 3)])
    (tmp_path / "s" / "broken").mkdir()
    records.write_status(tmp_path / "s" / "broken", records.FAILED, "no space")
    (run,) = compare([tmp_path / "s" / "broken"])["runs"]
    assert (run["scheme"], run["seed"], run["reason"]) == ("rope", 3, "no space")


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_study_without_a_finished_run_is_compared_too(tmp_path: Path) -> None:
    plan(tmp_path / "s", [("rope_s0_1", "rope", 0)])
    comparison = compare([tmp_path / "s"])
    assert (comparison["budgets"], comparison["summary"], comparison["outcomes"]) == ([], [], [])
    assert comparison["labels"] == {"rope": "rope"}


def test_a_broken_record_costs_its_own_run_only(tmp_path: Path) -> None:
    study = study_of(tmp_path / "s", record("alibi"), record("rope"))
    (study / "rope_s0_0badcafe" / "record.json").write_text('{"schema": 1, "rows": [{"measure": 3')
    (study / "newer").mkdir()
    records.write_json(study / "newer" / "status.json", {"schema": records.SCHEMA + 1})
    runs = by_folder(compare([study]))
    assert runs["alibi_s0_0badcafe"]["budget"] == 1
    assert (runs["rope_s0_0badcafe"]["status"], runs["newer"]["status"]) == ("failed", "failed")
    assert "record.json" in runs["rope_s0_0badcafe"]["reason"]
    assert "newer posbuild" in runs["newer"]["reason"]


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir()])
def test_a_folder_without_runs_is_refused(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "empty")
    with pytest.raises(ConfigError, match=r"empty.*status\.json or record\.json"):
        compare([tmp_path / "empty"])


def test_a_broken_plan_is_said(tmp_path: Path) -> None:
    study = study_of(tmp_path / "s", record("alibi"))
    (study / "study.json").write_text("{")
    with pytest.raises(RunError, match=r"study\.json"):
        compare([study])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("train.steps", {"train": {"steps": 1600}}),
        ("train.length", {"train": {"length": 128}}),
        ("model.d_model", {"model": {"d_model": 128}}),
        ("optim.lr", {"optim": {"lr": 0.001}}),
        ("data.sha256", {"sha256": "ff" * 32}),
        ("precision", {"precision": "bf16-mixed"}),
        ("objective", {"objective": {"name": "masked"}}),
    ],
)
def test_different_budgets_are_never_compared(tmp_path: Path, name: str, change: dict[str, Any]) -> None:
    other = run_with("rope", 0, 1.1)
    for section, values in change.items():
        if section == "sha256":
            other.data["sha256"] = values
        elif section == "precision":
            other.environment["precision"] = values
        else:
            other.settings[section] |= values
    comparison = compare([study_of(tmp_path / "s", run_with("alibi", 0, 1.2), other)])
    assert len(comparison["budgets"]) == 2
    assert comparison["outcomes"] == []
    assert any("2 different budgets" in note for note in comparison["notes"])
    assert any(f"differs from budget 1 in {name} (" in note for note in comparison["notes"])


def test_objectives_are_named_with_the_shares_that_are_not_the_usual(tmp_path: Path) -> None:
    contents = [run_with(scheme, 0, 1.2) for scheme in ("alibi", "rope", "t5", "learned")]
    del contents[1].settings["objective"]  # of before there was a choice
    contents[2].settings["objective"]["name"] = "masked"
    contents[3].settings["objective"] |= {"name": "masked", "mask_prob": 0.3}
    comparison = compare([study_of(tmp_path / "s", *contents)])
    assert sorted(budget["objective"] for budget in comparison["budgets"]) == [
        "masked",
        "masked mask_prob=0.3",
        "next_token",
    ]
    (pair,) = {tuple(each["pair"]) for each in comparison["outcomes"]}
    assert pair == ("alibi", "rope")
    scopes = {budget["objective"]: budget["scope"] for budget in comparison["budgets"]}
    assert "tokens per parameter, 30% of each window masked) in windows" in scopes["masked mask_prob=0.3"]
    assert "masked" not in scopes["next_token"]


def test_settings_that_decide_nothing_are_no_budget(tmp_path: Path) -> None:
    other = run_with("rope", 0, 1.1)
    other.settings["train"] |= {"log_every": 7, "checkpoint_every": 9, "workers": 2}
    other.settings["model"] |= {"name": "mine", "allow_orderless": True}
    other.settings["data"]["path"] = "elsewhere"
    assert len(compare([study_of(tmp_path / "s", run_with("alibi", 0, 1.2), other)])["budgets"]) == 1


def test_runs_that_scored_different_tokens_are_not_compared(tmp_path: Path) -> None:
    short = run_with("rope", 0, 1.1)
    short.rows[0] = Row(
        measure="loss/whole_windows", at=AT, value=1.1, unit="nats/token", count=8192, groups=groups(1.1, 2048)
    )
    comparison = compare([study_of(tmp_path / "s", run_with("alibi", 0, 1.2), short)])
    found = outcome(comparison, "alibi", "rope", **AT)
    assert (found["outcome"], found["difference"], found["reason"]) == (
        "not measured",
        None,
        "different tokens were scored",
    )
    assert any("scored different tokens" in note and "length 64" in note for note in comparison["notes"])


def test_as_many_tokens_of_other_places_are_other_tokens(tmp_path: Path) -> None:
    runs = [run_with("alibi", 0, 1.2), run_with("rope", 0, 1.1), run_with("t5", 0, 1.0)]
    for run, draw in zip(runs, ("a1", "b2", "a1"), strict=True):
        run.rows[0] = dataclasses.replace(run.rows[0], draw=draw)
    comparison = compare([study_of(tmp_path / "s", *runs)])
    assert outcome(comparison, "alibi", "rope", **AT)["reason"] == "different tokens were scored"
    assert outcome(comparison, "alibi", "rope", **AT)["difference"] is None
    assert outcome(comparison, "alibi", "t5", **AT)["difference"] == pytest.approx(0.2)
    assert any("scored different tokens" in note and "length 64" in note for note in comparison["notes"])


def test_a_seed_that_is_not_finite_is_not_left_out_of_a_mean(tmp_path: Path) -> None:
    runs = [
        run_with(scheme, seed, loss, beyond=1.3) for scheme, loss in (("alibi", 1.2), ("rope", 1.1)) for seed in (0, 1)
    ]
    runs[3].rows[0] = Row(
        measure="loss/whole_windows",
        at=AT,
        unit="nats/token",
        status=records.NOT_FINITE,
        reason="3 of 16384 values are not finite",
    )
    comparison = compare([study_of(tmp_path / "s", *runs)])
    entry = summary(comparison, "rope", "loss/whole_windows", **AT)
    assert (entry["status"], entry["mean"], entry["half_width"]) == ("not finite", None, None)
    assert entry["reason"] == "seed 1: 3 of 16384 values are not finite"
    found = outcome(comparison, "alibi", "rope", **AT)
    assert (found["outcome"], found["difference"]) == ("not finite", None)
    assert found["reason"] == "rope, seed 1: 3 of 16384 values are not finite"
    assert outcome(comparison, "alibi", "rope", **FAR)["difference"] is not None
    assert comparison["notes"] == [
        "rope: not finite, and so without a mean, at 1 place; first loss/whole_windows at length 64, window 0 "
        "(seed 1: 3 of 16384 values are not finite)."
    ]


def test_notes_of_rows_are_kept(tmp_path: Path) -> None:
    run = run_with("alibi", 0, 1.2)
    run.rows[0] = dataclasses.replace(run.rows[0], note="load average 1.9")
    rows = compare([study_of(tmp_path / "s", run)])["rows"]
    assert [row["note"] for row in rows if row["measure"] == "loss/whole_windows"] == ["load average 1.9"]


def test_sums_by_document_stand_where_pairs_are_compared(tmp_path: Path) -> None:
    comparison = compare([starter(tmp_path / "s", seeds=(0,), schemes=("alibi", "learned"))])
    kept = comparison["documents"]
    assert {each["measure"] for each in kept} == {"loss/whole_windows", "loss/fixed_targets", "recall/gain"}
    assert all(not each["at"].get("window") for each in kept)
    (one,) = (each for each in kept if (each["label"], each["measure"]) == ("learned", "loss/whole_windows"))
    (row,) = (each for each in rows("learned", 0) if each.measure == "loss/whole_windows" and each.groups)
    assert one["groups"] == [list(group) for group in row.groups] and one["at"] == row.at


def test_the_same_run_twice_counts_once_and_is_named(tmp_path: Path) -> None:
    first, again = (
        study_of(tmp_path / "a", run_with("alibi", 0, 1.2)),
        study_of(tmp_path / "b", run_with("alibi", 0, 1.4)),
    )
    comparison = compare([again, first])
    assert summary(comparison, "alibi", "loss/whole_windows", **AT)["mean"] == pytest.approx(1.2)
    assert any(note.startswith("b/alibi_s0_0badcafe is left out") for note in comparison["notes"])
    assert by_folder(comparison)["b/alibi_s0_0badcafe"]["budget"] is None
    assert {row["value"] for row in comparison["rows"] if row["measure"] == "loss/whole_windows"} == {1.2}


def test_a_folder_named_twice_is_read_once(tmp_path: Path) -> None:
    study = study_of(tmp_path / "s", record("alibi"))
    (tmp_path / "latest").symlink_to(study)
    comparison = compare([study, tmp_path / "latest", study / "alibi_s0_0badcafe"])
    assert len(comparison["runs"]) == 1


@pytest.mark.parametrize(
    ("scheme", "pe", "expected"),
    [
        ("rope", {}, "rope"),
        ("rope", {"base": 500000.0}, "rope base=500000"),
        ("rope", {"fraction": 0.5, "base": 500000.0}, "rope base=500000 fraction=0.5"),
        ("rope", {"layout": "interleaved"}, "rope layout=interleaved"),
        ("alibi", {"form": "symmetric"}, "alibi form=symmetric"),
        ("alibi", {"per_head": False}, "alibi per_head=false"),
        ("learned", {"max_positions": 128}, "learned max_positions=128"),
        ("learned", {"max_positions": 64}, "learned"),  # what the default comes to
        ("alibi", {"form": "causal"}, "alibi"),
    ],
)
def test_labels_show_the_options_that_differ_from_the_defaults(scheme: str, pe: dict[str, Any], expected: str) -> None:
    assert label(settings(scheme, pe=pe)) == expected


def test_labels_of_other_rates_and_unknown_schemes() -> None:
    plain = settings("t5")
    plain["optim"]["pe_lr_mult"] = 3.0
    assert label(plain) == "t5 pe_lr_mult=3"
    assert label({"pe": {"name": "of tomorrow", "width": 8}}) == "of tomorrow width=8"
    assert label({"pe": {"name": "of tomorrow", "factors": [1.5, 2.5]}}) == "of tomorrow factors=[1.5,2.5]"  # as typed


def test_variants_of_one_scheme_are_compared_with_each_other(tmp_path: Path) -> None:
    study = study_of(tmp_path / "s", run_with("rope", 0, 1.3))
    add_run(study, run_with("rope", 0, 1.2, pe={"base": 500000.0}), "rope_s0_other")
    comparison = compare([study])
    assert comparison["labels"] == {"rope": "rope", "rope base=500000": "rope"}
    assert outcome(comparison, "rope", "rope base=500000", **AT)["difference"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("end", "fall", "expected"),
    [
        (1.30, 0.030, "learned"),
        (1.30, 0.046, "still learning"),  # over 1.5 times the other's 0.030
        (COUNTS["trigram"] + 0.01, 0.030, "not learned"),
        (COUNTS["bigram"] - 0.14, 0.005, "not learned"),
    ],
)
def test_learning_states(tmp_path: Path, end: float, fall: float, expected: str) -> None:
    study = study_of(tmp_path / "s", run_with("alibi", 0, 1.3), run_with("none", 0, 1.3, end=end, fall=fall))
    runs = by_folder(compare([study]))
    assert runs["none_s0_0badcafe"]["state"] == expected
    assert runs["alibi_s0_0badcafe"]["state"] == "learned"  # a run that is stuck sets no standard with its small fall


@pytest.mark.parametrize(
    ("end", "expected"), [(COUNTS["neighbours"] - 0.01, "learned"), (COUNTS["trigram"] - 0.01, "not learned")]
)
def test_a_run_on_masked_tokens_has_to_beat_counts_between_neighbours(
    tmp_path: Path, end: float, expected: str
) -> None:
    content = run_with("alibi", 0, 1.3, end=end)
    content.settings["objective"]["name"] = "masked"
    comparison = compare([study_of(tmp_path / "s", content)])
    assert [run["state"] for run in comparison["runs"]] == [expected]
    assert comparison["budgets"][0]["count_model"] == "neighbours"


def test_beside_a_run_at_rest_a_fall_of_nothing_is_no_falling(tmp_path: Path) -> None:
    falls = {"alibi": -0.001, "rope": 0.0005, "t5": 0.021}
    study = study_of(tmp_path / "s", *(run_with(scheme, 0, 1.3, fall=fall) for scheme, fall in falls.items()))
    assert {run["scheme"]: run["state"] for run in compare([study])["runs"]} == {
        "alibi": "learned",
        "rope": "learned",
        "t5": "still learning",
    }


def test_a_poor_trigram_model_lets_no_run_on_the_plateau_pass(tmp_path: Path) -> None:
    content = run_with("alibi", 0, 1.3, end=COUNTS["bigram"] - 0.14)
    content.data["counts"] = {"validation": COUNTS | {"trigram": COUNTS["bigram"]}}
    (run,) = compare([study_of(tmp_path / "s", content)])["runs"]
    assert run["state"] == "not learned"


def test_a_run_without_count_models_has_no_learning_state(tmp_path: Path) -> None:
    content = run_with("alibi", 0, 1.3)
    del content.data["counts"]
    assert by_folder(compare([study_of(tmp_path / "s", content)]))["alibi_s0_0badcafe"]["state"] == "not measured"


def test_a_gap_that_still_moves_decides_nothing_inside_and_all_beyond(tmp_path: Path) -> None:
    runs = [
        run_with(scheme, seed, loss, beyond=beyond, half=half, end=loss)
        for scheme, loss, half, beyond in (("alibi", 1.37, 1.56, 1.35), ("t5", 1.28, 1.40, 1.26))
        for seed in (0, 1, 2)
    ]
    comparison = compare([study_of(tmp_path / "s", *runs)])
    inside, beyond = outcome(comparison, "alibi", "t5", **AT), outcome(comparison, "alibi", "t5", **FAR)
    assert inside["outcome"] == "still learning"
    assert "0.070" in inside["reason"]  # from 0.16 to 0.09
    assert inside["difference"] == pytest.approx(0.09)
    assert beyond["outcome"] == "worse"


@pytest.mark.parametrize(("gap_at_half", "expected"), [(0.105, "better"), (0.13, "still learning")])
def test_a_gap_that_moved_early_and_rests_since_is_settled(tmp_path: Path, gap_at_half: float, expected: str) -> None:
    runs = [
        run_with(
            scheme,
            seed,
            loss,
            half=1.4 + ahead * gap_at_half,
            end=loss,
            more=(measured("training/loss", early, fraction=0.25),),
        )
        for scheme, loss, ahead, early in (("alibi", 1.2, 0, 2.0), ("rope", 1.3, 1, 2.4))
        for seed in (0, 1, 2)
    ]
    found = outcome(compare([study_of(tmp_path / "s", *runs)]), "alibi", "rope", **AT)
    assert found["outcome"] == expected
    if expected == "still learning":
        assert found["reason"].endswith("(-0.400 at a quarter, -0.130 at half, -0.100 at all of the budget)")


def test_a_run_on_the_plateau_is_not_worse(tmp_path: Path) -> None:
    runs = [run_with("alibi", seed, 1.3, beyond=1.3) for seed in (0, 1)]
    runs += [run_with("none", seed, 2.43, beyond=2.5, half=2.44, end=2.43, fall=0.005) for seed in (0, 1)]
    comparison = compare([study_of(tmp_path / "s", *runs)])
    for at in (AT, FAR):
        found = outcome(comparison, "alibi", "none", **at)
        assert (found["outcome"], found["reason"]) == ("not learned", "none, seed 0, has not learned")
        assert found["difference"] is not None


def test_without_the_losses_on_the_way_nothing_is_decided_inside(tmp_path: Path) -> None:
    runs = [run_with(scheme, seed, loss) for scheme, loss in (("alibi", 1.2), ("rope", 1.4)) for seed in (0, 1, 2)]
    for run in runs:
        run.rows = [row for row in run.rows if row.at.get("fraction") != 0.5]
    found = outcome(compare([study_of(tmp_path / "s", *runs)]), "alibi", "rope", **AT)
    assert found["outcome"] == "undecided"
    assert "half" in found["reason"]


def recalling(scheme: str, seed: int, near: float, spread: float = 0.01) -> records.Record:
    """A run with these recall gains: `near` at two distances inside, with documents that differ, and 0.1 beyond."""
    gains = {32: near + 0.01, 48: near - 0.01, 512: 0.1}
    more = tuple(
        Row(
            measure="recall/gain",
            at={"distance": distance},
            value=gain,
            unit="nats/token",
            count=64,
            groups=groups(gain, 16, shift=spread),
        )
        for distance, gain in gains.items()
    )
    return run_with(scheme, seed, 1.3, more=more)


def test_recall_beyond_counts_only_if_recall_was_learned_inside(tmp_path: Path) -> None:
    # alibi's mean gain of 0.04 is above zero, its interval is not.
    runs = [recalling("alibi", seed, near) for seed, near in enumerate((0.14, -0.06))]
    runs += [recalling("t5", seed, near) for seed, near in enumerate((0.200, 0.202))]
    comparison = compare([study_of(tmp_path / "s", *runs)])
    entry = summary(comparison, "alibi", "recall/gain", distance=512)
    assert (entry["status"], entry["mean"]) == ("not learned", None)
    assert summary(comparison, "t5", "recall/gain", distance=512)["mean"] == pytest.approx(0.1)
    assert summary(comparison, "alibi", "recall/gain", distance=32)["mean"] == pytest.approx(0.05)
    assert outcome(comparison, "alibi", "t5", "recall/gain", distance=512)["outcome"] == "not learned"
    alibi, t5 = comparison["recall"]
    assert (alibi["recalls"], t5["recalls"]) == (False, True)
    assert t5["interval"] == pytest.approx([0.201 - 12.706205 * 0.001, 0.201 + 12.706205 * 0.001], abs=1e-6)
    assert (t5["interval_over"], t5["distances"], t5["seeds"]) == ("seeds", [32, 48], [0, 1])


@pytest.mark.parametrize(("spread", "recalls"), [(0.005, True), (0.1, False)])
def test_recall_of_one_seed_is_judged_over_documents(tmp_path: Path, spread: float, recalls: bool) -> None:
    (found,) = compare([study_of(tmp_path / "s", recalling("alibi", 0, 0.03, spread))])["recall"]
    assert found["mean"] == pytest.approx(0.03)
    assert (found["interval_over"], found["recalls"], found["interval"][0] > 0) == ("documents", recalls, recalls)
    assert found["interval"][0] < 0.03 < found["interval"][1]


def test_recall_of_one_seed_without_documents_is_not_seen(tmp_path: Path) -> None:
    run = run_with("alibi", 0, 1.3, more=(measured("recall/gain", 0.3, distance=32, count=64),))
    (found,) = compare([study_of(tmp_path / "s", run)])["recall"]
    assert (found["interval"], found["recalls"]) == (None, False)


def with_context(
    scheme: str, seed: int, at_length: float, far: float, control: float, draw: str = "", **extra: Any
) -> records.Record:
    """A run with losses on fixed targets: at 64, at 1024, and at 1024 with attention cut to 64 tokens."""
    places = (({"length": 64, "window": 0}, at_length), (FAR, far), ({"length": 1024, "window": 64}, control))
    more = tuple(measured("loss/fixed_targets", value, documents=True, **at) for at, value in places)
    more = (dataclasses.replace(more[0], draw=draw), *more[1:])
    return run_with(scheme, seed, 1.3, more=more, **extra)


def test_context_is_judged_by_paired_seeds_on_fixed_targets(tmp_path: Path) -> None:
    # Seeds differ by far more than what context does to each.
    runs = [
        with_context(scheme, seed, base, base + change + 0.001 * seed, base + 0.03)
        for scheme, change in (("alibi", 0.0), ("rope", 2.0), ("t5", -0.05))
        for seed, base in enumerate((1.1, 1.3, 1.6))
    ]
    found = {(e["label"], e["effect"]): e for e in compare([study_of(tmp_path / "s", *runs)])["context"]}
    assert {key: entry["outcome"] for key, entry in found.items()} == {
        ("alibi", "longer"): "equivalent",
        ("alibi", "full"): "better",
        ("rope", "longer"): "worse",
        ("rope", "full"): "worse",
        ("t5", "longer"): "better",
        ("t5", "full"): "better",
    }
    entry = found["t5", "longer"]
    assert (entry["difference"], entry["half_width"]) == (pytest.approx(-0.049), pytest.approx(0.002484138))
    assert (entry["length"], entry["count"], entry["seeds"]) == (1024, 16384, [0, 1, 2])


def test_context_is_corrected_over_the_schemes(tmp_path: Path) -> None:
    # Two seeds tell each change of 0.05 or 0.056 alone (p 0.036), and neither of two at once.
    changes = {"alibi": (0.050, 0.056), "rope": (-0.050, -0.056)}
    for schemes, expected in (("alibi", {"worse"}), ("alibi rope", {"undecided"})):
        runs = [
            with_context(scheme, seed, 1.1, 1.1 + change, 1.1)
            for scheme in schemes.split()
            for seed, change in enumerate(changes[scheme])
        ]
        found = compare([study_of(tmp_path / schemes, *runs)])["context"]
        assert {entry["outcome"] for entry in found} == expected


def test_context_with_one_seed_is_an_indication_and_of_a_stuck_run_nothing(tmp_path: Path) -> None:
    runs = [with_context("alibi", 0, 1.3, 1.2, 1.3), with_context("none", 0, 2.4, 2.4, 2.4, end=2.43, fall=0.001)]
    found = compare([study_of(tmp_path / "s", *runs)])["context"]
    assert {(entry["label"], entry["outcome"], entry["half_width"]) for entry in found} == {
        ("alibi", "indication", None)
    }
    assert [entry["documents_interval"] for entry in found] == [pytest.approx([-0.1, -0.1])] * 2  # paired by document


def test_context_is_judged_on_the_same_targets_only(tmp_path: Path) -> None:
    longer, full = compare([study_of(tmp_path / "s", with_context("alibi", 0, 1.3, 1.2, 1.3, draw="others"))])[
        "context"
    ]
    assert (longer["outcome"], longer["difference"]) == ("not measured", None)
    assert longer["reason"] == "not measured on the same targets"
    assert full["difference"] == pytest.approx(-0.1)


def test_the_window_control_is_no_contestant(tmp_path: Path) -> None:
    comparison = compare([starter(tmp_path / "s", schemes=("alibi", "t5"))])
    assert any(entry["at"] == {"length": 128, "window": 64} for entry in comparison["summary"])
    assert all(found["at"].get("window", 0) == 0 for found in comparison["outcomes"])


def test_unknown_measures_are_carried_along(tmp_path: Path) -> None:
    content = record("alibi", found=[measured("novel/thing", 3.5, unit="parsec", way="north")])
    comparison = compare([study_of(tmp_path / "s", content)])
    assert summary(comparison, "alibi", "novel/thing", way="north")["mean"] == 3.5
    assert [row["measure"] for row in comparison["rows"]] == ["novel/thing"]


def test_scope_names_size_data_and_seeds(tmp_path: Path) -> None:
    (budget,) = compare([starter(tmp_path / "s", seeds=(0, 1), schemes=("alibi",))])["budgets"]
    for part in (
        "230,208 parameters",
        "14.2 tokens per parameter",
        "3,276,800 tokens",
        "sotu",
        "64 tokens",
        "seeds 0, 1",
    ):
        assert part in budget["scope"]


def test_different_machines_are_said(tmp_path: Path) -> None:
    other = record("rope")
    other.environment["threads"] = 8
    notes = compare([study_of(tmp_path / "s", record("alibi"), other)])["notes"]
    assert notes == ["The runs of budget 1 differ in threads (2 and 8): their speeds and memory do not compare."]


def test_title_and_command(tmp_path: Path) -> None:
    one, two = (
        starter(tmp_path / "one", seeds=(0,), schemes=("alibi",)),
        study_of(tmp_path / "two words", record("rope")),
    )
    assert compare([one])["title"] == "one"
    assert compare([one])["command"] == "python train.py experiment=starter study=starter"
    both = compare([one, two])
    assert both["title"] == "one + two words"
    assert both["command"] == f"posbuild compare {one} '{two}'"


def test_the_file_is_the_comparison_and_the_same_each_time(tmp_path: Path) -> None:
    study = starter(tmp_path / "s", seeds=(0, 1), schemes=("alibi", "learned"))
    comparison = compare([study])
    path = write(comparison, tmp_path)
    assert json.loads(path.read_text(encoding="utf-8")) == comparison
    first = path.read_bytes()
    assert write(compare([study]), tmp_path).read_bytes() == first


def test_comparing_needs_no_torch() -> None:
    code = "import sys, posbuild.comparison.compare, posbuild.report.tables; sys.exit('torch' in sys.modules or 'scipy.stats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("record.json", '{"schema": 1}'),
        ("record.json", '{"schema": 0}'),
        ("status.json", '{"schema": 1, "status": "running", "reason": "", "pid": null}'),
        ("status.json", "[]"),
    ],
)
def test_one_damaged_file_costs_no_other_run(tmp_path: Path, name: str, content: str) -> None:
    study = starter(tmp_path / "study", seeds=(0,), schemes=("rope", "alibi"))
    damaged = next(path for path in sorted(study.iterdir()) if (path / "record.json").exists())
    (damaged / name).write_text(content, encoding="utf-8")
    runs = {run["folder"]: run for run in compare([study])["runs"]}
    assert runs.pop(damaged.name)["status"] == records.FAILED
    assert runs and all(run["status"] == records.COMPLETE for run in runs.values())
