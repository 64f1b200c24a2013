"""`posbuild guide`: for each scenario a pick or none, from published results and from one's own study, and the next study."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from posbuild import records
from posbuild.errors import ConfigError
from posbuild.guide import literature, measured, scenarios
from posbuild.guide.answers import BEYOND, Answer
from posbuild.guide.scenarios import Scenario
from posbuild.guide.study import check
from posbuild.paths import conf_dir

WIDTH = 100
SEEDS = "0,1,2"  # of a first study: one would be an indication
Content = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Advice:
    """All that the guide says of one scenario; `measured` is None where no study was given.

    why      what the next study is for
    command  the cheapest study that would change the answer; None where no study of posbuild would
    """

    scenario: Scenario
    published: Answer
    measured: Answer | None
    why: str
    command: str | None


def advice(
    comparison: Content | None, typed: Sequence[str] = (), name: str | None = None, study: Path | None = None
) -> list[Advice]:
    """Advice for every scenario; for one where a name or a situation of one's own, KEY=VALUE each, is given.

    study  the folder of the comparison, for commands that measure its runs again

    Raises ConfigError for an unknown scenario, key or value.
    """
    if name is None and typed:
        name = scenarios.fitting(typed)
    found = []
    for each in [name] if name else scenarios.names():
        scenario = scenarios.load(each).within(typed)
        own = None if comparison is None else measured.answer(scenario, comparison)
        why, command = _next(scenario, own, comparison, study)
        found.append(
            Advice(scenario=scenario, published=literature.answer(scenario), measured=own, why=why, command=command)
        )
    return found


def read(study: Path) -> Content:
    """The comparison in a study folder. Raises ConfigError for a folder without one, RunError for a damaged one."""
    path = study / "comparison.json"
    if not path.is_file():
        scenario = str(study) in scenarios.names()
        what = f"For the scenario: --scenario {study}." if scenario else f"posbuild compare {study} makes it."
        raise ConfigError(f"posbuild guide {study}: there is no comparison.json in it. {what}")
    with records.intact(path):
        return check(records.read_json(path))


# --- the next study --------------------------------------------------------------------------------------------------


def _next(
    scenario: Scenario, own: Answer | None, comparison: Content | None, study: Path | None
) -> tuple[str, str | None]:
    """What the cheapest study that would change the answer is for, and its command."""
    situation = scenario.situation
    if situation.axes > 1:
        return "for posbuild trains on text, which has one axis", None
    settings, why = (dict(own.remedy), own.why) if own else (_first(scenario), "to measure it")
    if "experiment" in settings:  # the study at hand is of other models
        comparison, settings = None, _first(scenario)
    if not settings:
        return "for more of the same would not change this", None
    if target := settings.pop("parameters", None):
        preset = _preset(float(target))
        if preset is None:
            return f"for no model of conf/model is large enough {why}", None
        settings["model"] = preset
    several = comparison is not None and comparison["command"].startswith("posbuild compare ")
    if study and not several and all(key.startswith("eval.") for key in settings):
        return f"{why}, without training again", _measure_again(study, settings)
    return why, _train(comparison, settings, scenario, several)


def _first(scenario: Scenario) -> dict[str, str]:
    """The settings of a first study for a scenario, with seeds enough for intervals."""
    situation = scenario.situation
    settings = measured.first_study(situation) | {"seed": SEEDS}
    if situation.lengths and situation.lengths > max(_defaults("eval")["multiples"]):
        settings["eval.multiples"] = measured.multiples(situation.lengths)
    if situation.train_length and situation.train_length > BEYOND * _defaults("train")["length"]:
        settings["train.length"] = str(-(-situation.train_length // BEYOND))
    if situation.parameters:
        settings["parameters"] = str(situation.parameters / BEYOND)
    return settings


def _defaults(group: str) -> Content:
    return yaml.safe_load((conf_dir() / group / "default.yaml").read_text(encoding="utf-8"))


def _preset(parameters: float) -> str | None:
    """The smallest model of conf/model with at least so many parameters, of tokens that are bytes."""
    files = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (conf_dir() / "model").glob("*.yaml")
    }
    whole = {name: files["tiny"] | content for name, content in files.items()}
    sizes = {name: 12 * it["n_layers"] * it["d_model"] ** 2 + 512 * it["d_model"] for name, it in whole.items()}
    return min((name for name in sizes if sizes[name] >= parameters), key=sizes.__getitem__, default=None)


def _measure_again(study: Path, settings: dict[str, str]) -> str:
    typed = " ".join(shlex.quote(f"{key}={value}") for key, value in settings.items())
    folder = shlex.quote(str(study))
    return f'for run in {folder}/*_s*/; do posbuild evaluate "$run" {typed}; done; posbuild compare {folder}'


def _train(comparison: Content | None, settings: dict[str, str], scenario: Scenario, several: bool) -> str:
    """The study's commands, one for each of its launches, with other settings; another budget is another study.

    several  it is of more than one study, whose schemes are trained anew
    """
    launches = comparison["command"].splitlines() if comparison else ["python train.py"]
    if comparison and several:
        launches = ["python train.py pe=" + ",".join(sorted({*comparison["labels"].values()}))]
    name = comparison["title"] if comparison else scenario.name
    fresh = comparison is None or several or not {*settings} <= {"seed", "study", "pe"}
    return " && ".join(dict.fromkeys(_launch(each, settings, name, fresh) for each in launches))


def _launch(command: str, settings: dict[str, str], name: str, fresh: bool) -> str:
    """A command with other settings, in a study of its own if `fresh`."""
    words = shlex.split(command)
    program = [word for word in words if "=" not in word]
    typed = dict(word.split("=", 1) for word in words if "=" in word)
    if "pe" in settings:  # options are those of one scheme
        typed = {key: value for key, value in typed.items() if not key.startswith("pe.")}
    typed |= settings
    study = typed.pop("study", name)
    if fresh:
        study = _name(study, settings)
        if "," not in typed.get("seed", ""):
            typed["seed"] = SEEDS
    sweeps = any("," in value and not value.startswith("[") for value in typed.values())
    if sweeps and "experiment" not in typed and not {"-m", "--multirun"} & {*program}:
        program.append("-m")
    return shlex.join([*program, *(f"{key}={value}" for key, value in typed.items()), f"study={study}"])


def _name(study: str, settings: dict[str, str]) -> str:
    """A name for a study of another budget: "starter_steps_6400"."""
    changed = {key: value.strip("[]").split(",")[-1] for key, value in settings.items()}
    told = [
        f"{key.split('.')[-1]}_{each}" for key, each in changed.items() if key not in ("seed", "experiment", "study")
    ]
    return re.sub(r"[^\w-]+", "_", "_".join([study, *told])).strip("_")


# --- words -----------------------------------------------------------------------------------------------------------


def text(found: Iterable[Advice], width: int | None = None, whole: bool = False) -> str:
    """What the guide says, for a terminal: an overview, or all of it."""
    told = [_told(each, min(width or WIDTH, WIDTH), whole) for each in found]
    return "\n\n".join(told if whole else [*told, "One in full, with its evidence: posbuild guide --scenario NAME"])


def _told(each: Advice, width: int, whole: bool) -> str:
    lines = [f"{each.scenario.name}: {each.scenario.title}"]
    if whole:
        for words in (each.scenario.text, each.scenario.means, each.scenario.assumptions):
            lines += _wrapped(words, width, "  ")
    for answer in filter(None, (each.published, each.measured)):
        lines += [""] * whole + _answer(answer, width, whole)
    if whole and each.measured is None:
        lines += ["", "  measured: nothing; give the folder of a study: posbuild guide outputs/latest"]
    if whole or each.measured:
        lines += _wrapped(f"next study, {each.why}:" if each.command else f"next study: none, {each.why}.", width, "  ")
        lines += [f"    {each.command}"] if each.command else []  # in one line, to be copied
    return "\n".join(lines)


def _answer(answer: Answer, width: int, whole: bool) -> list[str]:
    lines = [f"  {answer.source}: {answer.choice}", *_wrapped(answer.reason, width, "    ")]
    for title, items in answer.parts.items() if whole else ():
        lines += [f"    {title}", *(line for item in items for line in _wrapped(item, width, "      "))]
    return lines


def _wrapped(words: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        words, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
