"""Count models: a tiny text worked out by hand, proper probabilities, and the values of the default corpus."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from posbuild.data.corpora import Document, load
from posbuild.data.ngrams import PRIOR, NgramModel
from posbuild.data.vocabulary import Vocabulary
from posbuild.errors import ConfigError
from posbuild.settings import DataSettings


def documents(*texts: bytes) -> list[Document]:
    return [Document(str(number), np.frombuffer(text, dtype=np.uint8)) for number, text in enumerate(texts)]


def test_a_tiny_text_by_hand():
    # Trained on "abab" and "ba": three a and three b; ab twice, ba twice; aba and bab once each. Asked for the b of "aba".
    model = NgramModel(documents(b"abab", b"ba"))
    alone = (3 + PRIOR / 256) / (6 + PRIOR)
    after_a, before_a = (2 + PRIOR * alone) / (2 + PRIOR), (2 + PRIOR * alone) / (2 + PRIOR)
    expected = (1 + PRIOR * (after_a + before_a) / 2) / (1 + PRIOR)
    assert model.losses(documents(b"aba"))["neighbours"] == pytest.approx(-log(expected), abs=1e-12)
    assert NgramModel([]).losses(documents(b"any text"))["neighbours"] == pytest.approx(log(256))


@pytest.mark.parametrize("around", [b"ab", b"aa", b"zz", b"az", b"\xff\x00", b"uw", b"vw", b"uv"])
def test_probabilities_between_seen_and_unseen_neighbours_sum_to_one(around):
    # In the last document no token ends as many pairs as it begins.
    model = NgramModel(documents(b"abracadabra", b"\x00\xff\x00", b"uvw"))
    chances = model.probabilities_between((around[0] * 256 + np.arange(256)) * 256 + around[1])
    assert chances.sum() == pytest.approx(1, abs=1e-12) and chances.min() > 0


def test_nothing_to_score_is_refused():
    with pytest.raises(ConfigError, match="need a document of at least 3 tokens; the longest has 2"):
        NgramModel(documents(b"abc")).losses(documents(b"ab", b"a"))


def test_the_values_of_the_default_corpus():
    # The reference values 3.07, 2.40, 1.89 nats/byte were counted on another split of it and smoothed another way.
    corpus = load(DataSettings())
    losses = NgramModel(corpus.train).losses(corpus.test)
    expected = {"unigram": 3.0701, "bigram": 2.4046, "trigram": 1.8910, "neighbours": 1.5176}
    assert losses == pytest.approx(expected, abs=1e-4)


# ------------------------------------------------------------------------------------------------- other vocabularies


def tokens_of(size: int, *texts: list[int]) -> list[Document]:
    vocabulary = Vocabulary([b"x"] * size)
    return [Document(str(n), np.array(text, dtype=vocabulary.dtype), vocabulary) for n, text in enumerate(texts)]


@pytest.mark.parametrize("size", [300, 100_000, 2**21 - 1])
def test_tokens_of_any_vocabulary_are_counted_as_bytes_are(size):
    # The same text in other numbers, the largest among them: only the share of what was never seen depends on V.
    rename = {ord("a"): size - 1, ord("b"): 0, ord("c"): size // 2}
    texts = (b"abcabacab", b"ba", b"c")
    renamed = tokens_of(size, *([rename[byte] for byte in text] for text in texts))
    one = (4 + PRIOR / size) / (12 + PRIOR)  # p(b), which stands 4 times among 12 tokens
    two = (3 + PRIOR * one) / (4 + PRIOR)  # p(b|a): "ab" 3 times, "a" with a token after it 4 times
    three = (2 + PRIOR * two) / (2 + PRIOR)  # p(b|ca): "ca" twice with a token after it, "b" both times
    run = np.array([(rename[ord("c")] * size + rename[ord("a")]) * size + rename[ord("b")]])
    by_order = {name: chance[0] for name, chance in NgramModel(renamed).probabilities(run).items()}
    assert by_order == pytest.approx({"unigram": one, "bigram": two, "trigram": three}, rel=1e-12)


def test_probabilities_over_a_larger_vocabulary_sum_to_one():
    model = NgramModel(tokens_of(1000, [999, 0, 500, 999, 0, 7]))
    for context in ([999, 0], [3, 4]):
        runs = (context[0] * 1000 + context[1]) * 1000 + np.arange(1000)
        for chances in model.probabilities(runs).values():
            assert chances.sum() == pytest.approx(1, abs=1e-12)
