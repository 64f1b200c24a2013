"""Numbers, places and states in words: one spelling for the terminal, Markdown, figures and the page."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from posbuild.guide.answers import counted as counted
from posbuild.guide.answers import listed as listed
from posbuild.records import MEASURED, NOT_MEASURED

TITLES = {
    "loss/whole_windows": "loss, whole windows",
    "loss/fixed_targets": "loss, fixed targets",
    "loss/by_position": "loss by position",
    "loss/pseudo": "logarithm of pseudo-perplexity",
    "accuracy/whole_windows": "accuracy, whole windows",
    "accuracy/fixed_targets": "accuracy, fixed targets",
    "recall/gain": "recall gain",
    "order/change": "change of loss",
    "training/loss": "validation loss",
    "training/slope": "fall of the validation loss in the last quarter",
    "cost/parameters": "parameters",
    "cost/positional_parameters": "positional parameters",
    "cost/train_speed": "training speed",
    "cost/evaluation_speed": "evaluation speed",
    "cost/decoding_speed": "decoding speed",
    "cost/peak_memory": "peak memory",
    "cost/ratio": "ratio to none",
}

AREAS = ("loss", "accuracy", "recall", "order", "probe", "cost", "training")  # each has a place of its own on the page

# Probes of an encoding: the question, and how to read the numbers.
PROBES = {
    "probe/order": (
        "Does it see the order of tokens?",
        "The largest difference between the outputs for reordered bytes and the reordered outputs, over the largest "
        "output, in an untrained model: 0 (to rounding, some 1e−15) if it cannot tell the two orders apart. Characters: "
        "猫追老鼠 becomes 老鼠追猫. Reversal: all bytes in the opposite order, as an encoding sees it that cannot tell left "
        "from right. Under causal attention the mask alone makes this more than 0, so only bidirectional attention shows "
        "what the encoding does.",
    ),
    "probe/shift": (
        "Does it depend on distance alone?",
        "The largest change of the outputs of an untrained model, over the largest output, when the positions of all "
        "tokens grow by the offset: 0 (to rounding) if only the distance between tokens counts.",
    ),
    "probe/spearman": (
        "Are near positions more alike than far ones?",
        "Rank correlation of similarity with distance: −1 if it falls at every step, 0 without a trend. Similarity is "
        "the mean cosine of two codes for an encoding at the input; for the others the score of one fixed query and key.",
    ),
    "probe/falls_until": (
        "How far does the similarity fall?",
        "The distance up to which the same similarity falls at every step.",
    ),
    "probe/distinct_codes": (
        "Has every position a code of its own?",
        "How many different codes there are among the positions looked at: 16 train lengths, or as many as the scheme has.",
    ),
    "probe/code_distance": (
        "How far apart are the two nearest codes?",
        "Their distance over the root mean square size of the codes: near 0, a model can hardly tell the two positions apart.",
    ),
    "probe/linear_map": (
        "Is the code of position p + offset one fixed linear map of the code of p?",
        "What the best map leaves over, over the size of the codes: 0 (to rounding) if it is one. Rotation: every pair of "
        "channels turns by an angle of its own. Fitted: least squares on half of the positions, judged on the others.",
    ),
    "probe/attention": (
        "How is attention spread over distance?",
        "Mean attention weight of the trained model, over layers, heads and windows.",
    ),
    "probe/bias": (
        "What is added to the scores?",
        "Mean over heads and layers, by the distance between query and key.",
    ),
}
CORRECTED = (
    "Intervals are of 95 % each. Outcomes are corrected (Holm 1979) over all pairs of one measure at one place, so a pair may "
    "be undecided though its own interval lies beyond zero."
)
PARAMETERS = "Start: with the parameters drawn for a new model. Trained: with those of the trained one."

ACROSS_TOKENIZERS = (
    "Losses in bits per byte: the unit in which runs with different tokenizers compare. A window of as many tokens holds "
    "more text where tokens are longer, and what is scored is drawn from the same test documents for each tokenizer anew; so "
    "no outcome is told from these."
)

# What stands where a number or a verdict would, in the order of the page.
OUTCOMES = {
    "better": "the mean of the paired differences over seeds differs from zero (Student t test at 5 %, corrected for all "
    "that is compared at once); worse is the same from the other side",
    "equivalent": "the mean of the paired differences over seeds lies inside ± {margin:g} nats/token (two one-sided t tests at "
    "2.5 %, corrected likewise)",
    "undecided": "neither of the two tests succeeds; the seeds named would decide if mean and spread stay as they are",
    "indication": "one seed only, which decides nothing; an interval beside it is over documents: how far other text might "
    "move the difference, and nothing of other seeds",
    "learned": "the validation loss at the end is below that of a model that only counts: triples of tokens (trigram) or, of "
    "masked tokens, what stands between the one before and the one after (neighbours)",
    "still learning": "of a run: its validation loss fell in the last quarter by more than {margin:g} nats/token, and by "
    "more than {factor:g} times the smallest such fall here; of a pair: the gap between their validation losses moved "
    "by more than {margin:g} nats/token in the last half, so who is ahead tells who learns faster, no more",
    "not learned": "the validation loss at the end is above that of the count model, so the run is not "
    "compared; of a pair, under recall beyond the train length: one of them is not seen to recall inside it",
    "no recall inside": "no recall is seen inside the train length, so none beyond it would count",
    "not supported": "the scheme has no positions so far out",
    "not measured": "left out by the settings of a run, or not possible there",
    "not finite": "some values are infinite or not a number",
    "refused": "the settings do not work together",
    "failed": "the run ended with an error",
    "diverged": "the loss was no longer finite",
    "died": "the process ended without a word",
    "running": "the run was still at work when this page was made",
    "not started": "planned and not begun",
    "left out": "complete, and not compared for the reason that stands beside it",
}

NATS, BITS = "nats/token", "bits/byte"
THREE_DIGITS = (NATS, BITS, "times none", "share")


def number(value: float, unit: str = "") -> str:
    """A value as it is shown: counts and speeds with thousands, bytes in MiB, all else to three digits."""
    if unit == "bytes":
        return f"{value / 2**20:,.1f} MiB"
    if unit in THREE_DIGITS:
        text = f"{value:.3f}"
    elif abs(value) >= (100 if unit == "tokens/s" else 1000) or float(value).is_integer():
        text = f"{value:,.0f}"
    else:
        text = f"{value:.1e}" if abs(value) < 0.0005 else f"{value:.3f}"
    return text.replace("-", "−") if text != "-0.000" else "0.000"


def signed(value: float, unit: str = "") -> str:
    text = number(value, unit)
    return text if text.startswith("−") or text == "0.000" else f"+{text}"


def nats(value: float) -> str:
    """A loss, a gain or a difference of them, to three digits."""
    return number(value, NATS)


def change(difference: float, half_width: float | None = None) -> str:
    """A difference of losses with its sign and half the width of its interval: "+0.030 ± 0.004"."""
    return signed(difference, NATS) + ("" if half_width is None else f" ± {nats(half_width)}")


def between(interval: list[float] | None, mean: float) -> str:
    """A mean loss or gain with the ends of its interval: "0.215, 0.190 to 0.240"."""
    return f"{nats(mean)}, {_ends(interval) if interval else 'no interval'}"


def over_documents(interval: list[float]) -> str:
    """What stands beside a difference of one seed: "0.190 to 0.240 over documents"."""
    return f"{_ends(interval)} over documents"


def _ends(interval: list[float]) -> str:
    return " to ".join(map(nats, interval))


def cell(entry: dict[str, Any] | None, seeds: int = 0) -> str:
    """The mean of a summary entry and half the width of its interval; words where there is no number.

    A mean over fewer than `seeds` says so.
    """
    if entry is None:
        return NOT_MEASURED
    if entry["status"] != MEASURED:
        return words_instead(entry["status"], entry["reason"])
    fewer = f" ({counted(entry['n'], 'seed')})" if entry["n"] < seeds else ""
    mean = number(entry["mean"], entry["unit"])
    half = entry["half_width"]
    if half is None or half <= 1e-9 * abs(entry["mean"]):  # equal in every seed, as a count of parameters is
        return mean + fewer
    return f"{mean} ± {number(half, entry['unit'])}{fewer}"


def words_instead(status: str, reason: str) -> str:
    """What stands where a number would: "not supported beyond 64", "no recall inside 64", "not measured"."""
    return reason if reason.startswith(("not supported", "no recall")) else status


def in_bits(entry: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """A summary entry of a loss in bits per byte, by the bytes that its tokens stand for.

    data  of the budget: without a tokenizer a token is a byte
    """
    entry = entry | {"unit": BITS}
    if entry["status"] != MEASURED:
        return entry
    if not data["tokenizer"]:
        tokens_per_byte = 1.0
    elif entry["bytes"]:
        tokens_per_byte = entry["count"] / entry["bytes"]
    else:
        return entry | {"status": NOT_MEASURED, "reason": "how many bytes were scored is not known"}
    factor, half = tokens_per_byte / math.log(2), entry["half_width"]
    return entry | {"mean": entry["mean"] * factor, "half_width": None if half is None else half * factor}


def is_masked(budget: dict[str, Any]) -> bool:
    """Whether the models of a budget find masked tokens again, rather than predict the next one."""
    return budget["count_model"] == "neighbours"


def in_view(budget: dict[str, Any]) -> str:
    """What attention cut to the train length L sees: "the last 64 tokens", "63 tokens on each side"."""
    length = budget["train_length"]
    return f"{length - 1} tokens on each side" if is_masked(budget) else f"the last {length} tokens"


def token(data: dict[str, Any]) -> str:
    """What a token is: "a byte", "an entry of bpe.json"."""
    return f"an entry of {data['tokenizer']['file']}" if data["tokenizer"] else "a byte"


def place(at: dict[str, Any]) -> str:
    """Coordinates in words, the named ones first: "length 64", "shuffle, kept 8"."""
    named = [value.replace("_", " ") for value in at.values() if isinstance(value, str)]
    numbered = [
        f"{name.replace('_', ' ')} {value:g}"
        for name, value in at.items()
        if not isinstance(value, str) and (name, value) != ("window", 0)
    ]
    return ", ".join(named + numbered)


def title(measure: str, at: dict[str, Any], unit: str) -> str:
    """A row's name: the measure, where, and its unit."""
    name = TITLES.get(measure) or measure.partition("/")[2].replace("_", " ") or measure
    told = ", ".join(filter(None, (name, place(at))))
    return told if unit in ("", "bytes", "parameters", "times none") else f"{told} ({unit})"


def seeds(numbers: Collection[int | str]) -> str:
    """seed 0; seeds 0 and 1."""
    return f"seed{'' if len(numbers) == 1 else 's'} {listed(numbers)}"


def runs(by_label: Mapping[str, Collection[int | str]]) -> str:
    """Runs in words, from their seeds by label: "rope seeds 0 and 1; t5 seed 0"."""
    return "; ".join(f"{label} {seeds(numbers)}" for label, numbers in by_label.items())
