"""An answer from published results, by the rule of the scenario. Schemes are compared within one table of one paper."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from posbuild import registry
from posbuild.guide.answers import BEYOND, PUBLISHED, Answer, grouped, listed, size, told_unknown, unproven
from posbuild.guide.constraints import Candidate, judge
from posbuild.guide.published import Metric, Result, Task, Transcription, Value
from posbuild.guide.scenarios import Reading, Scenario, Situation, is_masked

PERPLEXITIES = (Metric.perplexity, Metric.loss)
CHECKED = {
    Transcription.pdf: "the paper's PDF",
    Transcription.two_sources: "a second transcription",
    Transcription.source_code: "what the authors' code prints",
}
Column = tuple[Reading, "int | str"]


def answer(scenario: Scenario) -> Answer:
    """What published results say in the scenario's situation; no pick where no row fits."""
    heard, silent = _heard(scenario.rests_on, scenario.situation)
    if scheme := scenario.situation.pretrained:
        own = [each for each in scenario.rests_on if scheme in ((each.extends,) if each.extends else each.of)]
        found = _keep(scenario, *_heard(own, scenario.situation))
    elif not heard:
        nothing = f"The rule of {scenario.name} names no published table"
        reason = f"{'; '.join(silent) or nothing}."
        found = Answer(source=PUBLISHED, reason=reason, flips=_nearer(scenario))
    else:
        found = _contested(scenario, heard, silent)
    shown = [reading for reading in scenario.evidence if not _other_kind(reading, scenario.situation)]
    evidence = [*_unnamed(scenario, found.pick), *(sentence(reading, scenario.margin) for reading in shown)]
    return dataclasses.replace(found, evidence=tuple(evidence))


def _nearer(scenario: Scenario) -> str:
    """What would be picked for texts no longer than the rule's results reach."""
    reach = max((reading.lengths for reading in scenario.rests_on), default=1.0)
    situation = dataclasses.replace(scenario.situation, target_length=None, reach=reach)
    heard, _ = _heard(scenario.rests_on, situation)
    pick = _decide(scenario, contest(scenario, heard)) if heard else None
    return f"Texts of no more than {reach:.3g} times the train length: {pick}." if pick else ""


def _unnamed(scenario: Scenario, pick: str | None) -> list[str]:
    """What a pick is that posbuild does not have: the paper's name for it, and its note."""
    if pick is None or pick in registry.schemes():
        return []
    found = [result for reading in scenario.rests_on for result in reading.results if result.scheme == pick]
    told = ": ".join(dict.fromkeys(filter(None, (text for each in found for text in (each.called, each.note)))))
    return [f"{pick} is not among the schemes of posbuild{f' ({told})' if told else ''}."] if found else []


# --- scope -----------------------------------------------------------------------------------------------------------


def _heard(readings: Iterable[Reading], situation: Situation) -> tuple[list[Reading], list[str]]:
    """The readings that speak to a situation, and why each other does not."""
    heard, silent = [], []
    for reading in readings:
        if why := _other_kind(reading, situation) or _beyond(reading, situation):
            silent += [told] if (told := f"{reading.table.citation} {why}") not in silent else []
        else:
            heard.append(reading.narrowed(situation.lengths))
    return heard, silent


def _other_kind(reading: Reading, situation: Situation) -> str:
    """Why a reading is of other models; empty if it is not."""
    if situation.axes > 1:
        return "is of text, which has one axis"
    if is_masked(reading) and situation.causal:
        return "is of models that see both sides"
    if not is_masked(reading) and not situation.causal and reading.table.task is not Task.algorithmic:
        return "is of causal models"
    return ""


def _beyond(reading: Reading, situation: Situation) -> str:
    """Why a reading does not reach as far as the situation; empty if it does."""
    table, asked = reading.table, situation.lengths
    if situation.retrieval and table.task not in (Task.retrieval, Task.induction):
        return "has loss only, so it gives no pick for retrieval"
    if asked is not None and reading.lengths < asked:
        return f"reaches {reading.lengths:.3g} times the train length, and {asked:.3g} times is asked for"
    largest = _largest(reading)
    if situation.parameters and largest is None:
        return "does not give the size of its models"
    if situation.parameters and largest and situation.parameters > BEYOND * largest:
        return f"measured {size(largest)} parameters, and {size(situation.parameters)} is beyond {BEYOND} times that"
    if situation.train_length and table.train_length and situation.train_length > BEYOND * table.train_length:
        return f"trained on {table.train_length} tokens, and {situation.train_length} is beyond {BEYOND} times that"
    return ""


def _largest(reading: Reading) -> int | None:
    if reading.table.parameters is None and reading.table.axis == "parameters of the model":
        return max(column for column in reading.at if isinstance(column, int))
    return reading.table.parameters


def _scope(readings: Sequence[Reading]) -> str:
    told: dict[str, list[str]] = {}
    for reading in readings:
        table, largest = reading.table, _largest(reading)
        since = "the length first trained on" if reading.reach else "the train length"
        facts = [
            f"{size(largest)} parameters" if largest else "size not given",
            f"windows of {table.train_length} tokens" if table.train_length else "",
            f"to {reading.lengths:.3g} times {since}" if reading.lengths > 1 else f"at {since}",
            f"{table.seeds} seed{'s' if table.seeds > 1 else ''}" if table.seeds else "seeds not given",
        ]
        told.setdefault(f"{', '.join(filter(None, facts))} [{table.citation}]", []).append(table.data)
    known = [largest for reading in readings if (largest := _largest(reading))]
    limit = f" Not beyond {size(BEYOND * min(known))} parameters." if known else ""
    return "; ".join(f"{listed(data)}: {facts}" for facts, data in told.items()) + f".{limit}"


def _left_out(silent: Sequence[str]) -> str:
    return f" Left out: {'; '.join(silent)}." if silent else ""


def _absent(scenario: Scenario, readings: Sequence[Reading]) -> str:
    """The schemes of posbuild that meet the constraints, as far as is known, and stand in none of the tables."""
    there = {result.scheme for reading in readings for result in reading.results}
    absent = [name for name in registry.schemes() if name not in there]
    absent = [name for name in absent if not judge(Candidate(scheme=name), scenario.constraints)[0]]
    return f" Not compared there: {listed(absent)}." if absent else ""


# --- who comes first -------------------------------------------------------------------------------------------------


@dataclass
class Contest:
    """What the columns of a rule say together.

    standing  column -> the results that may be chosen there, the best first, with their gaps to the best
    first     schemes that are first, or within the margin of the first, in every column
    """

    standing: dict[Column, list[tuple[Result, float]]] = field(default_factory=dict)
    first: set[str] = field(default_factory=set)
    ruled_out: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, list[str]] = field(default_factory=dict)

    def gaps(self, scheme: str, pick: str) -> list[tuple[float, str]]:
        """How far the best result of a scheme lies behind that of another, where both are, with the unit."""
        found = []
        for (reading, _), ranked in self.standing.items():
            best = {result.scheme: gap for result, gap in reversed(ranked)}
            if {scheme, pick} <= best.keys():
                found.append((best[scheme] - best[pick], reading.unit))
        return found


def contest(scenario: Scenario, readings: Iterable[Reading]) -> Contest:
    found = Contest()
    for reading in readings:
        for column in reading.at:
            ranked = _rank(scenario, reading, column, found)
            within = {result.scheme for result, gap in ranked if gap <= reading.tolerance(scenario.margin)}
            found.first = within if not found.standing else found.first & within
            found.standing[reading, column] = ranked
    return found


def _rank(scenario: Scenario, reading: Reading, column: int | str, found: Contest) -> list[tuple[Result, float]]:
    allowed = []
    for result in reading.results:
        value = reading.table.at(result, column)
        out, unknown = judge(_candidate(reading, result, column, scenario.margin), scenario.constraints)
        if value.reason:
            out = out or f"{value.reason} at {_where(reading, column)}"
        if out:
            found.ruled_out.setdefault(_named(result), f"{out} ({reading.table.citation})")
        elif value.number is not None:
            allowed.append(result)
            if unknown:
                found.unknown[result.scheme] = unknown
    if not allowed:
        return []
    best = reading.table.at(next(each for each in reading.table.ranking(column) if each in allowed), column)
    gaps = [(result, reading.gap(best, reading.table.at(result, column))) for result in allowed]
    return sorted([(result, gap) for result, gap in gaps if gap is not None], key=lambda pair: pair[1])


def _candidate(reading: Reading, result: Result, column: int | str, margin: float) -> Candidate:
    after = reading.table.at(result, column)
    supported = True if reading.lengths > 1 and not after.reason else None
    if reading.start is None or reading.table.metric not in PERPLEXITIES:
        return Candidate(scheme=result.scheme, supported=supported)
    before = reading.table.at(result, reading.start)
    rise = reading.gap(before, after)
    return Candidate(
        scheme=result.scheme,
        supported=supported,
        rises=None if rise is None else rise > margin,
        told=f"its loss rises: {reading.table.metric.value} {before.text} at {reading.start}, {after.text} at {column}",
    )


def _decide(scenario: Scenario, found: Contest) -> str | None:
    """The one that is first; of several the preferred, else the cheaper one where a table compares them."""
    if len(found.first) < 2:
        return next(iter(found.first), None)
    if preferred := next((each for each in scenario.prefer if each in found.first), None):
        return preferred
    if scenario.ties:
        ranked = [result.scheme for result in scenario.ties.table.ranking(scenario.ties.at[0])]
        if found.first <= {*ranked}:
            return next(each for each in ranked if each in found.first)
    return None


def _contested(scenario: Scenario, heard: list[Reading], silent: list[str]) -> Answer:
    found = contest(scenario, heard)
    pick = _decide(scenario, found)
    return Answer(
        source=PUBLISHED,
        pick=pick,
        reason=_reason(scenario, found, pick),
        runners_up=_runners_up(found, pick),
        ruled_out=grouped(found.ruled_out),
        unchecked=told_unknown(found.unknown),
        confidence=_confidence(scenario, heard, pick) if pick else "",
        scope=_scope(heard) + _absent(scenario, heard) + _left_out(silent),
        flips=_flips(scenario, heard, pick),
    )


def _reason(scenario: Scenario, found: Contest, pick: str | None) -> str:
    columns = len(found.standing)
    if not any(found.standing.values()):
        return f"{'; '.join(grouped(found.ruled_out))}."
    told = "; ".join(_heads(found, pick))
    if pick is None and found.first:
        return f"{listed(sorted(found.first))} are told apart by no more than the margin: {told}."
    if pick is None:
        return f"No scheme is first, or within the margin of the first, in all {columns} columns: {told}."
    others = found.first - {pick}
    tie = ""
    if others and pick in scenario.prefer:
        tie = f", with {listed(sorted(others))} no further off than the margin, where the simpler is taken"
    elif others and scenario.ties:
        tie = f", with {listed(sorted(others))} no further off than the margin, where the cheaper is taken ({_compared(scenario.ties, scenario.ties.at[0], [pick, *sorted(others)])})"
    where = "the one column read" if columns == 1 else f"all {columns} columns"
    more = _simpler(scenario, found, pick) + unproven(pick, found.unknown)
    return f"{pick} is first, or within the margin of the first, in {where}{tie}: {told}{more}."


def _simpler(scenario: Scenario, found: Contest, pick: str) -> str:
    """What speaks against the scheme that would be preferred as the simpler."""
    simpler = next(iter(scenario.prefer), pick)
    gaps = found.gaps(simpler, pick) if simpler != pick else []
    return f"; {simpler}, the simpler, lies behind by {_span(gaps)}" if gaps else ""


def _span(gaps: Sequence[tuple[float, str]]) -> str:
    """From the smallest gap to the largest, with the unit."""
    low, high = (f"{end(gap for gap, _ in gaps):.3g}".replace("-", "−") for end in (min, max))
    return f"{low if low == high else f'{low} to {high}'} {gaps[0][1]}"


def _heads(found: Contest, pick: str | None) -> list[str]:
    """By paper and table: in each column the pick, or the first, against the next."""
    told: dict[str, list[str]] = {}
    for (reading, column), pairs in found.standing.items():
        ranked = [result for result, _ in pairs]
        first = next((result for result in ranked if result.scheme == pick), next(iter(ranked), None))
        shown = [first, *[result for result in ranked if result is not first][:1]] if first else []
        values = " against ".join(f"{_named(each)} {reading.table.at(each, column).text}" for each in shown)
        place = f"{reading.table.metric.value}, {_where(reading, column)}, {reading.table.data}"
        told.setdefault(reading.table.citation, []).append(f"{values or 'nobody'} ({place})")
    return [f"{', '.join(each)} [{citation}]" for citation, each in told.items()]


def _runners_up(found: Contest, pick: str | None) -> tuple[str, ...]:
    if pick is None:
        return ()
    others = {result.scheme for ranked in found.standing.values() for result, _ in ranked} - {pick}
    told = []
    for other in others:
        gaps = found.gaps(other, pick)
        if gaps and math.isfinite(largest := max(gap for gap, _ in gaps)):
            told.append((largest, f"{other}: behind {pick} by {_span(gaps)}"))
    return tuple(text for _, text in sorted(told))


def _confidence(scenario: Scenario, readings: Sequence[Reading], pick: str | None) -> str:
    """There are no runs to repeat; what can be told is how many tables give the pick by themselves."""
    same = [reading for reading in readings if pick and pick in contest(scenario, [reading]).first]
    checked = listed(dict.fromkeys(CHECKED[reading.table.transcription] for reading in readings))
    agree = (
        f"It is first, or within the margin of the first, in {len(same)} of {len(readings)} tables. "
        if pick and len(readings) > 1
        else ""
    )
    return f"{agree}No runs to repeat; the numbers were compared with {checked}." if readings else ""


def _flips(scenario: Scenario, heard: list[Reading], pick: str | None) -> str:
    """What would give another pick: a constraint dropped, a table alone, no preference for the simpler."""
    required = [name for name, limit in scenario.constraints.items() if limit is not False]
    tried = {
        f"without {name}": (dataclasses.replace(scenario, constraints={**scenario.constraints, name: False}), heard)
        for name in required
    }
    if len(heard) > 1:
        tried |= {f"by {each.table.citation}, {each.table.data}, alone": (scenario, [each]) for each in heard}
    if scenario.prefer:
        tried["without a preference for the simpler"] = (dataclasses.replace(scenario, prefer=()), heard)
    found = {how: _decide(other, contest(other, readings)) for how, (other, readings) in tried.items()}
    told = [f"{how}: {other or 'no pick'}" for how, other in found.items() if other != pick]
    kinds = [f"without {name}" for name in required] + ["by one table alone"] * (len(heard) > 1)
    return f"{'; '.join(told)}." if told else f"None of these: {listed(kinds)}." if kinds else ""


# --- a model that is trained already ---------------------------------------------------------------------------------


def _keep(scenario: Scenario, heard: list[Reading], silent: list[str]) -> Answer:
    """A trained model keeps its encoding; it is extended where its loss rises at the length asked for."""
    scheme = scenario.situation.pretrained
    own = [
        reading for reading in heard if reading.of == (scheme,) and not reading.extends and reading.start is not None
    ]
    ways = [reading for reading in heard if reading.extends == scheme]
    beyond = scenario.situation.lengths is None or scenario.situation.lengths > 1
    left_out = _left_out(silent)
    if not own:
        why = f" ({'; '.join(silent)})" if silent else ""
        return Answer(
            source=PUBLISHED,
            reason=f"The rule is to keep {scheme}, and no published row here says what it does at this length{why}.",
        )
    reading = own[0]
    result, column = reading.results[0], reading.at[-1]
    before = f"{reading.table.metric.value} {reading.table.at(result, reading.start or column).text} at {reading.start}"
    if not beyond:
        reason = f"Keep {scheme}: no text is longer than those trained on, where it works ({before}; {reading.table.citation})."
        return Answer(source=PUBLISHED, pick=f"keep {scheme}", reason=reason, scope=_scope(own) + left_out)
    candidate = _candidate(reading, result, column, scenario.margin)
    values = f"{before}, {reading.table.at(result, column).text} at {column} ({reading.table.citation})"
    if candidate.rises is None:
        return Answer(
            source=PUBLISHED, reason=f"The rule is to keep {scheme}, and its loss out there is not known: {values}."
        )
    if not candidate.rises:
        reason = f"Keep {scheme} as it is: its loss does not rise, {values}."
        return Answer(source=PUBLISHED, pick=f"keep {scheme}", reason=reason, scope=_scope(own) + left_out)
    found = contest(scenario, ways)
    way = _decide(scenario, found)
    how = f" by {way}" if way else ""
    told = "; ".join(_heads(found, way)) or "no table here compares ways to extend it so far"
    told = told if way or not ways else f"no one way is first in every table: {told}"
    return Answer(
        source=PUBLISHED,
        pick=f"keep {scheme} and extend it{how}",
        reason=f"Keep {scheme}, and extend it, for as trained its loss rises, {values}; {told}.",
        runners_up=_runners_up(found, way),
        confidence=_confidence(scenario, ways, way),
        scope=_scope(own + ways) + left_out,
        flips="Texts no longer than those trained on: keep it as it is.",
    )


# --- sentences -------------------------------------------------------------------------------------------------------


def sentence(reading: Reading, margin: float) -> str:
    """What a reading says: how losses move from the train length, or how results stand beside each other."""
    table = reading.table
    moving = reading.start is not None and table.metric in PERPLEXITIES
    told = (
        [_trend(reading, result, margin) for result in reading.results]
        if moving
        else [f"{_where(reading, column)}: {_compared(reading, column)}" for column in reading.at]
    )
    largest = _largest(reading)
    facts = [
        table.metric.value,
        table.setting,
        table.data,
        *([size(largest) + " parameters"] if largest and table.parameters else []),
    ]
    doubt = "" if table.usable else f"; {table.transcription.value}, so no pick rests on it"
    return f"{'; '.join(filter(None, told))} [{', '.join(facts)}; {table.citation}{doubt}]"


def _trend(reading: Reading, result: Result, margin: float) -> str:
    column = next((each for each in reversed(reading.at) if not reading.table.at(result, each).reason), None)
    if column is None or reading.start is None:
        return ""
    before, after = reading.table.at(result, reading.start), reading.table.at(result, column)
    rise = reading.gap(before, after)
    assert rise is not None, "the start has a number"
    does = f"stays within {margin:g} nats/token" if abs(rise) <= margin else "rises" if rise > 0 else "falls"
    return f"{_named(result)} {does}, from {before.text} at {reading.start} to {_bound(after)} at {column}"


def _bound(value: Value) -> str:
    return value.text if value.number is not None else f"above {value.above:g}"


def _compared(reading: Reading, column: int | str, schemes: Sequence[str] = ()) -> str:
    """The results of one column, the best first."""
    wanted = [result for result in reading.results if not schemes or result.scheme in schemes]
    order = [result for result in reading.table.ranking(column) if result in wanted]
    order += [result for result in wanted if result not in order]
    return ", ".join(f"{_named(result)} {reading.table.at(result, column).text}" for result in order)


def _named(result: Result) -> str:
    return f"{result.scheme} ({result.variant})" if result.variant else result.scheme


def _where(reading: Reading, column: int | str) -> str:
    axis = reading.table.axis
    if axis == "parameters of the model":
        return f"{size(float(column))} parameters"
    if isinstance(column, int):
        return f"{column} train lengths" if "train lengths" in axis else f"{column} tokens"
    return str(column)
