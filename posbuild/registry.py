"""Name -> declaration of a scheme. Answers `posbuild list`, `posbuild show` and completion, without torch."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterable
from typing import TYPE_CHECKING

import posbuild.schemes
from posbuild.declaration import Dims, Options, Scheme
from posbuild.errors import ConfigError, nearest

if TYPE_CHECKING:
    from posbuild.encodings.base import Encoding


@functools.cache
def schemes() -> dict[str, Scheme]:
    """Every scheme by its name, in alphabetical order. A module of posbuild/schemes/ declares SCHEME or SCHEMES."""
    modules = (
        importlib.import_module(f"posbuild.schemes.{item.name}")
        for item in pkgutil.iter_modules(posbuild.schemes.__path__)
    )
    return collect(scheme for module in modules for scheme in getattr(module, "SCHEMES", None) or [module.SCHEME])


def collect(found: Iterable[Scheme]) -> dict[str, Scheme]:
    """Schemes by name. Raises ValueError, naming both, if two have one name."""
    table: dict[str, Scheme] = {}
    for scheme in found:
        if scheme.name in table:
            raise ValueError(f"Two schemes are named '{scheme.name}': {table[scheme.name].maths} and {scheme.maths}.")
        table[scheme.name] = scheme
    return dict(sorted(table.items()))


def scheme(name: str) -> Scheme:
    """The declaration of one scheme. Raises ConfigError for an unknown name."""
    try:
        return schemes()[name]
    except KeyError:
        raise ConfigError(f"pe={name} is not a known scheme. {nearest(name, schemes())} Choose with pe=NAME.") from None


def encoding(name: str, options: Options, dims: Dims) -> Encoding:
    """Build the encoding of a scheme for one model. Raises ConfigError if it cannot work there."""
    options.check(dims)
    module, _, attribute = scheme(name).maths.partition(":")
    return getattr(importlib.import_module(module), attribute)(options, dims)
