"""`posbuild publish`: what it would save is built offline, from the files of a study, and every panel has its numbers."""

from __future__ import annotations

import contextlib
import http.server
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from posbuild import cli, publish, records, tracking
from posbuild.comparison import compare
from posbuild.guide import scenarios
from posbuild.guide.claims import CLAIMS
from posbuild.report.told import told
from posbuild.training.run import run
from tests.comparison.studies import add_run, record, starter
from tests.test_tracking import FAKE_KEY, logged, no_account  # noqa: F401 (the fixture keeps the machine's own account out)
from tests.training.helpers import tiny, write_corpus

MEASURED = {"recall_passages": 4, "cost_rounds": 1}


def written(folder: Path) -> Path:
    """A study folder with its comparison."""
    compare.write(compare.compare([folder]), folder)
    return folder


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The core schemes with two seeds."""
    return written(starter(tmp_path_factory.mktemp("outputs") / "starter", seeds=(0, 1)))


@pytest.fixture
def study(fixture: Path) -> Iterator[Path]:
    yield fixture
    (fixture / publish.FILE).unlink(missing_ok=True)


def said(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Exit status, output and errors of `posbuild publish`."""
    before = sys.argv
    sys.argv = ["posbuild", "publish", *map(str, arguments)]
    try:
        status = cli.main()
    finally:
        sys.argv = before
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def specification(folder: Path) -> dict[str, Any]:
    return publish.specification(publish.read(folder))


def found(content: Any, key: str) -> Iterator[Any]:
    """Every value of a key, however deep."""
    if isinstance(content, dict):
        yield from ([content[key]] if key in content else [])
        content = [*content.values()]
    if isinstance(content, list):
        for each in content:
            yield from found(each, key)


def panels(content: Any) -> list[dict[str, Any]]:
    return [panel for listed in found(content, "panels") if isinstance(listed, list) for panel in listed]


# ------------------------------------------------------------------------------------------------------- what is built


def test_every_panel_shows_what_the_runs_have_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus, folder = write_corpus(tmp_path / "corpus"), tmp_path / "outputs" / "s"
    settings = tiny(corpus, eval=MEASURED, logger={"name": "wandb"}, study="s")
    assert run(settings, folder / settings.run_name, "command", lambda line: None) == records.COMPLETE
    comparison = compare.compare([folder])
    compare.write(comparison, folder)
    tracking.log_comparison(folder, comparison, "s", settings.logger, told=told)
    runs = logged(folder)
    compared = runs.pop("s-compare")
    assert len(compared.table("tables/guide")["data"]) == len(scenarios.names())
    assert len(compared.table("tables/claims")["data"]) >= len(CLAIMS)

    status, _, errors = said(capsys, folder)
    assert (status, errors.count("\n")) == (publish.NOT_PUBLISHED, 1)
    spec = records.read_json(folder / publish.FILE)
    known = {name for each in runs.values() for entry in [*each.history, each.summary] for name in entry}
    for part in (spec["report"], spec["workspace"]):
        shown = panels(part)
        used = {name for panel in shown for name in panel["config"]["metrics"]}
        axes = {panel["config"]["xAxis"] for panel in shown if "xAxis" in panel["config"]}
        assert used <= known and axes <= known
        assert axes == {"eval/length", "recall/distance", "trainer/global_step"}
        assert {"eval/loss/whole_windows", "recall/gain", "validation/loss", "cost/train_speed"} <= used
    for each in runs.values():  # the axis of a panel is in the same entries as its numbers
        for panel in panels(spec["report"]):
            for name in panel["config"]["metrics"]:
                if "xAxis" in panel["config"] and any(name in entry for entry in each.history):
                    assert each.series(panel["config"]["xAxis"], name), name
    assert {(each.group, each.job_type, each.project) for each in runs.values()} == {("s", "train", spec["project"])}


def test_the_same_study_gives_the_same_bytes(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for _ in range(2):
        assert said(capsys, study)[0] == publish.NOT_PUBLISHED
        texts.append((study / publish.FILE).read_bytes())
    assert texts[0] == texts[1]


def test_runs_are_grouped_by_scheme_and_are_those_of_the_study(study: Path) -> None:
    spec = specification(study)
    for part in (spec["report"], spec["workspace"]):
        assert {json.dumps(each) for each in found(part, "grouping")} == {
            json.dumps([{"section": "config", "name": "pe.value.name"}])
        }
        values = {json.dumps(value) for filters in found(part, "filters") for value in found(filters, "value")}
        assert values == {'["starter"]', '"train"'}


def test_variants_and_budgets_are_lines_of_their_own(tmp_path: Path) -> None:
    """Else wandb would draw the mean of runs that do not compare."""
    folder = starter(tmp_path / "s", seeds=(0,))
    add_run(folder, record("rope", 0, {"base": 500000.0}), "rope_s0_base")
    more = record("alibi", 0)
    more.settings["optim"]["lr"] = 0.1
    more.settings["train"]["workers"] = 7  # changes no result
    add_run(folder, more, "alibi_s0_lr")
    read = publish.read(written(folder))
    assert read.grouping == ("pe.name", "optim.lr", "pe.base")
    assert read.lines == 9


def test_a_study_of_any_name_is_found(tmp_path: Path) -> None:
    name = "a=b <c> 'd' \"e\" && \\ 研究"
    spec = specification(written(starter(tmp_path / name, seeds=(0,))))
    for part in (spec["report"], spec["workspace"]):
        assert [name] in [value for filters in found(part, "filters") for value in found(filters, "value")]


def test_the_report_tells_findings_answers_and_claims(study: Path) -> None:
    report = specification(study)["report"]
    text = "\n".join(found(report, "content"))
    assert "At the train length (64 tokens)" in text and "| t5 | 1.278" in text
    for name in scenarios.names():
        assert name.replace("_", "\\_") in text
    assert all(verdict in text for verdict in ("supported", "not measured", "published, not measured here"))
    assert "next study, " in text and "python train.py" in text


def test_no_folder_outside_the_working_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = starter(tmp_path / "elsewhere" / "s", seeds=(0,))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    plan = records.read_json(folder / "study.json")
    records.write_json(folder / "study.json", plan | {"command": "python train.py data.path=/home/jane/x.txt pe=rope"})
    text = json.dumps(specification(written(folder)))
    assert "data.path=x.txt" in text
    assert not any(name in text for name in ("jane", "elsewhere", str(tmp_path)))


# ---------------------------------------------------------------------------------------------------- what stops it


def test_without_a_key_it_says_how_to_go_on(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, errors = said(capsys, study)
    assert (status, out.count("\n")) == (publish.NOT_PUBLISHED, 1) and str(study / publish.FILE) in out
    assert errors == f"Not published: no API key. Next: wandb login && posbuild publish {study}\n"


def test_runs_that_are_only_here_are_uploaded_first(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    offline = study / "wandb" / "offline-run-1-a" / "run-a.wandb"
    offline.parent.mkdir(parents=True)
    offline.touch()
    monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
    status, _, errors = said(capsys, study, "--project", "p")
    assert status == publish.NOT_PUBLISHED
    assert errors == (
        f"Not published: 1 run not uploaded. Next: wandb sync --project p {study}/wandb && posbuild publish {study} --project p\n"
    )
    offline.with_name("run-a.wandb.synced").touch()
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert said(capsys, study)[2] == (
        f"Not published: WANDB_MODE=offline. Next: unset WANDB_MODE && posbuild publish {study}\n"
    )


def test_a_server_that_does_not_answer_leaves_the_specification_and_no_key(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
    monkeypatch.setattr(tracking, "INIT_TIMEOUT", 1)
    status, out, errors = said(capsys, study)
    assert status == publish.NOT_PUBLISHED
    assert errors.startswith("Not published: ") and errors.count("\n") == 1 and "Traceback" not in errors
    text = (study / publish.FILE).read_text(encoding="utf-8")
    assert text and FAKE_KEY not in text + out + errors


def test_without_the_package_it_says_how_to_install_it(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb_workspaces.reports.v2", None)
    status, out, errors = said(capsys, study)
    assert (status, out) == (cli.REFUSED, "") and errors.endswith(": pip install wandb-workspaces\n")
    assert not (study / publish.FILE).exists()


def test_what_is_no_study_of_tracked_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = starter(tmp_path / "s", seeds=(0,))
    status, _, errors = said(capsys, folder)
    assert status == cli.REFUSED and f"posbuild compare {folder} makes it" in errors
    for path in folder.glob("*/record.json"):
        content = records.read_json(path)
        content["settings"]["logger"] |= {"name": "none"}
        records.write_json(path, content)
    status, _, errors = said(capsys, written(folder))
    assert status == cli.REFUSED and "there is nothing to show" in errors


def test_a_place_that_cannot_be_written_is_said(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (study / publish.FILE).mkdir()
    status, _, errors = said(capsys, study)
    (study / publish.FILE).rmdir()
    assert status == cli.REFUSED and f"{study / publish.FILE} cannot be written: " in errors


def test_runs_of_two_projects_need_a_choice(tmp_path: Path) -> None:
    folder = written(starter(tmp_path / "s", seeds=(0,)))
    path = next(folder.glob("rope*/record.json"))
    content = records.read_json(path)
    content["settings"]["logger"]["project"] = "other"
    records.write_json(path, content)
    with pytest.raises(publish.ConfigError, match="logger.project is other and posbuild in these runs: give --project"):
        publish.read(folder)
    assert publish.read(folder, project="other").project == "other"


# ---------------------------------------------------------------------------------------------------- what is saved


class Server(http.server.ThreadingHTTPServer):
    """As much of wandb's server as saving takes; `status` other than 200 refuses everything."""

    def __init__(self, runs: int = 3, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.runs, self.status = runs, status
        self.saved: dict[str, dict[str, Any]] = {}  # by the type of the view

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        page = {"edges": [], "pageInfo": {"endCursor": None, "hasNextPage": False}}
        if "upsertView" in query:
            self.saved[variables["type"]] = variables
            names = ("name", "displayName", "description", "spec")
            project = {"name": variables["projectName"], "entityName": variables["entityName"]}
            return {"upsertView": {"view": {"id": "Vmlldzox", "project": project} | {n: variables[n] for n in names}}}
        if "viewer" in query:
            return {"viewer": {"id": "1", "username": "jane", "entity": "team", "flags": "{}"}}
        if "models" in query:
            node = {"id": "1", "name": "posbuild", "entityName": "team", "createdAt": "", "isBenchmark": False}
            return {"models": page | {"edges": [{"node": node | {"user": None, "__typename": "Project"}}]}}
        return {
            "project": {"internalId": "7", "runCount": self.runs, "readOnly": False, "runs": page | {"totalCount": 3}}
        }


class Answer(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        answer = b""
        if self.path == "/graphql":
            asked = json.loads(content)
            answer = json.dumps({"data": self.server.answer(asked["query"], asked.get("variables") or {})}).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    """Starts a server that wandb takes for its own, with a key that it knows."""
    with contextlib.ExitStack() as stack:

        def start(**facts: int) -> Server:
            server = stack.enter_context(Server(**facts))
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
            monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.server_port}")
            monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
            return server

        yield start


def test_what_is_saved_is_what_was_written(
    study: Path, capsys: pytest.CaptureFixture[str], serve: Callable[..., Server]
) -> None:
    server = serve()
    status, out, errors = said(capsys, study)
    assert (status, errors) == (publish.PUBLISHED, "")
    address = f"http://127.0.0.1:{server.server_port}/team/posbuild"
    assert f"Report: {address}/reports/starter--Vmlldzox\n" in out and f"Workspace view: {address}?nw=" in out
    spec = records.read_json(study / publish.FILE)
    report, view = (json.loads(server.saved[kind]["spec"]) for kind in ("runs", "project-view"))
    runs = [each for listed in found(report, "runSets") for each in listed]
    assert [each.pop("project") for each in runs] == [{"name": "posbuild", "entityName": "team", "id": "7"}] * len(runs)
    assert publish._numbered(report, {}) == spec["report"]["spec"]
    assert publish._numbered(view, {}) == spec["workspace"]["spec"]
    assert all(saved["entityName"] == "team" and saved["displayName"] == "starter" for saved in server.saved.values())


@pytest.mark.parametrize(
    ("facts", "said_why"), [({"status": 401}, "401"), ({"runs": 0}, "team/posbuild has no run of the group starter")]
)
def test_a_wrong_key_and_a_project_without_the_runs_publish_nothing(
    facts: dict[str, int], said_why: str, study: Path, capsys: pytest.CaptureFixture[str], serve: Callable[..., Server]
) -> None:
    server = serve(**facts)
    status, out, errors = said(capsys, study)
    assert status == publish.NOT_PUBLISHED and errors.count("\n") == 1 and said_why in errors, errors
    assert not server.saved and (study / publish.FILE).exists() and FAKE_KEY not in out + errors
