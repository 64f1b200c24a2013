"""Part 10: what cannot be is refused before anything is computed, by one ConfigError that names the setting as typed.

Ranges, choices, types, widths, masks and tables come from the declarations. What is special to a scheme, its reference
lists in REFUSED: (options as typed, changes of the sizes, what the message says).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from posbuild import registry, scores
from posbuild.conformance.cases import TRAIN_LENGTH, Case, other_value, reaching, values_of
from posbuild.conformance.layer import attention, random
from posbuild.conformance.models import model_of, places, tokens
from posbuild.conformance.paper import reference
from posbuild.declaration import ActsOn, Dims, typed_form, written_type
from posbuild.encodings.base import Encoding
from posbuild.errors import ConfigError
from posbuild.schemes.rope import RopeOptions
from posbuild.settings import options_of as from_typed

PART = (10, "refusals")
pytestmark = pytest.mark.part(PART)


class NothingComputed(TorchFunctionMode):
    """Any use of torch within is a fault: what is refused late has cost someone memory, or a run."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{function} was called before the settings were refused")


@contextmanager
def refused(message: str) -> Iterator[None]:
    with pytest.raises(ConfigError, match=message), NothingComputed():
        yield


def encoding_of(case: Case, options: dict[str, Any], size: Dims | None = None) -> Encoding:
    """The encoding with these options, as they are typed."""
    return registry.encoding(case.name, from_typed(case.name, options), size or case.dims())


# Each option by itself


def outside(item: dataclasses.Field[Any]) -> list[float]:
    """Numbers beyond each bound of an option; a value that must lie above a bound may not be it."""
    whole, bounds = "int" in written_type(item), item.metadata
    step = 1 if whole else 1e-3
    found: list[float] = []
    if bounds["above"] is not None:
        found += [bounds["above"], bounds["above"] - step]
    if bounds["least"] is not None:
        found.append(bounds["least"] - step)
    if bounds["most"] is not None:
        found.append(bounds["most"] + step)
    return [int(each) if whole else float(each) for each in found]


def test_values_out_of_range(option: tuple[Case, str]) -> None:
    """Beyond each bound, on it if the value must lie above, and for numbers NaN and infinity; of a list each item."""
    case, name = option
    item = next(each for each in dataclasses.fields(case.scheme.options) if each.name == name)
    wrong: list[Any] = outside(item)
    if "float" in written_type(item):
        wrong.append(math.nan)
    for value in wrong:
        given = [value] if "list" in written_type(item) else value
        said = rf"^pe\.{name}={re.escape(typed_form(given))} is out of range: (it|each) must be .*Default: "
        with refused(said):
            case.scheme.options(**{name: given})
        with refused(said):
            encoding_of(case, {name: given})
    if written_type(item).startswith("float"):
        with refused(rf"^pe\.{name}=inf must be a finite number"):
            encoding_of(case, {name: math.inf})
    elif not wrong:
        assert item.metadata["choices"] or "bool" in written_type(item), f"pe.{name} has no range: give `option` one"


def test_values_of_a_wrong_kind(option: tuple[Case, str]) -> None:
    """A word that is no choice, no number and no truth value, with what would be right."""
    case, name = option
    item = next(each for each in dataclasses.fields(case.scheme.options) if each.name == name)
    why = "is not a choice: use one of " if item.metadata["choices"] else "has the wrong type: it must be "
    with refused(rf"^pe\.{name}=nonsense {why}.*Default: "):
        encoding_of(case, {name: "nonsense"})


def test_options_that_it_has_not(default: Case) -> None:
    with refused(rf"^pe\.no_such_option=1 is not a setting of pe={default.name}\. "):
        encoding_of(default, {"no_such_option": 1})


def test_a_second_value_of_every_option_is_not_refused(option: tuple[Case, str]) -> None:
    """Else a check that refuses everything would pass here."""
    case, name = option
    other_value(case.name, name)
    assert any(accepts(case, {name: getattr(value, "name", value)}) for value in values_of(case.name)[name][1:])


def accepts(case: Case, options: dict[str, Any]) -> bool:
    """In one direction, or with an odd or an even number of heads."""
    for causal in (True, False):
        for heads in (3, 4):
            try:
                encoding_of(case, options, dataclasses.replace(case._replace(causal=causal).dims(heads)))
            except ConfigError:
                continue
            return True
    return False


# What does not go together


def test_what_its_reference_says_cannot_be(default: Case) -> None:
    found = getattr(reference(default.name), "REFUSED", [])
    assert found or "check" not in vars(default.scheme.options), (
        "its options have a check of their own, and REFUSED of its reference holds nothing that this refuses"
    )
    for options, sizes, said in found:
        changes = {"heads": 3, "width": default.least_width, "causal": True} | sizes
        size = default._replace(causal=changes["causal"]).dims(changes["heads"], changes["width"])
        if "train_length" in changes:
            size = dataclasses.replace(size, train_length=changes["train_length"])
        with refused(said):
            encoding_of(default, options, size)


def test_any_width_works_or_is_refused(case: Case) -> None:
    """Refused by the number of channels and the setting to change; the fault to catch: an odd channel that has no partner,
    which shows as an error of torch, or as numbers that are none.
    """
    chosen = case.chosen
    for width in (1, 2, 3, 5, 6, 7, 8):
        size = case.dims(heads=1, width=width)
        try:
            with NothingComputed():
                chosen.check(size)
        except ConfigError as error:
            assert re.search(rf"\b{width}\b", str(error)) and re.search(r"(pe|model)\.\w+=", str(error)), error
            continue
        if isinstance(chosen, RopeOptions):
            turning = chosen.rotary_width(size)
            assert turning > 0 and turning % 2 == 0, f"{turning} of {width} channels would turn in pairs"
        with torch.no_grad():
            assert attention(case.build(size), random(1, 3, width), case.at(0, 1, 5)).isfinite().all(), width


def test_a_bidirectional_model_as_declared(default: Case) -> None:
    """Refused with the declared reason by a scheme that needs a causal mask, and built with any other."""
    size, reason = default._replace(causal=False).dims(), default.scheme.causal_only
    if reason is None:
        assert encoding_of(default, {}, size).dims.causal is False
        return
    with refused(rf"^pe={default.name} needs a causal mask.*{re.escape(reason)}"):
        encoding_of(default, {}, size)


# Positions


def test_positions_of_a_wrong_number_of_axes(default: Case) -> None:
    model, axes = model_of(default), default.axes
    shape = r"\(B or 1, T\)" if axes == 1 else rf"\(B or 1, T, {axes}\)"
    wrong = [torch.zeros(1, 4, axes + 1, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)]
    wrong += [] if axes == 1 else [torch.zeros(1, 4, dtype=torch.int64), torch.zeros(4, axes, dtype=torch.int64)]
    for given in wrong:
        with pytest.raises(
            ConfigError, match=rf"shape {shape}, and those given have {re.escape(str((*given.shape,)))}"
        ):
            model(tokens(1, 4), given)
    if axes > 1:
        with pytest.raises(ConfigError, match=rf"shape {shape}, and those given have None"):
            model(tokens(1, 4))


@pytest.mark.where(lambda case: case.ends)
def test_positions_beyond_a_table(default: Case) -> None:
    """However they come; the last that there is is read. The fault to catch: a row, or an offset, of another place."""
    model = model_of(default)
    sizes = model.encoding.options.sizes(model.dims)
    assert sizes is not None
    last = torch.tensor(sizes) - 1
    for axis in range(len(sizes)):
        for beyond in (sizes[axis], 2**30, -1):
            at = last.clone()
            at[axis] = beyond
            given = torch.stack([last, at])[None]
            given = given[..., 0] if default.axes == 1 else given
            with pytest.raises(ConfigError, match=rf"for {' x '.join(map(str, sizes))} positions.*\D{beyond}\b"):
                model(tokens(1, 2), given)
            if default.scheme.acts_on is ActsOn.input:
                continue
            heads = random(1, 4, 2, default.least_width)
            with pytest.raises(ConfigError, match=r"defined for .* positions"):
                scores(default.name, heads, heads, given[0], given[0], train_length=TRAIN_LENGTH, x=random(1, 2, 16))
    good = last[None, None] if default.axes > 1 else last[None]
    assert model(tokens(1, 1), good).isfinite().all()


@pytest.mark.where(lambda case: case.ends and case.axes == 1)
def test_a_text_longer_than_a_table(default: Case) -> None:
    """Counted by the model: read at once or through a cache; each packed document counts from 0."""
    model = model_of(default)
    longest = model.longest
    assert longest == TRAIN_LENGTH
    said = rf"defined for {longest} positions .*reaches position {longest} \({longest + 1} tokens\)"
    with torch.no_grad():
        with pytest.raises(ConfigError, match=said):
            model(tokens(1, longest + 1))
        cache = model.new_cache(1)
        model(tokens(1, longest), cache=cache)
        with pytest.raises(ConfigError, match=said):
            model(tokens(1, 1), cache=cache)
        two = torch.arange(2).repeat_interleave(longest)[None]
        assert model(tokens(1, 2 * longest), places(default, 2 * longest), two).isfinite().all()


@pytest.mark.where(lambda case: case.ends and case.axes == 1)
def test_a_table_shorter_than_the_train_length(default: Case) -> None:
    ((name, _),) = reaching(default.name, TRAIN_LENGTH + 1).items()
    short = TRAIN_LENGTH - 1
    with refused(rf"^pe\.{name}={short} is shorter than train\.length={TRAIN_LENGTH}"):
        encoding_of(default, {name: short})
    assert encoding_of(default, {name: TRAIN_LENGTH})
