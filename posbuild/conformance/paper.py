"""The same as layer.py by the slow formula: a module of float64 numpy that imports nothing of what it judges.

Where it is: `Scheme.reference`, for the schemes of the package tests/reference/NAME.py of a checkout. What it holds:

scores(q, k, q_positions, k_positions, **given)   q (B, H, Q, D), k (B, H, K, D), positions as lists; (B, H, Q, K); not
                                                  there: q·k/√D
inputs(x, positions, **given)                     token vectors (B, T, M) after the encoding; not there: as they came
codes(positions, dim, **given)                    of schemes at the input, for its rows by hand
weights(scores, visible, **given)                 where something stands in place of softmax
values(weights, q_positions, k_positions, **given) what is added to what the weights gather
arguments(model)                                  what these take, made of `options`, `parameters`, `causal`, `heads`,
                                                  `layer`, `layers`, `train_length` and `head_width`; not there: the
                                                  options and the parameters
VALUES                                            {option: [default, others]} to go through
GOLDEN, GOLDEN_...                                rows worked out by hand
RELEASED, RELEASED_...                            rows that code of the authors or others gave, with their `source`
AT_WORK                                           options with which every other option changes something
BY_NEIGHBOURS                                     options with which a score depends on the keys beside the key in the row
BLIND_TO_SIDES                                    options with which a key's side of the query makes no difference
SHIFT_INVARIANT, NOT_SHIFT_INVARIANT              options with which the declared trait is otherwise
SHIFT_INVARIANT_BY                                [(options, option), ...]: options with which scores stay the same at shifts
                                                  by multiples of the number that this option is
REFUSED                                           [(options as typed, changes of the sizes, regex of the message), ...]: what
                                                  cannot be beside ranges; sizes: width, heads, causal, train_length
NULL_IS_NONE                                      options whose null stands for no such thing, in every model
BY_KEY_HEAD, BESIDE_SCORES                        it has something for each key head; parameters that no score shows
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from posbuild import registry
from posbuild.conformance.layer import vectors, visible, where_defined
from posbuild.encodings.base import Encoding
from posbuild.settings import plain

CHECKOUT = Path(__file__).resolve().parents[2]


def known_reference(name: str) -> ModuleType | None:
    """The module of the slow formula; None where there is none here."""
    _, module = registry.declared()[name]
    named = registry.scheme(name).reference
    if not named and module.startswith("posbuild.schemes."):
        if not (CHECKOUT / "tests" / "reference" / f"{name}.py").exists():
            return None
        if str(CHECKOUT) not in sys.path:
            sys.path.append(str(CHECKOUT))
        named = f"tests.reference.{name.replace('/', '.')}"
    return importlib.import_module(named) if named else None


def reference(name: str) -> Any:
    """The module of the slow formula. Without one a test that asks for it fails, or of a package alone is skipped."""
    needs_checkout(name)
    module = known_reference(name)
    if module is None:
        pytest.fail(
            f"the declaration of {name} names no reference: reference='MODULE', the slow formula in numpy (see "
            f"{__name__})",
            pytrace=False,
        )
    return module


def needs_checkout(name: str) -> None:
    """Skip the test where the reference of a scheme of the package, and what it says beside the formula, is not there."""
    if known_reference(name) is None and registry.declared()[name][1].startswith("posbuild.schemes."):
        pytest.skip("needs a checkout")


def marked(name: str, constant: str, options: dict[str, Any]) -> bool:
    """Whether these options hold all of one entry in a constant of the reference."""
    typed = {key: getattr(value, "name", value) for key, value in options.items()}
    return any(given.items() <= typed.items() for given in getattr(known_reference(name), constant, []))


def rows(name: str, prefix: str) -> list[dict[str, Any]]:
    """The rows by hand (GOLDEN) or of released code (RELEASED) of a reference."""
    found = [value for key, value in vars(reference(name)).items() if key.startswith(prefix)]
    every = [row for value in found for row in (value if isinstance(value, list) else [value])]
    return [row for row in every if isinstance(row, dict) and "options" in row]


def paper_scores(
    encoding: Encoding,
    name: str,
    q: Tensor,
    k: Tensor,
    q_positions: Tensor,
    k_positions: Tensor,
    layer: int = 0,
    x: Tensor | None = None,
) -> Any:
    """As `layer.scores`, with the encoding's options and parameters."""
    x = vectors(encoding, k) if x is None else x
    given = arguments(encoding, name, layer) | {"x": x.detach().double().numpy()}
    q, k = (each.detach().double() for each in (q, k))
    if not hasattr(reference(name), "scores"):
        return (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).numpy()
    where = (listed(each, len(q)) for each in (q_positions, k_positions))
    return where_defined(encoding, called(reference(name).scores, q.numpy(), k.numpy(), *where, **given))


def paper_gathered(
    encoding: Encoding,
    name: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_positions: Tensor,
    k_positions: Tensor,
    layer: int = 0,
    x: Tensor | None = None,
) -> np.ndarray:
    """As `layer.gathered`."""
    module, given = reference(name), arguments(encoding, name, layer)
    scores = paper_scores(encoding, name, q, k, q_positions, k_positions, layer, x)
    weights = called(getattr(module, "weights", softmax), scores, visible(encoding, *scores.shape[-2:]), **given)
    added = 0
    if hasattr(module, "values"):
        where = (listed(each, len(q)) for each in (q_positions, k_positions))
        added = called(module.values, weights, *where, **given)
    return weights @ v.detach().double().numpy() + added


def paper_inputs(encoding: Encoding, name: str, x: Tensor, positions: Tensor) -> np.ndarray:
    """Token vectors after the encoding."""
    module, x_BTM = reference(name), x.detach().double().numpy()
    if not hasattr(module, "inputs"):
        return x_BTM
    return module.inputs(x_BTM, listed(positions, len(x)), **arguments(encoding, name))


def gathers_in_its_own_way(name: str) -> bool:
    """Whether a scheme replaces softmax or adds to the values."""
    return hasattr(reference(name), "weights") or hasattr(reference(name), "values")


def listed(positions: Tensor, rows: int) -> list[Any]:
    """Positions as lists, a row of its own for each of a batch."""
    return positions.expand(rows, *positions.shape[1:]).tolist()


def softmax(scores: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """Weights of the visible keys."""
    seen = np.where(visible, scores, -np.inf)
    shares = np.exp(seen - seen.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def called(function: Callable[..., Any], *inputs: Any, **given: Any) -> Any:
    """What a function of a reference returns, given those of its arguments that it names, or all; `x` only by name."""
    named = inspect.signature(function).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in named.values())
    return function(
        *inputs, **{key: value for key, value in given.items() if key in named or (takes_all and key != "x")}
    )


def arguments(encoding: Encoding, name: str, layer: int = 0) -> dict[str, Any]:
    """Options, parameters and sizes of an encoding in the words of its reference."""
    model = {
        "options": plain(encoding.options),
        "parameters": {key: value.detach().double().numpy() for key, value in encoding.named_parameters()},
        "causal": encoding.dims.causal,
        "heads": encoding.dims.n_heads,
        "layer": layer,
        "train_length": encoding.dims.train_length,
        "layers": encoding.dims.n_layers,
        "head_width": encoding.dims.head_dim,
    }
    if hasattr(reference(name), "arguments"):
        return reference(name).arguments(model)
    return model["options"] | model["parameters"]


def torch_rows(row: dict[str, Any], *keys: str) -> list[Tensor]:
    """Lists of a row as tensors, numbers of tokens as they are."""
    found = [torch.tensor(row[key]) for key in keys]
    return [each.double() if each.is_floating_point() else each for each in found]
