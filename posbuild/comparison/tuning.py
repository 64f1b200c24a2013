"""Equal tuning: what every rate and multiplier tried gives on validation documents, and which a scheme does best with.

The best has the lowest mean validation loss over the tuning seeds, among those with a loss in every seed: one that
diverged is never the best. It was chosen on these documents and seeds, so results at it stand on test documents and on
other seeds: in a study with optim.tuned, where an outcome that differs from that at the shared rate is told.
"""

from __future__ import annotations

import functools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from posbuild import registry
from posbuild.comparison import learning, statistics
from posbuild.comparison.learning import STILL_LEARNING
from posbuild.comparison.runs import Run, objective
from posbuild.comparison.statistics import BETTER, EQUIVALENT, INDICATION, UNDECIDED, WORSE
from posbuild.errors import ConfigError
from posbuild.records import COMPLETE, DIVERGED
from posbuild.settings import WITHOUT_EFFECT, OptimSettings, options_of

MEASURE, AT, UNIT = "training/loss", {"fraction": 1.0}, "nats/token"
SHARED_RATE = OptimSettings.lr  # one rate for all schemes: the default
FEWEST = 4  # rates to try
ENDED = (COMPLETE, DIVERGED)  # what another launch would not change
LOWEST, HIGHEST = "lowest", "highest"
FLIPS, CHANGES = "flips", "changes"

Content = dict[str, Any]
Outcomes = Callable[[Sequence[Run]], list[Content]]  # of every pair of schemes among runs, one a scheme and seed


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A rate and a multiplier of one scheme, tried with some seeds.

    settings    those of its first run, plain
    multiplier  of the rate of the encoding's own parameters; None: it has none
    runs        by seed
    """

    label: str
    settings: Content
    multiplier: float | None
    runs: dict[int, Run]

    @property
    def rate(self) -> float:
        return self.settings["optim"]["lr"]

    @property
    def ended(self) -> bool:
        """Whether another launch would change nothing of it."""
        return all(run.status in ENDED for run in self.runs.values())

    @property
    def losses(self) -> dict[int, float]:
        """Validation loss by seed, nats/token, of the runs that have one."""
        found = {seed: learning.loss_at(run.record, 1.0) for seed, run in sorted(self.runs.items()) if run.record}
        return {seed: loss for seed, loss in found.items() if loss is not None}

    @property
    def mean(self) -> float:
        return statistics.mean_and_half_width([*self.losses.values()])[0]

    def content(self) -> Content:
        losses = self.losses
        statuses = sorted({run.status for run in self.runs.values() if run.status != COMPLETE})
        whole = losses and not statuses  # else a mean would be one over the seeds in which it went well
        mean, half = statistics.mean_and_half_width([*losses.values()]) if whole else (None, None)
        return {
            "label": self.label,
            "lr": self.rate,
            "pe_lr_mult": self.multiplier,
            "seeds": [*losses],
            "losses": [*losses.values()],
            "mean": mean,
            "half_width": half,
            "status": ", ".join(statuses) or COMPLETE,
        }


def trials(runs: Iterable[Run]) -> list[Trial]:
    """Every rate and multiplier that runs tried: by budget, scheme, rate and multiplier."""
    found: dict[tuple, Trial] = {}
    for run in runs:
        if not run.tries:
            continue
        try:
            each = multiplier(run.settings)
        except ConfigError as error:  # of another version
            run.reason = f"left out: {error}"
            continue
        trial = Trial(label=run.label, settings=run.settings, multiplier=each, runs={})
        key = (budget(run.settings), run.label, trial.rate, each or 0.0)
        found.setdefault(key, trial).runs[run.settings["seed"]] = run
    return [found[key] for key in sorted(found)]


def multiplier(settings: Content) -> float | None:
    """Of the rate of the encoding's own parameters, from plain settings; None where there are none."""
    if not _learns(json.dumps(settings["pe"])):
        return None
    given = settings["optim"]["pe_lr_mult"]
    return registry.scheme(settings["pe"]["name"]).pe_lr_mult if given is None else given


@functools.cache
def _learns(pe: str) -> bool:
    options = json.loads(pe)
    return options_of(options.pop("name"), options).has_parameters()


def best(those: Sequence[Trial]) -> Trial | None:
    """Of trials of one scheme that with the lowest mean loss, None where none has a loss in every seed."""
    seeds = {seed for trial in those for seed in trial.runs}
    whole = [trial for trial in those if trial.losses.keys() == seeds]
    return min(whole, key=lambda trial: trial.mean, default=None)


def budget(settings: Content) -> str:
    """What trials that are compared have in common, from plain settings: all that decides training but scheme, rate,
    multiplier and seed.
    """
    without = {*WITHOUT_EFFECT, ("optim", "lr"), ("optim", "pe_lr_mult")}
    content: Content = {
        section: {name: value for name, value in settings[section].items() if (section, name) not in without}
        for section in ("model", "data", "train", "optim")
    }
    content["objective"] = objective(settings)
    content["precision"] = settings.get("trainer", {}).get("precision")
    return json.dumps(content, sort_keys=True)


def tunings(runs: Sequence[Run]) -> list[Tuning]:
    """The trials among runs by budget, of the budgets in which some run is complete; numbered from 1.

    A run that came to an end is told its number.
    """
    groups: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials(runs):
        groups[budget(trial.settings)].append(trial)
    waiting = Counter(run.label for run in runs if not run.settings)
    measured = [those for those in groups.values() if any(trial.losses for trial in those)]
    return [Tuning(number, those, waiting) for number, those in enumerate(measured, start=1)]


class Tuning:
    """The trials of one budget."""

    def __init__(self, number: int, those: Sequence[Trial], waiting: Counter[str]) -> None:
        """waiting: how many jobs of a scheme were planned and never began, by label."""
        self.number, self.trials, self.waiting = number, those, waiting
        self.schemes: dict[str, list[Trial]] = defaultdict(list)
        for trial in those:
            self.schemes[trial.label].append(trial)
            for run in trial.runs.values():
                run.tuning = number if run.status in ENDED else None
        self.best = {label: found for label, those in self.schemes.items() if (found := best(those))}
        self.shared = {label: found for label in self.schemes if (found := self._shared(label))}

    @property
    def complete(self) -> list[Run]:
        """Every run with a record."""
        return _complete(self.trials)

    def content(self, outcomes: Outcomes, margin: float) -> Content:
        """What comparison.json holds of it.

        outcomes  of every pair of schemes, by the validation loss of the runs given
        """
        shared, own = (outcomes(_complete(chosen.values())) for chosen in (self.shared, self.best))
        return {
            "number": self.number,
            "measure": MEASURE,
            "at": AT,
            "unit": UNIT,
            "seeds": sorted({seed for trial in self.trials for seed in trial.runs}),
            "rates": sorted({trial.rate for trial in self.trials}),
            "multipliers": sorted({trial.multiplier for trial in self.trials if trial.multiplier is not None}),
            "shared_rate": SHARED_RATE,
            "trials": [trial.content() for trial in self.trials],
            "choices": [self._choice(label) for label in sorted(self.schemes)],
            "pairs": beside(shared, own, margin),
        }

    def notes(self) -> list[str]:
        """What lessens the worth of the choices, each a sentence."""
        rates = sorted({trial.rate for trial in self.trials})
        told = []
        if len(rates) < FEWEST:
            told.append(f"Rates tried in tuning: {len(rates)}. It takes {FEWEST} to see where the best lies.")
        if len({tuple(self._rates(label)) for label in self.schemes}) > 1:
            told.append("Tuning was not equal: not every scheme was tried at the same rates.")
        if SHARED_RATE not in rates:
            told.append(f"The shared rate, {SHARED_RATE:g}, is not among the rates tried: nothing is told at it.")
        for label in sorted(self.schemes):
            choice = self._choice(label)
            if choice["unfinished"]:
                told.append(f"The tuning of {label} has not finished: {choice['unfinished']}.")
            if choice["lr"] is None:
                told.append(
                    f"No rate that was tried gives a loss for {label} in every tuning seed: it has no best rate."
                )
            if choice["rate_edge"]:
                wider = _next(choice["lr"], self._rates(label))
                told.append(
                    f"The best rate of {label}, {choice['lr']:g}, lies at the edge of the grid: widen it with optim.lr={wider:g} in "
                    "the same study."
                )
            if choice["multiplier_edge"]:
                wider = _next(choice["pe_lr_mult"], self._multipliers(label, choice["lr"]))
                told.append(
                    f"The best multiplier of {label}, {choice['pe_lr_mult']:g}, lies at the edge of the grid: widen it with "
                    f"optim.pe_lr_mult_grid=[{wider:g}] in the same study."
                )
        return told

    def _choice(self, label: str) -> Content:
        """The best rate and multiplier of a scheme, and what lessens their worth."""
        pe, found, shared = self.schemes[label][0].settings["pe"], self.best.get(label), self.shared.get(label)
        chosen = found.content() if found else {}
        return {
            "label": label,
            "scheme": pe["name"],
            "pe": pe,
            **{name: chosen.get(name) for name in ("lr", "pe_lr_mult", "mean", "half_width")},
            "pe_lr_mult_of_rates": self._of_rates(label),
            "shared": shared.content()["mean"] if shared else None,
            "rate_edge": _edge(found.rate, self._rates(label)) if found else "",
            "multiplier_edge": _edge(found.multiplier, self._multipliers(label, found.rate)) if found else "",
            "unfinished": self._unfinished(label),
        }

    def _of_rates(self, label: str) -> float | None:
        """The multiplier with which most rates were tried, the declared one where several were."""
        counted = Counter(trial.multiplier for trial in self.schemes[label])
        return max(counted, key=lambda multiplier: (counted[multiplier], multiplier == self._declared(label)))

    def _declared(self, label: str) -> float:
        return registry.scheme(self.schemes[label][0].settings["pe"]["name"]).pe_lr_mult

    def _unfinished(self, label: str) -> str:
        """What is missing before a choice is one among all that was to be tried; empty if nothing is."""
        runs = [run for trial in self.schemes[label] for run in trial.runs.values()]
        if missing := sum(run.status not in ENDED for run in runs) + self.waiting[label]:
            return f"{missing} of its runs {'is' if missing == 1 else 'are'} neither complete nor diverged"
        found = self.best.get(label)
        if found is None or found.multiplier is None:
            return ""
        grid = found.settings["optim"]["pe_lr_mult_grid"]
        lacking = sorted({*grid} - {*self._multipliers(label, found.rate)})
        return (
            f"at its best rate the multipliers {', '.join(f'{each:g}' for each in lacking)} were not tried"
            if lacking
            else ""
        )

    def _rates(self, label: str) -> list[float]:
        return sorted({trial.rate for trial in self.schemes[label] if trial.ended})

    def _multipliers(self, label: str, rate: float) -> list[float]:
        those = [trial for trial in self.schemes[label] if trial.rate == rate and trial.ended]
        return sorted({trial.multiplier for trial in those if trial.multiplier is not None})

    def _shared(self, label: str) -> Trial | None:
        """The trial of a scheme at the shared rate with the multiplier that its declaration states."""
        declared = (None, self._declared(label))
        those = (each for each in self.schemes[label] if each.rate == SHARED_RATE and each.multiplier in declared)
        return next((each for each in those if each.losses), None)


def beside(shared: Iterable[Content], own: Iterable[Content], margin: float) -> list[Content]:
    """The outcomes of every pair at the shared rate, each beside that at each scheme's own best, and whether it flips."""

    def place(item: Content) -> str:
        return json.dumps([item["pair"], item["measure"], item["at"]], sort_keys=True)

    others = {place(item): item for item in own}
    return [
        {
            "pair": item["pair"],
            "measure": item["measure"],
            "at": item["at"],
            **{f"shared_{name}": item[name] for name in ("outcome", "difference", "reason")},
            **{f"own_{name}": other[name] for name in ("outcome", "difference", "reason")},
            "change": change(item, other, margin),
        }
        for item in shared
        if (other := others.get(place(item)))
    ]


def change(one: Content, other: Content, margin: float) -> str | None:
    """Whether an outcome flips, another scheme being ahead, or changes otherwise; empty where it stays, None without one."""
    first, second = _ahead(one, margin), _ahead(other, margin)
    if first is None or second is None:
        return None
    if first == second:
        return ""
    return FLIPS if {first, second} == {-1, 1} else CHANGES


def _ahead(item: Content, margin: float) -> int | str | None:
    """The sign of a difference that counts, 0 for one inside the margin, "undecided", or None where there is no outcome.

    Of one seed, and while schemes still learn, a difference larger than the margin counts: it is what one sees.
    """
    outcome, difference = item["outcome"], item["difference"]
    if outcome in (INDICATION, STILL_LEARNING) and difference is not None:
        return 0 if abs(difference) <= margin else 1 if difference > 0 else -1
    if outcome in (BETTER, WORSE):
        return 1 if difference > 0 else -1
    if outcome == EQUIVALENT:
        return 0
    return UNDECIDED if outcome == UNDECIDED else None


def _complete(those: Iterable[Trial]) -> list[Run]:
    return [run for trial in those for run in trial.runs.values() if run.record]


def _edge(value: float | None, those: Sequence[float]) -> str:
    """Whether a value is the lowest or the highest of several that were tried."""
    if value is None or len(those) < 2:
        return ""
    return LOWEST if value == those[0] else HIGHEST if value == those[-1] else ""


def _next(value: float, those: Sequence[float]) -> float:
    """The value that goes on with a grid beyond one at its edge, in one digit."""
    nearest = those[1] if value == those[0] else those[-2]
    return float(f"{value * value / nearest:.1g}")
