"""What a scenario may require of a scheme: one function each. A scheme of which it is not known stays, and that is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from posbuild import registry
from posbuild.declaration import ActsOn, Scheme

# Published schemes that are not in the registry: where they act, by their papers.
ACTS_ON = {
    **dict.fromkeys(("kerple_log", "kerple_power", "fire", "sandwich"), ActsOn.scores),
    **dict.fromkeys(("rope_linear", "rope_ntk", "rope_dynamic_ntk", "rope_proportional"), ActsOn.queries_and_keys),
    **dict.fromkeys(("yarn", "longrope", "longrope2", "xpos", "drope", "rnope"), ActsOn.queries_and_keys),
}
# Their angles depend on the length read so far, so keys already in a cache are turned by others.
CHANGES_WITH_LENGTH = frozenset({"rope_dynamic_ntk", "dynamic_yarn", "longrope", "longrope2"})
FUSED = (ActsOn.nothing, ActsOn.input, ActsOn.queries_and_keys)


class Verdict(NamedTuple):
    """met: None where it is not known."""

    met: bool | None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What is known of a scheme in one study or table.

    supported  whether it has positions as far out as is asked for; None if not measured
    rises      whether its loss rises from the train length to there by more than the margin; None if not known
    told       that rise in words
    ratios     costs in times those of `none`, by what
    """

    scheme: str
    supported: bool | None = None
    rises: bool | None = None
    told: str = ""
    ratios: Mapping[str, float] = field(default_factory=dict)

    @property
    def declared(self) -> Scheme | None:
        return registry.schemes().get(self.scheme)


def defined_beyond(candidate: Candidate, _: float) -> Verdict:
    if candidate.supported is not None:
        return Verdict(candidate.supported, "has no positions so far out")
    if candidate.scheme == "learned":
        return Verdict(False, "has a table that ends at the train length")
    return Verdict(True if candidate.declared else None)


def keeps_loss(candidate: Candidate, _: float) -> Verdict:
    return Verdict(None if candidate.rises is None else not candidate.rises, candidate.told)


def bidirectional(candidate: Candidate, _: float) -> Verdict:
    declared = candidate.declared
    if declared is None:
        return Verdict(None)
    if declared.orderless:
        return Verdict(False, "cannot tell the order of tokens without a causal mask")
    return Verdict(declared.causal_only is None, declared.causal_only or "")


def fused_kernels(candidate: Candidate, _: float) -> Verdict:
    acts_on = candidate.declared.acts_on if candidate.declared else ACTS_ON.get(candidate.scheme)
    return Verdict(acts_on and acts_on in FUSED, f"acts on the {acts_on.value}" if acts_on else "")


def same_output(candidate: Candidate, _: float) -> Verdict:
    if candidate.scheme in CHANGES_WITH_LENGTH:
        return Verdict(False, "turns keys by angles that change with the length read")
    return Verdict(True if candidate.declared or candidate.scheme in ACTS_ON else None)


def memory(candidate: Candidate, limit: float) -> Verdict:
    ratio = candidate.ratios.get("peak_memory")
    return Verdict(ratio <= limit if ratio else None, f"takes {ratio:.2f} times the memory of none" if ratio else "")


def decoding_speed(candidate: Candidate, limit: float) -> Verdict:
    ratio = candidate.ratios.get("decoding_speed")
    return Verdict(
        ratio >= limit if ratio else None, f"decodes at {ratio:.2f} times the speed of none" if ratio else ""
    )


class Constraint(NamedTuple):
    text: str
    check: Callable[[Candidate, float], Verdict]
    limit: bool = False


CONSTRAINTS = {
    "defined_beyond": Constraint("is defined beyond the train length", defined_beyond),
    "keeps_loss": Constraint("keeps its loss as far out as is asked for", keeps_loss),
    "bidirectional": Constraint("works without a causal mask", bidirectional),
    "fused_kernels": Constraint("runs on one fused attention kernel that takes no bias", fused_kernels),
    "same_output": Constraint("gives the same output decoded step by step or at once", same_output),
    "memory": Constraint("trains in at most so many times the peak memory of none", memory, limit=True),
    "decoding_speed": Constraint("decodes at so many times the speed of none or more", decoding_speed, limit=True),
}


def judge(candidate: Candidate, constraints: Mapping[str, bool | float]) -> tuple[str, list[str]]:
    """Why a candidate is ruled out, empty if it is not; and the constraints of which nothing is known."""
    unknown = []
    for name, limit in constraints.items():
        if limit is False:
            continue
        verdict = CONSTRAINTS[name].check(candidate, float(limit))
        if verdict.met is None:
            unknown.append(name)
        elif not verdict.met:
            return verdict.why, []
    return "", unknown
