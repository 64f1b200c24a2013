import json
from pathlib import Path
from typing import Any

import pytest

from posbuild import records
from posbuild.comparison.compare import compare
from posbuild.comparison.planning import plan as needs
from posbuild.comparison.tuning import SHARED_RATE, change
from posbuild.errors import ConfigError
from posbuild.guide import guide
from posbuild.settings import from_plain
from tests.comparison.studies import plan, starter
from tests.comparison.tunings import GRID, RATES, at_best, trial, tried

GOOD = dict(zip(RATES, (1.50, 1.40, 1.38, 1.60), strict=True))


def tuning(study: Path) -> dict[str, Any]:
    (found,) = compare([study])["tuning"]
    return found


def choice(found: dict[str, Any], label: str) -> dict[str, Any]:
    return next(item for item in found["choices"] if item["label"] == label)


def edges(study: Path) -> list[str]:
    return [note for note in compare([study])["notes"] if "edge" in note]


def test_the_best_of_each_scheme_is_that_with_the_lowest_loss(tmp_path: Path) -> None:
    tried(tmp_path / "s", "rope", GOOD)
    tried(tmp_path / "s", "t5", GOOD | {1e-2: 1.35})
    comparison = compare([tmp_path / "s"])
    (found,) = comparison["tuning"]
    assert found["rates"] == [*RATES] and found["multipliers"] == GRID and found["shared_rate"] == SHARED_RATE == 3e-3
    rope, t5 = choice(found, "rope"), choice(found, "t5")
    assert (rope["lr"], rope["pe_lr_mult"], rope["mean"], rope["shared"]) == (1e-2, None, 1.38, 1.40)
    assert (t5["lr"], t5["pe_lr_mult"], t5["mean"], t5["shared"]) == (1e-2, 30.0, 1.35, 1.40)
    assert rope["pe"] == {"name": "rope", "layout": "half", "base": 10000.0, "fraction": 1.0}
    assert {item[name] for item in (rope, t5) for name in ("rate_edge", "multiplier_edge", "unfinished")} == {""}
    assert len(found["trials"]) == 4 + 4 + len(GRID) - 1
    assert comparison["notes"] == [] and comparison["budgets"] == [] and comparison["rows"] == []
    assert comparison["labels"] == {"rope": "rope", "t5": "t5"}  # a multiplier tells no schemes apart
    assert {run["tuning"] for run in comparison["runs"]} == {1}
    assert "seed 0" in found["scope"] and "230,208 parameters" in found["scope"]
    json.dumps(comparison, allow_nan=False)


@pytest.mark.parametrize(
    ("losses", "edge", "hint"),
    [
        (
            (1.5, 1.4, 1.38, 1.36),
            "highest",
            "0.03, lies at the edge of the grid: widen it with optim.lr=0.09 in the same study.",
        ),
        (
            (1.2, 1.4, 1.5, 1.6),
            "lowest",
            "0.001, lies at the edge of the grid: widen it with optim.lr=0.0003 in the same study.",
        ),
        ((1.5, 1.4, 1.38, None), "", ""),  # one that diverged lies beyond the best
        ((1.5, 1.4, 1.45, 1.6), "", ""),
    ],
)
def test_a_best_rate_at_the_edge_of_the_grid_says_so(tmp_path: Path, losses: tuple, edge: str, hint: str) -> None:
    tried(tmp_path / "s", "rope", dict(zip(RATES, losses, strict=True)))
    assert choice(tuning(tmp_path / "s"), "rope")["rate_edge"] == edge
    assert edges(tmp_path / "s") == ([f"The best rate of rope, {hint}"] if hint else [])


def test_a_best_multiplier_at_the_edge_says_so(tmp_path: Path) -> None:
    tried(tmp_path / "s", "t5", GOOD)
    trial(tmp_path / "s", "t5", 1e-2, 1.30, multiplier=300.0)
    assert choice(tuning(tmp_path / "s"), "t5")["multiplier_edge"] == "highest"
    assert edges(tmp_path / "s") == [
        "The best multiplier of t5, 300, lies at the edge of the grid: widen it with optim.pe_lr_mult_grid=[900] in the same study."
    ]


def test_what_diverged_in_one_seed_is_never_the_best(tmp_path: Path) -> None:
    tried(tmp_path / "s", "rope", GOOD)
    tried(tmp_path / "s", "rope", GOOD | {1e-2: None}, seed=1)
    found = tuning(tmp_path / "s")
    assert choice(found, "rope")["lr"] == 3e-3 and choice(found, "rope")["unfinished"] == ""
    (lost,) = [item for item in found["trials"] if item["lr"] == 1e-2]
    assert (lost["mean"], lost["status"], lost["losses"]) == (None, "diverged", [1.38])


def test_a_scheme_whose_rates_all_diverge_has_no_best_and_says_so(tmp_path: Path) -> None:
    tried(tmp_path / "s", "rope", dict.fromkeys(RATES))
    tried(tmp_path / "s", "alibi", GOOD)
    comparison = compare([tmp_path / "s"])
    (found,) = comparison["tuning"]
    assert choice(found, "rope")["lr"] is None and choice(found, "rope")["mean"] is None
    assert any("rope" in note and "no best rate" in note for note in comparison["notes"])
    assert found["pairs"] == []


def test_seeds_are_averaged_and_each_has_its_loss(tmp_path: Path) -> None:
    tried(tmp_path / "s", "rope", GOOD)
    tried(tmp_path / "s", "rope", GOOD | {1e-2: 1.48}, seed=1)
    found = tuning(tmp_path / "s")
    assert choice(found, "rope")["lr"] == 3e-3  # 1.40 and 1.40 before 1.38 and 1.48
    (other,) = [item for item in found["trials"] if item["lr"] == 1e-2]
    assert (other["seeds"], other["losses"], other["mean"]) == ([0, 1], [1.38, 1.48], pytest.approx(1.43))
    assert other["half_width"] == pytest.approx(12.7062 * 0.05, rel=1e-4)


@pytest.mark.parametrize("status", ["failed", "died"])
def test_a_run_that_is_missing_leaves_the_tuning_unfinished(tmp_path: Path, status: str) -> None:
    study = tmp_path / "s"
    tried(study, "rope", {lr: loss for lr, loss in GOOD.items() if lr != 3e-2})
    trial(study, "rope", 3e-2, None, status=status)
    comparison = compare([study])
    assert choice(comparison["tuning"][0], "rope")["unfinished"] == "1 of its runs is neither complete nor diverged"
    assert "The tuning of rope has not finished: 1 of its runs is neither complete nor diverged." in comparison["notes"]
    assert [run["tuning"] for run in comparison["runs"] if run["status"] == status] == [None]


def test_a_job_that_never_began_leaves_the_tuning_unfinished(tmp_path: Path) -> None:
    tried(tmp_path / "s", "rope", GOOD)
    plan(tmp_path / "s", [("rope_s0_later", "rope", 0)])
    assert "1 of its runs" in choice(tuning(tmp_path / "s"), "rope")["unfinished"]


def test_multipliers_that_were_not_tried_at_the_best_rate_leave_it_unfinished(tmp_path: Path) -> None:
    for lr, loss in GOOD.items():
        trial(tmp_path / "s", "t5", lr, loss)
    trial(tmp_path / "s", "t5", 3e-3, 1.41, multiplier=1.0)
    told = "at its best rate the multipliers 1, 3, 10, 100 were not tried"
    assert choice(tuning(tmp_path / "s"), "t5")["unfinished"] == told


def test_rates_alone_are_tuned_with_an_empty_grid(tmp_path: Path) -> None:
    for lr, loss in GOOD.items():
        trial(tmp_path / "s", "t5", lr, loss, grid=[])
    found = choice(tuning(tmp_path / "s"), "t5")
    assert (found["lr"], found["pe_lr_mult"], found["unfinished"], found["multiplier_edge"]) == (1e-2, 30.0, "", "")


def test_what_makes_tuning_worth_less_is_said(tmp_path: Path) -> None:
    tried(tmp_path / "s", "rope", {1e-3: 1.5, 2e-3: 1.4, 4e-3: 1.45})
    tried(tmp_path / "s", "alibi", {1e-3: 1.5, 2e-3: 1.4})
    notes = " ".join(compare([tmp_path / "s"])["notes"])
    assert "Rates tried in tuning: 3. It takes 4" in notes
    assert "not every scheme was tried at the same rates" in notes
    assert "The shared rate, 0.003, is not among the rates tried" in notes
    assert choice(tuning(tmp_path / "s"), "rope")["shared"] is None and tuning(tmp_path / "s")["pairs"] == []


def test_runs_of_two_budgets_are_tuned_apart(tmp_path: Path) -> None:
    tried(tmp_path / "s", "rope", GOOD)
    for lr, loss in GOOD.items():
        trial(tmp_path / "t", "rope", lr, loss - 0.1, steps=1600)
    found = compare([tmp_path / "s", tmp_path / "t"])["tuning"]
    assert [entry["number"] for entry in found] == [1, 2]
    assert sorted(entry["choices"][0]["mean"] for entry in found) == pytest.approx([1.28, 1.38])


@pytest.mark.parametrize(
    ("section", "name", "value"), [("objective", "name", "masked"), ("trainer", "precision", "64-true")]
)
def test_what_else_decides_training_is_tuned_apart(tmp_path: Path, section: str, name: str, value: str) -> None:
    for study in ("s", "t"):
        tried(tmp_path / study, "rope", GOOD)
    for path in (tmp_path / "t").glob("*/record.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        content["settings"][section][name] = value
        path.write_text(json.dumps(content), encoding="utf-8")
    found = compare([tmp_path / "s", tmp_path / "t"])["tuning"]
    assert [len(entry["trials"]) for entry in found] == [len(GOOD)] * 2


# --- pairs at the shared rate and at each one's best ------------------------------------------------------------------


def two(folder: Path, alibi: tuple, rope: tuple, seeds: tuple = (0,)) -> dict[str, Any]:
    for seed in seeds:
        for scheme, losses in (("alibi", alibi), ("rope", rope)):
            moved = [loss + 0.001 * seed for loss in losses]
            tried(folder, scheme, dict(zip(RATES, moved, strict=True)), seed=seed)
    (pair,) = tuning(folder)["pairs"]
    assert pair["pair"] == ["alibi", "rope"]
    return pair


def test_a_pair_that_flips_between_the_shared_rate_and_the_best_says_so(tmp_path: Path) -> None:
    pair = two(tmp_path / "s", (1.5, 1.40, 1.39, 1.6), (1.6, 1.45, 1.34, 1.6))
    assert (pair["shared_outcome"], pair["own_outcome"]) == ("indication", "indication")
    assert (pair["shared_difference"], pair["own_difference"]) == (pytest.approx(-0.05), pytest.approx(0.05))
    assert pair["change"] == "flips"


def test_a_pair_within_the_margin_at_one_of_them_changes(tmp_path: Path) -> None:
    assert two(tmp_path / "s", (1.5, 1.40, 1.39, 1.6), (1.6, 1.45, 1.40, 1.6))["change"] == "changes"


def test_a_pair_that_stays_says_nothing(tmp_path: Path) -> None:
    assert two(tmp_path / "s", (1.5, 1.40, 1.39, 1.6), (1.6, 1.45, 1.44, 1.6))["change"] == ""


def test_over_seeds_the_outcomes_are_those_of_the_statistics(tmp_path: Path) -> None:
    pair = two(tmp_path / "s", (1.5, 1.40, 1.39, 1.6), (1.6, 1.45, 1.34, 1.6), seeds=(0, 1, 2))
    assert (pair["shared_outcome"], pair["own_outcome"], pair["change"]) == ("better", "worse", "flips")


def test_a_scheme_that_has_not_learned_flips_nothing(tmp_path: Path) -> None:
    pair = two(tmp_path / "s", (1.5, 1.40, 1.39, 1.6), (2.45, 2.42, 2.41, 2.45))
    assert (pair["shared_outcome"], pair["own_outcome"], pair["change"]) == ("not learned", "not learned", None)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (("better", -0.1), ("worse", 0.1), "flips"),
        (("better", -0.1), ("better", -0.3), ""),
        (("better", -0.1), ("equivalent", 0.001), "changes"),
        (("undecided", -0.1), ("undecided", 0.1), ""),
        (("undecided", -0.1), ("better", -0.1), "changes"),
        (("indication", -0.1), ("indication", 0.1), "flips"),
        (("indication", -0.1), ("indication", 0.01), "changes"),
        (("indication", -0.01), ("indication", 0.01), ""),
        (("still learning", -0.1), ("still learning", 0.1), "flips"),
        (("not learned", -0.1), ("better", -0.1), None),
        (("not measured", None), ("better", -0.1), None),
    ],
)
def test_what_counts_as_a_flip(one: tuple, other: tuple, expected: str | None) -> None:
    first, second = ({"outcome": outcome, "difference": difference} for outcome, difference in (one, other))
    assert change(first, second, 0.02) == change(second, first, 0.02) == expected


# --- a study at the shared rate and at each scheme's best -------------------------------------------------------------

STUDY = "/outputs/tune"


def results(study: Path, *, rope: float = 1.20, seeds: tuple = (1, 2, 3)) -> dict[str, Any]:
    """alibi, whose best rate is the shared one, so that one run stands for both, and rope, which has two runs a seed."""
    jobs = []
    for seed in seeds:
        at_best(study, "alibi", seed, 1.30 + 0.001 * seed, tuned=None, lr=3e-3)
        at_best(study, "rope", seed, 1.40 + 0.002 * seed, tuned=None, lr=3e-3)
        at_best(study, "rope", seed, rope + 0.002 * seed, tuned=STUDY, lr=1e-2)
        for scheme, kind, tuned in (
            ("alibi", "shared", [None, STUDY]), ("rope", "shared", [None]), ("rope", "best", [STUDY]),
        ):  # fmt: skip
            folder = f"{scheme}_s{seed}_{kind}"
            jobs.append({"folder": folder, "scheme": scheme, "label": scheme, "seed": seed, "tuned": tuned})
    records.write_json(study / "study.json", {"schema": 1, "study": study.name, "command": "c", "jobs": jobs})
    return compare([study])


def test_the_shared_rate_and_the_best_are_two_budgets_and_one_run_may_stand_in_both(tmp_path: Path) -> None:
    comparison = results(tmp_path / "s")
    shared, own = comparison["budgets"]
    assert (shared["lr"], shared["tuned"], own["lr"], own["tuned"]) == (3e-3, None, None, STUDY)
    assert shared["runs"] == [f"{scheme}_s{seed}_shared" for scheme in ("alibi", "rope") for seed in (1, 2, 3)]
    assert own["runs"] == [f"alibi_s{seed}_shared" for seed in (1, 2, 3)] + [f"rope_s{seed}_best" for seed in (1, 2, 3)]
    assert comparison["labels"] == {"alibi": "alibi", "rope": "rope"}
    assert own["scope"].endswith("Each scheme at the rate and multiplier that tune found best.")
    assert comparison["notes"] == [
        "The runs have 2 different budgets. Only runs of one budget are compared with each other.",
        "Budget 2 differs from budget 1 in optim.lr (0.003 and the best of each scheme by tune).",
    ]


def test_budgets_tuned_by_two_studies_of_one_name_say_in_what_they_differ(tmp_path: Path) -> None:
    for scheme, tuned in (("alibi", "/first/tune"), ("rope", "/second/tune")):
        at_best(tmp_path / "s", scheme, 1, 1.3, tuned=tuned, lr=3e-3)
    told = compare([tmp_path / "s"])["notes"][-1]
    assert told == "Budget 2 differs from budget 1 in tuned (/first/tune and /second/tune)."


def test_an_outcome_on_test_documents_that_flips_says_so(tmp_path: Path) -> None:
    (pair, far) = results(tmp_path / "s")["tuned"]
    pair, far = (pair, far) if pair["at"]["length"] == 64 else (far, pair)
    assert (pair["budgets"], pair["pair"], pair["measure"]) == ([1, 2], ["alibi", "rope"], "loss/whole_windows")
    assert (pair["shared_outcome"], pair["own_outcome"], pair["change"]) == ("better", "worse", "flips")
    assert (far["shared_outcome"], far["own_outcome"], far["change"]) == ("equivalent", "equivalent", "")


def test_an_outcome_that_stays_says_nothing(tmp_path: Path) -> None:
    assert [entry["change"] for entry in results(tmp_path / "s", rope=1.39)["tuned"]] == ["", ""]


def test_other_studies_have_no_part_in_it(tmp_path: Path) -> None:
    comparison = compare([starter(tmp_path / "s", seeds=(0,), schemes=("alibi", "rope"))])
    assert comparison["tuning"] == [] and comparison["tuned"] == []
    assert comparison["budgets"][0]["lr"] == 3e-3 and comparison["budgets"][0]["tuned"] is None


def test_budgets_that_differ_in_more_than_their_rates_are_not_set_side_by_side(tmp_path: Path) -> None:
    study = tmp_path / "s"
    for scheme in ("alibi", "rope"):
        at_best(study, scheme, 1, 1.3, tuned=None, lr=3e-3)
        at_best(study, scheme, 1, 1.3, tuned=STUDY, lr=1e-2)
    assert len(compare([study])["tuned"]) == 2
    for path in study.glob("*_best/record.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        content["settings"]["train"]["steps"] = 1600
        path.write_text(json.dumps(content), encoding="utf-8")
    assert compare([study])["tuned"] == []


# --- who reads it -----------------------------------------------------------------------------------------------------


def test_neither_plan_nor_guide_take_tuning_for_a_comparison(tmp_path: Path) -> None:
    tried(tmp_path / "s", "rope", GOOD)
    tried(tmp_path / "s", "alibi", GOOD)
    with pytest.raises(ConfigError, match="tried rates, on validation documents.*optim.tuned"):
        needs(tmp_path / "s", 0.02)
    for advice in guide.advice(compare([tmp_path / "s"])):
        assert advice.measured is not None
        if advice.scenario.situation.axes == 1:
            assert "tuned rates" in advice.measured.reason


def test_the_settings_of_the_fixtures_are_settings(tmp_path: Path) -> None:
    path = trial(tmp_path / "s", "t5", 3e-3, 1.4, multiplier=10.0)
    settings = from_plain(records.read_record(path).settings)
    assert (settings.optim.pe_lr_mult_grid, settings.pe_lr_mult) == (GRID, 10.0)
