"""What a difference needs, as `posbuild plan` prints it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from posbuild.comparison.planning import POWER, Need, Plan, Seeds, Tokens, spread_factors
from posbuild.comparison.statistics import ALPHA, LEVEL, MOST_SEEDS
from posbuild.report import words
from posbuild.report.grid import Grid
from posbuild.report.tables import print_grid, terminal

if TYPE_CHECKING:
    from rich.console import Console

UNKNOWN = "cannot be told"


def print_plan(plans: list[Plan], console: Console | None = None) -> None:
    """For each budget a table with a row a pair, and what it says in sentences."""
    console = terminal(console)
    for plan in plans:
        console.print(f"\n{plan.scope}", markup=False)
        console.print(f"Loss in whole windows of {plan.train_length} tokens, {words.NATS}.", markup=False)
        print_grid(console, grid(plan))
        for sentence in sentences(plan):
            console.print(f"- {sentence}", markup=False)


def grid(plan: Plan) -> Grid:
    """One row a pair, and one of all together."""
    header = ["pair", "gap", "spread", "seeds", "seeds show", "seeds needed", "gap moved", "steps needed"]
    header += ["tokens", "tokens show", "tokens needed"]
    found = [[_name(need), *_row(need.seeds, need.tokens, need)] for need in plan.needs]
    if len(plan.needs) > 1:
        found.append(["all together", *_row(plan.seeds, plan.tokens)])
    return Grid(header, found)


def _row(seeds: Seeds, tokens: Tokens, need: Need | None = None) -> list[str]:
    return [
        words.change(need.gap) if need else "",
        _loss(seeds.spread),
        str(seeds.number),
        _loss(seeds.detectable),
        _count(seeds.needed),
        (UNKNOWN if need.steps.moved is None else words.change(need.steps.moved)) if need else "",
        _count(need.steps.needed) if need else "",
        _count(tokens.scored),
        _loss(tokens.detectable),
        _count(tokens.needed),
    ]


def _loss(value: float | None) -> str:
    return UNKNOWN if value is None else words.nats(value)


def _count(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,}" if math.isfinite(value) else f"over {MOST_SEEDS:,}"


def sentences(plan: Plan) -> list[str]:
    """What the study shows as it is, what the difference needs, and what these numbers rest on."""
    left_out = [f"Not planned for: {told}." for told in plan.left_out]
    return [_now(plan), _seeds(plan), _steps(plan), _tokens(plan), *left_out, _basis(plan), *_spread(plan)]


def _now(plan: Plan) -> str:
    seeds, tokens = plan.seeds, plan.tokens
    by_seeds = "of one seed no difference can be told"
    if seeds.detectable is not None:
        by_seeds = (
            f"its {words.counted(seeds.number, 'seed')} show a difference of {_loss(seeds.detectable)} {words.NATS} or more"
            f"{_by_pair([need.seeds.detectable for need in plan.needs], _loss)}"
        )
    if tokens.detectable is None:
        return f"As the study is, {by_seeds}."
    return f"As the study is, {by_seeds}, and its documents one of {_loss(tokens.detectable)} or more: the larger of the two counts."


def _seeds(plan: Plan) -> str:
    if plan.seeds.needed is None:
        return "Seeds needed cannot be told: no two schemes have two seeds in common."
    by_pair = _by_pair([need.seeds.needed for need in plan.needs], _count)
    return f"A difference of {plan.difference:g} {words.NATS} needs {_count(plan.seeds.needed)} seeds{by_pair}."


def _steps(plan: Plan) -> str:
    """Pairs whose gap has come to rest, those that need more steps, and those of which that cannot be told, with reasons."""
    more = {_name(need): need.steps.needed for need in plan.needs if (need.steps.needed or 0) > plan.steps}
    unknown: dict[str, list[str]] = {}
    for need in plan.needs:
        if need.steps.needed is None:
            unknown.setdefault(need.steps.why, []).append(_name(need))
    resting = len(plan.needs) - len(more) - sum(map(len, unknown.values()))
    told = [
        f"The gap has to move by less than that over the last half of the budget. After {plan.steps:,} steps it does in {resting} "
        f"of {words.counted(len(plan.needs), 'pair')}."
    ]
    if more:
        needed = words.listed([f"{steps:,} ({pair})" for pair, steps in more.items()])
        told.append(f"Steps needed if it goes on shrinking at each doubling as it did at the last one: {needed}.")
    told += [f"Steps cannot be told of {words.listed(pairs)}: {why}." for why, pairs in unknown.items()]
    return " ".join(told)


def _tokens(plan: Plan) -> str:
    tokens = plan.tokens
    if tokens.needed is None:
        return "Evaluation tokens cannot be told: that takes sums of two documents or more, and as many tokens for all pairs."
    text = (
        f"It needs {words.counted(tokens.needed, 'scored token')}, against {tokens.scored:,} now "
        "(eval.whole_window_tokens; posbuild evaluate measures a finished run again)."
    )
    if plan.test is not None and tokens.needed > plan.test:
        text += f" The test documents hold {plan.test:,}, so it takes more text."
    return text


def _basis(plan: Plan) -> str:
    return (
        f"To show is to find the difference with a chance of {POWER:.0%}, by Student t tests paired over seeds (over documents, "
        f"normal), at {ALPHA:.0%} for {words.counted(len(plan.needs), 'pair')} at once: at {plan.alpha:.2g} each, the strictest "
        "step of Holm's correction."
    )


def _spread(plan: Plan) -> list[str]:
    """How far to trust the spreads; nothing where one seed has none."""
    several = [need.seeds.number for need in plan.needs if need.seeds.number > 1]
    if not several:
        return []
    low, high = spread_factors(min(several))
    text = (
        f"The spread of a pair over {words.counted(min(several), 'seed')} is rough: the true one is {low:.2g} to {high:.2g} times "
        f"it ({LEVEL:.0%} interval), and the seeds needed grow with its square."
    )
    return [f"{text} That of all together is steadier, if all pairs spread alike." if len(plan.needs) > 1 else text]


def _by_pair(values: Iterable[float | None], shown: Callable[[float | None], str]) -> str:
    """The least and the greatest of the pairs, where one sees a difference: " (by pair 5 to over 1,000)"."""
    known = [value for value in values if value is not None]
    low, high = shown(min(known)), shown(max(known))
    return f" (by pair {low} to {high})" if low != high else ""


def _name(need: Need) -> str:
    return " − ".join(need.pair)
