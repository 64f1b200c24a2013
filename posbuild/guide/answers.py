"""What the guide answers, and how it writes numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BEYOND = 10  # an answer holds to this many times the largest model, and the train length, that was measured

PUBLISHED = "published, not measured here"
MEASURED = "measured"
NO_PICK = "no pick"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A pick or none from one kind of evidence, each sentence computed from rules and rows.

    source      PUBLISHED or MEASURED
    pick        None where the rules allow none
    reason      why there is a pick, or none, in one sentence with its numbers
    numbers     all that the reason rests on: a line for each table, or for each scheme
    runners_up  a line each: what it would cost or gain
    ruled_out   a line each: which constraint
    unchecked   what of the constraints nothing is known of
    confidence  how often repeats give the same pick
    scope       what it holds for
    flips       which preference would change the pick
    evidence    what else the rows say
    remedy      settings of the cheapest study that would change the answer; "parameters" stands for a model of that size
    why         what that study is for
    """

    source: str
    pick: str | None = None
    reason: str
    numbers: tuple[str, ...] = ()
    runners_up: tuple[str, ...] = ()
    ruled_out: tuple[str, ...] = ()
    unchecked: str = ""
    confidence: str = ""
    scope: str = ""
    flips: str = ""
    evidence: tuple[str, ...] = ()
    remedy: Mapping[str, str] = field(default_factory=dict)
    why: str = ""

    @property
    def choice(self) -> str:
        """The pick in words."""
        return named(self.pick) if self.pick else NO_PICK

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """What stands below the reason where it is told in full, by title; what is empty is left out."""
        found = {
            "numbers": self.numbers,
            "runners-up": self.runners_up,
            "ruled out": self.ruled_out,
            "not checked": (self.unchecked,),
            "confidence": (self.confidence,),
            "scope": (self.scope,),
            "what would flip it": (self.flips,),
            "further evidence": self.evidence,
        }
        return {title: told for title, lines in found.items() if (told := tuple(filter(None, lines)))}


def listed(items: Iterable[object]) -> str:
    """a; a and b; a, b and c."""
    *first, last = [str(item) for item in items] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def some(names: Sequence[str], most: int = 3) -> str:
    """The first few: a, b, c and 2 others."""
    others = len(names) - most
    return listed([*names[:most], counted(others, "other")] if others > 0 else names)


def named(scheme: str) -> str:
    """A scheme where it is picked: none is one, and not the lack of a pick."""
    return "none (no encoding)" if scheme == "none" else scheme


def counted(count: int, name: str) -> str:
    """1 seed; 2 seeds."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def count_model(budget: Mapping[str, Any]) -> str:
    """In the reader's words the model, of a budget, that only counts and whose loss a run has to beat."""
    if budget.get("count_model", "trigram") == "trigram":
        return "a trigram count model"
    token = "token" if budget["data"]["tokenizer"] else "byte"
    return f"a count model that sees the {token} before and the {token} after"


def size(parameters: float) -> str:
    """1T, 7B, 162M, 0.23M, 50K."""
    for unit, least, name in ((1e12, 1e12, "T"), (1e9, 1e9, "B"), (1e6, 1e5, "M")):
        if parameters >= least:
            return f"{parameters / unit:.3g}{name}"
    return f"{parameters / 1e3:.3g}K"


def number(value: float, half: float | None = None, sign: str = "") -> str:
    """A value in nats/token: "1.267", "−0.210 ± 0.004"; a difference, with its sign: "+0.030"."""
    return f"{value:{sign}.3f}".replace("-", "−") + ("" if half is None else f" ± {half:.3f}")


def signed(value: float, half: float | None = None) -> str:
    """A difference in nats/token: "+0.030 ± 0.004"."""
    return number(value, half, "+")


def grouped(reasons: Mapping[str, str]) -> tuple[str, ...]:
    """Names with one reason together: "t5 and alibi: acts on the scores"."""
    found: dict[str, list[str]] = {}
    for name, why in reasons.items():
        found.setdefault(why, []).append(name)
    return tuple(f"{listed(names)}: {why}" for why, names in found.items())


def not_known(unknown: Mapping[str, Iterable[str]]) -> str:
    """Of which candidate nothing is known in a constraint: "memory is not known of alibi and t5"."""
    found: dict[str, list[str]] = {}
    for name, constraints in unknown.items():
        for constraint in constraints:
            found.setdefault(constraint, []).append(name)
    return "; ".join(f"{constraint} is not known of {listed(names)}" for constraint, names in found.items())


def flips(tried: Mapping[str, str | None], pick: str | None) -> str:
    """What of all that was tried gives another pick."""
    told = [f"{how}: {other or NO_PICK}" for how, other in tried.items() if other != pick]
    return f"{'; '.join(told)}." if told else f"Nothing of what was tried ({', '.join(tried)})." if tried else ""
