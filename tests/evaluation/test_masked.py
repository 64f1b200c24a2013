"""What is measured of masked tokens: the same targets at every length, no answer in view, and the slow direct figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from posbuild.data.corpora import Document
from posbuild.data.masking import NO_TARGET, Masked
from posbuild.declaration import Dims
from posbuild.evaluation import losses, masked
from posbuild.evaluation.lengths import whole_tokens
from posbuild.evaluation.masked import (
    FIXED_ACCURACY,
    PSEUDO,
    WHOLE_ACCURACY,
    fixed_targets,
    masked_windows,
    passage_losses,
    pseudo,
    scores,
    validation_loss,
    whole_windows,
)
from posbuild.evaluation.recall import recall
from posbuild.positions import Numbering
from posbuild.records import MEASURED, NOT_MEASURED, NOT_SUPPORTED
from posbuild.settings import ObjectiveName, ObjectiveSettings, PositionsSettings
from tests.evaluation.small import LENGTH, documents, model, settings

VOCABULARY = 256  # bytes

OBJECTIVE = ObjectiveSettings(name=ObjectiveName.masked)
LENGTHS = [LENGTH * n for n in (1, 2, 4, 8)]
TEXT = documents(3000, 2500)


class Oracle(nn.Module):
    """A bidirectional model whose logits are given by a rule; `longest` and the rest as for a Transformer."""

    longest: int | None = None
    vocab_size = VOCABULARY + 1
    head = nn.Identity()
    dims = Dims(d_model=1, n_layers=1, n_heads=1, n_kv_heads=1, train_length=LENGTH, causal=False)
    numbering = Numbering(PositionsSettings(), LENGTH, seed=0)

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(3, 257, 257, generator=torch.Generator().manual_seed(0)))
        self.read: list[torch.Tensor] = []

    def vectors(self, tokens, positions=None, window=None):
        self.read.append(tokens)
        return self.logits(tokens)

    def logits(self, tokens):
        """By the token itself: of a masked one the target alone tells the loss."""
        return self.table[0][tokens]


class Neighbours(Oracle):
    """By the tokens on both sides."""

    def logits(self, tokens):
        return self.table[1][tokens.roll(1, dims=1)] + self.table[2][tokens.roll(-1, dims=1)]


class Expecting(Oracle):
    """Sure of one token at each place."""

    def logits(self, tokens):
        return 20.0 * nn.functional.one_hot(self.expected(tokens), 257)


class Copycat(Expecting):
    """Sure that the token is the one it sees there: right wherever an answer is left in view."""

    def expected(self, tokens):
        return tokens


class FromBefore(Expecting):
    """Sure that the token is the one that stood `distance` before it."""

    def __init__(self, distance: int) -> None:
        super().__init__()
        self.distance = distance

    def expected(self, tokens):
        before = torch.full_like(tokens, VOCABULARY)
        before[:, self.distance :] = tokens[:, : -self.distance]
        return before


def whole(held, lengths=LENGTHS, tokens=4096, text=TEXT, **given):
    given = {"objective": OBJECTIVE, "train_length": LENGTH, "batch_tokens": 2000} | given
    return whole_windows(held, text, lengths, tokens=tokens, **given)


def fixed(held, lengths=LENGTHS, targets=128, text=TEXT, **given):
    given = {"objective": OBJECTIVE, "train_length": LENGTH, "batch_tokens": 2000} | given
    return fixed_targets(held, text, lengths, targets=targets, **given)


def alone(held, lengths=LENGTHS, targets=64, text=TEXT, tokens=1024):
    return pseudo(held, text, lengths, train_length=LENGTH, tokens=tokens, targets=targets, batch_tokens=2000)


def recalled(held):
    def losses(*given):
        return passage_losses(*given, objective=OBJECTIVE)

    return recall(held, TEXT, train_length=LENGTH, passages=32, batch_tokens=2000, losses=losses)


def ordered(held, text=TEXT, windows=64, train_length=LENGTH):
    return masked.order(held, text, train_length=train_length, windows=windows, batch_tokens=2000)


def by_place(rows, measure):
    return {(row.at["length"], row.at["window"]): row for row in rows if row.measure == measure}


# ------------------------------------------------------------------------------------------------ what is in view


def test_an_answer_left_in_view_would_be_seen():
    tokens = torch.randint(VOCABULARY, (4, LENGTH), generator=torch.Generator().manual_seed(0))
    held = masked_windows(tokens.numpy(), OBJECTIVE, VOCABULARY, LENGTH)
    assert scores(Copycat(), held)[1].mean() == 0
    assert scores(Copycat(), Masked(tokens, held.labels))[1].mean() == 1  # the planted leak


def test_no_measurement_shows_an_answer():
    held = Copycat()
    accuracies = [row for row in whole(held) + fixed(held) if row.measure in (WHOLE_ACCURACY, FIXED_ACCURACY)]
    assert accuracies and all(row.value == 0 for row in accuracies)
    unknown = pytest.approx(20 + math.log1p(256 * math.exp(-20)), rel=1e-6)  # sure of the mask token
    assert [row.value for row in alone(held)] == [unknown] * len(LENGTHS)
    assert [row.value for row in recalled(held) + ordered(held)] == [0.0] * (5 + 4)
    assert validation_loss(held, torch.zeros(3, LENGTH, dtype=torch.int64), OBJECTIVE) == unknown


def test_only_masked_targets_count():
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (6, LENGTH))
    held, batch = model("rope", masked=True), masked_windows(tokens, OBJECTIVE, VOCABULARY, LENGTH)
    with torch.inference_mode():
        chances = held(batch.inputs).log_softmax(dim=-1).numpy()
    rows, places = np.nonzero(batch.labels.numpy() != NO_TARGET)
    expected = -chances[rows, places, tokens[rows, places]]
    losses, hits = scores(held, batch, batch_tokens=40)
    assert losses == pytest.approx(expected, abs=1e-5) and len(losses) == 6 * OBJECTIVE.scored(LENGTH)
    assert (hits == (chances.argmax(axis=-1)[rows, places] == tokens[rows, places])).all()
    assert validation_loss(held, torch.from_numpy(tokens), OBJECTIVE) == pytest.approx(expected.mean(), abs=1e-5)


def test_logits_of_the_masked_tokens_alone_are_made_and_held_in_parts(monkeypatch):
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (6, LENGTH))
    held, batch = model("rope", masked=True), masked_windows(tokens, OBJECTIVE, VOCABULARY, LENGTH)
    expected, made = scores(held, batch), []
    held.head.register_forward_hook(lambda module, given, logits: made.append(logits.numel()))
    monkeypatch.setattr(losses, "LOGITS", 5 * held.vocab_size)
    found = scores(held, batch)
    assert found[0] == pytest.approx(expected[0], abs=1e-6) and (found[1] == expected[1]).all()
    assert max(made) == 5 * held.vocab_size and sum(made) == 6 * OBJECTIVE.scored(LENGTH) * held.vocab_size


# ------------------------------------------------------------------------------------------------- the length curve


def test_whole_windows_score_the_same_masked_tokens_at_every_length():
    for measure in ("loss/whole_windows", WHOLE_ACCURACY):
        rows = by_place(whole(Oracle()), measure)
        assert list(rows) == [(n, 0) for n in LENGTHS] + [(n, LENGTH) for n in LENGTHS[1:]]
        first = rows[LENGTH, 0]
        assert first.count == 4096 // LENGTH * OBJECTIVE.scored(LENGTH)
        for row in rows.values():
            assert (row.draw, row.count) == (first.draw, first.count)
            assert row.value == pytest.approx(first.value, rel=1e-6)


def test_as_many_masked_tokens_are_scored_as_are_asked_for():
    asked = settings(masked=True, whole_window_tokens=500, length=64)
    rows = whole(Oracle(), [64], whole_tokens(asked), documents(9000), train_length=64)
    assert 500 <= by_place(rows, "loss/whole_windows")[64, 0].count < 700
    assert whole_tokens(settings(whole_window_tokens=500)) == 500


def test_loss_by_position_adds_up_to_the_whole():
    rows = whole(model("rope", masked=True), [4 * LENGTH], control=False)
    (mean,) = [row for row in rows if row.measure == "loss/whole_windows"]
    buckets = [row for row in rows if row.measure == "loss/by_position" and row.status == MEASURED]
    assert sum(row.count for row in buckets) == mean.count
    assert sum(row.count * row.value for row in buckets) / mean.count == pytest.approx(mean.value, rel=1e-9)


def test_a_position_without_a_masked_token_says_so():
    rows = [
        row for row in whole(Oracle(), [LENGTH], LENGTH, documents(LENGTH + 1)) if row.measure == "loss/by_position"
    ]
    assert {row.status for row in rows} == {MEASURED, NOT_MEASURED}
    assert {row.reason for row in rows} == {"", "no masked token stands there"}


def test_fixed_targets_and_what_is_near_them_are_the_same_at_every_length():
    for measure in ("loss/fixed_targets", FIXED_ACCURACY):
        rows = by_place(fixed(Neighbours()), measure)
        first = rows[LENGTH, 0]
        assert len(rows) == 7 and first.count == 128
        for row in rows.values():
            assert (row.draw, row.count) == (first.draw, first.count)
            assert row.value == pytest.approx(first.value, rel=1e-6)


def test_the_context_of_fixed_targets_grows_on_both_sides():
    held = Oracle()
    fixed(held, LENGTHS[:2], control=False)
    short, long = (torch.cat([read for read in held.read if read.shape[1] == n]) for n in LENGTHS[:2])
    assert torch.equal(long[:, LENGTH // 2 : -LENGTH // 2], short)
    share = (long == VOCABULARY).float().mean()
    assert share == pytest.approx(OBJECTIVE.mask_prob, abs=0.05)


def test_what_a_length_scores_does_not_depend_on_the_other_lengths():
    held = Neighbours()
    together = {row.key: row for row in whole(held) + fixed(held) + alone(held)}
    apart = [row for n in LENGTHS for row in whole(held, [n]) + fixed(held, [n]) + alone(held, [n])]
    assert {row.key: row for row in apart} == together


def test_the_control_cuts_attention_to_distances_below_the_train_length():
    rows = by_place(whole(model("rope", masked=True), LENGTHS[:2], 256), "loss/whole_windows")
    assert rows[2 * LENGTH, 0].value != rows[2 * LENGTH, LENGTH].value


def test_a_learned_table_has_no_number_beyond_its_end():
    held = model("learned", masked=True)
    for row in whole(held) + fixed(held) + alone(held):
        inside = row.at["length"] <= LENGTH
        assert row.status == (MEASURED if inside else NOT_SUPPORTED) and row.unit
    assert [row.status for row in recalled(held)] == [MEASURED] * 2 + [NOT_SUPPORTED] * 3


def test_a_length_shorter_than_the_targets_has_no_number():
    (loss, accuracy) = fixed(Oracle(), [4], control=False)
    assert {loss.status, accuracy.status} == {NOT_MEASURED} and "the 8 among which the targets are" in loss.reason


# ----------------------------------------------------------------------------------------------- pseudo-perplexity


@pytest.mark.parametrize("scheme", ["rope", "t5", "learned"])
def test_pseudo_perplexity_equals_the_slow_direct_one(scheme):
    """Every token of a text, masked alone in its window."""
    held, text = model(scheme, masked=True), documents(4 * LENGTH + 1)
    tokens = torch.from_numpy(text[0].tokens[: 4 * LENGTH].astype(np.int64))
    total = 0.0
    with torch.inference_mode():
        for place, token in enumerate(tokens):
            begin = place // LENGTH * LENGTH
            window = tokens[begin : begin + LENGTH].clone()
            window[place - begin] = held.vocab_size - 1
            total -= float(held(window[None])[0, place - begin].log_softmax(dim=-1)[token])
    (row,) = alone(held, [LENGTH], targets=len(tokens), text=text, tokens=16)
    assert row.measure == PSEUDO and row.count == len(tokens)
    assert row.value == pytest.approx(total / len(tokens), abs=1e-5)


def test_pseudo_perplexity_masks_one_token_a_window_and_the_same_at_every_length():
    held = Oracle()
    rows = alone(held)
    assert all(((read == VOCABULARY).sum(dim=1) == 1).all() for read in held.read)
    assert len({row.draw for row in rows}) == 1 and {row.count for row in rows} == {64}
    assert [row.value for row in rows] == pytest.approx([rows[0].value] * len(rows), rel=1e-6)


# ------------------------------------------------------------------------------------------------ recall and order


def test_a_model_that_looks_a_distance_back_recalls_there_alone():
    gains = {row.at["distance"]: row.value for row in recalled(FromBefore(2 * LENGTH))}
    assert gains[2 * LENGTH] > 15
    assert all(abs(gain) < 3 for distance, gain in gains.items() if distance != 2 * LENGTH)


def test_each_token_of_a_passage_is_masked_once():
    held, size = Oracle(), LENGTH // 4
    text = np.random.default_rng(0).integers(0, VOCABULARY, (3, 40))
    losses = passage_losses(held, text, size, 2000, objective=OBJECTIVE)
    expected = -held.table.detach()[0][VOCABULARY].log_softmax(dim=-1).numpy()[text[:, -size:]]
    assert losses == pytest.approx(expected, rel=1e-5)
    hidden = torch.stack(held.read) == VOCABULARY
    assert hidden.sum(dim=0)[:, -size:].eq(1).all() and not hidden[:, :, :-size].any()


def test_the_masked_token_in_the_middle_stays_and_so_do_those_near_it():
    held = Oracle()
    rows = ordered(held)
    size, middle = LENGTH - 1, (LENGTH - 1) // 2
    whole_text, *moved = torch.cat(held.read).split(64)
    for row, text in zip(rows, moved, strict=True):
        assert text.shape == (64, size) and (text[:, middle] == VOCABULARY).all()
        kept = slice(middle - row.at["kept"], middle + row.at["kept"] + 1)
        assert torch.equal(text[:, kept], whole_text[:, kept])
        assert torch.equal(text.sort(dim=1).values, whole_text.sort(dim=1).values)
    changed = {(row.at["change"], row.at["kept"]): text for row, text in zip(rows, moved, strict=True)}
    assert torch.equal(changed["reverse", 0], whole_text.flip(1))
    assert torch.equal(changed["swap", 0][:, :middle], whole_text[:, middle + 1 :])


def test_who_cannot_tell_left_from_right_does_not_notice_a_mirror():
    changes = {
        form: {row.at["change"]: row.value for row in ordered(model("alibi", masked=True, pe={"form": form}))}
        for form in ("symmetric", "asymmetric")
    }
    assert abs(changes["symmetric"]["reverse"]) < 1e-6 < 1e-4 < abs(changes["asymmetric"]["reverse"])
    assert abs(changes["symmetric"]["shuffle"]) > 1e-4


def test_too_little_text_gives_the_reason():
    rows = ordered(Oracle(), [Document("short", np.zeros(40, dtype=np.uint8))])
    assert {row.reason for row in rows} == {"the test documents hold 26 windows of 15 tokens; 64 are needed"}
