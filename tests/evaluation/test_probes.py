import math
from dataclasses import fields

import pytest
import torch

from posbuild import registry
from posbuild.bias import OfDistance
from posbuild.conformance.cases import build, reaching
from posbuild.conformance.layer import of_content
from posbuild.conformance.paper import reference
from posbuild.declaration import ActsOn
from posbuild.errors import ConfigError
from posbuild.evaluation import probes as module
from posbuild.evaluation.probes import (
    REORDERED,
    SENTENCE,
    attention_rows,
    bias_rows,
    distance_scores,
    distances,
    distinct_rows,
    input_codes,
    options_for,
    probes,
    reference_probes,
    signal_rms,
    small_model,
)
from posbuild.model import scores_of
from posbuild.records import MEASURED, NOT_FINITE, NOT_MEASURED, NOT_SUPPORTED
from tests.evaluation.small import model, settings

LENGTH = 32
SIGHT = 1e-6  # of the largest output: more is a difference that the model makes, less is rounding
SCHEMES = registry.schemes()
TEXT = torch.arange(4 * LENGTH).view(4, LENGTH) % 256


def probed(scheme, **given):
    """Rows by measure and coordinates, which no two share."""
    built = {name: value for name, value in given.items() if name in ("model", "pe")}
    rows = probes(model(scheme, length=LENGTH, **built), settings(scheme, length=LENGTH, **given), TEXT)
    by_key = {row.key: row for row in rows}
    assert len(by_key) == len(rows)
    return by_key


def find(rows, measure, **at):
    return next(row for row in rows.values() if row.measure == measure and at.items() <= row.at.items())


@pytest.fixture(scope="module", params=SCHEMES)
def found(request):
    return SCHEMES[request.param], probed(request.param)


def test_a_bidirectional_model_sees_order_unless_the_scheme_is_blind_to_it(found):
    scheme, rows = found
    row = find(rows, "probe/order", attention="bidirectional", change="characters")
    if scheme.causal_only:
        assert row.value is None and scheme.causal_only in row.reason
    else:
        assert row.value <= 1e-12 if scheme.orderless else row.value > SIGHT


def test_a_causal_model_sees_order_whatever_the_scheme_and_says_so(found):
    _, rows = found
    for change in ("characters", "reversal"):
        row = find(rows, "probe/order", attention="causal", change=change)
        assert row.value > SIGHT and "a causal mask alone" in row.note
        assert "mask" not in find(rows, "probe/order", attention="bidirectional", change=change).note


def test_outputs_keep_still_under_a_shift_if_the_scheme_says_so(found):
    scheme, rows = found
    if not scheme.shift_invariant:
        within = any(item.name == "original_length" for item in fields(scheme.options))
        # Within the original length some are shift-invariant, by whole groups of tokens others.
        pe = getattr(reference(scheme.name), "AT_WORK", {}) | ({"original_length": LENGTH // 2} if within else {})
        rows = probed(scheme.name, pe=pe) if pe else rows
    value = find(rows, "probe/shift").value
    assert value < 1e-9 if scheme.shift_invariant else value > SIGHT


def test_codes_are_read_where_the_scheme_acts_at_the_input(found):
    scheme, rows = found
    measures = {row.measure for row in rows.values()}
    assert ("probe/distinct_codes" in measures) == ("probe/linear_map" in measures) == (scheme.acts_on is ActsOn.input)
    assert ("probe/bias" in measures) == (scheme.acts_on is ActsOn.scores and not of_content(build(scheme.name)))
    for parameters in ("start", "trained"):
        assert find(rows, "probe/falls_until", parameters=parameters).at["of"] == (
            "codes" if scheme.acts_on is ActsOn.input else "scores"
        )


def test_every_position_has_its_own_code(found):
    scheme, rows = found
    if scheme.acts_on is ActsOn.input:
        for parameters in ("start", "trained"):
            row = find(rows, "probe/distinct_codes", parameters=parameters)
            assert row.value == row.count == (LENGTH if reaching(scheme.name, 1) else 16 * LENGTH)


@torch.no_grad()
def test_the_nearest_codes_are_found(found):
    scheme, rows = found
    if scheme.acts_on is ActsOn.input:
        row = find(rows, "probe/code_distance", parameters="start")
        codes = input_codes(
            small_model(settings(scheme.name, length=LENGTH), scheme.options(), causal=True)[0].encoding, row.count
        )
        apart = (codes[:, None] - codes).norm(dim=-1) + torch.diag(torch.full((row.count,), math.inf))
        assert row.value == pytest.approx(float(apart.min() / codes.square().sum(dim=-1).mean().sqrt()), rel=1e-6)
        assert 1e-3 < row.value < 2


def test_codes_that_all_but_meet_are_distinct_and_near():
    codes = torch.eye(4, dtype=torch.float64).repeat(2, 1)
    codes[4:] += 1e-9
    count, nearest = distinct_rows(codes)
    assert count.value == 8 and nearest.value == pytest.approx(2e-9, rel=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("scheme", SCHEMES)
def test_scores_by_distance_are_those_of_the_last_query(scheme):
    encoding = small_model(settings(scheme, length=LENGTH), SCHEMES[scheme].options(), causal=True)[0].encoding
    dims, positions = encoding.dims, torch.arange(LENGTH)[None]
    ones = torch.ones(1, dims.n_heads, LENGTH, dims.head_dim, dtype=torch.float64)
    x = torch.ones(1, LENGTH, dims.d_model, dtype=torch.float64)
    found = [
        scores_of(encoding, ones, ones, positions, positions, layer, x)[0, :, -1] for layer in range(dims.n_layers)
    ]
    expected = torch.cat(found).mean(dim=0).flip(0)
    assert distance_scores(encoding, LENGTH) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned", "rope", "t5"])
def test_a_train_length_beyond_the_cap_is_probed(scheme, monkeypatch):
    monkeypatch.setattr(module, "MOST", 16)
    rows = {row.key: row for row in probes(model(scheme, length=256), settings(scheme, length=256), TEXT[:1])}
    if SCHEMES[scheme].acts_on is ActsOn.input:
        row = find(rows, "probe/linear_map", map="rotation", parameters="start")
        assert (row.at["offset"], row.count) == (2, 14)
        assert "only the first 16 of the 256 positions" in row.note
        assert find(rows, "probe/distinct_codes", parameters="trained").count == 16
    else:
        assert find(rows, "probe/falls_until", parameters="start").count == 256


@pytest.mark.parametrize("scheme", ["sinusoidal", "alibi"])
def test_what_is_probed_does_not_depend_on_the_lengths_of_the_evaluation(scheme):
    assert probed(scheme, lengths=[LENGTH]) == probed(scheme, multiples=[1, 64])


@pytest.mark.parametrize("causal", [True, False])
def test_attention_is_the_same_in_pieces(causal, monkeypatch):
    held = model("t5", length=LENGTH, model={"causal": causal})
    whole = {row.at["distance"]: row.value for row in attention_rows(held, TEXT)}
    monkeypatch.setattr(module, "WEIGHTS", 3 * TEXT.shape[0] * held.dims.n_heads * LENGTH)
    pieces = {row.at["distance"]: row.value for row in attention_rows(held, TEXT)}
    assert pieces == pytest.approx(whole, rel=1e-6)


def test_a_bias_that_is_not_finite_is_said():
    held = model("alibi", length=LENGTH)
    held.encoding.at_scores = lambda *given: OfDistance(lambda distance: distance.double()[None] / 0)
    rows = {row.at["distance"]: row for row in bias_rows(held.encoding, LENGTH)}
    assert (rows[4].status, rows[4].reason) == (NOT_FINITE, "the value is inf")


def test_rows_state_units(found):
    _, rows = found
    assert all(row.unit for row in rows.values() if row.status == MEASURED)


@pytest.mark.parametrize("scheme", ["sinusoidal", "rope", "alibi"])
def test_similarity_falls_with_distance(scheme):
    row = find(probed(scheme), "probe/spearman", parameters="start")
    assert row.value < -0.5 and row.count == LENGTH


def test_alibi_falls_all_the_way_and_is_a_line():
    rows = probed("alibi")
    assert find(rows, "probe/spearman", parameters="start").value == pytest.approx(-1)
    assert find(rows, "probe/falls_until", parameters="start").value == LENGTH - 1
    slope = (2**-4 + 2**-8) / 2  # the mean of two heads
    assert [find(rows, "probe/bias", distance=d, parameters="start").value for d in (0, 1, 16)] == pytest.approx(
        [0, -slope, -16 * slope]
    )


def test_no_encoding_has_no_rank_to_correlate():
    row = find(probed("none"), "probe/spearman", parameters="start")
    assert row.status == NOT_MEASURED and row.reason.startswith("the scores are the same at every distance")
    assert find(probed("none"), "probe/falls_until", parameters="start").value == 0


@pytest.mark.parametrize("pe", [{"layout": "interleaved"}, {"layout": "half"}, {"combine": "concat"}])
def test_the_sinusoidal_code_of_a_later_position_is_a_rotation(pe):
    rows = probed("sinusoidal", pe=pe)
    assert find(rows, "probe/linear_map", map="rotation", parameters="start").value < 1e-9


def test_a_learned_table_is_no_linear_map_of_itself():
    rows = probed("learned")
    for kind in ("rotation", "fitted"):
        row = find(rows, "probe/linear_map", map=kind, parameters="start")
        assert row.value > 0.3
    assert find(rows, "probe/linear_map", map="fitted", parameters="start").count == (LENGTH - LENGTH // 8) / 2


def test_a_linear_table_is_found_by_the_fit():
    held = model("learned", length=64, model={"d_model": 8})
    step = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(0)))[0]
    code = torch.ones(8)
    with torch.no_grad():
        for row in held.encoding.table:
            row.copy_(code)
            code = step @ code
    chosen = settings("learned", length=64, model={"d_model": 8})
    rows = {row.key: row for row in probes(held, chosen, TEXT)}
    assert find(rows, "probe/linear_map", map="fitted", parameters="trained").value < 1e-4
    assert find(rows, "probe/linear_map", map="fitted", parameters="start").value > 0.3


def test_an_odd_width_does_not_pair_up():
    rows = probed("sinusoidal", model={"d_model": 5, "n_heads": 1})
    row = find(rows, "probe/linear_map", map="rotation", parameters="start")
    assert row.status == NOT_MEASURED and row.reason == "the code has 5 channels, an odd number, which cannot be paired"


@pytest.mark.parametrize(
    ("scheme", "pe", "tells"),
    [
        ("relative", {}, True),
        ("relative", {"signed": False}, False),
        ("alibi", {"form": "symmetric"}, False),
        ("alibi", {"form": "asymmetric"}, True),
        ("t5", {}, True),
        ("rope", {}, True),
    ],
)
def test_left_and_right_in_a_bidirectional_model(scheme, pe, tells):
    rows = probed(scheme, pe=pe, model={"causal": False})
    value = find(rows, "probe/order", attention="bidirectional", change="reversal").value
    assert value > SIGHT if tells else value < 1e-12


def test_options_that_need_the_other_attention_are_replaced_and_said():
    causal = {"form": "causal"}
    options, reason = options_for(settings("alibi", pe=causal), "bidirectional")
    assert options.form.name == "symmetric"
    assert reason == (
        "pe.form=causal does not work in a bidirectional model, so this one was built with pe.form=symmetric"
    )
    assert (
        find(probed("alibi", pe=causal), "probe/order", attention="bidirectional", change="characters").note == reason
    )
    asymmetric = settings("alibi", pe={"form": "asymmetric"}, model={"causal": False})
    assert options_for(asymmetric, "causal")[0].form.name == "causal"
    assert options_for(settings("alibi"), "bidirectional") == (settings("alibi").pe, "")
    assert options_for(settings("rope"), "bidirectional") == (settings("rope").pe, "")


def test_options_that_work_under_no_other_attention_have_the_reason():
    chosen = settings("t5", pe={"buckets": 2})  # two buckets cannot be split by direction
    with pytest.raises(ConfigError, match=r"pe\.buckets=2 does not split evenly"):
        options_for(chosen, "bidirectional")
    row = find(probed("t5", pe={"buckets": 2}), "probe/order", attention="bidirectional", change="reversal")
    assert row.status == NOT_MEASURED and row.reason.startswith("pe.buckets=2")


def test_remarks_are_sentences_and_nothing_else(found):
    """A row's note is its sentences with "; " between them; the report adds the full stops."""
    for row in found[1].values():
        for words in filter(None, [*row.note.split("; "), row.reason]):
            assert len(words.split()) > 6 and ":" not in words and words[-1].isalnum(), words


def test_parameters_that_start_at_zero_are_drawn_and_named():
    _, drawn = small_model(settings("t5"), settings("t5").pe, causal=True)
    assert drawn == ["table"]
    note = find(probed("t5"), "probe/bias", parameters="start").note
    assert note == "table of the encoding would start at zero and show nothing, so random values stood in"
    assert small_model(settings("learned"), settings("learned").pe, causal=True)[1] == []


def test_tables_are_also_read_as_trained():
    held = model("relative", length=LENGTH)
    with torch.no_grad():
        held.encoding.table.copy_(-torch.arange(33.0).expand(1, 2, 33))
    rows = {row.key: row for row in probes(held, settings("relative", length=LENGTH), TEXT)}
    trained = find(rows, "probe/spearman", parameters="trained")
    assert trained.value == pytest.approx(-1) and not trained.note
    assert find(rows, "probe/spearman", parameters="start").value != pytest.approx(-1)
    assert find(rows, "probe/bias", distance=4, parameters="trained").value == pytest.approx(-4)


def test_attention_by_distance():
    held = model("none", length=4)
    for block in held.blocks:
        torch.nn.init.zeros_(block.attention.qkv.weight)
    rows = attention_rows(held, TEXT[:, :4])
    # Equal weights: query i (from 0) gives each of its keys 1 / (i + 1); a distance d occurs for queries d to 3.
    assert {row.at["distance"]: row.value for row in rows} == pytest.approx(
        {0: (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4, 1: (1 / 2 + 1 / 3 + 1 / 4) / 3, 2: (1 / 3 + 1 / 4) / 2}
    )
    assert [row.count for row in rows] == [16, 12, 8]


def test_reading_the_attention_leaves_the_model_as_it_was():
    held = model("rope", length=LENGTH)
    before = held(TEXT)
    attention_rows(held, TEXT)
    assert torch.equal(held(TEXT), before)
    assert not {"at_queries", "at_keys", "at_scores"} & vars(held.encoding).keys()


def test_attention_to_both_sides_of_a_bidirectional_model():
    assert distances(9, causal=True) == [0, 1, 2, 4, 8]
    assert distances(8, causal=False) == [-4, -2, -1, 0, 1, 2, 4]
    rows = attention_rows(model("rope", model={"causal": False}), TEXT[:, :16])
    assert [row.at["distance"] for row in rows] == distances(16, causal=False)


def test_a_bidirectional_run_is_probed_too():
    rows = probed("t5", model={"causal": False})
    assert find(rows, "probe/bias", distance=-1, parameters="start").status == MEASURED
    assert find(rows, "probe/order", attention="causal", change="characters").value > SIGHT


def test_a_table_too_short_for_the_sentence_is_said():
    rows = {row.key: row for row in probes(model("learned", length=8), settings("learned", length=8), TEXT[:, :8])}
    row = find(rows, "probe/order", attention="causal", change="characters")
    reason = "the probe needs 12 positions, and the encoding is not defined beyond 8"
    assert (row.status, row.reason) == (NOT_SUPPORTED, reason)


def test_grouped_keys_and_many_layers():
    rows = probed("rope", model={"n_heads": 4, "n_kv_heads": 2, "n_layers": 3})
    assert find(rows, "probe/attention", distance=0).status == MEASURED


@pytest.mark.parametrize("scheme", SCHEMES)
def test_signal_at_the_input(scheme):
    held = model(scheme, length=LENGTH)
    found = signal_rms(held, TEXT)
    expected = {"sinusoidal": 0.1 / math.sqrt(2), "learned": 0.02}.get(scheme, 0.0)
    if SCHEMES[scheme].acts_on is ActsOn.input and not expected:
        expected = float(held.encoding.codes(torch.arange(LENGTH)).detach().square().mean().sqrt())
    assert found["signal"] == pytest.approx(expected, rel=0.1 if scheme == "learned" else 1e-5)
    assert found["ratio"] == found["signal"] / found["tokens"] and found["tokens"] == pytest.approx(0.05, rel=0.1)


def test_codes_of_an_encoding_elsewhere_are_none():
    assert input_codes(model("alibi").double().encoding, 8) is None


def test_the_sentence_and_its_reordering():
    assert SENTENCE.decode() == "猫追老鼠"
    assert bytes(SENTENCE[place] for place in REORDERED["characters"]).decode() == "老鼠追猫"


def test_well_known_encodings_are_probed_beside_any_run():
    rows = {row.key: row for row in reference_probes(settings("alibi", length=LENGTH))}
    assert rows == {row.key: row for row in reference_probes(settings("t5", length=LENGTH))}

    def values(measure, **at):
        found = [row for row in rows.values() if row.measure == f"reference/{measure}" and at.items() <= row.at.items()]
        assert found and all(row.status == MEASURED for row in found)
        return [row.value for row in found]

    assert max(values("order", scheme="none", attention="bidirectional")) < 1e-12
    assert min(values("order", scheme="none", attention="causal")) > 0.01
    assert min(values("order", scheme="rope", attention="bidirectional")) > 0.01
    mirrored = {"scheme": "relative unsigned", "attention": "bidirectional"}
    assert max(values("order", change="reversal", **mirrored)) < 1e-12
    assert max(values("shift", scheme="rope")) < 1e-12 < 0.01 < max(values("shift", scheme="sinusoidal"))
    assert max(values("linear_map", scheme="sinusoidal", map="rotation", parameters="start")) < 1e-12


def test_a_well_known_encoding_that_the_model_cannot_hold_says_why():
    odd = settings("alibi", length=LENGTH, model={"d_model": 6, "n_heads": 2})
    (reason,) = {row.reason for row in reference_probes(odd) if row.at["scheme"] == "rope"}
    assert "must be an even whole number" in reason
