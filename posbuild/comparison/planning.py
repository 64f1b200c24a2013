"""How large a study has to be to show a difference between two schemes, and what the one at hand can show."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posbuild.comparison import learning, rows, runs, statistics, tuning
from posbuild.comparison.compare import MARGIN, Pair, Table, by_budget, place_key
from posbuild.comparison.statistics import ALPHA, MOST_SEEDS
from posbuild.errors import ConfigError

MEASURE = "loss/whole_windows"
POWER = 0.8  # the chance of finding a difference that is there
FARTHEST = 10  # times the budget: the gap at three points of it tells no more


@dataclass(frozen=True, kw_only=True)
class Seeds:
    """The part of the seeds, losses in nats/token; None: cannot be told.

    number      that both schemes have; of several pairs, the fewest
    spread      standard deviation of the paired differences over seeds; of several pairs, the root mean square
    detectable  the smallest difference that so many seeds show
    needed      for the difference asked for; inf: more than MOST_SEEDS
    """

    number: int
    spread: float | None
    detectable: float | None
    needed: float | None


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The part of the budget.

    moved   how far the gap of the validation losses moved over the last half, nats/token; None: not measured
    needed  training steps until it moves by less than the difference asked for; None: cannot be told
    why     that cannot be told
    """

    moved: float | None
    needed: int | None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The part of the documents; None: cannot be told.

    scored      tokens, a seed
    detectable  the smallest difference that they show, nats/token: seeds do not lessen it
    needed      scored tokens for the difference asked for
    """

    scored: int | None
    detectable: float | None
    needed: int | None


@dataclass(frozen=True, kw_only=True)
class Need:
    """What a difference needs, by what one pair of schemes shows. gap: first minus second, nats/token."""

    pair: tuple[str, str]
    gap: float
    seeds: Seeds
    steps: Steps
    tokens: Tokens


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a difference at the train length needs, by the runs of one budget.

    difference     nats/token
    alpha          of each test: ALPHA over the number of pairs, the first and strictest step of Holm's correction
    steps          of each run
    test           tokens of all test documents
    seeds, tokens  by the spreads of all pairs together
    left_out       pairs without a difference, and why
    """

    scope: str
    train_length: int
    difference: float
    alpha: float
    steps: int
    test: int | None
    needs: list[Need]
    seeds: Seeds
    tokens: Tokens
    left_out: list[str]


def plan(folder: Path, difference: float) -> list[Plan]:
    """A plan for each budget of a study in which two schemes have a difference.

    Raises ConfigError for a difference that is no positive number, and for a study without two schemes or two seeds.
    """
    if not 0 < difference < math.inf:
        raise ConfigError(f"--difference {difference:g}: give a positive number of nats/token, for example 0.02.")
    all_runs = runs.find([folder])
    tables = by_budget(all_runs, MARGIN, [])
    labels = {label for table in tables for label in table.records}
    if not labels and tuning.tunings(all_runs):
        raise ConfigError(
            f"posbuild plan {folder}: its runs tried rates, on validation documents, and compare no schemes. Give a study that "
            "trained with what it found (optim.tuned)."
        )
    if not labels:
        raise ConfigError(f"posbuild plan {folder}: no run is complete, so there is no spread to plan with.")
    if len(labels) == 1:
        raise ConfigError(
            f"posbuild plan {folder}: only {labels.pop()} was measured. A difference needs two schemes: add one, as in "
            "pe=rope,alibi."
        )
    plans = [found for table in tables if (found := _plan(table, difference))]
    if not plans:
        raise ConfigError(
            f"posbuild plan {folder}: no two schemes can be compared at the train length; posbuild compare {folder} says why."
        )
    if all(each.seeds.spread is None for each in plans):
        raise ConfigError(f"posbuild plan {folder}: {_one_seed(plans[0])} Add seeds, as in seed=0,1,2.")
    return plans


def power(n: int, shift: float, alpha: float) -> float:
    """The chance that a two-sided Student t test at `alpha` over n values finds a mean above zero to be so.

    shift  the true mean over its standard error; the test's t then follows the noncentral t distribution (exact)
    """
    from scipy import stats

    return float(stats.nct.sf(statistics.t_quantile(n, 1 - alpha), n - 1, shift))


def seeds_for(difference: float, spread: float, alpha: float) -> float:
    """The least seeds that find a difference with chance POWER; inf: more than MOST_SEEDS."""
    if not spread:
        return 2
    counts = range(2, MOST_SEEDS + 1)
    index = bisect.bisect_left(counts, True, key=lambda n: _finds(n, difference * math.sqrt(n) / spread, alpha))
    return counts[index] if index < len(counts) else math.inf


def detectable(n: int, spread: float, alpha: float) -> float:
    """The smallest difference that n seeds find with chance POWER, in the unit of `spread`."""
    from scipy import optimize

    # Twice the quantile and 3 is enough: the standard error seen is below 1.65 times the true one in 9 of 10 studies.
    most = 2 * statistics.t_quantile(n, 1 - alpha) + 3
    return float(optimize.brentq(lambda shift: power(n, shift, alpha) - POWER, 0, most)) * spread / math.sqrt(n)


def spread_factors(n: int) -> tuple[float, float]:
    """Between which multiples of the spread seen over n seeds the true one lies, at LEVEL (chi-squared)."""
    from scipy import stats

    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], n - 1)
    return math.sqrt((n - 1) / high), math.sqrt((n - 1) / low)


def growth(gaps: Mapping[float, float], difference: float) -> tuple[float, str]:
    """How many times the budget it takes until a gap moves by less than `difference` over the last half.

    gaps  first minus second by fraction of the budget, nats/token

    The movement is taken to shrink at each doubling as it did at the last one. Where that cannot be told: inf, and why.
    """
    last = learning.moved(gaps)
    if last is None:
        return math.inf, "the loss at half or all of the budget was not measured"
    if abs(last) < difference:
        return 1.0, ""
    if 0.25 not in gaps:
        return math.inf, "the loss at a quarter of the budget was not measured"
    before = gaps[0.5] - gaps[0.25]
    shrinks = last / before if before else math.inf
    if not 0 < shrinks < 1:
        return math.inf, "the gap moves no less than it did before"
    times = 2 ** (math.log(difference / abs(last)) / math.log(shrinks))
    return (times, "") if times <= FARTHEST else (math.inf, f"it would take more than {FARTHEST} times as many")


def _finds(n: int, shift: float, alpha: float) -> bool:
    return not power(n, shift, alpha) < POWER  # it is no number where the shift is so large that nobody can miss it


def _plan(table: Table, difference: float) -> Plan | None:
    pairs = table.pairs(MEASURE, place_key({"length": table.train_length, "window": 0}))
    compared = [pair for pair in pairs if not pair.absent]
    if not compared:
        return None
    alpha = ALPHA / len(compared)
    first = table.members[0].measured
    steps = first.settings["train"]["steps"]
    samples = [rows.differences(pair.rows) for pair in compared]
    errors = [[float(drawn.std(ddof=1)) for drawn in rows.redrawn(pair.rows)] for pair in compared]
    scored = [next(iter(pair.rows.values()))[0].count for pair in compared]
    needs = [
        Need(
            pair=pair.labels,
            gap=statistics.mean_and_half_width(sample)[0],
            seeds=_seeds([sample], difference, alpha),
            steps=_steps(table, pair, difference, steps),
            tokens=_tokens(error, count, difference, alpha),
        )
        for pair, sample, error, count in zip(compared, samples, errors, scored, strict=True)
    ]
    return Plan(
        scope=table.budget()["scope"],
        train_length=table.train_length,
        difference=difference,
        alpha=alpha,
        steps=steps,
        test=first.data.get("tokens", {}).get("test"),
        needs=needs,
        seeds=_seeds(samples, difference, alpha),
        tokens=_tokens([each for error in errors for each in error], rows.shared(scored), difference, alpha),
        left_out=[f"{' and '.join(pair.labels)}: {pair.absent[1]}" for pair in pairs if pair.absent],
    )


def _seeds(samples: Sequence[Sequence[float]], difference: float, alpha: float) -> Seeds:
    number = min(map(len, samples))
    several = [sample for sample in samples if len(sample) > 1]
    if not several:
        return Seeds(number=number, spread=None, detectable=None, needed=None)
    freedom = sum(len(sample) - 1 for sample in several)
    squares = math.fsum((len(sample) - 1) * statistics.spread(sample) ** 2 for sample in several)
    spread = math.sqrt(squares / freedom)
    return Seeds(
        number=number,
        spread=spread,
        detectable=detectable(number, spread, alpha) if number > 1 else None,
        needed=seeds_for(difference, spread, alpha),
    )


def _steps(table: Table, pair: Pair, difference: float, steps: int) -> Steps:
    gaps = table.gaps(pair)
    times, why = growth(gaps, difference)
    why = table.stuck(pair) or why
    return Steps(moved=learning.moved(gaps), needed=None if why else math.ceil(steps * times), why=why)


def _tokens(errors: Sequence[float], scored: int | None, difference: float, alpha: float) -> Tokens:
    """By the standard deviations, as the documents are drawn again, of the difference of single seeds."""
    from scipy import stats

    if not errors:
        return Tokens(scored=scored, detectable=None, needed=None)
    error = math.sqrt(math.fsum(each**2 for each in errors) / len(errors))
    smallest = float(stats.norm.isf(alpha / 2) + stats.norm.ppf(POWER)) * error
    needed = None if scored is None else math.ceil(scored * (smallest / difference) ** 2)
    return Tokens(scored=scored, detectable=smallest, needed=needed)


def _one_seed(plan: Plan) -> str:
    """What can be said where no two schemes have two seeds in common: of evaluation tokens alone."""
    text = "no two schemes have two seeds in common, so the spread over seeds is unknown, and how many are needed."
    if plan.tokens.needed is None:
        return text
    return (
        f"{text} Only evaluation tokens can be told: by the spread over documents {plan.difference:g} nats/token needs "
        f"{plan.tokens.needed:,} scored tokens (eval.whole_window_tokens), and {plan.tokens.scored:,} were scored."
    )
