"""What the tests of the ten parts take: `case`, every scheme with all its options in both directions; `direction`, with
its default options; `default`, causal too; `option`, every option by itself. `@where` leaves some out, by what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from posbuild import registry
from posbuild.conformance import cases

SOURCES: dict[str, Callable[[str], Sequence[Any]]] = {
    "case": cases.cases_of,
    "direction": cases.by_direction,
    "default": cases.by_default,
    "option": cases.by_option,
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "where(holds): of the cases, those of which this holds")
    config.addinivalue_line("markers", "part(number): the part of the conformance suite")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = metafunc.config.getoption("schemes", None) or registry.all_schemes()
    holds = [mark.args[0] for mark in metafunc.definition.iter_markers("where")]
    for argument, source in SOURCES.items():
        if argument in metafunc.fixturenames:
            found = [each for name in names for each in source(name) if all(hold(each) for hold in holds)]
            metafunc.parametrize(argument, found, ids=[identifier(each) for each in found])


def identifier(each: cases.Case | tuple[cases.Case, str]) -> str:
    return str(each) if isinstance(each, cases.Case) else f"{each[0].name}-{each[1]}"
