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
def all_schemes() -> dict[str, Scheme]:
    """Every scheme by its name, in alphabetical order, those for positions of several axes among them."""
    modules = map(importlib.import_module, own_modules())
    return collect(scheme for module in modules for scheme in getattr(module, "SCHEMES", None) or [module.SCHEME])


@functools.cache
def schemes() -> dict[str, Scheme]:
    """The schemes for text, whose positions have one axis, by their names."""
    return {name: scheme for name, scheme in all_schemes().items() if 1 in scheme.axes}


def own_modules() -> list[str]:
    """The modules of posbuild/schemes/ and its folders. Each declares SCHEME or SCHEMES."""
    found = pkgutil.walk_packages(posbuild.schemes.__path__, "posbuild.schemes.")
    return [item.name for item in found if not item.ispkg]


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
        return all_schemes()[name]
    except KeyError:
        known = nearest(name, all_schemes())
        raise ConfigError(f"pe={name} is not a known scheme. {known} Choose with pe=NAME.") from None


def encoding(name: str, options: Options, dims: Dims) -> Encoding:
    """Build the encoding of a scheme for one model. Raises ConfigError if it cannot work there."""
    options.check(dims)
    module, _, attribute = scheme(name).maths.partition(":")
    return getattr(importlib.import_module(module), attribute)(options, dims)
