"""The hash of a run: equal for settings that train the same, different for all others."""

from __future__ import annotations

import dataclasses
import enum
import functools
from pathlib import Path
from typing import Any

import pytest

from posbuild import registry
from posbuild.errors import ConfigError
from posbuild.overrides import settings_of
from posbuild.settings import SECTIONS, TrainerSettings

SCHEMES = sorted(registry.schemes())


@functools.cache  # many a pair has a member in common
def hash_of(*overrides: str) -> str:
    return settings_of(*overrides).hash


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["pe=t5"], ["pe=t5", "optim.pe_lr_mult=30"]),
        (["pe=rope"], ["pe=rope", "optim.pe_lr_mult=3"]),
        (["pe=alibi"], ["pe=alibi", "optim.pe_lr_mult=3"]),
        (["pe=alibi"], ["pe=alibi", "pe.form=symmetric"]),
        (["pe=learned"], ["pe=learned", "pe.max_positions=64"]),
        (["pe=relative"], ["pe=relative", "pe.signed=false"]),
        ([], ["model.n_kv_heads=4"]),
        ([], ["model.d_ff=256"]),
        (["model.activation=swiglu"], ["model.activation=swiglu", "model.d_ff=168"]),
        ([], ["model.score_scale=0.25"]),
        ([], ["model.name=mine"]),
        ([], ["model.allow_orderless=true"]),
        ([], ["optim.decay_fraction=0.5"]),
        ([], ["train.workers=2", "train.log_every=7", "train.checkpoint_every=9"]),
        (["trainer.precision=bf16"], ["trainer.precision=bf16-mixed"]),
        (["trainer.precision=32"], ["trainer.precision=32-true"]),
        ([], ["logger=none", "study=x", "eval.probes=false", "trainer.profiler=simple"]),
    ],
)
def test_what_trains_the_same_has_one_hash(one: list[str], other: list[str]) -> None:
    assert hash_of(*one) == hash_of(*other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["pe=t5"], ["pe=t5", "optim.pe_lr_mult=1"]),
        (["pe=alibi", "pe.learn_slopes=true"], ["pe=alibi", "pe.learn_slopes=true", "optim.pe_lr_mult=3"]),
        (["pe=learned"], ["pe=learned", "pe.max_positions=65"]),
        (["pe=learned"], ["pe=learned", "train.length=65"]),
        (["optim.schedule=constant"], ["optim.schedule=constant", "optim.decay_fraction=0.5"]),
        (["pe=none"], ["pe=rope"]),
        (["seed=0"], ["seed=1"]),
        (["trainer.precision=32"], ["trainer.precision=bf16"]),
        ([], ["model.n_kv_heads=2"]),
        ([], ["model.causal=false"]),
        ([], ["data=stdlib"]),
    ],
)
def test_what_trains_otherwise_has_another_hash(one: list[str], other: list[str]) -> None:
    assert hash_of(*one) != hash_of(*other)


def other_value(item: dataclasses.Field, value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return next(choice for choice in type(value) if choice is not value)
    if isinstance(value, bool) or value is None:
        return not value if value is not None else 2
    return f"{value}x" if isinstance(value, str) else value / 2 if isinstance(value, float) and value else value + 1


@pytest.mark.parametrize("section", ["model", "data", "train", "optim"])
def test_every_setting_of_training_is_in_the_hash_unless_it_has_no_effect(section: str) -> None:
    without = {"name", "allow_orderless", "workers", "log_every", "checkpoint_every"}
    without |= {"decay_fraction", "pe_lr_mult", "pe_lr_mult_grid", "tuned"}
    settings = settings_of("pe=rope", *(["data=hf"] if section == "data" else []))
    for item in dataclasses.fields(SECTIONS[section]):
        if item.name == "tokenizer":  # by its content: the test below
            continue
        chosen, before = getattr(settings, section), settings.hash
        value = getattr(chosen, item.name)
        setattr(chosen, item.name, other_value(item, value))
        assert (settings.hash == before) == (item.name in without and section != "data"), item.name
        setattr(chosen, item.name, value)


def test_a_tokenizer_is_in_the_hash_by_its_content(tmp_path: Path) -> None:
    for name, content in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        (tmp_path / name).write_bytes(content)
    without, a, b, c = (
        hash_of(*arguments) for arguments in ([], *([f"data.tokenizer={tmp_path}/{name}"] for name in "abc"))
    )
    assert a == b and len({without, a, c}) == 3
    with pytest.raises(ConfigError, match=r"data.tokenizer=/no/such.json cannot be read \(No such file or directory\)"):
        hash_of("data.tokenizer=/no/such.json")


def test_what_only_a_hugging_face_dataset_reads_is_in_no_other_hash() -> None:
    settings = settings_of("pe=rope")
    before, settings.data.column, settings.data.limit = settings.hash, "body", 7
    assert settings.hash == before


@pytest.mark.parametrize("devices", [1, 4, -1, "auto", [0], [2, 0]])
def test_devices_that_can_be_asked_for(devices: Any) -> None:
    assert TrainerSettings(devices=devices).devices == devices


@pytest.mark.parametrize("deterministic", [True, False, "warn"])
def test_ways_to_be_deterministic(deterministic: Any) -> None:
    assert TrainerSettings(deterministic=deterministic).deterministic == deterministic
