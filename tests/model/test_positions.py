"""Positions in the whole model: shifts, the two rotary layouts, distances beyond what a table tells apart."""

from __future__ import annotations

import pytest
import torch

from posbuild import registry
from posbuild.conformance.cases import reaching
from posbuild.model import Transformer
from tests.model.small import build, every_scheme, tokens

PLACES = [0, 1, 31, 200]  # the first token is right under any layout, and the first few nearly so


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


@every_scheme
def test_the_same_tokens_further_on_give_the_same_logits_only_if_distance_is_all_that_counts(scheme):
    """Positions 0..n-1 and k..k+n-1, nothing before them. Some schemes are others only beyond the train length."""
    model = build(scheme, options=reaching(scheme, 600))
    x, positions = tokens(2, 40), torch.arange(40)[None]
    here = model(x)
    apart = [float((model(x, positions=positions + shift) - here).abs().max()) for shift in (1, 3, 500)]
    assert max(apart) < 1e-5 if registry.scheme(scheme).shift_invariant else apart[-1] > 1e-2


@pytest.mark.parametrize("width", [8, 16, 64])
def test_rotary_weights_move_between_the_layouts_by_one_permutation_of_each_head(width):
    """Rows of queries and keys of each head, those of keys fewer here; values stay."""
    order = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
    if width == 8:
        assert order.tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    sizes = {"d_model": 4 * width, "n_heads": 4, "n_kv_heads": 2}
    interleaved, half = (build("rope", options={"layout": layout}, **sizes) for layout in ("interleaved", "half"))
    half.load_state_dict(interleaved.state_dict())
    x = tokens(1, PLACES[-1] + 1)
    expected = interleaved(x)[:, PLACES]
    apart = (half(x)[:, PLACES] - expected).abs().amax(dim=(0, 2))
    assert apart[0] < 1e-6 and (apart[2:] > 1e-2).all()
    reorder_queries_and_keys(half, order)
    torch.testing.assert_close(half(x)[:, PLACES], expected, atol=1e-5, rtol=0)


def reorder_queries_and_keys(model: Transformer, order: torch.Tensor) -> None:
    heads = model.dims.n_heads + model.dims.n_kv_heads
    for block in model.blocks:
        weight = block.attention.qkv.weight
        rows = weight[: heads * len(order)].unflatten(0, (heads, -1))
        rows.copy_(rows[:, order].clone())


def test_a_model_of_odd_width_trains_and_has_a_code_for_every_channel():
    """d_model 5, one head: the last sine of the code has no cosine."""
    model = build("sinusoidal", d_model=5, n_heads=1, n_kv_heads=1, d_ff=8)
    with torch.enable_grad():
        model(tokens(2, 9)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    moved = model.encoding.at_input(torch.zeros(1, 3, 5), torch.arange(3)[None])[0] / model.encoding.options.scale
    expected = torch.tensor(
        [
            [0, 1, 0, 1, 0],
            [0.84147, 0.54030, 0.025116, 0.999685, 0.00063096],
            [0.90930, -0.41615, 0.050217, 0.998738, 0.0012619],
        ]
    )
    torch.testing.assert_close(moved, expected, atol=1e-5, rtol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_scheme
def test_a_forward_pass_does_not_wait_for_the_gpu(scheme):
    """Python numbers (frequencies, slopes, bucket starts) reach it in turn: a wait would empty the queue."""
    model, text = build(scheme).cuda(), tokens(2, 20).cuda()
    model(text)
    torch.cuda.set_sync_debug_mode("error")
    try:
        model(text)
    finally:
        torch.cuda.set_sync_debug_mode("default")
