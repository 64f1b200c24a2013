"""Compiled models: as many compilations as there are kinds of input, not one a length or a layer."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from posbuild import registry
from posbuild.conformance.cases import reaching
from tests.model.small import build, tokens

MOST = 3  # the first length as it is, then any length; one more for a length that a kernel treats apart


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "window"), [*((scheme, None) for scheme in registry.schemes()), ("rope", 32)])
def test_few_compilations_serve_every_length(scheme, window):
    """Counted as the code is traced, which decides it; the graphs themselves run uncompiled."""
    torch._dynamo.reset()
    model = build(scheme, options=reaching(scheme, 128))
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    with torch.no_grad():
        for length in (32, 48, 64, 96, 128, 100):
            x = tokens(2, length)
            torch.testing.assert_close(compiled(x, window=window), model(x, window=window), atol=1e-5, rtol=0)
    assert 1 <= counter.frame_count <= MOST
