"""experiment=tune: two sweeps in one launch, and optim.tuned, which trains with what they found."""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import posbuild.launch
from posbuild import jobs, overrides, records
from posbuild.comparison.compare import compare, write
from posbuild.data import corpora
from posbuild.errors import ConfigError
from posbuild.folders import status_of
from posbuild.overrides import Job, Plan, Typed, settings_of, take_apart
from posbuild.paths import conf_dir
from posbuild.settings import Corpus, DataSettings, OptimSettings, Settings, TrainSettings, options_of, plain
from posbuild.tuned import best as tuned_best
from tests.comparison.studies import measured, record, starter
from tests.comparison.tunings import trial
from tests.test_launch import Say, quick_train, train  # noqa: F401 (fixtures)

T5 = {"name": "t5", **plain(options_of("t5", {}))}
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
Loss = Callable[[Settings], "float | str"]


def loss(settings: Settings) -> float | str:
    """The best rates are 3e-3 for none and 1e-2 for t5, whose best multiplier is 10; none diverges at 3e-2."""
    lr, multiplier = settings.optim.lr, settings.pe_lr_mult
    if settings.scheme == "none":
        return {1e-3: 1.5, 3e-3: 1.4, 1e-2: 1.45}.get(lr, records.DIVERGED)
    return {1e-3: 1.5, 3e-3: 1.35, 1e-2: 1.3, 3e-2: 1.6}[lr] + {1.0: 0.1, 10.0: -0.05}.get(multiplier, 0.0)


@pytest.fixture(scope="module")
def base() -> Settings:
    return settings_of("pe=none", "logger=none", "train.steps=1600", "eval=validation", "train.validation_windows=4")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A text, and jobs that train nothing: each has the loss, or ends with the status, that `loss` says."""
    (tmp_path / "texts").mkdir()
    for number in range(6):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"{number} the quick brown fox. " * 3000, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    world = SimpleNamespace(loss=loss, ran=[], folder=tmp_path)

    def run(settings: Settings, folder: Path, command: str, *, alone: bool) -> None:
        world.ran.append((settings.scheme, settings.optim.lr, settings.pe_lr_mult, settings.seed))
        folder.mkdir(parents=True, exist_ok=True)
        records.write_json(folder / "settings.json", {"schema": 1, "command": command, **settings.plain()})
        found = world.loss(settings)
        if isinstance(found, str):
            return records.write_status(folder, found, "as planned")
        rows = [measured("training/loss", found, fraction=part) for part in (0.25, 0.5, 1.0)]
        content = record(settings.scheme, settings.seed, found=rows)
        content.settings, content.command = settings.plain(), command
        content.training["pe_lr_mult"] = settings.pe_lr_mult
        content.data["sha256"] = corpora.load(settings.data).sha256
        records.write_record(folder, content)
        return records.write_status(folder, records.COMPLETE)

    monkeypatch.setattr(jobs, "run", run)
    monkeypatch.setattr(jobs, "server", lambda settings: None)
    return world


@pytest.fixture
def quick(world: SimpleNamespace, base: Settings, quick_train: Say, monkeypatch: pytest.MonkeyPatch) -> Say:  # noqa: F811
    """Launches whose jobs are composed here: by Hydra each takes a third of a second, twice."""
    base = dataclasses.replace(base, data=DataSettings(name=Corpus.files, path=str(world.folder / "texts")))
    defaults = {"pe": "none", "optim.lr": ",".join(map(str, RATES)), "optim.pe_lr_mult": "null", "seed": "0"}

    def planned(typed: Typed) -> Plan:
        given = defaults | dict(setting.split("=", 1) for setting in typed.settings)
        grid = [float(each) for each in given.get("optim.pe_lr_mult_grid", "[1,3]")[1:-1].split(",")]
        keys = ("pe", "optim.lr", "optim.pe_lr_mult", "seed")
        found = []
        for values in itertools.product(*(given[key].split(",") for key in keys)):
            pe, lr, multiplier, seed = values
            own = {"lr": float(lr), "pe_lr_mult": None if multiplier == "null" else float(multiplier)}
            settings = dataclasses.replace(
                base,
                scheme=pe,
                pe=options_of(pe, {}),
                optim=OptimSettings(**own, pe_lr_mult_grid=grid),
                train=dataclasses.replace(base.train, steps=int(given.get("train.steps", 1600))),
                seed=int(seed),
            )
            folder = Path("outputs", given["study"], settings.run_name)
            found.append(Job([f"{key}={value}" for key, value in zip(keys, values, strict=True)], settings, folder))
        return Plan(found, Path("outputs", given["study"]), True, False)

    def hand_over(typed: Typed, program: list[str]) -> None:
        for job in planned(typed).jobs:
            if status_of(job.folder) not in (records.COMPLETE, records.DIVERGED):
                jobs.run(job.settings, job.folder, "", alone=False)

    monkeypatch.setattr(overrides, "plan", planned)
    monkeypatch.setattr(posbuild.launch, "hand_over", hand_over)
    return lambda *arguments: quick_train("experiment=tune", *arguments, "study=tune")


def tuning(study: Path) -> dict[str, Any]:
    (found,) = records.read_json(study / "comparison.json")["tuning"]
    return found


def best(study: Path) -> dict[str, tuple]:
    return {item["label"]: (item["lr"], item["pe_lr_mult"]) for item in tuning(study)["choices"]}


def test_the_experiment_is_every_core_scheme_at_half_the_budget_without_test_documents() -> None:
    (job,) = overrides.plan(take_apart(["experiment=tune", "pe=none", "optim.lr=3e-3"])).jobs
    asked, steps = job.settings.eval, job.settings.train.steps
    assert 2 * steps == TrainSettings.steps and job.settings.seed == 0
    assert not any((asked.whole_window_tokens, asked.fixed_targets, asked.recall_passages, asked.order_windows))
    assert not any((asked.probes, asked.cost_rounds))
    found, starter = (
        yaml.safe_load((conf_dir() / "experiment" / f"{name}.yaml").read_text(encoding="utf-8"))["hydra"]["sweeper"][
            "params"
        ]
        for name in ("tune", "starter")
    )
    assert found["pe"] == starter["pe"]
    assert [float(rate) for rate in found["optim.lr"].split(",")] == [*RATES] and OptimSettings.lr in RATES


def test_one_launch_tries_the_rates_and_then_the_multipliers_at_the_best(quick: Say, world: SimpleNamespace) -> None:
    arguments = ["pe=none,t5", "optim.pe_lr_mult_grid=[1,10,30]"]
    status, out, err = quick(*arguments)
    assert status == 0, out + err
    assert world.ran[:8] == [(name, rate, mult, 0) for name, mult in (("none", 1.0), ("t5", 30.0)) for rate in RATES]
    assert world.ran[8:] == [("t5", 1e-2, 1.0, 0), ("t5", 1e-2, 10.0, 0)]  # that with 30 is there
    study = world.folder / "outputs" / "tune"
    assert best(study) == {"none": (3e-3, None), "t5": (1e-2, 10.0)}
    assert (
        "Tuning on validation documents, tuning seed 0: the rates 0.001, 0.003, 0.01, 0.03 for each of none, t5; then the "
        "multipliers 1, 10, 30 of the rate of its own parameters for t5, each at its best rate. 10 runs in all."
    ) in out
    assert (
        "Tuning t5: of the rates 0.001, 0.003, 0.01, 0.03 the best is 0.01, with a validation loss of 1.300; now" in out
    )
    content = records.read_json(study / "study.json")
    assert len(content["jobs"]) == 10 and len(content["command"].splitlines()) == 1
    last = out.splitlines()[-1]
    assert shlex.split(last.partition("scheme: ")[2]) == [
        "python", "train.py", "-m", "pe=none,t5", "seed=1,2,3", "optim.tuned=null,outputs/tune",
    ]  # fmt: skip
    before = [*world.ran]
    assert quick(*arguments)[0] == 0
    assert world.ran == before  # nothing is left to do


def test_a_failed_job_costs_no_other_and_the_same_command_goes_on(quick: Say, world: SimpleNamespace) -> None:
    arguments = ["pe=t5", "optim.pe_lr_mult_grid=[10,30]"]
    world.loss = lambda settings: records.FAILED if settings.optim.lr == 1e-2 else loss(settings)
    status, out, _ = quick(*arguments)
    study = world.folder / "outputs" / "tune"
    assert status == 1 and best(study) == {"t5": (3e-3, 10.0)}
    assert "1 of its runs is neither complete nor diverged" in out and "Results on test documents" not in out
    with pytest.raises(ConfigError, match="has not finished tuning"):
        tuned_best(str(study), T5)
    world.loss = loss
    before = len(world.ran)
    assert quick(*arguments)[0] == 0
    assert world.ran[before:] == [("t5", 1e-2, 30.0, 0), ("t5", 1e-2, 10.0, 0)]
    assert best(study) == {"t5": (1e-2, 10.0)} and tuned_best(str(study), T5) == (1e-2, 10.0)


def test_a_wider_grid_is_given_in_the_same_study(quick: Say, world: SimpleNamespace) -> None:
    world.loss = lambda settings: 1.5 - settings.optim.lr
    _, out, _ = quick("pe=none")
    assert "The best rate of none, 0.03, lies at the edge of the grid: widen it with optim.lr=0.09 in the same" in out
    world.loss = lambda settings: 1.6
    assert quick("pe=none", "optim.lr=0.09")[0] == 0
    assert tuning(world.folder / "outputs" / "tune")["rates"] == [*RATES, 0.09]
    assert best(world.folder / "outputs" / "tune") == {"none": (3e-2, None)}


def test_a_wider_grid_is_judged_with_what_was_tried_before(quick: Say, world: SimpleNamespace) -> None:
    arguments = ["pe=t5", "optim.pe_lr_mult_grid=[10,30]"]
    assert quick(*arguments)[0] == 0
    before = len(world.ran)
    world.loss = lambda settings: 1.9
    assert quick(*arguments, "optim.lr=0.09")[0] == 0
    assert world.ran[before:] == [("t5", 0.09, 30.0, 0)]  # the best stays 1e-2, whose multipliers were tried


def test_seeds_are_tuning_seeds_and_results_have_others(quick: Say, world: SimpleNamespace) -> None:
    _, out, _ = quick("pe=none", "seed=1,2", "train.steps=400")
    assert "tuning seeds 1, 2" in out and {run[3] for run in world.ran} == {1, 2}
    assert "seed=0,3,4" in out.splitlines()[-1] and "train.steps=800" in out.splitlines()[-1]


def test_where_all_rates_diverge_there_is_nothing_to_go_on_with(quick: Say, world: SimpleNamespace) -> None:
    world.loss = lambda settings: records.DIVERGED
    status, out, _ = quick("pe=t5")
    assert status == 0 and "no rate gives a loss in every seed" in out and "Results on" not in out
    assert len(world.ran) == 4


@pytest.mark.slow
def test_by_hydra(quick_train: Say, world: SimpleNamespace) -> None:  # noqa: F811
    arguments = ["data=files", "data.path=texts", "train.validation_windows=4", "logger=none"]
    rates = ["pe=t5", "optim.lr=3e-3,1e-2", "optim.pe_lr_mult_grid=[10,30]"]
    status, out, err = quick_train("experiment=tune", *arguments, *rates, "study=研究 1, [b]")
    assert status == 0, out + err
    assert world.ran == [("t5", 3e-3, 30.0, 0), ("t5", 1e-2, 30.0, 0), ("t5", 1e-2, 10.0, 0)]
    assert best(world.folder / "outputs" / "研究 1, [b]") == {"t5": (1e-2, 10.0)}


# --- optim.tuned ------------------------------------------------------------------------------------------------------


@pytest.fixture
def tuned(world: SimpleNamespace) -> SimpleNamespace:
    """none does best at the shared rate, t5 at 1e-2 with the multiplier 10."""
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
    assert tuned_best("outputs/tune", {"name": "none"}) == (3e-3, None)


def test_a_sweep_at_both_trains_once_what_is_the_same(tuned: SimpleNamespace, quick_train: Say) -> None:  # noqa: F811
    (tuned.folder / "outputs" / "tune").rename(tuned.folder / "outputs" / "調 [1] b")
    small = ["logger=none", "data=files", "data.path=texts", "train.validation_windows=4", "eval=validation"]
    status, out, err = quick_train("-m", "pe=none,t5", *small, "optim.tuned=null,outputs/調 [1] b", "study=both")
    assert status == 0, out + err
    assert tuned.ran == [("none", 3e-3, 1.0, 0), ("t5", 3e-3, 30.0, 0), ("t5", 1e-2, 10.0, 0)]
    study = tuned.folder / "outputs" / "both"
    comparison = records.read_json(study / "comparison.json")
    assert [(budget["lr"], len(budget["runs"])) for budget in comparison["budgets"]] == [(3e-3, 2), (None, 2)]
    noted = {
        job["folder"].partition("_")[0]: job.get("tuned") for job in records.read_json(study / "study.json")["jobs"]
    }
    assert noted["none"] == [None, str(tuned.folder / "outputs" / "調 [1] b")]


@pytest.mark.parametrize(
    ("study", "pe", "words"),
    [
        (
            "outputs/tune",
            {"name": "rope", "base": 1e4},
            ["pe=rope pe.base=10000.0", "no best rate", "It tuned none, t5"],
        ),
        ("outputs/nowhere", {"name": "t5"}, ["no folder", "outputs/nowhere", "experiment=tune"]),
        ("texts", {"name": "t5"}, ["no comparison.json", "texts", "experiment=tune"]),
        ("outputs/latest", {"name": "t5"}, ["Use optim.tuned=outputs/tune"]),
    ],
)
def test_what_is_no_tuning_study_of_the_scheme_is_one_message(
    study: str, pe: dict[str, Any], words: list[str], tuned: SimpleNamespace
) -> None:
    with pytest.raises(ConfigError) as error:
        tuned_best(study, pe)
    assert all(word in str(error.value) for word in [f"optim.tuned={study}", *words]), error.value


def test_a_study_that_did_not_tune_is_refused(tmp_path: Path) -> None:
    study = starter(tmp_path / "s", seeds=(0,), schemes=("alibi",))
    write(compare([study]), study)
    with pytest.raises(ConfigError, match="is no study that tuned"):
        tuned_best(str(study), {"name": "alibi"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["optim.tuned=outputs/tune", "optim.pe_lr_mult_grid=[1]"], ["optim.pe_lr_mult_grid=[1.0]", "Leave one out"]),
        (["optim.pe_lr_mult_grid=[0]"], ["optim.pe_lr_mult_grid=[0.0]", "each must be > 0"]),
        (["optim.pe_lr_mult_grid=[a]"], ["optim.pe_lr_mult_grid=[a]", "a list of numbers"]),
        (["optim.tuned=null,outputs/tune"], ["several values", "-m"]),
    ],
    ids=lambda value: value[-1],
)
def test_settings_that_cannot_be_used_are_one_message(
    arguments: list[str],
    words: list[str],
    tuned: SimpleNamespace,
    quick_train: Say,  # noqa: F811
) -> None:
    status, _, err = quick_train("pe=t5", *arguments, "logger=none", "study=s")
    assert status == 2 and all(word in err for word in words), err
    assert len(err.splitlines()) == 1 and tuned.ran == []


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
