"""Name -> declaration of a scheme. Answers `posbuild list`, `posbuild show` and completion, without torch."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import pkgutil
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING

import posbuild.schemes
from posbuild.declaration import Dims, Options, Scheme
from posbuild.errors import ConfigError, first_line, nearest

if TYPE_CHECKING:
    from posbuild.encodings.base import Encoding


ENTRY_POINTS = "posbuild.schemes"  # the group in which an installed package names the modules that declare its schemes
IMPORTED = "POSBUILD_IMPORT"  # the environment variable by which a launch tells its jobs what --import named


@functools.cache
def declared() -> dict[str, tuple[Scheme, str]]:
    """Every scheme by its name, in alphabetical order, with the module that declares it as SCHEME, or in SCHEMES.

    Those of posbuild/schemes/, of installed packages and of what --import named. Raises ConfigError if two have one name,
    and for a module that cannot be imported or declares nothing.
    """
    found = own_modules()
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        found.append(point.value)
        module_of(point.value, f"The entry point {point.name} = {point.value} of {ENTRY_POINTS}")
    for name in imported():
        found.append(name)
        module_of(name, f"--import {name}")
    return collect(
        (each, name) for name in dict.fromkeys(found) for each in declarations(importlib.import_module(name))
    )


def imported() -> list[str]:
    """The modules that --import named."""
    return os.environ.get(IMPORTED, "").split()


def import_schemes(module: str) -> None:
    """Add the schemes that a module declares, in this process and in those that it starts. Raises ConfigError."""
    os.environ[IMPORTED] = " ".join(dict.fromkeys([*imported(), module]))
    for table in (declared, all_schemes, schemes):
        table.cache_clear()
    declared()


def module_of(name: str, named_by: str) -> ModuleType:
    """A module of someone's own that declares schemes. Raises ConfigError, in words that say who named it."""
    if os.getcwd() not in sys.path:  # as `python -m` would have it
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(name)
    except Exception as error:  # whatever is wrong in code that is not ours
        raise ConfigError(f"{named_by} cannot be imported: {type(error).__name__}: {first_line(error)}.") from error
    if not declarations(module):
        raise ConfigError(
            f"{named_by} declares no scheme: it needs SCHEME = posbuild.declaration.Scheme(...), or a list SCHEMES."
        )
    return module


def declarations(module: ModuleType) -> list[Scheme]:
    found = getattr(module, "SCHEMES", None) or [getattr(module, "SCHEME", None)]
    return [each for each in found if isinstance(each, Scheme)]


def collect(found: Iterable[tuple[Scheme, str]]) -> dict[str, tuple[Scheme, str]]:
    """Schemes and their modules by name. Raises ConfigError, naming both, if two have one name."""
    table: dict[str, tuple[Scheme, str]] = {}
    for each, module in found:
        if each.name in table:
            raise ConfigError(f"Two schemes are named '{each.name}': one of {table[each.name][1]}, one of {module}.")
        table[each.name] = each, module
    return dict(sorted(table.items()))


@functools.cache
def all_schemes() -> dict[str, Scheme]:
    """Every scheme by its name, in alphabetical order, those for positions of several axes among them."""
    return {name: each for name, (each, _) in declared().items()}


@functools.cache
def schemes() -> dict[str, Scheme]:
    """The schemes for text, whose positions have one axis, by their names."""
    return {name: each for name, each in all_schemes().items() if 1 in each.axes}


def own_modules() -> list[str]:
    """The modules of posbuild/schemes/ and its folders."""
    found = pkgutil.walk_packages(posbuild.schemes.__path__, "posbuild.schemes.")
    return [item.name for item in found if not item.ispkg]


def scheme(name: str) -> Scheme:
    """The declaration of one scheme. Raises ConfigError for an unknown name."""
    try:
        return all_schemes()[name]
    except KeyError:
        known = nearest(name, all_schemes())
        raise ConfigError(f"pe={name} is not a known scheme. {known} Choose with pe=NAME.") from None


def check_mask(name: str, causal: bool, setting: str = "model.causal=false") -> None:
    """Raise ConfigError for a scheme that needs a causal mask where `setting` makes the model bidirectional."""
    reason = scheme(name).causal_only
    if reason and not causal:
        raise ConfigError(
            f"pe={name} needs a causal mask, and {setting} makes the model bidirectional: {reason}. Choose another scheme, or "
            "train a causal model."
        )


def encoding(name: str, options: Options, dims: Dims) -> Encoding:
    """Build the encoding of a scheme for one model. Raises ConfigError if it cannot work there."""
    check_mask(name, dims.causal)
    options.check(dims)
    module, _, attribute = scheme(name).maths.partition(":")
    return getattr(importlib.import_module(module), attribute)(options, dims)
