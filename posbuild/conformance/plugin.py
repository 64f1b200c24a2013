"""`posbuild check`: runs the ten parts by pytest and prints which of them each scheme passes. Loaded by name: `-p`."""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from posbuild import registry
from posbuild.conformance.cases import Case
from posbuild.conformance.paper import CHECKOUT
from posbuild.errors import ConfigError, nearest

HERE = Path(__file__).parent
Part = tuple[int, str]
FEW = 4  # schemes for which it takes longer to start another process than to do without
# Why a test is left out, and what the table has then: neither is passed.
NOTES = {"needs a checkout": "-", "the paper alone": "paper"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--schemes", type=lambda names: names.split(","), default=None, help="of these schemes alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Comparisons with packages are not parametrised over the registry: they are marked with their schemes."""
    chosen = config.getoption("schemes")
    if chosen is not None:
        items[:] = [item for item in items if {*schemes_of(item)} & {*chosen}]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: Any = yield
    report.schemes, report.part = schemes_of(item), part_of(item)  # they travel with it between processes
    return report


def schemes_of(item: pytest.Item) -> list[str]:
    """The schemes that a test is of."""
    params = getattr(item, "callspec", item).__dict__.get("params", {})
    for value in params.values():
        case = value[0] if isinstance(value, tuple) and not isinstance(value, Case) else value
        if isinstance(case, Case):
            return [case.name]
    marked = [name for mark in item.iter_markers("public") for name in mark.args[1:]]
    return [each for each in params.values() if each in marked] or marked


def part_of(item: pytest.Item) -> Part | None:
    """The number of a test's part and what holds there."""
    mark = item.get_closest_marker("part")
    return mark.args[0] if mark else None


class Ledger:
    """What became of the tests, by scheme and part."""

    def __init__(self) -> None:
        self.outcomes: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
        self.failures: dict[tuple[str, int], list[str]] = defaultdict(list)
        self.titles: dict[int, str] = {}
        self.broken: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.broken.append(f"{report.nodeid}: {report.longreprtext.strip()}")

    def pytest_runtest_logreport(self, report: Any) -> None:
        part = getattr(report, "part", None)
        if report.failed and part is None:  # of a process that died nothing else is known
            self.broken.append(f"{report.nodeid}: {report.longreprtext.strip()}")
        if part is None or (report.when != "call" and report.passed):
            return
        number, title = part
        self.titles[number] = title
        outcome = report.outcome
        if report.skipped:
            outcome = next((note for note in NOTES if note in str(report.longrepr)), "skipped")
        for name in report.schemes:
            self.outcomes[name, number][outcome] += 1
            if report.failed:
                self.failures[name, number].append(f"{report.nodeid.rpartition('::')[2]}\n{reason(report)}")

    def cell(self, name: str, number: int) -> str:
        """ok, FAIL, what stands in NOTES for a reason why a test was left out, NONE where nothing was tested."""
        found = self.outcomes[name, number]
        if found["failed"]:
            return "FAIL"
        left_out = next((short for note, short in NOTES.items() if found[note]), "")
        return left_out or ("ok" if found["passed"] else "NONE")


def reason(report: Any) -> str:
    """The message of a failure, without the way there."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else report.longreprtext).strip().splitlines()
    return "\n".join(f"      {line}" for line in lines[:8])


def table(ledger: Ledger, names: Iterable[str]) -> str:
    """A row a scheme, a column a part."""
    parts = sorted(ledger.titles)
    rows = [(name, *(ledger.cell(name, part) for part in parts)) for name in names]
    rows = [("scheme", *map(str, parts)), *rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    legend = [f"{part:2}  {ledger.titles[part]}" for part in parts]
    cells = {cell for _, *row in rows for cell in row}
    if "-" in cells:
        legend.append(" -  needs a checkout: the slow formulas are in its tests/reference")
    if "paper" in cells:
        legend.append("    paper: there is no code of others, or none that could be run")
    return "\n".join([*lines, "", *legend])


def markdown(ledger: Ledger, names: Sequence[str]) -> str:
    """The table in short: a row a part."""
    rows = []
    for part in sorted(ledger.titles):
        cells = Counter(ledger.cell(name, part) for name in names)
        alone = f"; of {cells['paper']} there is none" * bool(cells["paper"])
        rows.append(f"| {part} | {ledger.titles[part]} | {cells['ok']} of {len(names)}{alone} |")
    return "\n".join(["| part | of every scheme | schemes |", "|---|---|---|", *rows])


def failures(ledger: Ledger) -> str:
    """What failed and why: of each test the first case, and how many more."""
    lines = []
    for (name, number), found in sorted(ledger.failures.items()):
        lines.append(f"{name}, part {number} ({ledger.titles[number]}):")
        tests: dict[str, list[str]] = defaultdict(list)
        for each in found:
            tests[each.partition("[")[0]].append(each)
        for first, *others in tests.values():
            lines.append(f"    {first}")
            lines += [f"      and {len(others)} more cases"] * bool(others)
    return "\n".join(lines)


def places(names: Sequence[str]) -> list[str]:
    """Where the tests of the ten parts are: those of packages are of schemes of the package alone."""
    public = CHECKOUT / "tests" / "public"
    own = any(registry.declared()[name][1].startswith("posbuild.schemes.") for name in names or registry.all_schemes())
    return [str(HERE), *([str(public)] if own and public.is_dir() else [])]


def known(names: Sequence[str]) -> list[str]:
    """These schemes, or all. Raises ConfigError for a name that is none."""
    every = registry.all_schemes()
    for name in names:
        if name not in every:
            raise ConfigError(f"posbuild check {name}: this is not a known scheme. {nearest(name, every)}")
    return [*dict.fromkeys(names)] or [*every]


def run(names: Sequence[str], plugins: Sequence[Any], *more: str) -> int:
    """Run the tests of these schemes, quietly."""
    chosen = [f"--schemes={','.join(names)}"] if names else []
    quiet = ["-o", "addopts=", "-p", "no:terminal", "-p", "no:cacheprovider", "-W", "ignore", "--import-mode=prepend"]
    return int(pytest.main([*places(names), "-p", __name__, *chosen, *quiet, *more], plugins=[*plugins]))


def check(names: Sequence[str], *, slow: bool = False, short: bool = False) -> int:
    """Check these schemes, or all, and print the table and what failed; 0 if nothing did."""
    every, ledger = known(names), Ledger()
    workers = min(1 + len(every) // FEW, os.cpu_count() or 1)
    several = ["-n", str(workers), "--dist", "worksteal"] if workers > 1 and find_spec("xdist") else []
    if several:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    status = run(names, [ledger], *several, "-m", "" if slow else "not slow")
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        ledger.broken.append(f"pytest did not run to its end: {pytest.ExitCode(status).name}")
    print(markdown(ledger, every) if short else table(ledger, every))
    if ledger.broken:
        print("\n".join(["", *ledger.broken]), file=sys.stderr)
    if ledger.failures:
        print("\n" + failures(ledger))
    empty = [f"{name}: part {part}" for name in every for part in ledger.titles if ledger.cell(name, part) == "NONE"]
    if empty:
        print("\nnothing was tested: " + ", ".join(empty))
    return 1 if ledger.broken or ledger.failures or empty or not ledger.titles else 0
