"""Schemes of one's own: a module named by --import, or by an installed package, and nothing of posbuild touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from posbuild import registry
from posbuild.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FILE = "distance_log.py"  # of the example in the README
EXAMPLE = README.partition(f"# {FILE}\n")[2].partition("```")[0]
SMOKE = ["debug=smoke", "logger=none", "eval.probes=false", "eval.cost_rounds=0"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / FILE).write_text(EXAMPLE, encoding="utf-8")
    return tmp_path


def posbuild(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [environment.pop("PYTHONPATH", "")])])
    return subprocess.run(
        [sys.executable, "-m", "posbuild", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_example_of_the_readme_is_short() -> None:
    assert 0 < len(EXAMPLE.strip().splitlines()) <= 20


def test_list_and_show_know_it(folder: Path) -> None:
    shown = posbuild("show", "distance_log", "--import", "distance_log", folder=folder)
    assert shown.returncode == 0, shown.stderr
    assert (
        f"{FILE}:" in shown.stdout and "slope = 1.0" in shown.stdout and "what is added to the scores" in shown.stdout
    )
    assert "distance_log" in posbuild("list", "--import", "distance_log", folder=folder).stdout
    assert "distance_log" not in posbuild("list", folder=folder).stdout


def test_a_sweep_beside_others_trains_compares_and_is_read_again(folder: Path) -> None:
    """Each job has a process of its own, which has to import the module too; the printed command says what was typed."""
    arguments = ["-m", "--import", "distance_log", "pe=none,distance_log", "study=own", *SMOKE]
    done = posbuild("train", *arguments, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    table = (folder / "outputs" / "own" / "comparison.md").read_text(encoding="utf-8")
    assert "distance_log" in table and "failed" not in table
    assert "--import distance_log" in (folder / "outputs" / "own" / "study.json").read_text(encoding="utf-8")
    (run,) = (folder / "outputs" / "own").glob("distance_log_s0_*")
    text = posbuild("generate", str(run), "--prompt", "a", "--tokens", "3", "--import", "distance_log", folder=folder)
    assert text.returncode == 0, text.stderr
    without = posbuild("generate", str(run), "--prompt", "a", folder=folder)
    assert without.returncode == 2 and "distance_log is not a known scheme" in without.stderr


def test_its_options_are_settings_and_its_yaml_may_stand_in_a_folder_of_ones_own(folder: Path) -> None:
    composed = posbuild(
        "train", "--import", "distance_log", "pe=distance_log", "pe.slope=2", "--cfg", "job", folder=folder
    )
    assert composed.returncode == 0 and "slope: 2" in composed.stdout, composed.stderr
    (folder / "conf" / "pe").mkdir(parents=True)
    written = posbuild("show", "distance_log", "--yaml", "--import", "distance_log", folder=folder).stdout
    assert "slope: 1.0" in written
    (folder / "conf" / "pe" / "distance_log.yaml").write_text(
        written.replace("slope: 1.0", "slope: 3.0"), encoding="utf-8"
    )
    arguments = ["--import", "distance_log", "--config-dir", "conf", "pe=distance_log", "--cfg", "job"]
    assert "slope: 3.0" in posbuild("train", *arguments, folder=folder).stdout
    wrong = posbuild("train", "--import", "distance_log", "pe=distance_log", "pe.slope=-1", folder=folder)
    assert wrong.returncode == 2 and "pe.slope=-1" in wrong.stderr and "out of range" in wrong.stderr


def test_an_installed_package_names_it_by_an_entry_point(folder: Path) -> None:
    """As pip lays it down: a folder of metadata beside the module."""
    metadata = folder / "distance_log-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: distance-log\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("[posbuild.schemes]\nlog = distance_log\n", encoding="utf-8")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    listed = posbuild("list", folder=elsewhere, PYTHONPATH=str(folder))
    assert listed.returncode == 0 and "distance_log" in listed.stdout, listed.stderr
    composed = posbuild("train", "pe=distance_log", "--cfg", "job", folder=elsewhere, PYTHONPATH=str(folder))
    assert "name: distance_log" in composed.stdout, composed.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "--import own_module cannot be imported: ModuleNotFoundError: No module named 'own_module'"),
        ("1 / 0", "--import own_module cannot be imported: ZeroDivisionError"),
        ("SCHEME = 3", "--import own_module declares no scheme: it needs SCHEME = posbuild.declaration.Scheme"),
        (EXAMPLE.replace('name="distance_log"', 'name="rope"'), "Two schemes are named 'rope'"),
    ],
)
def test_what_cannot_be_taken_in_is_one_message(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "own_module.py").write_text(content, encoding="utf-8")
    result = posbuild("list", "--import", "own_module", folder=tmp_path)
    assert result.returncode == 2 and message in result.stderr and "Traceback" not in result.stderr


def test_no_setting_names_a_module(folder: Path) -> None:
    for setting in ("import=distance_log", "pe.maths=distance_log:DistanceLog", "+pe.import=distance_log"):
        result = posbuild("train", "pe=rope", setting, *SMOKE, folder=folder)
        assert result.returncode == 2 and "is not a setting" in result.stderr, setting


def test_modules_of_the_package_declare_each_name_once() -> None:
    known = registry.declared()
    with pytest.raises(ConfigError, match="Two schemes are named 'rope'"):
        registry.collect([known["rope"], known["rope"]])
