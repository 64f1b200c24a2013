"""Scenarios: every file well formed, what is wrong in one is refused with its place, and situations find theirs."""

from __future__ import annotations

import re

import pytest

from posbuild.comparison import compare
from posbuild.errors import ConfigError
from posbuild.guide import scenarios
from posbuild.guide.constraints import CONSTRAINTS
from posbuild.guide.scenarios import Situation

EXPECTED = (
    *("bidirectional_encoder", "finetune_pretrained", "long_retrieval"),
    *("long_sequences", "long_video", "short_fixed"),
)
GOOD = (scenarios.folder() / "long_sequences.yaml").read_text(encoding="utf-8")


def test_the_scenarios_are_those_of_the_folder() -> None:
    assert scenarios.names() == EXPECTED
    for name in EXPECTED:
        scenario = scenarios.load(name)
        assert scenario.name == name and scenario.title and scenario.text and scenario.means
        assert bool(scenario.objective) == (name != "long_video")
        for reading in scenario.rests_on:
            assert reading.table.usable
            assert scenario.situation.lengths is not None


def test_what_a_comparison_compares_can_be_weighed() -> None:
    assert compare.LOWER_IS_BETTER.items() <= scenarios.LOWER_IS_BETTER.items()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title:", "titel:", "long_sequences.yaml: titel is not known here. Nearest: 'title'"),
        ("means: >-", "meaning: >-", "meaning is not known here. Nearest: 'means'"),
        ("keeps_loss: true", "keep_loss: true", "constraints: keep_loss is not known here. Nearest: 'keeps_loss'"),
        ("keeps_loss: true", "memory: true", "constraints: memory=True must be a number above 0"),
        ("keeps_loss: true", "keeps_loss: 2", "constraints: keeps_loss=2 must be true or false"),
        ("reach: 16", "reach: far", "situation: reach=far must be a number above 0"),
        ("reach: 16", "rech: 16", "situation: rech is not known here. Nearest: 'reach'"),
        ("measure: loss/whole_windows", "measure: loss/windows", "measure=loss/windows cannot be weighed. Nearest"),
        ("at: longest", "at: farthest", "at=farthest is no place. Known: train_length, longest"),
        ("at: longest}", "at: longest, weight: -1}", "weight=-1 must be a number above 0"),
        ("margin: 0.02", "margin: 0", "margin=0 must be a number above 0"),
        ("table: kerple-table-3-github", "table: kerple-table-4", "kerple-table-4 is not a table"),
        ("table: kerple-table-3-github", "table: attention-sink-table-3", "attention-sink-table-3 has no column"),
        ("4096, 8192, 16384]}", "4096, 8192, 999]}", "kerple-table-3-openwebtext2 has no column 999"),
        ("{table: kerple-table-3-github, start: 512, at: [2048, 16384]}", "{table: dape-digest, at: [512]}", "dape-digest is secondary"),
        ("{table: kerple-table-3-github, start: 512, at: [2048, 16384]}", "{table: drope-table-2, at: [2]}", "so it needs a margin of its own"),
        ("of: [alibi, rope]", "of: [alibi, rop]", "has no result of rop. Nearest: 'rope'"),
        ("of: [alibi, rope]", "of: alibi", "of=alibi must be a list in [ ]"),
        ("at: [multi-key]", "at: 5", "at=5 must be a list in [ ]"),
        ("at: [multi-key]", "at: [multi-key], reach: far", "reach=far must be a number above 0"),
        ("means: >-", "prefer: [tfive]\nmeans: >-", "prefer=tfive is not a scheme. Nearest"),
        ("at: [multi-key]", "at: []", "at=[] names no column"),
        ("title: Long sequences", "title: 5", "title=5 must be text"),
        ("title: Long sequences\n", "", "long_sequences.yaml: title is missing"),
        ("rests_on:", "rests_on: [", "is not YAML"),
    ],
)  # fmt: skip
def test_a_malformed_file_is_refused_with_the_place(old: str, new: str, message: str) -> None:
    assert scenarios.read("long_sequences", GOOD) == scenarios.load("long_sequences") and old in GOOD
    with pytest.raises(ConfigError, match=re.escape(message)):
        scenarios.read("long_sequences", GOOD.replace(old, new, 1))


def test_a_scenario_is_added_without_code(tmp_path, monkeypatch) -> None:
    (tmp_path / "scenario").mkdir()
    (tmp_path / "scenario" / "mine.yaml").write_text(GOOD.replace("reach: 16", "reach: 4"), encoding="utf-8")
    monkeypatch.setattr(scenarios, "conf_dir", lambda: tmp_path)
    scenarios.load.cache_clear()
    assert scenarios.names() == ("mine",) and scenarios.load("mine").situation.reach == 4
    scenarios.load.cache_clear()


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("", "short_fixed"),
        ("train_length=2048 target_length=32768 causal=true fused_kernels=true retrieval=true", "long_retrieval"),
        ("train_length=512 target_length=512", "short_fixed"),
        ("reach=4", "long_sequences"),
        ("causal=false reach=4", "bidirectional_encoder"),
        ("pretrained=alibi", "finetune_pretrained"),
        ("axes=3", "long_video"),
    ],
)
def test_a_situation_finds_the_nearest_scenario(typed: str, name: str) -> None:
    assert scenarios.fitting(typed.split()) == name


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("target_lenght=4", "target_lenght=4 says nothing of a situation: write KEY=VALUE. Nearest: 'target_length'"),
        ("fused_kernel=true", "Nearest: 'fused_kernels'"),
        ("causal=maybe", "causal=maybe must be true or false"),
        ("parameters=big", "parameters=big must be a whole number from 1"),
        ("parameters=[", "parameters=[ must be a whole number from 1"),
        ("pretrained=rop", "Nearest: 'rope'"),
        ("decoding_speed=true", "decoding_speed=True must be a number above 0"),
        ("target_length=4096", "target_length=4096 needs train_length=TOKENS beside it"),
        ("reach=2 train_length=2 target_length=4", "say one thing twice"),
    ],
)
def test_a_situation_that_makes_no_sense_is_refused(typed: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        scenarios.load("long_sequences").within(typed.split())


def test_a_situation_of_ones_own_takes_the_place_of_the_stated_one() -> None:
    mine = scenarios.load("finetune_pretrained").within(["reach=2", "parameters=1e9", "fused_kernels=true"])
    assert mine.situation == Situation(pretrained="rope", train_length=4096, reach=2, parameters=1_000_000_000)
    assert mine.situation.lengths == 2 and mine.constraints == {"fused_kernels": True, "defined_beyond": True}
    mine = scenarios.load("short_fixed").within(["train_length=64", "target_length=256", "causal=false"])
    assert mine.situation.lengths == 4 and mine.constraints.keys() == {"bidirectional", "defined_beyond"}
    assert {*CONSTRAINTS} >= mine.constraints.keys()
