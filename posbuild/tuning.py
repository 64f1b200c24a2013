"""A launch that tunes (experiment=tune): what it does, its second sweep, and the study that trains with what was found.

The rates are an ordinary sweep. What is left after it depends on its outcome: for each scheme that learns something a
sweep over the multipliers of optim.pe_lr_mult_grid, at its best rate.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterable, Iterator, Sequence

from posbuild import tuned
from posbuild.comparison import runs, tuning
from posbuild.errors import ConfigError
from posbuild.folders import status_of
from posbuild.overrides import Job, Plan, Typed, take_apart
from posbuild.paths import shown
from posbuild.records import RUNNING
from posbuild.settings import TrainSettings

SEEDS = 3  # of the study that trains with what was found

# Settings of the launch that are not those of that study.
OF_TUNING = (
    "experiment",
    "pe",
    "seed",
    "study",
    "train.steps",
    "eval",
    "optim.lr",
    "optim.pe_lr_mult",
    "optim.pe_lr_mult_grid",
)


def tunes(plan: Plan) -> bool:
    """Whether the launch tries rates and multipliers."""
    return plan.jobs[0].settings.optim.pe_lr_mult_grid is not None


def announcement(plan: Plan) -> str:
    """What a launch that tunes will do."""
    optims = [job.settings.optim for job in plan.jobs]
    rates, grid = sorted({optim.lr for optim in optims}), optims[0].pe_lr_mult_grid
    schemes = _by_label(plan)
    learning = {name: jobs for name, jobs in schemes.items() if jobs[0].settings.pe.has_parameters()}
    text = f"Tuning on validation documents, {_seeds(plan)}: {_listed('rate', rates)} for each of {', '.join(schemes)}"
    runs_planned = len(plan.jobs)
    if grid and learning:
        text += f"; then {_listed('multiplier', grid)} of the rate of its own parameters for {', '.join(learning)}, each at its best rate"
        seeds = len({job.settings.seed for job in plan.jobs})
        runs_planned += seeds * sum(len({*grid} - {jobs[0].settings.pe_lr_mult}) for jobs in learning.values())
    return f"{text}. {runs_planned} runs in all."


def multiplier_sweeps(typed: Typed, plan: Plan) -> Iterator[Typed]:
    """The sweeps that are left once those rates were tried, one a scheme that learns something. Says what was found.

    A scheme without a best rate, or whose rates another launch is still at work on, has none.
    """
    if not plan.jobs[0].settings.optim.pe_lr_mult_grid:
        return
    found = [(name, jobs) for name, jobs in _by_label(plan).items() if jobs[0].settings.pe.has_parameters()]
    for name, jobs in found:
        if sweep := _sweep(typed, plan, name, jobs):
            yield sweep


def _sweep(typed: Typed, plan: Plan, name: str, jobs: Sequence[Job]) -> Typed | None:
    settings = jobs[0].settings
    if any(status_of(job.folder) in (None, RUNNING) for job in jobs):
        print(f"Tuning {name}: another launch is at work on its rates. The same command, given again, goes on with it.")
        return None
    trials = [
        trial
        for trial in tuning.trials(run for run in runs.find([plan.study]) if run.label == name)
        if trial.multiplier == settings.pe_lr_mult and tuning.budget(trial.settings) == tuning.budget(settings.plain())
    ]
    best = tuning.best(trials)
    if best is None:
        print(f"Tuning {name}: no rate gives a loss in every seed, so no multiplier is tried.")
        return None
    grid = [*dict.fromkeys(settings.optim.pe_lr_mult_grid or [])]
    rates = _listed("rate", [trial.rate for trial in trials])
    print(
        f"Tuning {name}: of {rates} the best is {best.rate:g}, with a validation loss of {best.mean:.3f}; now {_listed('multiplier', grid)}."
    )
    chosen: dict[str, list] = {
        "seed": sorted({job.settings.seed for job in jobs}),
        "optim.lr": [best.rate],
        "optim.pe_lr_mult": grid,
    }
    own = [override for override in jobs[0].overrides if override.partition("=")[0] not in chosen]
    more = [f"{key}={','.join(map(str, values))}" for key, values in chosen.items()]
    flags = [] if typed.flags.multirun else ["-m"]
    return take_apart([*flags, *typed.options, *typed.settings, *own, *more])


def results(typed: Typed, plan: Plan, program: Sequence[str]) -> str:
    """The command of a study at the shared rate and at each scheme's best, with other seeds; empty if none has a best."""
    study = str(shown(plan.study.absolute()))
    try:
        done = [choice for choice in tuned.choices(study) if not choice["unfinished"] and choice["lr"] is not None]
    except ConfigError:
        return ""
    if not done:
        return ""
    first = plan.jobs[0].settings
    kept = [setting for setting in typed.settings if not _of_tuning(setting.partition("=")[0].lstrip("+"))]
    steps = 2 * first.train.steps
    seeds = {job.settings.seed for job in plan.jobs}
    others = itertools.islice((seed for seed in itertools.count() if seed not in seeds), SEEDS)
    words = [
        *program,
        *(option for option in typed.options if option not in ("-m", "--multirun")),
        "-m",
        f"pe={','.join(dict.fromkeys(choice['scheme'] for choice in done))}",
        *kept,
        *([f"train.steps={steps}"] if steps != TrainSettings.steps else []),
        f"seed={','.join(map(str, others))}",
        f"optim.tuned=null,{study}",
    ]
    return shlex.join(words)


def _of_tuning(name: str) -> bool:
    return name in OF_TUNING or name.startswith(("eval.", "hydra."))


def _by_label(plan: Plan) -> dict[str, list[Job]]:
    found: dict[str, list[Job]] = {}
    for job in plan.jobs:
        found.setdefault(runs.label(job.settings.plain()), []).append(job)
    return found


def _seeds(plan: Plan) -> str:
    seeds = sorted({job.settings.seed for job in plan.jobs})
    return f"tuning seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _listed(name: str, values: Iterable[float]) -> str:
    """the rate 0.003; the rates 0.001, 0.003."""
    told = [f"{value:g}" for value in values]
    return f"the {name}{'s' if len(told) > 1 else ''} {', '.join(told)}"
