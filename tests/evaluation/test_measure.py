import dataclasses
import json

import pytest

from posbuild.evaluation import cost
from posbuild.evaluation.measure import parts, twin_without_encoding
from posbuild.records import MEASURED, NOT_SUPPORTED
from tests.evaluation.small import corpus, documents, model, settings

TEXT = corpus(documents(1500, 900))
QUICK = {
    "multiples": [1, 4],
    "whole_window_tokens": 128,
    "fixed_targets": 32,
    "recall_passages": 8,
    "order_windows": 16,
    "pseudo_targets": 8,
    "cost_rounds": 0,
}


def rows_of(scheme, told=lambda line: None, **given):
    asked = settings(scheme, **QUICK | given)
    held = model(scheme, model=given.get("model"), masked=given.get("masked", False))
    measured = parts(held, asked, TEXT, precision="32-true", report=told)
    return [row for _, part in measured for row in part()]


def test_everything_that_was_asked_for_is_measured_in_order(monkeypatch):
    monkeypatch.setattr(cost, "SECONDS", 0.01)
    told = []
    rows = rows_of("rope", told.append, cost_rounds=1)
    assert list(dict.fromkeys(row.measure.split("/")[0] for row in rows)) == [
        "loss",
        "recall",
        "order",
        "probe",
        "reference",
        "cost",
    ]
    assert [line.split()[0] for line in told] == ["length", "16", "64", "recall", "use", "probing", "measuring"]
    losses = {(row.measure, row.at["length"]): row.value for row in rows if row.at.get("window") == 0}
    for line, length in ((told[1], 16), (told[2], 64)):
        whole, fixed = (losses[f"loss/{name}", length] for name in ("whole_windows", "fixed_targets"))
        assert f"whole windows {whole:.3f}, fixed targets {fixed:.3f} (" in line and line.endswith(" s)")
    assert len({row.key for row in rows}) == len(rows)
    json.dumps([dataclasses.asdict(row) for row in rows], allow_nan=False)


@pytest.mark.parametrize(
    ("off", "group"),
    [
        ({"recall_passages": 0}, "recall"),
        ({"order_windows": 0}, "order"),
        ({"probes": False}, "probe"),
        ({"whole_window_tokens": 0, "fixed_targets": 0}, "loss"),
        ({"window_control": False}, ""),
    ],
)
def test_what_is_switched_off_has_no_rows(off, group):
    rows = rows_of("alibi", **off)
    assert group not in {row.measure.split("/")[0] for row in rows}
    assert any(row.at.get("window") for row in rows) == ("window_control" not in off and group != "loss")


@pytest.mark.parametrize(
    ("off", "left"), [("whole_window_tokens", "loss/fixed_targets"), ("fixed_targets", "loss/whole_windows")]
)
@pytest.mark.parametrize("causal", [True, False])
def test_one_protocol_of_the_length_curve_may_be_left_out(off, left, causal):
    rows = rows_of("alibi" if causal else "rope", model={"causal": causal}, probes=False, **{off: 0})
    found = {row.measure for row in rows if row.measure.startswith("loss/")}
    assert found - {"loss/by_position"} == {left}


def test_without_measurements_on_test_documents_nothing_is_left():
    nothing = dict.fromkeys(("whole_window_tokens", "fixed_targets", "recall_passages", "order_windows"), 0)
    told = []
    assert rows_of("alibi", told.append, probes=False, **nothing) == [] and told == []


def test_all_schemes_are_measured_at_the_same_places():
    found = {scheme: {row.key: row for row in rows_of(scheme, probes=False)} for scheme in ("none", "learned", "t5")}
    by_position = {key for key in found["none"] if key[0] == "loss/by_position"}
    assert found["none"].keys() == found["t5"].keys()
    assert found["none"].keys() - by_position == {key for key in found["learned"] if key[0] != "loss/by_position"}
    for key, row in found["learned"].items():
        other = found["none"][key]
        assert row.status == NOT_SUPPORTED or (row.count, [group[::2] for group in row.groups]) == (
            other.count,
            [group[::2] for group in other.groups],
        )


def test_a_length_without_a_number_says_why():
    told = []
    rows_of("learned", told.append, probes=False)
    assert any("64 tokens: whole windows not supported beyond 16" in line for line in told)


def test_of_masked_tokens_all_is_measured_that_is_of_next_ones():
    told = []
    rows = rows_of("rope", told.append, masked=True)
    places = {(row.measure, *sorted(row.at.items())) for row in rows if row.status == MEASURED}
    causal = {(row.measure, *sorted(row.at.items())) for row in rows_of("rope")}
    assert {
        key for key in causal if not key[0].startswith(("order", "probe", "reference", "loss/by_position"))
    } <= places
    assert {key[0] for key in places} - {key[0] for key in causal} == {
        "accuracy/whole_windows",
        "accuracy/fixed_targets",
        "loss/pseudo",
    }
    assert "nats/token of masked tokens" in told[0] and told[-2].startswith("pseudo-perplexity of 8 tokens")
    assert len({row.key for row in rows}) == len(rows)
    json.dumps([dataclasses.asdict(row) for row in rows], allow_nan=False)


@pytest.mark.parametrize("scheme", ["learned", "t5"])
def test_encoders_of_all_schemes_score_the_same_tokens(scheme):
    def scored(name):
        rows = rows_of(name, masked=True, probes=False)
        return {row.key: (row.draw, row.count, [group[::2] for group in row.groups]) for row in rows if row.groups}

    others, mine = scored("sinusoidal"), scored(scheme)
    assert mine and all(others[key] == value for key, value in mine.items())


def test_measuring_twice_gives_the_same_numbers():
    assert rows_of("t5") == rows_of("t5")


def test_the_twin_has_no_encoding_and_the_same_sizes():
    held = model("learned")
    twin = twin_without_encoding(held, settings("learned"))
    assert not list(twin.encoding.parameters())
    assert {name for name, _ in held.named_parameters()} - {name for name, _ in twin.named_parameters()} == {
        "encoding.table"
    }
