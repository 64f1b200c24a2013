"""Part 2: every scheme equals code of others, as far as there is some: rows that it gave, and packages that install.

The comparisons with packages are in tests/public/ of a checkout, each marked with the package and the schemes it is of.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections import defaultdict

import pytest

from posbuild import registry
from posbuild.conformance.cases import Case
from posbuild.conformance.paper import CHECKOUT, rows
from posbuild.conformance.rows import assert_gives_row

PART = (2, "equals code of others")
pytestmark = pytest.mark.part(PART)


def repository(source: str) -> str:
    """The owner/name, or the package, that a source begins with."""
    return re.split(r"[@ ,]", source)[0]


@functools.cache
def compared() -> dict[str, set[str]]:
    """The packages that tests of a checkout compare each scheme with."""
    found = defaultdict(set)
    for file in sorted((CHECKOUT / "tests" / "public").glob("test_*.py")):
        module = importlib.import_module(f"tests.public.{file.stem}")
        for each in vars(module).values():
            for mark in getattr(each, "pytestmark", []):
                if mark.name == "public":
                    for name in mark.args[1:]:
                        found[name].add(mark.args[0])
    return found


def test_rows_that_code_of_others_gave(default: Case) -> None:
    if not default.scheme.compared_with:
        pytest.skip("the paper alone")
    for row in rows(default.name, "RELEASED"):
        assert_gives_row(default.name, row, row.get("rtol", 1e-12))


def test_what_it_was_compared_with_is_declared(default: Case) -> None:
    """So that `posbuild list` says of which schemes the paper alone is the proof. One's own may name more: tests of one's own
    are not looked for.
    """
    name, declared = default.name, {*default.scheme.compared_with}
    found = {repository(row["source"]) for row in rows(name, "RELEASED")} | compared()[name]
    missing = found - declared
    assert not missing, f"compared_with of {name} leaves out {sorted(missing)}, which it is compared with"
    if registry.declared()[name][1].startswith("posbuild.schemes."):
        unproved = declared - found
        assert not unproved, (
            f"compared_with of {name} has {sorted(unproved)}: no row and no test in tests/public is of it"
        )
