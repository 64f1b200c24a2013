"""What the tests of encodings share: every value of every option, an encoding built from it, and its parts called in turn."""

from __future__ import annotations

import enum
import functools
import importlib
import itertools
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from posbuild import registry
from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding
from posbuild.errors import ConfigError
from posbuild.model import scores_of
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

# The options with which a scheme sees how far a key is but not on which side, from its reference.
BLIND_TO_SIDES = {
    name: [
        {option: as_field(choices_of(name, option), value) for option, value in given.items()}
        for given in getattr(reference(name), "BLIND_TO_SIDES", [])
    ]
    for name in registry.schemes()
}


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
        encoding.init_parameter(name, parameter, generator(0, name))
    return encoding


Module = TypeVar("Module", bound=torch.nn.Module)


def drawn(encoding: Module, seed: int = 0) -> Module:
    """The encoding, or a whole model, with its parameters drawn at random: tables that start at zero would hide what is wrong with them."""
    with torch.no_grad():
        for name, parameter in encoding.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator(seed, name), dtype=torch.float64))
    return encoding


def build(name: str, size: Dims | None = None, dtype: torch.dtype = torch.float64, **options: Any) -> Encoding:
    """The encoding of a scheme, its parameters drawn at random."""
    return drawn(registry.encoding(name, registry.scheme(name).options(**options), size or dims()).to(dtype))


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


def case_id(case: Any) -> str:
    if isinstance(case, dict):
        return label(case)
    return {True: "causal", False: "both"}.get(case, case) if isinstance(case, bool) else str(case)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64).to(dtype)


def scores(
    encoding: Encoding, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, layer: int = 0
) -> Tensor:
    """q·k/√D with all that the encoding does to it, from its hooks: (B, H, Q, D) and (B, H, K, D) to (B, H, Q, K)."""
    return scores_of(encoding, q, k, q_positions, k_positions, layer, vectors(encoding, k))


def vectors(encoding: Encoding, k: Tensor) -> Tensor:
    """Token vectors for the encodings that read them, (B, K, M)."""
    return random(len(k), k.shape[2], encoding.dims.d_model, seed=4, dtype=k.dtype)


def paper_scores(
    encoding: Encoding, name: str, q: Any, k: Any, q_positions: Tensor, k_positions: Tensor, layer: int = 0
) -> np.ndarray:
    """The same as `scores` by the slow formula, with the encoding's options and parameters."""
    module, given = reference(name), arguments(encoding, name, layer)
    if not hasattr(module, "scores"):
        module, given = reference("none"), {}
    return module.scores(np.asarray(q), np.asarray(k), q_positions.tolist(), k_positions.tolist(), **given)


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
