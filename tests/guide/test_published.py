"""The published results: every file well formed, three tables typed again, and what a pick may rest on."""

from __future__ import annotations

import math
import re
import subprocess
import sys

import pytest
import yaml

from posbuild.errors import ConfigError, RunError
from posbuild.guide import published
from posbuild.guide.published import Metric, Result, Table, Transcription, Value
from posbuild.registry import schemes

# The names that posbuild has or will have, and those of no registry that the docstring of Result explains.
NAMED = """
    none sinusoidal learned learned_fourier tupe shaw music_transformer transformer_xl deberta relative t5 dynamic_bias
    alibi kerple_log kerple_power sandwich fire rope xpos rope_linear rope_ntk rope_dynamic_ntk rope_by_parts yarn
    dynamic_yarn longrope llama3 rope_proportional hope_highfreq fope pope rnope irope rope_local_global rerope
    leaky_rerope self_extend rope_logn cope dape dape_v2 fox cable retnet path stick_breaking window
"""
UNNAMED = {"absolute", "drope", "longrope2", "randomised"}

TABLES = published.tables()


def numbers(id: str, scheme: str, variant: str = "") -> list[float | None]:
    (result,) = (each for each in published.table(id).of(scheme) if each.variant == variant)
    return [value.number for value in result.values]


FILES = sorted(path.name for path in published.FOLDER.iterdir())


def test_every_table_of_every_file_is_read_and_no_id_stands_twice() -> None:
    read = {
        each.id: each for name in FILES for each in published.read(name, (published.FOLDER / name).read_text("utf-8"))
    }
    assert read == TABLES
    for table in TABLES.values():
        assert 2017 <= table.paper.year <= 2026
        assert re.fullmatch(r"\d{4}\.\d{5}", table.paper.arxiv) or (not table.paper.arxiv and table.paper.where)


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_each_table_is_complete(table: Table) -> None:
    for text in (table.id, table.table, table.setting, table.data, table.axis, table.protocol, table.verified):
        assert text.strip() == text != ""
    assert table.citation.startswith(table.paper.authors) and table.citation.endswith(table.table)
    numeric = [column for column in table.columns if isinstance(column, int)]
    assert numeric in ([], sorted(table.columns)), "lengths and steps rise"
    percent = table.metric in (Metric.accuracy, Metric.success)
    for result in table.results:
        assert result.scheme in UNNAMED.union(NAMED.split(), schemes())
        assert any(value.number is not None for value in result.values)
        for value in result.values:
            assert bool(value.reason) == (value.number is None and value.above is None)
            if value.number is not None:
                assert 0 <= value.number <= 100 if percent else value.number > 0


def test_a_citation_says_where_to_look() -> None:
    assert published.table("alibi-table-2").citation == "Press et al. 2022 (arXiv:2108.12409), table 2"
    pull_request = "zhennan1 2025 (pull request 376 of karpathy/nanochat, closed without merging), description"
    assert published.table("nanochat-pull-376-core").citation == pull_request


def test_three_tables_typed_again() -> None:
    assert published.table("kerple-table-3-openwebtext2").columns == (512, 1024, 2048, 4096, 8192, 16384)
    assert numbers("kerple-table-3-openwebtext2", "kerple_log") == [23.9, 22.0, 21.6, 21.2, 21.3, 21.4]
    assert numbers("kerple-table-3-openwebtext2", "kerple_power") == [23.9, 22.1, 21.9, 21.5, 21.6, 21.6]
    assert numbers("kerple-table-3-openwebtext2", "alibi") == [23.9, 22.4, 22.5, 22.2, 22.3, 22.5]
    assert numbers("kerple-table-3-openwebtext2", "t5") == [23.7, 21.9, 21.7, 22.5, 25.5, 31.4]
    assert numbers("kerple-table-3-openwebtext2", "rope") == [24.2, 32.8, 62.4, 111, 185, 269]
    assert numbers("kerple-table-3-openwebtext2", "sinusoidal") == [33, 750, 5507, 14039, 22621, 30046]

    table = published.table("alibi-table-4")
    at = [table.columns.index(length) for length in (3072, 6072, 16072)]
    for scheme, row in {
        "sinusoidal": [18.67, 65.01, 231.29],
        "rope": [18.57, 19.50, 34.51],
        "t5": [18.01, 17.68, None],
        "alibi": [17.60, 17.26, 17.22],
    }.items():
        assert [numbers("alibi-table-4", scheme)[index] for index in at] == row

    assert published.table("drope-table-1").columns == ("multi-query", "multi-key", "multi-value")
    assert numbers("drope-table-1", "rope") == [0, 0, 0]
    assert numbers("drope-table-1", "rope_linear", "of the RoPE model") == [0, 0, 0]
    assert numbers("drope-table-1", "rope_ntk", "of the RoPE model") == [21.1, 19.4, 16.5]
    assert numbers("drope-table-1", "yarn", "of the RoPE model") == [17.8, 0.5, 14.6]
    assert numbers("drope-table-1", "alibi") == [5.2, 0, 1.1]
    assert numbers("drope-table-1", "none") == [9.2, 36.2, 21.4]
    assert numbers("drope-table-1", "rnope") == [5.2, 25.6, 20.6]
    assert numbers("drope-table-1", "drope") == [28.0, 41.6, 23.3]


def test_no_pick_may_rest_on_what_nobody_compared() -> None:
    unusable = {table.id for table in TABLES.values() if not table.usable}
    assert unusable == {
        "attention-sink-table-3",
        "dape-digest",
        "nanochat-pull-376-bits-per-byte",
        "nanochat-pull-376-core",
    }
    marks = {table.transcription for table in TABLES.values() if table.usable}
    assert marks == {Transcription.pdf, Transcription.two_sources, Transcription.source_code}


def test_the_best_stands_first_and_what_has_no_number_not_at_all() -> None:
    table = published.table("alibi-table-2")
    assert [result.scheme for result in table.ranking(2512)] == ["alibi", "t5", "rope", "sinusoidal"]
    assert [result.scheme for result in table.ranking(15512)] == ["alibi", "rope", "sinusoidal"]
    assert table.at(table.of("t5")[0], 15512) == Value(reason="out of memory")
    assert [result.scheme for result in published.table("mamba-table-11").ranking(512)] == ["xpos", "rope", "absolute"]
    with pytest.raises(ConfigError, match=r"alibi-table-2 has no column 2048. Known: 512, 712"):
        table.ranking(2048)


def test_a_gap_is_taken_in_the_unit_of_the_metric_and_a_bound_tells_where_it_is_enough() -> None:
    table = published.table("position-interpolation-table-1")
    plain, _, at_8192, at_16384, _ = table.results
    assert [value.text for value in plain.values] == ["7.2", *["> 1000"] * 4]

    def gap(one: Result, other: Result, column: int | str) -> float | None:
        return table.gap(table.at(one, column), table.at(other, column))

    assert gap(at_8192, plain, 8192) == math.inf and gap(plain, at_8192, 8192) is None
    assert gap(at_16384, at_8192, 8192) == pytest.approx(math.log(6.95 / 6.82))
    assert gap(at_8192, plain, 16384) is None, "the first was not given"
    table = published.table("drope-table-1")
    assert gap(table.of("none")[0], table.of("alibi")[0], "multi-key") == 36.2


def test_a_column_is_told_in_words() -> None:
    places = {
        ("alibi-table-2", 512): "512 tokens",
        ("drope-table-10", 2): "2 train lengths",
        ("haviv-table-2", 125_000_000): "125M parameters",
        ("drope-table-1", "multi-key"): "multi-key",
        ("position-interpolation-table-4", 200): "steps of fine-tuning 200",
    }
    for (id, column), told in places.items():
        assert published.table(id).place(column) == told


GOOD = (published.FOLDER / "mamba.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('arxiv: "2312.00752"', "arxiv: 2312.00752", "mamba: arxiv must be text, in quotes"),
        ("    task: induction\n", "", "mamba, mamba-table-11: 'task' is missing"),
        ("task: induction\n", "task: copying\n", "mamba, mamba-table-11: 'copying' is not a valid Task"),
        ("[100, 99.6, 100,", "[100, 99.6,", "absolute has 8 values for 9 columns"),
        ("[100, 99.6, 100,", "[100, 99.6, null,", "a value is a number from 0"),
        ("[100, 99.6, 100,", "[100, 99.6, -1,", "a value is a number from 0"),
        ("[100, 99.6, 100,", "[100, 99.6, .nan,", "a value is a number from 0"),
        ("[64, 128, 256,", "[64, 128, 128,", "it needs columns, each once"),
        ("scheme: xpos", "scheme: rope", "it needs results, each once"),
        ("parameters: 137_000", "parameters: 137K", "parameters must be a whole number above 0 and is '137K'"),
        ("protocol: fixed", "protokol: fixed", "unexpected keyword argument 'protokol'"),
        ("verified: Every", "verifed: Every", "['verifed'] is not known"),
        ("results:", "results: [", "mamba: while parsing"),
    ],
)
def test_a_malformed_file_is_refused_with_the_place(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(RunError, match=re.escape(message)):
        published.read("mamba", GOOD.replace(old, new, 1))


def test_an_unknown_table_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"alibi-table-22 is not a table .* Nearest: 'alibi-table-2'"):
        published.table("alibi-table-22")


def test_they_are_read_without_torch() -> None:
    code = (
        "import sys; from posbuild.guide import published; published.tables();"
        "sys.exit(bool({'torch', 'scipy', 'matplotlib', 'hydra'} & {*sys.modules}))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_files_are_yaml_that_any_reader_reads_alike() -> None:
    for name in FILES:
        text = (published.FOLDER / name).read_text("utf-8")
        assert yaml.load(text, Loader=published.Loader) == yaml.safe_load(text)
