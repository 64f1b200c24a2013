"""What may import what: one list, held against every import of every file, those inside functions included."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "posbuild"

# A room is a module or sub-package of posbuild. Each names only rooms above it, so there is no cycle.
ALLOWED = {
    "errors": "",
    "paths": "",
    "bias": "",
    "declaration": "errors",
    "schemes": "declaration errors",
    "records": "errors",
    "attention": "bias",
    "encodings": "bias declaration schemes",
    "registry": "declaration encodings errors schemes",
    "tuned": "declaration errors paths records",
    "settings": "declaration errors paths registry tuned",
    "positions": "settings",
    "folders": "errors records settings",
    "overrides": "errors paths registry settings",
    "data": "errors paths settings",
    "model": "attention bias data declaration encodings errors positions registry settings",
    "api": "declaration encodings errors model overrides registry settings",
    "evaluation": "attention bias data declaration encodings errors model records registry settings",
    "tracking": "paths records settings",
    "training": "data declaration errors evaluation folders model paths records registry settings tracking",
    "comparison": "declaration errors records registry settings",
    "guide": "comparison declaration errors paths records registry",
    "report": "comparison declaration folders guide records registry",
    "jobs": "folders records settings training",
    "tuning": "comparison errors folders overrides paths records settings tuned",
    "launch": "comparison data errors evaluation folders jobs overrides paths records report settings tracking training tuning",
    "remeasure": "data errors evaluation folders launch overrides paths records settings training",
    "publish": "comparison errors guide paths records report settings tracking",
    "generate": "data errors model training",
    "show": "api attention bias declaration errors model paths registry",
    "conformance": "attention bias declaration encodings errors model registry schemes settings show training",
    "cli": "comparison conformance errors generate guide launch paths publish registry remeasure report show",
    "__main__": "cli",
}


def modules() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
    }


def imports(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of posbuild that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else str(node.module) for name in inner]
        else:
            continue
        yield from (name for name in names if name in known)


def graph() -> dict[str, set[str]]:
    """Module -> what it imports. The package itself holds the version and names what lies in it: it is no room."""
    known = modules()
    return {module: {*imports(path, known)} - {"posbuild"} for module, path in known.items() if module != "posbuild"}


def room(module: str) -> str:
    return module.split(".")[1]


def test_the_list_has_no_cycle() -> None:
    above: set[str] = set()
    for name, allowed in ALLOWED.items():
        assert {*allowed.split()} <= above, name
        above.add(name)


def test_every_import_is_on_the_list_and_every_entry_is_used() -> None:
    found: dict[str, set[str]] = {}
    for module, imported in graph().items():
        found.setdefault(room(module), set()).update({room(name) for name in imported} - {room(module)})
    assert found == {name: {*allowed.split()} for name, allowed in ALLOWED.items()}


def test_no_two_files_import_each_other() -> None:
    graphlib.TopologicalSorter(graph()).prepare()


def test_an_import_inside_a_function_is_seen() -> None:
    assert "posbuild.training.run" in graph()["posbuild.jobs"]
