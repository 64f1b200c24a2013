"""The model with every scheme: decoding, padding, packing, causality, starts, parameter counts."""

from __future__ import annotations

import pytest
import torch

from posbuild.errors import ConfigError
from posbuild.model.transformer import SquaredReLU
from posbuild.settings import Activation, Norm
from tests.model.small import LENGTH, VOCABULARY, build, every_scheme, tokens


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def decoded(model, x, chunk):
    cache = model.new_cache(len(x), capacity=5)  # grows on the way
    return torch.cat([model(part, cache=cache) for part in x.split(chunk, dim=1)], dim=1)


@every_scheme
def test_window_counts_the_query_itself(scheme):
    """Window 4, one layer, ten tokens, token 0 changed: row 3 still sees it, row 4 is the first that does not."""
    model = build(scheme, n_layers=1)
    x = tokens(1, 10)
    changed = x.clone()
    changed[0, 0] = (changed[0, 0] + 1) % VOCABULARY
    moved = (model(x, window=4) - model(changed, window=4)).abs().amax(dim=-1)[0]
    assert moved[:4].all() and not moved[4:].any()
    cache, other = model.new_cache(1), model.new_cache(1)
    for a, b, reference in zip(x.split(1, 1), changed.split(1, 1), model(x, window=4).split(1, 1), strict=True):
        step = model(a, cache=cache, window=4)
        torch.testing.assert_close(step, reference, atol=1e-5, rtol=0)
        assert torch.equal(step, model(b, cache=other, window=4)) == (cache.length > 4)


@every_scheme
def test_shared_parameters_start_equal_whatever_the_scheme(scheme):
    model, bare = build(scheme, awake=False), build("none", awake=False)
    own = dict(model.named_parameters())
    for name, parameter in bare.named_parameters():
        assert torch.equal(own.pop(name), parameter), name
    assert all(name.startswith("encoding.") for name in own)
    assert not torch.equal(build(scheme, seed=1, awake=False).embedding.weight, bare.embedding.weight)


@every_scheme
def test_global_chance_does_not_reach_the_start(scheme):
    torch.manual_seed(1)
    first = build(scheme, awake=False).state_dict()
    torch.manual_seed(2)
    second = build(scheme, awake=False).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


@every_scheme
def test_runs_at_every_length_or_names_its_limit(scheme):
    model = build(scheme)
    for length in (1, LENGTH, LENGTH + 1, 2 * LENGTH, 16 * LENGTH):
        if model.longest is None or length <= model.longest:
            assert model(tokens(1, length)).isfinite().all()
        else:
            with pytest.raises(ConfigError, match=rf"defined for {model.longest} positions .*\({length} tokens\)"):
                model(tokens(1, length))
    torch.testing.assert_close(
        model(tokens(1, LENGTH)), model(tokens(1, LENGTH)), atol=0, rtol=0
    )  # long inputs left no trace


@every_scheme
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32])
def test_half_precision_stays_near(scheme, precision):
    """Under autocast and after a cast the logits of a long input move by rounding alone, not with the position."""
    exact, model = build(scheme).double(), build(scheme)
    x = tokens(1, model.longest or 16 * LENGTH)
    reference = exact(x)
    spread = reference.std()
    bound = {torch.bfloat16: 0.1, torch.float32: 1e-4}[
        precision
    ]  # some ten roundings of 2^-8 and 2^-24, of the spread of the logits
    with torch.autocast("cpu", precision, enabled=precision is not torch.float32):
        mixed = model(x).double()
    cast = model.to(precision)(x).double()
    for logits in (mixed, cast):
        error = (logits - reference).abs().amax(dim=(0, 2)) / spread
        assert error.mean() < bound
        assert error[-LENGTH:].mean() < 3 * error[:LENGTH].mean() + bound / 10


def test_the_squared_relu_has_the_gradient_of_its_formula_and_no_second_one():
    x = torch.tensor([-2.0, -0.5, 0.0, 0.5, 3.0], dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        y = SquaredReLU.apply(x)
        (gradient,) = torch.autograd.grad((y * x).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):  # never a wrong number
            gradient.sum().backward()
    assert y.tolist() == [0, 0, 0, 0.25, 9]
    assert gradient.tolist() == [0, 0, 0, 0.75, 27]


@pytest.mark.parametrize("norm", Norm)
@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("bias", [False, True])
def test_every_choice_of_parts_builds_and_counts(norm, activation, bias):
    width, inner = 48, 128 if activation is Activation.swiglu else 192
    model = build("none", norm=norm, activation=activation, bias=bias, n_kv_heads=None, n_layers=1)
    matrices = 4 * width**2 + width * inner * (3 if activation is Activation.swiglu else 2)
    norms = 3 * width * (2 if norm is Norm.layernorm else 1)
    biases = (4 * width + inner * (2 if activation is Activation.swiglu else 1) + width) if bias else 0
    assert (
        sum(parameter.numel() for parameter in model.parameters()) == matrices + norms + biases + 2 * VOCABULARY * width
    )
    assert model(tokens(1, 5)).shape == (1, 5, VOCABULARY)


def test_tied_embeddings_are_one_matrix_that_starts_as_the_token_vectors():
    tied, untied = build("none", tie_embeddings=True, awake=False), build("none", awake=False)
    assert tied.head.weight is tied.embedding.weight
    assert torch.equal(tied.embedding.weight, untied.embedding.weight)
    assert not untied.head.weight.any()


def test_an_untrained_model_gives_every_token_the_same_chance():
    assert torch.equal(
        build("rope", awake=False)(tokens(1, 9)).softmax(-1), torch.full((1, 9, VOCABULARY), 1 / VOCABULARY)
    )


def test_a_cache_needs_a_causal_model():
    model = build("none", causal=False)
    with pytest.raises(ValueError, match="causal models only"):
        model(tokens(1, 3), cache=model.new_cache(1))
