"""What a comparison shows, in sentences computed from its outcomes; no pick where the rules forbid one."""

from __future__ import annotations

from collections import Counter
from typing import Any

from posbuild.comparison.context import FULL, LONGER
from posbuild.comparison.learning import NOT_LEARNED, STILL_LEARNING
from posbuild.comparison.recall import MEASURE as RECALL
from posbuild.comparison.statistics import BETTER, EQUIVALENT, INDICATION, UNDECIDED, WORSE, opposite, seen_from
from posbuild.guide.answers import count_model
from posbuild.records import MEASURED
from posbuild.report import words

Content = dict[str, Any]

LOSS = "loss/whole_windows"
TOLD = 3  # schemes named with their loss


def nothing(comparison: Content) -> str:
    """The answer where no run is complete."""
    counted = Counter(run["status"] for run in comparison["runs"])
    told = words.listed([f"{count} {status}" for status, count in sorted(counted.items())])
    return f"Nothing was measured, for no run is complete: {told}."


def units(comparison: Content, budget: Content) -> str:
    """What the numbers of the main table are."""
    several = any(
        entry["half_width"] is not None for entry in comparison["summary"] if entry["budget"] == budget["number"]
    )
    spread = "± half the width of the 95 % interval over seeds" if several else "one seed, so no interval"
    what = "masked tokens" if words.is_masked(budget) else "tokens"
    return (
        f"Loss at N: mean over all {what} of windows of N tokens. Recall at N: how far the loss of a passage falls "
        f"because it also stood N tokens before. Both in nats per token; {spread}."
    )


def findings(comparison: Content, budget: Content) -> list[str]:
    """Who is ahead at the train length and at the longest, what more context does, who recalls; or why nothing is told."""
    runs = [run for run in comparison["runs"] if run["budget"] == budget["number"]]
    if all(run["state"] == NOT_LEARNED for run in runs):
        return [_nothing_learned(len(runs), budget)]
    mine = {
        name: [item for item in comparison[name] if item["budget"] == budget["number"]]
        for name in ("rows", "summary", "outcomes", "recall", "context")
    }
    mine["runs"] = runs
    sentences = [
        _not_learned(runs, budget),
        *_standings(mine, budget),
        *_context(mine["context"], budget, comparison["margin"]),
        *_recall(mine, budget["train_length"]),
        _some_lengths(mine["rows"], budget),
    ]
    return [sentence for sentence in sentences if sentence]


def _nothing_learned(runs: int, budget: Content) -> str:
    who, they = ("this run has not", "it shows") if runs == 1 else (f"none of the {runs} runs has", "they show")
    return (
        f"After {words.counted(budget['train']['steps'], 'step')} {who} learned enough to be compared (validation loss "
        f"above that of {count_model(budget)}): {they} that everything works; the losses mean nothing yet."
    )


def _not_learned(runs: list[Content], budget: Content) -> str:
    """A warning on schemes with a run that has not learned enough to be compared."""
    labels = sorted({run["label"] for run in runs if run["state"] == NOT_LEARNED})
    if not labels:
        return ""
    return (
        f"Not compared, because a run of it has not learned (validation loss above that of {count_model(budget)}): "
        f"{words.listed(labels)}."
    )


# --- who is ahead ----------------------------------------------------------------------------------------------------


def _standings(mine: dict[str, list[Content]], budget: Content) -> list[str]:
    """Who is ahead in whole windows at the train length and at the longest length that all runs were measured at."""
    labels = {run["label"] for run in mine["runs"]}
    if len(labels) == 1:
        return [f"Only {labels.pop()} was measured, so there is nothing to compare it with."]
    inside = budget["train_length"]
    places = [(inside, f"At the train length ({inside} tokens)")]
    if (longest := max(budget["lengths"], default=0)) > inside:
        places.append((longest, f"At {longest} tokens ({longest / inside:g} times the train length)"))
    return [_standing(mine, {"length": length, "window": 0}, where) for length, where in places]


def _standing(mine: dict[str, list[Content]], at: Content, where: str) -> str:
    """Which scheme has the lowest loss, what that is worth, and which have none."""
    left_out = {run["label"] for run in mine["runs"] if run["state"] == NOT_LEARNED}
    entries = [
        entry
        for entry in mine["summary"]
        if (entry["measure"], entry["at"]) == (LOSS, at) and entry["label"] not in left_out
    ]
    ranked = sorted(
        (entry for entry in entries if entry["status"] == MEASURED), key=lambda entry: (entry["mean"], entry["label"])
    )
    absent = "".join(f" {sentence}" for sentence in _absent(entries))
    if not ranked:
        return f"{where} no scheme has a loss to compare.{absent}"
    names = [entry["label"] for entry in ranked]
    if len(ranked) == 1:
        return f"{where} only {names[0]} has a loss to compare ({words.cell(ranked[0])}).{absent}"
    against = [
        seen_from(names[0], item)
        for item in mine["outcomes"]
        if (item["measure"], item["at"]) == (LOSS, at) and names[0] in item["pair"] and set(item["pair"]) <= {*names}
    ]
    if len(against) == 1:
        return f"{where} {_one_pair(against[0])}{absent}"
    seeds = min(2, max(entry["n"] for entry in ranked))
    told = [words.cell(entry, seeds=seeds) for entry in ranked[:TOLD]]
    equal = told.count(told[0])
    rounded = f" (rounded, {words.listed(names[1:equal])} too)" if equal > 1 else ""
    after = [f"{name} with {loss}" for name, loss in zip(names[equal:], told[equal:], strict=False)]
    before = f", before {words.listed(after)}" if after else ""
    leads = f"{names[0]} has the lowest loss with {told[0]}{rounded}{before}"
    return f"{where} {leads}. {_verdict(against)}{absent}"


def _one_pair(item: Content) -> str:
    """The sentence on two schemes: the difference and what it is worth."""
    (first, second), outcome = item["pair"], item["outcome"]
    if item["difference"] is None:
        return f"{first} and {second} cannot be compared: {item['reason']}."
    interval, over = item["interval"], item["documents_interval"]
    over = opposite(over) if item["difference"] < 0 else over
    half = f" ± {words.number((interval[1] - interval[0]) / 2, 'nats/token')}" if interval else ""
    size = f"{words.number(abs(item['difference']), 'nats/token')}{half} nats/token"
    if outcome == INDICATION and over:
        size += f" ({words.over_documents(over)})"
    which = "lower" if item["difference"] < 0 else "higher"
    loss = f"the loss of {first} is {size} {which} than that of {second}"
    if outcome in (BETTER, WORSE):
        return f"{first} is {outcome} than {second}: its loss is {size} {which}."
    if outcome == EQUIVALENT:
        return f"{first} and {second} are equivalent: their losses differ by {size}."
    if outcome == UNDECIDED:
        needed = f"{item['seeds_needed']} seeds would decide if the spread stays" if item["seeds_needed"] else ""
        return f"it is undecided between {first} and {second}: {loss}{_after('; ', item['reason'] or needed)}."
    if outcome == INDICATION:
        return f"{loss}: an indication from one seed, no pick."
    return f"{loss}, but this decides nothing, {outcome}{_after(': ', item['reason'])}."


def _after(mark: str, text: str) -> str:
    return mark + text if text else ""


def _verdict(against: list[Content]) -> str:
    """What the lowest loss is worth: how it stands against each of the others."""
    others: dict[str, list[str]] = {}
    for item in against:
        others.setdefault(item["outcome"], []).append(item["pair"][1])
    if others.keys() == {INDICATION}:
        return "An indication from one seed, no pick."
    if others.keys() == {BETTER}:
        return "It is better than every other scheme measured."
    if others.keys() == {STILL_LEARNING}:
        return "No pick: its gap to each of the others still moves (still learning)."
    phrases = {
        BETTER: "it is better than {}",
        EQUIVALENT: "it is equivalent to {}",
        WORSE: "it is worse than {}",
        UNDECIDED: "it is undecided against {}",
        INDICATION: "from one seed there is an indication against {}",
        STILL_LEARNING: "its gap to {} still moves (still learning)",
    }
    told = [phrase.format(words.listed(others[outcome])) for outcome, phrase in phrases.items() if outcome in others]
    told += [f"{outcome} against {words.listed(who)}" for outcome, who in others.items() if outcome not in phrases]
    sentence = "; ".join(told) + "."
    return sentence[0].upper() + sentence[1:] if others.keys() <= {BETTER, EQUIVALENT} else f"No pick: {sentence}"


def _absent(entries: list[Content]) -> list[str]:
    """Which schemes have no number here, in what words."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        if entry["status"] != MEASURED:
            found.setdefault(words.words_instead(entry["status"], entry["reason"]), []).append(entry["label"])
    return [f"{words.listed(labels)}: {told}." for told, labels in sorted(found.items())]


# --- context and recall ----------------------------------------------------------------------------------------------


def _context(effects: list[Content], budget: Content, margin: float) -> list[str]:
    """What the longest context does to the loss, and whether far tokens are used."""
    inside, cut = budget["train_length"], words.in_view(budget).removesuffix(" tokens")
    openings = {
        LONGER: f"With {{longest}} instead of {inside} tokens of context, the loss on the same {{targets}}",
        FULL: f"With all {{longest}} tokens of context in view instead of {cut}, the loss on the same {{targets}}",
    }
    sentences = []
    for effect, opening in openings.items():
        mine = [entry for entry in effects if entry["effect"] == effect and entry["length"] in budget["lengths"]]
        # The longest with a difference: at a length that few documents reach the targets are others.
        longest = max((entry["length"] for entry in mine if entry["seeds"]), default=0)
        measured = [entry for entry in mine if entry["length"] == longest and entry["seeds"]]
        if measured:
            opening = opening.format(longest=longest, targets=_targets(measured))
            if all(entry["outcome"] == INDICATION for entry in measured):
                opening = f"An indication from one seed: {opening[0].lower()}{opening[1:]}"
            sentences.append(f"{opening} {_by_outcome(measured, margin)}.")
    return sentences


def _by_outcome(entries: list[Content], margin: float) -> str:
    """Labels with their differences, together where the loss does the same."""
    phrases = {
        WORSE: "rises for {}",
        EQUIVALENT: f"stays within ±{margin:g} for {{}}",
        BETTER: "falls for {}",
        UNDECIDED: "shows no decided change for {}",
    }
    found: dict[str, list[str]] = {outcome: [] for outcome in phrases}
    for entry in entries:
        outcome = _as_seen(entry["difference"], margin) if entry["outcome"] == INDICATION else entry["outcome"]
        size = words.change(entry["difference"], entry["half_width"])
        if entry["outcome"] == INDICATION and entry["documents_interval"]:
            size += f", {words.over_documents(entry['documents_interval'])}"
        found[outcome].append(f"{entry['label']} ({size}{_fewer(entry, entries)})")
    return "; ".join(phrases[outcome].format(words.listed(labels)) for outcome, labels in found.items() if labels)


def _as_seen(difference: float, margin: float) -> str:
    """What one seed's change of loss would be, were it the mean."""
    if abs(difference) <= margin:
        return EQUIVALENT
    return WORSE if difference > 0 else BETTER


def _targets(entries: list[Content]) -> str:
    counts = {entry["count"] for entry in entries}
    return f"{counts.pop():,} target tokens" if len(counts) == 1 and None not in counts else "target tokens"


def _fewer(entry: Content, entries: list[Content]) -> str:
    """That an entry has but one seed, where others have more."""
    return (
        ", an indication from 1 seed" if len(entry["seeds"]) == 1 < max(len(each["seeds"]) for each in entries) else ""
    )


def _recall(mine: dict[str, list[Content]], inside: int) -> list[str]:
    """Who recalls inside the train length and, of these, the gain at the farthest distance."""
    left_out = {run["label"] for run in mine["runs"] if run["state"] == NOT_LEARNED}
    entries = [entry for entry in mine["recall"] if entry["label"] not in left_out]
    if not entries:
        return []
    seen, unseen = ([entry for entry in entries if entry["recalls"] is recalls] for recalls in (True, False))
    distances = words.listed([str(each) for each in sorted({each for entry in entries for each in entry["distances"]})])
    over = words.listed(sorted({entry["interval_over"] for entry in entries}, reverse=True))
    told = [
        f"{entry['label']} ({words.between(entry['interval'], entry['mean'])}{_fewer(entry, entries)})"
        for entry in seen
    ]
    one_seed = "; an indication from one seed" if all(len(entry["seeds"]) == 1 for entry in entries) else ""
    sentence = (
        f"Recall inside the train length (mean gain at distances of {distances} tokens, nats/token, with its 95 % interval over "
        f"{over}{one_seed}) is seen in {words.listed(told) or 'no scheme'}"
    )
    if unseen:
        interval = "interval reaches" if len(unseen) == 1 else "intervals reach"
        reach = f", whose {interval} 0" if all(entry["interval"] for entry in unseen) else ""
        sentence += (
            f"{', and not in' if seen else ': not in'} {words.listed([entry['label'] for entry in unseen])}{reach}"
        )
    return [f"{sentence}.", *_recall_beyond(mine["summary"], inside)]


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
        f"Of those that recall inside, the gain at a distance of {far} tokens ({far / inside:g} times the train length) is: "
        f"{', '.join(told)}."
    ]


def _some_lengths(rows: list[Content], budget: Content) -> str:
    """Lengths that only some runs were measured at, and so no scheme is compared at."""
    found: dict[int, dict[str, set[int]]] = {}
    for row in rows:
        if row["measure"] == LOSS and row["at"]["length"] not in budget["lengths"]:
            found.setdefault(row["at"]["length"], {}).setdefault(row["label"], set()).add(row["seed"])
    told = [
        f"{length} tokens ({words.runs({label: sorted(numbers) for label, numbers in sorted(seeds.items())})} alone)"
        for length, seeds in sorted(found.items())
    ]
    return f"Lengths that not every run was measured at are left out above: {words.listed(told)}." if told else ""
