"""Scenarios: situations in which a person has to choose an encoding, one YAML file each in conf/scenario/.

A scenario is data. Whoever edits or adds one writes no code; what it names (constraints, measures, tables, columns) is
checked when it is read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from posbuild import registry
from posbuild.declaration import typed_form
from posbuild.errors import ConfigError, nearest
from posbuild.guide import published
from posbuild.guide.constraints import CONSTRAINTS
from posbuild.guide.published import Result, Table
from posbuild.paths import conf_dir

# Measures that an objective may weigh, all in nats/token, and whether less is better.
LOWER_IS_BETTER = {"loss/whole_windows": True, "loss/fixed_targets": True, "loss/pseudo": True, "recall/gain": False}
INSIDE, LONGEST = PLACES = ("train_length", "longest")


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

    @property
    def beyond(self) -> bool:
        """Whether texts are known to be longer than those trained on."""
        return (self.lengths or 0) > 1


@dataclass(frozen=True, kw_only=True)
class Term:
    """A part of an objective: a measure at a place, times its weight."""

    measure: str
    at: str
    weight: float = 1.0

    @property
    def sign(self) -> float:
        """Of the value in a sum of which less is better."""
        return 1.0 if LOWER_IS_BETTER[self.measure] else -1.0

    @property
    def what(self) -> str:
        return "recall" if self.measure == "recall/gain" else "loss"

    @property
    def text(self) -> str:
        protocol = "" if self.what == "recall" else f" ({self.measure.partition('/')[2].replace('_', ' ')})"
        return f"{self.what}{protocol} at the {'train length' if self.at == INSIDE else 'longest length'}"


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
        """Those that are read, in the order of the table."""
        return tuple(
            result
            for result in self.table.results
            if (not self.of or result.scheme in self.of) and result.variant.startswith(self.variant)
        )

    @property
    def lengths(self) -> float:
        """How far it reaches, in train lengths."""
        return self.reach or max(map(self.table.reach, self.at))

    @property
    def largest(self) -> int | None:
        """The parameters of the largest model read."""
        if self.table.axis == published.SIZES:
            return max(column for column in self.at if isinstance(column, int))
        return self.table.parameters

    def narrowed(self, asked: float | None) -> Reading:
        """The same at the shortest of its lengths that is as long as is asked for, where its columns are lengths."""
        enough = [column for column in self.at if asked is not None and self.table.reach(column) >= asked]
        if self.reach or not self.table.by_length or not enough:
            return self
        return dataclasses.replace(self, at=(min(enough, key=self.table.reach),))


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
    margin: float = 0.02
    prefer: tuple[str, ...] = ()
    rests_on: tuple[Reading, ...] = ()
    ties: Reading | None = None
    evidence: tuple[Reading, ...] = ()

    @property
    def required(self) -> dict[str, float]:
        """Constraints that hold, with their limits."""
        return {name: float(limit) for name, limit in self.constraints.items() if limit is not False}

    @property
    def assumptions(self) -> str:
        """What it assumes, requires and weighs, in words."""
        facts = [
            f"{item.name}={typed_form(value)}"
            for item in dataclasses.fields(Situation)
            if (value := getattr(self.situation, item.name)) != item.default
        ]
        required = [CONSTRAINTS[name].text.format(f"{limit:g}") for name, limit in self.required.items()]
        weighed = [f"{term.weight:g} times {term.text}" if term.weight != 1 else term.text for term in self.objective]
        told = [("Assumes", facts), ("Requires that it", required), ("Weighs", weighed)]
        words = " ".join(f"{verb} {', '.join(items)}." for verb, items in told if items)
        return f"{words} Margin: {self.margin:g} nats/token."

    def without(self, constraint: str) -> Scenario:
        """The same with one constraint dropped."""
        return dataclasses.replace(self, constraints={**self.constraints, constraint: False})

    def within(self, typed: Iterable[str]) -> Scenario:
        """This scenario in a situation of one's own: KEY=VALUE each. Raises ConfigError for what is none."""
        facts, required = read_typed(typed)
        _check_reach(facts, self.situation)
        if facts.get("reach"):
            facts["target_length"] = None
        elif facts.get("target_length"):
            facts["reach"] = None
        situation = dataclasses.replace(self.situation, **facts)
        constraints = {**self.constraints, **required}
        if not situation.causal:
            constraints.setdefault("bidirectional", True)
        if situation.beyond:
            constraints.setdefault("defined_beyond", True)
        return dataclasses.replace(self, situation=situation, constraints=constraints)


def _check_reach(facts: Mapping[str, Any], stated: Situation) -> None:
    """Raise ConfigError where facts do not say how far texts reach, or say it twice."""
    length, reach = facts.get("target_length"), facts.get("reach")
    if length and not (facts.get("train_length") or stated.train_length):
        raise ConfigError(f"target_length={length} needs train_length=TOKENS beside it, or reach=TIMES.")
    if length and reach:
        raise ConfigError(f"reach={reach:g} and target_length={length} say one thing twice: give one.")


# --- files -----------------------------------------------------------------------------------------------------------


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
    made = _fields(Scenario, content, place, name=name)
    made["situation"] = Situation(**_fields(Situation, made["situation"], f"{place}: situation"))
    made["constraints"] = _constraints(made["constraints"], f"{place}: constraints")
    made["objective"] = tuple(_term(each, f"{place}: objective") for each in made["objective"])
    for key in ("rests_on", "evidence"):
        made[key] = tuple(_reading(each, f"{place}: {key}") for each in made.get(key, ()))
    if made.get("ties"):
        made["ties"] = _reading(made["ties"], f"{place}: ties")
    scenario = Scenario(**made)
    for reading in (*scenario.rests_on, *filter(None, [scenario.ties])):
        table = reading.table
        if not table.usable:
            raise ConfigError(
                f"{place}: {table.id} is {table.transcription.value}, so no pick may rest on it. It may stand under evidence."
            )
        if reading.margin is None and table.metric.unit != "nats/token" and reading is not scenario.ties:
            raise ConfigError(f"{place}: {table.id} is in {table.metric.unit}, so it needs a margin of its own.")
    return scenario


def _term(content: Any, place: str) -> Term:
    term = Term(**_fields(Term, content, place))
    if term.measure not in LOWER_IS_BETTER:
        raise ConfigError(
            f"{place}: measure={term.measure} cannot be weighed. {nearest(term.measure, LOWER_IS_BETTER)}"
        )
    if term.at not in PLACES:
        raise ConfigError(f"{place}: at={term.at} is no place. Known: {', '.join(PLACES)}.")
    return term


def _reading(content: Any, place: str) -> Reading:
    made = _fields(Reading, content, place)
    if not made["at"]:
        raise ConfigError(f"{place}: at=[] names no column.")
    try:
        table = published.table(str(made["table"]))
        for column in (*made["at"], *filter(None, [made.get("start")])):
            table.at(table.results[0], column)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None
    there = {result.scheme for result in table.results}
    for scheme in made.get("of", ()):
        if scheme not in there:
            raise ConfigError(f"{place}: {table.id} has no result of {scheme}. {nearest(str(scheme), there)}")
    reading = Reading(**made | {"table": table})
    if not reading.results:
        raise ConfigError(f"{place}: {table.id} has no such variant: {reading.variant}.")
    return reading


def _constraints(content: Any, place: str) -> dict[str, bool | float]:
    _known(content, CONSTRAINTS, place)
    return {
        key: _typed(
            "float" if CONSTRAINTS[key].limit else "bool",
            key,
            value,
            place,
            f": {CONSTRAINTS[key].text.format('so many')}",
        )
        for key, value in content.items()
    }


# --- a situation of one's own ----------------------------------------------------------------------------------------


def read_typed(typed: Iterable[str]) -> tuple[dict[str, Any], dict[str, bool | float]]:
    """Facts of a situation and constraints, from KEY=VALUE each. Raises ConfigError for an unknown key or a wrong value."""
    facts: dict[str, Any] = {}
    required: dict[str, Any] = {}
    known = [*(item.name for item in dataclasses.fields(Situation)), *CONSTRAINTS]
    for setting in typed:
        key, separator, value = setting.partition("=")
        if not separator or key not in known:
            raise ConfigError(f"{setting} says nothing of a situation: write KEY=VALUE. {nearest(key, known)}")
        written: Any = value
        with contextlib.suppress(yaml.YAMLError):  # what is not YAML stays text
            written = yaml.safe_load(value)
        (required if key in CONSTRAINTS else facts)[key] = written
    return _fields(Situation, facts, "situation"), _constraints(required, "situation")


def fitting(typed: Iterable[str]) -> str:
    """The scenario nearest to a situation of one's own: equal in axes first, then a trained model or none, and so on."""
    facts, _ = read_typed(typed)

    def kind(its: Situation) -> tuple[bool, ...]:
        return its.axes > 1, its.pretrained is not None, its.causal, its.retrieval, its.beyond

    own = kind(Situation(**facts))
    return max(names(), key=lambda name: [a == b for a, b in zip(own, kind(load(name).situation), strict=True)])


# --- what a person may write -----------------------------------------------------------------------------------------

NEEDED = {
    "bool": "true or false",
    "int": "a whole number from 1",
    "float": "a number above 0",
    "str": "text",
    "tuple": "a list in [ ]",
}
OF_SCHEMES = ("pretrained", "prefer", "extends")  # fields that hold names of schemes


def schemes() -> set[str]:
    """Every scheme that is registered or has a published result."""
    return {result.scheme for table in published.tables().values() for result in table.results} | {*registry.schemes()}


def _fields(cls: Any, content: Any, place: str, **beside: Any) -> dict[str, Any]:
    """What is written as the fields of a dataclass, together with those `beside` it; null stands for a default.

    Raises ConfigError for a key that is not known or missing, a value of another type, and an unknown scheme.
    """
    fields = {item.name: item for item in dataclasses.fields(cls) if item.name not in beside}
    _known(content, fields, place)
    for key, item in fields.items():
        if content.get(key) is None and item.default is dataclasses.MISSING:
            raise ConfigError(f"{place}: {key} is missing.")
    found = dict(beside)
    for key, value in content.items():
        if value is None:
            found[key] = fields[key].default
            continue
        kind = str(fields[key].type).removesuffix(" | None").partition("[")[0]
        value = _typed(kind, key, value, place)
        for scheme in (value if isinstance(value, list) else [value]) if key in OF_SCHEMES else ():
            if scheme not in schemes():
                raise ConfigError(f"{place}: {key}={scheme} is not a scheme. {nearest(str(scheme), schemes())}")
        found[key] = tuple(value) if isinstance(value, list) else value
    return found


def _known(content: Any, known: Iterable[str], place: str) -> None:
    if not isinstance(content, Mapping):
        raise ConfigError(f"{place} must hold keys with values. Known: {', '.join(known)}.")
    for key in content:
        if key not in known:
            raise ConfigError(f"{place}: {key} is not known here. {nearest(str(key), known)}")


def _typed(kind: str, key: str, value: Any, place: str, meaning: str = "") -> Any:
    """A value of one of the kinds in NEEDED; another kind is looked into by its own reader. Raises ConfigError."""
    if kind in ("int", "float"):
        value = _number(value)
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    fits = {
        "bool": isinstance(value, bool),
        "int": number and isinstance(value, int),
        "float": number,
        "str": isinstance(value, str),
        "tuple": isinstance(value, list),
    }
    if not fits.get(kind, True):
        raise ConfigError(f"{place}: {key}={value} must be {NEEDED[kind]}{meaning}.")
    return value


def _number(value: Any) -> Any:
    """A number, also one that YAML reads as text (7e9); as an int if it is whole."""
    try:
        number = float(value) if isinstance(value, str) else value
    except ValueError:
        return value
    return int(number) if isinstance(number, float) and number.is_integer() else number
