"""Drawing tokens: the cache, temperature, top-k and top-p against slow references, and where a text ends."""

from __future__ import annotations

import itertools

import pytest
import torch

from posbuild.errors import ConfigError
from posbuild.model.sampling import draw, sample
from tests.model.small import LENGTH, VOCABULARY, build, every_scheme

PROMPT = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])


def drawn(logits: torch.Tensor, count: int = 4000, **how) -> torch.Tensor:
    """How often each token is drawn, as shares."""
    generator = torch.Generator().manual_seed(0)
    how = {"temperature": 1.0, "top_k": None, "top_p": None} | how
    tokens = torch.tensor([draw(logits, generator=generator, **how) for _ in range(count)])
    return tokens.bincount(minlength=len(logits)) / count


@every_scheme
def test_greedy_text_is_the_argmax_of_whole_passes(scheme: str) -> None:
    model = build(scheme).eval()
    tokens = list(itertools.islice(sample(model, PROMPT, temperature=0), 20))
    text = PROMPT
    for token in tokens:
        assert token == int(model(text[None])[0, -1].argmax())
        text = torch.cat([text, torch.tensor([token])])


def test_a_text_ends_where_the_encoding_does() -> None:
    model = build("learned").eval()
    # Position 47 is the last that can be read; what it predicts is still written.
    assert len(list(itertools.islice(sample(model, PROMPT), 1000))) == LENGTH - len(PROMPT) + 1
    assert len(list(sample(model, torch.zeros(LENGTH, dtype=torch.int64)))) == 1
    with pytest.raises(ConfigError, match="defined for 48 positions"):
        next(sample(model, torch.zeros(LENGTH + 1, dtype=torch.int64)))


def test_the_same_seed_draws_the_same_text() -> None:
    model = build("rope").eval()
    one, same, other = (list(itertools.islice(sample(model, PROMPT, seed=seed), 40)) for seed in (1, 1, 2))
    assert one == same != other
    assert max(one) < VOCABULARY


def test_shares_are_those_of_the_softmax() -> None:
    logits = torch.tensor([0.0, 2.0, -1.0, 1.0, 0.5], dtype=torch.float64)
    for temperature in (0.5, 1.0, 2.0):
        wanted = torch.exp(logits / temperature)
        wanted /= wanted.sum()
        spread = (wanted * (1 - wanted) / 4000).sqrt()
        assert ((drawn(logits, temperature=temperature) - wanted).abs() < 4 * spread).all()


@pytest.mark.parametrize("temperature", [1e-320, 1e-307, 1e-3])
def test_a_temperature_near_zero_takes_the_most_probable(temperature) -> None:
    assert drawn(torch.tensor([0.0, 2.0, -1.0], dtype=torch.float64), temperature=temperature).tolist() == [0, 1, 0]


def test_top_k_and_top_p_keep_the_most_probable() -> None:
    probabilities = torch.tensor([0.1, 0.4, 0.05, 0.3, 0.15], dtype=torch.float64)
    logits = probabilities.log()

    def kept(**how) -> set[int]:
        return set(drawn(logits, count=1000, **how).nonzero().flatten().tolist())

    assert kept(top_k=1) == {1} and kept(top_k=3) == {1, 3, 4} and kept(top_k=99) == {0, 1, 2, 3, 4}
    assert kept(top_p=0.01) == {1} and kept(top_p=0.39) == {1} and kept(top_p=0.41) == {1, 3}
    assert kept(top_p=0.8) == {1, 3, 4} and kept(top_p=1.0) == {0, 1, 2, 3, 4}
    # 0.4 and 0.3 become 0.571 and 0.429 once top_k has cut.
    assert kept(top_k=2, top_p=0.6) == {1, 3} and kept(top_k=2, top_p=0.5) == {1}
    shares = drawn(logits, top_k=2)
    assert shares[1] == pytest.approx(4 / 7, abs=0.03) and shares[3] == pytest.approx(3 / 7, abs=0.03)


def test_a_tie_goes_to_the_first_token() -> None:
    logits = torch.tensor([1.0, 2.0, 2.0])
    assert draw(logits, 0, None, None, torch.Generator()) == 1
    assert draw(logits, 1.0, 1, None, torch.Generator()) == 1
