"""What the comparisons with packages share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from posbuild.conformance.layer import random, scores
from posbuild.encodings.base import Encoding


def assert_same(ours: Tensor, theirs: Tensor, inputs: Sequence[Tensor], atol: float, rtol: float = 1e-4) -> None:
    """Values, and gradients of one random weighting of them with respect to each input, which sum many: those to rtol too."""
    assert ours.shape == theirs.shape
    torch.testing.assert_close(ours, theirs.to(ours.dtype), rtol=0, atol=atol)
    weight = random(*ours.shape, seed=9).to(ours.dtype)
    gradients = [torch.autograd.grad((weight * out).sum(), inputs, retain_graph=True) for out in (ours, theirs)]
    for one, other in zip(*gradients, strict=True):
        assert one.abs().max() > 0
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol)


def adopt(encoding: Encoding, **tensors: Tensor) -> None:
    """Put tensors in the places of parameters: gradients reach what they were made of."""
    for name, tensor in tensors.items():
        del encoding._parameters[name]
        setattr(encoding, name, tensor)
    left = {name for name, _ in encoding.named_parameters()} - {*tensors, "value_table"}  # the table moves no score
    assert not left, f"parameters of the encoding in whose place nothing is put: {left}"


def bias_of(encoding: Encoding, length: int) -> Tensor:
    """What is added to the scores of so many tokens in a row."""
    positions = torch.arange(length)[None]
    zero = torch.zeros(1, encoding.dims.n_heads, length, encoding.dims.head_dim, dtype=torch.float64)
    return scores(encoding, zero, zero, positions, positions)


def turned(encoding: Encoding, q: Tensor, k: Tensor, positions: Tensor, layer: int = 0) -> tuple[Tensor, Tensor]:
    """Queries and keys at these positions, as the encoding leaves them."""
    shared = encoding.prepare(positions)
    return encoding.at_queries(q, positions, layer, shared), encoding.at_keys(k, positions, layer, shared)
