"""The page's data, scripts, methods and what stands beside published results; the charts in a browser where there is one."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from posbuild import records, registry
from posbuild.comparison.compare import compare
from posbuild.guide import guide
from posbuild.guide.published import Metric, Value, table, tables
from posbuild.report import beside, charts, figures, methods, page, pareto, words, write
from tests.comparison.studies import MEASURED, add_run, measured, record, starter, stuck
from tests.guide import fixtures

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NASTY = '</script><script>alert("x")</script><!-- & \u2028'


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return starter(tmp_path_factory.mktemp("outputs") / "three seeds")


@pytest.fixture(scope="module")
def comparison(study: Path) -> dict[str, Any]:
    return compare([study])


@pytest.fixture(scope="module")
def text(comparison: dict[str, Any]) -> str:
    return page.render(comparison, {1: []})


def block(text: str) -> dict[str, Any]:
    """The numbers that the script of a page reads."""
    (found,) = re.findall(r'<script type="application/json" id="study">(.*?)</script>', text, re.DOTALL)
    content: dict[str, Any] = json.loads(found)
    return content


# --- the numbers -----------------------------------------------------------------------------------------------------


def test_the_charts_have_the_numbers_of_the_figures(comparison: dict[str, Any], text: str) -> None:
    found = block(text)
    curves = {name for name, chart in found["charts"].items() if chart["kind"] == "curves"}
    assert curves == {"length_curve", "fixed_targets", "by_position", "learning", "recall", "attention", "bias"}
    budget = comparison["budgets"][0]
    lines = figures.series(comparison, budget, "loss/whole_windows", "length", window=0)
    shown = {line.pop("label"): line for line in found["charts"]["length_curve"]["lines"]}
    assert shown.keys() == {*MEASURED}
    for label, line in shown.items():
        assert line["x"] == lines[label].x
        for side in ("mean", "low", "high"):
            assert line[side] == pytest.approx(getattr(lines[label], side), rel=1e-5)
    assert {line["label"] for line in found["charts"]["length_curve"]["dashed"]} == {*MEASURED} - {"learned"}
    assert found["looks"] == {label: figures.look(comparison, label) for label in comparison["labels"]}


def test_one_seed_has_no_intervals_and_no_panels(tmp_path: Path) -> None:
    found = charts.data(compare([starter(tmp_path / "s", seeds=(0,), schemes=("alibi", "t5"))]))
    assert not any("low" in line for line in found["charts"]["length_curve"]["lines"])
    assert found["panels"] == []


def test_each_seed_has_a_panel_with_its_own_numbers(comparison: dict[str, Any]) -> None:
    measure = next(each for each in charts.data(comparison)["panels"] if "whole windows" in each["title"])
    assert [panel["title"] for panel in measure["panels"]] == ["seed 0", "seed 1", "seed 2"]
    for seed, panel in enumerate(measure["panels"]):
        (rope,) = (line for line in panel["lines"] if line["label"] == "rope")
        assert rope["mean"] == pytest.approx([loss + 0.001 * (seed // 2) for loss in MEASURED["rope"][0][seed % 2]])


def test_each_model_size_has_panels_of_its_own(tmp_path: Path) -> None:
    for name, parameters in (("small", 230_208), ("large", 3_400_000)):
        for seed in (0, 1):
            content = record("alibi", seed)
            content.settings["model"]["d_model"] = 64 if name == "small" else 256
            content.model["parameters"] = parameters
            add_run(tmp_path / "s", content, f"alibi_s{seed}_{name}")
    comparison = compare([tmp_path / "s"])
    panels = charts.data(comparison)["panels"][0]["panels"]
    assert [panel["title"] for panel in panels] == [
        f"{size} parameters, seed {seed}" for size in ("0.23M", "3.4M") for seed in (0, 1)
    ]
    assert len({panel["row"] for panel in panels[:2]}) == len({panel["row"] for panel in panels[2:]}) == 1
    assert [picture.name for picture in figures.draw_panels(comparison)] == ["panels"]


def test_no_label_breaks_out_of_the_page(comparison: dict[str, Any]) -> None:
    spelled = json.dumps(NASTY)[1:-1]
    nasty = json.loads(json.dumps(comparison).replace("alibi", spelled))
    text = page.render(nasty, {1: []})
    assert NASTY in block(text)["looks"]
    assert len(re.findall("<script", text)) == len(re.findall("</script>", text)) == 3
    assert "<!--" not in text


# --- what runs in the page -------------------------------------------------------------------------------------------


def test_a_browser_may_run_the_scripts_of_the_page_and_load_nothing(text: str) -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    policy = policy.replace("&#39;", "'")
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert policy == (
        "default-src 'none'; style-src 'unsafe-inline'; "
        f"script-src {' '.join(f'{chr(39)}sha256-{digest}{chr(39)}' for digest in digests)}"
    )
    assert len(scripts) == 2


def test_the_library_stands_in_the_page_whole_and_under_its_licence(text: str) -> None:
    for name in ("LICENSE", "uPlot.iife.min.js", "uPlot.min.css"):
        assert (page.UPLOT / name).read_text(encoding="utf-8") in text
    assert "(v1.6.32)" in text


def test_what_the_script_looks_for_is_in_the_page(text: str) -> None:
    script = (Path(page.__file__).parent / "page.js").read_text(encoding="utf-8")
    styles = (Path(page.__file__).parent / "page.css").read_text(encoding="utf-8")
    for name in re.findall(r'getElementById\("(\w+)"\)', script):
        assert f'id="{name}"' in text
    for name in re.findall(r'ofPage\("(--\w+)"\)', script):
        assert f"{name}:" in styles


def browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@pytest.mark.slow
@pytest.mark.skipif(browser() is None, reason="no Chromium is installed")
def test_every_chart_is_drawn_in_a_browser(study: Path, comparison: dict[str, Any], tmp_path: Path) -> None:
    path = write(tmp_path, comparison)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    program = browser()
    assert program is not None
    command = [program, *options, f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=3000", "--dump-dom"]
    shown = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, timeout=120, check=True).stdout
    wanted = len(re.findall("<figure[^>]* data-chart=", path.read_text(encoding="utf-8")))
    assert wanted == 9
    assert f'data-charts="{wanted}"' in shown, shown[:500]
    assert "data-failed" not in shown[: shown.index("<head>")]
    assert len(re.findall('<figure[^>]*drawn"', shown)) == wanted
    # One canvas a chart, and a panel for each seed.
    assert shown.count("<canvas") == wanted - 1 + 3
    assert shown.count('aria-pressed="true"') >= wanted * 3


# --- quality against cost --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ({"a": (1, 3), "b": (2, 2), "c": (3, 1)}, ["a", "b", "c"]),
        ({"a": (1, 3), "b": (2, 2), "c": (3, 2)}, ["a", "b"]),
        ({"a": (2, 2), "b": (1, 1)}, ["b"]),
        ({"a": (1, 1), "b": (1, 1)}, ["a", "b"]),
        ({"c": (3, 1), "a": (1, 3), "far": (4, 4)}, ["a", "c"]),
    ],
)
def test_the_front_is_what_no_other_beats(points: dict[str, tuple[float, float]], expected: list[str]) -> None:
    assert pareto.front(points) == expected


def planted(tmp_path: Path, **schemes: tuple[float, float]) -> dict[str, Any]:
    """A comparison of schemes with a loss at the train length and a training speed over that of none."""
    for name, (loss, speed) in schemes.items():
        rows = [
            measured("loss/whole_windows", loss, documents=True, length=64, window=0),
            measured("cost/ratio", speed, unit="times none", what="train_speed"),
        ]
        add_run(tmp_path / "s", record(name, found=rows))
    return compare([tmp_path / "s"])


def test_the_front_of_planted_figures_is_told_in_words(tmp_path: Path) -> None:
    comparison = planted(tmp_path, none=(1.6, 1.0), alibi=(1.4, 0.95), rope=(1.3, 0.7), t5=(1.3, 0.8))
    ((trade,),) = pareto.trades(comparison, comparison["budgets"][0])
    assert trade.front == ("none", "alibi", "t5")
    assert trade.sentence == (
        "On the front of training speed and loss at 64 tokens, by the means: none, alibi and t5. Behind: rope (by t5)."
    )
    assert figures.stairs(trade) == [(1.0, 1.6), (0.95, 1.6), (0.95, 1.4), (0.8, 1.4), (0.8, 1.3)]
    chart = charts.data(comparison)["charts"]["pareto"]
    assert chart["fronts"] == [[("none", "alibi", "t5")]]
    assert chart["costs"][0]["better"] == "more"
    assert chart["qualities"][0]["points"]["rope"] == [1.3, 1.3, 1.3]


def test_a_place_on_the_front_that_intervals_leave_open_is_said_to_be_so(tmp_path: Path) -> None:
    speeds = {"none": (1.0, 1.0, 1.0), "rope": (0.7, 0.7, 0.7), "alibi": (0.95, 0.96, 0.97), "t5": (0.95, 0.955, 0.96)}
    losses = {"none": 1.6, "rope": 1.5, "alibi": 1.4, "t5": 1.45}
    for name, values in speeds.items():
        for seed, speed in enumerate(values):
            rows = [
                measured("loss/whole_windows", losses[name], documents=True, length=64, window=0),
                measured("cost/ratio", speed, unit="times none", what="train_speed"),
            ]
            add_run(tmp_path / "s", record(name, seed, found=rows))
    comparison = compare([tmp_path / "s"])
    ((trade,),) = pareto.trades(comparison, comparison["budgets"][0])
    assert trade.front == ("none", "alibi") and [*trade.behind] == ["t5", "rope"]
    assert trade.unsure == ("t5",)  # which may be the faster one of it and alibi
    assert trade.sentence.endswith(" Within the intervals over seeds it might be otherwise for t5.")
    (budget,) = comparison["budgets"]
    caption = next(describe(comparison, budget).caption for name, _, describe in figures.FIGURES if name == "pareto")
    assert caption.startswith(trade.sentence) and figures.BARS in caption
    for entry in comparison["summary"]:
        if (entry["label"], entry["measure"]) == ("t5", "cost/ratio"):
            entry["mean"] = 0.965  # now it is by the mean
    ((trade,),) = pareto.trades(comparison, budget)
    assert trade.front == ("none", "t5", "alibi") and trade.unsure == ("t5",)


def test_what_has_not_learned_is_on_no_front(tmp_path: Path) -> None:
    add_run(tmp_path / "s", stuck("none"))
    comparison = compare([starter(tmp_path / "s", seeds=(0,), schemes=("alibi", "t5"))])
    found = pareto.trades(comparison, comparison["budgets"][0])
    assert found
    assert {label for row in found for trade in row for label in trade.labels} == {"alibi", "t5"}


def test_costs_are_over_those_of_none_where_that_was_measured(comparison: dict[str, Any]) -> None:
    found = pareto.costs(comparison, comparison["budgets"][0])
    assert [axis.title for axis in found] == [
        "training speed (times none)",
        "decoding speed (times none)",
        "peak memory, training (bytes)",
        "parameters",
    ]
    assert [axis.less for axis in found] == [False, False, True, True]


# --- beside published results ----------------------------------------------------------------------------------------


def test_published_changes_of_loss_stand_below_the_measured_one(comparison: dict[str, Any]) -> None:
    found = dict(beside.beside(comparison, comparison["budgets"][0]))
    grid = found["loss, whole windows"]
    assert grid.header == ["scheme", "2×", "4×", "8×", "16×", "source"]
    start = [row[0] for row in grid.rows].index("alibi, measured here")
    assert grid.rows[start][-1] == "sotu, 0.23M parameters, windows of 64 tokens"
    alibi = [row for row in grid.rows[start:] if row[0] == "alibi"]
    (kerple,) = (row for row in alibi if "OpenWebText2" in row[-1])
    # Perplexity 23.9 at 512 tokens, and 22.4, 22.5, 22.2 and 22.3 at twice to sixteen times that.
    assert kerple[1:5] == [words.signed(math.log(value / 23.9), "nats/token") for value in (22.4, 22.5, 22.2, 22.3)]
    assert "windows of 512 tokens" in kerple[-1]
    (sinusoidal,) = (row for row in grid.rows if row[0] == "sinusoidal" and "OpenWebText2" in row[-1])
    assert sinusoidal[1] == "+3.124"
    assert not any("DAPE" in row[-1] or row[0].startswith("learned") for row in grid.rows)  # [2nd]; not measured beyond


def test_sliding_windows_stand_beside_fixed_targets_alone(comparison: dict[str, Any]) -> None:
    found = dict(beside.beside(comparison, comparison["budgets"][0]))
    sliding = table("alibi-tables-13-to-15-train-512")
    assert any(sliding.citation in row[-1] for row in found["loss, fixed targets"].rows)
    assert not any(sliding.citation in row[-1] for row in found["loss, whole windows"].rows)


def test_bits_per_byte_are_no_nats_per_token(comparison: dict[str, Any]) -> None:
    kerple = next(
        each for each in tables().values() if beside._matches(each, "non-overlapping", comparison["budgets"][0])
    )
    other = dataclasses.replace(kerple, metric=Metric.bits_per_byte)
    assert not beside._matches(other, "non-overlapping", comparison["budgets"][0])


def test_a_bound_and_a_reason_stay_what_they_are() -> None:
    alibi = table("alibi-table-2")
    result = next(each for each in alibi.results if each.scheme == "t5")
    assert beside._change(alibi, result, 2) == words.signed(math.log(18.79 / 19.65), "nats/token")  # 1012 tokens
    assert beside._change(alibi, result, 5) == words.signed(math.log(20.41 / 19.65), "nats/token")
    assert beside._change(alibi, result, 30) == "out of memory"
    assert beside._change(alibi, result, 8) == "–"
    bound = dataclasses.replace(result, values=(result.values[0], Value(above=100.0), *result.values[2:]))
    assert beside._change(alibi, bound, 712 / 512) == f"> {words.signed(math.log(100 / 19.65), 'nats/token')}"


def test_options_of_ones_own_match_no_paper(tmp_path: Path) -> None:
    for seed in (0, 1):
        add_run(tmp_path / "s", record("rope", seed, {"base": 500000.0}))
    comparison = compare([tmp_path / "s"])
    assert beside.beside(comparison, comparison["budgets"][0]) == []


# --- guide, methods and BibTeX ---------------------------------------------------------------------------------------


def test_each_scenario_has_its_published_and_its_measured_answer(comparison: dict[str, Any], text: str) -> None:
    plain = (
        text.replace("&#39;", "'").replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&").replace("&#34;", '"')
    )
    found = guide.advice(comparison, study=Path("FOLDER"))
    assert len(found) >= 6 and sum(each.command is not None for each in found) >= 4
    for each in found:
        assert f'{each.scenario.title} <span class="soft">{each.scenario.name}</span>' in plain
        for one in (each.published, each.measured):
            assert one is not None
            assert f'<div class="pick">{one.choice}</div>' in plain
            assert f"<p>{one.reason}</p>" in plain
        section = plain.partition(f'<span class="soft">{each.scenario.name}</span>')[2].partition("<h3>")[0]
        told = f"Next study, {each.why}:</p>" if each.command else f"Next study: none, {each.why}.</p>"
        assert told in section and section.count("<pre data-copy>") == (each.command is not None)
        assert each.command is None or f"<pre data-copy>{each.command}</pre>" in section


def test_a_command_that_measures_again_names_the_folder_of_the_page() -> None:
    text = page.render(fixtures.study(recall=False), {1: []})
    assert "for run in FOLDER/*_s*/; do posbuild evaluate &#34;$run&#34; eval.recall_passages=64; done; " in text


def entries(text: str) -> dict[str, dict[str, str]]:
    """BibTeX as a parser sees it: fields by key."""
    found = {}
    for entry in text.split("\n\n"):
        (kind, name, body), *rest = re.findall(r"^@(\w+)\{(\w+),\n(.*)\n\}$", entry, re.DOTALL)
        assert (kind in ("misc", "software"), rest) == (True, [])
        fields = dict(re.findall(r"^  (\w+) = \{(.*)\},$", body, re.MULTILINE))
        assert len(fields) == len(body.splitlines())
        for value in fields.values():
            assert value.count("{") == value.count("}")
        assert name not in found
        found[name] = fields
    return found


def test_bibtex_has_an_entry_for_each_scheme_the_text_and_posbuild(comparison: dict[str, Any]) -> None:
    found = entries(methods.bibtex(comparison))
    assert len(found) == len(MEASURED) + 2
    assert found["press2022alibi"] == {
        "title": "{Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation}",
        "author": "Press and others",
        "year": "2022",
        "eprint": "2108.12409",
        "archiveprefix": "arXiv",
    }
    assert "ab12" * 16 in found["datasotu"]["note"]
    assert found["posbuild"]["author"] == "{The posbuild authors}"


def test_every_declared_scheme_has_a_key_of_its_own() -> None:
    keys = {methods.key(scheme.paper, name) for name, scheme in registry.schemes().items()}
    assert len(keys) == len(registry.schemes())
    assert all(re.fullmatch(r"[a-z]+\d{4}[a-z0-9]+", key) for key in keys)


def test_nothing_in_a_title_is_a_command() -> None:
    assert methods._escaped("50 % of A_B & {C} \\end #1") == r"50 \% of A\_B \& C end \#1"


def test_the_paragraph_says_how_the_numbers_were_made(comparison: dict[str, Any], text: str) -> None:
    told = methods.paragraph(comparison, comparison["budgets"][0])
    for part in (
        "We compare 7 position encodings, alibi [press2022alibi], ",
        "in a causal Transformer of 4 layers, width 64 and 4 heads (230,208 parameters).",
        "for 3,200 steps of 16 windows of 64 tokens, 3,276,800 tokens in all (14.2 per parameter), on sotu (SHA-256 ab12",
        "AdamW (peak rate 0.003, linear schedule after 100 steps of warm-up, β = (0.9, 0.99), weight decay 0.1, gradients clipped",
        "with seeds 0, 1 and 2.",
        "The parameters of an encoding itself have a rate of their own: 10 times the peak rate for t5.",
        "over whole windows of 64, 128, 256, 512 and 1024 tokens (16,384 scored tokens a length and seed), and once more with",
        "if it also stood 32, 48, 128, 256 and 512 tokens before",
        "Speed and memory are given over those of the same model without encoding, in the same process.",
        "corrected by Holm's method over all pairs of one measure at one place",
        "inside ±0.02 nats/token",
        "Made with PyTorch 2.13.0 on cpu, threads 2, precision 32-true.",
    ):
        assert part in told
    assert {*re.findall(r"\[(\w+)\]", told)} <= entries(methods.bibtex(comparison)).keys()
    assert told.replace("'", "&#39;") in text


def test_the_paragraph_says_what_a_token_is(comparison: dict[str, Any]) -> None:
    budget = comparison["budgets"][0]
    assert " A token is a byte. " in methods.paragraph(comparison, budget)
    data = budget["data"] | {"tokenizer": {"file": "bpe.json", "entries": 4096, "sha256": "cd34"}}
    data |= {"bytes": {"train": 3000}, "tokens": {"train": 1200}}
    told = methods.paragraph(comparison, budget | {"data": data})
    assert (
        "one of the 4,096 entries of the tokenizer bpe.json (SHA-256 cd34), 2.50 bytes on average in the training"
        in told
    )
    assert "A token is a byte" not in told


def test_the_paragraph_of_one_seed_tests_nothing(tmp_path: Path) -> None:
    comparison = compare([starter(tmp_path / "s", seeds=(0,), schemes=("alibi", "t5"))])
    told = methods.paragraph(comparison, comparison["budgets"][0])
    assert "with seed 0." in told
    assert "With one seed, differences are indications; their 95% intervals are over documents (2,000 paired" in told
    assert "Holm" not in told


def test_the_page_says_first_what_was_asked_and_what_is_missing(tmp_path: Path) -> None:
    folder = starter(tmp_path / "s", seeds=(0,), schemes=("alibi", "t5"))
    (folder / "rope_s0_x").mkdir()
    records.write_status(folder / "rope_s0_x", records.FAILED, "no space")
    text = page.render(compare([folder]), {1: []})
    opening = text[text.index("<h1>") : text.index("<nav")]
    assert (
        "Asked: which has the lowest loss inside the train length (64 tokens), keeps it to 16 times that length"
        in opening
    )
    assert "1 of 3 runs are not in the comparison: 1 failed." in opening
