"""What a difference needs, held against published tables of power, simulation and sums by hand."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from posbuild.comparison.planning import (
    Need,
    Plan,
    detectable,
    growth,
    plan,
    power,
    seeds_for,
    spread_factors,
)
from posbuild.errors import ConfigError
from posbuild.records import Record, Row
from posbuild.report.plan import sentences
from tests.comparison.studies import add_run, measured, record, starter

AT = {"length": 64, "window": 0}
GAPS = {0.25: 0.40, 0.5: 0.20, 1.0: 0.10}  # moved by 0.2, then by 0.1: half as much at each doubling


def run(scheme: str, seed: int, documents: tuple[float, ...], gaps: dict[float, float] | None = None) -> Record:
    """A run with these losses, one a document of 100 tokens, and validation losses that are 1 and the gap."""
    groups = [(str(number), 100 * loss, 100) for number, loss in enumerate(documents)]
    row = Row(
        measure="loss/whole_windows",
        at=AT,
        value=sum(documents) / len(documents),
        unit="nats/token",
        count=100 * len(documents),
        groups=groups,
    )
    way = gaps or dict.fromkeys(GAPS, 0.0)
    content = record(
        scheme, seed, found=[row, *(measured("training/loss", 1 + gap, fraction=part) for part, gap in way.items())]
    )
    content.data["tokens"] = {"test": 5000}
    return content


def study(folder: Path, *runs: Record) -> Path:
    for each in runs:
        add_run(folder, each)
    return folder


def two_schemes(folder: Path, gaps: dict[float, float] | None = None) -> Path:
    """alibi ahead by 0.01, 0.02 and 0.03 in three seeds, by 0.1 more in one document than in the other."""
    runs = []
    for seed, ahead in enumerate((0.01, 0.02, 0.03)):
        runs.append(run("alibi", seed, (1.0, 2.0)))
        runs.append(run("rope", seed, (1.0 + ahead - 0.05, 2.0 + ahead + 0.05), gaps))
    return study(folder, *runs)


def only(plans: list[Plan]) -> tuple[Plan, Need]:
    (found,) = plans
    (need,) = found.needs
    return found, need


@pytest.mark.parametrize(("effect", "seeds"), [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10)])
def test_seeds_are_those_of_published_tables(effect: float, seeds: int) -> None:
    # Paired t test, two-sided, alpha 0.05, power 0.8: the tables that every statistics course prints.
    assert seeds_for(effect, 1.0, 0.05) == seeds
    assert power(seeds, effect * math.sqrt(seeds), 0.05) >= 0.8 > power(seeds - 1, effect * math.sqrt(seeds - 1), 0.05)


@pytest.mark.parametrize("shift", [0.0, 3.0, 8.0])
def test_power_by_integration(shift: float) -> None:
    # Three values: the estimated variance over the true one is V / 2, and V, chi-squared with 2 degrees of freedom, has
    # the density exp(-v / 2) / 2. Given V, the mean is found where a normal variable exceeds t sqrt(V / 2) - shift.
    def found(v: float) -> float:
        return math.erfc((4.302653 * math.sqrt(v / 2) - shift) / math.sqrt(2)) / 2 * math.exp(-v / 2) / 2

    points = numpy.linspace(0, 60, 20_001)
    values = [found(point) for point in points]
    expected = (sum(values) - (values[0] + values[-1]) / 2) * (points[1] - points[0])
    assert power(3, shift, 0.05) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("n", "t"), [(2, 12.706205), (3, 4.302653), (6, 2.570582)])
def test_what_can_be_shown_is_found_in_four_of_five_simulated_studies(n: int, t: float) -> None:
    shown = detectable(n, 0.03, 0.05)
    samples = numpy.random.default_rng(0).normal(shown, 0.03, size=(20_000, n))
    found = samples.mean(axis=1) > t * samples.std(axis=1, ddof=1) / math.sqrt(n)
    assert found.mean() == pytest.approx(0.8, abs=0.012)


def test_ends_of_the_search_for_seeds() -> None:
    assert seeds_for(0.02, 0.0, 0.05) == 2
    assert seeds_for(0.02, 1e-12, 0.05) == 2
    assert seeds_for(0.001, 1.0, 0.05) == math.inf


def test_the_true_spread_may_lie_far_from_that_of_few_seeds() -> None:
    # Chi-squared with 2 degrees of freedom: its quantile is -2 ln(1 - p).
    low, high = spread_factors(3)
    assert low == pytest.approx(math.sqrt(2 / (-2 * math.log(0.025))))
    assert high == pytest.approx(math.sqrt(2 / (-2 * math.log(0.975))))


@pytest.mark.parametrize(
    ("gaps", "times", "why"),
    [
        (GAPS, 5.0, ""),  # 0.1 has to be halved log2(5) times to be 0.02
        ({part: -gap for part, gap in GAPS.items()}, 5.0, ""),
        ({0.25: 0.5, 0.5: 0.11, 1.0: 0.10}, 1.0, ""),
        ({0.5: 0.11, 1.0: 0.10}, 1.0, ""),
        ({0.5: 0.20, 1.0: 0.10}, math.inf, "the loss at a quarter of the budget was not measured"),
        ({1.0: 0.10}, math.inf, "the loss at half or all of the budget was not measured"),
        ({0.25: 0.2, 0.5: 0.2, 1.0: 0.1}, math.inf, "the gap moves no less than it did before"),
        ({0.25: 0.1, 0.5: 0.2, 1.0: 0.1}, math.inf, "the gap moves no less than it did before"),  # turns round
        ({0.25: 0.31, 0.5: 0.20, 1.0: 0.10}, math.inf, "it would take more than 10 times as many"),
    ],
)
def test_budget_until_a_gap_rests(gaps: dict[float, float], times: float, why: str) -> None:
    assert growth(gaps, 0.02) == (pytest.approx(times), why)


def test_a_plan_by_hand(tmp_path: Path) -> None:
    found, need = only(plan(two_schemes(tmp_path / "s", GAPS), 0.02))
    assert (need.pair, need.gap) == (("alibi", "rope"), pytest.approx(-0.02))
    assert (need.seeds.number, need.seeds.spread) == (3, pytest.approx(0.01))
    # Effect 2, two-sided at 0.05, power 0.8: 5 seeds (4 have a power of 0.72, 5 of 0.91).
    assert need.seeds.needed == 5
    assert (need.steps.moved, need.steps.needed) == (pytest.approx(0.1), 5 * found.steps)
    # Two documents whose differences lie 0.1 apart: drawn again, a mean spreads by 0.1 / (2 sqrt 2).
    assert need.tokens.scored == 200
    assert need.tokens.detectable == pytest.approx((1.959964 + 0.841621) * 0.1 / math.sqrt(8), rel=0.05)
    assert need.tokens.needed == math.ceil(200 * (need.tokens.detectable / 0.02) ** 2)
    assert (found.alpha, found.test, found.difference) == (0.05, 5000, 0.02)
    assert (found.seeds, found.tokens) == (need.seeds, need.tokens)  # one pair is all together


def test_half_the_difference_needs_more_of_everything(tmp_path: Path) -> None:
    folder = two_schemes(tmp_path / "s", GAPS)
    (_, whole), (_, half) = only(plan(folder, 0.02)), only(plan(folder, 0.01))
    assert half.seeds.needed > whole.seeds.needed  # type: ignore[operator]
    assert half.steps.needed == 2 * whole.steps.needed  # type: ignore[operator]
    assert half.tokens.needed == pytest.approx(4 * whole.tokens.needed, abs=4)  # type: ignore[operator]
    assert (half.seeds.detectable, half.tokens.detectable) == (whole.seeds.detectable, whole.tokens.detectable)


def test_several_pairs_are_tested_at_once_and_pooled(tmp_path: Path) -> None:
    folder = two_schemes(tmp_path / "s")
    study(folder, *(run("t5", seed, (1.2, 2.2)) for seed in (0, 1, 2)))
    (found,) = plan(folder, 0.02)
    assert found.alpha == pytest.approx(0.05 / 3)
    spreads = [need.seeds.spread or 0.0 for need in found.needs]
    assert spreads == pytest.approx([0.01, 0.0, 0.01])
    assert found.seeds.spread == pytest.approx(0.01 * math.sqrt(2 / 3))
    assert found.needs[0].seeds.needed > only(plan(two_schemes(tmp_path / "pair"), 0.02))[1].seeds.needed  # type: ignore[operator]


def test_a_scheme_with_one_seed_leaves_the_others_planned(tmp_path: Path) -> None:
    folder = two_schemes(tmp_path / "s")
    study(folder, run("t5", 0, (1.2, 2.2)), run("sinusoidal", 7, (1.2, 2.2)))
    (found,) = plan(folder, 0.02)
    seeds = {need.pair: (need.seeds.number, need.seeds.needed) for need in found.needs}
    assert seeds["alibi", "t5"] == (1, None)
    assert seeds["alibi", "rope"][0] == 3
    assert found.seeds.detectable is None and found.seeds.needed is not None
    assert "alibi and sinusoidal: no seed in common" in found.left_out


def test_steps_cannot_be_told_of_a_run_that_has_not_learned(tmp_path: Path) -> None:
    folder = two_schemes(tmp_path / "s", dict.fromkeys(GAPS, 1.5))
    _, need = only(plan(folder, 0.02))
    assert (need.steps.needed, need.steps.why) == (None, "rope, seed 0, has not learned")


def test_tokens_cannot_be_told_from_one_document(tmp_path: Path) -> None:
    runs = [
        run(scheme, seed, (loss + 0.001 * seed,)) for scheme, loss in (("alibi", 1.0), ("t5", 1.1)) for seed in (0, 1)
    ]
    _, need = only(plan(study(tmp_path / "s", *runs), 0.02))
    assert (need.tokens.scored, need.tokens.detectable, need.tokens.needed) == (100, None, None)


def test_one_seed_tells_of_tokens_alone(tmp_path: Path) -> None:
    folder = study(tmp_path / "s", run("alibi", 0, (1.0, 2.0)), run("rope", 0, (0.96, 2.06)))
    with pytest.raises(ConfigError) as stop:
        plan(folder, 0.02)
    for part in (str(folder), "two seeds in common", "scored tokens", "200 were scored", "seed=0,1,2"):
        assert part in str(stop.value)


def test_a_budget_with_one_seed_is_told_beside_one_with_several(tmp_path: Path) -> None:
    folder = two_schemes(tmp_path / "s")
    for scheme in ("alibi", "rope"):
        short = run(scheme, 0, (1.0, 2.0))
        short.settings["train"]["steps"] = 7
        add_run(folder, short, f"{scheme}_short")
    several, alone = sorted(plan(folder, 0.02), key=lambda each: each.seeds.number, reverse=True)
    assert (several.seeds.number, alone.seeds.number, alone.seeds.needed) == (3, 1, None)
    assert "no two schemes have two seeds in common" in sentences(alone)[1]


def test_one_scheme_and_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"only alibi was measured.*pe=rope,alibi"):
        plan(starter(tmp_path / "one", schemes=("alibi",)), 0.02)
    with pytest.raises(ConfigError, match="no run is complete"):
        plan(failed(tmp_path / "none"), 0.02)
    with pytest.raises(ConfigError, match="no run is in this folder"):
        (tmp_path / "empty").mkdir()
        plan(tmp_path / "empty", 0.02)
    other = run("rope", 0, (1.0, 2.0))
    other.settings["train"]["steps"] = 7
    with pytest.raises(ConfigError, match="no two schemes can be compared"):
        plan(study(tmp_path / "apart", run("alibi", 0, (1.0, 2.0)), other), 0.02)


def failed(folder: Path) -> Path:
    add_run(folder, record("alibi"), status="failed")
    return folder


@pytest.mark.parametrize("difference", [0.0, -0.02, math.inf, math.nan])
def test_a_difference_that_is_none_is_refused(tmp_path: Path, difference: float) -> None:
    with pytest.raises(ConfigError, match=f"--difference {difference:g}: .*0.02"):
        plan(tmp_path, difference)


def test_planning_needs_no_torch(tmp_path: Path) -> None:
    folder = two_schemes(tmp_path / "s")
    code = (
        "import sys, pathlib; from posbuild.comparison.planning import plan; from posbuild.report.plan import print_plan\n"
        "print_plan(plan(pathlib.Path(sys.argv[1]), 0.02)); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(folder)], check=False).returncode == 0
