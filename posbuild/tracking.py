"""Weights & Biases: what a run and a comparison log, online or offline. A failure of wandb never costs a run.

Names of what is logged decide how wandb draws it: `eval/...` are scalars over `eval/length`, `recall/...` over
`recall/distance`, everything else over `trainer/global_step`; tables stand under `tables/`, charts under `plots/`,
pictures and the page under `viz/`.

What is uploaded, and no more: all settings and the hash of the text, what was measured, the comparison with its command,
pictures and page, the versions of Python and wandb, and how busy the machine was (processor, memory, disk). Not: the
machine's name, the user, environment variables, code, output, and the names of folders outside the working folder.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import secrets
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posbuild.paths import shown
from posbuild.records import MEASURED, REFERENCE, Row
from posbuild.settings import LoggerName, LoggerSettings, Settings, WandbMode

INIT_TIMEOUT = 30  # seconds that wandb may take to reach its server
FINISH_TIMEOUT = 120  # seconds that it may take to upload what is left; the rest stays on disk
MODES = ("online", "offline", "disabled", "shared", "dryrun", "run")  # of WANDB_MODE
LENGTH, DISTANCE = "eval/length", "recall/distance"  # what eval/* and recall/* are drawn over

ROW_COLUMNS = ["measure", "at", "value", "unit", "count", "bytes", "status", "reason", "note"]

Report = Callable[[str], None]
Tables = Mapping[str, Sequence[Mapping[str, Any]]]  # name -> records


class Tracker:
    """A wandb run, or none. No method raises: after a first failure it says so and logs no more."""

    def __init__(self, run: Any, report: Report) -> None:
        self.run, self.report = run, report
        self._logger: Any = None

    @property
    def lightning_logger(self) -> Any:
        """Lightning's logger for the run, None without one."""
        if self.run is not None and self._logger is None:
            self._logger = self._do(_lightning_logger, self)
        return self._logger

    def log_scalars(self, scalars: Mapping[str, float], step: int | None = None) -> None:
        """Log numbers together; `step` is the optimiser step."""
        self._do(self._log, {**scalars} if step is None else {**scalars, "trainer/global_step": step})

    def log_rows(self, rows: Iterable[Row]) -> None:
        """Log what was measured: by length as curves, the rest as the run's summary, all of it as one table."""
        self._do(self._log_rows, list(rows))

    def _log(self, content: Mapping[str, Any]) -> None:
        self.run.log(dict(content))

    def _log_rows(self, rows: list[Row]) -> None:
        for content in curves(rows):
            self.run.log(content)
        cells = [[cell(getattr(row, name)) for name in ROW_COLUMNS] for row in rows]
        self.run.log({"tables/rows": table(ROW_COLUMNS, cells)})
        self.run.summary.update(summary(rows))

    def _do(self, action: Callable[..., Any], *arguments: Any) -> Any:
        if self.run is None:
            return None
        try:
            return action(*arguments)
        except Exception as error:
            self.run = None
            self.report(f"wandb: logging stopped, the run goes on: {first_line(error)}")
            return None


@contextmanager
def tracking(
    settings: Settings, folder: Path, group: str, facts: Mapping[str, Any] | None = None, report: Report = print
) -> Iterator[Tracker]:
    """The wandb run of the job in `folder`, open inside the block; an exception in the block marks it as failed.

    group  of the run: the study
    facts  that stand in its config beside all settings
    """
    config = settings.plain() | dict(facts or {})
    paths = {name: getattr(settings.data, name) for name in ("path", "tokenizer")}
    config["data"] = config["data"] | {name: path and without_folder(path) for name, path in paths.items()}
    if settings.optim.tuned:
        config["optim"] = config["optim"] | {"tuned": without_folder(settings.optim.tuned)}
    with _open(
        settings.logger,
        folder.parent,
        folder / "wandb_id",
        report,
        name=folder.name,
        group=group,
        job_type="train",
        tags=[tag[:64] for tag in tags(settings)],  # wandb's limit
        config=config,
        resume="allow",
    ) as tracker:
        yield tracker


def log_comparison(
    folder: Path,
    comparison: Mapping[str, Any],
    group: str,
    settings: LoggerSettings,
    report: Report = print,
    told: Callable[[dict[str, Any], Path], Tables] = lambda comparison, study: {},
) -> None:
    """Log a comparison, with the pictures and the page that lie in the study folder, as a run of its own in the group.

    One that was logged before is not logged again; a changed one takes the place of the one before.

    comparison  as in comparison.json
    group       that of its runs: the study
    told        makes further tables of what may be uploaded: the comparison and the name of its folder
    """
    public = shareable(comparison)
    further = told(public, Path(without_folder(str(folder))))
    digest = hashlib.sha256(json.dumps([comparison, further], sort_keys=True).encode()).hexdigest()
    logged = folder / "wandb" / "comparison.sha256"  # goes with what it speaks of
    if logged.is_file() and logged.read_text(encoding="ascii") == digest:
        return
    tables = {name: public[name] for name in ("runs", "rows", "summary", "outcomes")} | {**further}
    config = {name: public[name] for name in ("command", "margin", "labels")}
    former = offline_runs(folder)
    with _open(
        settings,
        folder,
        folder / "wandb_comparison_id",
        report,
        name=f"{folder.name}-compare",
        group=group,
        job_type="compare",
        tags=["compare"],
        config=config,
        resume=None,  # what its server has of this run is replaced
    ) as tracker:
        tracker._do(_log_comparison, tracker, folder, comparison, tables)
    if tracker.run is not None:
        for file in former:
            if file.stem == f"run-{tracker.run.id}":
                shutil.rmtree(file.parent, ignore_errors=True)
        with suppress(OSError):  # then it is logged once more, no harm
            logged.write_text(digest, encoding="ascii")


def say_where(study: Path, settings: LoggerSettings, report: Report = print) -> None:
    """Say in one line where a launch left its runs, how to look at them and how to upload them.

    Says nothing where all of them went online: each has said its address.
    """
    try:
        mode, why = resolve_mode(settings)
    except Exception:  # wandb is missing or broken, and each run has said so
        return
    left = not_uploaded(study)
    folder = str(shown(study.absolute() / "wandb"))
    view, upload = shlex.join(["wandb", "leet", folder]), shlex.join(["wandb", "sync", folder])
    if mode == "disabled":
        report(f"wandb: off ({why}).")
    elif mode == "offline" and offline_runs(study):
        report(f"wandb: offline ({why}). View: {view}   Upload: {upload}")
    elif left:
        report(f"wandb: {len(left)} of these runs not uploaded. View: {view}   Upload: {upload}")


def offline_runs(study: Path) -> list[Path]:
    """The files of the offline runs of a study."""
    return sorted(study.glob("wandb/offline-run-*/run-*.wandb"))


def not_uploaded(study: Path) -> list[Path]:
    """Those of them that `wandb sync` has not uploaded from here."""
    return [file for file in offline_runs(study) if not file.with_name(f"{file.name}.synced").exists()]


# ------------------------------------------------------------------------- no names of folders outside the working folder


def without_folder(path: str) -> str:
    """A path from the working folder on; of one that lies elsewhere its last part."""
    if not os.path.isabs(os.path.expanduser(path)):
        return path
    inside = Path(path).is_relative_to(Path.cwd())
    return str(Path(path).relative_to(Path.cwd())) if inside else Path(path).name


def command_without_folders(commands: str) -> str:
    """Commands, one a line, with every path in them as `without_folder` has it."""
    return "\n".join(shlex.join(map(_word_without_folder, shlex.split(line))) for line in commands.splitlines())


def _word_without_folder(word: str) -> str:
    key, separator, value = word.partition("=")
    if not separator:
        return without_folder(word)
    values = value.split(",") if key == "optim.tuned" else [value]  # null, and the folder of a study
    return f"{key}={','.join(map(without_folder, values))}"


def shareable(comparison: Mapping[str, Any]) -> dict[str, Any]:
    """A comparison whose commands name no folder outside the working folder."""

    def own(content: Mapping[str, Any]) -> dict[str, Any]:
        return {**content, "command": content.get("command") and command_without_folders(content["command"])}

    return own(comparison) | {"runs": [own(run) for run in comparison["runs"]]}


def without_folders(text: str) -> str:
    """A text, plain or HTML, without the working folder and the home folder."""
    for folder, instead in ((f"{Path.cwd()}{os.sep}", ""), (str(Path.cwd()), "."), (str(Path.home()), "~")):
        for written in (folder, html.escape(folder)):
            text = text.replace(written, instead)
    return text


# ----------------------------------------------------------------------------------------------------- opening a run


@contextmanager
def _open(settings: LoggerSettings, study: Path, id_file: Path, report: Report, **wanted: Any) -> Iterator[Tracker]:
    """A wandb run while inside. All runs of a study share its wandb folder, so that `wandb leet` shows them together."""
    run = None
    if settings.name is not LoggerName.none:
        place = {"project": settings.project, "entity": settings.entity, "dir": str(study)}
        run = _init(settings, id_file, place | wanted, report)
    tracker = Tracker(run, report)
    failed = True
    try:
        yield tracker
        failed = False
    finally:
        if run is not None:
            try:
                run.finish(exit_code=1 if failed else 0)
            except Exception as error:
                tracker.run = None
                upload = shlex.join(["wandb", "sync", str(run.settings.sync_dir)])
                report(f"wandb: the run could not be closed: {first_line(error)}. Upload: {upload}")
                _let_go()


def _init(settings: LoggerSettings, id_file: Path, wanted: dict[str, Any], report: Report) -> Any:
    """A run, online or offline, or None if wandb cannot have one. Says where it is online, and what went wrong."""
    try:
        import wandb

        mode, _ = resolve_mode(settings)
        if mode == "disabled":
            return None
        Path(wanted["dir"]).mkdir(parents=True, exist_ok=True)
        wanted["id"] = run_id(id_file)
        try:
            run = _start(mode, wanted)
        except (wandb.errors.CommError, wandb.errors.UsageError) as error:
            if mode == "offline":
                raise
            report(f"wandb: {wanted['name']} is logged offline: {first_line(error)}")
            _let_go()  # the service still holds the id
            mode, run = "offline", _start("offline", wanted)
        _define_axes(run)
        if mode == "online":
            report(f"wandb: {run.url}")
        return run
    except Exception as error:  # whatever it is, the run is worth more than its log
        report(f"wandb: nothing is logged: {first_line(error)}")
        return None


def _start(mode: str, wanted: dict[str, Any]) -> Any:
    import wandb

    settings = wandb.Settings(
        init_timeout=INIT_TIMEOUT,
        finish_timeout=FINISH_TIMEOUT,
        finish_timeout_raises=True,
        console="off",  # what the run prints is the launch's own
        silent=True,
        x_disable_meta=True,  # host, user, git remote and command line: the record has what matters and no secrets
        x_save_requirements=False,
        disable_git=True,
        disable_code=True,
        host="",
    )
    # create_new: an open run of the same process would be returned instead, with its settings
    return wandb.init(mode=mode, reinit="create_new", settings=settings, **wanted)  # type: ignore[arg-type]


def _let_go() -> None:
    """Leave a wandb service that has failed, so that it is not used again and says nothing at the end of the process."""
    import wandb

    with suppress(Exception):
        wandb.teardown()


def resolve_mode(settings: LoggerSettings) -> tuple[str, str]:
    """online, offline or disabled, and why. WANDB_MODE wins; without a usable API key nothing goes online.

    Never prompts. What cannot be had (an unknown WANDB_MODE, online without a key, a key of the wrong form) is said, and
    the run goes on offline: it can be uploaded later, and no run is lost for its log.
    """
    import wandb

    asked = os.environ.get("WANDB_MODE", "").strip().lower()
    if asked and asked not in MODES:
        os.environ["WANDB_MODE"] = "offline"  # wandb would refuse to start
        return "offline", f"WANDB_MODE={asked} is not one of {', '.join(MODES)}"
    if asked in ("disabled", "offline", "dryrun"):
        return ("disabled" if asked == "disabled" else "offline"), f"WANDB_MODE={asked}"
    if not asked and settings.mode is WandbMode.offline:
        return "offline", "logger.mode=offline"
    wandb.setup(wandb.Settings(silent=True))  # the line of `where` says what a person needs
    try:
        if wandb.login(prompt=False, verify=False):
            return "online", ""
    except wandb.errors.AuthenticationError as error:
        return "offline", first_line(error)
    online = asked or settings.mode is WandbMode.online
    return "offline", "online needs an API key: wandb login, or WANDB_API_KEY" if online else "no API key"


def run_id(file: Path) -> str:
    """The wandb id kept in a file: drawn once, so that a resumed run stays one run and no other has it."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(secrets.token_hex(4), encoding="ascii")
    return file.read_text(encoding="ascii").strip()


def tags(settings: Settings) -> list[str]:
    return [
        f"pe:{settings.scheme}",
        f"model:{settings.model.name}",
        f"data:{settings.data.name.name}",
        f"objective:{settings.objective.name.name}",
        f"seed:{settings.seed}",
    ]


def _define_axes(run: Any) -> None:
    """The first definition that fits a name stands, so eval/* comes before *."""
    for axis in (LENGTH, DISTANCE):
        run.define_metric(axis)
        run.define_metric(f"{axis.partition('/')[0]}/*", step_metric=axis)
    if run.job_type == "train":
        run.define_metric("trainer/global_step")
        run.define_metric("*", step_metric="trainer/global_step", step_sync=True)


def _lightning_logger(tracker: Tracker) -> Any:
    from pytorch_lightning.loggers import WandbLogger

    class Logger(WandbLogger):
        """Logs by way of the tracker, so that no failure of wandb reaches the Trainer."""

        def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
            tracker.log_scalars(metrics, step)

    return Logger(experiment=tracker.run, save_dir=tracker.run.settings.root_dir, project=tracker.run.project)


def first_line(error: BaseException) -> str:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return re.sub(r"//[^/@\s]+@", "//", line)  # a server's address may hold a password


# ------------------------------------------------------------------------------------------------- what is logged


def axis_of(measure: str, at: Mapping[str, Any]) -> str | None:
    """What wandb draws a number over; None for one that is no point of a curve."""
    if measure.startswith("recall/") and "distance" in at:
        return DISTANCE
    return LENGTH if "length" in at and "position" not in at else None


def curves(rows: Iterable[Row]) -> list[dict[str, float]]:
    """What depends on the evaluation length, and recall by distance: for each of them one entry to log, ascending."""
    points: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows:
        axis = axis_of(row.measure, row.at)
        if axis and row.status == MEASURED:
            kind, _, coordinate = axis.partition("/")
            place = int(row.at[coordinate])
            others = {
                name: value for name, value in row.at.items() if name != coordinate and (name, value) != ("window", 0)
            }
            name = named(row.measure, others)
            name = name if name.startswith(f"{kind}/") else f"{kind}/{name}"
            points.setdefault((axis, place), {axis: place})[name] = row.value  # type: ignore[assignment]
    return [points[key] for key in sorted(points)]


def summary(rows: Iterable[Row]) -> dict[str, float]:
    """What does not depend on a length, by name; of the run's own encoding."""
    return {
        named(row.measure, row.at): row.value  # type: ignore[misc]
        for row in rows
        if row.status == MEASURED and "length" not in row.at and not row.measure.startswith(REFERENCE)
    }


def named(measure: str, at: Mapping[str, Any]) -> str:
    """One name for a measure at a place: "recall/gain", {"distance": 32} -> "recall/gain_distance_32".

    wandb sorts and filters only by names of letters, digits and underscores, the slash aside.
    """
    parts = [measure, *(f"{name}_{value}" for name, value in at.items())]
    return re.sub(r"[^0-9A-Za-z/]+", "_", "_".join(parts))


def table(columns: list[str], cells: list[list[Any]]) -> Any:
    import wandb

    return wandb.Table(columns=list(columns), data=cells, allow_mixed_types=True)


def _log_comparison(tracker: Tracker, folder: Path, comparison: Mapping[str, Any], tables: Tables) -> None:
    import wandb
    from markupsafe import escape  # as the page is

    charts = line_charts(comparison["summary"])
    for content in chart_points(charts.values()):
        tracker.run.log(content)
    tracker.run.log({f"tables/{name}": table(*long_form(entries)) for name, entries in tables.items() if entries})
    for name, chart in charts.items():
        drawn = wandb.plot.line_series(
            xs=[places for places, _ in chart.lines.values()],
            ys=[means for _, means in chart.lines.values()],
            keys=list(chart.lines),
            title=chart.title,
            xname=f"{chart.axis.partition('/')[2]}, tokens",
        )
        tracker.run.log({f"plots/{name}": drawn})
    pictures: dict[str, Any] = {
        f"viz/{path.stem}": wandb.Image(str(path), caption=path.stem)
        for path in sorted((folder / "figures").glob("*.png"))
    }
    page = folder / "comparison.html"
    if page.exists():
        text = page.read_text(encoding="utf-8")
        commands = (content.get("command") or "" for content in (comparison, *comparison["runs"]))
        words = {word for each in commands for line in each.splitlines() for word in shlex.split(line)}
        for word in sorted(words, key=len, reverse=True):  # in these commands, and in those of the next study
            if (shown := _word_without_folder(word)) != word:
                text = text.replace(str(escape(shlex.quote(word))), str(escape(shlex.quote(shown))))
        pictures["viz/comparison"] = wandb.Html(without_folders(text), inject=False)
    if pictures:
        tracker.run.log(pictures)


def long_form(entries: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Columns and cells of a list of records; what is no plain value is written as JSON."""
    columns = list(dict.fromkeys(name for entry in entries for name in entry))
    return columns, [[cell(entry.get(name)) for name in columns] for entry in entries]


def cell(value: Any) -> Any:
    if isinstance(value, (dict, list, tuple)):
        value = json.dumps(value, ensure_ascii=False)
    return without_folders(value) if isinstance(value, str) else value


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Lines over one axis: label -> coordinates, ascending, and means over seeds.

    stem  what the names of its numbers begin with
    """

    title: str
    axis: str
    stem: str
    lines: dict[str, tuple[list, list]] = field(default_factory=dict)


def chart_points(charts: Iterable[Chart]) -> list[dict[str, float]]:
    """The lines of the charts as scalars, for each place one entry to log, ascending: what wandb's own charts draw."""
    points: dict[tuple[str, int], dict[str, float]] = {}
    for chart in charts:
        for label, (places, means) in chart.lines.items():
            for place, mean in zip(places, means, strict=True):
                entry = points.setdefault((chart.axis, place), {chart.axis: place})
                entry[named(f"{chart.stem}/{label}", {})] = mean
    return [points[key] for key in sorted(points)]


def line_charts(means: Iterable[Mapping[str, Any]]) -> dict[str, Chart]:
    """Curves of a comparison's summary, by name: losses by length and recall by distance."""
    charts: dict[str, Chart] = {}
    found = [(axis, entry) for entry in means if (axis := _on_a_chart(entry))]
    for axis, entry in sorted(found, key=lambda pair: pair[1]["at"][pair[0].partition("/")[2]]):
        kind, _, coordinate = axis.partition("/")
        budget, window = entry["budget"], entry["at"].get("window")
        apart = ({"window": window} if window else {}) | ({"budget": budget} if budget != 1 else {})
        name = named(entry["measure"].removeprefix("loss/"), apart)
        title = f"{re.sub('[_/]', ' ', name)}, nats/token"
        stem = name if name.startswith(f"{kind}/") else f"{kind}/{name}"
        chart = charts.setdefault(name.replace("/", "_"), Chart(title=title, axis=axis, stem=stem))
        places, values = chart.lines.setdefault(entry["label"], ([], []))
        places.append(entry["at"][coordinate])
        values.append(entry["mean"])
    return charts


def _on_a_chart(entry: Mapping[str, Any]) -> str | None:
    """The axis of a mean that is a point of a chart."""
    loss = entry["measure"].startswith("loss/") and entry["at"].keys() == {"length", "window"}
    recall = entry["measure"].startswith("recall/") and entry["at"].keys() == {"distance"}
    return axis_of(entry["measure"], entry["at"]) if (loss or recall) and entry["mean"] is not None else None
