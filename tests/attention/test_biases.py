"""Biases as attention holds them: their size, and their values in half precision."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from posbuild import registry
from posbuild.attention import Pattern, fused_attention
from posbuild.conformance.cases import biases, build, dims
from posbuild.conformance.layer import of_content
from posbuild.declaration import ActsOn
from tests.model import small

BIASES = biases()
OF_POSITIONS = [name for name in registry.schemes() if not of_content(build(name))]  # what they add, if anything


def pattern_of(length, causal=True):
    positions = torch.arange(length)[None]
    return Pattern(positions, positions, causal=causal)


class Largest(TorchDispatchMode):
    """Bytes of the largest memory behind any result inside the block with a row of queries and a column of keys."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length, self.bytes = length, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        for each in results if isinstance(results, tuple | list) else [results]:
            if isinstance(each, torch.Tensor) and each.shape[-2:] == (self.length, self.length):
                self.bytes = max(self.bytes, each.untyped_storage().nbytes())
        return results


@pytest.mark.parametrize("scheme", OF_POSITIONS)
def test_what_a_forward_pass_holds_for_every_pair_of_tokens_does_not_grow_with_the_batch(scheme):
    """At most a number for each head, query and key."""
    length, model = 40, small.build(scheme)  # no other size of the model is 40
    held = {}
    for rows in (1, 8):
        with torch.no_grad(), Largest(length) as largest:
            model(small.tokens(rows, length))
        held[rows] = largest.bytes
    assert held[1] == held[8] <= 4 * model.dims.n_heads * length**2
    assert (held[1] > 0) == (registry.scheme(scheme).acts_on is ActsOn.scores)


@pytest.mark.parametrize("case", BIASES, ids=str)
def test_training_on_a_batch_keeps_one_bias_for_all_rows(case):
    name, causal, options = case
    encoding, pattern = build(name, dims(causal=causal), dtype=torch.float32, **options), pattern_of(16, causal)
    bias = encoding.at_scores(*[pattern.q_positions_BQ] * 2, 0, encoding.prepare(pattern.q_positions_BQ))
    added = pattern.added(bias, torch.float32)
    assert added.shape == (1, encoding.dims.n_heads, 16, 16)
    heads = torch.zeros(8, encoding.dims.n_heads, 16, 4, requires_grad=True)
    fused_attention(heads, heads, heads, pattern, bias, 0.5).sum().backward()
    assert pattern.added(bias, torch.float32) is added


@pytest.mark.parametrize("case", BIASES, ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_bias_in_half_precision_is_the_exact_one_rounded_once(case, dtype):
    """At distances to 4095; the fault to catch: distances held in half precision, which repeat from 257 or 2049 on."""
    name, causal, options = case
    encoding = build(name, dims(causal=causal), **options)
    rows = torch.tensor([[0, 255, 256, 257, 1000, 2047, 2049, 4094, 4095]])
    pattern = Pattern(rows, rows, causal=causal)
    bias = encoding.at_scores(rows, rows, 0, encoding.prepare(rows))
    with torch.no_grad():
        exact, half = pattern.added(bias, torch.float64), Pattern(rows, rows, causal=causal).added(bias, dtype)
    seen = ~exact.to(dtype).isinf()  # float16 ends at 65 504: a penalty beyond it hides the key, as it does in float64
    assert half.dtype == dtype and torch.equal(~seen, half.isinf())
    torch.testing.assert_close(half.double()[seen], exact[seen], rtol=torch.finfo(dtype).eps, atol=1e-6)
