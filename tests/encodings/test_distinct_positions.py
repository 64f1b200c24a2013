"""In half precision every position to 4095 keeps a code, or a rotation, of its own: computed wide, rounded last."""

from __future__ import annotations

import pytest
import torch

from posbuild import registry
from posbuild.declaration import ActsOn
from tests.encodings.building import build, case_id, cases, dims, random, reaching

POSITIONS = torch.arange(4096)[None]
HALF = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


def cases_on(place):
    return [(name, options) for name, causal, options in cases() if causal and registry.scheme(name).acts_on is place]


@HALF
@pytest.mark.parametrize(("name", "options"), cases_on(ActsOn.input), ids=case_id)
@pytest.mark.parametrize("autocast", [False, True])
def test_codes_at_the_input(name, options, dtype, autocast):
    """What is added to or joined with token vectors of a model in half precision, or under autocast; 64 channels."""
    options = options | reaching(name, 4096)
    encoding = build(name, dims(heads=1, width=64), dtype=torch.float32 if autocast else dtype, **options)
    with torch.no_grad(), torch.autocast("cpu", dtype, enabled=autocast):
        rows = encoding.at_input(torch.zeros(1, 4096, 64, dtype=dtype), POSITIONS)[0]
    assert rows.dtype == dtype and len(torch.unique(rows, dim=0)) == 4096


@HALF
@pytest.mark.parametrize(("name", "options"), cases_on(ActsOn.queries_and_keys), ids=case_id)
def test_rotated_keys(name, options, dtype):
    encoding = build(name, dims(heads=1, width=64), dtype=dtype, **options)
    key = random(64, dtype=torch.float32).to(dtype).expand(1, 1, 4096, 64)
    with torch.no_grad(), torch.autocast("cpu", dtype):
        rotated = encoding.at_keys(key, POSITIONS, 0, encoding.prepare(POSITIONS))[0, 0]
    assert rotated.dtype == dtype
    # 32 pairs, the fast of which tell neighbours apart by far more than a rounding, and the slow what lies far apart.
    assert len(torch.unique(rotated, dim=0)) == 4096
