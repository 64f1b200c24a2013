"""What the tests of encodings share: every value of every option, an encoding built from it, and its parts called in turn."""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import itertools
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from posbuild import registry
from posbuild.attention import exact
from posbuild.bias import OfContent
from posbuild.declaration import ActsOn, Dims
from posbuild.encodings.base import Encoding
from posbuild.errors import ConfigError
from posbuild.model.scores import hooked
from posbuild.settings import plain

TRAIN_LENGTH = 16


def reference(name: str) -> Any:
    """The module of the slow formula."""
    return importlib.import_module(f"tests.reference.{name.replace('/', '.')}")


def choices_of(name: str, option: str) -> Any:
    """The enumeration of an option, None for one that is a number, a text or a truth value."""
    return next(
        (item.metadata["choices"] for item in fields(registry.scheme(name).options) if item.name == option), None
    )


def as_field(choices: Any, value: Any) -> Any:
    """A value as typed, as the field of an options class holds it."""
    return choices[value] if choices and value is not None else value


# The values of each option that the tests go through, the default first: from the reference of the scheme.
VALUES: dict[str, dict[str, list[Any]]] = {
    name: {
        option: [as_field(choices_of(name, option), value) for value in values]
        for option, values in reference(name).VALUES.items()
    }
    for name in registry.schemes()
}
# One value of each option that is not its default.
OTHER_VALUE = {
    name: {key: next(value for value in values if value != values[0]) for key, values in table.items()}
    for name, table in VALUES.items()
}


def marked(constant: str) -> dict[str, list[dict[str, Any]]]:
    """The options for which references hold something, by the name of their constant."""
    return {
        name: [
            {option: as_field(choices_of(name, option), value) for option, value in given.items()}
            for given in getattr(reference(name), constant, [])
        ]
        for name in registry.schemes()
    }


# The options with which a scheme sees how far a key is but not on which side.
BLIND_TO_SIDES = marked("BLIND_TO_SIDES")
# The options with which shifted positions give other scores, of a scheme that is shift-invariant without them.
NOT_SHIFT_INVARIANT = marked("NOT_SHIFT_INVARIANT")
# The options with which they give the same, of a scheme that is not shift-invariant without them.
SHIFT_INVARIANT = marked("SHIFT_INVARIANT")


def dims(heads: int = 3, width: int = 4, causal: bool = True, layers: int = 2) -> Dims:
    """A model of `heads` heads of `width` channels."""
    return Dims(
        d_model=heads * width,
        n_layers=layers,
        n_heads=heads,
        n_kv_heads=heads,
        train_length=TRAIN_LENGTH,
        causal=causal,
    )


def generator(seed: int, name: str = "") -> torch.Generator:
    return torch.Generator().manual_seed(1000 * seed + sum(map(ord, name)))


def started(encoding: Encoding) -> Encoding:
    """The encoding with its parameters as training finds them."""
    for name, parameter in encoding.named_parameters():
        module, _, last = name.rpartition(".")
        encoding.get_submodule(module).init_parameter(last, parameter, generator(0, name))
    return encoding


Module = TypeVar("Module", bound=torch.nn.Module)


def drawn(encoding: Module, seed: int = 0) -> Module:
    """The encoding, or a whole model, with its parameters drawn at random: tables that start at zero would hide what is wrong with them."""
    with torch.no_grad():
        for name, parameter in encoding.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator(seed, name), dtype=torch.float64))
    return encoding


def build(name: str, size: Dims | None = None, dtype: torch.dtype = torch.float64, **options: Any) -> Encoding:
    """The encoding of a scheme, its parameters drawn at random; a choice as a field or as it is typed."""
    fields_of = {
        key: as_field(choices_of(name, key), each) if isinstance(each, str) else each for key, each in options.items()
    }
    return drawn(registry.encoding(name, registry.scheme(name).options(**fields_of), size or dims()).to(dtype))


def combinations(name: str, size: Dims) -> list[dict[str, Any]]:
    """The combinations of option values that the scheme accepts: every choice with every other, once with all numbers
    at their defaults and once with all of them changed."""
    found: list[dict[str, Any]] = []
    for place in (0, -1):
        columns = [values if is_choice(values) else [values[place]] for values in VALUES[name].values()]
        found += [dict(zip(VALUES[name], row, strict=True)) for row in itertools.product(*columns)]
    distinct = [options for n, options in enumerate(found) if options not in found[:n]]
    return [options for options in distinct if accepted(name, options, size)]


def is_choice(values: list[Any]) -> bool:
    return isinstance(values[-1], (bool, enum.Enum))


def accepted(name: str, options: dict[str, Any], size: Dims) -> bool:
    if registry.scheme(name).causal_only and not size.causal:
        return False
    try:
        registry.scheme(name).options(**options).check(size)
    except ConfigError:
        return False
    return True


def label(options: dict[str, Any]) -> str:
    words = (f"{key}={value.name if isinstance(value, enum.Enum) else value}" for key, value in options.items())
    return ",".join(words) or "-"


@functools.cache
def cases() -> list[tuple[str, bool, dict[str, Any]]]:
    """(scheme, causal, options) for every scheme of the registry and every combination that it accepts."""
    return [
        (name, causal, options)
        for name in registry.schemes()
        for causal in (True, False)
        for options in combinations(name, dims(causal=causal))
    ]


def directions(name: str) -> list[bool]:
    """The values of `causal` that a scheme works with."""
    return [True] if registry.scheme(name).causal_only else [True, False]


def of_content(encoding: Encoding) -> bool:
    """Whether scores depend on queries, keys or token vectors in another way than by their product."""
    positions = torch.tensor([[0]])
    return isinstance(encoding.at_scores(positions, positions, 0, encoding.prepare(positions)), OfContent)


@functools.cache
def biases() -> list[tuple[str, bool, dict[str, Any]]]:
    """The cases of schemes that add a function of positions alone to the scores."""
    adding = [case for case in cases() if registry.scheme(case[0]).acts_on is ActsOn.scores]
    return [case for case in adding if not of_content(build(case[0], dims(causal=case[1]), **case[2]))]


def case_id(case: Any) -> str:
    if isinstance(case, dict):
        return label(case)
    return {True: "causal", False: "both"}.get(case, case) if isinstance(case, bool) else str(case)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64).to(dtype)


# Of one layer, by its hooks and by the slow formula: q (B, H, Q, D), k and v (B, H, K, D), positions (B or 1, Q and K), and
# for encodings that read them token vectors x (B, K, M). The queries are the last Q of the K tokens, as in a model.


def scores(
    encoding: Encoding,
    q: Tensor,
    k: Tensor,
    q_positions: Tensor,
    k_positions: Tensor,
    layer: int = 0,
    x: Tensor | None = None,
) -> Tensor:
    """q·k/√D with all that the encoding does to it, (B, H, Q, K)."""
    x = vectors(encoding, k) if x is None else x
    return where_defined(encoding, exact.scores(*hooked(encoding, q, k, q_positions, k_positions, layer, x)))


def weights(
    encoding: Encoding,
    q: Tensor,
    k: Tensor,
    q_positions: Tensor,
    k_positions: Tensor,
    layer: int = 0,
    x: Tensor | None = None,
) -> Tensor:
    """The weights of the values, (B, H, Q, K)."""
    x = vectors(encoding, k) if x is None else x
    return exact.weights(*hooked(encoding, q, k, q_positions, k_positions, layer, x))


def gathered(
    encoding: Encoding,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_positions: Tensor,
    k_positions: Tensor,
    layer: int = 0,
    x: Tensor | None = None,
) -> Tensor:
    """What attention makes of the values, (B, H, Q, D)."""
    x = vectors(encoding, k) if x is None else x
    q, k, *rest = hooked(encoding, q, k, q_positions, k_positions, layer, x)
    return exact.exact_attention(q, k, v, *rest)


def vectors(encoding: Encoding, k: Tensor) -> Tensor:
    """Token vectors for the encodings that read them, (B, K, M)."""
    return random(len(k), k.shape[2], encoding.dims.d_model, seed=4, dtype=k.dtype)


def where_defined(encoding: Encoding, scores_BHQK: Any) -> Any:
    """Scores that depend on content mean something where the query sees the key: elsewhere 0."""
    seen = torch.from_numpy(visible(encoding, *scores_BHQK.shape[-2:]))
    if not of_content(encoding):
        return scores_BHQK
    return scores_BHQK.where(seen, 0) if isinstance(scores_BHQK, Tensor) else np.where(seen, scores_BHQK, 0)


def visible(encoding: Encoding, queries: int, keys: int) -> np.ndarray:
    """(Q, K): whether a query sees a key, by their order."""
    return np.tri(queries, keys, keys - queries if encoding.dims.causal else keys, dtype=bool)


def paper_scores(
    encoding: Encoding,
    name: str,
    q: Tensor,
    k: Tensor,
    q_positions: Tensor,
    k_positions: Tensor,
    layer: int = 0,
    x: Tensor | None = None,
) -> np.ndarray:
    """The same as `scores` by the slow formula, with the encoding's options and parameters."""
    x = vectors(encoding, k) if x is None else x
    given = arguments(encoding, name, layer) | {"x": x.detach().double().numpy()}
    module = reference(name) if hasattr(reference(name), "scores") else reference("none")
    q, k = (each.double().numpy() for each in (q, k))
    return where_defined(encoding, called(module.scores, q, k, q_positions.tolist(), k_positions.tolist(), **given))


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
    """The same as `gathered` by the slow formula.

    A reference has `weights(scores, visible, ...)` where its scheme replaces softmax, and `values(weights, q_positions,
    k_positions, ...)` where it adds to what the weights gather; both take what they name of its arguments.
    """
    module, given = reference(name), arguments(encoding, name, layer)
    scores = paper_scores(encoding, name, q, k, q_positions, k_positions, layer, x)
    weights = called(getattr(module, "weights", softmax), scores, visible(encoding, *scores.shape[-2:]), **given)
    added = 0
    if hasattr(module, "values"):
        added = called(module.values, weights, q_positions.tolist(), k_positions.tolist(), **given)
    return weights @ v.double().numpy() + added


def softmax(scores: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """Weights of the visible keys."""
    shares = np.where(visible, np.exp(scores - np.where(visible, scores, -np.inf).max(axis=-1, keepdims=True)), 0)
    return shares / shares.sum(axis=-1, keepdims=True)


def called(function: Callable[..., Any], *inputs: Any, **given: Any) -> Any:
    """What a function of a reference returns, given those of its arguments that it names, or all; `x` only by name."""
    named = inspect.signature(function).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in named.values())
    return function(
        *inputs, **{key: value for key, value in given.items() if key in named or (takes_all and key != "x")}
    )


def paper_inputs(encoding: Encoding, name: str, x: Any, positions: Tensor) -> np.ndarray:
    """Token vectors after the encoding, by the slow formula."""
    module = reference(name)
    if not hasattr(module, "inputs"):
        return np.asarray(x)
    return module.inputs(np.asarray(x), positions.tolist(), **arguments(encoding, name))


def arguments(encoding: Encoding, name: str, layer: int = 0) -> dict[str, Any]:
    """Options, parameters and sizes of an encoding in the words of its reference."""
    return reference(name).arguments(
        {
            "options": plain(encoding.options),
            "parameters": {key: value.detach().double().numpy() for key, value in encoding.named_parameters()},
            "causal": encoding.dims.causal,
            "heads": encoding.dims.n_heads,
            "layer": layer,
            "train_length": encoding.dims.train_length,
            "layers": encoding.dims.n_layers,
            "head_width": encoding.dims.head_dim,
        }
    )


def option_names(name: str) -> set[str]:
    return {item.name for item in fields(registry.scheme(name).options)}


# The schemes with a table that ends: their option `max_positions` says where.
ENDING = [name for name in sorted(registry.schemes()) if "max_positions" in option_names(name)]


def reaching(name: str, length: int) -> dict[str, Any]:
    """Options with which a scheme is defined for so many positions."""
    return {"max_positions": length} if name in ENDING else {}
