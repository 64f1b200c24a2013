"""Position numbers in training: what each choice draws, that draws depend on seed and batch alone, and what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from posbuild import records
from posbuild.comparison.runs import label
from posbuild.errors import ConfigError
from posbuild.evaluation.losses import token_losses
from posbuild.model import model_of
from posbuild.model.sampling import sample
from posbuild.overrides import settings_of
from posbuild.positions import DRAWS, Numbering
from posbuild.settings import PositionsName, PositionsSettings, check, from_plain
from posbuild.training.load import load
from posbuild.training.module import LanguageModel
from posbuild.training.run import run
from tests.training.helpers import tiny, write_corpus

LENGTH, ROWS = 16, 500
DRAWN = [name for name in PositionsName if name is not PositionsName.plain]


def draw(name, batch=0, process=0, seed=0, rows=ROWS, **values):
    settings = PositionsSettings(name=PositionsName[name], **values)
    return Numbering(settings, LENGTH, seed).in_training(rows, LENGTH, batch, process)


def test_every_choice_but_plain_draws():
    assert {*DRAWS} == {*DRAWN}
    assert draw("plain") is None and Numbering(PositionsSettings(), LENGTH, 0).in_evaluation(range(2), 9) is None


@pytest.mark.parametrize("name", DRAWN)
def test_draws_depend_on_seed_batch_and_process_alone(name):
    first = draw(name.name)
    assert first.shape == (ROWS, LENGTH) and torch.equal(first, draw(name.name))
    assert first.dtype == (torch.float32 if name is PositionsName.cape else torch.int64)
    for other in (draw(name.name, seed=1), draw(name.name, batch=1), draw(name.name, process=1)):
        assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])  # a row each


def test_randomised_numbers_are_a_sorted_draw_without_repeats_each_as_likely():
    """The fault to catch: unsorted numbers, or numbers of the window's own length."""
    numbers = draw("randomised", largest=40)
    assert (numbers.diff(dim=1) > 0).all() and numbers.min() == 0 and numbers.max() == 39
    shares = np.bincount(numbers.flatten(), minlength=40) / ROWS
    assert np.abs(shares - LENGTH / 40).max() < 0.1  # each within 4.5 standard deviations of 0.4


def test_shape_shifts_each_window_as_a_whole():
    numbers = draw("shape", max_shift=5)
    assert (numbers.diff(dim=1) == 1).all() and {*numbers[:, 0].tolist()} == {*range(6)}
    assert {*draw("shape")[:, 0].tolist()} == {*range(LENGTH + 1)}  # null: the train length


def test_cape_shifts_and_stretches_and_keeps_the_order():
    """Global alone, local alone, scale alone, each within its bound and reaching near it; then all with the defaults."""
    off = {"global_shift": 0.0, "local_shift": 0.0, "scale": 1.0}
    plain = torch.arange(LENGTH)
    shift = draw("cape", **off | {"global_shift": 3.0}) - plain
    assert (
        torch.allclose(shift, shift[:, :1].expand_as(shift), atol=1e-5)
        and -3 <= shift.min() < -2.9 < 2.9 < shift.max() <= 3
    )
    local = draw("cape", **off | {"local_shift": 0.5}) - plain
    assert -0.5 <= local.min() < -0.49 and 0.49 < local.max() <= 0.5 and local.std(dim=1).min() > 0.1
    ratio = draw("cape", **off | {"scale": 2.0})[:, 1:] / plain[1:]
    assert torch.allclose(ratio, ratio[:, :1].expand_as(ratio), rtol=1e-5)
    assert 0.5 <= ratio.min() < 0.51 and 1.98 < ratio.max() <= 2 and 0.4 < (ratio[:, 0] < 1).double().mean() < 0.6
    assert (draw("cape").diff(dim=1) > 0).all()
    assert torch.equal(draw("cape", **off), plain.float().expand(ROWS, -1))


def test_pose_skips_once_and_meets_every_distance_to_the_target():
    numbers = draw("pose", target_length=64)
    steps = numbers.diff(dim=1)
    assert (numbers[:, 0] == 0).all() and ((steps != 1).sum(dim=1) <= 1).all() and (steps >= 1).all()
    assert numbers[:, -1].min() == LENGTH - 1 and numbers.max() == 63
    firsts = {1 + int(row.argmax()) for row in steps if row.max() > 1}
    assert firsts == {*range(1, LENGTH // 2 + 1)}  # tokens of the first chunk, at most half of the window
    assert draw("pose").max() > 15 * LENGTH and draw("pose").max() < 16 * LENGTH  # null: 16 train lengths


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize("name", DRAWN)
def test_training_is_given_the_numbers_and_the_text_stays_the_same(name, corpus):
    settings = tiny(corpus, positions={"name": name.name}, pe={"name": "sinusoidal"})
    module, plain = (
        LanguageModel(each, model_of(each)) for each in (settings, tiny(corpus, pe={"name": "sinusoidal"}))
    )
    for one, other in zip(module.parameters(), plain.parameters(), strict=True):
        assert torch.equal(one, other)
    with torch.no_grad():
        module.model.head.weight.normal_(generator=torch.Generator().manual_seed(0))
        plain.model.head.weight.copy_(module.model.head.weight)
    batch, given = torch.randint(256, (3, LENGTH + 1), generator=torch.Generator().manual_seed(0)), []
    forward = module.model.forward
    module.model.forward = lambda tokens, positions=None: (
        given.append((tokens, positions)) or forward(tokens, positions)
    )
    module.training_step(batch, 7)
    tokens, positions = given[0]
    assert torch.equal(tokens, batch[:, :-1])
    assert torch.equal(positions, Numbering(settings.positions, LENGTH, 0).in_training(3, LENGTH, 7, 0))
    plain.training_step(batch, 7)
    assert module.losses[0] != plain.losses[0]


def test_only_randomised_numbers_are_drawn_in_evaluation(corpus):
    windows = torch.randint(256, (5, LENGTH + 1), generator=torch.Generator().manual_seed(1))
    by_name = {}
    for name in PositionsName:
        model = model_of(tiny(corpus, positions={"name": name.name}, pe={"name": "sinusoidal"})).double()
        torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
        by_name[name.name] = token_losses(model, windows)
        whole, parts = (token_losses(model, windows, batch_tokens=size) for size in (1000, 2 * LENGTH))
        np.testing.assert_allclose(parts, whole, atol=1e-9)  # a row has its numbers in whichever batch it comes
        cut = token_losses(model, windows, last=1, window=3)
        np.testing.assert_allclose(cut, token_losses(model, windows, window=3)[:, -1:], atol=1e-9)
    for name in ("shape", "cape", "pose"):
        np.testing.assert_array_equal(by_name[name], by_name["plain"])
    assert np.abs(by_name["randomised"] - by_name["plain"]).max() > 1e-3


def test_no_text_is_read_beyond_the_numbers_that_there_are(corpus):
    model = model_of(tiny(corpus, positions={"name": "randomised", "largest": 20}))
    assert model.longest == 20 and model_of(tiny(corpus)).longest is None
    with pytest.raises(ConfigError, match="20 positions"):
        model(torch.zeros(1, 21, dtype=torch.int64))


def test_text_is_written_on_the_numbers_of_its_whole_length(corpus):
    model = model_of(tiny(corpus, positions={"name": "randomised", "largest": 200}, pe={"name": "sinusoidal"}))
    torch.nn.init.normal_(model.head.weight, std=5, generator=torch.Generator().manual_seed(0))
    prompt = torch.tensor([1, 2, 3])
    tokens = list(itertools.islice(sample(model, prompt, temperature=0, most=9), 9))
    whole = torch.cat([prompt, torch.tensor(tokens)])[None]
    numbers = model.numbering.in_evaluation(range(1), 12)
    assert model(whole, numbers)[0, 2:-1].argmax(-1).tolist() == tokens


@pytest.mark.parametrize("name", DRAWN)
def test_a_run_with_drawn_numbers_is_read_back(name, corpus, tmp_path):
    settings = tiny(corpus, positions={"name": name.name}, pe={"name": "sinusoidal"})
    assert run(settings, tmp_path / "run", "", lambda line: None) == records.COMPLETE
    model, read = load(tmp_path / "run")
    assert read.positions == settings.positions and model.numbering.settings == settings.positions


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["positions=pose", "pe=none"],
            "positions=pose changes nothing with pe=none, which goes by the order of the tokens",
        ),
        (
            ["positions=shape", "pe=rope"],
            "positions=shape shifts all tokens of a window alike, and pe=rope goes by their",
        ),
        (["positions=cape", "pe=relative"], "positions=cape numbers tokens by fractions, and pe=relative"),
        (["positions=randomised", "pe=learned"], "draws numbers up to 2047, and pe=learned is defined for 0 to 63"),
        (["positions=shape", "pe=learned"], "draws numbers up to 127, and pe=learned is defined for 0 to 63"),
        (["positions=pose", "pe=learned"], "draws numbers up to 1023, and pe=learned is defined for 0 to 63"),
        (
            ["positions=randomised", "positions.largest=63"],
            "positions.largest=63 leaves no number for each of the 64 tokens",
        ),
        (["positions=pose", "positions.target_length=32"], "positions.target_length=32 leaves no number for each of"),
        (["positions.largest=100"], "positions.largest=100 is read by positions=randomised only"),
        (["positions=shape", "positions.scale=1.5"], "positions.scale=1.5 is read by positions=cape only"),
        (["positions=cape", "positions.scale=0.9"], "positions.scale=0.9 is out of range"),
        (["positions=cape", "positions.local_shift=0.6"], "positions.local_shift=0.6 is out of range"),
    ],
)
def test_what_cannot_be_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        check(settings_of(*overrides))


def test_a_table_that_is_large_enough_takes_drawn_numbers():
    check(settings_of("positions=randomised", "pe=learned", "pe.max_positions=2048"))
    check(settings_of("positions=shape", "pe=learned", "pe.max_positions=128"))


def test_the_hash_knows_the_numbers_and_old_runs_keep_theirs():
    plain, shape = settings_of("pe=sinusoidal"), settings_of("pe=sinusoidal", "positions=shape")
    assert "positions" not in plain.decisive and shape.hash != plain.hash
    assert shape.hash == settings_of("pe=sinusoidal", "positions=shape", "positions.max_shift=64").hash
    assert shape.hash != settings_of("pe=sinusoidal", "positions=shape", "positions.max_shift=65").hash
    content = plain.plain()
    del content["positions"]
    assert from_plain(content).hash == plain.hash


def test_labels_tell_the_numbers_apart():
    assert label(settings_of("pe=rope").plain()) == "rope"
    assert label(settings_of("pe=rope", "pe.base=500", "positions=pose").plain()) == "rope base=500 positions=pose"
    randomised = settings_of("positions=randomised", "positions.largest=512").plain()
    assert label(randomised) == "rope positions=randomised largest=512"
