"""Rows of numbers that a reference keeps: worked out by hand, or given by code of others.

A row has `options` and one of codes (T, M), scores, weights or a bias (B, H, Q, K), or of one row (H, Q, K), what the
weights make of values v, `gathered` (H, Q, D) by some `queries` of all, frequencies in radians a token with their magnitude;
what these were given: positions or q_positions and k_positions, queries and keys (zero if not there), token vectors x,
parameters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posbuild import registry
from posbuild.conformance.cases import TRAIN_LENGTH, dims, drawn, typed
from posbuild.conformance.layer import gathered, scores, weights, where_defined
from posbuild.conformance.paper import arguments, called, paper_gathered, paper_scores, reference

KINDS = ("codes", "frequencies", "gathered", "scores", "bias", "weights")


def assert_gives_row(name: str, row: dict[str, Any], tolerance: float) -> None:
    """The numbers of the row by the encoding of this scheme, and, but for weights and frequencies, by its slow formula."""
    kind = next(kind for kind in KINDS if kind in row)
    source = row.get("source", "by hand")
    if kind == "frequencies":
        radians, magnitude = turns(built(name, row, 1, row["width"], 1), row.get("length", 2))
        np.testing.assert_allclose(radians, row["frequencies"], rtol=5e-7, err_msg=source)
        np.testing.assert_allclose(magnitude, row.get("magnitude", 1.0), rtol=1e-12, err_msg=source)
        return
    if kind == "codes":
        encoding, positions = built(name, row, 1, row["dim"], 1, train_length=2), torch.tensor(row["positions"])
        given = {key: each for key, each in arguments(encoding, name).items() if key != "projection"}
        found = encoding.codes(positions).detach(), called(reference(name).codes, row["positions"], row["dim"], **given)
        for each in found:
            np.testing.assert_allclose(each, row["codes"], rtol=tolerance, atol=tolerance, err_msg=source)
        return
    for found_weights in [False, True] if {"scores", "weights"} <= {*row} else [kind == "weights"]:
        compare(name, row, "weights" if found_weights else kind, tolerance, source)


def compare(name: str, row: dict[str, Any], kind: str, tolerance: float, source: str) -> None:
    expected = torch.tensor(row[kind], dtype=torch.float64)
    expected = expected if expected.dim() == 4 else expected[None]
    axes = registry.scheme(name).options(**typed(name, row["options"])).number_of_axes()
    q_positions, k_positions = (
        places if places.dim() == (2 if axes == 1 else 3) else places[None]
        for places in (torch.tensor(row[key]) for key in ("q_positions", "k_positions"))
    )
    q, k = (
        batched(row[key]) if key in row else torch.zeros(1, expected.shape[1], places.shape[1], 4, dtype=torch.float64)
        for key, places in (("q", q_positions), ("k", k_positions))
    )
    x = batched(row["x"], 3) if "x" in row else None
    layer = row.get("layer", 0)
    layers = max(1 if "source" in row else 2, layer + 1)
    encoding = built(name, row, q.shape[1], q.shape[-1], layers)
    with torch.no_grad():
        if kind == "weights":
            found = [weights(encoding, q, k, q_positions, k_positions, layer, x)]
        elif kind == "gathered":
            given = (q, k, batched(row["v"]), q_positions, k_positions, layer, x)
            both = gathered(encoding, *given), torch.as_tensor(paper_gathered(encoding, name, *given))
            found = [each[:, :, row["queries"]] for each in both]
        else:
            expected = where_defined(encoding, expected)
            found = [scores(encoding, q, k, q_positions, k_positions, layer, x)]
            found.append(torch.as_tensor(paper_scores(encoding, name, q, k, q_positions, k_positions, layer, x)))
    for each in found:
        assert each.shape == expected.shape
        np.testing.assert_allclose(each, expected, rtol=tolerance, atol=tolerance, err_msg=source)


def built(name: str, row: dict[str, Any], heads: int, width: int, layers: int, train_length: int = TRAIN_LENGTH) -> Any:
    """The encoding of a row, with its parameters."""
    size = replace(dims(heads, width, row.get("causal", True), layers), train_length=train_length)
    options = registry.scheme(name).options(**typed(name, row["options"]))
    encoding = drawn(registry.encoding(name, options, size).double())
    with torch.no_grad():
        for key, value in row.get("parameters", {}).items():
            encoding.get_parameter(key).copy_(torch.tensor(value, dtype=torch.float64))
    return encoding


def batched(numbers: list[Any], dimensions: int = 4) -> Tensor:
    found = torch.tensor(numbers, dtype=torch.float64)
    return found if found.dim() == dimensions else found[None]


def turns(encoding: Any, length: int = 2, layer: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Of each pair of the first head in a text so long: the angle from one token to the next, and by how much keys are
    lengthened. Channels c and c + R/2 are a pair."""
    pairs = encoding.options.rotary_width(encoding.dims) // 2
    key = torch.zeros(1, 1, 2, encoding.dims.head_dim, dtype=torch.float64)
    key[..., :pairs] = 1.0
    positions = torch.tensor([[1, length - 1]])
    turned = encoding.at_keys(key, positions, layer, encoding.prepare(positions))[0, 0, 0].detach()
    both = torch.complex(turned[:pairs], turned[pairs : 2 * pairs])
    return both.angle().numpy(), both.abs().numpy()
