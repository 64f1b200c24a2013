"""`posbuild publish`: a wandb report and a saved workspace view of a study.

Their specification is built from the files of the study, offline, and lies beside the page; saving them takes an API key
and runs that are on the server. A panel shows only what `tracking` logs: the names come from the same functions.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbuild import records, tracking
from posbuild.comparison import runs as on_disk
from posbuild.comparison.compare import NO_PART_OF_A_BUDGET
from posbuild.errors import ConfigError, RunError
from posbuild.guide.study import check
from posbuild.paths import shown
from posbuild.records import Record, Row
from posbuild.report import answer, tables, words
from posbuild.report.told import told
from posbuild.settings import LoggerName, LoggerSettings

PUBLISHED, NOT_PUBLISHED = 0, 1  # exit statuses
FILE = "publish.json"
STEP = "trainer/global_step"
AXES = {tracking.LENGTH: "length, tokens", tracking.DISTANCE: "distance, tokens", STEP: "step"}
LEARNING = {"validation/loss": "validation loss", "train/loss": "training loss"}
WIDTH, HEIGHT = 12, 8  # of a panel, on wandb's grid of 24 columns
LINES = 10  # in a panel, at least: wandb's own limit
TITLE = 128  # characters of a title, at most
DESCRIPTION = "Position encodings compared by posbuild."

Content = dict[str, Any]


def publish(folder: Path, entity: str | None = None, project: str | None = None) -> int:
    """Build the report and the workspace view of a study, write their specification, save both; the exit status.

    Raises ConfigError without the package that builds them, for a folder that is no study or cannot be written, and for
    runs that wandb never had; RunError for files that cannot be read.
    """
    _packages()
    study = read(folder, entity, project)
    try:
        records.write_json(folder / FILE, specification(study))
    except OSError as error:
        raise ConfigError(f"{folder / FILE} cannot be written: {error.strerror or error}.") from None
    print(f"Specification of the report and the workspace view: {shown(folder.absolute() / FILE)}")
    if why := _obstacle(study, entity, project):
        print(f"Not published: {why}", file=sys.stderr)
        return NOT_PUBLISHED
    try:
        for what, address in _save(study):
            print(f"{what}: {address}")
    except Exception as error:  # no network, a wrong key, no such project: whatever the server or the package says
        line = tracking.first_line(error).rstrip(".")
        print(f"Not published: {line}. The specification stays; the same command tries again.", file=sys.stderr)
        return NOT_PUBLISHED
    return PUBLISHED


def _packages() -> tuple[Any, Any]:
    """What builds reports, and what builds workspaces."""
    try:
        import wandb_workspaces.reports.v2 as reports
        import wandb_workspaces.workspaces as workspaces
    except ImportError as error:
        raise ConfigError(f"posbuild publish needs another package ({error}): pip install wandb-workspaces") from None
    return reports, workspaces


def _obstacle(study: Study, entity: str | None, project: str | None) -> str:
    """What has to come before, and the commands that do it; empty if nothing has."""
    reasons, steps = [], []
    mode, why = tracking.resolve_mode(LoggerSettings())
    if mode != "online":
        reasons.append(why)
        asked = os.environ.get("WANDB_MODE", "").strip().lower()
        steps.append("unset WANDB_MODE" if asked in ("offline", "dryrun", "disabled") else "wandb login")
    chosen = [*(["--entity", entity] if entity else []), *(["--project", project] if project else [])]
    if left := tracking.not_uploaded(study.folder):
        reasons.append(f"{words.counted(len(left), 'run')} not uploaded")
        steps.append(shlex.join(["wandb", "sync", *chosen, str(study.folder / "wandb")]))
    again = shlex.join(["posbuild", "publish", str(study.folder), *chosen])
    return f"{'; '.join(reasons)}. Next: {' && '.join([*steps, again])}" if reasons else ""


def _save(study: Study) -> Iterator[tuple[str, str]]:
    """Save both on the server; what was saved, and its address."""
    import wandb

    api = wandb.Api(timeout=tracking.INIT_TIMEOUT)
    entity = study.entity or api.settings["entity"] or api.default_entity
    if not entity:
        raise RunError("the account has no entity of its own: give --entity NAME")
    study = dataclasses.replace(study, entity=entity)
    place = f"{entity}/{study.project}"
    if not len(api.runs(place, filters={"group": {"$in": [*study.groups]}}, per_page=1)):
        raise RunError(f"{place} has no run of the group {words.listed([*study.groups])}")
    saved = report(study, live=True).save()
    yield "Report", saved.url
    yield "Workspace view", view(study).save().url


# --- the study -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Study:
    """What decides how wandb shows a study.

    comparison  without names of folders: it is uploaded
    project     of its wandb runs
    entity      of its wandb runs; None: the account's own
    groups      of its wandb runs
    grouping    settings whose runs are drawn as one line: pe.name, and whatever else differs between runs of one scheme,
                the seed aside
    lines       how many lines that gives
    """

    folder: Path
    comparison: Content
    project: str
    entity: str | None
    groups: tuple[str, ...]
    grouping: tuple[str, ...]
    lines: int


def read(folder: Path, entity: str | None = None, project: str | None = None) -> Study:
    """The study in a folder; its runs are in another project or entity where one is given."""
    path = folder / "comparison.json"
    if not path.is_file():
        raise ConfigError(
            f"posbuild publish {folder}: there is no comparison.json in it. posbuild compare {folder} makes it."
        )
    with records.intact(path):
        comparison = tracking.shareable(check(records.read_json(path)))
    found = [run.record for run in on_disk.find([folder]) if run.record]
    tracked = [record.settings for record in found if record.settings["logger"]["name"] == LoggerName.wandb.value]
    if not tracked:
        raise ConfigError(
            f"posbuild publish {folder}: no run of it is complete and was logged to wandb, so there is nothing to show. "
            "Train without logger=none."
        )
    return Study(
        folder=folder,
        comparison=comparison,
        project=project or _logged_to("project", tracked),
        entity=entity or _logged_to("entity", tracked),
        groups=tuple(sorted({settings["study"] or folder.resolve().name for settings in tracked})),
        grouping=("pe.name", *_varying(found)),
        lines=len({repr(_apart(record)) for record in found}),
    )


def _logged_to(what: str, tracked: Sequence[Mapping[str, Any]]) -> Any:
    """The project or entity that all runs were logged to."""
    found = {settings["logger"][what] for settings in tracked}
    if len(found) > 1:
        raise ConfigError(
            f"logger.{what} is {words.listed(sorted(map(str, found)))} in these runs: give --{what} NAME."
        )
    return found.pop()


def _varying(found: Sequence[Record]) -> list[str]:
    """The settings by which runs of one scheme differ, seeds aside: "optim.lr"."""
    by_scheme: dict[str, list[Content]] = defaultdict(list)
    for record in found:
        by_scheme[record.scheme].append(_apart(record))
    return sorted(
        name
        for name in {name for each in found for name in _apart(each)}
        if any(len({repr(each.get(name)) for each in same}) > 1 for same in by_scheme.values())
    )


def _apart(record: Record) -> Content:
    """The settings that make of two runs of one scheme two lines, as wandb names them."""
    return {
        f"{section}.{name}": value
        for section in ("pe", "model", "data", "train", "optim")
        for name, value in record.settings[section].items()
        if name not in NO_PART_OF_A_BUDGET.get(section, ()) or name == "pe_lr_mult"
    } | {"data_sha256": record.data["sha256"]}


# --- what its runs log -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number that runs log. `axis` is what it is drawn over, None for one number a run."""

    name: str
    title: str
    unit: str
    axis: str | None


def metrics(comparison: Mapping[str, Any]) -> list[Metric]:
    """What the runs of a comparison log of their learning and of what was measured."""
    found = {name: Metric(name=name, title=title, unit="nats/token", axis=STEP) for name, title in LEARNING.items()}
    for row in _measured(comparison):
        for name in tracking.summary([row]):
            title = words.title(row.measure, row.at, row.unit)
            found[name] = Metric(name=name, title=title, unit=row.unit, axis=None)
        axis = tracking.axis_of(row.measure, row.at)
        for name in {name for point in tracking.curves([row]) for name in point} - {axis}:
            others = {key: value for key, value in row.at.items() if axis and key != axis.partition("/")[2]}
            title = words.title(row.measure, others, row.unit)
            found[name] = Metric(name=name, title=title, unit=row.unit, axis=axis)
    return sorted(found.values(), key=lambda metric: metric.name)


def _measured(comparison: Mapping[str, Any]) -> list[Row]:
    """A row for each measure and place that has a number in some run."""
    once = {(row["measure"], repr(row["at"])): row for row in comparison["rows"] if row["value"] is not None}
    return [Row(**{name: row[name] for name in ("measure", "at", "value", "unit")}) for row in once.values()]


# --- the report and the workspace view -------------------------------------------------------------------------------


def report(study: Study, live: bool = False) -> Any:
    """The report, not saved: findings, panels, the guide's answers, claims.

    live  for the server: it then names the project of its runs, which takes a key and the network
    """
    reports, _ = _packages()
    title, place = study.comparison["title"][:TITLE], {"entity": study.entity or "", "project": study.project}

    def text(content: str) -> Any:
        return reports.MarkdownBlock(text=tracking.without_folders(content))

    def grid(panels: Sequence[Any]) -> Any:
        groupby = [f"config.{name}" for name in study.grouping]
        runs = reports.Runset(**(place if live else {}), name=title, filters=_filter(study), groupby=groupby)
        return reports.PanelGrid(runsets=[runs], panels=panels)

    blocks = [text(_findings(study.comparison)), reports.P(text=_reading(study))]
    for name, _, panels in _sections(study):
        blocks += [reports.H2(text=name), grid(panels)]
    for name, content in _evidence(study).items():
        blocks += [reports.H2(text=name), text(content)]
    return reports.Report(**place, title=title, description=DESCRIPTION, blocks=blocks, width="fluid")


def view(study: Study) -> Any:
    """The workspace view, not saved: the same panels."""
    _, workspaces = _packages()
    sections = [
        workspaces.Section(
            name=name,
            panels=panels,
            is_open=True,
            panel_settings=workspaces.SectionPanelSettings(x_axis=axis),
        )
        for name, axis, panels in _sections(study)
    ]
    runs = workspaces.RunsetSettings(
        filters=_filter(study), groupby=[workspaces.Config(name) for name in study.grouping]
    )
    return workspaces.Workspace(
        entity=study.entity or "",
        project=study.project,
        name=_without_symbols(study.comparison["title"][:TITLE]),
        sections=sections,
        settings=workspaces.WorkspaceSettings(x_axis=STEP, max_runs=max(LINES, study.lines)),
        runset_settings=runs,
    )


def specification(study: Study) -> Content:
    """Report and workspace view as they would be saved, with ids that are the same each time."""

    def plain(dashboard: Any) -> Content:
        model = dashboard._to_model()  # no public way leads there without saving
        spec = json.loads(model.spec.model_dump_json(by_alias=True, exclude_none=True))
        return {"title": model.display_name, "spec": _numbered(spec, {})}

    place = {"project": study.project, "entity": study.entity}
    return {"schema": records.SCHEMA, **place, "report": plain(report(study)), "workspace": plain(view(study))}


def _numbered(content: Any, ids: dict[str, str]) -> Any:
    """The content with 1, 2, 3, ... for the ids that the package has drawn."""
    if isinstance(content, list):
        return [_numbered(each, ids) for each in content]
    if not isinstance(content, dict):
        return content
    return {
        key: ids.setdefault(value, str(len(ids) + 1))
        if key in ("id", "__id__") and isinstance(value, str) and value
        else _numbered(value, ids)
        for key, value in content.items()
    }


def _filter(study: Study) -> str:
    """The training runs of the study, in the package's language."""
    groups = ", ".join(map(_quoted, study.groups))
    return f"Metric('Group') in [{groups}] and Metric('JobType') == 'train'"


def _quoted(text: str) -> str:
    """A literal without any character that the package might take for an operator: it looks into literals too."""
    letters = (letter if letter.isalnum() or letter in " _-." else f"\\U{ord(letter):08x}" for letter in text)
    return f"'{''.join(letters)}'"


def _without_symbols(title: str) -> str:
    """A name as the package takes it for a view: no signs such as + or <, no emoji."""
    return "".join(
        " " if unicodedata.category(letter) in ("Cs", "Sc", "Sk", "Sm", "So") else letter for letter in title
    )


def _reading(study: Study) -> str:
    lines = words.listed([*study.grouping])
    return f"Means over the runs with the same {lines}; the shade goes from the least to the greatest."


def _sections(study: Study) -> list[tuple[str, str, list[Any]]]:
    """The panels by what they are about, and what most of them are drawn over."""
    reports, _ = _packages()
    shared = {"groupby_aggfunc": "mean", "groupby_rangefunc": "minmax", "max_runs_to_show": max(LINES, study.lines)}

    def line(metric: Metric) -> Any:
        return reports.LinePlot(
            title=metric.title,
            x=metric.axis,
            y=[metric.name],
            title_x=AXES[metric.axis or STEP],
            title_y=metric.unit,
            log_x=metric.axis != STEP,
            **shared,
        )

    def bar(metric: Metric) -> Any:
        return reports.BarPlot(title=metric.title, metrics=[metric.name], title_x=metric.unit, **shared)

    found = metrics(study.comparison)
    of_cost = [metric for metric in found if metric.name.startswith(("cost/", "eval/cost/"))]
    curves = [metric for metric in found if metric.axis and metric not in of_cost]
    sections = [
        (name, axis, [line(metric) for metric in curves if metric.axis == axis])
        for name, axis in (
            ("By length", tracking.LENGTH),
            ("Recall by distance", tracking.DISTANCE),
            ("Learning", STEP),
        )
    ]
    sections.append(("Cost", tracking.LENGTH, [line(metric) if metric.axis else bar(metric) for metric in of_cost]))
    for _, _, panels in sections:
        for number, panel in enumerate(panels):
            panel.layout = reports.Layout(x=number % 2 * WIDTH, y=number // 2 * HEIGHT, w=WIDTH, h=HEIGHT)
    return [section for section in sections if section[2]]


# --- its text --------------------------------------------------------------------------------------------------------


def _findings(comparison: Content) -> str:
    """The sentences and the main table of each budget, and the notes."""
    parts = [] if comparison["budgets"] else [answer.nothing(comparison)]
    for budget in comparison["budgets"]:
        parts += [f"## Budget {budget['number']}"] if len(comparison["budgets"]) > 1 else []
        parts += [
            tables.markdown_text(f"{budget['scope']} {answer.units(comparison, budget)}"),
            tables.markdown_grid(tables.headline(comparison, budget)),
            _items(answer.findings(comparison, budget)),
        ]
    return "\n\n".join([*parts, _items([f"Note: {note}" for note in comparison["notes"]])]).strip()


def _evidence(study: Study) -> dict[str, str]:
    """What follows the panels: the guide, the claims, what is missing, and the command."""
    comparison = study.comparison
    failures = tables.failures(comparison)
    answers = told(comparison, Path(tracking.without_folder(str(study.folder))))["guide"]
    return {
        "What to choose": "\n\n".join(map(_chosen, answers)),
        "Claims": tables.markdown_grid(tables.verdicts(comparison)),
        **({"Not in the comparison": tables.markdown_grid(failures)} if failures.rows else {}),
        "Make it again": f"~~~~sh\n{comparison['command']}\n~~~~",
    }


def _chosen(found: Mapping[str, str]) -> str:
    """The guide's answers for one scenario."""
    limits = " ".join(f"{found[name].rstrip('.')}." for name in ("confidence", "scope") if found[name])
    return "\n".join(
        [
            tables.markdown_text(f"{found['scenario']}: {found['title']}"),
            "",
            f"- published, not measured here: **{found['published']}**. {tables.markdown_text(found['published_reason'])}",
            f"- measured: **{found['measured']}**. {tables.markdown_text(found['measured_reason'])}",
            *([f"- {tables.markdown_text(limits)}"] if limits else []),
            f"- next study, {found['next_study_is']}: `{found['next_study']}`"
            if found["next_study"]
            else f"- next study: none, {found['next_study_is']}",
        ]
    )


def _items(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {tables.markdown_text(sentence)}" for sentence in sentences)
