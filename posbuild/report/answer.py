"""What a comparison shows, in sentences computed from its outcomes; no pick where the rules forbid one."""

from __future__ import annotations

from collections import Counter
from typing import Any

from posbuild.comparison.compare import LOWER_IS_BETTER, NOT_LEARNED, STILL_LEARNING
from posbuild.comparison.learning import UNUSABLE
from posbuild.comparison.statistics import BETTER, EQUIVALENT, INDICATION, UNDECIDED, WORSE
from posbuild.records import MEASURED, NOT_MEASURED, NOT_SUPPORTED
from posbuild.report import words

Content = dict[str, Any]

UNITS = "Loss and recall gain in nats per token; ± half the width of the 95 % interval over seeds."
NOTHING = "No run is complete, so there is nothing to compare yet."
ORDER = (BETTER, EQUIVALENT, UNDECIDED, INDICATION, STILL_LEARNING, NOT_LEARNED, NOT_SUPPORTED, NOT_MEASURED)


def findings(comparison: Content, budget: Content) -> list[str]:
    """Sentences: who has not learned enough, who is ahead inside the train length and at the longest, whose loss stays, who recalls."""
    mine = {
        name: [item for item in comparison[name] if item["budget"] == budget["number"]]
        for name in ("summary", "outcomes")
    }
    inside, longest = budget["train_length"], _longest(mine["summary"])
    sentences = [
        *_unusable(comparison, budget),
        _standing(
            mine, "loss/whole_windows", {"length": inside, "window": 0}, f"At the train length ({inside} tokens)"
        ),
    ]
    if longest > inside:
        sentences.append(
            _standing(
                mine,
                "loss/whole_windows",
                {"length": longest, "window": 0},
                f"At {longest} tokens ({longest / inside:g} times the train length)",
            )
        )
        sentences += _flatness(mine["summary"], inside, longest, comparison["margin"])
    sentences += _recall(mine["summary"], inside, comparison["margin"])
    return [sentence for sentence in sentences if sentence]


def _unusable(comparison: Content, budget: Content) -> list[str]:
    """A warning on schemes with a run that has not learned enough to be compared."""
    found: dict[str, set[str]] = {}
    for run in comparison["runs"]:
        if run["budget"] == budget["number"] and run["state"] in UNUSABLE:
            found.setdefault(run["state"], set()).add(run["label"])
    told = [f"{words.listed(sorted(labels))} ({state})" for state, labels in sorted(found.items())]
    return (
        [f"Not learned enough to be compared: {', '.join(told)}. Their numbers show how fast they learn, no more."]
        if told
        else []
    )


def _longest(summary: list[Content]) -> int:
    return max((entry["at"]["length"] for entry in summary if entry["measure"] == "loss/whole_windows"), default=0)


def _standing(mine: Content, measure: str, at: Content, where: str) -> str:
    """One sentence: the scheme that is ahead of all others, or why there is none."""
    entries = [entry for entry in mine["summary"] if entry["measure"] == measure and entry["at"] == at]
    measured = sorted(
        (entry for entry in entries if entry["status"] == MEASURED),
        key=lambda entry: (entry["mean"] if LOWER_IS_BETTER[measure] else -entry["mean"], entry["label"]),
    )
    absent = [f"{entry['label']} is {words.words_instead(entry)}" for entry in entries if entry["status"] != MEASURED]
    tail = "".join(f"; {sentence}" for sentence in absent) + "."
    if not measured:
        return f"{where}: no scheme was measured{tail}"
    if len(measured) == 1:
        return f"{where}: only {measured[0]['label']} was measured ({words.cell(measured[0])}), so there is no comparison{tail}"
    names = {entry["label"] for entry in measured}
    pairs = [
        item
        for item in mine["outcomes"]
        if item["measure"] == measure and item["at"] == at and set(item["pair"]) <= names
    ]
    first = measured[0]["label"]
    against = [_for(first, item) for item in pairs if first in item["pair"]]
    lowest = f"lowest mean loss: {', '.join(entry['label'] + ' ' + words.cell(entry) for entry in measured[:3])}"
    if all(outcome == BETTER for outcome in against):
        return f"{where}: {first} is better than every other scheme measured ({lowest}){tail}"
    if all(outcome in (BETTER, EQUIVALENT) for outcome in against):
        equals = sorted(
            other
            for item in pairs
            if first in item["pair"] and item["outcome"] == EQUIVALENT
            for other in item["pair"]
            if other != first
        )
        return f"{where}: {first} is ahead, equivalent to {words.listed(equals)} ({lowest}){tail}"
    counted = Counter(BETTER if item["outcome"] == WORSE else item["outcome"] for item in pairs)
    told = words.listed(
        [f"{counted[outcome]} {_plural(outcome, counted[outcome])}" for outcome in ORDER if counted[outcome]]
    )
    return f"{where}: no pick; of {len(pairs)} {'pair' if len(pairs) == 1 else 'pairs'} {told} ({lowest}){tail}"


def _plural(outcome: str, count: int) -> str:
    verb = "is" if count == 1 else "are"
    return {
        BETTER: f"{'has' if count == 1 else 'have'} one side better",
        INDICATION: f"{verb} an indication from one seed" if count == 1 else f"{verb} indications from one seed",
    }.get(outcome, f"{verb} {outcome}")


def _for(label: str, item: Content) -> str:
    """The outcome of a pair as it is for this one of the two."""
    outcome: str = item["outcome"]
    return outcome if item["pair"][0] == label else {BETTER: WORSE, WORSE: BETTER}.get(outcome, outcome)


def _flatness(summary: list[Content], inside: int, longest: int, margin: float) -> list[str]:
    """Whose mean loss stays or falls from the train length to the longest, whose rises, and what a flat one is worth."""

    def means(length: int, window: int) -> dict[str, float]:
        at = {"length": length, "window": window}
        return {
            e["label"]: e["mean"]
            for e in summary
            if e["measure"] == "loss/whole_windows" and e["at"] == at and e["status"] == MEASURED
        }

    short, long, control = means(inside, 0), means(longest, 0), means(longest, inside)
    rise = {label: long[label] - short[label] for label in sorted(long) if label in short}
    flat = [label for label in rise if rise[label] <= margin]
    rising = [f"{label} ({words.signed(rise[label], 'nats/token')})" for label in rise if rise[label] > margin]
    told = [f"{words.listed(flat)} {'stays' if len(flat) == 1 else 'stay'} within {margin:g} nats or {'falls' if len(flat) == 1 else 'fall'}" if flat else "",
            f"{words.listed(rising)} {'rises' if len(rising) == 1 else 'rise'}" if rising else ""]  # fmt: skip
    sentences = (
        [f"Mean loss from {inside} to {longest} tokens: {'; '.join(part for part in told if part)}."] if rise else []
    )
    worth = [label for label in flat if label in control]
    if worth:
        used = [f"{label} {words.signed(long[label] - control[label], 'nats/token')}" for label in worth]
        sentences.append(
            f"What a flat loss is worth: full attention against attention cut to {inside} tokens, at {longest} tokens: {', '.join(used)} (below zero: far context helps)."
        )
    return sentences


def _recall(summary: list[Content], inside: int, margin: float) -> list[str]:
    entries = [entry for entry in summary if entry["measure"] == "recall/gain"]
    near: dict[str, float] = {}
    for entry in entries:
        if entry["at"]["distance"] <= inside and entry["status"] == MEASURED:
            near[entry["label"]] = max(entry["mean"], near.get(entry["label"], entry["mean"]))
    if not near:
        return []
    learned = sorted(label for label in near if near[label] > margin)
    far = max(entry["at"]["distance"] for entry in entries)
    beyond = [
        f"{e['label']} {words.signed(e['mean'], 'nats/token')}"
        for e in entries
        if e["at"]["distance"] == far > inside and e["label"] in learned and e["status"] == MEASURED
    ]
    if not learned:
        return [
            f"No scheme has learned recall inside the train length (gain at most {margin:g} nats/token), so recall beyond says nothing."
        ]
    others = sorted(near.keys() - set(learned))
    told = f"Recall inside the train length is learned by {words.listed(learned)}" + (
        f", not by {words.listed(others)}" if others else ""
    )
    return [told + (f"; gain at a distance of {far} tokens: {', '.join(beyond)}." if beyond else ".")]
