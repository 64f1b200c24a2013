import csv
import dataclasses
import fcntl
import html.parser
import io
import math
import os
import re
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from posbuild import records
from posbuild.comparison.compare import compare
from posbuild.guide.claims import CLAIMS, claims
from posbuild.records import Row
from posbuild.report import answer, figures, page, tables, words, write
from tests.comparison.studies import COUNTS, MEASURED, add_run, measured, plan, record, starter, stuck

NASTY = 'ValueError: <script>alert("x")</script> | `rm` [red]not markup[/red] & more'


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The core schemes with two seeds, a variant, a failed run, and one that never started."""
    folder = starter(tmp_path_factory.mktemp("outputs") / "starter <&>", seeds=(0, 1))
    add_run(folder, record("rope", 0, {"base": 500000.0}), "rope_s0_variant")
    add_run(
        folder,
        record("relative", 5, found=[measured("novel/thing", 3.5, unit="parsec", way="north")]),
        "relative_s5_more",
    )
    (folder / "sinusoidal_s9_x").mkdir()
    records.write_status(folder / "sinusoidal_s9_x", records.FAILED, NASTY)
    jobs = [(f"{scheme}_s{seed}_0badcafe", scheme, seed) for scheme in MEASURED for seed in (0, 1)]
    plan(folder, [*jobs, ("sinusoidal_s9_x", "sinusoidal", 9), ("alibi_s8_y", "alibi", 8)])
    return folder


@pytest.fixture(scope="module")
def comparison(study: Path) -> dict[str, Any]:
    return compare([study])


@pytest.fixture(scope="module")
def written(comparison: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    assert write(folder, comparison) == folder / "comparison.html"
    return folder


class Page(html.parser.HTMLParser):
    """What a browser would see: elements, the resources they load, links, text by element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.resources: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.cells: list[str] = []
        self.scripts = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        if tag not in ("meta", "br", "input", "link", "img"):
            self.open.append(tag)
        self.scripts += tag == "script"
        self.ids += [found["id"]] if found.get("id") else []
        if tag == "a":
            self.links.append(found["href"] or "")
        else:
            self.resources += [
                value for name in ("src", "href", "srcset", "data", "xlink:href") if (value := found.get(name))
            ]
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


@pytest.fixture(scope="module")
def seen(written: Path) -> Page:
    return Page((written / "comparison.html").read_text(encoding="utf-8"))


def test_all_files_are_written(written: Path) -> None:
    names = {path.relative_to(written).as_posix() for path in written.rglob("*") if path.is_file()}
    stems = ["length_curve", "fixed_targets", "by_position", "learning", "recall", "order", "pareto"]
    stems += ["attention", "bias", "cost", "panels"]
    drawn = {f"figures/{stem}.{ending}" for stem in stems for ending in ("png", "svg")}
    assert names == {"comparison.json", "comparison.csv", "comparison.md", "comparison.html", "claims.csv"} | drawn


def test_the_same_records_give_the_same_bytes(study: Path, written: Path, tmp_path: Path) -> None:
    write(tmp_path, compare([study]))
    for path in sorted(path for path in written.rglob("*") if path.is_file()):
        assert path.read_bytes() == (tmp_path / path.relative_to(written)).read_bytes(), path.name


def test_the_page_needs_nothing_from_elsewhere(written: Path, seen: Page) -> None:
    assert seen.open == []  # every element is closed
    assert seen.resources
    assert all(resource.startswith("#") for resource in seen.resources)
    text = (written / "comparison.html").read_text(encoding="utf-8")
    assert not re.search(r"@import|url\((?!#)", text)
    papers = {link for link in seen.links if not link.startswith("#")}
    assert all(link.startswith("https://arxiv.org/abs/") for link in papers)
    assert len(papers) == len(MEASURED)
    # The one address that is no link to a paper names the library that draws the charts.
    elsewhere = re.findall(r"https?://[^\s\"<]+", re.sub(r'<a href="[^"]*">', "", text))
    assert elsewhere == ["https://github.com/leeoniya/uPlot"]
    assert not re.search(r"\b(fetch|import|XMLHttpRequest|WebSocket|EventSource|sendBeacon)\(", text)


def test_ids_are_unique_and_references_resolve(written: Path, seen: Page) -> None:
    assert len(seen.ids) == len(set(seen.ids))
    text = (written / "comparison.html").read_text(encoding="utf-8")
    wanted = set(re.findall(r"url\(#([^)]+)\)", text)) | {resource[1:] for resource in seen.resources}
    wanted |= {link[1:] for link in seen.links if link.startswith("#")}
    assert wanted <= set(seen.ids)


def test_no_text_of_a_record_becomes_markup(written: Path, seen: Page) -> None:
    assert seen.scripts == 3  # the numbers, the library and what draws the charts
    assert NASTY in seen.cells
    text = (written / "comparison.html").read_text(encoding="utf-8")
    assert "<title>starter &lt;&amp;&gt; " in text


def test_the_page_names_every_label_and_what_became_of_every_run(comparison: dict[str, Any], seen: Page) -> None:
    assert {"rope base=500000", *MEASURED} == set(comparison["labels"])
    assert set(comparison["labels"]) <= set(seen.cells)
    assert {"failed", "not started", "not supported beyond 64"} <= set(seen.cells)


def test_the_page_has_every_section_and_the_command(written: Path) -> None:
    text = (written / "comparison.html").read_text(encoding="utf-8")
    found = re.findall(r"<h2[^>]*>([^<]+)</h2>", text)
    assert found == [
        "What this shows", "Length", "Recall and use of order", "Quality and cost", "Sizes and seeds", "Guide",
        "Beside published results", "Claims", "Learning", "The encoding itself", "Other measures", "Outcomes of pairs",
        "Not in the comparison", "Words", "The schemes", "Methods", "Make it again",
    ]  # fmt: skip
    assert "<pre>python train.py experiment=starter study=starter</pre>" in text
    assert "bits/byte" in text
    assert "A token is a byte: 1 nat a byte is 1.443 bits a byte." in text and "Between tokenizers" not in text
    assert "14.2 tokens per parameter" in text


def test_a_loss_in_bits_per_byte_is_that_in_nats_over_ln_2(comparison: dict[str, Any]) -> None:
    (budget,) = comparison["budgets"]
    grids = [
        tables.by_measure(comparison, budget, lambda measure: measure == "loss/whole_windows", bits)
        for bits in (False, True)
    ]
    nats, bits = (dict(zip(grid.header[1:], grid.rows[0][1:], strict=True)) for grid in grids)
    assert grids[1].header[0] == "loss, whole windows (bits/byte)"
    for label in ("alibi", "rope"):
        loss, half = map(float, nats[label].split(" ± "))
        assert [float(number) for number in bits[label].split(" ± ")] == pytest.approx(
            [loss / math.log(2), half / math.log(2)], abs=2e-3
        )


def test_every_claim_stands_on_the_page_and_in_a_file_with_its_verdict(
    comparison: dict[str, Any], seen: Page, written: Path
) -> None:
    found = claims(comparison)
    assert {verdict.sentence for verdict in found} == {claim.sentence for claim in CLAIMS}
    rows = [[verdict.sentence, verdict.verdict, verdict.reason, verdict.source] for verdict in found]
    start = seen.cells.index(rows[0][0])
    assert seen.cells[start : start + 4 * len(rows)] == [cell for row in rows for cell in row]
    lines = list(csv.DictReader(io.StringIO((written / "claims.csv").read_text(encoding="utf-8"))))
    assert [[line["sentence"], line["verdict"], line["reason"], line["source"]] for line in lines] == rows


def test_of_two_budgets_each_has_its_verdicts_and_claims_on_an_encoding_alone_have_one(tmp_path: Path) -> None:
    folder = starter(tmp_path / "s", seeds=(0,), schemes=("alibi",))
    add_run(folder, record("rope", 0, steps=1600), "rope_s0_short")
    grid = tables.verdicts(compare([folder]))
    assert grid.header == ["claim", "budget", "verdict", "numbers", "source"]
    cheap = [row[1:3] for row in grid.rows if row[0].startswith("ALiBi is cheap")]
    assert cheap == [["1", "undecided"], ["2", "not measured"]]
    assert [row[1] for row in grid.rows if row[0].startswith("RoPE's scores")] == ["all"]


def test_figures_in_the_page_take_its_colours(written: Path) -> None:
    text = (written / "comparison.html").read_text(encoding="utf-8")
    assert figures.INK not in text
    assert text.count("<svg role=") == 11


def test_the_csv_has_every_summary_entry_also_of_unknown_measures(comparison: dict[str, Any], written: Path) -> None:
    lines = list(csv.DictReader(io.StringIO((written / "comparison.csv").read_text(encoding="utf-8"))))
    assert len(lines) == len(comparison["summary"])
    (novel,) = [line for line in lines if line["measure"] == "novel/thing"]
    assert (novel["label"], novel["way"], novel["mean"], novel["unit"], novel["half_width"]) == (
        "relative",
        "north",
        "3.5",
        "parsec",
        "",
    )
    (unsupported,) = [
        line
        for line in lines
        if (line["label"], line["measure"], line["length"]) == ("learned", "loss/fixed_targets", "1024")
    ]
    assert (unsupported["mean"], unsupported["status"]) == ("", "not supported")


def markdown_tables(text: str) -> list[list[list[str]]]:
    found: list[list[list[str]]] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for index, token in enumerate(tokens):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type in ("th_open", "td_open"):
            inline = tokens[index + 1]
            found[-1][-1].append("".join(child.content for child in inline.children or []))
            assert all(child.type in ("text", "text_special") for child in inline.children or []), inline.content
    return found


def test_the_markdown_parses_and_says_the_same(comparison: dict[str, Any], written: Path) -> None:
    main, told, failed = markdown_tables((written / "comparison.md").read_text(encoding="utf-8"))
    grid = tables.headline(comparison, comparison["budgets"][0])
    assert main == [grid.header, *grid.rows]
    grid = tables.verdicts(comparison)
    assert told == [grid.header, *grid.rows]
    assert [NASTY in row for row in failed].count(True) == 1
    assert {len(row) for row in failed} == {5}


def test_the_main_table_is_ordered_by_loss_and_has_no_gap(comparison: dict[str, Any]) -> None:
    grid = tables.headline(comparison, comparison["budgets"][0])
    assert [row[0] for row in grid.rows] == [
        "t5",
        "relative",
        "rope base=500000",
        "rope",
        "alibi",
        "sinusoidal",
        "learned",
        "none",
    ]
    assert all(cell for row in grid.rows for cell in row)
    learned = dict(zip(grid.header, grid.rows[6], strict=True))
    assert learned["loss at 1024"] == "not supported beyond 64"
    assert learned["loss at 64"] == "1.409"
    none = dict(zip(grid.header, grid.rows[7], strict=True))
    assert none["loss at 64"] == "1.628 ± 0.165"  # 12.706 * 0.026 / 2
    assert (none["recall at 512"], none["learning"]) == ("no recall inside 64", "still learning")


def test_a_scheme_without_a_finished_run_stands_in_the_main_table(tmp_path: Path) -> None:
    folder = starter(tmp_path / "s", seeds=(0,), schemes=("alibi",))
    plan(folder, [("alibi_s0_0badcafe", "alibi", 0), ("t5_s0_z", "t5", 0)])
    comparison = compare([folder])
    grid = tables.headline(comparison, comparison["budgets"][0])
    assert [row[0] for row in grid.rows] == ["alibi", "t5"]
    assert grid.rows[1][1] == "not started"


def test_a_measure_that_one_scheme_lacks_is_said(comparison: dict[str, Any]) -> None:
    grid = tables.by_measure(comparison, comparison["budgets"][0], lambda measure: measure == "novel/thing")
    (row,) = grid.rows
    assert (grid.header[0], row[0]) == ("thing (parsec)", "north")
    assert dict(zip(grid.header, row, strict=True))["relative"] == "3.500 (1 seed)"
    assert row.count("not measured") == len(grid.header) - 2


def printed(comparison: dict[str, Any], page: Path | None = None, **terminal: Any) -> str:
    stream = io.StringIO()
    tables.print_comparison(comparison, page, Console(file=stream, color_system=None, highlight=False, **terminal))
    return stream.getvalue()


def test_the_table_in_the_terminal_is_never_cut(comparison: dict[str, Any]) -> None:
    grid = tables.headline(comparison, comparison["budgets"][0])
    for text in (printed(comparison), printed(comparison, force_terminal=True, width=70)):
        assert "…" not in text
        flat = " ".join(text.split())
        assert all(" ".join(cell.split()) in flat for row in grid.rows for cell in row)
    assert max(len(line) for line in printed(comparison, force_terminal=True, width=70).splitlines()) <= 70


def test_the_terminal_ends_with_failures_and_the_path_of_the_page(comparison: dict[str, Any]) -> None:
    long_path = Path("/outputs") / ("a" * 90) / "comparison.html"
    lines = printed(comparison, long_path).splitlines()
    assert lines[-1] == f"Page: {long_path}"
    assert f"failed: sinusoidal seed 9: {NASTY}" in lines
    assert "not started: alibi seed 8" in lines


def test_pairs_read_from_both_sides(comparison: dict[str, Any]) -> None:
    grid = tables.pairs(comparison, comparison["budgets"][0], "loss/whole_windows", {"length": 1024, "window": 0})
    cell = {
        (row[0], column): value for row in grid.rows for column, value in zip(grid.header[1:], row[1:], strict=True)
    }
    # Alone, two seeds would decide (p 0.049); among the 15 pairs with a test here they do not.
    assert cell["relative", "alibi"] == "undecided (−0.103, 4 seeds needed)"
    assert cell["alibi", "relative"] == "undecided (+0.103, 4 seeds needed)"
    assert cell["learned", "t5"] == cell["t5", "learned"] == "not supported"
    assert cell["rope base=500000", "t5"] == "indication (+2.454, 2.454 to 2.454 over documents)"
    assert cell["t5", "rope base=500000"] == "indication (−2.454, −2.454 to −2.454 over documents)"
    assert cell["t5", "t5"] == "–"


def findings(comparison: dict[str, Any]) -> list[str]:
    return answer.findings(comparison, comparison["budgets"][0])


def test_schemes_that_rounding_makes_equal_are_in_no_order(tmp_path: Path) -> None:
    comparison = compare([starter(tmp_path / "s", seeds=(0,))])
    entries = {
        entry["label"]: entry
        for entry in comparison["summary"]
        if (entry["measure"], entry["at"]) == ("loss/whole_windows", {"length": 64, "window": 0})
    }
    first, second = sorted(entries, key=lambda label: entries[label]["mean"])[:2]
    entries[second]["mean"] = entries[first]["mean"] + 1e-6
    assert f"{first} has the lowest loss with" in findings(comparison)[0]
    assert f" (rounded, {second} too), before " in findings(comparison)[0]


def test_the_answer_makes_no_pick_while_schemes_still_learn(comparison: dict[str, Any]) -> None:
    inside, beyond, longer, full, recall, recall_beyond = findings(comparison)
    assert inside.startswith(
        "At the train length (64 tokens) t5 has the lowest loss with 1.278, before relative with 1.278 ± 0.006 and "
        "rope base=500000 with 1.286 (1 seed). No pick: it is undecided against relative and rope; "
    )
    assert inside.endswith("its gap to alibi, learned, none and sinusoidal still moves (still learning).")
    assert beyond.startswith(
        "At 1024 tokens (16 times the train length) relative has the lowest loss with 1.238 ± 0.013, "
    )
    assert beyond.endswith(" learned: not supported beyond 64.")
    # Two seeds decide nothing of six schemes at once; alone, alibi's change would be one.
    assert longer.startswith(
        "With 1024 instead of 64 tokens of context, the loss on the same 16,384 target tokens rises for rope base=500000 "
        "(+2.431, 2.431 to 2.431 over documents, an indication from 1 seed); shows no decided change for alibi (−0.030 ± 0.025), "
    )
    # Paired over seeds 0 and 1: -0.028 and -0.032, so -0.030 with half a width of 12.706 * 0.002.
    assert "t5 (−0.018 ± 0.032)" in longer
    assert full.startswith(
        "With all 1024 tokens of context in view instead of the last 64, the loss on the same 16,384"
    )
    assert "alibi (−0.070 ± 0.025)" in full
    assert recall.startswith(
        "Recall inside the train length (mean gain at distances of 32 and 48 tokens, nats/token, with"
    )
    assert recall.endswith(", and not in none, whose interval reaches 0.")
    assert recall_beyond.startswith(
        "Of those that recall inside, the gain at a distance of 512 tokens (8 times the train length) is: alibi "
    )
    assert "none" not in recall_beyond


def test_with_one_seed_each_change_of_loss_is_an_indication(tmp_path: Path) -> None:
    comparison = compare([starter(tmp_path / "s", seeds=(0,), schemes=("rope", "t5"))])
    assert findings(comparison)[2] == (
        "An indication from one seed: with 1024 instead of 64 tokens of context, the loss on the same 16,384 target tokens "
        "rises for rope (+2.431, 2.431 to 2.431 over documents); stays within ±0.02 for t5 (−0.015, −0.015 to −0.015 over "
        "documents)."
    )


def test_one_seed_is_never_a_pick(tmp_path: Path) -> None:
    pair = compare([starter(tmp_path / "s", seeds=(0,), schemes=("rope", "t5"))])
    assert findings(pair)[0] == (
        "At the train length (64 tokens) the loss of t5 is 0.008 nats/token (0.008 to 0.008 over documents) lower than that of "
        "rope: an indication from one seed, no pick."
    )
    three = compare([starter(tmp_path / "t", seeds=(0,), schemes=("rope", "t5", "relative"))])
    assert findings(three)[1].endswith(
        "before t5 with 1.263 and rope with 3.717. An indication from one seed, no pick."
    )


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        (
            ((1.20, 1.21, 1.22), (1.30, 1.31, 1.32)),
            "alibi is better than t5: its loss is 0.100 ± 0.000 nats/token lower.",
        ),
        (
            ((1.30, 1.31, 1.32), (1.301, 1.309, 1.3205)),
            "alibi and t5 are equivalent: their losses differ by 0.000 ± 0.003 nats/token.",
        ),
        (
            ((1.30, 1.35, 1.20), (1.32, 1.31, 1.25)),
            "it is undecided between alibi and t5: the loss of alibi is 0.010 ± 0.114 nats/token lower than that of t5; "
            "84 seeds would decide if the spread stays.",
        ),
    ],
)
def test_of_two_schemes_the_difference_is_told(tmp_path: Path, losses: tuple, told: str) -> None:
    for scheme, found in zip(("alibi", "t5"), losses, strict=True):
        for seed, loss in enumerate(found):
            rows = [measured("loss/whole_windows", loss, documents=True, length=64, window=0)]
            rows += [measured("training/loss", 1.3, fraction=fraction) for fraction in (0.5, 1.0)]
            add_run(tmp_path / "s", record(scheme, seed, found=rows))
    assert findings(compare([tmp_path / "s"])) == [f"At the train length (64 tokens) {told}"]


def test_of_two_schemes_that_still_learn_the_way_of_the_gap_is_told(tmp_path: Path) -> None:
    found = findings(compare([starter(tmp_path / "s", seeds=(0, 1), schemes=("alibi", "t5"))]))[0]
    assert "but this decides nothing, still learning: the gap moved by" in found


@pytest.mark.parametrize("ahead", ["alibi", "t5"])
def test_one_seed_has_its_interval_over_documents_beside_it(tmp_path: Path, ahead: str) -> None:
    # Two documents of equal size, whose differences are 0.1 and 0.2: drawn again, a mean is 0.1, 0.15 or 0.2.
    for scheme in ("alibi", "t5"):
        behind = 0.0 if scheme == ahead else 1.0
        groups = [("a", (2.0 + 0.1 * behind) * 500, 500), ("b", (1.0 + 0.2 * behind) * 500, 500)]
        row = records.Row(
            measure="loss/whole_windows",
            at={"length": 64, "window": 0},
            value=1.5 + 0.15 * behind,
            unit="nats/token",
            count=1000,
            groups=groups,
        )
        resting = [measured("training/loss", 1.3, fraction=fraction) for fraction in (0.5, 1.0)]
        add_run(tmp_path / "s", record(scheme, 0, found=[row, *resting]))
    comparison = compare([tmp_path / "s"])
    assert findings(comparison) == [
        f"At the train length (64 tokens) the loss of {ahead} is 0.150 nats/token (0.100 to 0.200 over documents) lower than "
        f"that of {'t5' if ahead == 'alibi' else 'alibi'}: an indication from one seed, no pick."
    ]
    grid = tables.pairs(comparison, comparison["budgets"][0], row.measure, row.at)
    assert [line[2 - number] for number, line in enumerate(grid.rows)] == [
        "indication (−0.150, −0.200 to −0.100 over documents)",
        "indication (+0.150, 0.100 to 0.200 over documents)",
    ]


def test_the_page_says_how_outcomes_are_corrected_and_intervals_are_not(written: Path) -> None:
    text = (written / "comparison.html").read_text(encoding="utf-8")
    for part in ("Intervals are of 95 % each", "corrected (Holm 1979) over all pairs of one measure at one place"):
        assert text.count(part) == 2  # beside the outcomes, and in the methods


def test_runs_that_have_not_learned_are_named_first_and_nowhere_else(tmp_path: Path) -> None:
    folder = starter(tmp_path / "s", seeds=(0,), schemes=("alibi", "t5"))
    add_run(folder, stuck("none"))
    first, *others = findings(compare([folder]))
    assert first == (
        "Not compared, because a run of it has not learned (validation loss above that of a trigram count model): none."
    )
    assert not any("none" in sentence for sentence in others)


def test_where_nothing_has_learned_one_sentence_says_so(tmp_path: Path) -> None:
    add_run(tmp_path / "s", stuck("none"))
    assert findings(compare([tmp_path / "s"])) == [
        "After 3,200 steps this run has not learned enough to be compared (validation loss above that of a trigram count "
        "model): it shows that everything works; the losses mean nothing yet."
    ]
    add_run(tmp_path / "s", stuck("alibi"))
    (sentence,) = findings(compare([tmp_path / "s"]))
    assert sentence.startswith("After 3,200 steps none of the 2 runs has learned enough to be compared")


def test_a_scheme_that_is_ahead_of_all_is_named(tmp_path: Path) -> None:
    comparison = compare([starter(tmp_path / "s", seeds=(0, 1, 2, 3), schemes=("rope", "alibi", "t5"))])
    assert findings(comparison)[1].endswith("It is better than every other scheme measured.")


def test_equivalent_schemes_are_named_together(tmp_path: Path) -> None:
    folder = starter(tmp_path / "s", seeds=(0, 1, 2, 3), schemes=("alibi", "t5"))
    for seed in (0, 1, 2, 3):
        twin = record("t5", seed, {"buckets": 16})
        twin.rows = [
            dataclasses.replace(row, value=row.value and row.value + (-0.0005, 0.0015)[seed % 2]) for row in twin.rows
        ]
        add_run(folder, twin, f"t5_s{seed}_twin")
    assert findings(compare([folder]))[1].endswith("It is better than alibi; it is equivalent to t5 buckets=16.")


def test_a_length_that_one_run_alone_was_measured_at_is_left_out(tmp_path: Path) -> None:
    folder = starter(tmp_path / "s", seeds=(0, 1), schemes=("rope", "t5"))
    more = record("alibi")
    more.rows.append(measured("loss/whole_windows", 1.2, documents=True, length=2048, window=0))
    add_run(folder, more)
    comparison = compare([folder])
    grid = tables.headline(comparison, comparison["budgets"][0])
    assert not any("2048" in name for name in grid.header)
    assert [row[1] for row in grid.rows if row[0] == "alibi"] == ["1.376 (1 seed)"]
    sentences = findings(comparison)
    assert sentences[-1] == (
        "Lengths that not every run was measured at are left out above: 2048 tokens (alibi seed 0 alone)."
    )
    assert sentences[1].startswith("At 1024 tokens")
    numbers = tables.by_measure(comparison, comparison["budgets"][0], lambda measure: measure == "loss/whole_windows")
    assert dict(zip(numbers.header, numbers.rows[-1], strict=True)) == {
        "loss, whole windows (nats/token)": "length 2048",
        "t5": "not measured",
        "rope": "not measured",
        "alibi": "1.200 (1 seed)",
    }


def test_one_scheme_alone_and_none_at_all(tmp_path: Path) -> None:
    alone = compare([starter(tmp_path / "s", seeds=(0,), schemes=("alibi",))])
    assert findings(alone)[0] == "Only alibi was measured, so there is nothing to compare it with."
    plan(tmp_path / "empty", [("rope_s0_1", "rope", 0), ("rope_s1_1", "rope", 1)])
    comparison = compare([tmp_path / "empty"])
    write(tmp_path / "empty", comparison)
    told = "Nothing was measured, for no run is complete: 2 not started."
    for name in ("comparison.html", "comparison.md"):
        assert told in (tmp_path / "empty" / name).read_text(encoding="utf-8")
    assert "Methods" not in (tmp_path / "empty" / "comparison.html").read_text(encoding="utf-8")
    assert told in printed(comparison)


def test_runs_that_failed_alike_stand_together(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    names = [("a", "rope", 0), ("b", "rope", 0), ("c", "rope", 1), ("d", "t5", 0)]
    plan(folder, names)
    for name, _, _ in names[:3]:
        (folder / name).mkdir()
        records.write_status(folder / name, records.FAILED, "no space")
    (folder / "d").mkdir()
    records.write_status(folder / "d", records.RUNNING)
    comparison = compare([folder])
    assert tables.failures(comparison).rows == [
        ["failed", "no space", "3", "rope seeds 0 (a), 0 (b) and 1", "a; b; c"],
        ["running", "its process is still at work", "1", "t5 seed 0", "d"],
    ]
    assert printed(comparison).splitlines()[-2:] == [
        "failed, 3 runs: rope seeds 0 (a), 0 (b) and 1: no space",
        "running: t5 seed 0: its process is still at work",
    ]


def test_the_page_explains_each_word_that_it_uses_and_no_other(comparison: dict[str, Any], tmp_path: Path) -> None:
    told = dict(page._words(comparison))
    used = {item["outcome"] for item in comparison["outcomes"]} | {entry["status"] for entry in comparison["summary"]}
    assert used - {"measured", "worse"} <= told.keys()
    assert {"failed", "not started", "still learning"} <= told.keys()
    assert "more than 0.02 nats/token" in told["still learning"]
    assert "diverged" not in told
    alone = compare([starter(tmp_path / "s", seeds=(0,), schemes=("alibi",))])
    assert "undecided" not in dict(page._words(alone))


def test_two_budgets_stand_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "FIGURES", figures.FIGURES[:1])
    folder = starter(tmp_path / "s", seeds=(0,), schemes=("alibi", "t5"))
    add_run(folder, record("rope", 0, steps=1600), "rope_s0_short")
    comparison = compare([folder])
    write(tmp_path, comparison)
    text = (tmp_path / "comparison.html").read_text(encoding="utf-8")
    assert "train.steps (3200 and 1600)" in text
    assert {"Budget 1: Length", "Budget 2: Length"} <= set(re.findall(r"<h2>([^<]+)</h2>", text))
    assert (tmp_path / "figures" / "length_curve_2.svg").exists()
    assert Page(text).open == []
    assert "train.steps (3200 and 1600)" in printed(comparison)


def test_an_unknown_scheme_has_a_card_too(tmp_path: Path) -> None:
    content = record("alibi")
    content.scheme = content.settings["pe"]["name"] = "of tomorrow"
    folder = tmp_path / "s"
    add_run(folder, content, "tomorrow_s0_1")
    comparison = compare([folder])
    text = page.render(comparison, {1: []})
    assert "does not know this scheme" in text


def test_the_main_table_says_what_its_losses_are(comparison: dict[str, Any], tmp_path: Path) -> None:
    several = answer.units(comparison, comparison["budgets"][0])
    assert "mean over all tokens of windows of N tokens" in several
    assert "±" in several
    alone = compare([starter(tmp_path / "s", seeds=(0,), schemes=("alibi",))])
    text = printed(alone)
    assert answer.units(alone, alone["budgets"][0]) in " ".join(text.split())
    assert "one seed, so no interval" in text
    assert "±" not in text
    captions = [
        [shown.caption for _, _, describe in figures.FIGURES if (shown := describe(each, each["budgets"][0]))]
        for each in (alone, comparison)
    ]
    assert not any("95 %" in caption for caption in captions[0])
    assert all("95 %" in caption for caption in captions[1])


def with_rows(scheme: str, *rows: Row) -> records.Record:
    content = record(scheme)
    content.rows += rows
    return content


def test_notes_of_measured_rows_stand_on_the_page(tmp_path: Path) -> None:
    noted = [measured("cost/ratio", 0.9, unit="times none", what=what) for what in ("one", "two")]
    noted = [dataclasses.replace(row, note="load average 1.93 on 2 cores") for row in noted]
    probe = dataclasses.replace(
        measured("probe/order", 0.3, unit="", attention="causal"), note="with pe.form=symmetric"
    )
    add_run(tmp_path / "s", with_rows("alibi", *noted, probe))
    add_run(tmp_path / "s", with_rows("t5", probe))
    comparison = compare([tmp_path / "s"])
    text = page.render(comparison, {1: []})
    assert tables.remarks(comparison, comparison["budgets"][0], lambda measure: measure.startswith("loss/")) == []
    assert text.count("<li>alibi seed 0: load average 1.93 on 2 cores.</li>") == 1
    assert text.count("<li>All runs: with pe.form=symmetric.</li>") == 1


def test_memory_measured_at_different_lengths_shares_no_row_and_no_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scheme, length in (("learned", 64), ("alibi", 256), ("t5", 256)):
        row = measured("cost/ratio", 1.1, unit="times none", what="peak_memory", during="evaluation", length=length)
        add_run(tmp_path / "s", with_rows(scheme, row))
    comparison = compare([tmp_path / "s"])
    budget = comparison["budgets"][0]
    grid = tables.by_measure(comparison, budget, lambda measure: measure == "cost/ratio")
    assert grid.header[1:] == ["t5", "alibi", "learned"]
    assert [row for row in grid.rows if "evaluation" in row[0]] == [
        ["ratio to none, peak memory, evaluation, length 64", "not measured", "not measured", "1.100"],
        ["ratio to none, peak memory, evaluation, length 256", "1.100", "1.100", "not measured"],
    ]
    monkeypatch.setattr(figures, "FIGURES", [each for each in figures.FIGURES if each[0] == "cost"])
    (drawn,) = figures.draw(comparison, budget)
    assert re.findall("evaluation, length [0-9]+", drawn.svg) == ["evaluation, length 64", "evaluation, length 256"]


def test_words_beside_marks_are_wrapped_so_that_a_figure_stays_readable_on_a_phone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = measured("cost/ratio", 1.1, unit="times none", what="peak_memory", during="evaluation", length=256)
    add_run(tmp_path / "s", with_rows("alibi", row))
    comparison = compare([tmp_path / "s"])
    monkeypatch.setattr(figures, "FIGURES", [each for each in figures.FIGURES if each[0] == "cost"])
    (drawn,) = figures.draw(comparison, comparison["budgets"][0])
    box = re.search(r'viewBox="0 0 ([\d.]+) ', drawn.svg)
    assert box is not None
    assert 358 / float(box[1]) * 10 > 9  # pixels of a letter's height where the page is 390 pixels wide


def test_a_value_that_is_not_finite_stands_as_words(tmp_path: Path) -> None:
    folder = starter(tmp_path / "s", seeds=(0,), schemes=("alibi", "t5"))
    content = record("rope")
    at = {"length": 1024, "window": 0}
    content.rows = [row for row in content.rows if (row.measure, row.at) != ("loss/whole_windows", at)]
    content.rows.append(
        Row(measure="loss/whole_windows", at=at, status=records.NOT_FINITE, reason="7 of 16384 values are not finite")
    )
    add_run(folder, content)
    comparison = compare([folder])
    grid = tables.headline(comparison, comparison["budgets"][0])
    (rope,) = [dict(zip(grid.header, row, strict=True)) for row in grid.rows if row[0] == "rope"]
    assert rope["loss at 1024"] == "not finite"
    assert findings(comparison)[1].endswith(" rope: not finite.")
    told = tables.without_number(comparison, comparison["budgets"][0])
    assert any("rope: not finite: seed 0: 7 of 16384 values are not finite" in sentence for sentence in told)


def test_a_change_of_nothing_does_not_look_like_one(tmp_path: Path) -> None:
    content = record("alibi")
    content.rows = [
        measured("loss/fixed_targets", 1.3 + 0.001 * index, documents=True, length=length, window=0)
        for index, length in enumerate((64, 128, 256))
    ]
    add_run(tmp_path / "s", content)
    comparison = compare([tmp_path / "s"])
    budget = comparison["budgets"][0]
    described = {name: describe for name, _, describe in figures.FIGURES}["fixed_targets"](comparison, budget)
    drawn = figures._curves(comparison, budget, "", described)
    low, high = drawn.axes[0].get_ylim()
    assert low < -comparison["margin"] < comparison["margin"] < high


def drawn_dots(comparison: dict[str, Any], name: str) -> Any:
    budget = comparison["budgets"][0]
    described = {each: describe for each, _, describe in figures.FIGURES}[name](comparison, budget)
    return figures._dots(comparison, budget, "", described).axes[0]


def test_order_that_changes_nothing_does_not_look_like_a_change(tmp_path: Path) -> None:
    add_run(tmp_path / "s", record("alibi", found=[measured("order/change", 0.004, change="swap", kept=0)]))
    low, high = drawn_dots(compare([tmp_path / "s"]), "order").get_xlim()
    assert low <= -0.1
    assert high >= 0.1


def test_marks_of_cost_have_the_interval_of_the_table(tmp_path: Path) -> None:
    for seed, ratio in enumerate((0.9, 0.94, 0.92)):
        add_run(
            tmp_path / "s", record("alibi", seed, found=[measured("cost/ratio", ratio, unit="times none", what="a")])
        )
    comparison = compare([tmp_path / "s"])
    (entry,) = comparison["summary"]
    (bar,) = drawn_dots(comparison, "cost").collections
    ends = bar.get_segments()[0][:, 0]
    assert ends == pytest.approx([entry["mean"] - entry["half_width"], entry["mean"] + entry["half_width"]])
    assert tables.Entries(comparison, comparison["budgets"][0]).cell("alibi", "cost/ratio", what="a") == "0.920 ± 0.050"


def test_a_wide_interval_does_not_crush_the_means() -> None:
    low, high = figures._limits([1.0, 2.0], [-50.0, 60.0])
    assert (low, high) == pytest.approx((0.51, 2.49))
    assert figures._limits([1.0, 2.0], [0.9, 2.1]) == pytest.approx((0.84, 2.16))


def test_each_probe_stands_under_its_question(tmp_path: Path) -> None:
    shift = measured("probe/shift", 0.6, unit="of the largest output", offset=32)
    add_run(tmp_path / "s", record("sinusoidal", found=[dataclasses.replace(shift, note="one; another")]))
    add_run(tmp_path / "s", record("alibi", found=[measured("probe/bias", -0.1, distance=1, parameters="trained")]))
    comparison = compare([tmp_path / "s"])
    (first, second) = tables.probes(comparison, comparison["budgets"][0])
    assert first[0] == "Does it depend on distance alone?"
    assert first[2].header == ["shift (of the largest output)", "sinusoidal"]
    assert first[3] == ["sinusoidal seed 0: one; another."]
    assert second[1].endswith(words.PARAMETERS)
    assert second[2].header == ["bias (nats/token)", "alibi"]


def test_figures_that_are_not_drawn_any_more_are_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "FIGURES", figures.FIGURES[:1])
    comparison = compare([starter(tmp_path / "s", seeds=(0,), schemes=("alibi",))])
    (tmp_path / "figures").mkdir()
    for name in ("length_curve_2.png", "length_curve_2.svg", "mine.png"):
        (tmp_path / "figures" / name).touch()
    write(tmp_path, comparison)
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        "length_curve.png",
        "length_curve.svg",
        "mine.png",
    ]


def test_two_writers_take_turns_and_the_json_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "FIGURES", figures.FIGURES[:1])
    comparison = compare([starter(tmp_path / "s", seeds=(0,), schemes=("alibi",))])
    written: list[str] = []
    whole = records.write_text

    def noting(path: Path, text: str) -> None:
        handle = os.open(tmp_path / "figures", os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)
        written.append(path.name)
        whole(path, text)

    monkeypatch.setattr(records, "write_text", noting)
    write(tmp_path, comparison)
    assert written[-1] == "comparison.json"
    assert len(written) == 5


def test_lines_and_bands_come_from_the_rows(comparison: dict[str, Any]) -> None:
    lines = figures.series(comparison, comparison["budgets"][0], "loss/whole_windows", "length", window=0)
    assert lines["learned"].x == [64]
    assert lines["none"].x == [64, 128, 256, 512, 1024]
    assert lines["none"].mean[0] == pytest.approx(1.628)
    assert lines["none"].low[0] == pytest.approx(1.628 - 12.7062 * 0.013, abs=1e-5)  # as "1.628 ± 0.165" in the table
    assert lines["none"].high[0] == pytest.approx(1.628 + 12.7062 * 0.013, abs=1e-5)
    assert lines["rope base=500000"].low == lines["rope base=500000"].mean  # one seed has no interval
    change = figures.series(
        comparison, comparison["budgets"][0], "loss/fixed_targets", "length", relative_to=64, window=0
    )
    assert change["rope"].mean[0] == 0.0
    differences = (3.717 - 1.286, 3.821 - 1.305)
    assert change["rope"].mean[-1] == pytest.approx(sum(differences) / 2)
    assert change["rope"].high[-1] == pytest.approx(
        sum(differences) / 2 + 12.7062 * (differences[1] - differences[0]) / 2, abs=1e-5
    )
    recall = figures.series(comparison, comparison["budgets"][0], "recall/gain", "distance")
    assert recall["none"].x == [32, 48]  # beyond the train length: not learned


def test_a_label_looks_the_same_everywhere_and_like_no_other(comparison: dict[str, Any]) -> None:
    looks = [tuple(figures.look(comparison, label).values()) for label in comparison["labels"]]
    assert len(set(looks)) == len(looks)
    many = {"labels": {f"scheme {number:02}": "" for number in range(60)}}
    assert len({tuple(figures.look(many, label).values()) for label in many["labels"]}) == 60


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([1.0, 5.0], [1.0, 5.0]),
        ([3.0, 3.0], [2.5, 3.5]),
        ([3.0, 3.0, 3.0, 9.0], [2.0, 3.0, 4.0, 9.0]),
    ],
)
def test_names_are_spread_out(wanted: list[float], expected: list[float]) -> None:
    assert figures.spread_out(wanted, 1.0) == pytest.approx(expected)


def test_levels_of_count_models_are_told(comparison: dict[str, Any]) -> None:
    text = page.render(comparison, {1: []})
    assert f"unigram {COUNTS['unigram']:.3f}, bigram {COUNTS['bigram']:.3f} and trigram {COUNTS['trigram']:.3f}" in text
    assert f"A run that ends above {COUNTS['trigram']:.3f} has not learned." in text


def test_methods_state_what_was_counted(comparison: dict[str, Any]) -> None:
    text = page.render(comparison, {1: []})
    assert "loss, fixed targets 16,384; loss, whole windows 16,384; recall gain 64." in text
    assert "gflops float32 165.0 to 170.0" in text


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (1.27849, "nats/token", "1.278"),
        (-0.0691, "nats/token", "−0.069"),
        (2.0, "nats/token", "2.000"),
        (230_208.0, "parameters", "230,208"),
        (41_234.6, "tokens/s", "41,235"),
        (61_000_000.0, "bytes", "58.2 MiB"),
        (3.1e-13, "of the largest output", "3.1e−13"),
        (1.0, "times none", "1.000"),
        (-0.0001, "nats/token", "0.000"),
        (296.4, "tokens/s", "296"),
    ],
)
def test_numbers(value: float, unit: str, expected: str) -> None:
    assert words.number(value, unit) == expected
