import dataclasses
import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from posbuild.data.corpora import Document
from posbuild.data.vocabulary import Vocabulary
from posbuild.errors import ConfigError
from posbuild.evaluation.length_curve import (
    BY_POSITION,
    FIXED,
    WHOLE,
    fixed_targets,
    position_borders,
    whole_windows,
)
from posbuild.evaluation.lengths import check_lengths, context, regions
from posbuild.evaluation.windows import digest
from posbuild.records import MEASURED, NOT_FINITE, NOT_MEASURED, NOT_SUPPORTED
from tests.evaluation.small import LENGTH, Bigram, corpus, documents, model, settings, uniform_model

LENGTHS = [LENGTH * n for n in (1, 2, 4, 8, 16)]
TEXT = documents(3000, 2500, 100)  # the third holds no window of the longest length


def whole(held, lengths=LENGTHS, tokens=4096, text=TEXT, **given):
    return whole_windows(held, text, lengths, train_length=LENGTH, tokens=tokens, batch_tokens=2000, **given)


def fixed(held, lengths=LENGTHS, targets=512, text=TEXT, **given):
    return fixed_targets(held, text, lengths, train_length=LENGTH, targets=targets, batch_tokens=2000, **given)


@pytest.mark.parametrize("batch_tokens", [60, 10**6])
def test_uniform_model_is_flat_in_both_protocols(batch_tokens):
    given = {"train_length": LENGTH, "batch_tokens": batch_tokens}
    rows = whole_windows(uniform_model(), TEXT, LENGTHS[:3], tokens=256, **given) + fixed_targets(
        uniform_model(), TEXT, LENGTHS[:3], targets=64, **given
    )
    assert {row.measure for row in rows} == {WHOLE, FIXED, BY_POSITION}
    assert [row.value for row in rows] == pytest.approx([math.log(256)] * len(rows), rel=1e-7)


def test_whole_windows_score_the_same_tokens_at_every_length():
    rows = [row for row in whole(Bigram()) if row.measure == WHOLE]
    assert [row.at for row in rows] == [{"length": n, "window": 0} for n in LENGTHS] + [
        {"length": n, "window": LENGTH} for n in LENGTHS[1:]
    ]
    assert {row.count for row in rows} == {4096}
    assert [row.value for row in rows] == pytest.approx([rows[0].value] * len(rows), rel=1e-6)
    for row in rows:
        assert [group[::2] for group in row.groups] == [group[::2] for group in rows[0].groups]
        assert "text2" not in [name for name, _, _ in row.groups]


def test_whole_windows_score_each_token_of_a_text_once():
    text = documents(257)
    (row,) = [
        row
        for row in whole(Bigram(), [LENGTH, 256], 256, text)
        if row.measure == WHOLE and row.at == {"length": LENGTH, "window": 0}
    ]
    assert row.value == pytest.approx(Bigram().losses(text[0].tokens).mean(), rel=1e-6)


def test_lengths_that_do_not_divide_the_longest_say_what_they_scored():
    rows = {row.at["length"]: row for row in whole(Bigram(), [16, 24, 64], 500, control=False) if row.measure == WHOLE}
    # Of two regions of 256 tokens 24 leaves 16 over in each, so it takes a third.
    assert {length: row.count for length, row in rows.items()} == {16: 512, 24: 720, 64: 512}


@pytest.mark.parametrize("measured", [partial(whole, control=False), partial(fixed, targets=64, control=False)])
def test_what_a_length_scores_does_not_depend_on_the_other_lengths(measured):
    held = model("none", model={"d_model": 8, "n_layers": 1})
    together = {row.key: row for row in measured(held, [*LENGTHS, 32 * LENGTH, 48 * LENGTH, 24])}
    for length in (LENGTH, 24, 4 * LENGTH, 16 * LENGTH, 32 * LENGTH, 48 * LENGTH):
        for row in measured(held, [length]):
            assert (row.draw, row.count, row.value) == (
                together[row.key].draw,
                together[row.key].count,
                pytest.approx(together[row.key].value, abs=1e-6),
            )


def test_draws_tell_which_rows_scored_the_same_tokens():
    def draws(measured, measure, lengths, **given):
        rows = measured(Bigram(), lengths, control=False, **given)
        return {(row.at["length"], row.at["window"]): row.draw for row in rows if row.measure == measure}

    regions = draws(whole, WHOLE, [*LENGTHS, 24, 32 * LENGTH])
    assert len({draw for (length, _), draw in regions.items() if length in LENGTHS}) == 1
    assert len(set(regions.values())) == 3 and all(regions.values())
    targets = draws(fixed, FIXED, [*LENGTHS, 24, 64 * LENGTH, 65 * LENGTH])
    assert len({draw for (length, _), draw in targets.items() if length <= 64 * LENGTH}) == 1
    assert len(set(targets.values())) == 2 and all(targets.values())
    assert regions[LENGTH, 0] not in draws(whole, WHOLE, LENGTHS, tokens=2048).values()
    assert targets[LENGTH, 0] not in draws(fixed, FIXED, LENGTHS, targets=256).values()
    renamed = [Document(document.name + "'", document.tokens) for document in TEXT]
    assert regions[LENGTH, 0] not in draws(whole, WHOLE, LENGTHS, text=renamed).values()


def test_regions_grow_with_the_tokens_and_shrink_with_the_text():
    given = {"train_length": 16, "tokens": 4096}
    assert regions(TEXT, 16, **given) == (256, 16)
    assert regions(TEXT, 24, **given) == (256, 18)  # 240 tokens of each
    assert regions(TEXT, 512, **given) == (512, 8)
    long = documents(200_000)
    assert regions(long, 16, train_length=16, tokens=65_536) == (4096, 16)
    short = documents(*[200] * 40)
    assert regions(short, 16, **given) == regions(short, 128, **given) == (128, 32)


def test_fixed_targets_have_as_much_context_as_half_the_text_gives():
    given = {"train_length": 16, "targets": 64}
    assert context(documents(2500), 16, **given) == (1024, 16)
    assert context(documents(2000), 16, **given) == context(documents(2000), 512, **given) == (512, 16)
    assert context(documents(2000), 1024, **given) == (1024, 16)
    assert context(documents(2000), 1500, **given) == (1500, 16)


def test_losses_that_are_not_finite_are_said_in_place_of_the_mean():
    class Broken(Bigram):
        def vectors(self, tokens, positions=None, window=None):
            logits = super().vectors(tokens)
            return logits.index_fill(1, torch.tensor([20]), math.nan) if tokens.shape[1] > 20 else logits

    rows = {row.key: row for row in whole(Broken(), [16, 64], control=False)}
    broken = rows[(WHOLE, ("length", 64), ("window", 0))]
    assert (broken.status, broken.value) == (NOT_FINITE, None)
    assert broken.reason == "64 of 4096 values are not finite" and broken.draw
    assert rows[(WHOLE, ("length", 16), ("window", 0))].status == MEASURED
    assert rows[(BY_POSITION, ("length", 64), ("position", 16))].status == NOT_FINITE
    assert rows[(BY_POSITION, ("length", 64), ("position", 32))].status == MEASURED


def test_fixed_targets_are_the_same_at_every_length():
    held = Bigram()
    rows = fixed(held)
    assert {row.count for row in rows} == {512}
    assert [row.value for row in rows] == pytest.approx([rows[0].value] * len(rows), rel=1e-6)
    assert max(batch.shape[1] for batch in held.read) == 256 and min(batch.shape[1] for batch in held.read) >= LENGTH
    assert [name for name, _, _ in rows[0].groups] == ["text0", "text1"]


def test_fixed_targets_grow_their_context_to_the_left():
    held = Bigram()
    fixed(held, [16, 32], 512, control=False)
    short, long = (
        np.concatenate([batch.numpy() for batch in held.read if batch.shape[1] == length]) for length in (16, 32)
    )
    assert np.array_equal(long[:, -16:], short)


def test_a_length_shorter_than_the_targets_has_no_number():
    rows = {row.at["length"]: row for row in fixed(Bigram(), [2, 4, 16], control=False)}
    assert rows[2].status == NOT_MEASURED and "does not hold the 4 targets" in rows[2].reason
    assert rows[4].status == rows[16].status == MEASURED


def test_loss_by_position_adds_up_to_the_whole():
    rows = whole(model(), control=False)
    for length in LENGTHS:
        (mean,) = [row for row in rows if row.measure == WHOLE and row.at["length"] == length]
        buckets = [row for row in rows if row.measure == BY_POSITION and row.at["length"] == length]
        assert [row.at["position"] for row in buckets][:4] == [0, 1, 2, 4]
        assert LENGTH in [row.at["position"] for row in buckets] or length == LENGTH
        assert sum(row.count for row in buckets) == mean.count
        assert sum(row.count * row.value for row in buckets) / mean.count == pytest.approx(mean.value, rel=1e-9)


def test_the_train_length_is_a_border():
    assert sorted(position_borders(100, 250)) == [1, 3, 6, 12, 25, 50, 100, 100, 200]
    assert sorted(set(position_borders(100, 40))) == [1, 3, 6, 12, 25]


def test_learned_positions_have_no_number_beyond_the_table():
    for row in whole(model("learned")) + fixed(model("learned")):
        if row.at["length"] <= LENGTH:
            assert row.status == MEASURED
        else:
            assert (row.status, row.value, row.reason) == (NOT_SUPPORTED, None, f"not supported beyond {LENGTH}")


@pytest.mark.parametrize("scheme", ["none", "sinusoidal", "relative", "t5", "rope", "alibi"])
def test_schemes_without_a_limit_have_a_number_at_every_length(scheme):
    assert {row.status for row in whole(model(scheme), [16, 64, 256], 256)} == {MEASURED}


def test_the_control_sees_less():
    rows = {(row.at["length"], row.at["window"]): row.value for row in fixed(model("rope"), targets=32)}
    assert all(rows[length, 0] != rows[length, LENGTH] for length in LENGTHS[1:])
    assert len(rows) == 9


def test_lengths_that_the_documents_fill_pass():
    check_lengths(corpus(TEXT), settings(whole_window_tokens=4096, fixed_targets=512))


def asked(length):
    return settings(lengths=[length], whole_window_tokens=300, fixed_targets=64)


def test_a_length_beyond_the_documents_is_refused_with_the_longest_that_works():
    text = documents(300, 200)
    with pytest.raises(
        ConfigError,
        match=r"eval.lengths=\[4096\] asks for windows of 4096 .* has 300 tokens.* longest usable length is (\d+)",
    ) as error:
        check_lengths(corpus(text), asked(4096))
    usable = int(str(error.value).split("longest usable length is ")[1].split(":")[0])
    assert 16 < usable < 300
    check_lengths(corpus(text), asked(usable))
    with pytest.raises(ConfigError):
        check_lengths(corpus(text), asked(usable + 1))


def test_multiples_are_named_as_typed():
    with pytest.raises(ConfigError, match=r"eval.multiples=\[1,1000\] \(train.length=16\) asks for windows of 16000"):
        check_lengths(corpus(TEXT), settings(multiples=[1, 1000]))


def test_documents_that_fill_no_length_are_refused():
    with pytest.raises(ConfigError, match="No length can be filled"):
        check_lengths(corpus(documents(10)), settings())


def test_an_encoder_needs_more_text_for_as_many_scored_tokens():
    asked, text = {"lengths": [64], "whole_window_tokens": 300, "fixed_targets": 64}, documents(1200)
    check_lengths(corpus(text), settings("rope", **asked))
    with pytest.raises(ConfigError, match="300 tokens of whole windows and 64 fixed targets"):
        check_lengths(corpus(text), settings("rope", masked=True, **asked))
    check_lengths(corpus(documents(4000)), settings("rope", masked=True, **asked))


@pytest.mark.parametrize("size", [257, 300, 513, 600])
@pytest.mark.parametrize("lengths", [[16], [17, 40], [100, 250]])
def test_what_passes_the_check_can_be_measured_and_what_does_not_cannot(size, lengths):
    text, chosen = documents(size, 90), settings(lengths=lengths, whole_window_tokens=300, fixed_targets=100)
    try:
        check_lengths(corpus(text), chosen)
    except ConfigError:
        with pytest.raises(ValueError, match="places were asked for"):
            whole(Bigram(), lengths, 300, text), fixed(Bigram(), lengths, 100, text)
    else:
        assert all(row.count >= 300 for row in whole(Bigram(), lengths, 300, text) if row.measure == WHOLE)
        assert all(row.count >= 100 for row in fixed(Bigram(), lengths, 100, text))


@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_train_length_beyond_the_data_is_refused_before_training(split):
    short = dataclasses.replace(corpus(documents(9000)), **{split: documents(16)})
    with pytest.raises(
        ConfigError, match=rf"train\.length=16 is longer than the data.*the longest {split}\w* document has 16"
    ):
        check_lengths(short, settings(multiples=[1], whole_window_tokens=64, fixed_targets=16))


def test_the_draw_names_the_targets_themselves():
    """Of a text that holds one window: its last L/4 tokens, wherever the window begins."""
    text = documents(LENGTH + 1)
    scored = LENGTH // 4
    (row,) = fixed(model(), [LENGTH], scored, text, control=False)
    assert row.draw == digest(text, np.array([[0, LENGTH + 1 - scored]]), first=0, scored=scored)


# ------------------------------------------------------------------------------------------------------- bytes of text


def test_of_bytes_as_many_are_scored_as_tokens():
    rows = whole(uniform_model(), LENGTHS[:2], tokens=256) + fixed(uniform_model(), LENGTHS[:2], targets=64)
    assert {row.measure for row in rows} == {WHOLE, FIXED, BY_POSITION}
    assert all(row.bytes == row.count for row in rows)


@pytest.mark.parametrize("vocab", [300, 70_000])
def test_every_loss_says_how_many_bytes_of_text_its_tokens_stand_for(vocab):
    # Token n stands for n % 5 bytes. A uniform model pays ln V a token, whatever that stands for.
    vocabulary = Vocabulary([b"x" * (number % 5) for number in range(vocab)])
    rng = np.random.default_rng(0)
    text = [Document("d", rng.integers(0, vocab, 513).astype(vocabulary.dtype), vocabulary)]
    flat = nn.Module()
    flat.anchor = nn.Parameter(torch.zeros(()))
    flat.longest, flat.dims, flat.vocab_size, flat.numbering = None, Bigram.dims, vocab, Bigram.numbering
    flat.vectors = lambda tokens, positions=None, window=None: torch.zeros(*tokens.shape, 1)
    flat.head = lambda vectors: vectors.expand(*vectors.shape[:-1], vocab)
    rows = whole(flat, [LENGTH, 2 * LENGTH], tokens=512, text=text, control=False)
    assert (text[0].tokens.dtype, text[0].tokens.max() > 2**15) == (np.min_scalar_type(vocab - 1), vocab > 2**15)
    expected = int((text[0].tokens[1:] % 5).sum(dtype=np.int64))  # each token but the first is scored once
    for length in (LENGTH, 2 * LENGTH):
        (row,) = [row for row in rows if row.measure == WHOLE and row.at["length"] == length]
        assert (row.count, row.bytes) == (512, expected)
        assert row.value * row.count / row.bytes == pytest.approx(math.log(vocab) * 512 / expected, rel=1e-6)
        positions = [row for row in rows if row.measure == BY_POSITION and row.at["length"] == length]
        assert sum(row.bytes for row in positions) == expected
    (row,) = fixed(flat, [LENGTH], targets=498, text=text, control=False)  # all that have 3L/4 tokens before them
    assert (row.count, row.bytes) == (500, int((text[0].tokens[13:] % 5).sum(dtype=np.int64)))
