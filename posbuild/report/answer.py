"""What a comparison shows, in sentences computed from its outcomes; no pick where the rules forbid one."""

from __future__ import annotations

from collections import Counter
from typing import Any

from posbuild.comparison.compare import LOWER_IS_BETTER, NOT_LEARNED, STILL_LEARNING
from posbuild.comparison.context import FULL, LONGER
from posbuild.comparison.learning import UNUSABLE
from posbuild.comparison.recall import MEASURE as RECALL
from posbuild.comparison.statistics import BETTER, EQUIVALENT, INDICATION, UNDECIDED, WORSE, turned
from posbuild.records import MEASURED, NOT_FINITE, NOT_MEASURED, NOT_SUPPORTED
from posbuild.report import words

Content = dict[str, Any]

NOTHING = "No run is complete, so there is nothing to compare yet."
ORDER = (
    BETTER,
    EQUIVALENT,
    UNDECIDED,
    INDICATION,
    STILL_LEARNING,
    NOT_LEARNED,
    NOT_FINITE,
    NOT_SUPPORTED,
    NOT_MEASURED,
)


def units(comparison: Content, budget: Content) -> str:
    """What the numbers of the main table are."""
    several = any(
        entry["half_width"] is not None for entry in comparison["summary"] if entry["budget"] == budget["number"]
    )
    spread = "± half the width of the 95 % interval over seeds" if several else "one seed, so no interval"
    return (
        "Loss: mean over every token of whole windows of so many tokens. Recall: fall of the loss of a passage "
        "that was read so many tokens before. "
        f"Both in nats per token; {spread}."
    )


def findings(comparison: Content, budget: Content) -> list[str]:
    """Sentences: who has not learned enough, who is ahead inside the train length and at the longest, what more context does, who recalls."""
    mine = {
        name: [item for item in comparison[name] if item["budget"] == budget["number"]]
        for name in ("summary", "outcomes", "recall", "context")
    }
    sentences = [
        *_unusable(comparison, budget),
        *_standings(mine, budget["train_length"]),
        *_context(mine["context"], budget["train_length"], comparison["margin"]),
        *_recall(mine, budget["train_length"]),
    ]
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


def _standings(mine: dict[str, list[Content]], inside: int) -> list[str]:
    """Who is ahead in whole windows at the train length and at the longest length; one sentence where there is but one scheme."""
    labels = {entry["label"] for entry in mine["summary"]}
    if len(labels) == 1:
        return [f"Only {labels.pop()} was measured, so there is no comparison."]
    longest = _longest(mine["summary"])
    places = [(inside, f"At the train length ({inside} tokens)")]
    if longest > inside:
        places.append((longest, f"At {longest} tokens ({longest / inside:g} times the train length)"))
    return [_standing(mine, "loss/whole_windows", {"length": length, "window": 0}, where) for length, where in places]


def _standing(mine: Content, measure: str, at: Content, where: str) -> str:
    """One sentence: the scheme that is ahead of all others, or why there is none."""
    entries = [entry for entry in mine["summary"] if entry["measure"] == measure and entry["at"] == at]
    measured = sorted(
        (entry for entry in entries if entry["status"] == MEASURED),
        key=lambda entry: (entry["mean"] if LOWER_IS_BETTER[measure] else -entry["mean"], entry["label"]),
    )
    absent = [
        f"{entry['label']} is {words.words_instead(entry['status'], entry['reason'])}"
        for entry in entries
        if entry["status"] != MEASURED
    ]
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
    against = [
        item["outcome"] if item["pair"][0] == first else turned(item["outcome"])
        for item in pairs
        if first in item["pair"]
    ]
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
    counted = Counter(BETTER if item["outcome"] == WORSE else item["outcome"] for item in pairs)  # either side
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


def _context(effects: list[Content], inside: int, margin: float) -> list[str]:
    """What the longest context does to the loss, and whether far tokens are used."""
    openings = {
        LONGER: f"Loss on the same {{targets}} with {{longest}} instead of {inside} tokens of context ({{seeds}})",
        FULL: f"Loss with full attention minus attention cut to the last {inside} tokens, same model, same {{targets}}, "
        "{longest} tokens of context ({seeds}; −0.05 means that tokens further back helped)",
    }
    sentences = []
    for effect, opening in openings.items():
        mine = [entry for entry in effects if entry["effect"] == effect]
        # The longest with a difference: at a length that few documents reach the targets are others.
        longest = max((entry["length"] for entry in mine if entry["seeds"]), default=0)
        entries = [entry for entry in mine if entry["length"] == longest]
        measured = [entry for entry in entries if entry["seeds"]]
        if measured:
            absent = [
                f"; {entry['label']} is {words.words_instead(entry['outcome'], entry['reason'])}"
                for entry in entries
                if not entry["seeds"]
            ]
            opening = opening.format(longest=longest, targets=_targets(measured), seeds=_seeds(measured))
            sentences.append(f"{opening}: {_by_outcome(measured, margin)}{''.join(absent)}.")
    return sentences


def _by_outcome(entries: list[Content], margin: float) -> str:
    """Labels with their differences, together where the outcome is the same."""
    phrases = {
        WORSE: "higher for ",
        UNDECIDED: "undecided for ",
        EQUIVALENT: f"equal within ±{margin:g} for ",
        BETTER: "lower for ",
        INDICATION: "" if all(len(entry["seeds"]) == 1 for entry in entries) else "indication only for ",
    }
    told = {
        phrase: [
            f"{entry['label']} ({words.change(entry['difference'], entry['half_width'])}{_fewer(entry, entries)})"
            for entry in entries
            if entry["outcome"] == outcome
        ]
        for outcome, phrase in phrases.items()
    }
    return "; ".join(phrase + words.listed(labels) for phrase, labels in told.items() if labels)


def _targets(entries: list[Content]) -> str:
    counts = {entry["count"] for entry in entries}
    return f"{counts.pop():,} target tokens" if len(counts) == 1 and None not in counts else "target tokens"


def _seeds(entries: list[Content]) -> str:
    """How many seeds stand behind these entries; of the entries that have fewer, `_fewer` says it."""
    counts = {len(entry["seeds"]) for entry in entries}
    if counts == {1}:
        return "one seed, an indication"
    return f"{max(counts)} seeds" + (" where no other number stands" if len(counts) > 1 else "")


def _fewer(entry: Content, entries: list[Content]) -> str:
    """The seeds of one entry, where others have more."""
    count = len(entry["seeds"])
    if count == max(len(each["seeds"]) for each in entries):
        return ""
    return f", {count} {'seed' if count == 1 else 'seeds'}"


def _recall(mine: dict[str, list[Content]], inside: int) -> list[str]:
    """Who recalls inside the train length and, of these, the gain at the farthest distance."""
    entries = mine["recall"]
    if not entries:
        return []
    distances = sorted({distance for entry in entries for distance in entry["distances"]})
    over = words.listed(sorted({entry["interval_over"] for entry in entries}, reverse=True))
    told = {
        phrase: [
            f"{entry['label']} ({words.between(entry['interval'], entry['mean'])}{_fewer(entry, entries)})"
            for entry in entries
            if entry["recalls"] is recalls
        ]
        for recalls, phrase in ((True, "seen in "), (False, "not seen in "))
    }
    where = f"Recall inside the train length (mean gain at distances of {words.listed([str(each) for each in distances])} tokens, "
    return [
        f"{where}{_seeds(entries)}, interval over {over}): {'; '.join(phrase + words.listed(labels) for phrase, labels in told.items() if labels)}.",
        *_recall_beyond(mine["summary"], inside),
    ]


def _recall_beyond(summary: list[Content], inside: int) -> list[str]:
    """The gain at the farthest distance of those that recall inside; of the others none is told."""
    entries = [entry for entry in summary if entry["measure"] == RECALL and entry["at"]["distance"] > inside]
    far = max((entry["at"]["distance"] for entry in entries), default=0)
    told = [
        f"{entry['label']} {words.cell(entry)}"
        for entry in entries
        if entry["at"]["distance"] == far and entry["status"] == MEASURED
    ]
    if not told:
        return []
    return [
        f"Recall gain of these at a distance of {far} tokens ({far / inside:g} times the train length): {', '.join(told)}."
    ]
