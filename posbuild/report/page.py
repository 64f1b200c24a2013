"""comparison.html: one self-contained page, readable offline, on a desk and on a phone."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from posbuild import registry
from posbuild.comparison import learning, statistics
from posbuild.comparison.compare import bytes_per_token
from posbuild.guide import guide
from posbuild.guide.answers import Answer
from posbuild.report import answer, beside, charts, methods, pareto, tables, tuning, words
from posbuild.report.figures import INK, Picture
from posbuild.report.grid import Grid
from posbuild.report.tables import Entries

Content = dict[str, Any]

HERE = Path(__file__).parent
UPLOT = HERE / "vendor" / "uplot"
LOSS = ("loss/whole_windows", "loss/fixed_targets", "loss/pseudo")
PIXELS_PER_POINT = 1.5  # of a figure where there is room: its words are then as large as the page's own


def render(comparison: Content, drawn: dict[int, list[Picture]]) -> str:
    """The page as text. `drawn`: the figures of each budget; those of all budgets together under 0."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    scripts, verdicts = _scripts(), tables.verdicts(comparison)
    return environment.get_template("page.html.j2").render(
        comparison=comparison,
        policy=_policy(scripts),
        styles=[Markup(_read(path)) for path in (UPLOT / "uPlot.min.css", HERE / "page.css")],
        scripts=[Markup(script) for script in scripts],
        data=Markup(charts.as_json(charts.data(comparison))),
        summary=_summary(comparison),
        asked=_asked(comparison),
        budgets=[_budget(comparison, budget, drawn[budget["number"]]) for budget in comparison["budgets"]],
        panels=[_inline(picture) for picture in drawn.get(0, [])],
        tuning=tuning.sections(comparison),
        advice=_advice(comparison),
        claims=verdicts,
        counted=_counted(verdicts),
        across=tables.across_tokenizers(comparison),
        across_told=words.ACROSS_TOKENIZERS,
        failures=tables.failures(comparison),
        failed=_failed(comparison),
        cards=_cards(comparison),
        methods=_methods(comparison),
        paragraphs=[methods.paragraph(comparison, budget) for budget in comparison["budgets"]],
        bibtex=methods.bibtex(comparison),
        nothing="" if any(map(tables.compared, comparison["runs"])) else answer.nothing(comparison),
        corrected=words.CORRECTED,
        words=_words(comparison),
    )


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _scripts() -> list[str]:
    """What runs in the page: uPlot, under its licence, and our own."""
    return [f"/*\n{_read(UPLOT / 'LICENSE')}\n*/\n{_read(UPLOT / 'uPlot.iife.min.js')}", _read(HERE / "page.js")]


def _policy(scripts: list[str]) -> str:
    """What a browser may load and run for this page: these scripts, and nothing from elsewhere."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}"


def _asked(comparison: Content) -> str:
    """The question that the study puts, in words."""
    budgets = comparison["budgets"]
    if not budgets:
        return ""
    lengths = sorted({max(budget["lengths"], default=0) / budget["train_length"] for budget in budgets})
    far = f", keeps it to {lengths[-1]:g} times that length" if lengths[-1] > 1 else ""
    recall = " and recalls there" if any(entry["measure"] == "recall/gain" for entry in comparison["summary"]) else ""
    inside = words.listed(sorted({budget["train_length"] for budget in budgets}))
    return (
        f"Asked: which has the lowest loss inside the train length ({inside} tokens){far}{recall}, all with the same budget. "
        f"Differences within ±{comparison['margin']:g} nats/token count as none."
    )


def _failed(comparison: Content) -> str:
    """How many runs are not in the comparison, by what became of them; empty where all are."""
    ended = Counter(status for status, _ in tables.absent(comparison))
    if not ended:
        return ""
    told = words.listed(f"{count} {status}" for status, count in sorted(ended.items()))
    return f"{ended.total()} of {len(comparison['runs'])} runs are not in the comparison: {told}."


def _counted(verdicts: Grid) -> str:
    """How many claims have each verdict."""
    column = verdicts.header.index("verdict")
    found = Counter(row[column] for row in verdicts.rows)
    return words.listed(f"{count} {verdict}" for verdict, count in sorted(found.items()))


def _advice(comparison: Content) -> list[Content]:
    """What the guide says of each scenario: the answer from published results and the one measured."""
    return [
        {
            "name": each.scenario.name,
            "title": each.scenario.title,
            "text": each.scenario.text,
            "means": [text for text in (each.scenario.means, each.scenario.assumptions) if text],
            "answers": [_told_answer(one) for one in (each.published, each.measured) if one],
            "next": each.why,
            "command": each.command,
        }
        for each in guide.advice(comparison, study=Path("FOLDER"))  # the page does not know where it lies
    ]


def _told_answer(one: Answer) -> Content:
    return {
        "source": one.source,
        "pick": one.choice,
        "reason": one.reason,
        "confidence": one.confidence,
        "scope": one.scope,
        "more": {title: told for title, told in one.parts.items() if title not in ("confidence", "scope")},
    }


def _summary(comparison: Content) -> str:
    labels, runs = comparison["labels"], comparison["runs"]
    return (
        f"{words.counted(len(labels), 'scheme')} ({', '.join(labels)}); "
        f"{sum(map(tables.compared, runs))} of {words.counted(len(runs), 'run')} in the comparison."
    )


def _budget(comparison: Content, budget: Content, pictures: list[Picture]) -> Content:
    """What the page shows of one budget: sentences, tables and figures."""

    def grid(*measures: str, bits: bool = False) -> Grid:
        return tables.by_measure(comparison, budget, lambda measure: measure.startswith(measures), bits)

    return {
        "units": answer.units(comparison, budget),
        "token": _token(budget["data"]),
        "remarks": {area: tables.remarks(comparison, budget, partial(_in_area, area)) for area in (*words.AREAS, "")},
        "number": budget["number"],
        "scope": budget["scope"],
        "findings": answer.findings(comparison, budget),
        "headline": tables.headline(comparison, budget),
        "length": grid(*LOSS),
        "bits": grid(*LOSS, bits=True),
        "accuracy": grid("accuracy/"),
        "position": grid("loss/by_position"),
        "learning": tables.learning(comparison, budget),
        "levels": _levels(budget),
        "recall": grid("recall/"),
        "order": grid("order/"),
        "probes": tables.probes(comparison, budget),
        "cost": grid("cost/"),
        "trades": [trade.sentence for row in pareto.trades(comparison, budget) for trade in row],
        "beside": beside.beside(comparison, budget),
        "other": tables.by_measure(comparison, budget, partial(_in_area, "")),
        "pairs": _pairs(comparison, budget),
        "without_number": tables.without_number(comparison, budget),
        "held": _held(comparison, budget),
        "figures": {picture.name.removesuffix(f"_{budget['number']}"): _inline(picture) for picture in pictures},
    }


def _in_area(area: str, measure: str) -> bool:
    """Whether a measure has its place in this part of the page; "" is for those without a place of their own."""
    found = measure.partition("/")[0]
    return (found if found in words.AREAS else "") == area


def _token(data: Content) -> str:
    """What a token is, and what its unit is worth."""
    if not data["tokenizer"]:
        return "A token is a byte: 1 nat a byte is 1.443 bits a byte."
    size = f"{bytes_per_token(data):.2f} bytes on average in the training text"
    return f"A token is {words.token(data)}, {size}; the length curves stand in bits per byte too."


def _levels(budget: Content) -> str:
    counts = (budget["data"]["counts"] or {}).get("validation")
    if not counts:
        return "The losses of count models were not measured, so no learning state can be told."
    names, counted = ["unigram", "bigram", "trigram"], "single tokens, pairs and triples"
    if words.is_masked(budget):
        names, counted = (
            ["unigram", "neighbours"],
            "single tokens, and what stands between the one before and the one after",
        )
    told = words.listed(f"{name} {words.nats(counts[name])}" for name in names if name in counts)
    threshold = words.nats(learning.threshold(counts, budget["count_model"]))
    return (
        f"What a model reaches on the same validation documents that only counts {counted}, in nats "
        f"per token: {told}. A run that ends above {threshold} has not learned."
    )


def _words(comparison: Content) -> list[tuple[str, str]]:
    """The words for outcomes and states that occur in this comparison, each explained."""
    runs, outcomes = comparison["runs"], comparison["outcomes"]
    found = {item["outcome"] for item in [*outcomes, *comparison["context"]]} | tuning.outcomes(comparison)
    found |= {words.words_instead(entry["status"], entry["reason"]) for entry in comparison["summary"]}
    found |= {run["state"] for run in runs if run["budget"]}
    found |= {status for status, _ in tables.absent(comparison)}
    if statistics.WORSE in found:
        found.add(statistics.BETTER)
    facts = {"margin": comparison["margin"], "factor": learning.FALLING_FAST}
    return [
        (word, told.format(**facts))
        for word, told in words.OUTCOMES.items()
        if any(shown.startswith(word) for shown in found)
    ]


def _pairs(comparison: Content, budget: Content) -> list[tuple[str, Grid]]:
    """The tables of outcomes: each measure at the nearest place and at the farthest."""
    if len(tables.labels_of(comparison, budget)) < 2:
        return []
    entries = Entries(comparison, budget)
    found = []
    for measure, axis, fixed in (
        ("loss/whole_windows", "length", {"window": 0}),
        ("loss/fixed_targets", "length", {"window": 0}),
        ("recall/gain", "distance", {}),
    ):
        coordinates = entries.coordinates(measure, axis, **fixed)
        if axis == "length":
            coordinates = [length for length in coordinates if length in budget["lengths"]]
        for value in sorted({*coordinates[:1], *coordinates[-1:]}):
            at = {axis: value, **fixed}
            found.append((words.title(measure, at, words.NATS), tables.pairs(comparison, budget, measure, at)))
    return found


def _held(comparison: Content, budget: Content) -> list[str]:
    """The reasons why pairs were not decided, each once."""
    counted: dict[str, list[str]] = {}
    for item in comparison["outcomes"]:
        if item["budget"] == budget["number"] and item["reason"]:
            counted.setdefault(f"{item['outcome']}: {item['reason']}", []).append(" and ".join(item["pair"]))
    return [f"{reason} ({', '.join(dict.fromkeys(pairs))})" for reason, pairs in sorted(counted.items())]


def _cards(comparison: Content) -> list[Content]:
    """The declaration of each scheme compared, from the registry."""
    known = registry.schemes()
    cards = []
    for name in sorted(set(comparison["labels"].values())):
        labels = [label for label, scheme in comparison["labels"].items() if scheme == name]
        cards.append({"name": name, "labels": [label for label in labels if label != name], "scheme": known.get(name)})
    return cards


def _methods(comparison: Content) -> list[str]:
    """How the numbers were made, in sentences with the numbers of this comparison."""
    sentences = [
        "Every scheme has the same data order, the same starting weights for all that schemes share, and the same budget. Last weights, never the best checkpoint.",
        f"± is half the width of the {statistics.LEVEL:.0%} Student t interval over seeds; one seed has no interval. Differences are paired by seed.",
        f"{words.CORRECTED} The tests are Student t tests over seeds; what more context does is corrected over the schemes at one length.",
        "More context is judged on the same target tokens, by differences paired by seed; schemes with a run that has not learned are left out.",
        "Recall is seen inside the train length where the interval of the mean gain there lies above zero: over seeds, or over the documents of the passages where there is one seed.",
        f"Intervals over documents (documents_interval in comparison.json) are from {statistics.DRAWS} paired draws of the documents, seeded.",
    ]
    counts: dict[str, set[int]] = {}
    for entry in comparison["summary"]:
        if entry["count"] and entry["measure"] in (*LOSS, "recall/gain", "order/change"):
            counts.setdefault(words.title(entry["measure"], {}, ""), set()).add(entry["count"])
    if counts:
        told = [
            f"{title} {words.listed(f'{count:,}' for count in sorted(found))}"
            for title, found in sorted(counts.items())
        ]
        sentences.append(
            f"What each mean of a seed was taken over (scored tokens, passages or windows): {'; '.join(told)}."
        )
    for budget in comparison["budgets"]:
        sentences.append(f"Measured with {_told(budget['environment'])}.")
        data = budget["data"]
        sentences.append(f"Text: {data['name']}, SHA-256 {data['sha256']}.")
        if tokenizer := data["tokenizer"]:
            sentences.append(
                f"Tokens: the {tokenizer['entries']:,} entries of {tokenizer['file']}, SHA-256 {tokenizer['sha256']}. The bytes of "
                "the tokens of every document were compared with its text: they are the same."
            )
    return list(dict.fromkeys(sentences))


def _told(facts: dict[str, list]) -> str:
    """Facts in words; of numbers that differ between runs, the least and the greatest."""
    told = []
    for name, values in facts.items():
        numbers = all(isinstance(value, (int, float)) for value in values)
        shown = f"{values[0]} to {values[-1]}" if numbers and len(values) > 1 else words.listed(values)
        told.append(f"{name.replace('_', ' ')} {shown}")
    return ", ".join(told)


def _inline(picture: Picture) -> Content:
    """A figure for the page: ids of its own, colours of text and axes from the page, no size of its own."""
    from markupsafe import Markup

    drawing = picture.svg[picture.svg.index("<svg") :]
    drawing = re.sub(r'\bid="([^"]+)"', rf'id="{picture.name}-\1"', drawing)
    drawing = (
        re.sub(r'(url\(|href=")#', rf"\1#{picture.name}-", drawing)
        .replace("xlink:href", "href")
        .replace(INK, "currentColor")
    )
    box = re.search(r'viewBox="0 0 ([\d.]+) [\d.]+"', drawing)
    assert box is not None, picture.name
    width = float(box[1]) * PIXELS_PER_POINT
    opening = f'<svg role="img" aria-label="{picture.title}" style="max-width:{width:.0f}px" {box[0]}>'
    svg = Markup(opening + drawing[drawing.index(">") + 1 :])
    return {"id": picture.name, "title": picture.title, "caption": picture.caption, "svg": svg}
