"""Scenarios: situations in which a person has to choose an encoding, one YAML file each in conf/scenario/.

A scenario is data. Whoever edits or adds one writes no code; what it names (constraints, measures, tables, columns) is
checked when it is read.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from posbuild.declaration import typed_form
from posbuild.errors import ConfigError, nearest
from posbuild.guide import published
from posbuild.guide.constraints import CONSTRAINTS
from posbuild.guide.published import Metric, Result, Table, Task, Value
from posbuild.paths import conf_dir

# Measures that an objective may weigh, all in nats/token, and whether less is better.
LOWER_IS_BETTER = {"loss/whole_windows": True, "loss/fixed_targets": True, "loss/pseudo": True, "recall/gain": False}
INSIDE, LONGEST = "train_length", "longest"
PLACES = (INSIDE, LONGEST)
MARGIN = 0.02  # nats/token
LENGTH_AXES = ("evaluation length", "context in")  # of published tables whose columns are lengths


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What a person knows before choosing.

    train_length   tokens of a training window
    target_length  tokens of a text that the model will read
    reach          target_length in train lengths, where no lengths are given
    parameters     of the model that will be trained
    causal         whether a token sees the past only
    retrieval      whether what stands far back has to be found again
    pretrained     the scheme of a model that is trained already
    axes           1 for text, 2 for images, 3 for video
    """

    train_length: int | None = None
    target_length: int | None = None
    reach: float | None = None
    parameters: int | None = None
    causal: bool = True
    retrieval: bool = False
    pretrained: str | None = None
    axes: int = 1

    @property
    def lengths(self) -> float | None:
        """The longest text in train lengths, None if nothing says."""
        if self.train_length and self.target_length:
            return self.target_length / self.train_length
        return self.reach


@dataclass(frozen=True, kw_only=True)
class Term:
    """A part of an objective: a measure at a place, times its weight."""

    measure: str
    at: str
    weight: float = 1.0

    @property
    def text(self) -> str:
        what = (
            "recall" if self.measure == "recall/gain" else f"loss ({self.measure.partition('/')[2].replace('_', ' ')})"
        )
        return f"{what} at the {'train length' if self.at == INSIDE else 'longest length'}"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Columns of one published table, and the results that are read there.

    at      the columns; of several lengths the shortest that is long enough for the situation counts
    start   the column at the train length, from which a loss may rise
    of      schemes; none named: all
    variant only results whose variant begins so
    extends the scheme of the trained model that they extend
    margin  within which two results are told apart no more, in the table's unit (percentage points, say); of perplexities
            and losses the scenario's, in nats/token
    reach   the longest length in train lengths, where the columns do not tell it
    """

    table: Table
    at: tuple[int | str, ...]
    start: int | str | None = None
    of: tuple[str, ...] = ()
    variant: str = ""
    extends: str = ""
    margin: float | None = None
    reach: float | None = None

    @property
    def results(self) -> tuple[Result, ...]:
        return tuple(
            result
            for result in self.table.results
            if (not self.of or result.scheme in self.of) and result.variant.startswith(self.variant)
        )

    @property
    def lengths(self) -> float:
        """How far it reaches, in train lengths."""
        return self.reach or max(map(self._lengths, self.at))

    def narrowed(self, asked: float | None) -> Reading:
        """The same at the shortest of its lengths that is as long as is asked for, where its columns are lengths."""
        enough = [column for column in self.at if asked is not None and self._lengths(column) >= asked]
        by_length = self.reach is None and self.table.axis.startswith(LENGTH_AXES)
        return dataclasses.replace(self, at=(min(enough, key=self._lengths),)) if by_length and enough else self

    def _lengths(self, column: int | str) -> float:
        if not isinstance(column, int) or not self.table.axis.startswith(LENGTH_AXES):
            return 1.0
        return column / (1 if "train lengths" in self.table.axis else self.table.train_length or math.inf)

    def gap(self, better: Value, worse: Value) -> float | None:
        """How far one value lies behind another: nats/token of perplexities and losses, else in the table's unit.

        Infinite for a bound beyond the other; None where there is no value to tell by.
        """
        if better.number is None:
            return None
        if worse.number is None:
            return math.inf if worse.above is not None and worse.above >= better.number else None
        if self.table.metric is Metric.perplexity:
            return math.log(worse.number / better.number)
        lower = self.table.better is published.Better.lower
        return worse.number - better.number if lower else better.number - worse.number

    def tolerance(self, margin: float) -> float:
        return margin if self.margin is None else self.margin

    @property
    def unit(self) -> str:
        if self.table.metric in (Metric.perplexity, Metric.loss):
            return "nats/token"
        return (
            "points" if self.table.metric in (Metric.accuracy, Metric.success, Metric.gain) else self.table.metric.value
        )


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A situation, what is required and what counts in it, and the published results that speak to it.

    constraints  name -> what is required: true, or a limit
    objective    what is weighed, of one's own measurements
    margin       nats/token within which two schemes are equivalent
    prefer       of equivalent schemes the first of these is taken, else the one that trains fastest
    means        what the choice means in this situation
    rests_on     a published pick comes first, or within the margin of the first, in each of these columns
    ties         where those that remain are compared, for the cheaper one
    evidence     what else is shown
    """

    name: str
    title: str
    text: str
    situation: Situation
    constraints: Mapping[str, bool | float]
    objective: tuple[Term, ...]
    means: str
    margin: float = MARGIN
    prefer: tuple[str, ...] = ()
    rests_on: tuple[Reading, ...] = ()
    ties: Reading | None = None
    evidence: tuple[Reading, ...] = ()

    @property
    def assumptions(self) -> str:
        """What it assumes, requires and weighs, in words."""
        facts = [
            f"{item.name}={typed_form(value)}"
            for item in dataclasses.fields(Situation)
            if (value := getattr(self.situation, item.name)) != item.default
        ]
        required = [
            f"{CONSTRAINTS[name].text}{f' ({limit:g})' if CONSTRAINTS[name].limit else ''}"
            for name, limit in self.constraints.items()
            if limit is not False
        ]
        weighed = [f"{term.weight:g} times {term.text}" if term.weight != 1 else term.text for term in self.objective]
        told = [("Assumes", facts), ("Requires that it", required), ("Weighs", weighed)]
        words = " ".join(f"{verb} {', '.join(items)}." for verb, items in told if items)
        return f"{words} Margin: {self.margin:g} nats/token."

    def within(self, typed: Iterable[str]) -> Scenario:
        """This scenario in a situation of one's own: KEY=VALUE each. Raises ConfigError for what is none."""
        facts, required = read_typed(typed)
        situation = dataclasses.replace(self.situation, **_one_reach(facts, self.situation))
        constraints = {**self.constraints, **required}
        if not situation.causal:
            constraints.setdefault("bidirectional", True)
        if situation.lengths is not None and situation.lengths > 1:
            constraints.setdefault("defined_beyond", True)
        return dataclasses.replace(self, situation=situation, constraints=constraints)


# --- reading ---------------------------------------------------------------------------------------------------------


def folder() -> Path:
    return conf_dir() / "scenario"


def names() -> tuple[str, ...]:
    """The names of the scenarios, in alphabetical order."""
    return tuple(sorted(path.stem for path in folder().glob("*.yaml")))


@functools.cache
def load(name: str) -> Scenario:
    """The scenario of one name. Raises ConfigError for an unknown name, and for a file with something wrong in it."""
    if name not in names():
        raise ConfigError(f"--scenario {name} is not a scenario. {nearest(name, names())}")
    return read(name, (folder() / f"{name}.yaml").read_text(encoding="utf-8"))


def read(name: str, text: str) -> Scenario:
    """The scenario that a YAML text describes. Raises ConfigError, naming the place and what would work."""
    place = f"conf/scenario/{name}.yaml"
    try:
        content = yaml.load(text, Loader=published.Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{place} is not YAML: {error}") from None
    known = [item.name for item in dataclasses.fields(Scenario) if item.name != "name"]
    _keys(place, content, known, needed=("title", "text", "situation", "constraints", "objective", "means"))
    for key in ("title", "text", "means"):
        if not isinstance(content[key], str):
            raise ConfigError(f"{place}: {key}={content[key]} must be text.")
    made: dict[str, Any] = dict(content)
    made["situation"] = Situation(**_facts(f"{place}: situation", content["situation"] or {}))
    made["constraints"] = _constraints(f"{place}: constraints", content["constraints"] or {})
    made["objective"] = tuple(_term(f"{place}: objective", each) for each in content["objective"] or ())
    for key in ("rests_on", "evidence"):
        made[key] = tuple(_reading(f"{place}: {key}", each) for each in content.get(key) or ())
    made["ties"] = _reading(f"{place}: ties", content["ties"]) if content.get("ties") else None
    made["prefer"] = tuple(content.get("prefer") or ())
    for scheme in made["prefer"]:
        if scheme not in schemes():
            raise ConfigError(f"{place}: prefer={scheme} is not a scheme. {nearest(str(scheme), schemes())}")
    for reading in made["rests_on"] + ((made["ties"],) if made["ties"] else ()):
        if not reading.table.usable:
            raise ConfigError(
                f"{place}: {reading.table.id} is {reading.table.transcription.value}, so no pick may rest on it. "
                "It may stand under evidence."
            )
        if reading.unit != "nats/token" and reading.margin is None and reading is not made["ties"]:
            raise ConfigError(f"{place}: {reading.table.id} is in {reading.unit}, so it needs a margin of its own.")
    if not _is_number(margin := made.get("margin", MARGIN)) or margin <= 0:
        raise ConfigError(f"{place}: margin={margin} must be a number above 0, in nats/token. Default: {MARGIN}.")
    return Scenario(name=name, **made)


def fitting(typed: Iterable[str]) -> str:
    """The scenario nearest to a situation of one's own: equal in axes first, then a trained model or none, and so on."""
    facts, _ = read_typed(typed)
    own = Situation(**facts)

    def agreement(name: str) -> tuple[bool, ...]:
        its = load(name).situation
        return tuple(mine == theirs for mine, theirs in zip(_kind(own), _kind(its), strict=True))

    return max(names(), key=agreement)


def _kind(situation: Situation) -> tuple[Any, ...]:
    beyond = situation.lengths is not None and situation.lengths > 1
    return (situation.axes > 1, situation.pretrained is not None, situation.causal, situation.retrieval, beyond)


def read_typed(typed: Iterable[str]) -> tuple[dict[str, Any], dict[str, bool | float]]:
    """Facts of a situation and constraints, from KEY=VALUE each. Raises ConfigError for an unknown key or a wrong value."""
    facts: dict[str, Any] = {}
    required: dict[str, Any] = {}
    fields = [item.name for item in dataclasses.fields(Situation)]
    for setting in typed:
        key, separator, value = setting.partition("=")
        if not separator or key not in (*fields, *CONSTRAINTS):
            raise ConfigError(
                f"{setting} says nothing of a situation: write KEY=VALUE. {nearest(key, (*fields, *CONSTRAINTS))}"
            )
        (facts if key in fields else required)[key] = yaml.safe_load(value)
    return _facts("situation", facts), _constraints("situation", required)


def _one_reach(facts: dict[str, Any], stated: Situation) -> dict[str, Any]:
    """Facts that say in one way how far texts reach. Raises ConfigError for half of a way, or for two."""
    if facts.get("target_length") and not (facts.get("train_length") or stated.train_length):
        raise ConfigError(
            f"target_length={facts['target_length']} needs train_length=TOKENS beside it, or reach=TIMES."
        )
    if facts.get("target_length") and facts.get("reach"):
        raise ConfigError(
            f"reach={facts['reach']:g} and target_length={facts['target_length']} say one thing twice: give one."
        )
    if facts.get("reach"):
        return facts | {"target_length": None}
    return facts | ({"reach": None} if facts.get("target_length") else {})


def _facts(place: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a situation, each of its type."""
    fields = {item.name: str(item.type) for item in dataclasses.fields(Situation)}
    _keys(place, content, fields)
    found: dict[str, Any] = {}
    for key, value in content.items():
        kind = fields[key].partition(" ")[0]
        if kind == "int" and _is_number(number := _number(value)) and number == int(number):
            value = int(number)  # 7e9, which YAML reads as text
        ok = {
            "int": type(value) is int and value >= 1,
            "float": _is_number(value) and value >= 1,
            "bool": isinstance(value, bool),
            "str": isinstance(value, str) and value in schemes(),
        }[kind]
        if not ok and not (value is None and "None" in fields[key]):
            needed = {
                "int": "a whole number from 1",
                "float": "a number from 1",
                "bool": "true or false",
                "str": f"the name of a scheme. {nearest(str(value), schemes())}",
            }[kind]
            raise ConfigError(f"{place}: {key}={value} must be {needed}")
        found[key] = value
    return found


def schemes() -> set[str]:
    """Every scheme that is registered or has a published result."""
    from posbuild import registry

    return {result.scheme for table in published.tables().values() for result in table.results} | {*registry.schemes()}


def _constraints(place: str, content: Mapping[str, Any]) -> dict[str, bool | float]:
    _keys(place, content, CONSTRAINTS)
    for key, value in content.items():
        if CONSTRAINTS[key].limit and not (_is_number(value) and value > 0):
            raise ConfigError(f"{place}: {key}={value} must be a number above 0: {CONSTRAINTS[key].text}.")
        if not CONSTRAINTS[key].limit and not isinstance(value, bool):
            raise ConfigError(f"{place}: {key}={value} must be true or false: {CONSTRAINTS[key].text}.")
    return dict(content)


def _term(place: str, content: Mapping[str, Any]) -> Term:
    _keys(place, content, ("measure", "at", "weight"), needed=("measure", "at"))
    if content["measure"] not in LOWER_IS_BETTER:
        raise ConfigError(
            f"{place}: measure={content['measure']} cannot be weighed. {nearest(str(content['measure']), LOWER_IS_BETTER)}"
        )
    if content["at"] not in PLACES:
        raise ConfigError(f"{place}: at={content['at']} is no place. Known: {', '.join(PLACES)}.")
    if not _is_number(weight := content.get("weight", 1.0)) or weight <= 0:
        raise ConfigError(f"{place}: weight={weight} must be a number above 0.")
    return Term(**content)


def _reading(place: str, content: Mapping[str, Any]) -> Reading:
    fields = [item.name for item in dataclasses.fields(Reading)]
    _keys(place, content, fields, needed=("table", "at"))
    for key in ("at", "of"):
        if not isinstance(content.get(key, []), list) or content.get(key) == []:
            raise ConfigError(f"{place}: {key}={content[key]} must be a list, such as [{content[key] or 512}].")
    for key in ("margin", "reach"):
        if key in content and not (_is_number(content[key]) and content[key] > 0):
            raise ConfigError(f"{place}: {key}={content[key]} must be a number above 0.")
    try:
        table = published.table(content["table"])
        for column in [*content["at"], *([content["start"]] if content.get("start") is not None else [])]:
            table.at(table.results[0], column)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None
    named = {result.scheme for result in table.results}
    for scheme in content.get("of") or ():
        if scheme not in named:
            raise ConfigError(f"{place}: {table.id} has no result of {scheme}. {nearest(scheme, named)}")
    if (extends := content.get("extends", "")) and extends not in schemes():
        raise ConfigError(f"{place}: extends={extends} is not a scheme. {nearest(str(extends), schemes())}")
    reading = Reading(**{**content, "table": table, "at": tuple(content["at"]), "of": tuple(content.get("of") or ())})
    if not reading.results:
        raise ConfigError(f"{place}: {table.id} has no such variant: {reading.variant}.")
    return reading


def _keys(place: str, content: Any, known: Iterable[str], needed: Iterable[str] = ()) -> None:
    if not isinstance(content, Mapping):
        raise ConfigError(f"{place} must hold keys with values. Known: {', '.join(known)}.")
    for key in content:
        if key not in known:
            raise ConfigError(f"{place}: {key} is not known here. {nearest(str(key), known)}")
    for key in needed:
        if key not in content:
            raise ConfigError(f"{place}: {key} is missing.")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _number(value: Any) -> Any:
    try:
        return value if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return value


def is_masked(reading: Reading) -> bool:
    """Whether a reading is of bidirectional models."""
    return reading.table.task is Task.masked_language_modelling
