"""The fused path against the exact one in float64, and both against softmax written out."""

from __future__ import annotations

import pytest
import torch

from posbuild import registry
from posbuild.attention import Pattern, exact_attention, fused, fused_attention
from posbuild.conformance.cases import build as built_in
from posbuild.conformance.cases import directions
from posbuild.conformance.layer import of_content
from posbuild.declaration import Dims
from posbuild.model import init_parameters
from posbuild.settings import options_of

HEADS, GROUPS, WIDTH = 4, 2, 8


def encoding(scheme: str, causal: bool):
    dims = Dims(d_model=HEADS * WIDTH, n_layers=1, n_heads=HEADS, n_kv_heads=GROUPS, train_length=64, causal=causal)
    built = registry.encoding(
        scheme, options_of(scheme, {"form": "asymmetric"} if scheme == "alibi" and not causal else {}), dims
    )
    init_parameters(built, 0)
    for parameter in built.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(3))
    return built.double()


def case(queries: int, keys: int, causal: bool, documents: bool, window: int | None):
    generator = torch.Generator().manual_seed(0)

    def draw(heads, length):
        return torch.randn(2, heads, length, WIDTH, dtype=torch.float64, generator=generator, requires_grad=True)

    ids = torch.randint(2, (2, keys), generator=generator) if documents else None
    positions = torch.randint(50, (2, keys), generator=generator)  # unsorted, with repeats
    pattern = Pattern(
        positions[:, keys - queries :],
        positions,
        causal=causal,
        window=window,
        q_documents_BQ=None if ids is None else ids[:, keys - queries :],
        k_documents_BK=ids,
    )
    return draw(HEADS, queries), draw(GROUPS, keys), draw(GROUPS, keys), pattern


@pytest.mark.parametrize("scheme", registry.schemes())
@pytest.mark.parametrize("queries, keys", [(1, 1), (7, 7), (1, 9), (5, 12), (16, 16)])
@pytest.mark.parametrize(
    "causal, documents, window",
    [(True, False, None), (False, False, None), (True, True, None), (True, False, 3), (False, True, 4)],
)
def test_fused_equals_exact_in_values_and_gradients(scheme, queries, keys, causal, documents, window):
    if causal not in directions(scheme):
        pytest.skip("causal only")
    q, k, v, pattern = case(queries, keys, causal, documents, window)
    built = encoding(scheme, causal)
    bias = built.at_scores(pattern.q_positions_BQ, pattern.k_positions_BK, 0, built.prepare(pattern.q_positions_BQ))
    kept = built.at_tokens(torch.ones(2, keys, HEADS * WIDTH, dtype=torch.float64).cumsum(dim=1), 0)
    learned = list(built.parameters()) if bias is not None else []
    results = []
    for path in (exact_attention, fused_attention):
        out = path(q, k, v, pattern, bias, 0.3, kept)
        gradients = torch.autograd.grad(
            out.square().sum(), [q, k, v, *learned], retain_graph=True, materialize_grads=True
        )
        results.append([out, *gradients])
    for exact, other in zip(*results, strict=True):
        torch.testing.assert_close(other, exact, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize(
    "scheme", [name for name in registry.schemes() if name in ("none", "t5") or of_content(built_in(name))]
)
@pytest.mark.parametrize("queries, keys", [(16, 16), (7, 12), (1, 9)])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 1, 4, 20])
def test_queries_in_chunks_miss_no_key(scheme, queries, keys, causal, window, monkeypatch):
    """Nor do scores that depend on content depend on the queries beside them."""
    if causal not in directions(scheme):
        pytest.skip("causal only")
    monkeypatch.setattr(fused, "CHUNK", 3)
    q, k, v, pattern = case(queries, keys, causal, True, window)
    built = encoding(scheme, causal)
    with torch.no_grad():
        bias = built.at_scores(pattern.q_positions_BQ, pattern.k_positions_BK, 0, built.prepare(pattern.q_positions_BQ))
        kept = built.at_tokens(torch.ones(2, keys, HEADS * WIDTH, dtype=torch.float64).cumsum(dim=1), 0)
        whole, parts = (path(q, k, v, pattern, bias, 0.3, kept) for path in (exact_attention, fused_attention))
    torch.testing.assert_close(parts, whole, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 1, 4])
def test_keys_out_of_reach_are_those_that_no_query_sees(causal, window):
    *_, pattern = case(7, 12, causal, False, window)
    for begin in range(7):
        for end in range(begin + 1, 8):
            seen = pattern.visible()[0, 0, begin:end].any(dim=0).nonzero()
            assert pattern.reach(slice(begin, end)) == slice(int(seen.min()), int(seen.max()) + 1)


def test_exact_is_softmax_written_out():
    q, k, v, pattern = case(3, 5, causal=True, documents=False, window=None)
    out = exact_attention(q, k, v, pattern, None, 0.3)
    for head in range(HEADS):
        for row in range(3):
            seen = range(row + 3)  # the queries are the last three of five tokens
            weights = torch.stack([(0.3 * (q[0, head, row] * k[0, head // 2, column]).sum()).exp() for column in seen])
            expected = sum(weights[column] / weights.sum() * v[0, head // 2, column] for column in seen)
            torch.testing.assert_close(out[0, head, row], expected, atol=1e-12, rtol=0)


def test_layers_that_share_a_bias_share_its_dense_form():
    built = encoding("t5", True)
    positions = torch.arange(6)[None]
    pattern, shared = Pattern(positions, positions, causal=True), built.prepare(positions)
    first, second = (
        pattern.added(built.at_scores(positions, positions, layer, shared), torch.float32) for layer in (0, 1)
    )
    assert first is second
