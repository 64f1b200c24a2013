"""An answer from published results, by the rule of the scenario. Schemes are compared within one table of one paper."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from posbuild import registry
from posbuild.guide.answers import BEYOND, PUBLISHED, Answer, counted, flips, grouped, listed, named, not_known, size
from posbuild.guide.constraints import Candidate, judge
from posbuild.guide.published import Metric, Result, Task, Transcription
from posbuild.guide.scenarios import Reading, Scenario, Situation

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
        found = Answer(
            source=PUBLISHED,
            reason=f"{'; '.join(silent) or 'No published result here fits'}.",
            flips=_nearer(scenario),
        )
    shown = [reading for reading in scenario.evidence if not _other_kind(reading, scenario.situation)]
    return dataclasses.replace(found, evidence=tuple(_sentence(reading, scenario.margin) for reading in shown))


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
            silent[reading.table.citation] = why
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
        return f"to {reading.lengths:.3g} times the train length, and {asked:.3g} times is asked for"
    if situation.parameters and largest is None:
        return "the size of the models is not given"
    if situation.parameters and largest and situation.parameters > BEYOND * largest:
        return f"models of {size(largest)} parameters, and {size(situation.parameters)} is beyond {BEYOND} times that"
    if situation.train_length and table.train_length and situation.train_length > BEYOND * table.train_length:
        return f"windows of {table.train_length} tokens, and {situation.train_length} is beyond {BEYOND} times that"
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


def _absent(scenario: Scenario, readings: Sequence[Reading]) -> str:
    """The schemes of posbuild that meet the constraints, as far as is known, and stand in some of the tables or none."""
    found: dict[str, list[str]] = {}
    for name in registry.schemes():
        tables = sum(any(result.scheme == name for result in reading.results) for reading in readings)
        if tables < len(readings) and not judge(Candidate(scheme=name), scenario.required)[0]:
            found.setdefault("In some of the tables only" if tables else "Not compared there", []).append(name)
    return "".join(f" {what}: {listed(names)}." for what, names in sorted(found.items(), reverse=True))


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

    def against_the_next(self, pick: str | None) -> str:
        """The pick, or the first, beside the next best: "kerple_log 21.3 against kerple_power 21.6 (perplexity, ...)"."""
        table, results = self.reading.table, [result for result, _ in self.ranked]
        shown = [*[result for result in results if result.scheme == pick][:1], *results]
        values = [f"{each.name} {table.at(each, self.at).text}" for each in dict.fromkeys(shown)][:2]
        return f"{' against '.join(values) or 'nobody'} ({table.metric.value}, {table.place(self.at)}, {table.text})"


class Contest:
    """What the columns of a rule say together.

    columns    every column read, with its ranking
    first      schemes that are first, or within the margin of the first, in every column
    pick       the one that is first; of several the preferred, else the cheaper one where a table compares them
    ruled_out  result -> which constraint
    unknown    scheme -> constraints of which nothing is known
    """

    def __init__(self, scenario: Scenario, readings: Iterable[Reading], among: Collection[str] | None = None) -> None:
        self.scenario, self.among = scenario, among
        self.ruled_out: dict[str, str] = {}
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
        self.first: set[str] = set.intersection(*near) if near else set()
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
                self.ruled_out.setdefault(result.name, f"{out} ({table.citation})")
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
    def numbers(self) -> str:
        """The pick, or the first, beside the next in each column, by table."""
        told: dict[str, list[str]] = {}
        for column in self.columns:
            told.setdefault(column.reading.table.citation, []).append(column.against_the_next(self.pick))
        return "; ".join(f"{', '.join(each)} [{citation}]" for citation, each in told.items())

    @property
    def runners_up(self) -> tuple[str, ...]:
        told = []
        for other in sorted({scheme for column in self.columns for scheme in column.gaps} - {self.pick}):
            gaps = self.behind(other)
            values = [gap for each in gaps.values() for gap in each]
            if values and math.isfinite(largest := max(values)):
                lies = f"behind {self.pick} by {_span(gaps)}"
                if largest < 0:
                    lies = f"ahead of {self.pick} by {_span({unit: [-gap for gap in each] for unit, each in gaps.items()})}"
                some = f", in {len(values)} of {len(self.columns)} columns" if len(values) < len(self.columns) else ""
                told.append((largest, f"{other}: {lies}{some}"))
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
        told=f"its loss rises: {table.metric.value} {before.text} at {reading.start}, {after.text} at {at}",
    )


def _choose(scenario: Scenario, heard: list[Reading], silent: list[str]) -> Answer:
    found = Contest(scenario, heard)
    return Answer(
        source=PUBLISHED,
        pick=found.pick,
        reason=_reason(scenario, found),
        runners_up=found.runners_up,
        ruled_out=grouped(found.ruled_out),
        unchecked=not_known(found.unknown),
        confidence=_confidence(heard) if found.pick else "",
        scope=_scope(heard, silent) + _absent(scenario, heard),
        flips=_flips(scenario, heard, found.pick),
    )


def _reason(scenario: Scenario, found: Contest) -> str:
    pick, count = found.pick, len(found.columns)
    if not any(column.ranked for column in found.columns):
        return f"{'; '.join(grouped(found.ruled_out))}."
    margins = {f"{c.tolerance(scenario.margin):g} {c.reading.table.metric.unit}": None for c in found.columns}
    close = f"at most {listed(margins)} behind the first"
    where = "the one column read" if count == 1 else f"all {count} columns read"
    if pick is None and found.first:
        return f"{listed(sorted(found.first))} are {close} in {where}, and no rule tells them apart: {found.numbers}."
    if pick is None:
        return f"No scheme is first, or {close}, in {where}: {found.numbers}."
    alone = found.first == {pick} and all(column.ranked[0][0].scheme == pick for column in found.columns)
    reason = (
        f"{named(pick)} is first{'' if alone else f', or {close},'} in {where}{_tie(scenario, found)}: {found.numbers}"
    )
    simpler = next(iter(scenario.prefer), pick)
    if simpler != pick and (gaps := found.behind(simpler)):
        reason += f"; {simpler}, the simpler, lies behind by {_span(gaps)}"
    if pick in found.unknown:
        reason += f"; whether it meets {listed(found.unknown[pick])} is not known"
    return f"{reason}{_elsewhere(scenario, found)}."


def _tie(scenario: Scenario, found: Contest) -> str:
    """Who else would do as well, and why the pick is taken."""
    others = sorted(found.first - {found.pick})
    if not others:
        return ""
    if found.pick in scenario.prefer or not scenario.ties:
        return f", like {listed(others)}, and is the simplest of them"
    table, at = scenario.ties.table, scenario.ties.at[0]
    costs = [f"{each.scheme} {table.at(each, at).text}" for each in table.ranking(at) if each.scheme in found.first]
    return f", like {listed(others)}, and is the cheapest of them ({', '.join(costs)} {table.metric.value})"


def _elsewhere(scenario: Scenario, found: Contest) -> str:
    """That posbuild does not have the pick: what the paper calls it, and which of posbuild's schemes comes first."""
    if found.pick in registry.schemes():
        return ""
    readings = [column.reading for column in found.columns]
    results = [each for reading in readings for each in reading.results if each.scheme == found.pick]
    called = ": ".join(dict.fromkeys(text for each in results for text in (each.called, each.note) if text))
    own = Contest(scenario, dict.fromkeys(readings), among=registry.schemes()).pick
    told = f"of its own schemes {named(own)} is first" if own else "its own have no first"
    return f"; posbuild does not have {found.pick}{f' ({called})' if called else ''}, and {told}"


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
        tried |= {f"{each.table.id} alone": (scenario, [each]) for each in heard}
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
    values = [f"{table.at(result, each).text} at {each}" for each in (reading.start, at) if each is not None]
    numbers = f"{table.metric.value} {', '.join(values)} [{table.citation}]"
    rises = candidate(reading, result, at, scenario.margin).rises
    scope = _scope([reading], silent)
    if lengths is not None and lengths <= 1:
        reason = f"Keep {scheme} as it is: no text is longer than those trained on ({table.metric.value} {values[0]} [{table.citation}])."
        return Answer(source=PUBLISHED, pick=f"keep {scheme}", reason=reason, scope=scope)
    if rises is None:
        reason = f"The rule is to keep {scheme}; whether its loss rises at this length is not known: {numbers}."
        return Answer(source=PUBLISHED, reason=reason, scope=scope)
    if not rises:
        reason = f"Keep {scheme} as it is: its loss does not rise, {numbers}."
        return Answer(source=PUBLISHED, pick=f"keep {scheme}", reason=reason, scope=scope)
    ways = Contest(scenario, [each for each in heard if each.extends])
    first = f"{ways.pick} is the way" if ways.pick else "no one way is first in every table"
    told = f"{first}: {ways.numbers}" if ways.columns else "no table here compares ways to extend it so far"
    return Answer(
        source=PUBLISHED,
        pick=f"keep {scheme} and extend it{f' by {ways.pick}' if ways.pick else ''}",
        reason=f"Keep {scheme}, and extend it, for as trained its loss rises, {numbers}; {told}.",
        runners_up=ways.runners_up,
        confidence=_confidence(heard),
        scope=_scope(heard, silent),
        flips="Texts no longer than those trained on: keep it as it is.",
    )


# --- evidence --------------------------------------------------------------------------------------------------------


def _sentence(reading: Reading, margin: float) -> str:
    """What a reading says: how losses move from the train length, or how results stand beside each other."""
    table = reading.table
    told = [f"{table.place(column)}: {_values(reading, column)}" for column in reading.at]
    if reading.start is not None and table.metric in (Metric.perplexity, Metric.loss):
        told = [trend for result in reading.results if (trend := _trend(reading, result, margin))]
    doubt = "" if table.usable else f"; {table.transcription.value}, so no pick rests on it"
    parameters = f"{size(table.parameters)} parameters" if table.parameters else ""
    known = parameters.partition(" ")[0] in table.setting.replace(",", "").split()
    facts = filter(None, (table.metric.value, table.setting, table.text, "" if known else parameters))
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
