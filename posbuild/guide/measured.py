"""An answer from one's own study, by the rules of an honest comparison. Reads comparison.json only."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy

from posbuild.comparison import statistics
from posbuild.comparison.learning import LEARNED, NOT_LEARNED, STILL_LEARNING
from posbuild.comparison.statistics import EQUIVALENT, WORSE
from posbuild.guide.answers import (
    BEYOND,
    MEASURED,
    Answer,
    grouped,
    listed,
    signed,
    signless,
    size,
    told_unknown,
    unproven,
)
from posbuild.guide.constraints import judge
from posbuild.guide.scenarios import INSIDE, LONGEST, Scenario, Situation, Term
from posbuild.guide.study import RECALL, Study, left_out

Content = dict[str, Any]
TOLD = 3  # runners-up
UNLEARNED = "not learned"
SEEDS = (3, 12)  # seeds that a first study has, and the most that is proposed

# What else a person may care for, beside the objective: tried for what would flip the pick.
PREFERENCES = (
    Term(measure="loss/whole_windows", at=INSIDE),
    Term(measure="loss/whole_windows", at=LONGEST),
    Term(measure=RECALL, at=LONGEST),
)


def answer(scenario: Scenario, comparison: Content) -> Answer:
    """What a study says in the scenario's situation; no pick where the rules forbid one."""
    situation = scenario.situation
    if situation.axes > 1:
        return _none(f"Not measured: the models of the study have one axis, and {situation.axes} are asked for")
    budgets = [budget for budget in comparison["budgets"] if budget["causal"] is situation.causal]
    if not comparison["budgets"]:
        return _none("Not measured: no run of the study is complete", {"study": comparison["title"]}, "to complete it")
    if not budgets:
        kind = "causal" if comparison["budgets"][0]["causal"] else "bidirectional"
        return _none(
            f"Not measured: the models of the study are {kind}, and say nothing of the others",
            first_study(situation),
            "to measure the others",
        )
    study = Study(comparison, max(budgets, key=_weight), situation)
    found = _out_of_scope(study, situation) or (_keep if situation.pretrained else _pick)(scenario, study)
    return dataclasses.replace(found, scope=study.scope + left_out(comparison))


def first_study(situation: Situation) -> dict[str, str]:
    """The settings of a study that says something of a situation: causal models, or encoders."""
    return {"experiment": "starter" if situation.causal else "encoder"}


def _weight(budget: Content) -> tuple:
    """Of several budgets one with seeds for an interval speaks; of these that of the largest models, then of most runs."""
    seeds = len(budget["seeds"])
    return seeds > 1, (budget["parameters"] or [0, 0])[1], seeds, len(budget["runs"])


def _none(why: str, remedy: Mapping[str, str] | None = None, because: str = "", **facts: Any) -> Answer:
    return Answer(source=MEASURED, reason=f"{why}.", remedy=remedy or {}, why=because, **facts)


def _out_of_scope(study: Study, situation: Situation) -> Answer | None:
    """Why the study does not speak of a situation so far from it."""
    if situation.parameters and study.parameters and situation.parameters > BEYOND * study.parameters:
        return _none(
            f"The largest model measured has {size(study.parameters)} parameters, and {size(situation.parameters)} is beyond "
            f"{BEYOND} times that; see the published evidence",
            {"parameters": str(situation.parameters / BEYOND)},
            f"to speak of {size(situation.parameters)} parameters",
        )
    if situation.train_length and situation.train_length > BEYOND * study.train_length:
        return _none(
            f"The models were trained on windows of {study.train_length} tokens, and {situation.train_length} is beyond {BEYOND} "
            "times that; see the published evidence",
            {"train.length": str(-(-situation.train_length // BEYOND))},
            f"to speak of windows of {situation.train_length} tokens",
        )
    if not study.reaches:
        return _none(
            f"Measured to {study.longest / study.train_length:g} times the train length, and {situation.lengths:g} times is asked for",
            {"eval.multiples": multiples(situation.lengths or 1)},
            f"to measure as far as {situation.lengths:g} times the train length",
        )
    return None


def multiples(reach: float) -> str:
    return "[" + ",".join(str(2**power) for power in range(math.ceil(math.log2(max(reach, 2))) + 1)) + "]"


# --- the pick --------------------------------------------------------------------------------------------------------


def _pick(scenario: Scenario, study: Study) -> Answer:
    lacking = _lacking(scenario, study)
    if lacking:
        return lacking
    candidates, ruled_out, unknown = _candidates(scenario, study)
    facts: dict[str, Any] = {"ruled_out": grouped(ruled_out), "unchecked": told_unknown(unknown)}
    inside = any(term.at == INSIDE for term in scenario.objective) or study.longest == study.train_length
    unlearned = [label for label, why in ruled_out.items() if why.startswith(UNLEARNED)]
    if inside and (held := _unsettled(study, candidates + unlearned)):
        return _none(held, _longer(study), "to let every scheme finish learning", **facts)
    scores = {label: found for label in candidates if (found := study.scores(label, scenario.objective))}
    silent = {label: "not measured there" for label in candidates if label not in scores}
    facts["ruled_out"] = grouped(ruled_out | silent)
    shared = sorted(set.intersection(*({*found} for found in scores.values()))) if scores else []
    if not scores or (len(scores) == 1 and unlearned):
        left = (
            f"Only {listed(scores)} is left, and what has not learned is not worse" if scores else "No scheme is left"
        )
        why = "; ".join(grouped(ruled_out | silent))
        return _none(f"{left} ({why})", _longer(study), "to see what more is learned", **facts)
    if len(shared) < 2:
        return _one_seed(study, scenario.objective, scores, shared, facts)
    if not all(study.same_targets(scores, term, seed) for term in scenario.objective for seed in shared):
        return _none("The runs scored different tokens, which do not compare", **facts)
    paired = {label: {seed: found[seed] for seed in shared} for label, found in scores.items()}
    return _decided(scenario, study, paired, facts, unknown)


def _lacking(scenario: Scenario, study: Study) -> Answer | None:
    """Why the study cannot speak to the objective at all."""
    recall = [term for term in scenario.objective if term.measure == RECALL]
    if scenario.situation.retrieval and not recall:
        return _none(f"{scenario.name} weighs loss only, so there is no pick for retrieval; see long_retrieval")
    for term in scenario.objective:
        if not any(study.values(label, term) for label in study.schemes):
            if term.measure == RECALL:
                return _none(
                    f"Loss only, no pick for retrieval: {term.text} was not measured",
                    {"eval.recall_passages": "64"},
                    "to measure recall",
                )
            return _none(f"Not measured: {term.text}")
    return None


def _candidates(scenario: Scenario, study: Study) -> tuple[list[str], dict[str, str], dict[str, list[str]]]:
    """Labels that may be picked, why each other may not, and what is not known of the first.

    What has not learned is not worse; it is left out, and marked by UNLEARNED.
    """
    chosen, ruled_out, unknown = [], {}, {}
    recall = any(term.measure == RECALL for term in scenario.objective)
    for label in sorted(study.schemes):
        out, open_questions = judge(study.candidate(label, scenario.margin), scenario.constraints)
        if NOT_LEARNED in study.states[label]:
            out = out or f"{UNLEARNED}, a run of it is above a {study.count_model} count model"
        elif recall and not study.recalls.get(label):
            out = out or f"{UNLEARNED}, no recall is seen inside {study.train_length} tokens, so none beyond counts"
        if out:
            ruled_out[label] = out
            continue
        chosen.append(label)
        if open_questions:
            unknown[label] = open_questions
    return chosen, ruled_out, unknown


def _unsettled(study: Study, labels: Sequence[str]) -> str:
    """Why nothing is picked inside the train length: some scheme has not finished learning. Empty if all have."""
    found: dict[str, list[str]] = {}
    for label in labels:
        for state in sorted(study.states[label] - {LEARNED}):
            found.setdefault(state, []).append(label)
    told = [
        f"{listed(who)} {'learning state ' if state not in (STILL_LEARNING, NOT_LEARNED) else ''}{state}"
        for state, who in found.items()
    ]
    moving = [pair for pair in study.moving if pair <= {*labels}]
    if moving:
        pair = sorted(moving, key=sorted)[0]
        told.append(
            f"{len(moving)} gap{'s' if len(moving) > 1 else ''} still moving, such as {listed(sorted(pair))}: {study.moving[pair]}"
        )
    return f"Inside the train length nothing is settled ({'; '.join(told)})" if told else ""


def _longer(study: Study) -> dict[str, str]:
    seeds = {"seed": _seeds(study, SEEDS[0])} if len(study.seeds) < 2 else {}
    return {"train.steps": str(2 * study.budget["train"]["steps"]), **seeds}


def _one_seed(
    study: Study,
    objective: Sequence[Term],
    scores: Mapping[str, Mapping[int, float]],
    shared: Sequence[int],
    facts: Content,
) -> Answer:
    remedy = {"seed": _seeds(study, SEEDS[0])}
    if not shared:
        return _none("The schemes have no seed in common", remedy, "to pair them", **facts)
    seed = shared[0]
    order = sorted(scores, key=lambda label: (scores[label][seed], label))
    told = " before ".join(f"{label} {signless(scores[label][seed])}" for label in order[:2])
    why = f"One seed is an indication ({study.told(objective)}: {told} nats/token)"
    return _none(why, remedy, "to have intervals over seeds", **facts)


def _seeds(study: Study, count: int) -> str:
    """The seeds of the study, and as many more as make `count`."""
    more = [seed for seed in range(count) if seed not in study.seeds]
    return ",".join(map(str, sorted([*study.seeds, *more[: max(0, count - len(study.seeds))]])))


def _decided(
    scenario: Scenario,
    study: Study,
    scores: dict[str, dict[int, float]],
    facts: Content,
    unknown: Mapping[str, Sequence[str]],
) -> Answer:
    """Whoever is better than, or equivalent to, every other; of equivalent ones the simpler or cheaper."""
    means = {label: statistics.mean_and_half_width([*found.values()])[0] for label, found in scores.items()}
    lead = min(means, key=lambda label: (means[label], label))
    against = _against(scores, lead, scenario.margin)
    outcomes = {label: verdict.outcome for label, (_, _, verdict) in against.items()}
    tied = [label for label, outcome in outcomes.items() if outcome == EQUIVALENT]
    undecided = [label for label, outcome in outcomes.items() if outcome not in (WORSE, EQUIVALENT)]
    value = f"{study.told(scenario.objective)} {_mean(scores[lead])} nats/token"
    if undecided:
        needed = {label: against[label][2].seeds_needed for label in undecided}
        told = "; ".join(
            f"{label} {signed(*against[label][:2])}" + (f", {n} seeds would decide if the spread stays" if n else "")
            for label, n in needed.items()
        )
        seeds = min(max((n for n in needed.values() if n), default=2 * len(study.seeds)), SEEDS[1])
        return _none(
            f"{lead} comes first ({value}), and it is undecided against {listed(undecided)} ({told}; nats/token)",
            {"seed": _seeds(study, max(seeds, len(study.seeds) + 1))},
            f"to decide between {listed([lead, *undecided])}",
            **facts,
        )
    pick = _simplest(scenario, study, [lead, *tied])
    beaten = [label for label, outcome in outcomes.items() if outcome == WORSE]
    reason = f"{lead} comes first ({value})"
    if beaten:
        closest = min(beaten, key=lambda label: against[label][0])
        reason += f", better than {listed(beaten)}, the closest by {signed(*against[closest][:2])}"
    if tied:
        shown = listed(f"{label} {signed(*against[label][:2])}" for label in tied)
        reason += f"; equivalent within ±{scenario.margin:g} {'is' if len(tied) == 1 else 'are'} {shown}, and {pick} is {_why(scenario, study, pick)}"
    if not against:
        reason += f", and is the only one left: {'; '.join(facts['ruled_out'])}"
    reason += "".join(
        f"; {label}, the simpler, lies behind by {signed(*against[label][:2])}"
        for label in beaten
        if study.schemes[label] in scenario.prefer
    )
    reason += unproven(pick, unknown)
    decide = functools.partial(_point, scenario, study)
    return Answer(
        source=MEASURED,
        pick=pick,
        reason=f"{reason}.",
        runners_up=_runners_up(scenario, study, scores, pick),
        confidence=_confidence(study, scenario.objective, scores, pick, decide),
        flips=_flips(scenario, study, pick, decide),
        evidence=_far_text(study, pick, scenario.margin),
        remedy={"parameters": str(4 * study.parameters)} if study.parameters else {},
        why="to see whether it holds for larger models",
        **facts,
    )


Against = tuple[float, "float | None", statistics.Verdict]


def _against(scores: Mapping[str, Mapping[int, float]], reference: str, margin: float) -> dict[str, Against]:
    """Of each label but one: its mean difference to that one, half the width of its interval, and the verdict on it.

    Verdicts are corrected over all pairs, for the reference is chosen by what was seen. What lies inside ± margin is
    equivalent, be it beyond zero: in a choice the margin counts.
    """
    family = {
        pair: [scores[pair[1]][seed] - scores[pair[0]][seed] for seed in scores[pair[0]]]
        for pair in itertools.combinations(sorted(scores), 2)
    }
    found = {}
    for pair, verdict in statistics.verdicts(family, margin).items():
        if reference in pair:
            label = pair[0] if pair[1] == reference else pair[1]
            mean, half = statistics.mean_and_half_width(family[pair])
            if (verdict.p_equivalence or 0) < statistics.ALPHA:
                verdict = dataclasses.replace(verdict, outcome=EQUIVALENT)
            elif label == pair[1]:
                verdict = dataclasses.replace(verdict, outcome=statistics.turned(verdict.outcome))
            found[label] = (mean if label == pair[1] else -mean, half, verdict)
    return found


def _simplest(scenario: Scenario, study: Study, tied: Sequence[str]) -> str:
    """Of equivalent labels the first that is preferred, else the one that trains fastest; the first where nothing tells."""
    preferred = [label for name in scenario.prefer for label in tied if study.schemes[label] == name]
    if preferred or any("train_speed" not in study.ratios[label] for label in tied):
        return (preferred or [*tied])[0]
    return max(tied, key=lambda label: study.ratios[label]["train_speed"])


def _why(scenario: Scenario, study: Study, pick: str) -> str:
    if study.schemes[pick] in scenario.prefer:
        return "the simpler by the scenario"
    return (
        "the one that trains fastest" if "train_speed" in study.ratios[pick] else "taken, for speeds were not measured"
    )


def _point(scenario: Scenario, study: Study, scores: Mapping[str, float]) -> str:
    """The pick by numbers alone: the simplest of those within the margin of the first."""
    order = sorted(scores, key=lambda label: (scores[label], label))
    return _simplest(scenario, study, [each for each in order if scores[each] - scores[order[0]] < scenario.margin])


def _mean(scores: Mapping[int, float]) -> str:
    mean, half = statistics.mean_and_half_width([*scores.values()])
    return signless(mean) + ("" if half is None else f" ± {half:.3f}")


def _runners_up(scenario: Scenario, study: Study, scores: Mapping[str, dict[int, float]], pick: str) -> tuple[str, ...]:
    told = []
    for label, (mean, half, verdict) in _against(scores, pick, scenario.margin).items():
        speeds = [study.ratios[each].get("train_speed") for each in (label, pick)]
        cost = f"; trains at {speeds[0]:.2f} of the speed of none, {pick} at {speeds[1]:.2f}" if all(speeds) else ""
        told.append((mean, f"{label}: {signed(mean, half)} nats/token, {verdict.outcome}{cost}"))
    return tuple(text for _, text in sorted(told)[:TOLD])


def _confidence(
    study: Study,
    objective: Sequence[Term],
    scores: Mapping[str, Mapping[int, float]],
    pick: str,
    decide: Callable[[Mapping[str, float]], str],
) -> str:
    """How often the same is picked when documents are drawn again within each seed, and when each seed is left out."""
    seeds = [*next(iter(scores.values()))]
    left_out = [
        decide(
            {
                label: math.fsum(found[s] for s in seeds if s != out) / (len(seeds) - 1)
                for label, found in scores.items()
            }
        )
        for out in seeds
    ]
    told = f"{left_out.count(pick)} of {len(seeds)} with one seed left out"
    drawn = {label: study.redrawn(label, objective, seeds) for label in scores}
    if any(values is None for values in drawn.values()):
        return f"The same pick in {told}; documents were not drawn again, for their sums are not in the comparison."
    draws = [decide(dict(zip(drawn, column, strict=True))) for column in numpy.array([*drawn.values()]).T]
    return f"The same pick in {100 * draws.count(pick) / len(draws):.3g} % of {len(draws)} draws of the documents and in {told}."


def _far_text(study: Study, pick: str, margin: float) -> tuple[str, ...]:
    """What far text is worth to a pick: full attention against the last tokens alone, and recall inside."""
    told = []
    effect = study.full.get((pick, study.longest))
    if effect and effect["difference"] is not None:
        difference, half = effect["difference"], effect["half_width"] or 0.0
        used = "hardly used" if abs(difference) + half <= margin else "used" if difference < 0 else "no help"
        told.append(
            f"With {study.longest} tokens in view instead of {study.in_view} the loss of {pick} changes by "
            f"{signed(difference, effect['half_width'])} nats/token: far text is {used}."
        )
    if pick in study.recalls:
        seen = "is seen" if study.recalls[pick] else "is not seen"
        told.append(f"Recall inside the train length {seen} in {pick}.")
    return tuple(told)


def _flips(scenario: Scenario, study: Study, pick: str, decide: Callable[[Mapping[str, float]], str]) -> str:
    """Which other preference gives another pick, by the means alone."""
    chosen, _, _ = _candidates(scenario, study)
    found: dict[str, str] = {}
    for term in PREFERENCES:
        labels = [label for label in chosen if term.measure != RECALL or study.recalls.get(label)]
        settled = term.at == LONGEST or not _unsettled(study, labels)
        if settled and [term] != [*scenario.objective] and (means := _means(study, labels, [term])):
            found[f"{term.text} alone"] = decide(means)
    speeds = {label: study.ratios[label]["train_speed"] for label in chosen if "train_speed" in study.ratios[label]}
    if speeds:
        found["training speed alone"] = max(speeds, key=speeds.__getitem__)
    for name, limit in scenario.constraints.items():
        if limit is not False:
            without = dataclasses.replace(scenario, constraints={**scenario.constraints, name: False})
            if means := _means(study, _candidates(without, study)[0], scenario.objective):
                found[f"without {name}"] = decide(means)
    if scenario.prefer and (means := _means(study, chosen, scenario.objective)):
        found["without a preference for the simpler"] = _point(dataclasses.replace(scenario, prefer=()), study, means)
    told = [f"{how}: {other}" for how, other in found.items() if other != pick]
    return f"{'; '.join(told)}." if told else f"None of these: {'; '.join(found)}."


def _means(study: Study, labels: Iterable[str], objective: Sequence[Term]) -> dict[str, float]:
    scores = {label: [*study.scores(label, objective).values()] for label in labels}
    return {label: statistics.mean_and_half_width(found)[0] for label, found in scores.items() if found}


# --- a model that is trained already ---------------------------------------------------------------------------------


def _keep(scenario: Scenario, study: Study) -> Answer:
    """A trained model keeps its encoding; it is extended where its loss rises with the context asked for."""
    scheme = scenario.situation.pretrained
    labels = sorted(label for label, name in study.schemes.items() if name == scheme)
    if not labels:
        return _none(f"The rule is to keep {scheme}, and the study has no run of it")
    label = scheme if scheme in labels else labels[0]
    if scenario.situation.lengths is not None and scenario.situation.lengths <= 1:
        reason = f"Keep {scheme}: no text is longer than those that the model was trained on."
        return Answer(source=MEASURED, pick=f"keep {scheme}", reason=reason)
    effect = study.context.get((label, study.longest))
    if effect is None or effect["difference"] is None:
        why = (effect or {}).get("reason") or "its loss there was not measured on the same targets"
        return _none(f"The rule is to keep {scheme}; whether it needs to be extended is not known: {why}")
    told, extend = study.rise(effect), study.rises(effect, scenario.margin)
    if len(effect["seeds"]) < 2 or extend is None:
        why = "one seed is an indication" if len(effect["seeds"]) < 2 else "undecided"
        remedy = {"seed": _seeds(study, max(SEEDS[0], 2 * len(study.seeds)))}
        return _none(f"The rule is to keep {scheme}; whether to extend it: {why} ({told})", remedy, "to decide it")
    how = "and extend it, for" if extend else "as it is, for"
    pick = f"keep {scheme} and extend it" if extend else f"keep {scheme}"
    before, after = (Term(measure="loss/fixed_targets", at=place) for place in (INSIDE, LONGEST))
    pairs = {
        seed: row["value"] - study.values(label, before)[seed]["value"]
        for seed, row in study.values(label, after).items()
        if seed in study.values(label, before)
    }

    def decide(scores: Mapping[str, float]) -> str:
        return f"keep {scheme} and extend it" if scores[label] > scenario.margin else f"keep {scheme}"

    return Answer(
        source=MEASURED,
        pick=pick,
        reason=f"Keep {scheme} {how} {told}.",
        confidence=_confidence(study, (after, dataclasses.replace(before, weight=-1.0)), {label: pairs}, pick, decide),
        flips="Texts no longer than those trained on: keep it as it is." if extend else "None: it is kept either way.",
        remedy={"parameters": str(4 * study.parameters)} if study.parameters else {},
        why="to see whether it holds for larger models",
    )
