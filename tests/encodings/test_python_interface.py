"""posbuild.scores and posbuild.codes: the encodings by name, with options as on the command line."""

from __future__ import annotations

import enum
import warnings

import numpy as np
import pytest
import torch

import posbuild
from posbuild import registry
from posbuild.conformance.cases import (
    TRAIN_LENGTH,
    as_field,
    build,
    cases,
    choices_of,
    dims,
    of_text,
    reaching,
    started,
)
from posbuild.conformance.layer import random, vectors, where_defined
from posbuild.conformance.paper import paper_scores, reference
from posbuild.encodings.base import AbsoluteCode
from posbuild.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("ignore:.*posbuild.codes shows")

SCHEMES = sorted(registry.schemes())
AT_THE_INPUT = [name for name in SCHEMES if isinstance(build(name), AbsoluteCode)]


def words(options):
    """Options as they are typed."""
    return {key: value.name if isinstance(value, enum.Enum) else value for key, value in options.items()}


@pytest.mark.parametrize("case", of_text(cases()), ids=str)
def test_scores_equal_the_paper_and_gradients_reach_the_state(case):
    name, causal, options = case
    encoding = build(name, dims(width=8, causal=causal), **options)
    q, k = random(2, 3, 4, 8, seed=1).requires_grad_(), random(2, 3, 5, 8, seed=2)
    positions = torch.tensor([2, 2, 15, 0]), torch.tensor([[3, 3, 14, 0, 9], [5, 4, 3, 15, 5]])
    state = {key: value.detach().clone().requires_grad_() for key, value in encoding.named_parameters()}
    for layer in (0, 1):
        actual = posbuild.scores(
            name,
            q,
            k,
            *positions,
            causal=causal,
            layer=layer,
            n_layers=2,
            train_length=TRAIN_LENGTH,
            x=vectors(encoding, k),
            state=state,
            **words(options),
        )
        rows = positions[0].expand(2, 4), positions[1]
        expected = paper_scores(encoding, name, q.detach(), k, *rows, layer)
        defined = where_defined(encoding, actual.detach())
        np.testing.assert_allclose(defined, expected, rtol=1e-12, atol=1e-12)
    actual.sum().backward()
    assert q.grad is not None
    if name not in AT_THE_INPUT:
        beside = getattr(reference(name), "BESIDE_SCORES", [])
        assert all(value.grad is not None for key, value in state.items() if key not in beside)


@pytest.mark.parametrize("case", [c for c in of_text(cases()) if c[0] in AT_THE_INPUT], ids=str)
def test_codes_are_those_of_the_encoding(case):
    name, causal, options = case
    encoding, positions = build(name, dims(causal=causal), **options), torch.tensor([3, 0, 3, 15])
    state = dict(encoding.named_parameters())
    actual = posbuild.codes(name, positions, 12, state=state, **words(options))
    assert torch.equal(actual, encoding.codes(positions))


@pytest.mark.parametrize("name", SCHEMES)
def test_golden_rows(name):
    for row in (value for key, value in vars(reference(name)).items() if key.startswith("GOLDEN")):
        learned = row.get("parameters", {}).items()
        state = {key: torch.tensor(value, dtype=torch.float64) for key, value in learned} or None
        if "codes" in row:
            actual, expected = (
                posbuild.codes(name, torch.tensor(row["positions"]), row["dim"], state=state, **row["options"]),
                row["codes"],
            )
        else:
            q, k = (torch.tensor(row[key], dtype=torch.float64) for key in ("q", "k"))
            positions = [torch.tensor(row[key]) for key in ("q_positions", "k_positions")]
            x = torch.tensor(row["x"], dtype=torch.float64) if "x" in row else None
            where = {"causal": row.get("causal", True), "layer": row.get("layer", 0)}
            actual = posbuild.scores(name, q, k, *positions, **where, x=x, state=state, **row["options"])
            size = dims(heads=q.shape[1], width=q.shape[-1], causal=where["causal"])
            options = {key: as_field(choices_of(name, key), value) for key, value in row["options"].items()}
            actual, expected = where_defined(build(name, size, **options), actual), row["scores"]
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SCHEMES)
def test_scores_come_in_the_dtype_given_and_at_far_positions(name, dtype):
    """Half-precision inputs at 4095: off by roundings of rotated vectors and of the result, not by lost positions."""
    q, k = random(1, 3, 6, 8, seed=1, dtype=dtype), random(1, 3, 6, 8, seed=2, dtype=dtype)
    positions = torch.tensor([[4095, 4094, 3000, 257, 256, 0]])
    encoding = started(build(name, dims(width=8), **reaching(name, 4096)))
    given = {"x": vectors(encoding, k), **reaching(name, 4096)}
    if name not in AT_THE_INPUT:
        given |= {"state": dict(encoding.named_parameters()), "n_layers": 2, "train_length": TRAIN_LENGTH}
    actual = posbuild.scores(name, q, k, positions, positions, **given).detach()
    assert actual.dtype == dtype
    actual = where_defined(encoding, actual)
    expected = paper_scores(encoding, name, q.double(), k.double(), positions, positions, x=given["x"])
    epsilon = torch.finfo(dtype).eps
    expected[np.abs(expected) > torch.finfo(dtype).max] = -np.inf  # penalties that float16 cannot hold
    np.testing.assert_allclose(actual.double(), expected, rtol=2 * epsilon, atol=10 * epsilon + 1e-12)


@pytest.mark.parametrize("name", [name for name in SCHEMES if not hasattr(reference(name), "BY_KEY_HEAD")])
def test_groups_of_query_heads_share_a_key_head(name):
    """But for schemes that give each key head something of its own, with which no two are alike."""
    q, k, positions = random(2, 6, 5, 4, seed=1), random(2, 2, 5, 4, seed=2), torch.arange(5)
    x = random(2, 5, 24, seed=3)
    grouped = posbuild.scores(name, q, k, positions, positions, x=x)
    written_out = posbuild.scores(name, q, k.repeat_interleave(3, dim=1), positions, positions, x=x)
    torch.testing.assert_close(grouped, written_out, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", sorted(set(SCHEMES) - set(AT_THE_INPUT)))
def test_no_codes_of_schemes_that_act_elsewhere(name):
    with pytest.raises(ConfigError, match=f"pe={name} has no code at the input.*posbuild.scores shows"):
        posbuild.codes(name, torch.arange(3), 12)


@pytest.mark.parametrize("name", SCHEMES)
def test_scores_that_show_nothing_of_the_scheme_are_warned_of(name):
    q, positions = random(1, 3, 2, 4), torch.arange(2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posbuild.scores(name, q, q, positions, positions, x=random(1, 2, 12))
    assert [str(each.message) for each in caught if "posbuild.codes" in str(each.message)] == [
        f"pe={name} acts on the token vectors at the input and adds nothing to scores: these are q·k/sqrt(D). "
        "posbuild.codes shows its vectors."
    ] * (name in AT_THE_INPUT)


def test_what_cannot_be_is_refused():
    q, positions = random(1, 3, 2, 4), torch.arange(2)
    with pytest.raises(ConfigError, match=r"pe=ropee .*Nearest: 'rope'"):
        posbuild.scores("ropee", q, q, positions, positions)
    with pytest.raises(ConfigError, match="bass"):
        posbuild.scores("rope", q, q, positions, positions, bass=3.0)
    with pytest.raises(ConfigError, match="tabel"):
        posbuild.scores("t5", q, q, positions, positions, state={"tabel": torch.zeros(32, 3)})
    with pytest.raises(ConfigError, match="form=causal"):
        posbuild.scores("alibi", q, q, positions, positions, causal=False, form="causal")
