"""The commands, what they print, and that those which only print take no torch."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from posbuild import cli, registry, show
from posbuild.declaration import ActsOn
from posbuild.paths import conf_dir
from tests.comparison.studies import starter

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"torch", "pytorch_lightning", "wandb", "scipy", "matplotlib"}
POSBUILD = ["-m", "posbuild"]


def python(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )


def said(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    before = sys.argv
    sys.argv = ["posbuild", *arguments]
    try:
        assert cli.main() == status
    finally:
        sys.argv = before
    captured = capsys.readouterr()
    return captured.err if status else captured.out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([str(ROOT / "train.py"), "--help"], "alibi"),
        ([*POSBUILD, "train", "--help"], "experiment=starter"),
        ([*POSBUILD, "--help"], "evaluate"),
        ([*POSBUILD, "plan", "--help"], "--difference"),
        ([*POSBUILD, "list"], "ALiBi".lower()),
        ([*POSBUILD, "guide"], "published, not measured here"),
        ([*POSBUILD, "show", "rope", "--yaml"], "fraction: 1.0"),
        ([str(ROOT / "train.py"), "--cfg", "job", "pe=t5"], "buckets: 32"),
    ],
)
def test_what_only_prints_is_quick_and_takes_no_torch(arguments: list[str], expected: str, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = python("-X", "importtime", *arguments, folder=tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.returncode == 0, result.stderr
    assert expected in result.stdout
    imported = {
        line.rpartition("|")[2].strip().partition(".")[0]
        for line in result.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert "posbuild" in imported and not imported & HEAVY
    assert (
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.5
    )  # seconds of CPU: a busy machine must not fail it
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("posbuild train pe=al", "pe=alibi"),
        ("posbuild train model.d_m", "model.d_model="),
        ("posbuild ev", "evaluate"),
        ("posbuild guide --scenario long_v", "long_video"),
        ("posbuild guide outputs/latest target", "target_length="),
        ("posbuild pl", "plan"),
    ],
)
def test_completion(line: str, expected: str, tmp_path: Path) -> None:
    result = python(
        "-X", "importtime", *POSBUILD, "-sc", "query=bash", folder=tmp_path, COMP_LINE=line, COMP_POINT=str(len(line))
    )
    assert result.returncode == 0 and result.stdout.split() == [expected]
    assert not [module for module in HEAVY if f" {module}\n" in result.stderr]


def test_list_names_what_a_person_chooses_by(capsys: pytest.CaptureFixture[str]) -> None:
    for width in (80, 140, None):
        text = show.table(show.chosen(), width)
        assert all(len(line) <= (width or 520) and line == line.rstrip() for line in text.splitlines())
        words = " ".join(text.split())
        for scheme in registry.schemes().values():
            assert all(" ".join(fact.split()[:3]) in words for fact in show.facts(scheme)), scheme.name
    assert len(text.splitlines()) == 1 + len(registry.schemes())  # wide: a line each
    assert said(capsys, "list") == text + "\n"  # and so where there is no terminal


def test_list_and_show_say_what_a_scheme_was_compared_with() -> None:
    """In each form: a line or a paragraph a scheme, Markdown, one scheme in full."""
    alone = [scheme for scheme in registry.schemes().values() if not scheme.compared_with]
    assert 0 < len(alone) < len(registry.schemes())
    for text in (show.table(show.chosen(), 80), show.table(show.chosen()), show.markdown(show.chosen())):
        assert " ".join(text.split()).count("checked against the paper only") == len(alone)
    for scheme in registry.schemes().values():
        text = show.description(scheme)
        assert all(name in text for name in scheme.compared_with)
        assert ("checked      against the paper only" in text) == (scheme in alone)
        assert ("paper only" in " ".join(show.table([scheme], 80).split())) == (scheme in alone)


def test_list_of_some_schemes(capsys: pytest.CaptureFixture[str]) -> None:
    def names(*given: str) -> set[str]:
        return {line.split()[0] for line in said(capsys, "list", *given).splitlines()[1:]}

    known = registry.schemes().values()
    assert names() == {scheme.name for scheme in known}
    assert names("--acts-on", "scores") == {scheme.name for scheme in known if scheme.acts_on is ActsOn.scores}
    assert names("--acts-on", "input") >= {"sinusoidal", "learned"}
    assert not names("--beyond") & {"learned"} and names("--beyond") >= {"none", "rope", "t5"}
    assert not names("--bidirectional") & {"none"} and names("--bidirectional") >= {"learned", "alibi"}
    assert names("--learned") >= {"learned", "t5", "fire"} and not names("--learned") & {"none", "rope", "alibi"}
    assert names("--acts-on", "input", "--beyond", "--bidirectional") >= {"sinusoidal"}
    assert said(capsys, "list", "--acts-on", "nothing", "--learned") == "no scheme is all of that\n"


def test_list_refuses_a_place_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "list", "--acts-on", "score", status=2)
    assert "--acts-on score: no scheme acts there. Nearest: 'scores'" in " ".join(text.split())


def test_help_has_a_line_for_each_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pe").mkdir()
    (tmp_path / "pe" / "slow.yaml").write_text("# Turns slowly. And more.\nname: rope\n", encoding="utf-8")
    text = said(capsys, "train", "--config-dir", str(tmp_path), "--help")
    for scheme in registry.schemes().values():
        assert f" {'pe=' + scheme.name:20}  {scheme.summary}\n" in text
    assert f" {'pe=slow':20}  Turns slowly\n" in text
    choices = {path.relative_to(conf_dir()) for path in conf_dir().glob("*/*.yaml") if path.parent.name != "scenario"}
    assert choices and all(f"{path.parent}={path.stem} " in text for path in choices)
    taken = [line.split()[1] for line in text.splitlines() if line.startswith("* ")]
    assert taken == [
        *("data=sotu", "eval=default", "logger=wandb", "model=tiny", "objective=next_token"),
        *("optim=adamw", "pe=rope", "positions=plain", "train=default", "trainer=default"),
    ]
    assert all(len(line) <= 80 for line in show.usage([conf_dir()], 80).splitlines())


def test_list_as_markdown_has_a_row_a_scheme_and_equal_columns(capsys: pytest.CaptureFixture[str]) -> None:
    rows = said(capsys, "list", "--markdown").splitlines()
    assert len(rows) == 2 + len(registry.schemes())
    assert {row.count("|") for row in rows} == {len(show.COLUMNS) + 1}


@pytest.mark.parametrize("name", sorted(registry.schemes()))
def test_show_says_options_paper_and_where_the_code_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    scheme = registry.scheme(name)
    text = said(capsys, "show", name)
    assert ("stay when all positions are shifted" in text) == scheme.shift_invariant
    assert scheme.paper.title in text and scheme.paper.arxiv in text
    declaration, maths = show.places(scheme)
    for place, word in ((declaration, "Scheme("), (maths, f"class {scheme.maths.partition(':')[2]}")):
        assert place in text
        file, _, line = place.rpartition(":")
        assert word in Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
    options = yaml_keys(show.yaml(scheme)) - {"name"}
    assert all(f"  {option} = " in text for option in options)
    drawn = text.splitlines()[-show.TOKENS :]
    assert all(set(line) <= {*show.SHADES, " "} for line in drawn)
    if scheme.acts_on.value in ("scores", "attention"):  # the picture is not blank: it differs from place to place
        assert len({*"".join(drawn)} - {" "}) > 1


def yaml_keys(text: str) -> set[str]:
    return {line.partition(":")[0] for line in text.splitlines() if line and not line.startswith("#")}


def test_show_draws_into_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "图 alibi.png"
    assert str(file) in said(capsys, "show", "alibi", "--picture", str(file))
    assert file.read_bytes().startswith(b"\x89PNG")
    assert "--picture" in said(capsys, "show", "alibi", "--picture", str(tmp_path / "none" / "x.png"), status=2)
    assert "Is a directory" in said(capsys, "show", "alibi", "--picture", str(tmp_path), status=2)
    said(capsys, "show", "alibi", "--picture", str(tmp_path / "plain"))
    assert (tmp_path / "plain").read_bytes().startswith(b"\x89PNG")


def test_show_of_an_unknown_scheme_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    message = said(capsys, "show", "alibbi", status=2)
    assert "posbuild show alibbi" in message and "Nearest: 'alibi'" in message and "Traceback" not in message


def test_a_folder_that_is_no_study_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert str(tmp_path / "nowhere") in said(capsys, "compare", str(tmp_path / "nowhere"), status=2)
    assert str(tmp_path / "nowhere") in said(capsys, "plan", str(tmp_path / "nowhere"), status=2)
    assert str(tmp_path / "nowhere") in said(capsys, "evaluate", str(tmp_path / "nowhere"), status=2)
    assert "settings.json" in said(capsys, "evaluate", str(tmp_path), status=2)
    assert "is no run folder" in said(capsys, "generate", str(tmp_path), "--prompt", "x", status=2)
    assert "/~nosuchuser/x" in said(capsys, "evaluate", "~nosuchuser/x", status=2)


def test_plan_says_what_a_difference_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = starter(tmp_path / "study", schemes=("alibi", "t5"))
    assert "A difference of 0.02 nats/token needs" in said(capsys, "plan", str(study))
    assert "A difference of 0.5 nats/token needs" in said(capsys, "plan", str(study), "--difference", "0.5")
    assert "--difference -1" in said(capsys, "plan", str(study), "--difference", "-1", status=2)


def test_an_unknown_command_is_refused_with_the_list(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["posbuild", "trian"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert "evaluate" in capsys.readouterr().err


def test_a_reader_that_stops_early_is_no_error(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = f"{sys.executable} -m posbuild list | head -1"
    result = subprocess.run(
        ["bash", "-c", command], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, cwd=tmp_path
    )
    assert result.stdout.startswith("scheme ") and result.stderr == ""
