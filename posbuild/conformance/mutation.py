"""`posbuild check --mutate`: plants faults in every scheme and says which part of the suite catches each.

A fault is planted where encodings are built, so that each test of the scheme meets it. Those of part 9, which compares a
scheme with itself elsewhere, are left out.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from posbuild import registry
from posbuild.bias import OfContent, Positional, Seen, softmax
from posbuild.conformance import plugin
from posbuild.conformance.cases import SIDE, Case, cases_of
from posbuild.conformance.layer import attention, random
from posbuild.declaration import ActsOn, Dims, Options, Scheme
from posbuild.encodings import base
from posbuild.encodings.base import AbsoluteCode, Encoding
from posbuild.errors import ConfigError

LEFT_OUT = {9}
FAR = 600  # places, beyond those that bf16 numbers
Places = Callable[[Tensor], Tensor]


class Mutant(NamedTuple):
    """One fault in one scheme."""

    scheme: str
    fault: str
    planted: Callable[[], Any]  # a context


# Where faults are planted


@contextmanager
def building(changed: Callable[[str, Options, Dims, Callable[..., Encoding]], Encoding]) -> Iterator[None]:
    """Encodings built as `changed` has it, which is given what `registry.encoding` is, and that function."""
    original = registry.encoding
    registry.encoding = lambda name, options, dims: changed(name, options, dims, original)
    try:
        yield
    finally:
        registry.encoding = original


@contextmanager
def replaced(function: str, by: Callable[..., Any]) -> Iterator[None]:
    """A function of encodings/base.py replaced wherever it was imported."""
    original = getattr(base, function)
    holders = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("posbuild.encodings.") and getattr(module, function, None) is original
    ]
    for module in holders:
        setattr(module, function, by)
    try:
        yield
    finally:
        for module in holders:
            setattr(module, function, original)


@dataclass(frozen=True)
class Moved:
    """A bias for queries and keys in other places, or of another sign."""

    of: Positional
    of_queries: Callable[[Tensor, int], Tensor]
    of_keys: Callable[[Tensor, int], Tensor]
    sign: int = 1

    def dense(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, dtype: torch.dtype) -> Tensor:
        """(B, H, Q, K)."""
        keys = k_positions_BK.shape[1]
        where = self.of_queries(q_positions_BQ, keys), self.of_keys(k_positions_BK, keys)
        return self.sign * self.of.dense(*where, dtype)


class Shared(NamedTuple):
    """What layers share, for queries and for keys in other places."""

    of_queries: Any
    of_keys: Any


def elsewhere(
    encoding: Encoding, of_queries: Callable[[Tensor, int], Tensor], of_keys: Callable[[Tensor, int], Tensor]
) -> Encoding:
    """The encoding given other places than its tokens have: those of queries, and of keys and token vectors at the input.

    Both functions are given positions (B, T) and the number of keys, of which the queries are the last.
    """
    hooks: Any = encoding
    prepare, at_queries, at_keys, at_scores = (
        getattr(encoding, hook) for hook in ("prepare", "at_queries", "at_keys", "at_scores")
    )

    def alone(function: Callable[[Tensor, int], Tensor], positions: Tensor) -> Tensor:
        return function(positions, positions.shape[1])

    hooks.prepare = lambda p: Shared(prepare(alone(of_queries, p)), prepare(alone(of_keys, p)))
    hooks.at_queries = lambda q, p, layer, shared: at_queries(q, alone(of_queries, p), layer, shared.of_queries)
    hooks.at_keys = lambda k, p, layer, shared: at_keys(k, alone(of_keys, p), layer, shared.of_keys)

    def scores(q_positions: Tensor, k_positions: Tensor, layer: int, shared: Shared) -> Any:
        keys = k_positions.shape[1]
        where = of_queries(q_positions, keys), of_keys(k_positions, keys)
        bias = at_scores(*where, layer, shared.of_keys)
        if bias is None:
            return None
        if not isinstance(bias, OfContent):
            return Moved(bias, of_queries, of_keys)

        def moved(seen: Seen) -> Seen:
            count = seen.k_positions_BK.shape[1]
            return replace(
                seen,
                q_positions_BQ=of_queries(seen.q_positions_BQ, count),
                k_positions_BK=of_keys(seen.k_positions_BK, count),
            )

        return of_moved(bias, moved)

    hooks.at_scores = scores
    if isinstance(encoding, AbsoluteCode):
        codes = encoding.codes
        hooks.codes = lambda p: codes(alone(of_queries, p) if p.dim() > 1 else of_queries(p[None], len(p))[0])
    else:
        at_input = encoding.at_input
        hooks.at_input = lambda x, p: at_input(x, alone(of_queries, p))
    return encoding


def of_moved(bias: OfContent, moved: Callable[[Seen], Seen]) -> OfContent:
    values = bias.values
    return OfContent(
        lambda seen: bias.scores(moved(seen)),
        (lambda scores, seen: bias.weights(scores, moved(seen))) if bias.weights is not softmax else softmax,
        None if values is None else lambda weights, seen: values(weights, moved(seen)),
    )


def turned_over(encoding: Encoding) -> Encoding:
    """What it adds, taken away; a turn, the other way round."""
    hooks: Any = encoding
    acts_on, at_scores, at_input = scheme_of(encoding), encoding.at_scores, encoding.at_input
    if acts_on is ActsOn.input:
        hooks.at_input = lambda x, p: 2 * x - at_input(x, p)
        if isinstance(encoding, AbsoluteCode):
            codes = encoding.codes
            hooks.codes = lambda p: -codes(p)
            hooks.at_input = at_input
        return encoding
    if acts_on is ActsOn.queries_and_keys:
        return elsewhere(encoding, lambda p, _: -p, lambda p, _: -p)

    def scores(*where: Any) -> Any:
        bias = at_scores(*where)
        if isinstance(bias, OfContent):
            return replace(bias, scores=lambda seen: 2 * seen.scores - bias.scores(seen))
        return bias and Moved(bias, lambda p, _: p, lambda p, _: p, sign=-1)

    hooks.at_scores = scores
    return encoding


def scheme_of(encoding: Encoding) -> ActsOn:
    return next(each.acts_on for each in registry.all_schemes().values() if isinstance(encoding.options, each.options))


# Faults


def queries_one_further(encoding: Encoding) -> Encoding:
    return elsewhere(encoding, lambda p, _: p + 1, lambda p, _: p)


def half_precision_positions(encoding: Encoding) -> Encoding:
    def rounded(positions: Tensor, _: int) -> Tensor:
        return positions.to(torch.bfloat16).to(positions.dtype)

    return elsewhere(encoding, rounded, rounded)


def places_from_length(encoding: Encoding) -> Encoding:
    def of_last(positions: Tensor, keys: int) -> Tensor:
        count = positions.shape[1]
        numbers = torch.arange(keys - count, keys, device=positions.device)
        if positions.dim() == 3:
            numbers = torch.stack([numbers // SIDE, numbers % SIDE, numbers // 2 % SIDE][: positions.shape[2]], dim=-1)
        return numbers.expand_as(positions).to(positions.dtype)

    return elsewhere(encoding, of_last, of_last)


def stale_places(encoding: Encoding) -> Encoding:
    kept: dict[Any, Tensor] = {}

    def first(positions: Tensor, _: int) -> Tensor:
        return kept.setdefault(positions.shape, positions)

    return elsewhere(encoding, first, first)


def half_precision_angles(positions: Tensor, radians_per_token: Sequence[float]) -> Tensor:
    exact = ANGLES(positions, radians_per_token)
    low = torch.tensor(radians_per_token, dtype=torch.bfloat16, device=positions.device)
    return (positions.to(torch.bfloat16)[..., None] * low).to(exact.dtype)


def reversed_angles(positions: Tensor, radians_per_token: Sequence[float]) -> Tensor:
    return ANGLES(positions, [*radians_per_token][::-1])


def reversed_constants(values: Sequence[float], device: torch.device) -> Tensor:
    return CONSTANTS([*values][::-1], device)


def same(positions: Tensor, _: int) -> Tensor:
    return positions


NO_FAULT = "nothing"  # the control: no test may fail
SAME = "computes the same function"
ANGLES, CONSTANTS = base.angles, base.constants
OF_PLACES = {
    "off-by-one distance": queries_one_further,
    "half-precision positions": half_precision_positions,
    "places from the length": places_from_length,
    "stale places": stale_places,
}
OF_FUNCTIONS = {
    "half-precision angle": ("angles", half_precision_angles),
    "reversed frequencies": ("angles", reversed_angles),
    "reversed constants": ("constants", reversed_constants),
}


def mutants(scheme: Scheme) -> Iterator[Mutant]:
    """The faults that apply to a scheme."""

    def of_encoding(change: Callable[[Encoding], Encoding]) -> Callable[[], Any]:
        return lambda: building(lambda name, options, dims, original: change(original(name, options, dims)))

    def of_options(change: Callable[[Options], Options]) -> Callable[[], Any]:
        return lambda: building(lambda name, options, dims, original: original(name, change(options), dims))

    yield Mutant(scheme.name, NO_FAULT, of_encoding(lambda encoding: elsewhere(encoding, same, same)))
    if scheme.options().reads_positions() and scheme.acts_on is not ActsOn.nothing:
        for fault, change in OF_PLACES.items():
            yield Mutant(scheme.name, fault, of_encoding(change))
    if scheme.acts_on is not ActsOn.nothing:
        yield Mutant(scheme.name, "wrong sign", of_encoding(turned_over))
    for fault, (function, by) in OF_FUNCTIONS.items():
        if calls(scheme, function):
            yield Mutant(scheme.name, fault, lambda function=function, by=by: replaced(function, by))  # type: ignore[misc]
    for item in fields(scheme.options):
        default = getattr(scheme.options(), item.name)
        dropped = of_options(lambda options, item=item, default=default: replace(options, **{item.name: default}))  # type: ignore[misc]
        yield Mutant(scheme.name, f"dropped option {item.name}", dropped)
        if item.name == "layout":
            yield Mutant(scheme.name, "swapped layout", of_options(swapped))


def swapped(options: Any) -> Any:
    """The other of two layouts."""
    return replace(options, layout=next(each for each in type(options.layout) if each is not options.layout))


def calls(scheme: Scheme, function: str) -> bool:
    """Whether a scheme calls a function of encodings/base.py with several numbers."""
    seen, original = [], getattr(base, function)

    def watched(*given: Any) -> Any:
        seen.append(len(given[0] if function == "constants" else given[1]))
        return original(*given)

    case = Case(scheme.name)
    case.build()  # imports its module
    with replaced(function, watched), torch.no_grad():
        encoding = case.build(case.dims(width=2 * case.least_width))
        attention(encoding, random(1, 4, encoding.dims.d_model), case.counted(4))
    return any(count > 1 for count in seen)


def changes_nothing(mutant: Mutant) -> bool:
    """Whether the scheme with the fault computes what it does without, with all its options: then it is none."""
    every = [case.reaching(FAR) for case in cases_of(mutant.scheme)]
    every = [case for case in every if min(case.chosen.sizes(case.dims()) or [FAR]) >= FAR]
    right = [outputs(case) for case in every]
    pairs = zip(every, right, strict=True)
    with mutant.planted():
        try:
            return all(torch.allclose(outputs(case), each, rtol=0, atol=1e-9) for case, each in pairs)
        except (IndexError, ConfigError):  # a place that is none
            return False


def outputs(case: Case) -> Tensor:
    """What each layer makes of token vectors, at places near and far, in any order: beyond 256, where bf16 ends, at least."""
    numbers = torch.tensor([[3, 257, 0, 15, 258, FAR - 1, 7, 7, 256]])
    where = numbers if case.axes == 1 else torch.stack([numbers, numbers.flip(1), numbers][: case.axes], dim=-1)
    encoding = case.build(case.dims(heads=2))
    x = random(1, where.shape[1], encoding.dims.d_model)
    with torch.no_grad():
        return torch.stack([attention(encoding, x, where, layer) for layer in range(encoding.dims.n_layers)])


# The run


class Planter:
    """In place of pytest's loop: with each fault in turn the tests of its scheme, up to the first that fails."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.caught: dict[tuple[str, str], str] = {}
        self.reports: list[Any] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.reports.append(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = defaultdict(list)
        for item in session.items:
            part = plugin.part_of(item)
            if part is not None and part[0] not in LEFT_OUT:
                last = item.get_closest_marker("hypothesis") is not None  # a failure is looked for where it is smallest
                for name in plugin.schemes_of(item):
                    items[name].append((part[0] + 10 * last, item))
        for name in self.names:
            for mutant in mutants(registry.scheme(name)):
                self.caught[name, mutant.fault] = self.first_failure(
                    mutant, [*sorted(items[name], key=lambda it: it[0])]
                )
                if not self.caught[name, mutant.fault] and mutant.fault != NO_FAULT and changes_nothing(mutant):
                    self.caught[name, mutant.fault] = SAME
                outcome = self.caught[name, mutant.fault] or ("-" if mutant.fault == NO_FAULT else "SURVIVED")
                print(f"{name:24} {mutant.fault:32} {outcome}", flush=True)
        return True

    def first_failure(self, mutant: Mutant, items: list[tuple[int, pytest.Item]]) -> str:
        """The part and test that a fault makes fail; nothing if there is none."""
        with mutant.planted():
            for part, item in items:
                self.reports.clear()
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                if any(report.failed for report in self.reports):
                    return f"part {part % 10 or 10}  {getattr(item, 'originalname', item.name)}"
        return ""


def mutate(names: Sequence[str]) -> int:
    """Plant the faults in these schemes, or in all, and print what caught each; 0 if none survived."""
    planter = Planter(plugin.known(names))
    plugin.run(names, [planter], "-p", "no:xdist", "-m", "not slow")
    disturbed = [name for (name, fault), part in planter.caught.items() if fault == NO_FAULT and part]
    faults = {key: part for key, part in planter.caught.items() if key[1] != NO_FAULT and part != SAME}
    survived = [key for key, part in faults.items() if not part]
    print(f"\n{len(faults) - len(survived)} of {len(faults)} faults caught")
    for name, fault in survived:
        print(f"survived: {fault} in {name}")
    for name in disturbed:
        print(f"{name} fails without a fault: what it says above proves nothing")
    return 1 if survived or disturbed or not planter.caught else 0
