"""`posbuild check`: what it prints of a scheme that is right, of one that is wrong, of one without proof, outside a checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from posbuild import registry
from posbuild.conformance import mutation, plugin
from posbuild.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
OWN = {
    name: re.search(rf"```python\n(# {name}.*?)```", README, flags=re.DOTALL)[1]
    for name in ("distance_log.py", "distance_log_paper.py")
}


def check(*arguments: str, folder: Path, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "posbuild", "check", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=300,
    )


def write(folder: Path, module: str, **changes: str) -> str:
    """The README's own scheme as a module of this name, its formula beside it, with something in its text replaced."""
    text = (
        OWN["distance_log.py"]
        .replace('name="distance_log"', f'name="{module}"')
        .replace('"distance_log:', f'"{module}:')
    )
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / f"{module}.py").write_text(text, encoding="utf-8")
    (folder / "distance_log_paper.py").write_text(OWN["distance_log_paper.py"], encoding="utf-8")
    return module


def test_the_scheme_of_the_readme_passes_every_part(tmp_path):
    done = check("distance_log", "--import", write(tmp_path, "distance_log"), folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    header, row = (line.split() for line in done.stdout.splitlines()[:2])
    assert header == ["scheme", *map(str, range(1, 11))]
    assert row == ["distance_log", "ok", "paper", *["ok"] * 8]  # nobody else has code of it


def test_what_is_wrong_is_found_and_said(tmp_path):
    """A formula of another sign, an option that does nothing, and a scheme without a formula to be judged by."""
    names = [
        write(tmp_path, "turned", **{"return -self": "return self"}),
        write(tmp_path, "idle", **{"-self.options.slope * distance": "-distance"}),
        write(tmp_path, "bare", **{'reference="distance_log_paper",': ""}),
    ]
    done = check(*names, *(word for name in names for word in ("--import", name)), folder=tmp_path)
    assert done.returncode == 1
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()[1:4]}
    assert all(rows[name][0] == "FAIL" for name in names)
    for name, message in (
        ("turned", "Mismatched elements"),
        ("idle", "pe.slope=3.0 changes nothing"),
        ("bare", "the declaration of bare names no reference: reference='MODULE'"),
    ):
        said = done.stdout.partition(f"{name}, part 1 (equals its paper):")[2]
        assert message in said, name


def test_outside_a_checkout_nothing_is_passed_that_needs_one(tmp_path):
    shutil.copytree(ROOT / "posbuild", tmp_path / "posbuild", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "conf", tmp_path / "posbuild" / "conf", dirs_exist_ok=True)
    done = check("rerope", "grid/mrope", folder=tmp_path, root=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:3]]
    assert [row[0] for row in rows] == ["rerope", "grid/mrope"]
    for row in rows:  # what needs no formula is tested
        assert row[1:3] == ["-", "-"] and [row[5], row[7], row[9]] == ["ok"] * 3 and {*row[1:]} == {"-", "ok"}
    assert "needs a checkout" in done.stdout


def test_names_that_are_none_are_refused():
    with pytest.raises(ConfigError, match="posbuild check alib: this is not a known scheme. Nearest: 'alibi'"):
        plugin.known(["alib"])


def report(part, outcome, text=""):
    return SimpleNamespace(
        part=part,
        schemes=["rope"],
        when="call",
        outcome=outcome,
        passed=outcome == "passed",
        failed=outcome == "failed",
        skipped=outcome == "skipped",
        longrepr=text,
        longreprtext=text,
        nodeid="a.py::test_it[rope]",
    )


def test_a_part_in_which_nothing_was_tested_is_not_passed():
    ledger = plugin.Ledger()
    ledger.pytest_runtest_logreport(report((1, "one"), "passed"))
    ledger.pytest_runtest_logreport(report((2, "two"), "skipped", "needs a GPU"))
    assert [ledger.cell("rope", part) for part in (1, 2)] == ["ok", "NONE"]
    assert [ledger.cell("alibi", part) for part in (1, 2)] == ["NONE", "NONE"]
    assert "| 1 | one | 1 of 2 |" in plugin.markdown(ledger, ["rope", "alibi"])


def test_every_scheme_is_in_every_part_and_the_readme_says_so():
    seen: dict[str, set[int]] = {name: set() for name in registry.all_schemes()}
    titles = {}

    class Collected:
        def pytest_collection_finish(self, session):
            for item in session.items:
                part = plugin.part_of(item)
                if part:
                    titles[part[0]] = part[1]
                    for name in plugin.schemes_of(item):
                        seen[name].add(part[0])

    assert plugin.run([], [Collected()], "--collect-only", "-p", "no:xdist", "-m", "not slow") == 0
    assert {name: parts for name, parts in seen.items() if parts != {*range(1, 11)}} == {}
    count = len(seen)
    alone = sum(not scheme.compared_with for scheme in registry.all_schemes().values())
    passed = dict.fromkeys(titles, f"{count} of {count}") | {2: f"{count - alone} of {count}; of {alone} there is none"}
    rows = [f"| {part} | {titles[part]} | {passed[part]} |" for part in sorted(titles)]
    assert "\n".join(rows) in README, "write it anew: posbuild check --markdown"


def test_faults_are_planted_where_they_apply():
    of = {name: [mutant.fault for mutant in mutation.mutants(registry.scheme(name))] for name in ("none", "rope", "t5")}
    assert of["none"] == ["nothing"]
    assert {"swapped layout", "dropped option base", "half-precision angle", "stale places"} <= {*of["rope"]}
    assert "half-precision angle" not in of["t5"] and "off-by-one distance" in of["t5"]


def test_a_planted_fault_is_caught_and_named(capsys):
    """The first two of a few tests: the others are `posbuild check --mutate`."""
    assert mutation.mutate(["rope_proportional"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"swapped layout +part 1 ", printed) and re.search(r"(\d+) of \1 faults caught", printed)
