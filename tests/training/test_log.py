"""What a run prints where nobody watches: a few lines, no bar."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from posbuild.training.load import write_settings
from tests.training.helpers import tiny

ROOT = Path(__file__).resolve().parent.parent.parent


def python(*arguments: str, output: Path | None = None) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with open(output or os.devnull, "w") as file:
        return subprocess.run(
            [sys.executable, *arguments],
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )


@pytest.mark.slow
def test_a_log_of_2000_steps_is_short_and_has_no_bar(corpus, tmp_path):
    """stdout and stderr in one file, a line every train.log_every steps."""
    settings = tiny(
        corpus, train={"steps": 2000, "log_every": 50, "checkpoint_every": 1000, "length": 4}, model={"n_layers": 1}
    )
    write_settings(tmp_path, settings, "command")
    log = tmp_path / "log"
    assert python("-m", "posbuild.training.job", str(tmp_path), output=log).returncode == 0, log.read_text()
    content = log.read_bytes()
    assert b"\r" not in content and b"\x1b" not in content and len(content) < 10_000
    assert sum(line.startswith("step") for line in content.decode().splitlines()) == 2000 // 50


@pytest.mark.parametrize("command", [["train.py", "--help"], ["-m", "posbuild", "train", "--help"]])
def test_a_reader_of_the_help_may_stop_early(command):
    words = [sys.executable, str(ROOT / command[0]) if command[0] == "train.py" else command[0], *command[1:]]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$@" | head -1', "bash", *words],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert result.stdout.startswith("posbuild trains") and result.stderr == ""
