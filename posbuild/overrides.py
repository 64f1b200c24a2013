"""From what a person typed to the jobs of a launch: parsed, composed and checked before anything runs.

Hydra composes; its mistakes come back as one ConfigError that names the setting as typed and what would work. Imports no
torch.
"""

from __future__ import annotations

import argparse
import dataclasses
import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.core.utils import setup_globals
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from posbuild import registry
from posbuild.errors import ConfigError, first_line, nearest
from posbuild.paths import absolute_path, conf_dir
from posbuild.settings import SECTIONS, Settings, alone_as_list, from_config, plain, typed_form

# What a configuration may name for Hydra to call, and for Python's logging to build: a class, and of a module of its own,
# for a path may lead on through what a module imports (logging.os.system).
HYDRAS_OWN = re.compile(r"hydra\._internal\.core_plugins\.\w+\.[A-Z]\w*|hydra\.experimental\.callbacks\.[A-Z]\w*")
PLUG_IN = re.compile(r"hydra_plugins\.\w+\.\w+\.[A-Z]\w*")
OF_LOGGING = re.compile(r"logging\.(handlers\.)?[A-Z]\w*|colorlog\.[A-Z]\w*|ext://sys\.std(out|err)")

# What is typed after these is a path or a folder's name, whatever characters it has.
PATHS = ("data.path", "data.tokenizer", "optim.tuned", "resume", "study", "hydra.run.dir", "hydra.sweep.dir")

LONGEST_LIST = 1000  # values in one setting

# What ${NAME:...} may be in Hydra's own node: these give plain text and numbers, never a node that could name code.
RESOLVERS = frozenset({"hydra", "now", "oc.env", "python_version", "posbuild.study", "posbuild.run"})


def launch_name() -> str:
    """The name of a study that was given none: POSBUILD_LAUNCH, else the time."""
    return os.environ.get("POSBUILD_LAUNCH") or datetime.now().strftime("%Y-%m-%d_%H-%M-%S_%f")


# At import, so that they are there in a process in which a launcher starts a job; conf/config.yaml names folders by them.
OmegaConf.register_new_resolver("posbuild.study", lambda study: study or launch_name(), replace=True)
OmegaConf.register_new_resolver("posbuild.run", lambda _root_: from_config(_root_).run_name, replace=True)


@dataclass(frozen=True)
class Typed:
    """A command line, taken apart.

    options   flags with their values
    settings  NAME=VALUE, both as typed
    flags     of Hydra: multirun, config_dir, config_name, ...
    """

    options: list[str]
    settings: list[str]
    flags: argparse.Namespace

    @property
    def overrides(self) -> list[str]:
        """The settings for Hydra: paths are quoted where it would read more into them."""
        return [literal(setting, self.flags.multirun) for setting in self.settings]

    def value(self, name: str) -> str | None:
        """The value given to a setting, the last where there are several; None for null and for none."""
        for override in reversed(self.overrides):
            key, separator, _ = override.partition("=")
            if separator and key.lstrip("+") == name:
                value = OverridesParser.create().parse_overrides([override])[0].value()
                return None if value is None else str(value)
        return None

    def with_study(self) -> Typed:
        """The same with a name for the study, so that the command can be given again for the same folder."""
        if self.value("study") is not None or Composer(self).study() is not None:
            return self
        others = [setting for setting in self.settings if setting.partition("=")[0].lstrip("+") != "study"]
        return Typed(self.options, [*others, f"study={launch_name()}"], self.flags)

    @property
    def only_shows(self) -> bool:
        """Whether Hydra is to print something rather than to run."""
        flags = self.flags
        return bool(
            flags.help
            or flags.hydra_help
            or flags.cfg
            or flags.info
            or flags.shell_completion
            or flags.experimental_rerun
        )


@dataclass(frozen=True)
class Job:
    """One run of a launch: its overrides, as Hydra will give them to it, its settings and its run folder."""

    overrides: list[str]
    settings: Settings
    folder: Path


@dataclass(frozen=True)
class Plan:
    """What a launch will run.

    study           the folder of the study; of a single run that stands elsewhere, its own
    multirun        whether it is a sweep, be it of one job
    changes_folder  hydra.job.chdir
    """

    jobs: list[Job]
    study: Path
    multirun: bool
    changes_folder: bool


def take_apart(arguments: Sequence[str]) -> Typed:
    """A command line by Hydra's own rules, flags and settings in any order."""
    flags = get_args_parser().parse_intermixed_args(list(arguments))
    options = [argument for argument in arguments if argument not in flags.overrides]
    return Typed(options, flags.overrides, flags)


def literal(override: str, multirun: bool) -> str:
    """The override with its path quoted, so that blanks, commas, brackets and letters of any script stand for themselves.

    A comma in a path of data parts the values of a sweep under -m, in `optim.tuned` always, unless something has that
    whole name. What is quoted already, null, and what holds an interpolation stay as they are.
    """
    key, separator, value = override.partition("=")
    if key.lstrip("+") not in PATHS or not separator or value == "null" or "${" in value:
        return override
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return override
    swept = (key == "optim.tuned" or (multirun and key.startswith("data."))) and not exists(value)
    parts = value.split(",") if swept else [value]
    return f"{key}={','.join(part if part == 'null' else quoted(part) for part in parts)}"


def exists(path: str) -> bool:
    """Whether a file, folder or glob, taken from the present folder, names anything."""
    place = absolute_path(path, os.getcwd())
    return os.path.lexists(place) or next(glob.iglob(place, recursive=True), None) is not None


def quoted(text: str) -> str:
    """A text as Hydra reads it back unchanged: in quotes, unless it does without."""
    try:
        if OverridesParser.create().parse_override(f"x={text}").value() == text:
            return text
    except HydraException:
        pass
    return QuotedString(text=text, quote=Quote.single).with_quotes()


def settings_of(*overrides: str) -> Settings:
    """The settings that the overrides describe: `settings_of("pe=alibi", "seed=1")`. Raises ConfigError.

    Leaves a Hydra application that called it as it was.
    """
    for override in overrides:
        if override.lstrip("+").startswith("experiment="):
            raise ConfigError(
                f"{override} is a sweep over several models, and build takes the settings of one. Name them, such as pe=alibi."
            )
    (job,) = plan(Typed([], list(overrides), take_apart([]).flags)).jobs
    return job.settings


def plan(typed: Typed) -> Plan:
    """The jobs that the command line describes. Raises ConfigError if any of them does not compose."""
    return Composer(typed).plan()


class Composer:
    """Hydra's composition of one command line, without its jobs."""

    def __init__(self, typed: Typed) -> None:
        if version.getbase() is None:  # else a Hydra application that called us has chosen
            version.setbase("1.3")
        setup_globals()
        offer_schemes()
        self.typed = typed
        self.config_name = typed.flags.config_name or "config"
        self.loader = ConfigLoaderImpl(search_path(typed.flags))
        of_others = {"hydra", "scenario"}  # scenarios are of the guide
        self.groups = {*self.loader.get_group_options("", results_filter=ObjectType.GROUP)} - of_others

    def choices(self, group: str) -> list[str]:
        """The files of a group, then those of its folders, FOLDER/FILE."""
        folders = self.loader.get_group_options(group, results_filter=ObjectType.GROUP)
        deeper = [
            f"{folder}/{name}" for folder in folders for name in self.loader.get_group_options(f"{group}/{folder}")
        ]
        return [*self.loader.get_group_options(group), *deeper]

    def plan(self) -> Plan:
        overrides = self.parsed(self.typed.overrides)
        for override in overrides:
            self.refuse_wrong_choice(override)
        multirun = self.typed.flags.multirun
        one_by_one = [override for override in overrides if not override.is_sweep_override()]
        config = self.load([*map(self.lenient, one_by_one)], RunMode.MULTIRUN if multirun else RunMode.RUN)
        refuse_code(config)
        launch = config.hydra
        if not (multirun or launch.mode == RunMode.MULTIRUN):
            for override in overrides:
                self.refuse_sweep(override)
            job = job_of(config, overrides)
            study = Path(launch.sweep.dir)
            return Plan([job], study if job.folder.parent == study else job.folder, False, bool(launch.job.chdir))
        refuse_other_sweepers(launch.sweeper._target_)
        task = [override for override in overrides if not override.is_hydra_override()]
        params = launch.sweeper.params or {}  # of an experiment
        swept = self.parsed([f"{key}={value}" for key, value in params.items()]) + task
        for override in swept:
            self.refuse_wrong_choice(override)
        hydra = [str(override.input_line) for override in overrides if override.is_hydra_override()]
        try:
            (batch,) = BasicSweeper.split_arguments(swept, max_batch_size=None)
        except HydraException as error:
            raise ConfigError(f"{first_line(error)}. Use a comma list, range(FIRST,LAST) or glob(PATTERN).") from None
        jobs = []
        for number, lines in enumerate(batch):
            own = self.parsed(lines)
            composed = self.load([*hydra, *map(self.lenient, own)], RunMode.RUN)
            refuse_code(composed)
            jobs.append(job_of(composed, own, number))
        refuse_twins(jobs, [str(override.get_key_element()) for override in swept if override.is_sweep_override()])
        return Plan(jobs, Path(launch.sweep.dir), True, bool(launch.job.chdir))

    def study(self) -> str | None:
        """The name of the study where a YAML file that was chosen gives one."""
        single = [override for override in self.parsed(self.typed.overrides) if not override.is_sweep_override()]
        for override in single:
            self.refuse_wrong_choice(override)
        return self.load([*map(self.lenient, single)], RunMode.RUN).study

    def parsed(self, overrides: Iterable[str]) -> list[Override]:
        parser = OverridesParser.create(config_loader=self.loader)
        found = []
        for override in overrides:
            key, _, value = override.partition("=")
            if value.startswith("[") and value.count(",") >= LONGEST_LIST:
                raise ConfigError(too_long(key, value.count(",") + 1))
            try:
                found += parser.parse_overrides([override])
            except HydraException as error:
                raise ConfigError(unreadable(override)) from error
        return found

    # --- what is refused before composing, each with its own words ----------------------------------------------------

    def refuse_wrong_choice(self, override: Override) -> None:
        key, line = override.key_or_group, override.input_line
        if override.is_hydra_override() or override.package is not None:
            return
        if override.is_delete():
            instead = "Use pe=none for a model without encoding." if key == "pe" else f"Give it a value: {key}=VALUE."
            raise ConfigError(f"{line} takes a setting away, and every run needs it. {instead}")
        if key == "pe.name":
            name = typed_form(override.value()) if not override.is_sweep_override() else override.get_value_string()
            unknown = f" pe={name} {self.choice('pe', name)}" if name not in self.choices("pe") else ""
            raise ConfigError(f"{line} would keep another scheme's options. Choose with pe={name}.{unknown}")
        if key not in self.groups:
            return refuse_unknown(key, str(line))
        if override.type.name != "CHANGE":
            raise ConfigError(f"{line} has a sign too many: write {key}={override.get_value_string()}.")
        values = list(override.sweep_iterator()) if override.is_sweep_override() else [override.value()]
        if not values:
            raise ConfigError(f"{line} matches nothing. Known: {', '.join(self.choices(key))}.")
        if key == "experiment" and (len(values) > 1 or isinstance(values[0], list)):
            raise ConfigError(
                f"{line} names several studies, whose sweeps Hydra would drop. Launch one after another: experiment=NAME."
            )
        for value in values:
            name = typed_form(value)
            if name not in self.choices(key):
                raise ConfigError(f"{key}={name} {self.choice(key, value)}")

    def choice(self, group: str, value: Any) -> str:
        """Why a value is no choice of a group, and what is."""
        known = self.choices(group)
        if group != "pe":
            return f"is not a choice of {group}. {nearest(typed_form(value), known)}"
        if value in (None, "null"):
            return f"is no scheme. For a model without encoding use pe=none. Known: {', '.join(known)}."
        return f"is not a known scheme. {nearest(typed_form(value), known)} Choose with pe=NAME."

    def refuse_sweep(self, override: Override) -> None:
        if not override.is_sweep_override() or override.is_hydra_override():
            return
        key = override.key_or_group
        section, _, name = key.partition(".")
        takes_list = section in SECTIONS and alone_as_list(SECTIONS[section], name, 1) == [1]
        one = f" For one run over them all write {key}=[{override.get_value_string()}]." if takes_list else ""
        raise ConfigError(f"{override.input_line} gives several values, and that is a sweep: add -m to run each.{one}")

    # --- composing ----------------------------------------------------------------------------------------------------

    def lenient(self, override: Override) -> str:
        """The override so that a name which is no setting passes: of those `from_config` says what would work."""
        line = str(override.input_line)
        free = override.is_hydra_override() or override.package is not None or override.key_or_group in self.groups
        return line if free else f"++{line.lstrip('+')}"

    def load(self, lines: list[str], mode: RunMode) -> DictConfig:
        try:
            config = self.loader.load_configuration(self.config_name, lines, mode, validate_sweep_overrides=False)
        except (HydraException, OmegaConfBaseException, ValueError, yaml.YAMLError) as error:
            words = dict.fromkeys(
                first_line(part) for part in (error, error.__cause__) if part is not None and str(part)
            )
            raise ConfigError(f"{': '.join(words)}. Settings: {' '.join(lines) or 'the defaults'}.") from None
        refuse_long_lists(config)
        return config


def job_of(config: DictConfig, overrides: Sequence[Override], number: int | None = None) -> Job:
    """One run; `number` is its place in a sweep. Unknown names were let through: `from_config` has words for them."""
    settings = from_config(config)
    if settings.resume is not None:
        raise ConfigError(
            f"resume={settings.resume} stands in a YAML file, where it starts nothing. Type it: resume=RUN_FOLDER."
        )
    for override in overrides:
        if override.is_add() and not override.is_hydra_override():
            line = str(override.input_line)
            raise ConfigError(f"{line} is a setting already: write {line[1:]}, without the +.")
    return Job([str(override.input_line) for override in overrides], settings, run_folder(config, number))


def run_folder(config: DictConfig, number: int | None) -> Path:
    """The folder that Hydra will give the job."""
    held = HydraConfig.instance().cfg
    if number is not None:
        with open_dict(config.hydra):
            config.hydra.job.id = config.hydra.job.num = number
    HydraConfig.instance().set_config(config)  # for ${hydra:...} in the names of folders
    try:
        if number is None:
            for key in ("run.dir", "sweep.dir", "sweep.subdir"):
                group, _, name = key.partition(".")
                written = OmegaConf.to_container(config.hydra[group], resolve=False)[name]  # type: ignore[call-overload, index]
                if "job.num" in written:
                    raise ConfigError(
                        f"hydra.{key}={written} has a job number, and a single run has none. Leave it out, or add -m."
                    )
            return Path(config.hydra.run.dir)
        return Path(config.hydra.sweep.dir) / config.hydra.sweep.subdir
    except OmegaConfBaseException as error:
        raise ConfigError(f"The name of the run folder cannot be made: {first_line(error)}.") from None
    finally:
        HydraConfig.instance().cfg = held


def offer_schemes() -> None:
    """Let Hydra know the schemes that have no YAML file in conf/pe, by the defaults of their options."""
    for name, scheme in registry.schemes().items():
        if not (conf_dir() / "pe" / f"{name}.yaml").exists():
            ConfigStore.instance().store(
                name, {"name": name, **plain(scheme.options())}, group="pe", provider="posbuild"
            )


def search_path(flags: argparse.Namespace) -> Any:
    path = create_config_search_path(str(Path(flags.config_path).absolute()) if flags.config_path else str(conf_dir()))
    if flags.config_dir is not None:
        folder = Path(flags.config_dir).absolute()
        if not folder.is_dir():
            raise ConfigError(f"--config-dir {flags.config_dir}: there is no folder {folder}.")
        path.prepend(provider="command-line", path=f"file://{folder}", anchor=SearchPathQuery(provider="schema"))
    return path


def refuse_twins(jobs: Sequence[Job], swept: Sequence[str]) -> None:
    """Jobs of one launch that would be one run: what tells them apart does not decide the weights.

    Where the best rate of a scheme is the shared one, one run stands for both.
    """
    first: dict[tuple, Job] = {}
    for job in jobs:
        twin = first.setdefault((job.settings.run_name, job.settings.optim.tuned), job)
        if twin is not job:
            raise ConfigError(
                f"{' '.join(twin.overrides)} and {' '.join(job.overrides)} are one run, for {', '.join(swept)} does not tell their weights apart. "
                "Name each value once; lengths go into one list, as in eval.lengths=[64,128]."
            )


def unreadable(override: str) -> str:
    """What is wrong with an override that Hydra's grammar refuses."""
    key, separator, value = override.partition("=")
    if not separator:
        scheme = f" Did you mean pe={override}?" if override in registry.all_schemes() else ""
        return f"{override} is not a setting: write NAME=VALUE, such as pe=alibi.{scheme}"
    return f'{override} cannot be read. Put the value in quotes inside quotes: "{key}={quoted(value)}".'


def refuse_unknown(key: str, line: str) -> None:
    """A name whose first part is no setting and no group of settings."""
    root = key.partition(".")[0]
    known = [item.name for item in dataclasses.fields(Settings) if item.name != "scheme"]
    if root in known:
        return
    if root == "scheme":
        raise ConfigError(f"{line} is not a setting. Did you mean pe={line.partition('=')[2]}?")
    kinds: list[tuple[str, type]] = [*SECTIONS.items()] + [
        ("pe", scheme.options) for scheme in registry.all_schemes().values()
    ]
    full = dict.fromkeys(
        f"{name}.{root}" for name, kind in kinds if root in {item.name for item in dataclasses.fields(kind)}
    )
    raise ConfigError(
        f"{line} is not a setting. " + (f"Did you mean {' or '.join(full)}?" if full else nearest(root, known))
    )


def refuse_long_lists(config: DictConfig) -> None:
    """Raise ConfigError for a setting with more values than anyone means, before minutes go into reading them."""
    for section in SECTIONS:
        values = config.get(section)
        for key in values if isinstance(values, DictConfig) else ():
            value = values._get_node(key)
            if isinstance(value, ListConfig) and len(value) > LONGEST_LIST:
                raise ConfigError(too_long(f"{section}.{key!s}", len(value)))


def too_long(key: str, values: int) -> str:
    return f"{key} has {values} values, and a list may have {LONGEST_LIST}. Give fewer."


def refuse_code(config: DictConfig) -> None:
    """Raise ConfigError if the configuration names code that is neither Hydra's own nor a plug-in's.

    Hydra runs what its own node names; anywhere else a `_target_` is a setting that does not exist.
    """
    for place, name, value in entries(OmegaConf.to_container(config.hydra, resolve=False), "hydra"):
        text = str(value)
        used = re.findall(r"\$\{([^{}:]*|\$.*?):", text) if isinstance(value, str) else []
        if any(resolver.strip() not in RESOLVERS for resolver in used):
            raise ConfigError(
                f"{place}={text} cannot be used: only {', '.join(sorted(RESOLVERS))} may stand in ${{...}} there, since what "
                "others make would reach Hydra unseen. Leave it out."
            )
        if name not in ("_target_", "class", "()") and not text.startswith("ext://"):
            continue
        known = (HYDRAS_OWN, PLUG_IN) if name == "_target_" else (OF_LOGGING,)
        if not any(pattern.fullmatch(text) for pattern in known):
            raise ConfigError(
                f"{place}={text} cannot be used: a configuration runs no code that it names, but classes of Hydra and of its "
                "plug-ins (hydra_plugins.*), and in a logging configuration those of logging and colorlog. Leave it out."
            )


def entries(node: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Place, name and value of everything under `node`, in dicts and lists at whatever depth."""
    for name, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield f"{place}.{name}", name, value
        if isinstance(value, dict | list):
            yield from entries(value, f"{place}.{name}")


def refuse_other_sweepers(target: str) -> None:
    if target != f"{BasicSweeper.__module__}.{BasicSweeper.__qualname__}":
        raise ConfigError(
            f"hydra/sweeper with {target} cannot be used: every job is checked before the first one runs, and only Hydra's basic "
            "sweeper (comma lists, range, glob) tells them beforehand. Leave hydra/sweeper out."
        )
