"""Every scheme with every value of its options, and the encodings built from them."""

from __future__ import annotations

import enum
import functools
import itertools
from dataclasses import Field, fields
from typing import Any, NamedTuple, TypeVar

import pytest
import torch
from torch import Tensor

from posbuild import registry
from posbuild.conformance.layer import generator, of_content
from posbuild.conformance.paper import known_reference, reference
from posbuild.declaration import ActsOn, Dims, Options, Scheme, check_range, written_type
from posbuild.encodings.base import Encoding
from posbuild.errors import ConfigError

TRAIN_LENGTH = 16
SIDE = 4  # of the square or cube in which tokens of several axes stand
Module = TypeVar("Module", bound=torch.nn.Module)


class Case(NamedTuple):
    """A scheme with options, the others at their defaults, under a causal mask or none."""

    name: str
    causal: bool = True
    options: dict[str, Any] = {}  # noqa: RUF012, never changed

    def __str__(self) -> str:
        return f"{self.name}-{'causal' if self.causal else 'both'}-{label(self.options)}"

    @property
    def scheme(self) -> Scheme:
        return registry.scheme(self.name)

    @property
    def chosen(self) -> Options:
        """The options, as the scheme's own class holds them."""
        return self.scheme.options(**typed(self.name, self.options))

    @property
    def axes(self) -> int:
        return self.chosen.number_of_axes()

    @property
    def least_width(self) -> int:
        """Channels of a head that all options of the scheme can share out."""
        return 4 if self.axes == 1 else 24

    def dims(self, heads: int = 3, width: int = 0, layers: int = 2) -> Dims:
        """A model of `heads` heads of `width` channels."""
        return dims(heads, width or self.least_width, self.causal, layers)

    def build(self, size: Dims | None = None, dtype: torch.dtype = torch.float64, **options: Any) -> Encoding:
        """The encoding, its parameters drawn at random."""
        return build(self.name, size or self.dims(), dtype, **self.options | options)

    def at(self, *numbers: int, shift: int = 0) -> Tensor:
        """Places of tokens in the order of these numbers, (1, T), or row by row in a square or cube, (1, T, axes)."""
        places = torch.tensor([numbers])
        if self.axes == 1:
            return places + shift
        return torch.stack([places // SIDE, places % SIDE, places // 2 % SIDE][: self.axes], dim=-1) + shift

    def counted(self, length: int, shift: int = 0) -> Tensor:
        """Places of so many tokens in a row."""
        return self.at(*range(length), shift=shift)

    def reaching(self, length: int) -> Case:
        """The same with tables that hold so many positions of each axis, if it has some that end and are not given."""
        default = self.scheme.options()
        given = {key: value for key, value in self.options.items() if value != getattr(default, key)}
        return self._replace(options=reaching(self.name, length) | given)

    @property
    def ends(self) -> bool:
        """Whether it is defined for some positions only."""
        return self.chosen.sizes(self.dims()) is not None


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


def started(encoding: Encoding) -> Encoding:
    """The encoding with its parameters as training finds them."""
    for name, parameter in encoding.named_parameters():
        module, _, last = name.rpartition(".")
        owner = encoding.get_submodule(module)
        assert isinstance(owner, Encoding)
        owner.init_parameter(last, parameter, generator(0, name))
    return encoding


def drawn(encoding: Module, seed: int = 0) -> Module:
    """The encoding, or a whole model, with its parameters drawn at random: tables that start at zero would hide what is
    wrong with them."""
    with torch.no_grad():
        for name, parameter in encoding.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator(seed, name), dtype=torch.float64))
    return encoding


def build(name: str, size: Dims | None = None, dtype: torch.dtype = torch.float64, **options: Any) -> Encoding:
    """The encoding of a scheme, its parameters drawn at random; a choice as a field or as it is typed."""
    chosen = registry.scheme(name).options(**typed(name, options))
    return drawn(registry.encoding(name, chosen, size or dims()).to(dtype))


# Values of options


def typed(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options as they are typed, as the fields of the options class hold them."""
    return {key: as_field(choices_of(name, key), value) for key, value in options.items()}


def as_field(choices: Any, value: Any) -> Any:
    """A value as typed, as the field of an options class holds it."""
    return choices[value] if choices and isinstance(value, str) else value


def choices_of(name: str, option: str) -> Any:
    """The enumeration of an option, None for one that is a number, a text or a truth value."""
    return next(
        (item.metadata["choices"] for item in fields(registry.scheme(name).options) if item.name == option), None
    )


def option_names(name: str) -> set[str]:
    return {item.name for item in fields(registry.scheme(name).options)}


@functools.cache
def values_of(name: str) -> dict[str, list[Any]]:
    """The values of each option that are gone through, the default first: from VALUES of the reference, else derived."""
    given = getattr(known_reference(name), "VALUES", None)
    if given is not None:
        return {option: [as_field(choices_of(name, option), each) for each in found] for option, found in given.items()}
    return {item.name: derived(name, item) for item in fields(registry.scheme(name).options)}


def derived(name: str, item: Field[Any]) -> list[Any]:
    """The default, all choices, and of numbers the first of some near it that the scheme accepts."""
    default = getattr(registry.scheme(name).options(), item.name)
    if item.metadata.get("choices"):
        return [default, *(each for each in item.metadata["choices"] if each is not default)]
    if isinstance(default, bool):
        return [default, not default]
    if isinstance(default, (int, float)):
        tried = [default + 1, default * 2, default - 1, default / 2]
        near = [type(default)(each) for each in tried]
    else:
        near = [2, 3, 4, 8] if default is None and not written_type(item).startswith("list") else []
    return [
        default,
        *[each for each in near if each != default and accepted(name, {item.name: each}, Case(name).dims())][:1],
    ]


def other_value(name: str, option: str) -> Any:
    """A value that is not the default. Without one a test that asks for it fails, or outside a checkout is skipped."""
    default, *others = values_of(name)[option]
    if not others:
        reference(name)
        pytest.fail(f"pe.{option} has no second value: give some in VALUES of its reference", pytrace=False)
    return next(value for value in others if value != default)


def combinations(name: str, size: Dims) -> list[dict[str, Any]]:
    """The combinations of option values that the scheme accepts: every choice with every other, once with all numbers
    at their defaults and once with all of them changed, and each changed value by itself."""
    found: list[dict[str, Any]] = []
    table = values_of(name)
    for place in (0, -1):
        columns = [values if is_choice(values) else [values[place]] for values in table.values()]
        found += [dict(zip(table, row, strict=True)) for row in itertools.product(*columns)]
    distinct = [options for n, options in enumerate(found) if options not in found[:n]]
    return [options for options in distinct if accepted(name, options, size)]


def is_choice(values: list[Any]) -> bool:
    return isinstance(values[-1], (bool, enum.Enum))


def accepted(name: str, options: dict[str, Any], size: Dims) -> bool:
    if registry.scheme(name).causal_only and not size.causal:
        return False
    try:
        for item in fields(registry.scheme(name).options):
            if item.name in options:
                check_range("pe", item, options[item.name])
        registry.scheme(name).options(**options).check(size)
    except ConfigError:
        return False
    return True


def reaching(name: str, length: int) -> dict[str, Any]:
    """Options with which a scheme is defined for so many positions of each axis; none where any number will do."""
    scheme = registry.scheme(name)
    if scheme.options().sizes(dims()) is None:
        return {}
    axes = scheme.options().number_of_axes()
    for option, value in itertools.product(sorted(option_names(name)), (length, [length] * axes)):
        try:
            sizes = scheme.options(**{option: value}).sizes(dims())
            if sizes is not None and min(sizes) >= length:
                return {option: value}
        except (ConfigError, TypeError):  # a number where the option is a list, or the other way round
            continue
    raise AssertionError(f"{name} is defined for some positions only, and no option says for how many")


def label(options: dict[str, Any]) -> str:
    words = (f"{key}={value.name if isinstance(value, enum.Enum) else value}" for key, value in options.items())
    return ",".join(words) or "-"


# Cases of a scheme


@functools.cache
def cases_of(name: str) -> list[Case]:
    """In both directions, as far as a scheme has them, with every combination of options that it accepts."""
    return [each._replace(options=found) for each in by_direction(name) for found in combinations(name, each.dims())]


def by_default(name: str) -> list[Case]:
    """With its default options, causal."""
    return [Case(name)]


def by_direction(name: str) -> list[Case]:
    """The same in both directions, as far as a scheme has them."""
    return [Case(name, causal) for causal in directions(name)]


def directions(name: str) -> list[bool]:
    """The values of `causal` that a scheme works with."""
    return [True] if registry.scheme(name).causal_only else [True, False]


def by_option(name: str) -> list[tuple[Case, str]]:
    """Every option by itself."""
    return [(Case(name), option) for option in sorted(option_names(name))]


# Cases of all


def cases() -> list[Case]:
    """Those of every scheme of the registry."""
    return [case for name in registry.all_schemes() for case in cases_of(name)]


def of_text(found: list[Case]) -> list[Case]:
    """Those whose positions have one axis."""
    return [case for case in found if case.axes == 1]


@functools.cache
def biases() -> list[Case]:
    """The cases of schemes for text that add a function of positions alone to the scores."""
    adding = [case for case in of_text(cases()) if case.scheme.acts_on is ActsOn.scores]
    return [case for case in adding if not of_content(case.build())]
