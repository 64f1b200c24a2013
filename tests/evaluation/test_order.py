import numpy as np
import pytest

from posbuild.data.corpora import Document
from posbuild.evaluation.order import change, changes, order
from posbuild.records import NOT_MEASURED, NOT_SUPPORTED
from tests.evaluation.small import LENGTH, Bigram, Oracle, documents, model, uniform_model

TEXT = documents(700, 500)


def rises(held, text=TEXT, windows=512, batch_tokens=4000, train_length=LENGTH):
    return order(held, text, train_length=train_length, windows=windows, batch_tokens=batch_tokens)


def test_the_changes():
    assert changes(64) == [{"change": "shuffle", "kept": r} for r in (0, 8, 16, 32)] + [
        {"change": name, "kept": 0} for name in ("reverse", "swap")
    ]
    assert changes(4) == [{"change": "shuffle", "kept": r} for r in (0, 1)] + [
        {"change": name, "kept": 0} for name in ("reverse", "swap")
    ]


def test_what_each_change_does():
    text = np.arange(7)[None]
    ranks = np.array([[3, 0, 2, 1, 9, 9, 9]])
    assert change(text, "reverse", np.arange(5), ranks).tolist() == [[4, 3, 2, 1, 0, 5, 6]]
    assert change(text, "swap", np.arange(5), ranks).tolist() == [[2, 3, 4, 0, 1, 5, 6]]
    assert change(text, "shuffle", np.arange(4), ranks).tolist() == [[1, 3, 2, 0, 4, 5, 6]]
    around = np.array([0, 1, 5, 6])
    assert change(text, "reverse", around, ranks).tolist() == [[6, 5, 2, 3, 4, 1, 0]]
    assert change(text, "swap", around, ranks).tolist() == [[5, 6, 2, 3, 4, 0, 1]]


@pytest.mark.parametrize("held", [uniform_model(), Bigram()])
def test_a_model_that_sees_the_last_token_alone_does_not_notice(held):
    assert [row.value for row in rises(held)] == [0.0] * 5


def test_a_model_that_looks_four_tokens_back_notices_what_reaches_there():
    class FourBack(Oracle):
        def expected(self, tokens, window):
            return tokens.roll(4, dims=1)

    text = [Document("cycle", np.tile(np.array([3, 1, 4, 2, 5], dtype=np.uint8), 200))]
    rows = {(row.at["change"], row.at["kept"]): row.value for row in rises(FourBack(), text)}
    assert rows["shuffle", 8] == rows["shuffle", 4] == 0
    assert rows["shuffle", 0] > 3 and rows["reverse", 0] > 3 and rows["swap", 0] > 3


def test_only_tokens_that_move_change_and_the_target_never():
    held = Bigram()
    rises(held, batch_tokens=10**6)
    whole, *moved = held.read
    for at, text in zip(changes(LENGTH), moved, strict=True):
        assert text.shape == (512, LENGTH)
        assert np.array_equal(text[:, -1 - at["kept"] :], whole[:, -1 - at["kept"] :])
        assert np.array_equal(text.sort(dim=1).values, whole.sort(dim=1).values)
        assert (text != whole).any(dim=1).float().mean() > 0.9


def test_counts_and_documents():
    for row in rises(model()):
        assert row.count == sum(count for _, _, count in row.groups) == 512
        assert [name for name, _, _ in row.groups] == ["text0", "text1"]


def test_batch_size_changes_nothing():
    expected = [row.value for row in rises(model("rope"), windows=64)]
    assert [row.value for row in rises(model("rope"), windows=64, batch_tokens=500)] == pytest.approx(
        expected, abs=1e-6
    )


def test_a_bag_of_words_does_not_notice():
    held = model("none", model={"n_layers": 1})  # one layer without encoding: the last token sees a bag
    assert [row.value for row in rises(held)] == pytest.approx([0.0] * 5, abs=1e-6)
    assert max(abs(row.value) for row in rises(model("rope", model={"n_layers": 1}))) > 1e-4


def test_a_table_shorter_than_the_window_is_not_supported():
    rows = rises(model("learned"), train_length=2 * LENGTH)
    assert {(row.status, row.reason) for row in rows} == {(NOT_SUPPORTED, f"not supported beyond {LENGTH}")}


def test_too_little_text_gives_the_reason():
    rows = rises(Bigram(), documents(100))
    assert {(row.status, row.reason) for row in rows} == {
        (NOT_MEASURED, "the test documents hold 84 windows of 16 tokens; 512 are needed")
    }
