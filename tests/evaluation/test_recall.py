import numpy as np
import pytest

from posbuild.evaluation.recall import distances, recall
from posbuild.records import MEASURED, NOT_MEASURED, NOT_SUPPORTED
from tests.evaluation.small import LENGTH, Bigram, Copier, documents, model

TEXT = documents(2000, 1500, 800)


def gains(held, text=TEXT, passages=64, batch_tokens=2000):
    return recall(held, text, train_length=LENGTH, passages=passages, batch_tokens=batch_tokens)


def test_distances_lie_inside_and_beyond_the_train_length():
    assert [row.at["distance"] for row in gains(Bigram())] == distances(64 // 4) == [8, 12, 32, 64, 128]


def test_a_model_that_copies_recalls_as_far_as_it_looks_back():
    rows = {row.at["distance"]: row.value for row in gains(Copier(reach=2 * LENGTH))}
    # The first two of four tokens have no pair to go by; the last two cost -ln 0.9 in place of ln 256.
    assert [rows[distance] for distance in (8, 12, 32)] == pytest.approx([5.44 / 2] * 3, abs=0.3)
    assert [rows[distance] for distance in (64, 128)] == pytest.approx([0, 0], abs=0.1)


def test_a_model_that_looks_at_one_token_recalls_nothing():
    assert [row.value for row in gains(Bigram())] == [0.0] * 5


def test_the_two_inputs_differ_in_the_first_passage_alone():
    held, size = Bigram(), LENGTH // 4
    gains(held, batch_tokens=10**6)
    ends = []
    for distance, again, control in zip(distances(LENGTH), held.read[0::2], held.read[1::2], strict=True):
        assert again.shape == control.shape == (64, distance + size - 1)
        assert np.array_equal(again[:, size:], control[:, size:])
        assert np.array_equal(again[:, : size - 1], again[:, distance:])  # the passage's last token is a target alone
        assert (again[:, :size] != control[:, :size]).any(dim=1).all()
        ends.append(again[:, distance - 4 :])
    assert all(np.array_equal(end, ends[0]) for end in ends)  # the same nearest context at every distance


def test_counts_and_documents():
    for row in gains(model()):
        assert (row.count, row.unit) == (64, "nats/token")
        assert sum(count for _, _, count in row.groups) == 64 and len(row.groups) == 3
        assert sum(total for _, total, _ in row.groups) / 64 == pytest.approx(row.value)


def test_batch_size_changes_nothing():
    expected = [row.value for row in gains(model("t5"))]
    assert [row.value for row in gains(model("t5"), batch_tokens=300)] == pytest.approx(expected, abs=1e-6)
    assert np.abs(expected).max() > 1e-3


def test_learned_positions_have_no_number_beyond_the_table():
    rows = gains(model("learned"))
    assert [row.status for row in rows] == [MEASURED] * 2 + [NOT_SUPPORTED] * 3
    assert {row.reason for row in rows[2:]} == {f"not supported beyond {LENGTH}"}


def test_one_document_will_do():
    rows = {row.at["distance"]: row.value for row in gains(Copier(reach=10**6), documents(1000))}
    assert all(value > 2 for value in rows.values())


def test_too_little_text_gives_the_reason():
    assert {row.reason for row in gains(Bigram(), documents(100))} == {
        "the test documents hold 25 passages of 4 tokens; 64 are needed"
    }
    few = gains(Bigram(), documents(300, 50))
    assert {row.status for row in few} == {
        NOT_MEASURED
    } and "beside a passage the test documents hold 50 tokens" in few[0].reason
