"""An answer from one's own study, by the rules of an honest comparison. Reads comparison.json only."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

from posbuild import registry
from posbuild.comparison import statistics
from posbuild.comparison.context import FULL, LONGER
from posbuild.comparison.learning import LEARNED, NOT_LEARNED, STILL_LEARNING, UNKNOWN
from posbuild.comparison.statistics import EQUIVALENT, UNDECIDED, WORSE, mean_and_half_width
from posbuild.guide.answers import (
    BEYOND,
    MEASURED,
    Answer,
    count_model,
    counted,
    flips,
    grouped,
    listed,
    named,
    not_known,
    number,
    signed,
    size,
    some,
)
from posbuild.guide.constraints import Candidate, judge
from posbuild.guide.scenarios import INSIDE, LONGEST, Scenario, Situation, Term
from posbuild.guide.study import RECALL, Study
from posbuild.records import NOT_SUPPORTED

Content = dict[str, Any]
Scores = Mapping[str, Mapping[int, float]]  # label -> seed -> objective, less being better
Decide = Callable[[Mapping[str, float]], str]  # from objectives by label to a pick
TOLD = 3  # runners-up
SEEDS = (3, 12)  # seeds that a first study has, and the most that is proposed
LARGER = "to see whether it holds for larger models"

# What else a person may care for, beside the objective: tried for what would flip the pick.
PREFERENCES = (
    Term(measure="loss/whole_windows", at=INSIDE),
    Term(measure="loss/whole_windows", at=LONGEST),
    Term(measure=RECALL, at=LONGEST),
)


def answer(scenario: Scenario, comparison: Content) -> Answer:
    """What a study says in the scenario's situation; no pick where the rules forbid one."""
    situation = scenario.situation
    budgets = [budget for budget in comparison["budgets"] if budget["causal"] is situation.causal]
    if situation.axes > 1:
        return _none(f"Not measured: the models of the study have one axis, and {situation.axes} are asked for")
    if not comparison["budgets"] and comparison.get("tuning"):
        return _none("Not measured: the study tuned rates, on validation documents; give one that trained with them")
    if not comparison["budgets"]:
        return _none("Not measured: no run of the study is complete", {"study": comparison["title"]}, "to complete it")
    if not budgets:
        theirs, asked = ("bidirectional", "causal") if situation.causal else ("causal", "bidirectional")
        reason = f"Not measured: the models of the study are {theirs}, and say nothing of {asked} ones"
        return _none(reason, first_study(situation), f"to measure {asked} ones")
    study = Study(comparison, max(budgets, key=_weight), situation.lengths)
    found = _out_of_scope(study, situation) or (_keep if situation.pretrained else _choose)(scenario, study)
    return dataclasses.replace(found, scope=study.scope + _left_out(comparison))


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
        asked = size(situation.parameters)
        return _none(
            f"The largest model measured has {size(study.parameters)} parameters, and {asked} is beyond {BEYOND} times "
            "that; see the published evidence",
            {"parameters": str(situation.parameters / BEYOND)},
            f"to speak of {asked} parameters",
        )
    if situation.train_length and situation.train_length > BEYOND * study.train_length:
        asked = f"windows of {situation.train_length} tokens"
        return _none(
            f"The models were trained on windows of {study.train_length} tokens, and {situation.train_length} is beyond "
            f"{BEYOND} times that; see the published evidence",
            {"train.length": str(-(-situation.train_length // BEYOND))},
            f"to speak of {asked}",
        )
    if not study.reaches:
        asked = f"{situation.lengths:g} times"
        return _none(
            f"Measured to {study.longest / study.train_length:g} times the train length, and {asked} is asked for",
            {"eval.multiples": multiples(situation.lengths or 1)},
            f"to measure as far as {asked} the train length",
        )
    return None


def multiples(reach: float) -> str:
    """Lengths to measure at, in train lengths, that double until they reach so far."""
    return "[" + ",".join(str(2**power) for power in range(math.ceil(math.log2(max(reach, 2))) + 1)) + "]"


def _left_out(comparison: Content) -> str:
    """Budgets that were not looked at, and runs that have no numbers."""
    others = len(comparison["budgets"]) - 1
    lost: dict[str, list[str]] = {}
    for run in comparison["runs"]:
        if run["budget"] is None and not run.get("tuning"):
            lost.setdefault(run["status"], []).append(f"{run['label']} seed {run['seed']}")
    told = f" {counted(others, 'other budget')} of the study: not looked at." if others else ""
    return told + "".join(f" {status.capitalize()}: {listed(runs)}." for status, runs in lost.items())


# --- who may be picked -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Eligible:
    """Labels that may be picked, why each other may not, and what is not known of the first.

    What has not learned is not worse; it is left out, and told apart from what a constraint rules out.
    """

    chosen: list[str] = field(default_factory=list)
    ruled_out: dict[str, str] = field(default_factory=dict)
    unlearned: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, list[str]] = field(default_factory=dict)

    @property
    def told(self) -> str:
        """Who may not be picked, in few words: "ruled out: learned; rope and t5: a run has not learned"."""
        out = [f"ruled out: {listed(self.ruled_out)}"] if self.ruled_out else []
        return "; ".join([*out, *grouped({label: why.partition(",")[0] for label, why in self.unlearned.items()})])


def _eligible(scenario: Scenario, study: Study) -> Eligible:
    found = Eligible()
    recall = any(term.measure == RECALL for term in scenario.objective)
    for label in sorted(study.schemes):
        out, unknown = judge(_candidate(study, label, scenario.margin), scenario.required)
        if out:
            found.ruled_out[label] = out
        elif NOT_LEARNED in study.states(label):
            found.unlearned[label] = (
                f"a run has not learned, with a validation loss above that of {count_model(study.budget)}"
            )
        elif recall and not study.recalls.get(label):
            found.unlearned[label] = f"no recall is seen inside {study.train_length} tokens, so none beyond counts"
        elif not study.scores(label, scenario.objective):
            found.ruled_out[label] = "not measured there"
        else:
            found.chosen.append(label)
            found.unknown.update({label: unknown} if unknown else {})
    return found


def _candidate(study: Study, label: str, margin: float) -> Candidate:
    effect = study.context(label, LONGER)
    rises = _rises(effect, margin)
    lengths = study.of("summary", label=label, measure="loss/whole_windows", at={"length": study.longest, "window": 0})
    return Candidate(
        scheme=study.schemes[label],
        supported=lengths[0]["status"] != NOT_SUPPORTED if lengths else None,
        rises=rises,
        told=_rise(study, effect) if effect and rises else "",
        ratios=study.ratios[label],
    )


def _rises(effect: Content | None, margin: float) -> bool | None:
    """Whether a loss rises by more than the margin; None where it was not measured or the interval does not tell."""
    if effect is None or effect["difference"] is None:
        return None
    difference, half = effect["difference"], effect["half_width"] or 0.0
    return None if difference - half <= margin < difference + half else difference > margin


def _rise(study: Study, effect: Content) -> str:
    change = signed(effect["difference"], effect["half_width"])
    return f"its loss changes by {change} nats/token with {effect['length']} instead of {study.train_length} tokens of context"


def _unsettled(study: Study, labels: Iterable[str]) -> str:
    """Why nothing is picked inside the train length: some scheme has not finished learning. Empty if all have."""
    among = {*labels}
    found: dict[str, list[str]] = {}
    for label in sorted(among):
        for state in study.states(label) - {LEARNED}:
            found.setdefault("learning not measured" if state == UNKNOWN else state, []).append(label)
    told = [f"{listed(who)}: {state}" for state, who in found.items()]
    moving = [
        outcome
        for outcome in study.of("outcomes")
        if outcome["outcome"] in (STILL_LEARNING, UNDECIDED) and outcome["reason"] and {*outcome["pair"]} <= among
    ]
    if moving:
        first = moving[0]
        pairs = {tuple(outcome["pair"]) for outcome in moving}
        told.append(
            f"{counted(len(pairs), 'pair')} may still change, such as {listed(first['pair'])}: {first['reason'].partition(' (')[0]}"
        )
    return f"Inside the train length nothing is settled ({'; '.join(told)})" if told else ""


# --- the pick --------------------------------------------------------------------------------------------------------


def _choose(scenario: Scenario, study: Study) -> Answer:
    objective = scenario.objective
    if len(study.schemes) == 1:
        return _none(
            f"Only {listed(study.schemes)} was measured, so there is nothing to choose from",
            {"pe": ",".join(registry.schemes()), "seed": seeds(study.seeds, SEEDS[0])},
            "to have something to compare it with",
        )
    if lacking := _lacking(scenario, study):
        return lacking
    found = _eligible(scenario, study)
    facts: Content = {
        "ruled_out": grouped(found.ruled_out | found.unlearned),
        "unchecked": not_known(found.unknown),
    }
    more_seeds = {"seed": seeds(study.seeds, SEEDS[0])}
    longer = {"train.steps": str(2 * study.budget["train"]["steps"]), **(more_seeds if len(study.seeds) < 2 else {})}
    inside = any(term.at == INSIDE for term in objective) or study.longest == study.train_length
    if inside and (held := _unsettled(study, [*found.chosen, *found.unlearned])):
        return _none(held, longer, "to let every scheme finish learning", **facts)
    if not found.chosen or (len(found.chosen) == 1 and found.unlearned):
        left = f"Only {found.chosen[0]} is left" if found.chosen else "No scheme is left"
        worse = ", and what has not learned is not worse" if found.unlearned else ""
        remedy = longer if found.unlearned else None
        return _none(f"{left}{worse} ({found.told})", remedy, "to see what more is learned", **facts)
    scores = {label: study.scores(label, objective) for label in found.chosen}
    shared = sorted(set.intersection(*({*by_seed} for by_seed in scores.values())))
    if not shared:
        return _none("The schemes have no seed in common", more_seeds, "to pair them", **facts)
    if not all(study.same_targets(scores, term, seed) for term in objective for seed in shared):
        return _none("The runs scored different tokens, which do not compare", **facts)
    if len(shared) == 1:
        order = sorted(scores, key=lambda label: (scores[label][shared[0]], label))[:2]
        told = " before ".join(f"{label} {number(scores[label][shared[0]])}" for label in order)
        one = "One seed" if len(study.seeds) == 1 else f"Of all schemes only seed {shared[0]} was measured; one seed"
        reason = f"{one} is an indication, no pick ({study.objective(objective)}: {told} nats/token)"
        return _none(reason, more_seeds, "to have intervals over seeds", **facts)
    paired = {label: {seed: by_seed[seed] for seed in shared} for label, by_seed in scores.items()}
    return dataclasses.replace(_decided(scenario, study, paired, found), **facts)


def _lacking(scenario: Scenario, study: Study) -> Answer | None:
    """Why the study cannot speak to the objective at all."""
    if scenario.situation.retrieval and not any(term.measure == RECALL for term in scenario.objective):
        return _none(f"{scenario.name} weighs loss only, so there is no pick for retrieval; see long_retrieval")
    for term in scenario.objective:
        if not any(study.values(label, term) for label in study.schemes):
            if term.measure != RECALL:
                return _none(f"Not measured: {term.text}")
            reason = f"Loss only, no pick for retrieval: {term.text} was not measured"
            return _none(reason, {"eval.recall_passages": "64"}, "to measure recall")
    return None


def seeds(known: Iterable[int], count: int) -> str:
    """The seeds that are known, and as many more as make `count`."""
    known = [*known]
    more = [seed for seed in range(count) if seed not in known][: max(0, count - len(known))]
    return ",".join(map(str, sorted([*known, *more])))


@dataclass(frozen=True, kw_only=True)
class Gap:
    """How far a label lies behind another: the mean over seeds, half the width of its interval, and what that is worth."""

    mean: float
    half: float | None
    outcome: str
    seeds_needed: int | None

    @property
    def text(self) -> str:
        return signed(self.mean, self.half)


def _against(scores: Scores, reference: str, margin: float) -> dict[str, Gap]:
    """How far each other label lies behind one, the nearest first.

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
            mean, half = mean_and_half_width(family[pair])
            second = pair[0] == reference
            outcome = statistics.turned(verdict.outcome) if second else verdict.outcome
            if (verdict.p_equivalence or 0) < statistics.ALPHA:
                outcome = EQUIVALENT
            found[pair[1] if second else pair[0]] = Gap(
                mean=mean if second else -mean, half=half, outcome=outcome, seeds_needed=verdict.seeds_needed
            )
    return dict(sorted(found.items(), key=lambda item: item[1].mean))


def _decided(scenario: Scenario, study: Study, scores: Scores, found: Eligible) -> Answer:
    """Whoever is better than, or equivalent to, every other; of equivalent ones the simpler or cheaper."""
    means = {label: mean_and_half_width([*by_seed.values()]) for label, by_seed in scores.items()}
    lead = min(means, key=lambda label: (means[label][0], label))
    gaps = _against(scores, lead, scenario.margin)
    beaten, tied, undecided = (
        [label for label, gap in gaps.items() if gap.outcome == wanted] for wanted in (WORSE, EQUIVALENT, UNDECIDED)
    )
    what = study.objective(scenario.objective)
    ranked = ", ".join(f"{label} {number(*means[label])}" for label in (lead, *gaps))
    numbers = f"{what.rstrip(',').capitalize()}: {ranked} nats/token, {len(scores[lead])} seeds."
    reason = f"{named(lead)} comes first ({what} {number(*means[lead])} nats/token)"
    shown = {label: f"{label} ({gap.text})" for label, gap in gaps.items()}
    if undecided:
        needed = [gaps[label].seeds_needed or 0 for label in undecided]
        more = f"; {max(needed)} seeds would decide if the spread stays" if all(needed) else ""
        count = min(max(needed) or 2 * len(study.seeds), SEEDS[1])
        purpose = "decide" if max(needed) <= SEEDS[1] else "come nearer to a decision"
        return _none(
            f"{reason}, and it is undecided against {some([shown[label] for label in undecided])}{more}",
            {"seed": seeds(study.seeds, max(count, len(study.seeds) + 1))},
            f"to {purpose} between {listed([lead, *undecided])}",
            numbers=(numbers, *(f"{label}: {gap.text} nats/token, {gap.outcome}" for label, gap in gaps.items())),
        )
    pick, why = _simplest(scenario, study, [lead, *tied])
    if beaten:
        reason += f", ahead of {beaten[0]} by {gaps[beaten[0]].text.lstrip('+')}"
        reason += f" and of {some(beaten[1:])} by more" if beaten[1:] else ""
    if tied:
        told = some([shown[label] for label in tied], 2)
        reason += (
            f"; equivalent within ±{scenario.margin:g} {'is' if len(tied) == 1 else 'are'} {told}, and {pick} {why}"
        )
    if not gaps:
        reason += f", and is the only one left ({found.told})"
    for label in beaten:
        if study.schemes[label] in scenario.prefer:
            reason += f"; {label}, the simpler, lies behind by {gaps[label].text.lstrip('+')}"
    if pick in found.unknown:
        reason += f"; {listed(found.unknown[pick])} unknown"
    return Answer(
        source=MEASURED,
        pick=pick,
        reason=f"{reason}.",
        numbers=(numbers,),
        runners_up=_runners_up(scenario, study, scores, pick),
        confidence=_confidence(study, scenario.objective, scores, pick, functools.partial(_by_means, scenario, study)),
        flips=_flips(scenario, study, pick),
        evidence=(*_parts(scenario, study, scores), *_far_text(study, pick, scenario.margin)),
        remedy=_larger(study),
        why=LARGER,
    )


def _simplest(scenario: Scenario, study: Study, tied: Sequence[str]) -> tuple[str, str]:
    """Of equivalent labels, the best first, that which is preferred, else the one that surely trains fastest; and why."""
    preferred = [label for name in scenario.prefer for label in tied if study.schemes[label] == name]
    if preferred:
        return preferred[0], "is the simplest"
    speeds = {label: study.ratios[label]["train_speed"] for label in tied if "train_speed" in study.ratios[label]}
    if len(speeds) == len(tied):
        fastest = max(speeds, key=lambda label: speeds[label])
        mean, half = speeds[fastest]
        if all(others[0] + others[1] < mean - half for label, others in speeds.items() if label != fastest):
            return fastest, "trains fastest"
    return tied[0], "has the lowest mean, as no training speed stands out"


def _by_means(scenario: Scenario, study: Study, means: Mapping[str, float]) -> str:
    """The pick by numbers alone: the simplest of those within the margin of the first."""
    order = sorted(means, key=lambda label: (means[label], label))
    return _simplest(scenario, study, [each for each in order if means[each] - means[order[0]] < scenario.margin])[0]


# --- what stands beside it -------------------------------------------------------------------------------------------


def _larger(study: Study) -> dict[str, str]:
    return {"parameters": str(4 * study.parameters)} if study.parameters else {}


def _runners_up(scenario: Scenario, study: Study, scores: Scores, pick: str) -> tuple[str, ...]:
    told = []
    for label, gap in [*_against(scores, pick, scenario.margin).items()][:TOLD]:
        speeds = [study.train_speed(each) for each in (label, pick)]
        cost = (
            f"; trains at {speeds[0]:.2f} of the speed without encoding, {pick} at {speeds[1]:.2f}"
            if all(speeds)
            else ""
        )
        told.append(f"{label}: {gap.text} nats/token, {gap.outcome}{cost}")
    return tuple(told)


def _confidence(study: Study, objective: Sequence[Term], scores: Scores, pick: str, decide: Decide) -> str:
    """How often the same is picked when documents are drawn again within each seed, and when each seed is left out."""
    known = [*next(iter(scores.values()))]
    left_out = [
        decide(
            {
                label: math.fsum(found[seed] for seed in known if seed != out) / (len(known) - 1)
                for label, found in scores.items()
            }
        )
        for out in known
    ]
    told = f"{left_out.count(pick)} of {len(known)} with one seed left out"
    drawn = {label: study.redrawn(label, objective, known) for label in scores}
    if any(values is None for values in drawn.values()):
        return f"The same pick in {told}; documents were not drawn again, for their sums are not in the comparison."
    draws = [decide(dict(zip(drawn, column, strict=True))) for column in numpy.array([*drawn.values()]).T]
    return f"The same pick in {100 * draws.count(pick) / len(draws):.3g} % of {len(draws)} draws of the documents and in {told}."


def _parts(scenario: Scenario, study: Study, scores: Scores) -> tuple[str, ...]:
    """Of an objective that weighs several things, each by itself."""
    told = []
    for term in scenario.objective if len(scenario.objective) > 1 else ():
        means = _means(study, scores, [dataclasses.replace(term, weight=1.0)])
        values = (f"{label} {number(term.sign * means[label])}" for label in sorted(means, key=means.__getitem__))
        told.append(f"{study.told(term).capitalize()}: {', '.join(values)} nats/token.")
    return tuple(told)


def _far_text(study: Study, pick: str, margin: float) -> tuple[str, ...]:
    """What far text is worth to a pick: full attention against the last tokens alone, and recall inside."""
    told = []
    effect = study.context(pick, FULL)
    if effect and effect["half_width"] is not None:
        low, high = (effect["difference"] + side * effect["half_width"] for side in (-1, 1))
        used = (
            "hardly used" if -margin <= low and high <= margin else "used" if high < 0 else "no help" if low > 0 else ""
        )
        told.append(
            f"With {study.longest} tokens in view instead of {study.in_view} the loss of {pick} changes by "
            f"{signed(effect['difference'], effect['half_width'])} nats/token: "
            f"{f'far text is {used}' if used else 'whether far text is used is undecided'}."
        )
    if pick in study.recalls:
        told.append(f"Recall inside the train length is {'' if study.recalls[pick] else 'not '}seen in {pick}.")
    return tuple(told)


def _flips(scenario: Scenario, study: Study, pick: str) -> str:
    """Which other preference gives another pick, by the means alone."""
    chosen = _eligible(scenario, study).chosen
    found: dict[str, str | None] = {}
    for term in PREFERENCES:
        labels = [label for label in chosen if term.measure != RECALL or study.recalls.get(label)]
        settled = term.at == LONGEST or not _unsettled(study, labels)
        if settled and (term,) != scenario.objective and (means := _means(study, labels, [term])):
            found[f"{term.text} alone"] = _by_means(scenario, study, means)
    if speeds := {label: speed for label in chosen if (speed := study.train_speed(label))}:
        found["training speed alone"] = max(speeds, key=speeds.__getitem__)
    others = {f"{name}=false": scenario.without(name) for name in scenario.required}
    if scenario.prefer:
        others["without a preference for the simpler"] = dataclasses.replace(scenario, prefer=())
    for how, other in others.items():
        found[how] = _by_means(other, study, _means(study, _eligible(other, study).chosen, scenario.objective))
    return flips(found, pick)


def _means(study: Study, labels: Iterable[str], objective: Sequence[Term]) -> dict[str, float]:
    scores = {label: [*study.scores(label, objective).values()] for label in labels}
    return {label: math.fsum(found) / len(found) for label, found in scores.items() if found}


# --- a model that is trained already ---------------------------------------------------------------------------------


def _keep(scenario: Scenario, study: Study) -> Answer:
    """A trained model keeps its encoding; it is extended where its loss rises with the context asked for."""
    scheme, lengths = scenario.situation.pretrained, scenario.situation.lengths
    labels = sorted(label for label, name in study.schemes.items() if name == scheme)
    if not labels:
        return _none(f"The rule is to keep {scheme}, and the study has no run of it")
    label = scheme if scheme in labels else labels[0]
    if lengths is not None and lengths <= 1:
        reason = f"Keep {scheme} as it is: no text is longer than those that the model was trained on."
        return Answer(source=MEASURED, pick=f"keep {scheme}", reason=reason)
    effect = study.context(label, LONGER)
    if effect is None or effect["difference"] is None:
        why = effect["reason"] if effect else f"a run of {label} has not learned, or has no loss there"
        return _none(f"The rule is to keep {scheme}; whether it needs to be extended is not known: {why}")
    told, extend = _rise(study, effect), _rises(effect, scenario.margin)
    if len(effect["seeds"]) < 2 or extend is None:
        why = "one seed is an indication" if len(effect["seeds"]) < 2 else "undecided"
        remedy = {"seed": seeds(study.seeds, max(SEEDS[0], 2 * len(study.seeds)))}
        return _none(f"The rule is to keep {scheme}; whether to extend it: {why} ({told})", remedy, "to decide it")
    extended = f"keep {scheme} and extend it"
    pick = extended if extend else f"keep {scheme}"
    change = (
        Term(measure="loss/fixed_targets", at=LONGEST),
        Term(measure="loss/fixed_targets", at=INSIDE, weight=-1.0),
    )

    def decide(rises: Mapping[str, float]) -> str:
        return extended if rises[label] > scenario.margin else f"keep {scheme}"

    return Answer(
        source=MEASURED,
        pick=pick,
        reason=f"Keep {scheme} {'and extend it' if extend else 'as it is'}, for {told}.",
        confidence=_confidence(study, change, {label: study.scores(label, change)}, pick, decide),
        flips="Texts no longer than those trained on: keep it as it is."
        if extend
        else "Nothing: it is kept either way.",
        remedy=_larger(study),
        why=LARGER,
    )
