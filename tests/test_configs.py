"""conf/ and the classes of settings say the same, and every file in conf/ can be used."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from posbuild import registry, show
from posbuild.errors import ConfigError
from posbuild.overrides import plan, take_apart
from posbuild.paths import conf_dir
from posbuild.settings import SECTIONS, Settings, check, check_trainable, plain

CONF = conf_dir()
GROUPS = {
    group.name: sorted(file.relative_to(group).with_suffix("").as_posix() for file in group.rglob("*.yaml"))
    for group in CONF.iterdir()
    if group.is_dir()
}
SCENARIOS = GROUPS.pop("scenario")  # of `posbuild guide`, no choice of a run: tests/guide/test_scenarios.py
CHOICES = [(group, name) for group, names in sorted(GROUPS.items()) for name in names]
DEFAULTS = {
    "objective": "next_token",
    "positions": "plain",
    "model": "tiny",
    "data": "sotu",
    "train": "default",
    "optim": "adamw",
    "eval": "default",
    "trainer": "default",
    "logger": "wandb",
}
NEEDS = {
    ("data", "files"): ["data.path=conf"],
    ("data", "hf"): ["data.path=conf"],
    ("positions", "shape"): ["pe=sinusoidal"],
    ("experiment", "tune"): ["pe=none,t5", "optim.lr=3e-3"],  # two of its 28 jobs
}


def test_every_yaml_file_is_a_choice_of_a_group() -> None:
    files = sorted(path.relative_to(CONF) for path in CONF.rglob("*") if path.is_file())
    assert files == sorted(
        [
            Path("config.yaml"),
            *(Path(group, f"{name}.yaml") for group, name in [*CHOICES, *(("scenario", name) for name in SCENARIOS)]),
        ]
    )
    assert {*GROUPS} == {*SECTIONS, "pe", "experiment", "debug"}


@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_every_choice_composes_and_can_run(group: str, name: str) -> None:
    jobs = plan(take_apart([f"{group}={name}", *NEEDS.get((group, name), [])])).jobs
    if name in registry.all_schemes().keys() - registry.schemes().keys():
        with pytest.raises(ConfigError, match=f"pe={name} encodes positions of .* axes, and text has one"):
            check(jobs[0].settings)
        return
    for job in jobs:
        check(job.settings)
    if group in SECTIONS and "name" in {item.name for item in dataclasses.fields(SECTIONS[group])}:
        assert plain(getattr(jobs[0].settings, group))["name"] == name


@pytest.mark.parametrize("section", sorted(SECTIONS))
def test_defaults_and_comments_are_those_of_the_class(section: str) -> None:
    text = (CONF / section / f"{DEFAULTS[section]}.yaml").read_text(encoding="utf-8")
    header, body = text.split("\n", 1)
    assert header.startswith("# ")
    assert body == show.fields_as_yaml(SECTIONS[section])
    assert yaml.safe_load(text) == plain(SECTIONS[section]())


@pytest.mark.parametrize("section", sorted(SECTIONS))
def test_presets_hold_only_what_differs(section: str) -> None:
    defaults = plain(SECTIONS[section]())
    for name in GROUPS[section]:
        content = yaml.safe_load((CONF / section / f"{name}.yaml").read_text(encoding="utf-8"))
        if name != DEFAULTS[section]:
            assert content.pop("defaults") == [DEFAULTS[section], "_self_"]
            assert content and all(defaults[key] != value for key, value in content.items())


def test_the_default_run_has_the_defaults_of_the_classes() -> None:
    settings = plan(take_apart([])).jobs[0].settings
    decided = {"model": {"causal": True}}  # by the objective
    for section, kind in SECTIONS.items():
        assert plain(getattr(settings, section)) == plain(kind()) | decided.get(section, {})
    for item in dataclasses.fields(Settings):
        if item.default is not dataclasses.MISSING:
            assert getattr(settings, item.name) == item.default


def test_one_file_a_scheme_and_each_is_what_show_prints() -> None:
    assert GROUPS["pe"] == sorted(registry.all_schemes())
    for name, scheme in registry.all_schemes().items():
        text = (CONF / "pe" / f"{name}.yaml").read_text(encoding="utf-8")
        assert text == show.yaml(scheme), f"posbuild show {name} --yaml > conf/pe/{name}.yaml"
        assert OmegaConf.create(text) == {"name": name, **plain(scheme.options())}


def test_no_file_names_code_to_run() -> None:
    for path in CONF.rglob("*.yaml"):
        assert "_target_" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize(
    ("size", "least", "most"),
    [
        ("tiny", 0.22e6, 0.26e6),
        ("mini", 0.9e6, 1.2e6),
        ("small", 9e6, 11e6),
        ("base", 80e6, 90e6),
        ("medium", 290e6, 310e6),
    ],
)
def test_sizes_are_what_their_names_promise(size: str, least: float, most: float) -> None:
    import torch

    from posbuild.data.vocabulary import BYTES
    from posbuild.model import Transformer

    settings = plan(take_apart(["pe=none", f"model={size}"])).jobs[0].settings
    with torch.device("meta"):
        encoding = registry.encoding("none", settings.pe, settings.dims)
        model = Transformer(settings.model, encoding, settings.dims, BYTES.size)
    assert least < sum(parameter.numel() for parameter in model.parameters()) < most


def test_the_encoder_study_is_a_sweep_of_the_starter_s_schemes_that_can_be_trained_on_masked_tokens() -> None:
    jobs = plan(take_apart(["experiment=encoder"])).jobs
    assert all(job.settings.masked and not job.settings.model.causal for job in jobs)
    starter = [registry.scheme(job.settings.scheme) for job in plan(take_apart(["experiment=starter"])).jobs]
    able = [scheme.name for scheme in starter if not (scheme.orderless or scheme.causal_only)]
    assert [job.settings.scheme for job in jobs] == able
    for job in plan(take_apart(["experiment=encoder", "pe=alibi", "pe.form=asymmetric", "seed=0,1"])).jobs:
        check_trainable(job.settings)


def test_the_starter_is_a_sweep_of_the_seven_schemes_with_and_without_seeds() -> None:
    names = ["none", "sinusoidal", "learned", "relative", "t5", "rope", "alibi"]
    assert [job.settings.scheme for job in plan(take_apart(["experiment=starter"])).jobs] == names
    for flags in ([], ["-m"]):
        jobs = plan(take_apart([*flags, "experiment=starter", "pe=rope,alibi", "seed=0,1"])).jobs
        expected = [("rope", 0), ("rope", 1), ("alibi", 0), ("alibi", 1)]
        assert [(job.settings.scheme, job.settings.seed) for job in jobs] == expected
