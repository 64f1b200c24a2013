"""The model with every scheme: decoding, padding, packing, causality, starts, parameter counts."""

from __future__ import annotations

import pytest
import torch

from posbuild import registry
from posbuild.declaration import ActsOn
from posbuild.errors import ConfigError
from posbuild.model.transformer import SquaredReLU
from posbuild.settings import Activation, Norm
from tests.model.small import LENGTH, VOCABULARY, build, every_direction, every_scheme, tokens


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def decoded(model, x, chunk):
    cache = model.new_cache(len(x), capacity=5)  # grows on the way
    return torch.cat([model(part, cache=cache) for part in x.split(chunk, dim=1)], dim=1)


@every_scheme
@pytest.mark.parametrize("chunk", [1, 2, 7, 33])
def test_decoding_in_chunks_equals_the_full_forward(scheme, chunk):
    """Of schemes that are not prefix-stable up to the train length, and not beyond."""
    model = build(scheme)
    x = tokens(2, model.longest or 2 * LENGTH)
    if not registry.scheme(scheme).prefix_stable:
        assert (decoded(model, x, chunk) - model(x)).abs().max() > 1e-3
        x = x[:, :LENGTH]
    torch.testing.assert_close(decoded(model, x, chunk), model(x), atol=1e-5, rtol=0)


@every_direction
def test_padding_and_neighbours_leave_a_text_alone(scheme, causal):
    """One text of ten tokens alone, padded on the left, padded on the right, beside a longer row."""
    model = build(scheme, causal=causal)
    text, longer = tokens(1, 10), tokens(1, 16, seed=1)
    alone = model(text)
    filler = torch.zeros(1, 6, dtype=torch.int64)
    left, right = torch.cat([filler, text], dim=1), torch.cat([text, filler], dim=1)
    padding, real = torch.full((1, 6), -1), torch.zeros(1, 10, dtype=torch.int64)
    batch = torch.cat([left, right, longer])
    documents = torch.cat(
        [torch.cat([padding, real], 1), torch.cat([real, padding], 1), torch.zeros(1, 16, dtype=torch.int64)]
    )
    together = model(batch, documents=documents)
    torch.testing.assert_close(together[:1, 6:], alone, atol=1e-5, rtol=0)
    torch.testing.assert_close(together[1:2, :10], alone, atol=1e-5, rtol=0)
    torch.testing.assert_close(together[2:], model(longer), atol=1e-5, rtol=0)


@every_direction
def test_packed_documents_equal_each_alone(scheme, causal):
    model = build(scheme, causal=causal)
    texts = [tokens(1, length, seed=length) for length in (10, 7, 13)]
    documents = torch.cat([torch.full_like(text, name) for name, text in zip((4, 0, 9), texts, strict=True)], dim=1)
    packed = model(torch.cat(texts, dim=1), documents=documents)
    torch.testing.assert_close(packed, torch.cat([model(text) for text in texts], dim=1), atol=1e-5, rtol=0)


@every_scheme
def test_decoding_packed_rows_equals_the_full_forward(scheme):
    """Two rows of other documents, the first padded on the left, in chunks through one cache."""
    model = build(scheme)
    x = tokens(2, 20)
    documents = torch.tensor([[-1] * 5 + [0] * 15, [3] * 8 + [1] * 12])
    cache = model.new_cache(2)
    parts = [
        model(a, documents=b, cache=cache) for a, b in zip(x.split(6, dim=1), documents.split(6, dim=1), strict=True)
    ]
    torch.testing.assert_close(
        torch.cat(parts, dim=1)[documents >= 0], model(x, documents=documents)[documents >= 0], atol=1e-5, rtol=0
    )


@every_scheme
def test_no_token_sees_a_later_one(scheme):
    model = build(scheme)
    x, changed = tokens(1, 24), tokens(1, 24)
    changed[0, 15] = (changed[0, 15] + 1) % VOCABULARY
    before, after = model(x), model(changed)
    assert torch.equal(before[:, :15], after[:, :15])
    assert not torch.allclose(before[:, 15:], after[:, 15:])
    embedded = model.embedding(x).detach().requires_grad_()
    with torch.enable_grad():
        hook = model.embedding.register_forward_hook(lambda *_: embedded)
        model(x)[0, 15].sum().backward()
        hook.remove()
    assert embedded.grad is not None
    assert not embedded.grad[0, 16:].any() and embedded.grad[0, :16].abs().sum(-1).all()


@every_scheme
def test_a_row_is_the_same_alone_and_in_a_batch(scheme):
    model = build(scheme)
    batch = tokens(5, 20)
    torch.testing.assert_close(model(batch)[3:4], model(batch[3:4]), atol=1e-5, rtol=0)


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
def test_every_parameter_gets_a_gradient(scheme):
    with torch.enable_grad():
        model = build(scheme)
        model(tokens(2, LENGTH)).square().sum().backward()
    assert [
        name for name, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()
    ] == []


@every_scheme
def test_learns_nothing_exactly_if_the_declaration_says_so(scheme):
    positional = sum(parameter.numel() for parameter in build(scheme).encoding.parameters())
    assert (positional == 0) == registry.scheme(scheme).learns.startswith("nothing")


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


def test_a_table_refuses_positions_beyond_it_however_they_come():
    model = build("learned")
    with pytest.raises(ConfigError, match=f"reaches position {LENGTH} "):
        model(tokens(1, 2), positions=torch.tensor([[0, LENGTH]]))
    cache = model.new_cache(1)
    model(tokens(1, LENGTH), cache=cache)
    with pytest.raises(ConfigError, match=f"reaches position {LENGTH} "):
        model(tokens(1, 1), cache=cache)
    two = torch.arange(2).repeat_interleave(LENGTH)[None]
    assert model(tokens(1, 2 * LENGTH), documents=two).isfinite().all()  # each document counts from 0


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


@every_scheme
def test_compiles_whole_and_for_every_length(scheme):
    """With a second layer where layers may share a bias; of the others it would be the first once more."""
    torch._dynamo.reset()  # the models of all schemes share one forward, and so its limit of compilations
    model = build(scheme, n_layers=2 if registry.scheme(scheme).acts_on is ActsOn.scores else 1)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for length in (32, 48, 40):
        torch.testing.assert_close(compiled(tokens(1, length)), model(tokens(1, length)), atol=5e-6, rtol=0)


def test_a_cache_needs_a_causal_model():
    model = build("none", causal=False)
    with pytest.raises(ValueError, match="causal models only"):
        model(tokens(1, 3), cache=model.new_cache(1))
