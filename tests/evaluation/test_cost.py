import sys

import pytest
import torch

from posbuild.evaluation import cost as module
from posbuild.evaluation.cost import alternate, cost, memory_rows, peak_memory, speed_rows, training_step
from posbuild.evaluation.measure import twin_without_encoding
from posbuild.model import Transformer
from posbuild.records import MEASURED, NOT_MEASURED
from tests.evaluation.small import model, settings

MIB = 2**20


def costs(scheme, **given):
    held = model(scheme, **given)
    return held, cost(
        held,
        twin_without_encoding(held, settings(scheme, **given)),
        train_length=16,
        batch_size=4,
        batch_tokens=256,
        precision="32-true",
        rounds=1,
    )


@pytest.fixture(scope="module", autouse=True)
def short_rounds():
    """A tenth of the time: the tests ask whether a speed is measured, not how exactly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SECONDS", 0.01)
        yield


@pytest.fixture(scope="module")
def learned():
    return costs("learned", pe={"max_positions": 40})


def at(rows, measure, **where):
    return next(row for row in rows if row.measure == measure and row.at == where)


def test_parameters_are_counted(learned):
    held, rows = learned
    total = sum(parameter.numel() for parameter in held.parameters())
    assert at(rows, "cost/parameters").value == total
    assert at(rows, "cost/positional_parameters").value == 40 * 16
    assert at(rows, "cost/ratio", what="parameters").value == pytest.approx(total / (total - 40 * 16))


def test_speeds_and_ratios_are_positive(learned):
    _, rows = learned
    for name, where in (
        ("train_speed", {}),
        ("evaluation_speed", {"length": 16}),
        ("evaluation_speed", {"length": 40}),
        ("decoding_speed", {}),
    ):
        assert at(rows, f"cost/{name}", **where).value > 0
        assert 0.05 < at(rows, "cost/ratio", what=name, **where).value < 20
    assert all("load average" in row.note and not row.reason for row in rows if row.status == MEASURED)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a high-water mark that can be reset")
def test_memory_is_measured_on_linux(learned):
    _, rows = learned
    for where in ({"what": "training"}, {"what": "evaluation", "length": 40}):
        row = at(rows, "cost/peak_memory", **where)
        assert row.status == MEASURED and row.unit == "bytes" and row.value >= 0
    ratios = [row.at for row in rows if row.at.get("what") == "peak_memory"]
    assert all(("length" in where) == (where["during"] == "evaluation") for where in ratios)


def test_the_memory_ratio_says_at_which_length(monkeypatch):
    monkeypatch.setattr(module, "peak_memory", lambda work, device: work)
    rows = memory_rows("evaluation", {"length": 64}, 1, torch.device("cpu"), 30, 10)
    assert [(row.at, row.value) for row in rows] == [
        ({"what": "evaluation", "length": 64}, 30),
        ({"what": "peak_memory", "during": "evaluation", "length": 64}, 3),
    ]


@pytest.mark.parametrize(
    ("precision", "weights", "product"),
    [
        ("32-true", torch.float32, torch.float32),
        ("bf16-mixed", torch.float32, torch.bfloat16),
        ("bf16-true", torch.bfloat16, torch.bfloat16),
        ("64-true", torch.float64, torch.float64),
    ],
)
def test_training_is_timed_in_its_own_precision(precision, weights, product, monkeypatch):
    held, seen = model("none"), set()
    forward = Transformer.forward

    def noted(self, tokens, **given):
        logits = forward(self, tokens, **given)
        seen.add((self.embedding.weight.dtype, logits.dtype))
        return logits

    monkeypatch.setattr(Transformer, "forward", noted)
    training_step(held, 2, 8, precision)()
    assert seen == {(weights, product)}
    assert held.embedding.weight.dtype == torch.float32


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a high-water mark that can be reset")
def test_the_high_water_mark_is_that_of_this_work():
    def allocate(megabytes):
        return lambda: (torch.ones(megabytes * MIB // 4).numel(), 1.0)

    for megabytes in (200, 40):  # the larger first: its mark must not stand for the next
        found = peak_memory(allocate(megabytes), torch.device("cpu"))
        assert found == pytest.approx(megabytes * MIB, rel=0.1)


def test_a_system_that_cannot_tell_has_no_number():
    assert peak_memory(lambda: (1, 1.0), torch.device("meta")) is None


def test_the_weights_do_not_change():
    held = model("t5")
    before = {name: parameter.clone() for name, parameter in held.named_parameters()}
    twin = twin_without_encoding(held, settings("t5"))
    cost(held, twin, train_length=8, batch_size=2, batch_tokens=32, precision="32-true", rounds=1)
    assert all(torch.equal(parameter, before[name]) for name, parameter in held.named_parameters())
    assert not held.training


def test_a_bidirectional_model_does_not_decode():
    _, rows = costs("rope", model={"causal": False})
    row = at(rows, "cost/decoding_speed")
    assert row.status == NOT_MEASURED and row.reason == "a bidirectional model does not decode"


def test_rounds_alternate_and_the_ratio_is_the_median():
    order = []

    def work(name, speeds):
        speeds = iter(speeds)
        return lambda: order.append(name) or (1000 * next(speeds), 1000.0)

    rows = speed_rows("cost/x", {}, 5, work("a", [9, 1, 2, 3, 4, 50]), work("b", [9, 2, 2, 2, 2, 2]))
    assert order == ["a", "b"] + ["a", "b", "b", "a"] * 2 + ["a", "b"]
    assert [(row.value, row.unit) for row in rows] == [(3, "tokens/s"), (1.5, "times none")]


def test_short_work_is_repeated():
    calls = []
    alternate(5, lambda: calls.append(1) or (1, 0.003), lambda: (1, 1.0))
    assert len(calls) == 1 + 5 * 4
