import math

import numpy
import pytest

from posbuild.comparison import statistics
from posbuild.comparison.statistics import holm, mean_and_half_width, seeds_needed, verdicts


def outcome(differences: list[float], margin: float) -> str:
    return verdicts({"alone": differences}, margin)["alone"].outcome


def test_mean_and_interval_by_hand() -> None:
    # Mean 2, standard deviation 1, t(0.975, 2) = 4.302653: half width 4.302653 / sqrt(3) = 2.484138.
    mean, half = mean_and_half_width([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(2.484138, abs=1e-6)
    # Two values: t(0.975, 1) = 12.706205, spread 0.026 / sqrt(2), so the half width is 12.706205 * 0.026 / 2.
    assert mean_and_half_width([1.641, 1.615])[1] == pytest.approx(12.706205 * 0.013, abs=1e-7)


def test_one_value_has_no_interval() -> None:
    assert mean_and_half_width([1.3]) == (1.3, None)


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ([0.10, 0.11, 0.12], "better"),
        ([-0.10, -0.11, -0.12], "worse"),
        ([0.001, -0.001, 0.0005], "equivalent"),
        ([0.0, 0.0], "equivalent"),
        ([0.05, -0.02, 0.03], "undecided"),
        ([0.015, -0.012, 0.002], "undecided"),
        ([0.5], "indication"),
    ],
)
def test_outcome(differences: list[float], expected: str) -> None:
    assert outcome(differences, 0.02) == expected


def test_a_small_gap_that_is_certain_is_still_a_gap() -> None:
    assert outcome([0.0100, 0.0101, 0.0102], 0.02) == "better"


def test_seeds_needed_is_the_least_number_that_decides() -> None:
    differences = [0.05, -0.02, 0.03]
    mean, deviation = 0.02, statistics.spread(differences)
    needed = seeds_needed(differences, margin=0.01)
    assert needed is not None

    def half(n: int) -> float:
        return statistics.t_quantile(n) * deviation / math.sqrt(n)

    assert half(needed) < mean <= half(needed - 1)


def test_seeds_needed_for_equivalence() -> None:
    # Mean 0: only the margin can decide.
    differences = [0.03, -0.03]
    needed = seeds_needed(differences, margin=0.02)
    assert needed is not None
    assert statistics.t_quantile(needed) * statistics.spread(differences) / math.sqrt(needed) < 0.02


def test_seeds_needed_is_unknown_for_one_seed_and_beyond_reach() -> None:
    assert seeds_needed([0.1], 0.02) is None
    assert seeds_needed([10.0, -10.0], 0.02) is None


def test_bootstrap_of_equal_documents_has_no_width() -> None:
    drawn = statistics.redrawn_means([("a", 20.0, 10), ("b", 40.0, 20), ("c", 2.0, 1)])
    assert numpy.allclose(drawn, 2.0)


def test_bootstrap_weighs_documents_by_what_was_scored() -> None:
    groups = [("a", 10.0, 10), ("b", 270.0, 90)]
    drawn = statistics.redrawn_means(groups)
    assert set(numpy.round(numpy.unique(drawn), 6)) == {1.0, 2.8, 3.0}  # aa, ab, bb


def test_bootstrap_covers_the_mean_about_as_often_as_it_says() -> None:
    generator = numpy.random.default_rng(1)
    hits = 0
    for _ in range(200):
        groups = [(str(index), float(value), 1) for index, value in enumerate(generator.normal(size=40))]
        low, high = statistics.percentile_interval(statistics.redrawn_means(groups))
        hits += low < 0 < high
    assert 0.89 < hits / 200 < 0.99


def test_bootstrap_is_the_same_every_time() -> None:
    groups = [("a", 1.0, 1), ("b", 2.0, 1), ("c", 4.0, 1)]
    first = statistics.redrawn_means(groups).copy()
    statistics.draw_weights.cache_clear()
    assert (statistics.redrawn_means(groups) == first).all()
