"""What a scheme says of itself before any tensor exists: name, options, traits, source, and where its maths is.

Nothing here imports torch, so that `--help`, `posbuild list` and completion are quick.
"""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass, field
from typing import Any

from posbuild.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Dims:
    """The sizes of a model that an encoding may depend on. Widths in channels, lengths in tokens."""

    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    train_length: int
    causal: bool

    @property
    def head_dim(self) -> int:
        return self.d_model // self.n_heads


ANY = Dims(d_model=64, n_layers=1, n_heads=4, n_kv_heads=4, train_length=64, causal=True)  # a model as good as another


def option(
    default: Any,
    effect: str,
    *,
    unit: str = "",
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    choices: type[enum.Enum] | None = None,
) -> Any:
    """A field of an options class: its default, what it does, its unit, and the range that is checked.

    above: the value must be greater; least, most: it must be at least, at most that. None as a value is not checked:
    it stands for a default that depends on the model, which `effect` states; choices then names the enumeration.
    """
    if isinstance(default, enum.Enum):
        choices = type(default)
    metadata = {"effect": effect, "unit": unit, "above": above, "least": least, "most": most, "choices": choices}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(kw_only=True)
class Options:
    """The options of one scheme: subclass it, one `option` a field (int, float, bool, str, Enum, Optional of these).

    Not frozen: OmegaConf cannot compose frozen dataclasses.
    """

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            check_range("pe", item, getattr(self, item.name))

    def resolved(self, dims: Dims) -> Options:
        """Options that give the same encoding in a causal or bidirectional model of these sizes, with what stands for a
        default that depends on it written out: equal encodings have equal resolved options.
        """
        return self

    def has_parameters(self) -> bool:
        """Whether the encoding learns anything with these options."""
        return True

    def reads_positions(self) -> bool:
        """Whether position numbers matter: else the encoding goes by the order of the tokens."""
        return True

    def takes_fractions(self) -> bool:
        """Whether positions may be fractions: not where they, or their distances, are looked up in a table."""
        return True

    def check(self, dims: Dims) -> None:
        """Raise ConfigError if these options cannot work in a model of these sizes."""

    def longest(self, dims: Dims) -> int | None:
        """The number of tokens that the scheme is defined for, None where any length will do."""
        return None

    def number_of_axes(self) -> int:
        """Numbers that make one position: 1 in text, 2 in an image. With more than one, positions have a last dimension."""
        return 1

    def sizes(self, dims: Dims) -> list[int] | None:
        """How many positions of each axis the scheme is defined for, None where any number will do."""
        longest = self.longest(dims)
        return None if longest is None else [longest]


def check_range(section: str, item: dataclasses.Field, value: Any) -> None:
    """Raise ConfigError if `value`, or one of its items, lies outside the range that the field declares."""
    if value is None or not item.metadata:
        return
    if not all(in_range(item, each) for each in (value if isinstance(value, list) else [value])):
        what = "each" if isinstance(value, list) else "it"
        raise ConfigError(
            f"{section}.{item.name}={typed_form(value)} is out of range: {what} must be {range_of(item, 'a number')}. "
            f"Default: {default_of(item)}."
        )


def in_range(item: dataclasses.Field, value: Any) -> bool:
    above, least, most = (item.metadata[bound] for bound in ("above", "least", "most"))
    within = (above is None or value > above) and (least is None or value >= least) and (most is None or value <= most)
    return within and value == value  # NaN is no number


def written_type(item: dataclasses.Field) -> str:
    """The type of a field as it stands in the code, whether or not annotations are kept as text: "float", "int | None"."""
    plain = isinstance(item.type, type) and not hasattr(item.type, "__origin__")  # list[int] is a type in Python 3.10
    return item.type.__name__ if plain else str(item.type)  # type: ignore[union-attr]


def default_of(item: dataclasses.Field) -> str:
    """The default of a field, as it would be typed."""
    if item.default_factory is not dataclasses.MISSING:
        return typed_form(item.default_factory())
    return typed_form(item.default)


def typed_form(value: Any) -> str:
    """A value as it would be typed."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(typed_form, value))}]"
    return value.name if isinstance(value, enum.Enum) else str(value)


def range_of(item: dataclasses.Field, unlimited: str = "any") -> str:
    """The range of a field in words: "> 0 and <= 1", "one of half, interleaved", "true or false", or what is given."""
    if choices := item.metadata["choices"]:
        return "one of " + ", ".join(choice.name for choice in choices)
    if written_type(item) == "bool":
        return "true or false"
    bounds = [
        f"{sign} {item.metadata[name]:g}"
        for name, sign in (("above", ">"), ("least", ">="), ("most", "<="))
        if item.metadata[name] is not None
    ]
    return " and ".join(bounds) or unlimited


@dataclass(frozen=True, kw_only=True)
class Paper:
    """Where a scheme was published. `arxiv` is the identifier; `where` the section, equation or table of the formula."""

    title: str
    authors: str
    year: int
    arxiv: str = ""
    where: str = ""

    @property
    def by(self) -> str:
        return f"{self.authors} {self.year}"

    @property
    def short(self) -> str:
        return self.by + (f" (arXiv:{self.arxiv})" if self.arxiv else "")


class ActsOn(enum.Enum):
    """Where in the Transformer an encoding acts."""

    nothing = "nothing"
    input = "input"
    queries_and_keys = "queries and keys"
    scores = "scores"
    values = "values"
    attention = "attention"


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """A published way to encode position.

    name            the registry name, the config choice, the file stem and the wandb group key
    summary         one line: what it does
    options         its options class
    maths           "module:Class" of the torch module that computes it
    acts_on         where it acts
    learns          what it learns, "nothing" if nothing
    beyond          whether it is defined beyond the train length, in words a person can choose by
    cost            what it costs, in words
    used_by         models that use it
    paper           its source
    reference       the module of its slow formula for `posbuild check`; of the schemes of the package tests.reference.NAME
    compared_with   code of others that it was found equal to, a package or owner/name of GitHub; none: the paper only
    causal_only     the reason why it needs a causal mask, None if it works in both directions
    orderless       without a causal mask it cannot tell one order of the tokens from another
    shift_invariant of positions, scores depend on the distance of two tokens at most
    prefix_stable   in a causal model the output of a token does not depend on how many follow it, or are read with it
    axes            the numbers of axes that its positions may have; text has one
    pe_lr_mult      the multiplier for the rate of its own parameters: of 1, 3, 10, 30, 100 and 300 the least whose
                    validation loss is within 0.005 nats/token of the lowest (tiny, 1600 steps, seed 0)
    """

    name: str
    summary: str
    options: type[Options]
    maths: str
    acts_on: ActsOn
    learns: str
    beyond: str
    cost: str
    used_by: tuple[str, ...]
    paper: Paper
    reference: str = ""
    compared_with: tuple[str, ...] = ()
    causal_only: str | None = None
    orderless: bool = False
    shift_invariant: bool = False
    prefix_stable: bool = True
    axes: tuple[int, ...] = (1,)
    pe_lr_mult: float = 1.0
