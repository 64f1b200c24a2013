"""Numbers, places and states in words: one spelling for the terminal, Markdown, figures and the page."""

from __future__ import annotations

import math
from typing import Any

from posbuild.records import MEASURED, NOT_MEASURED

TITLES = {
    "loss/whole_windows": "loss, whole windows",
    "loss/fixed_targets": "loss, fixed targets",
    "loss/by_position": "loss by position",
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

AREAS = {
    "loss": "loss",
    "recall": "recall",
    "order": "use of order",
    "probe": "probes",
    "cost": "cost",
    "training": "training",
}

THREE_DIGITS = ("nats/token", "bits/byte", "times none")


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


def change(difference: float, half_width: float | None, unit: str = "nats/token") -> str:
    """A difference with its sign and half the width of its interval: "+0.030 ± 0.004"."""
    return signed(difference, unit) + ("" if half_width is None else f" ± {number(half_width, unit)}")


def between(interval: list[float] | None, mean: float, unit: str = "nats/token") -> str:
    """A mean with the ends of its interval: "0.215, 0.190 to 0.240"."""
    return number(mean, unit) + (
        ", no interval" if interval is None else f", {' to '.join(number(end, unit) for end in interval)}"
    )


def cell(entry: dict[str, Any] | None, per: float = 1.0) -> str:
    """The mean of a summary entry and half the width of its interval, over `per`; words where there is no number."""
    if entry is None:
        return NOT_MEASURED
    if entry["status"] != MEASURED:
        return words_instead(entry["status"], entry["reason"])
    mean = number(entry["mean"] / per, entry["unit"])
    half = entry["half_width"]
    if half is None or half <= 1e-9 * abs(entry["mean"]):  # equal in every seed, as a count of parameters is
        return mean
    return f"{mean} ± {number(half / per, entry['unit'])}"


def words_instead(status: str, reason: str) -> str:
    """What stands where a number would: "not supported beyond 64", "not measured", "not learned", "not finite"."""
    return reason if reason.startswith("not supported") else status


def bits_per_byte(nats: float) -> float:
    """From nats per token, where a token is a byte."""
    return nats / math.log(2)


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
    where = place(at)
    return (
        name
        + (f", {where}" if where else "")
        + (f" ({unit})" if unit not in ("", "bytes", "parameters", "times none") else "")
    )


def listed(names: list[str]) -> str:
    """a; a and b; a, b and c."""
    return " and ".join([*([", ".join(names[:-1])] if names[:-1] else []), *names[-1:]])
