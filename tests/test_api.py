"""The way in from Python: build, scores, codes."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import posbuild
from posbuild import registry
from posbuild.errors import ConfigError


def test_build_gives_the_model_that_the_overrides_describe():
    model = posbuild.build("pe=t5", "pe.buckets=8", "pe.max_distance=16", "model=tiny", "model.n_layers=2", "seed=3")
    assert model.encoding.table.shape == (8, 4) and len(model.blocks) == 2
    assert model(torch.zeros(1, 5, dtype=torch.int64)).shape == (1, 5, 256)
    again, other = (posbuild.build("pe=t5", "model.n_layers=2", f"seed={seed}") for seed in (3, 4))
    assert torch.equal(model.embedding.weight, again.embedding.weight)
    assert not torch.equal(model.embedding.weight, other.embedding.weight)


def test_build_leaves_the_hydra_application_around_it_alone():
    from hydra import compose, initialize
    from hydra.core.global_hydra import GlobalHydra

    with initialize(config_path=None, version_base="1.3"):
        held = GlobalHydra.instance().hydra
        posbuild.build("pe=rope")
        with pytest.raises(ConfigError):
            posbuild.build("pe=ropee")
        assert GlobalHydra.instance().hydra is held
        assert compose(overrides=["+a=1"]).a == 1
    posbuild.build("pe=rope")
    assert not GlobalHydra.instance().is_initialized()


def test_build_refuses_a_sweep():
    with pytest.raises(ConfigError, match="experiment=starter"):
        posbuild.build("experiment=starter")
    with pytest.raises(ConfigError, match="rope,alibi"):
        posbuild.build("pe=rope,alibi")


@pytest.mark.filterwarnings("ignore:.*posbuild.codes shows")
def test_scores_are_scaled_products_for_encodings_at_the_input():
    q, k, x = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 7, 12)
    expected = q @ k.transpose(-2, -1) / 2
    for name, scheme in registry.schemes().items():
        scores = posbuild.scores(name, q, k, torch.arange(5), torch.arange(7), x=x)
        assert scores.shape == (2, 3, 5, 7) and scores.dtype == q.dtype
        if scheme.acts_on.name in ("nothing", "input"):
            torch.testing.assert_close(scores, expected)


def test_scores_take_learned_parameters_and_return_their_gradient():
    table = torch.randn(32, 3, dtype=torch.float64, requires_grad=True)
    q = torch.zeros(1, 3, 4, 2, dtype=torch.float64)
    scores = posbuild.scores("t5", q, q, torch.arange(4), torch.arange(4), state={"table": table})
    torch.testing.assert_close(scores[0, :, 3, 1], table[2])
    scores[0, 1, 3, 1].backward()
    assert table.grad is not None and table.grad[2, 1] == 1 and table.grad.count_nonzero() == 1
    for wrong in ({"tabel": table}, {"table": table[:, :2]}, {"table": table[:30]}):
        with pytest.raises(ConfigError, match=r"state has .*, and .* the encoding learns \{'table': \(32, 3\)\}"):
            posbuild.scores("t5", q, q, torch.arange(4), torch.arange(4), state=wrong)


def test_codes_are_for_encodings_at_the_input_only():
    assert posbuild.codes("sinusoidal", torch.arange(3), 4).shape == (3, 4)
    assert posbuild.codes("learned", torch.arange(3), 4).shape == (3, 4)
    with pytest.raises(ConfigError, match="pe=rope has no code at the input: it acts on queries and keys"):
        posbuild.codes("rope", torch.arange(3), 4)
    with pytest.raises(
        ConfigError, match="pe=learned is defined for the positions 0 to 2, and those given reach from 0 to 5"
    ):
        posbuild.codes("learned", torch.arange(6), 4, max_positions=3)
    with pytest.raises(ConfigError, match="reach from -1 to 2"):
        posbuild.codes("learned", torch.arange(-1, 3), 4)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda q, p: posbuild.scores("alibii", q, q, p, p), "pe=alibii .* Nearest: 'alibi'"),
        (lambda q, p: posbuild.scores("alibi", q, q, p, p, frm="causal"), "pe.frm=causal .* Nearest: 'form'"),
        (lambda q, p: posbuild.scores("rope", q, q, p, p, base=0.5), "pe.base=0.5 is out of range: it must be > 1"),
        (lambda q, p: posbuild.scores("rope", q[..., :3], q[..., :3], p, p), "even whole number"),
        (lambda q, p: posbuild.scores("alibi", q, q, p, p, causal=False, form="causal"), "pe.form=symmetric"),
    ],
)
def test_wrong_calls_say_what_would_work(call, message):
    with pytest.raises(ConfigError, match=message):
        call(torch.zeros(1, 2, 5, 4), torch.arange(5))


def test_importing_posbuild_is_quick():
    code = "import sys, posbuild, posbuild.registry, posbuild.settings; posbuild.registry.schemes(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
