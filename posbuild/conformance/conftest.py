"""What the tests of the ten parts take: `case`, every scheme with all its options in both directions; `direction`, with
its default options; `default`, causal too; `option`, every option by itself. `@where` leaves some out, by what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from posbuild.conformance import cases

SOURCES: dict[str, Callable[[], Iterable[Any]]] = {
    "case": cases.cases,
    "direction": cases.by_direction,
    "default": cases.by_scheme,
    "option": cases.by_option,
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "where(holds): of the cases, those of which this holds")
    config.addinivalue_line("markers", "part(number): the part of the conformance suite")
    config.addinivalue_line("markers", "scheme(*names): the schemes that a test is of")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = metafunc.config.getoption("schemes", None)
    for argument, source in SOURCES.items():
        if argument in metafunc.fixturenames:
            found = [(each if isinstance(each, cases.Case) else each[0], each) for each in source()]
            holds = [mark.args[0] for mark in metafunc.definition.iter_markers("where")]
            of = [each for case, each in found if chosen is None or case.name in chosen]
            of = [each for each in of if all(hold(each) for hold in holds)]
            metafunc.parametrize(argument, of, ids=[identifier(each) for each in of])


def identifier(each: cases.Case | tuple[cases.Case, str]) -> str:
    return str(each) if isinstance(each, cases.Case) else f"{each[0].name}-{each[1]}"
