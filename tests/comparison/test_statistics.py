import itertools
import math
from collections.abc import Iterator

import numpy
import pytest

from posbuild.comparison import statistics
from posbuild.comparison.statistics import holm, mean_and_half_width, p_values, seeds_needed, verdicts


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


def test_seeds_needed_by_hand() -> None:
    # Mean 0.017, spread 0.0141421: t(0.975, 4) = 2.776445 gives 0.01756 for 5 seeds, t(0.975, 5) = 2.570582 0.01484 for 6.
    assert seeds_needed([0.007, 0.027], margin=0.001) == 6


def test_seeds_needed_for_equivalence() -> None:
    # Mean 0: only the margin can decide.
    differences = [0.03, -0.03]
    needed = seeds_needed(differences, margin=0.02)
    assert needed is not None
    assert statistics.t_quantile(needed) * statistics.spread(differences) / math.sqrt(needed) < 0.02


def test_seeds_needed_is_unknown_for_one_seed_and_beyond_reach() -> None:
    assert seeds_needed([0.1], 0.02) is None
    assert seeds_needed([10.0, -10.0], 0.02) is None


def test_p_values_by_the_closed_forms_of_one_and_two_degrees_of_freedom() -> None:
    # Two values: 1 degree of freedom, p = 1 - 2/pi atan(t). Three: 2 degrees, p = 1 - t / sqrt(2 + t^2).
    t, error = 0.015 / 0.005, 0.005
    assert p_values([0.01, 0.02], 0.05)[0] == pytest.approx(1 - 2 / math.pi * math.atan(t), abs=1e-12)
    t = (0.05 - 0.015) / error
    assert p_values([0.01, 0.02], 0.05)[1] == pytest.approx(1 - 2 / math.pi * math.atan(t), abs=1e-12)
    for sign in (1, -1):
        t, error = 2 / (1 / math.sqrt(3)), 1 / math.sqrt(3)
        differ, alike = p_values([sign * 1.0, sign * 2.0, sign * 3.0], 5.0)
        assert differ == pytest.approx(1 - t / math.sqrt(2 + t * t), abs=1e-12)
        t = (5 - 2) / error
        assert alike == pytest.approx(1 - t / math.sqrt(2 + t * t), abs=1e-12)


def test_p_values_of_what_leaves_no_doubt() -> None:
    assert p_values([0.0, 0.0], 0.02) == (1.0, 0.0)
    assert p_values([0.5, 0.5], 0.02) == (0.0, 1.0)
    assert p_values([0.02, 0.02], 0.02) == (0.0, 1.0)  # on the margin is not inside


def test_alone_an_outcome_is_what_its_interval_says() -> None:
    generator = numpy.random.default_rng(2)
    seen = set()
    for _ in range(200):
        differences = list(generator.normal(generator.uniform(-0.03, 0.03), 0.01, size=int(generator.integers(2, 6))))
        mean, half = mean_and_half_width(differences)
        assert half is not None
        inside = abs(mean) + half < 0.02
        expected = "better" if mean > half else "worse" if mean < -half else "equivalent" if inside else "undecided"
        assert outcome(differences, 0.02) == expected
        seen.add(expected)
    assert seen == {"better", "worse", "equivalent", "undecided"}


def test_holm_by_hand() -> None:
    # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1: 0.02, 0.03, 0.06, 0.04, and none below the one before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.2]) == [0.2]
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_does_not_depend_on_the_order_given() -> None:
    values = [0.001, 0.02, 0.02, 0.3]
    expected = dict(zip(values, holm(values), strict=True))
    for order in itertools.permutations(values):
        assert holm(order) == [expected[value] for value in order]


def test_the_smallest_p_helps_the_next() -> None:
    # With 3 tests Bonferroni asks each p to be below 0.0167; Holm asks 0.025 of the second and 0.05 of the third.
    certain, second, third = [0.1, 0.1001], [0.05, 0.0536], [0.05, 0.0560]
    assert p_values(second, 0.001)[0] == pytest.approx(0.0221, abs=1e-4)
    assert p_values(third, 0.001)[0] == pytest.approx(0.0360, abs=1e-4)
    family = {"certain": certain, "second": second, "third": third}
    assert {name: found.outcome for name, found in verdicts(family, 0.001).items()} == dict.fromkeys(family, "better")
    alone = [name for name, differences in family.items() if p_values(differences, 0.001)[0] * 3 < 0.05]
    assert alone == ["certain"]
    without = verdicts({"second": second, "third": third, "doubtful": [0.1, -0.1]}, 0.001)
    assert {found.outcome for found in without.values()} == {"undecided"}


def test_one_seed_is_no_member_of_the_family() -> None:
    found = verdicts({"one": [0.3], "two": [0.10, 0.11]}, 0.02)
    assert (found["one"].outcome, found["one"].p_difference, found["one"].seeds_needed) == ("indication", None, None)
    assert found["two"].p_difference == pytest.approx(p_values([0.10, 0.11], 0.02)[0])


def sample(mean: float, deviation: float, n: int) -> list[float]:
    """n values with exactly this mean and standard deviation."""
    values = numpy.linspace(-1, 1, n)
    return list(mean + values * deviation / values.std(ddof=1))


@pytest.mark.parametrize(("mean", "expected"), [(0.03, "better"), (0.004, "equivalent")])
def test_the_seeds_named_decide_among_the_others_as_they_stand(mean: float, expected: str) -> None:
    others = {"open": [0.1, -0.1], "ahead": sample(0.1, 0.001, 4), "alike": sample(0.0, 0.001, 4)}
    needed = verdicts(others | {"this": sample(mean, 0.02, 2)}, 0.02)["this"].seeds_needed
    assert needed is not None and needed > 4
    assert verdicts(others | {"this": sample(mean, 0.02, needed)}, 0.02)["this"].outcome == expected
    assert verdicts(others | {"this": sample(mean, 0.02, needed - 1)}, 0.02)["this"].outcome == "undecided"


def simulated(true: numpy.ndarray, seeds: int, margin: float) -> Iterator[dict[tuple[int, int], str]]:
    """Outcomes of all pairs of schemes with these true losses, which spread by 1 over seeds, in 300 studies."""
    generator = numpy.random.default_rng(3)
    for _ in range(300):
        losses = true[:, None] + generator.normal(size=(len(true), seeds)) + 5 * generator.normal(size=seeds)
        pairs = itertools.combinations(range(len(true)), 2)
        family = {(first, second): list(losses[first] - losses[second]) for first, second in pairs}
        yield {pair: found.outcome for pair, found in verdicts(family, margin).items()}


def test_few_studies_of_equal_schemes_call_any_pair_better() -> None:
    studies = [{*found.values()} for found in simulated(numpy.zeros(7), seeds=3, margin=20.0)]
    assert 0.01 < sum(bool(found & {"better", "worse"}) for found in studies) / len(studies) < 0.085  # alone: 0.6


def test_few_studies_call_any_pair_equivalent_that_differs_by_the_margin() -> None:
    apart = [(first, second) for first in range(3) for second in range(3, 6)]
    studies = list(simulated(numpy.repeat([0.0, 8.0], 3), seeds=4, margin=8.0))
    assert sum("equivalent" in {found[pair] for pair in apart} for found in studies) / len(studies) < 0.05
    assert sum("equivalent" in found.values() for found in studies) / len(studies) > 0.5  # of those that are


@pytest.mark.parametrize("n", [2, 3, 5])
def test_student_intervals_cover_as_often_as_they_say(n: int) -> None:
    samples = numpy.random.default_rng(5).normal(size=(2000, n))
    hits = sum(abs(mean) < (half or 0) for mean, half in (mean_and_half_width(list(each)) for each in samples))
    assert 0.935 < hits / len(samples) < 0.965  # a bootstrap over 3 seeds: 0.74


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


def test_differences_are_redrawn_on_the_same_documents() -> None:
    first, second = [("a", 10.0, 10), ("b", 90.0, 30)], [("a", 5.0, 10), ("b", 75.0, 30)]
    assert set(numpy.round(numpy.unique(statistics.redrawn_differences(first, second)), 6)) == {0.5}
    for other in ([("a", 5.0, 10), ("c", 75.0, 30)], [("a", 5.0, 11), ("b", 75.0, 30)], second[:1]):
        with pytest.raises(ValueError, match="same documents"):
            statistics.redrawn_differences(first, other)
