"""Rotary schemes with a choice of which channels turn together."""

from __future__ import annotations

import pytest
import torch

from posbuild import registry
from posbuild.conformance.cases import Case, choices_of
from posbuild.conformance.layer import random, scores
from posbuild.schemes.rope import Pairing

PAIRING = [
    case for case in map(Case, registry.schemes()) if case.axes == 1 and choices_of(case.name, "layout") is Pairing
]


@pytest.mark.parametrize("case", PAIRING, ids=str)
def test_half_and_interleaved_layouts_are_one_permutation_apart(case: Case) -> None:
    """Weights move between the layouts by a permutation of each head's rows; for 8 channels 0, 2, 4, 6, 1, 3, 5, 7."""
    order = torch.cat([torch.arange(0, 8, 2), torch.arange(1, 8, 2)])
    q, k = random(2, 3, 40, 8, seed=1), random(2, 3, 40, 8, seed=2)
    places = case.counted(40)
    half, interleaved = (case.build(case.dims(width=8), layout=each) for each in (Pairing.half, Pairing.interleaved))
    x = random(2, 40, 24, seed=4)
    expected = scores(interleaved, q, k, places, places, x=x)
    found = scores(half, q[..., order], k[..., order], places, places, x=x)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)  # sums of eight products in another order
