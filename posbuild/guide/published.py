"""Results that papers report: tables as data, one YAML file a paper in published/, read by name and without torch.

Schemes compare only within one table of one paper: another table is another model, text, length or way to score.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib.resources
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml

from posbuild.declaration import Paper
from posbuild.errors import ConfigError, RunError, nearest
from posbuild.guide.answers import size

FOLDER = importlib.resources.files("posbuild.guide") / "published"
SIZES = "parameters of the model"  # the axis of a table whose columns are models of several sizes
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C, where there is one, is five times as fast


class Task(enum.Enum):
    """What a model was asked to do."""

    language_modelling = "language modelling"
    masked_language_modelling = "masked language modelling"
    retrieval = "retrieval"
    induction = "induction"
    algorithmic = "algorithmic generalisation"
    benchmarks = "short benchmarks"
    speed = "speed"


class Metric(enum.Enum):
    """What was measured, with its unit. Accuracy and success rate are in percent."""

    perplexity = "perplexity"
    loss = "nats/token"
    bits_per_byte = "bits per byte"
    accuracy = "accuracy"
    gain = "points of accuracy gained"
    success = "success rate"
    reciprocal_rank = "mean reciprocal rank"
    score = "score"
    effective_length = "effective context in tokens"
    words_per_second = "words/s"
    step_time = "seconds/step"

    @property
    def lower_is_better(self) -> bool:
        return self in (Metric.perplexity, Metric.loss, Metric.bits_per_byte, Metric.step_time)

    @property
    def title(self) -> str:
        """With its unit, where the value does not say it."""
        return f"{self.value} (%)" if self in (Metric.accuracy, Metric.success) else self.value

    @property
    def unit(self) -> str:
        """Of a difference; that of perplexities is taken between their logarithms."""
        if self in (Metric.perplexity, Metric.loss):
            return "nats/token"
        return "points" if self in (Metric.accuracy, Metric.gain, Metric.success) else self.value


class Transcription(enum.Enum):
    """How sure it is that a number is the paper's.

    pdf          compared with the text of the paper's own PDF
    two_sources  compared with a second, independent transcription
    source_code  printed by the code that the authors released
    secondary    from a digest by somebody else
    unverified   from one transcription, or a number that nobody has compared
    """

    pdf = "pdf"
    two_sources = "two sources"
    source_code = "source code"
    secondary = "secondary"
    unverified = "unverified"


@dataclass(frozen=True)
class Value:
    """A number of a table; or a bound that it lies above, where the paper gives no more; or why there is neither."""

    number: float | None = None
    above: float | None = None
    reason: str = ""

    @property
    def text(self) -> str:
        """As a table would print it."""
        if self.number is not None:
            return f"{self.number:g}"
        return self.reason if self.above is None else f"> {self.above:g}"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one scheme reached: a value for each column of its table.

    scheme   its registry name. Not in the registry: `drope`, `longrope2`, `absolute` (the paper does not say which) and
             `randomised`, a way to number tokens
    called   the paper's name for it, where that is another
    variant  what tells it from other results of the same scheme in the table
    note     what else one has to know to read it
    """

    scheme: str
    values: tuple[Value, ...]
    called: str = ""
    variant: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.scheme} ({self.variant})" if self.variant else self.scheme


@dataclass(frozen=True, kw_only=True)
class Table:
    """Results that stand side by side in one paper: the same model, data and way to score.

    id            unique in the package, for example "alibi-table-2"
    table         as the paper numbers it
    parameters    of the model; None where the paper does not say, or the columns differ in it
    train_length  in tokens; None where there is none, or the columns or results differ in it
    axis          what the columns are, with its unit
    seeds         runs behind each number, None where the paper does not say
    spread        what is known of the spread over seeds
    protocol      how it was scored
    verified      which numbers were compared with what
    """

    paper: Paper
    id: str
    table: str
    setting: str
    parameters: int | None
    data: str
    train_length: int | None
    task: Task
    metric: Metric
    axis: str
    columns: tuple[int | str, ...]
    protocol: str
    transcription: Transcription
    verified: str
    results: tuple[Result, ...]
    seeds: int | None = None
    spread: str = ""
    notes: str = ""

    def __post_init__(self) -> None:
        keys = [(result.scheme, result.variant) for result in self.results]
        for what, names in (("columns", self.columns), ("results", keys)):
            if not names or len({*names}) < len(names):
                raise ValueError(f"it needs {what}, each once, and has {[*names]}")
        for result in self.results:
            if len(result.values) != len(self.columns):
                raise ValueError(f"{result.scheme} has {len(result.values)} values for {len(self.columns)} columns")

    @property
    def usable(self) -> bool:
        """Whether a pick may rest on it: more than one transcription by somebody else stands behind it."""
        return self.transcription not in (Transcription.secondary, Transcription.unverified)

    @property
    def citation(self) -> str:
        """Authors, year, where to find it, and the table: "Press et al. 2022 (arXiv:2108.12409), table 2"."""
        where = "" if self.paper.arxiv else f" ({self.paper.where})"
        return f"{self.paper.short}{where}, {self.table}"

    @property
    def name(self) -> str:
        """The citation in short: "Press et al. 2022, table 2"."""
        return f"{self.paper.by}, {self.table}"

    @property
    def text(self) -> str:
        """The data in short: "the Pile", "WikiText-103"."""
        return self.data.partition(" (")[0].partition(",")[0]

    def of(self, scheme: str) -> tuple[Result, ...]:
        """The results of one scheme, one for each variant."""
        return tuple(result for result in self.results if result.scheme == scheme)

    def at(self, result: Result, column: int | str) -> Value:
        """The value of a result in one column. Raises ConfigError for a column that the table does not have."""
        if column not in self.columns:
            raise ConfigError(f"{self.id} has no column {column!r}. Known: {', '.join(map(str, self.columns))}.")
        return result.values[self.columns.index(column)]

    def ranking(self, column: int | str) -> tuple[Result, ...]:
        """The results that have a number in one column, the best first."""
        numbers = {result: self.at(result, column).number for result in self.results}
        known = {result: number for result, number in numbers.items() if number is not None}
        return tuple(sorted(known, key=known.__getitem__, reverse=not self.metric.lower_is_better))

    def gap(self, one: Value, other: Value) -> float | None:
        """How far the second lies behind the first, in the unit of the metric.

        Infinite for a bound beyond the first; None where the values do not tell.
        """
        lower = self.metric.lower_is_better
        if one.number is None:
            return None
        if other.number is None:
            return math.inf if lower and other.above is not None and other.above >= one.number else None
        if self.metric is Metric.perplexity:
            return math.log(other.number / one.number)
        return other.number - one.number if lower else one.number - other.number

    def reach(self, column: int | str) -> float:
        """The length that a column stands for, in train lengths; 1 where columns are not lengths."""
        if not isinstance(column, int) or not self.by_length:
            return 1.0
        return column / (1 if "train lengths" in self.axis else self.train_length or math.inf)

    @property
    def by_length(self) -> bool:
        """Whether the columns are lengths at which a model was scored."""
        return self.axis.startswith(("evaluation length", "context in"))

    def place(self, column: int | str) -> str:
        """A column in words: "8192 tokens", "8 train lengths", "1.3B parameters", "multi-key"."""
        if not isinstance(column, int):
            return column
        if self.axis == SIZES:
            return f"{size(column)} parameters"
        unit = next((unit for unit in ("train lengths", "tokens") if f"in {unit}" in self.axis), "")
        return f"{column} {unit}" if unit else f"{self.axis} {column}"


@functools.cache
def tables() -> Mapping[str, Table]:
    """Every table by its id. Raises RunError if two have one id, or a file cannot be read."""
    found: dict[str, Table] = {}
    for item in sorted(FOLDER.iterdir(), key=lambda item: item.name):
        if item.name.endswith(".yaml"):
            for each in read(item.name.removesuffix(".yaml"), item.read_text(encoding="utf-8")):
                if each.id in found:
                    raise RunError(f"Two tables of published results have the id '{each.id}'; one is in {item.name}.")
                found[each.id] = each
    return found


def table(id: str) -> Table:
    """The table of one id. Raises ConfigError for an unknown one."""
    try:
        return tables()[id]
    except KeyError:
        raise ConfigError(f"{id} is not a table of published results. {nearest(id, tables())}") from None


# --- files -----------------------------------------------------------------------------------------------------------

Made = TypeVar("Made", Paper, Result, Table)


def read(name: str, text: str) -> tuple[Table, ...]:
    """The tables of the paper that a YAML text describes; where it has none, `verified` says why.

    Raises RunError, naming the place, for a text that is not well formed.
    """
    with _well_formed(name):
        content = yaml.load(text, Loader=Loader)
        if unknown := content.keys() - {"paper", "verified", "tables"}:
            raise ValueError(f"{sorted(unknown)} is not known")
        paper, verified = _typed(Paper(**content["paper"])), content["verified"]
        return tuple(_table(name, paper, verified, each) for each in content["tables"])


def _table(name: str, paper: Paper, verified: str, content: dict[str, Any]) -> Table:
    with _well_formed(f"{name}, {content['id']}"):
        parsed: dict[str, Any] = {
            "task": Task(content["task"]),
            "metric": Metric(content["metric"]),
            "transcription": Transcription(content["transcription"]),
            "columns": tuple(content["columns"]),
            "results": tuple(map(_result, content["results"])),
        }
        return _typed(Table(**{**content, **parsed, "paper": paper, "verified": verified}))


def _result(content: dict[str, Any]) -> Result:
    return _typed(Result(**{**content, "values": tuple(map(_value, content["values"]))}))


def _value(cell: Any) -> Value:
    """A cell: a number, {above: a number}, or text that says why there is none."""
    if isinstance(cell, str) and cell:
        return Value(reason=cell)
    bound = isinstance(cell, dict) and [*cell] == ["above"]
    number = cell["above"] if bound else cell
    if type(number) not in (int, float) or not math.isfinite(number) or number < 0:
        raise ValueError(f"a value is a number from 0, {{above: a number}}, or the reason for none, and not {cell!r}")
    return Value(above=float(number)) if bound else Value(number=float(number))


def _typed(made: Made) -> Made:
    """A dataclass from YAML whose texts are texts and whose whole numbers are above 0: arXiv numbers look like floats."""
    for item in dataclasses.fields(made):
        value = getattr(made, item.name)
        if item.type == "str" and not isinstance(value, str):
            raise ValueError(f"{item.name} must be text, in quotes if it looks like a number, and is {value!r}")
        optional = item.type == "int | None" and value is None
        if item.type in ("int", "int | None") and not optional and (type(value) is not int or value < 1):
            raise ValueError(f"{item.name} must be a whole number above 0 and is {value!r}")
    return made


@contextmanager
def _well_formed(place: str) -> Iterator[None]:
    try:
        yield
    except KeyError as error:
        raise RunError(f"Published results, {place}: {error} is missing.") from error
    except (yaml.YAMLError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"Published results, {place}: {error}.") from error
