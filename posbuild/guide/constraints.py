"""What a scenario may require of a scheme: one function each. A scheme of which it is not known stays, and that is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from posbuild import registry
from posbuild.declaration import ANY, ActsOn, Scheme

# Published schemes that are not in the registry: where they act, by their papers.
ACTS_ON = dict.fromkeys(("longrope2", "drope"), ActsOn.queries_and_keys)
# Of those, whose angles depend on the length read so far, so keys already in a cache are turned by others.
CHANGES_WITH_LENGTH = frozenset({"longrope2"})
FUSED = (ActsOn.nothing, ActsOn.input, ActsOn.queries_and_keys)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What is known of a scheme in one study or table.

    supported  whether it has positions as far out as is asked for; None if not measured
    rises      whether its loss rises from the train length to there by more than the margin; None if not known
    told       that rise in words
    ratios     costs in times those without encoding, by what: mean and half the width of its interval
    """

    scheme: str
    supported: bool | None = None
    rises: bool | None = None
    told: str = ""
    ratios: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def declared(self) -> Scheme | None:
        return registry.schemes().get(self.scheme)


# Each returns why a candidate does not meet the constraint, "" if it does, None where that is not known.


def defined_beyond(candidate: Candidate, _: float) -> str | None:
    supported, declared = candidate.supported, candidate.declared
    if supported is None and declared:
        supported = declared.options().longest(ANY) is None
    return None if supported is None else "" if supported else "has no positions so far out"


def keeps_loss(candidate: Candidate, _: float) -> str | None:
    return None if candidate.rises is None else candidate.told if candidate.rises else ""


def bidirectional(candidate: Candidate, _: float) -> str | None:
    declared = candidate.declared
    if declared is None:
        return None
    return "cannot tell the order of tokens without a causal mask" if declared.orderless else declared.causal_only or ""


def fused_kernels(candidate: Candidate, _: float) -> str | None:
    acts_on = candidate.declared.acts_on if candidate.declared else ACTS_ON.get(candidate.scheme)
    return None if acts_on is None else "" if acts_on in FUSED else f"acts on the {acts_on.value}"


def same_output(candidate: Candidate, _: float) -> str | None:
    declared = candidate.declared
    if not declared.prefix_stable if declared else candidate.scheme in CHANGES_WITH_LENGTH:
        return "turns keys by angles that change with the length read"
    return "" if declared or candidate.scheme in ACTS_ON else None


def memory(candidate: Candidate, limit: float) -> str | None:
    return _over(candidate.ratios.get("peak_memory"), limit, "takes {:.3f} times the memory without encoding")


def decoding_speed(candidate: Candidate, limit: float) -> str | None:
    ratio = candidate.ratios.get("decoding_speed")
    return _over(ratio, limit, "decodes at {:.3f} times the speed without encoding", sign=-1)


def _over(ratio: tuple[float, float] | None, limit: float, told: str, sign: int = 1) -> str | None:
    """`told` where a ratio surely lies over a limit (under it with sign=-1), "" where it surely does not."""
    if ratio is None:
        return None
    over, half = sign * (ratio[0] - limit), ratio[1]
    return told.format(ratio[0]) if over > half else "" if over <= -half else None


class Constraint(NamedTuple):
    text: str
    fault: Callable[[Candidate, float], str | None]
    limit: bool = False


CONSTRAINTS = {
    "defined_beyond": Constraint("is defined beyond the train length", defined_beyond),
    "keeps_loss": Constraint("keeps its loss as far out as is asked for", keeps_loss),
    "bidirectional": Constraint("works without a causal mask", bidirectional),
    "fused_kernels": Constraint("runs on a fused attention kernel that takes no bias", fused_kernels),
    "same_output": Constraint("gives the same output decoded step by step or at once", same_output),
    "memory": Constraint("trains in at most {} times the memory without encoding", memory, limit=True),
    "decoding_speed": Constraint(
        "decodes at no less than {} times the speed without encoding", decoding_speed, limit=True
    ),
}


def judge(candidate: Candidate, required: Mapping[str, float]) -> tuple[str, list[str]]:
    """Why a candidate is ruled out, empty if it is not; and the constraints of which nothing is known."""
    faults = {name: CONSTRAINTS[name].fault(candidate, limit) for name, limit in required.items()}
    return next(filter(None, faults.values()), ""), [name for name, fault in faults.items() if fault is None]
