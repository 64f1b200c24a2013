"""The table of a plan and its sentences, from plans made by hand."""

from __future__ import annotations

import dataclasses
import io
import math

import pytest
from rich.console import Console

from posbuild.comparison.planning import Need, Plan, Seeds, Steps, Tokens
from posbuild.report.plan import grid, print_plan, sentences


def need(pair: tuple[str, str], seeds: Seeds, steps: Steps) -> Need:
    tokens = Tokens(scored=16_384, detectable=0.03, needed=36_864)
    return Need(pair=pair, gap=-0.0123, seeds=seeds, steps=steps, tokens=tokens)


def a_plan(test: int = 20_000) -> Plan:
    rests = Steps(moved=0.004, needed=3200)
    moves = Steps(moved=0.1, needed=16_000)
    unknown = Steps(moved=None, needed=None, why="not measured")
    return Plan(
        scope="Small models.",
        train_length=64,
        difference=0.02,
        alpha=0.05 / 3,
        steps=3200,
        test=test,
        needs=[
            need(("alibi", "rope"), Seeds(number=3, spread=0.01, detectable=0.07, needed=5), rests),
            need(("alibi", "t5"), Seeds(number=3, spread=0.9, detectable=6.3, needed=math.inf), moves),
            need(("rope", "t5"), Seeds(number=1, spread=None, detectable=None, needed=None), unknown),
        ],
        seeds=Seeds(number=3, spread=0.4, detectable=2.8, needed=700),
        tokens=Tokens(scored=16_384, detectable=0.03, needed=36_864),
        left_out=["none and t5: no seed in common"],
    )


def test_the_table_has_a_row_a_pair_and_one_of_all() -> None:
    found = grid(a_plan())
    assert {len(row) for row in found.rows} == {len(found.header)}
    cells = {row[0]: dict(zip(found.header, row, strict=True)) for row in found.rows}
    assert [*cells] == ["alibi − rope", "alibi − t5", "rope − t5", "all together"]
    assert cells["alibi − rope"] == {
        "pair": "alibi − rope",
        "gap": "−0.012",
        "spread": "0.010",
        "seeds": "3",
        "seeds show": "0.070",
        "seeds needed": "5",
        "gap moved": "+0.004",
        "steps needed": "3,200",
        "tokens": "16,384",
        "tokens show": "0.030",
        "tokens needed": "36,864",
    }
    assert cells["alibi − t5"]["seeds needed"] == "over 1,000"
    assert {
        cells["rope − t5"][name] for name in ("spread", "seeds show", "seeds needed", "gap moved", "steps needed")
    } == {"cannot be told"}
    assert cells["all together"]["seeds needed"] == "700"


def test_the_sentences_say_what_is_needed_and_what_it_rests_on() -> None:
    now, seeds, steps, tokens, left_out, basis, spread = sentences(a_plan())
    assert now == (
        "As the study is, its 3 seeds show a difference of 2.800 nats/token or more (by pair 0.070 to 6.300), and its "
        "documents one of 0.030 or more: the larger of the two counts."
    )
    assert seeds == "A difference of 0.02 nats/token needs 700 seeds (by pair 5 to over 1,000)."
    assert "After 3,200 steps it does in 1 of 3 pairs." in steps
    assert "16,000 (alibi − t5)." in steps
    assert steps.endswith("Steps cannot be told of rope − t5: not measured.")
    assert tokens.startswith("It needs 36,864 scored tokens, against 16,384 now")
    assert tokens.endswith("The test documents hold 20,000, so it takes more text.")
    assert left_out == "Not planned for: none and t5: no seed in common."
    assert "a chance of 80%" in basis and "at 5% for 3 pairs at once: at 0.017 each" in basis
    assert "0.52 to 6.3 times" in spread


def test_text_that_is_there_is_not_asked_for() -> None:
    assert "more text" not in sentences(a_plan(test=50_000))[3]


def test_one_seed_tells_of_no_spread() -> None:
    # A study may have another budget with more seeds, so such a plan is printed too.
    seeds = Seeds(number=1, spread=None, detectable=None, needed=None)
    alone = need(("alibi", "rope"), seeds, Steps(moved=0.004, needed=3200))
    told = sentences(dataclasses.replace(a_plan(), needs=[alone], seeds=seeds, left_out=[]))
    assert told[0].startswith("As the study is, of one seed no difference can be told, and its documents one of 0.030")
    assert told[1] == "Seeds needed cannot be told: no two schemes have two seeds in common."
    assert len(told) == 5 and told[-1].startswith("To show is to find")


@pytest.mark.parametrize("width", [60, 200])
def test_nothing_is_cut_in_the_terminal(width: int) -> None:
    file = io.StringIO()
    print_plan([a_plan()], Console(file=file, width=width, force_terminal=True, color_system=None))
    text = file.getvalue()
    assert "…" not in text
    assert all(value in text for row in grid(a_plan()).rows for value in row)
