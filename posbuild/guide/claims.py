"""Sentences often heard about encodings, each with its source and a test over the rows of a comparison.

A verdict is *supported*, *contradicted*, *undecided* or *not measured*, with the numbers that it rests on. A claim on an
encoding alone has one verdict, from the reference probes that stand in every record. A claim on learning, length or cost
has one for each budget, from intervals over paired seeds and the margin of the comparison; one seed decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from posbuild.comparison.context import FULL, LONGER
from posbuild.comparison.learning import NOT_LEARNED
from posbuild.comparison.statistics import BETTER, EQUIVALENT, UNDECIDED, WORSE, turned
from posbuild.records import MEASURED, NOT_MEASURED, NOT_SUPPORTED

Content = dict[str, Any]
Found = tuple[str, str]  # a verdict and the numbers that it rests on, or the reason why there are none
Test = Callable[["Evidence"], Found]
TestOfLabel = Callable[["Evidence", str], Found]

SUPPORTED, CONTRADICTED = "supported", "contradicted"
ZERO = 1e-9  # of outputs in float64: rounding leaves some 1e-15, an effect some 1e-2
SHORT = 512  # tokens, at most: the length of BERT
CHEAP = 0.9  # of the speed of the same model without encoding, at least


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A testable sentence.

    source  where it is said or denied
    test    its verdict in one budget of a comparison
    alone   it is about an encoding alone, whatever the budget
    """

    name: str
    sentence: str
    source: str
    test: Test
    alone: bool = False


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a comparison says of a claim. `budget` is None for a claim on an encoding alone."""

    name: str
    sentence: str
    source: str
    budget: int | None
    verdict: str
    reason: str


def claims(comparison: Content) -> list[Verdict]:
    """The verdict on every claim, in the order of `CLAIMS`; of those on learning, length and cost one for each budget."""
    budgets = [Evidence(comparison, budget) for budget in comparison["budgets"]]
    return [
        Verdict(
            name=claim.name,
            sentence=claim.sentence,
            source=claim.source,
            budget=None if claim.alone else evidence.number,
            verdict=verdict,
            reason=reason,
        )
        for claim in CLAIMS
        for evidence in (budgets[:1] if claim.alone else budgets)
        for verdict, reason in [claim.test(evidence)]
    ]


class Evidence:
    """What a comparison holds on one of its budgets, as the claims ask for it."""

    def __init__(self, comparison: Content, budget: Content) -> None:
        self.comparison, self.budget = comparison, budget
        self.number: int = budget["number"]
        self.train_length: int = budget["train_length"]
        self.margin: float = comparison["margin"]
        self.runs = [run for run in comparison["runs"] if run["budget"] == self.number]
        self.labels = sorted({run["label"] for run in self.runs})

    def summary(self, label: str, measure: str) -> list[Content]:
        return [entry for entry in self._of("summary", label) if entry["measure"] == measure]

    def context(self, label: str, effect: str) -> Content | None:
        """What the longest context measured does to the loss of a label."""
        entries = [
            entry
            for entry in self._of("context", label)
            if entry["effect"] == effect and entry["outcome"] != NOT_MEASURED
        ]
        return max(entries, key=lambda entry: entry["length"], default=None)

    def pair(self, first: str, second: str) -> Content | None:
        """The outcome of two labels by their loss at the train length, as it is for the first; None without a difference."""
        at = {"length": self.train_length, "window": 0}
        for item in self.comparison["outcomes"]:
            if (item["budget"], item["measure"], item["at"]) != (self.number, "loss/whole_windows", at):
                continue
            if set(item["pair"]) == {first, second} and item["difference"] is not None:
                interval, same = item["interval"], item["pair"][0] == first
                return {
                    "difference": item["difference"] if same else -item["difference"],
                    "half_width": interval and (interval[1] - interval[0]) / 2,
                    "outcome": item["outcome"] if same else turned(item["outcome"]),
                    "reason": item["reason"],
                }
        return None

    def parameters(self, label: str) -> int:
        """How many numbers the encoding of a label learns."""
        return max(run["positional_parameters"] or 0 for run in self.runs if run["label"] == label)

    def without(self, label: str, what: str) -> Found:
        """Why a label has no number of a kind."""
        if any(run["state"] == NOT_LEARNED for run in self.runs if run["label"] == label):
            return UNDECIDED, f"a run of {label} has not learned"
        return NOT_MEASURED, f"{what} of {label} was not measured"

    def _of(self, name: str, label: str) -> list[Content]:
        return [entry for entry in self.comparison[name] if entry["budget"] == self.number and entry["label"] == label]


# --- from an interval to a verdict -----------------------------------------------------------------------------------

Judge = Callable[[float, float], str]  # of the two ends of an interval


def below(limit: float) -> Judge:
    return lambda low, high: SUPPORTED if high < limit else CONTRADICTED if low > limit else UNDECIDED


def above(limit: float) -> Judge:
    return lambda low, high: SUPPORTED if low > limit else CONTRADICTED if high < limit else UNDECIDED


def inside(margin: float) -> Judge:
    def judge(low: float, high: float) -> str:
        if low > margin or high < -margin:
            return CONTRADICTED
        return SUPPORTED if -margin < low and high < margin else UNDECIDED

    return judge


def judged(judge: Judge, mean: float, half_width: float | None, told: str) -> Found:
    """The verdict of a mean over seeds; `told` is what to say of it."""
    if half_width is None:
        return UNDECIDED, f"{told}; an indication from one seed"
    return judge(mean - half_width, mean + half_width), told


def of_all(cases: Sequence[tuple[float, Found]]) -> Found:
    """The verdict of a claim on several cases: one that contradicts it is enough, and support takes them all.

    cases  how far each speaks against the claim, and its verdict; of those that decide the worst is told
    """
    verdicts = {verdict for _, (verdict, _) in cases}
    decides = next(verdict for verdict in (CONTRADICTED, UNDECIDED, SUPPORTED) if verdict in verdicts)
    told = max((weight, told) for weight, (verdict, told) in cases if verdict == decides)[1]
    return decides, f"{told}; the worst of {len(cases)}" if decides == SUPPORTED and len(cases) > 1 else told


def change(entry: Content) -> str:
    """The difference of an entry with half its interval: "+0.030 ± 0.004 nats/token"."""
    half = "" if entry["half_width"] is None else f" ± {entry['half_width']:.3f}"
    return f"{entry['difference']:+.3f}{half} nats/token".replace("-", "−")


# --- the tests -------------------------------------------------------------------------------------------------------


def reference(scheme: str, measure: str, told: str, *, zero: bool, **at: Any) -> Test:
    """Whether the reference probes of a scheme whose coordinates include `at` are all zero to rounding, or none is."""

    def test(evidence: Evidence) -> Found:
        rows = [
            row
            for row in evidence.comparison.get("references", [])
            if (row["scheme"], row["measure"]) == (scheme, measure) and at.items() <= row["at"].items()
        ]
        lacking = [row["reason"] for row in rows if row["status"] != MEASURED]
        if lacking or not rows:
            return NOT_MEASURED, lacking[0] if lacking else f"the records hold no reference probe of {scheme}"
        value = (max if zero else min)(abs(row["value"]) for row in rows)
        return SUPPORTED if (value < ZERO) is zero else CONTRADICTED, told.format(f"{value:.2g}".replace("-", "−"))

    return test


def of(scheme: str, test: TestOfLabel) -> Test:
    """A test of a scheme with its default options or, where that was not trained, of its only variant."""

    def tested(evidence: Evidence) -> Found:
        labels = {run["label"] for run in evidence.runs if run["scheme"] == scheme}
        if scheme in labels or len(labels) == 1:
            return test(evidence, scheme if scheme in labels else labels.pop())
        return (
            NOT_MEASURED,
            f"several variants of {scheme}, none with its defaults" if labels else f"no run of {scheme}",
        )

    return tested


def loss_beyond(effect: str, judge: Callable[[float], Judge]) -> TestOfLabel:
    """What the longest context does to the loss on the same targets. `judge` is made from the margin."""

    def test(evidence: Evidence, label: str) -> Found:
        entry = evidence.context(label, effect)
        if entry is None:
            return evidence.without(label, "the loss beyond the train length")
        if entry["difference"] is None:
            return NOT_MEASURED, f"{label}: {entry['reason']}"
        longest, length = entry["length"], evidence.train_length
        cut = f"the last {length}" if evidence.budget["causal"] else f"{length - 1} on each side"
        against = {
            LONGER: f"with {longest} tokens of context against {length}",
            FULL: f"with all {longest} tokens in view against {cut}",
        }
        told = f"{label} {change(entry)} {against[effect]}"
        return judged(judge(evidence.margin), entry["difference"], entry["half_width"], told)

    return test


def flat_is_used(evidence: Evidence) -> Found:
    """Whether far context lowers, by more than the margin, every loss that does not rise beyond the train length."""
    keeps = {label: loss_beyond(LONGER, below)(evidence, label) for label in evidence.labels}
    uses = loss_beyond(FULL, lambda margin: below(-margin))
    cases = [
        (entry["difference"], uses(evidence, label))
        for label, (verdict, _) in keeps.items()
        if verdict == SUPPORTED and (entry := evidence.context(label, FULL)) and entry["difference"] is not None
    ]
    if cases:
        return of_all(cases)
    undecided = [found for found in keeps.values() if found[0] == UNDECIDED]
    return undecided[0] if undecided else (NOT_MEASURED, "no flat loss that was also measured with attention cut short")


def near_is_alike(evidence: Evidence) -> Found:
    """Whether similarity falls with distance, by more than two deviations of a profile that has no trend."""
    judge, cases = below(-2 / math.sqrt(evidence.train_length)), []
    for label in evidence.labels:
        for entry in evidence.summary(label, "probe/spearman"):
            if entry["at"]["parameters"] == "trained" and entry["status"] == MEASURED:
                half = entry["half_width"] if evidence.parameters(label) else 0.0  # equal in every seed
                told = f"{label}: rank correlation of similarity with distance {entry['mean']:.2f}"
                cases.append((entry["mean"], judged(judge, entry["mean"], half, told.replace("-", "−"))))
    return of_all(cases) if cases else (NOT_MEASURED, "no encoding with a similarity by distance")


def against(evidence: Evidence, label: str, other: str, decide: Callable[[Content, float], str]) -> Found | None:
    """The verdict on two losses at the train length; `decide` is given the outcome of the pair and the margin."""
    item = evidence.pair(label, other)
    if item is None:
        return None
    told = f"{label} minus {other} {change(item)} at {evidence.train_length} tokens"
    if item["reason"]:
        return UNDECIDED, f"{told}; {item['outcome']}: {item['reason'].partition(' (')[0]}"  # without how it moved
    return judged(lambda *_: decide(item, evidence.margin), item["difference"], item["half_width"], told)


def ahead(item: Content, _: float) -> str:
    return {BETTER: SUPPORTED, EQUIVALENT: CONTRADICTED, WORSE: CONTRADICTED}.get(item["outcome"], UNDECIDED)


def not_behind(item: Content, margin: float) -> str:
    verdict = below(margin)(item["difference"] - item["half_width"], item["difference"] + item["half_width"])
    return verdict if verdict == SUPPORTED or item["outcome"] == WORSE else UNDECIDED


def ahead_of_sinusoidal(evidence: Evidence, label: str) -> Found:
    def test(_: Evidence, other: str) -> Found:
        return against(evidence, label, other, ahead) or evidence.without(label, f"the loss beside {other}")

    return of("sinusoidal", test)(evidence)


def good_enough(evidence: Evidence, label: str) -> Found:
    """Whether a label is behind no other that has learned by more than the margin, at a train length that is short."""
    if evidence.train_length > SHORT:
        return NOT_MEASURED, f"a train length of {evidence.train_length} tokens is not short (up to {SHORT})"
    cases = [
        (item["difference"], found)
        for other in evidence.labels
        if (item := evidence.pair(label, other))
        and item["outcome"] != NOT_LEARNED
        and (found := against(evidence, label, other, not_behind))
    ]
    return of_all(cases) if cases else evidence.without(label, "the loss beside another scheme")


def table_ends(evidence: Evidence, label: str) -> Found:
    """Whether longer windows are refused, and none is measured that has more tokens than the table has vectors."""
    entries = evidence.summary(label, "loss/whole_windows")
    reached = max((entry["at"]["length"] for entry in entries if entry["status"] == MEASURED), default=0)
    refused = [entry["at"]["length"] for entry in entries if entry["status"] == NOT_SUPPORTED]
    if not refused and reached <= evidence.train_length:
        return evidence.without(label, "the loss beyond the train length")
    vectors = evidence.parameters(label) / evidence.budget["model"]["d_model"]
    none = f", none at {min(refused)}" if refused else ""
    told = f"{label} learns {vectors:,.0f} vectors of the model's width; a loss up to {reached} tokens{none}"
    return SUPPORTED if refused and reached <= vectors else CONTRADICTED, told


def cheap(evidence: Evidence, label: str) -> Found:
    """Whether training, evaluation and decoding all keep CHEAP of the speed of the same model without encoding."""
    device = ", ".join(map(str, evidence.budget["environment"].get("device", [])))
    cases = []
    for entry in evidence.summary(label, "cost/ratio"):
        if entry["at"]["what"].endswith("_speed") and entry["status"] == MEASURED:
            half = "" if entry["half_width"] is None else f" ± {entry['half_width']:.2f}"
            told = f"{label} {entry['mean']:.2f}{half} times the {entry['at']['what'].replace('_', ' ')} of none ({device})"
            cases.append((-entry["mean"], judged(above(CHEAP), entry["mean"], entry["half_width"], told)))
    return of_all(cases) if cases else (NOT_MEASURED, f"the speed of {label} was not measured")


# --- the list --------------------------------------------------------------------------------------------------------

PRESS = "Press et al. 2022 (arXiv:2108.12409)"
HAVIV = "Haviv et al. 2022 (arXiv:2203.16634)"
VASWANI = "Vaswani et al. 2017 (arXiv:1706.03762)"
SU = "Su et al. 2021 (arXiv:2104.09864)"

CLAIMS = (
    Claim(
        name="none_bidirectional_ignores_order",
        sentence="A bidirectional model without encoding ignores the order of its tokens.",
        source=f"{HAVIV}, section 6 and table 4: as a masked language model it fails",
        test=reference(
            "none",
            "probe/order",
            "other orders change the outputs by {} of the largest at most",
            zero=True,
            attention="bidirectional",
        ),
        alone=True,
    ),
    Claim(
        name="none_causal_sees_order",
        sentence="A causal model without encoding does not ignore order: the mask tells it.",
        source=f"{HAVIV}, section 5, where shuffled prefixes raise its loss, and section 6",
        test=reference(
            "none",
            "probe/order",
            "other orders change the outputs by {} of the largest at least",
            zero=False,
            attention="causal",
        ),
        alone=True,
    ),
    Claim(
        name="sinusoidal_shift_is_rotation",
        sentence="The sinusoidal code of position p + k is one fixed rotation of that of p.",
        source=f"{VASWANI}, section 3.5: a linear function",
        test=reference(
            "sinusoidal", "probe/linear_map", "the best rotation leaves over {} of the codes", zero=True, map="rotation"
        ),
        alone=True,
    ),
    Claim(
        name="near_is_alike",
        sentence="Near positions are more alike than far ones, in every encoding measured.",
        source=(
            f"Wang et al. 2021 (On Position Embeddings in BERT, ICLR) name it monotonicity; of RoPE {SU}, section 3.4.3, "
            "denied for queries and keys in general by Barbero et al. 2024 (arXiv:2410.06205), section 3"
        ),
        test=near_is_alike,
    ),
    Claim(
        name="learned_is_more_flexible",
        sentence="Fixed codes are less flexible than learned ones: inside the train length their loss is higher.",
        source=f"often said; {VASWANI}, table 3 row E, finds both nearly identical, and {HAVIV}, table 1, learned ones behind",
        test=of("learned", ahead_of_sinusoidal),
    ),
    Claim(
        name="learned_table_ends",
        sentence="A learned table cannot go beyond its length, and grows with it.",
        source=f"{PRESS}, footnote 4; by construction, a vector for each position (Gehring et al. 2017, arXiv:1705.03122)",
        test=of("learned", table_ends),
    ),
    Claim(
        name="unsigned_relative_is_mirrored",
        sentence="A relative bias by |i − j| cannot tell left from right in a bidirectional model.",
        source="by construction; of the product of two sinusoidal codes Yan et al. 2019 (arXiv:1911.04474)",
        test=reference(
            "relative unsigned",
            "probe/order",
            "the opposite order changes the outputs by {} of the largest at most",
            zero=True,
            attention="bidirectional",
            change="reversal",
        ),
        alone=True,
    ),
    Claim(
        name="rope_is_relative",
        sentence="RoPE's scores depend on distance alone.",
        source=f"{SU}, equation 16",
        test=reference("rope", "probe/shift", "a shift changes the outputs by {} of the largest at most", zero=True),
        alone=True,
    ),
    Claim(
        name="rope_extrapolates",
        sentence="RoPE extrapolates well: its loss does not rise beyond the train length.",
        source=(
            f"{SU}, introduction, claims flexibility of sequence length and does not test it; denied by {PRESS}, tables 2 "
            "to 4, and Chi et al. 2022 (arXiv:2205.09921), table 3"
        ),
        test=of("rope", loss_beyond(LONGER, below)),
    ),
    Claim(
        name="alibi_extrapolates",
        sentence="ALiBi extrapolates well: its loss does not rise beyond the train length.",
        source=f"{PRESS}, tables 2 to 4; retrieval is another matter (Gelberg et al. 2025, arXiv:2512.12167, table 1)",
        test=of("alibi", loss_beyond(LONGER, below)),
    ),
    Claim(
        name="sinusoidal_degrades",
        sentence="Sinusoidal codes degrade far beyond the train length.",
        source=f"{PRESS}, tables 2 to 4; {VASWANI}, section 3.5, hoped otherwise",
        test=of("sinusoidal", loss_beyond(LONGER, above)),
    ),
    Claim(
        name="rope_is_cheap",
        sentence=f"RoPE is cheap: it keeps {CHEAP:g} of the speed without encoding.",
        source=(
            "EleutherAI 2021 (Rotary Embeddings: A Relative Revolution): 1 to 3 % slower; not so in "
            f"{PRESS}, table 1, whose footnote 5 says that it can be made so"
        ),
        test=of("rope", cheap),
    ),
    Claim(
        name="alibi_is_cheap",
        sentence=f"ALiBi is cheap: it keeps {CHEAP:g} of the speed without encoding.",
        source=f"{PRESS}, figure 2 and table 1: within 3 % of sinusoidal, and up to 100 MB more memory",
        test=of("alibi", cheap),
    ),
    Claim(
        name="learned_is_good_enough",
        sentence=f"For short fixed lengths (up to {SHORT} tokens) a learned table is good enough: no other loss is lower by more than the margin.",
        source=f"in use in BERT (arXiv:1810.04805) and GPT-2; denied for language models by {HAVIV}, table 1",
        test=of("learned", good_enough),
    ),
    Claim(
        name="flat_loss_uses_context",
        sentence="A loss that stays flat beyond the train length means that far context is used.",
        source=f"often inferred; denied by {PRESS}, appendix B.2",
        test=flat_is_used,
    ),
    Claim(
        name="alibi_is_window_attention",
        sentence="ALiBi's loss beyond the train length L equals that of attention to the last L tokens.",
        source=f"{PRESS}, appendix B.2 (a conjecture); Chi et al. 2023 (arXiv:2212.10356), introduction",
        test=of("alibi", loss_beyond(FULL, inside)),
    ),
)
