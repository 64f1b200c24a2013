"""An answer from published results, by the rule of the scenario. Schemes are compared within one table of one paper."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from posbuild import registry
from posbuild.guide.answers import (
    BEYOND,
    PUBLISHED,
    Answer,
    counted,
    flips,
    grouped,
    listed,
    named,
    not_known,
    size,
    some,
)
from posbuild.guide.constraints import Candidate, judge
from posbuild.guide.published import Metric, Result, Task, Transcription, tables
from posbuild.guide.scenarios import Reading, Scenario, Situation

NAMED = 8  # schemes that are named where many are not compared
CHECKED = {
    Transcription.pdf: "the paper's PDF",
    Transcription.two_sources: "a second transcription",
    Transcription.source_code: "what the authors' code prints",
}


def answer(scenario: Scenario) -> Answer:
    """What published results say in the scenario's situation; no pick where no row fits."""
    heard, silent = _heard(scenario)
    if scenario.situation.pretrained:
        found = _keep(scenario, heard, silent)
    elif heard:
        found = _choose(scenario, heard, silent)
    else:
        axes = scenario.situation.axes
        why = f"is of models with {axes} axes" if axes > 1 else f"fits ({'; '.join(silent)})" if silent else "fits"
        found = Answer(source=PUBLISHED, reason=f"No published comparison here {why}.", flips=_nearer(scenario))
    shown = [reading for reading in scenario.evidence if not _other_kind(reading, scenario.situation)]
    further = (line for line in _sentences(shown, scenario) if line not in found.numbers)
    return dataclasses.replace(found, evidence=tuple(further))


def _nearer(scenario: Scenario) -> str:
    """What would be picked for texts no longer than the rule's results reach."""
    reach = max((reading.lengths for reading in scenario.rests_on), default=1.0)
    situation = dataclasses.replace(scenario.situation, target_length=None, reach=reach)
    near = dataclasses.replace(scenario, situation=situation)
    pick = Contest(near, _heard(near)[0]).pick
    return f"Texts of no more than {reach:.3g} times the train length: {pick}." if pick else ""


# --- which tables speak ----------------------------------------------------------------------------------------------


def _heard(scenario: Scenario) -> tuple[list[Reading], list[str]]:
    """The readings of the rule that speak to the situation, and why each other does not."""
    situation, scheme = scenario.situation, scenario.situation.pretrained
    heard: list[Reading] = []
    silent: dict[str, str] = {}
    for reading in scenario.rests_on:
        if scheme and scheme not in ((reading.extends,) if reading.extends else reading.of):
            continue
        if why := _other_kind(reading, situation) or _too_far(reading, situation):
            silent[reading.table.name] = why
        else:
            heard.append(reading.narrowed(situation.lengths))
    return heard, list(grouped(silent))


def _other_kind(reading: Reading, situation: Situation) -> str:
    """Why a reading is of other models; empty if it is not."""
    masked = reading.table.task is Task.masked_language_modelling
    if situation.axes > 1:
        return "text, which has one axis"
    if masked and situation.causal:
        return "models that see both sides"
    if not masked and not situation.causal and reading.table.task is not Task.algorithmic:
        return "causal models"
    return ""


def _too_far(reading: Reading, situation: Situation) -> str:
    """Why a reading does not reach as far as the situation; empty if it does."""
    table, asked, largest = reading.table, situation.lengths, reading.largest
    if situation.retrieval and table.task not in (Task.retrieval, Task.induction):
        return "loss only, so no pick for retrieval"
    if asked is not None and reading.lengths < asked:
        ends = "the train length" if reading.lengths == 1 else f"{reading.lengths:.3g} times the train length"
        return f"it ends at {ends}, and {asked:.3g} times is asked for"
    if situation.parameters and largest is None:
        return "the size of the models is not given"
    if situation.parameters and largest and situation.parameters > BEYOND * largest:
        return f"{size(situation.parameters)} parameters are beyond {BEYOND} times its {size(largest)}"
    if situation.train_length and table.train_length and situation.train_length > BEYOND * table.train_length:
        return f"windows of {situation.train_length} tokens are beyond {BEYOND} times its {table.train_length}"
    return ""


def _scope(readings: Sequence[Reading], silent: Sequence[str]) -> str:
    """What these tables hold for, and which were left out."""
    told: dict[str, list[str]] = {}
    for reading in readings:
        table = reading.table
        since = "the length first trained on" if reading.reach else "the train length"
        facts = [
            f"{size(reading.largest)} parameters" if reading.largest else "size not given",
            f"windows of {table.train_length} tokens" if table.train_length else "",
            f"to {reading.lengths:.3g} times {since}" if reading.lengths > 1 else f"at {since}",
            counted(table.seeds, "seed") if table.seeds else "seeds not given",
        ]
        told.setdefault(f"{', '.join(filter(None, facts))} [{table.citation}]", []).append(table.data)
    known = [reading.largest for reading in readings if reading.largest]
    limit = f" Not beyond {size(BEYOND * min(known))} parameters." if known else ""
    left_out = f" Left out: {'; '.join(silent)}." if silent else ""
    return "; ".join(f"{listed(data)}: {facts}" for facts, data in told.items()) + f".{limit}{left_out}"


def _in_tables(scenario: Scenario, readings: Sequence[Reading]) -> tuple[list[str], list[str]]:
    """The schemes of posbuild that meet the constraints, as far as is known, and stand in no table; in some of them."""
    known = [name for name in registry.schemes() if not judge(Candidate(scheme=name), scenario.required)[0]]
    counts = {name: sum(any(it.scheme == name for it in reading.results) for reading in readings) for name in known}
    return [name for name in known if not counts[name]], [name for name in known if 0 < counts[name] < len(readings)]


def _tables_without(scheme: str) -> int:
    """In how many published tables a scheme does not stand: the best known ones are named first."""
    return sum(not table.of(scheme) for table in tables().values())


# --- who comes first -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table: the results that may be chosen there, the best first, with how far each lies behind it."""

    reading: Reading
    at: int | str
    ranked: list[tuple[Result, float]]

    @cached_property
    def gaps(self) -> dict[str, float]:
        """How far the best result of each scheme lies behind."""
        return {result.scheme: gap for result, gap in reversed(self.ranked)}

    def tolerance(self, margin: float) -> float:
        return self.reading.margin or margin


class Contest:
    """What the columns of a rule say together.

    columns    every column read, with its ranking
    first      schemes that are first, or within the margin of the first, in every column
    partly     others that are so in every column where they stand, which is some of them
    pick       the one that is first; of several the preferred, else the cheaper one where a table compares them
    ruled_out  result -> which constraint
    out        the schemes of these
    unknown    scheme -> constraints of which nothing is known
    """

    def __init__(self, scenario: Scenario, readings: Iterable[Reading], among: Collection[str] | None = None) -> None:
        self.scenario, self.among = scenario, among
        self.ruled_out: dict[str, str] = {}
        self.out: set[str] = set()
        self.unknown: dict[str, list[str]] = {}
        self.columns = [
            Column(reading=reading, at=at, ranked=self._ranked(reading, at))
            for reading in readings
            for at in reading.at
        ]
        near = [
            {scheme for scheme, gap in column.gaps.items() if gap <= column.tolerance(scenario.margin)}
            for column in self.columns
        ]
        far = {scheme for column, close in zip(self.columns, near, strict=True) for scheme in {*column.gaps} - close}
        self.first: set[str] = set.intersection(*near) if near else set()
        self.partly = set[str]().union(*near) - far - self.first - self.out
        self.pick = self._pick()

    def _ranked(self, reading: Reading, at: int | str) -> list[tuple[Result, float]]:
        table, allowed = reading.table, []
        for result in table.ranking(at) + tuple(each for each in reading.results if table.at(each, at).number is None):
            if result not in reading.results or (self.among is not None and result.scheme not in self.among):
                continue
            value = table.at(result, at)
            out, unknown = judge(candidate(reading, result, at, self.scenario.margin), self.scenario.required)
            out = out or (f"{value.reason} at {table.place(at)}" if value.reason else "")
            if out:
                self.ruled_out.setdefault(result.name, out)
                self.out.add(result.scheme)
            else:
                allowed.append(result)
                self.unknown |= {result.scheme: unknown} if unknown else {}
        gaps = [(result, table.gap(table.at(allowed[0], at), table.at(result, at))) for result in allowed]
        return [(result, gap) for result, gap in gaps if gap is not None]

    def _pick(self) -> str | None:
        if len(self.first) == 1:
            return next(iter(self.first))
        ties = self.scenario.ties
        cheaper = [result.scheme for result in ties.table.ranking(ties.at[0])] if ties else []
        order = [*self.scenario.prefer, *(cheaper if self.first <= {*cheaper} else [])]
        return next((scheme for scheme in order if scheme in self.first), None)

    def behind(self, scheme: str) -> dict[str, list[float]]:
        """How far a scheme lies behind the pick in each column where both are, by unit."""
        found: dict[str, list[float]] = {}
        for column in self.columns:
            if self.pick and {scheme, self.pick} <= column.gaps.keys():
                gap = column.gaps[scheme] - column.gaps[self.pick]
                found.setdefault(column.reading.table.metric.unit, []).append(gap)
        return found

    @property
    def next(self) -> str | None:
        """Of the schemes that stand in every column and are not among the first, the one least behind the pick."""
        everywhere = set.intersection(*({*column.gaps} for column in self.columns)) - self.first
        worst = {scheme: max(map(max, self.behind(scheme).values())) for scheme in everywhere}
        return min(sorted(worst), key=worst.__getitem__, default=None)

    @property
    def runners_up(self) -> tuple[str, ...]:
        told = []
        for other in sorted({scheme for column in self.columns for scheme in column.gaps} - {self.pick} - self.out):
            gaps = self.behind(other)
            values = [gap for each in gaps.values() for gap in each]
            if values and math.isfinite(largest := max(values)):
                some = (
                    f", in {len(values)} of {len(self.columns)} comparisons" if len(values) < len(self.columns) else ""
                )
                told.append((largest, f"{other}: {_lies(gaps)}{some}"))
        return tuple(text for _, text in sorted(told))


def candidate(reading: Reading, result: Result, at: int | str, margin: float) -> Candidate:
    """What a table says of a scheme: whether it has positions so far out, whether its loss rises until there."""
    table, after = reading.table, reading.table.at(result, at)
    supported = True if reading.lengths > 1 and not after.reason else None
    if reading.start is None or table.metric not in (Metric.perplexity, Metric.loss):
        return Candidate(scheme=result.scheme, supported=supported)
    before = table.at(result, reading.start)
    rise = table.gap(before, after)
    return Candidate(
        scheme=result.scheme,
        supported=supported,
        rises=None if rise is None else rise > margin,
        told=f"its loss rises, from {table.metric.value} {before.text} at {reading.start} to {after.text} at {at} tokens",
    )


def _choose(scenario: Scenario, heard: list[Reading], silent: list[str]) -> Answer:
    found = Contest(scenario, heard)
    missing, partly = _in_tables(scenario, heard)
    there = {"Not compared there": missing, "In some of the tables only": partly}
    tie = [scenario.ties] if scenario.ties and len(found.first) > 1 else []
    return Answer(
        source=PUBLISHED,
        pick=found.pick,
        reason=_reason(scenario, heard, found),
        numbers=_sentences([*heard, *tie], scenario),
        runners_up=found.runners_up,
        ruled_out=grouped(found.ruled_out),
        unchecked=not_known(found.unknown),
        confidence=_confidence(heard) if found.pick else "",
        scope=_scope(heard, silent)
        + "".join(f" {what}: {some(names, NAMED)}." for what, names in there.items() if names),
        flips=_flips(scenario, heard, found.pick),
    )


def _reason(scenario: Scenario, heard: list[Reading], found: Contest) -> str:
    pick, columns = found.pick, found.columns
    names = dict.fromkeys(reading.table.name for reading in heard)
    papers = dict.fromkeys(reading.table.paper.by for reading in heard)
    cited = listed(names if len(names) == 1 else papers)
    if not any(column.ranked for column in columns):
        return f"No scheme compared in {cited} meets the constraints ({'; '.join(grouped(found.ruled_out))})."
    every = {1: "the one comparison", 2: "both comparisons"}.get(len(columns), f"all {len(columns)} comparisons")
    where = f"in {every} of {cited}"
    margins = listed(
        dict.fromkeys(f"{it.tolerance(scenario.margin):g} {it.reading.table.metric.unit}" for it in columns)
    )
    within = f"within {margins} of the first {where}"
    if pick is None and found.first:
        return f"{listed(sorted(found.first))} are {within}, and no rule tells them apart."
    if pick is None:
        ahead = Counter(column.ranked[0][0].scheme for column in columns if column.ranked)
        return f"No scheme is {within}: first is {listed(f'{name} in {count}' for name, count in ahead.most_common())}."
    first = f"first {where}" if all(column.ranked[0][0].scheme == pick for column in columns) else within
    if others := sorted(found.first - {pick}):
        ties = listed(f"{other} ({_lies(found.behind(other))})" for other in others)
        best = "simplest" if pick in scenario.prefer else "cheapest"
        first = f"{within}, as {'is' if len(others) == 1 else 'are'} {ties}, and the {best}"
    told = [f"{named(pick)} is {first}"]
    simpler, there = next(iter(scenario.prefer), pick), pick in registry.schemes()
    if simpler != pick and (gaps := found.behind(simpler)):
        told.append(f"{simpler}, the simpler, is {_lies(gaps)}")
    elif there and found.next:
        told.append(f"{found.next} is next, {_lies(found.behind(found.next))}")
    if partly := found.partly & registry.schemes().keys():
        told.append(f"as good in some of them only: {some(sorted(sorted(partly), key=_tables_without), 2)}")
    if pick in found.unknown:
        told.append(f"{listed(found.unknown[pick])} unknown")
    if not there:
        told.append(_elsewhere(scenario, heard, found))
    elif absent := _in_tables(scenario, heard)[0]:
        told.append(f"not compared: {some(sorted(absent, key=_tables_without), 1 if pick in found.unknown else 2)}")
    return f"{'; '.join(told)}."


def _elsewhere(scenario: Scenario, heard: list[Reading], found: Contest) -> str:
    """That posbuild does not have the pick: what the paper calls it, and which of posbuild's schemes comes first."""
    results = [each for reading in heard for each in reading.results if each.scheme == found.pick]
    called = ": ".join(dict.fromkeys(text for each in results for text in (each.called, each.note) if text))
    own = Contest(scenario, heard, among=registry.schemes()).pick
    told = f"its own first is {named(own)}, {_lies(found.behind(own))}" if own else "its own have no first"
    return f"posbuild lacks it{f' ({called})' if called else ''}; {told}"


def _lies(gaps: dict[str, list[float]]) -> str:
    """How far a scheme lies from the pick: "0.035 to 0.042 nats/token behind", "0.015 nats/token ahead"."""
    ahead = max(map(max, gaps.values())) < 0
    sizes = {unit: [-gap if ahead else gap for gap in each] for unit, each in gaps.items()}
    return f"{_span(sizes)} {'ahead' if ahead else 'behind'}"


def _span(gaps: dict[str, list[float]]) -> str:
    """From the smallest gap to the largest, by unit: "0.035 to 0.042 nats/token"."""
    told = []
    for unit, values in gaps.items():
        form = ".3f" if unit == "nats/token" else ".3g"
        ends = dict.fromkeys(format(end(values), form) for end in (min, max))
        told.append(f"{' to '.join(ends)} {unit}".replace("-", "−"))
    return listed(told)


def _confidence(readings: Sequence[Reading]) -> str:
    """There are no runs to repeat; what can be told is how much the answer rests on."""
    papers = counted(len({reading.table.paper for reading in readings}), "paper")
    checked = listed(dict.fromkeys(CHECKED[reading.table.transcription] for reading in readings))
    return (
        f"Rests on {counted(len(readings), 'table')} of {papers}, whose numbers were compared with {checked}; "
        "there are no runs to repeat."
    )


def _flips(scenario: Scenario, heard: list[Reading], pick: str | None) -> str:
    """What would give another pick: a constraint dropped, a table alone, no preference for the simpler."""
    tried = {f"{name}=false": (scenario.without(name), heard) for name in scenario.required}
    if len(heard) > 1:
        tried |= {f"only {each.table.text} ({each.table.name})": (scenario, [each]) for each in heard}
    if scenario.prefer:
        tried["without a preference for the simpler"] = (dataclasses.replace(scenario, prefer=()), heard)
    return flips({how: Contest(*each).pick for how, each in tried.items()}, pick)


# --- a model that is trained already ---------------------------------------------------------------------------------


def _keep(scenario: Scenario, heard: list[Reading], silent: list[str]) -> Answer:
    """A trained model keeps its encoding; it is extended where its loss rises at the length asked for."""
    scheme, lengths = scenario.situation.pretrained, scenario.situation.lengths
    reading = next((each for each in heard if not each.extends), None)
    if reading is None:
        why = f" ({'; '.join(silent)})" if silent else ""
        reason = f"The rule is to keep {scheme}; no published row here says what it does at this length{why}."
        return Answer(source=PUBLISHED, reason=reason)
    table, result, at = reading.table, reading.results[0], reading.at[-1]
    facts: dict[str, Any] = {"source": PUBLISHED, "numbers": _sentences([reading], scenario)}
    facts["scope"] = _scope([reading], silent)
    keep = f"keep {scheme}"
    if lengths is not None and lengths <= 1:
        reason = f"Keep {scheme} as it is: no text is longer than those trained on."
        return Answer(pick=keep, reason=reason, **facts)
    before, after = (table.at(result, each).text.replace(">", "above") for each in (reading.start or at, at))
    told = f"from {table.metric.value} {before} at {reading.start} tokens to {after} at {at} ({table.name})"
    rises = candidate(reading, result, at, scenario.margin).rises
    if rises is None:
        reason = f"The rule is to keep {scheme}; whether its loss rises at this length is not known: {told}."
        return Answer(reason=reason, **facts)
    if not rises:
        return Answer(pick=keep, reason=f"Keep {scheme} as it is, for its loss does not rise: {told}.", **facts)
    ways = Contest(scenario, [each for each in heard if each.extends])
    facts |= {"numbers": _sentences(heard, scenario), "scope": _scope(heard, silent)}
    return Answer(
        pick=f"{keep} and extend it{f' by {ways.pick}' if ways.pick else ''}",
        reason=f"Keep {scheme} and extend it: as trained its loss rises {told}; {_ways(ways)}.",
        runners_up=ways.runners_up,
        confidence=_confidence(heard),
        flips="Texts no longer than those trained on: keep it as it is.",
        **facts,
    )


def _ways(ways: Contest) -> str:
    """Which way to extend a model is first, or which is first where."""
    if not ways.columns:
        return "no table here compares ways to extend it so far"
    ahead = dict.fromkeys(f"{column.ranked[0][0].name} in {column.reading.table.paper.by}" for column in ways.columns)
    return f"{f'{ways.pick} keeps up with the first' if ways.pick else 'no way leads'} in all: {listed(ahead)}"


# --- evidence --------------------------------------------------------------------------------------------------------


def _sentences(readings: Iterable[Reading], scenario: Scenario) -> tuple[str, ...]:
    return tuple(_sentence(reading, scenario.margin) for reading in readings)


def _sentence(reading: Reading, margin: float) -> str:
    """What a reading says: how losses move from the train length, or how results stand beside each other."""
    table = reading.table
    told = [f"{table.place(column)}: {_values(reading, column)}" for column in reading.at]
    if reading.start is not None and table.metric in (Metric.perplexity, Metric.loss):
        told = [trend for result in reading.results if (trend := _trend(reading, result, margin))]
    doubt = "" if table.usable else f"; {table.transcription.value}, so no pick rests on it"
    parameters = f"{size(table.parameters)} parameters" if table.parameters else ""
    known = parameters.partition(" ")[0] in table.setting.replace(",", "").split()
    text = "" if table.text in table.setting else table.text
    facts = filter(None, (table.metric.title, table.setting, text, "" if known else parameters))
    return f"{'; '.join(told)} [{', '.join(facts)}; {table.citation}{doubt}]"


def _trend(reading: Reading, result: Result, margin: float) -> str:
    """How the loss of a result moves until the last column that has a value; empty where none has."""
    table, start = reading.table, reading.start
    at = next((each for each in reversed(reading.at) if not table.at(result, each).reason), None)
    if at is None or start is None or (rise := table.gap(table.at(result, start), table.at(result, at))) is None:
        return ""
    does = f"stays within {margin:g} nats/token" if abs(rise) <= margin else "rises" if rise > 0 else "falls"
    after = table.at(result, at).text.replace(">", "above")
    return f"{result.name} {does}, from {table.at(result, start).text} at {start} to {after} at {at}"


def _values(reading: Reading, column: int | str) -> str:
    """The results of one column, the best first, those without a number last."""
    table = reading.table
    order = dict.fromkeys([each for each in table.ranking(column) if each in reading.results] + [*reading.results])
    return ", ".join(f"{result.name} {table.at(result, column).text}" for result in order)
