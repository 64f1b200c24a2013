"""experiment=tune: two sweeps in one launch, and optim.tuned, which trains with what they found."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from posbuild import jobs, records
from posbuild.comparison.compare import compare, write
from posbuild.data import corpora
from posbuild.errors import ConfigError
from posbuild.overrides import plan, settings_of, take_apart
from posbuild.settings import Settings
from tests.comparison.studies import measured, record
from tests.comparison.tunings import trial
from tests.test_launch import Say, quick_train, statuses, train  # noqa: F401 (fixtures)

TUNE = ["experiment=tune", "logger=none", "data=files", "data.path=texts", "train.validation_windows=4"]
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
Loss = Callable[[Settings], "float | str"]


def loss(settings: Settings) -> float | str:
    """The best rates are 3e-3 for none and 1e-2 for t5, whose best multiplier is 10; none diverges at 3e-2."""
    lr, multiplier = settings.optim.lr, settings.pe_lr_mult
    if settings.scheme == "none":
        return {1e-3: 1.5, 3e-3: 1.4, 1e-2: 1.45}.get(lr, records.DIVERGED)
    return {1e-3: 1.5, 3e-3: 1.35, 1e-2: 1.3, 3e-2: 1.6}[lr] + {1.0: 0.1, 10.0: -0.05}.get(multiplier, 0.0)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A text, and jobs that train nothing: each has the loss, or ends with the status, that `loss` says."""
    (tmp_path / "texts").mkdir()
    for number in range(6):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"{number} the quick brown fox. " * 3000, encoding="utf-8")
    world = SimpleNamespace(loss=loss, ran=[], folder=tmp_path)

    def run(settings: Settings, folder: Path, command: str, *, alone: bool) -> None:

        world.ran.append((settings.scheme, settings.optim.lr, settings.pe_lr_mult, settings.seed))
        folder.mkdir(parents=True, exist_ok=True)
        records.write_json(folder / "settings.json", {"schema": 1, "command": command, **settings.plain()})
        found = world.loss(settings)
        if isinstance(found, str):
            return records.write_status(folder, found, "as planned")
        rows = [measured("training/loss", found, fraction=part) for part in (0.25, 0.5, 1.0)]
        if settings.eval.whole_window_tokens:
            rows.append(measured("loss/whole_windows", found, documents=True, length=64, window=0))
        content = record(settings.scheme, settings.seed, found=rows)
        content.settings, content.command = settings.plain(), command
        content.training["pe_lr_mult"] = settings.pe_lr_mult
        content.data["sha256"] = corpora.load(settings.data).sha256
        records.write_record(folder, content)
        return records.write_status(folder, records.COMPLETE)

    monkeypatch.setattr(jobs, "run", run)
    monkeypatch.setattr(jobs, "server", lambda settings: None)
    return world


def tuning(study: Path) -> dict[str, Any]:
    (found,) = records.read_json(study / "comparison.json")["tuning"]
    return found


def best(study: Path) -> dict[str, tuple]:
    return {item["label"]: (item["lr"], item["pe_lr_mult"]) for item in tuning(study)["choices"]}


def test_the_experiment_is_seven_schemes_over_four_rates_at_half_the_budget_without_test_documents() -> None:
    found = plan(take_apart(["experiment=tune"])).jobs
    names = ["none", "sinusoidal", "learned", "relative", "t5", "rope", "alibi"]
    assert [(job.settings.scheme, job.settings.optim.lr) for job in found] == [(n, r) for n in names for r in RATES]
    settings = found[0].settings
    assert 2 * settings.train.steps == settings_of("pe=none").train.steps and settings.seed == 0
    asked = settings.eval
    assert not any(
        (asked.whole_window_tokens, asked.fixed_targets, asked.recall_passages, asked.order_windows, asked.probes, asked.cost_rounds)
    )


def test_one_launch_tries_the_rates_and_then_the_multipliers_at_the_best(
    quick_train: Say,  # noqa: F811
    world: SimpleNamespace,
) -> None:
    arguments = [*TUNE, "pe=none,t5", "optim.pe_lr_mult_grid=[1,10,30]", "study=tune"]
    status, out, err = quick_train(*arguments)
    assert status == 0, out + err
    assert world.ran[:8] == [(name, rate, mult, 0) for name, mult in (("none", 1.0), ("t5", 30.0)) for rate in RATES]
    assert world.ran[8:] == [("t5", 1e-2, 1.0, 0), ("t5", 1e-2, 10.0, 0)]  # that with 30 is there
    study = world.folder / "outputs" / "tune"
    assert best(study) == {"none": (3e-3, None), "t5": (1e-2, 10.0)}
    assert (
        "Tuning on validation documents, tuning seed 0: the rates 0.001, 0.003, 0.01, 0.03 for each of none, t5; then the "
        "multipliers 1, 10, 30 of the rate of its own parameters for t5, each at its best rate. 10 runs in all."
    ) in out
    assert "Tuning t5: of the rates 0.001, 0.003, 0.01, 0.03 the best is 0.01, with a validation loss of 1.300; now" in out
    content = records.read_json(study / "study.json")
    assert len(content["jobs"]) == 10 and len(content["command"].splitlines()) == 1
    last = out.splitlines()[-1]
    assert shlex.split(last.partition("scheme: ")[2]) == [
        "python", "train.py", "-m", "pe=none,t5", "logger=none", "data=files", "data.path=texts",
        "train.validation_windows=4", "seed=1,2,3", "optim.tuned=null,outputs/tune",
    ]  # fmt: skip

    before = [*world.ran]
    assert quick_train(*arguments)[0] == 0
    assert world.ran == before  # nothing is left to do


def test_a_failed_job_costs_no_other_and_the_same_command_goes_on(
    quick_train: Say,  # noqa: F811
    world: SimpleNamespace,
) -> None:
    arguments = [*TUNE, "pe=t5", "optim.pe_lr_mult_grid=[10,30]", "study=tune"]
    world.loss = lambda settings: records.FAILED if settings.optim.lr == 1e-2 else loss(settings)
    status, out, _ = quick_train(*arguments)
    study = world.folder / "outputs" / "tune"
    assert status == 1 and best(study) == {"t5": (3e-3, 10.0)}
    assert "1 of its runs is neither complete nor diverged" in out and "Results on test documents" not in out
    with pytest.raises(ConfigError, match="has not finished tuning"):
        settings_of("pe=t5", f"optim.tuned={study}")
    world.loss = loss
    before = len(world.ran)
    assert quick_train(*arguments)[0] == 0
    assert world.ran[before:] == [("t5", 1e-2, 30.0, 0), ("t5", 1e-2, 10.0, 0)]
    assert best(study) == {"t5": (1e-2, 10.0)}


def test_a_wider_grid_is_given_in_the_same_study(quick_train: Say, world: SimpleNamespace) -> None:  # noqa: F811
    world.loss = lambda settings: 1.5 - settings.optim.lr
    arguments = [*TUNE, "pe=none", "study=tune"]
    _, out, _ = quick_train(*arguments)
    assert "The best rate of none, 0.03, lies at the edge of the grid: widen it with optim.lr=0.09 in the same study." in out
    world.loss = lambda settings: 1.6
    assert quick_train(*arguments, "optim.lr=0.09")[0] == 0
    assert tuning(world.folder / "outputs" / "tune")["rates"] == [*RATES, 0.09]
    assert best(world.folder / "outputs" / "tune") == {"none": (3e-2, None)}


def test_a_wider_grid_is_judged_with_what_was_tried_before(quick_train: Say, world: SimpleNamespace) -> None:  # noqa: F811
    arguments = [*TUNE, "pe=t5", "optim.pe_lr_mult_grid=[10,30]", "study=tune"]
    assert quick_train(*arguments)[0] == 0
    before = len(world.ran)
    world.loss = lambda settings: 1.9
    assert quick_train(*arguments, "optim.lr=0.09")[0] == 0
    assert world.ran[before:] == [("t5", 0.09, 30.0, 0)]  # the best stays 1e-2, whose multipliers were tried


def test_seeds_are_tuning_seeds_and_results_have_others(quick_train: Say, world: SimpleNamespace) -> None:  # noqa: F811
    _, out, _ = quick_train(*TUNE, "pe=none", "seed=1,2", "train.steps=400", "study=tune")
    assert "tuning seeds 1, 2" in out and {run[3] for run in world.ran} == {1, 2}
    assert "seed=0,3,4" in out.splitlines()[-1] and "train.steps=800" in out.splitlines()[-1]


def test_where_all_rates_diverge_there_is_nothing_to_go_on_with(quick_train: Say, world: SimpleNamespace) -> None:  # noqa: F811
    world.loss = lambda settings: records.DIVERGED
    status, out, _ = quick_train(*TUNE, "pe=t5", "study=tune")
    assert status == 0 and "no rate gives a loss in every seed" in out and "Results on" not in out
    assert len(world.ran) == 4


# --- optim.tuned ------------------------------------------------------------------------------------------------------


@pytest.fixture
def tuned(world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """none does best at the shared rate, t5 at 1e-2 with the multiplier 10."""
    monkeypatch.chdir(world.folder)
    study = world.folder / "outputs" / "tune"
    for rate in RATES:
        trial(study, "none", rate, {3e-3: 1.4}.get(rate, 1.5), grid=[1.0, 10.0])
        trial(study, "t5", rate, {1e-2: 1.3}.get(rate, 1.5), grid=[1.0, 10.0])
    for multiplier in (1.0, 10.0):
        trial(study, "t5", 1e-2, 1.5 - 0.025 * multiplier, multiplier=multiplier, grid=[1.0, 10.0])
    write(compare([study]), study)
    (study.parent / "latest").symlink_to("tune")
    return world


def test_a_run_takes_rate_and_multiplier_of_its_scheme(tuned: SimpleNamespace) -> None:
    settings = settings_of("pe=t5", "optim.tuned=outputs/tune")
    assert (settings.optim.lr, settings.optim.pe_lr_mult) == (1e-2, 10.0)
    assert settings.optim.tuned == str(tuned.folder / "outputs" / "tune")
    assert settings.hash == settings_of("pe=t5", "optim.lr=1e-2", "optim.pe_lr_mult=10").hash
    plain = settings_of("pe=none", "optim.tuned=outputs/tune")
    assert (plain.optim.lr, plain.optim.pe_lr_mult, plain.hash) == (3e-3, None, settings_of("pe=none").hash)


def test_one_study_at_both_trains_once_what_is_the_same(tuned: SimpleNamespace, quick_train: Say) -> None:  # noqa: F811
    before = len(tuned.ran)
    shared = ["-m", "pe=none,t5", "logger=none", "data=files", "data.path=texts", "train.validation_windows=4"]
    small = ["eval.whole_window_tokens=256", "eval.fixed_targets=16", "eval.multiples=[1]", "eval.recall_passages=0"]
    status, out, err = quick_train(*shared, *small, "seed=1,2", "optim.tuned=null,outputs/tune", "study=both")
    assert status == 0, out + err
    assert sorted(tuned.ran[before:]) == [
        *[("none", 3e-3, 1.0, seed) for seed in (1, 2)],
        *[("t5", 3e-3, 30.0, seed) for seed in (1, 2)],
        *[("t5", 1e-2, 10.0, seed) for seed in (1, 2)],
    ]
    study = tuned.folder / "outputs" / "both"
    comparison = records.read_json(study / "comparison.json")
    assert [(budget["lr"], len(budget["runs"])) for budget in comparison["budgets"]] == [(3e-3, 4), (None, 4)]
    assert [entry["pair"] for entry in comparison["tuned"]] == [["none", "t5"]]
    assert {*statuses(study).values()} == {"complete"}
    noted = {job["folder"].partition("_")[0]: job.get("tuned") for job in records.read_json(study / "study.json")["jobs"]}
    assert noted["none"] == [None, str(tuned.folder / "outputs" / "tune")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pe=rope", "optim.tuned=outputs/tune"], ["optim.tuned=outputs/tune", "pe=rope", "It tuned none, t5"]),
        (["pe=t5", "pe.buckets=16", "optim.tuned=outputs/tune"], ["pe=t5", "pe.buckets=16", "no best rate"]),
        (["pe=t5", "optim.tuned=outputs/nowhere"], ["optim.tuned=outputs/nowhere", "no folder", "experiment=tune"]),
        (["pe=t5", "optim.tuned=texts"], ["optim.tuned=texts", "no comparison.json", "experiment=tune"]),
        (["pe=t5", "optim.tuned=outputs/latest"], ["optim.tuned=outputs/latest", "Use optim.tuned=outputs/tune"]),
        (["pe=t5", "optim.tuned=outputs/tune", "optim.pe_lr_mult_grid=[1]"], ["optim.pe_lr_mult_grid=[1.0]", "Leave one out"]),
        (["pe=t5", "optim.pe_lr_mult_grid=[0]"], ["optim.pe_lr_mult_grid=[0.0]", "each must be > 0"]),
        (["pe=t5", "optim.pe_lr_mult_grid=[a]"], ["optim.pe_lr_mult_grid=[a]", "a list of numbers"]),
        (["pe=none,t5", "optim.tuned=null,outputs/tune"], ["several values", "-m"]),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else "",
)
def test_what_cannot_be_used_is_one_message(
    arguments: list[str],
    words: list[str],
    tuned: SimpleNamespace,
    quick_train: Say,  # noqa: F811
) -> None:
    before = len(tuned.ran)
    status, _, err = quick_train(*arguments, "logger=none", "study=s")
    assert status == 2 and all(word in err for word in words), err
    assert len(err.splitlines()) == 1 and len(tuned.ran) == before


def test_a_study_that_did_not_tune_is_refused(quick_train: Say, world: SimpleNamespace) -> None:  # noqa: F811
    small = ["eval.whole_window_tokens=256", "eval.fixed_targets=16", "eval.multiples=[1]", "eval.recall_passages=0"]
    assert quick_train("pe=none", *TUNE[1:], *small, "study=s")[0] == 0
    with pytest.raises(ConfigError, match=r"optim.tuned=outputs/s is no study that tuned"):
        settings_of("pe=none", "optim.tuned=outputs/s")


def test_the_folder_of_a_tuning_study_may_have_any_name(tuned: SimpleNamespace, quick_train: Say) -> None:  # noqa: F811
    (tuned.folder / "outputs" / "tune").rename(tuned.folder / "outputs" / "調 [1] b")
    jobs_of = plan(take_apart(["-m", "pe=t5", "optim.tuned=null,outputs/調 [1] b"])).jobs
    assert [job.settings.optim.lr for job in jobs_of] == [3e-3, 1e-2]


# --- for real ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_from_tuning_to_results(train: Say, tmp_path: Path) -> None:  # noqa: F811
    small = ["debug=smoke", "logger=none", "pe=none,t5", "optim.pe_lr_mult_grid=[1,30]", "study=tune"]
    status, out, err = train("experiment=tune", *small)
    assert status == 0, out + err
    study = tmp_path / "outputs" / "tune"
    assert len([*study.glob("*_s0_*/weights.pt")]) == 9
    assert {item["status"] for item in tuning(study)["trials"]} == {"complete"}
    assert re.search("<h2>Tuning</h2>", (study / "comparison.html").read_text(encoding="utf-8"))
    command = shlex.split(out.splitlines()[-1].partition("scheme: ")[2])
    assert command[:2] == ["python", "train.py"]
    status, out, err = train(*command[2:], "study=results")
    assert status == 0, out + err
    comparison = records.read_json(tmp_path / "outputs" / "results" / "comparison.json")
    assert [budget["seeds"] for budget in comparison["budgets"]] == [[1, 2, 3], [1, 2, 3]]
    assert {entry["measure"] for entry in comparison["tuned"]} >= {"loss/whole_windows", "recall/gain"}
    assert "The shared rate and each scheme's best" in out
