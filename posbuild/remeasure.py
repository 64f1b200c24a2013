"""`posbuild evaluate`: measure a finished run again, or more, and merge the rows into its record by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from posbuild import overrides, records
from posbuild.data import corpora
from posbuild.errors import ConfigError, RunError
from posbuild.evaluation.lengths import check_lengths
from posbuild.evaluation.measure import parts
from posbuild.folders import claimed, study_of
from posbuild.launch import compare
from posbuild.paths import expanded
from posbuild.settings import EvalSettings, Settings, from_plain, plain, typed_form
from posbuild.training.facts import device_name
from posbuild.training.load import load

DRAWN_BY = ("whole_window_tokens", "fixed_targets")  # the settings that decide which tokens a length scores


def remeasure(folder: Path, typed: Sequence[str]) -> int:
    """Measure the run in `folder` as its record says it was measured, changed by `eval=GROUP` and `eval.NAME=VALUE`.

    Writes record.json after each part of the measurements, and makes the study's comparison again. Raises ConfigError
    for other settings and for lengths that the data cannot fill, RunError for a folder without a finished run.
    """
    folder = expanded(folder)
    if not folder.is_dir():
        raise ConfigError(f"posbuild evaluate: there is no folder {folder}. Give a run folder, outputs/STUDY/RUN.")
    with claimed(folder) as ours:
        if not ours:
            raise RunError(f"Another process is working on {folder}.")
        model, settings = load(folder)
        record = records.read_record(folder)
        had = from_plain(record.settings)
        asked = from_plain(record.settings | {"eval": chosen(record.settings["eval"], typed)})
        if typed and not any(override.lstrip("+").startswith("eval.cost_rounds=") for override in typed):
            asked.eval.cost_rounds = 0  # what was timed stays: the machine may be busier now
        corpus = corpora.load(settings.data)
        if corpus.sha256 != record.data["sha256"]:
            raise RunError(
                f"data={corpus.name} is not the text that {folder} was trained on: its SHA-256 is {corpus.sha256}."
            )
        print(corpus)
        check_lengths(corpus, asked)
        asked.eval = of_one_draw(had, asked)
        check_lengths(corpus, asked)
        place = device(asked)
        asked.eval.cost_rounds = rounds_here(asked.eval.cost_rounds, place, record.environment)
        wanted = plain(joined(had, asked))
        record.settings["eval"] = wanted | {"probes": had.eval.probes, "cost_rounds": had.eval.cost_rounds}
        for name, part in parts(model.to(place), asked, corpus, precision=record.environment["precision"]):
            record.rows = records.merge(record.rows, part())
            record.settings["eval"][name] = wanted[name]
            records.write_record(folder, record)
    study = study_of(folder)
    compare([study], study)
    return 0


def chosen(before: dict[str, Any], typed: Sequence[str]) -> dict[str, Any]:
    """The eval settings of the run with what was typed laid over them."""
    flags = overrides.take_apart(typed)
    for override in typed:
        name = override.partition("=")[0].lstrip("+")
        if name != "eval" and not name.startswith("eval."):
            raise ConfigError(
                f"{override}: posbuild evaluate takes eval=GROUP and eval.NAME=VALUE only; anything else is another run."
            )
    composed = overrides.plan(flags).jobs[0].settings.eval
    if any(override.startswith("eval=") for override in typed):
        return plain(composed)
    names = [override.partition("=")[0].partition(".")[2] for override in typed]
    changed = OmegaConf.create(plain(composed))
    kept = before | {name: changed[name] for name in names}
    return kept | ({"lengths": None} if "multiples" in names and "lengths" not in names else {})


def of_one_draw(had: Settings, asked: Settings) -> EvalSettings:
    """What to measure so that the rows of a length curve stay of one draw: where other tokens are to be scored than
    before, all lengths that have rows, with the control if they have it.
    """
    if all(getattr(asked.eval, name) == getattr(had.eval, name) for name in DRAWN_BY):
        return asked.eval
    lengths = sorted({*had.eval_lengths, *asked.eval_lengths})
    if lengths != asked.eval_lengths or had.eval.window_control > asked.eval.window_control:
        print(
            "Other tokens are scored than before, so all that the length curve has is measured again: "
            f"eval.lengths={typed_form(lengths)}."
        )
    return replace(asked.eval, lengths=lengths, window_control=had.eval.window_control or asked.eval.window_control)


def rounds_here(rounds: int, place: torch.device, environment: dict[str, Any]) -> int:
    """The rounds in which cost is measured: none where the record's other figures of cost would not compare with it."""
    here = {"device": device_name(place), "threads": torch.get_num_threads()}
    there = {name: environment[name] for name in here}
    if not rounds or here == there:
        return rounds
    print(
        f"Cost is not measured: it would be that of {here['device']} with {here['threads']} threads, and the record's "
        f"is of {there['device']} with {there['threads']}. OMP_NUM_THREADS sets the threads."
    )
    return 0


def joined(had: Settings, asked: Settings) -> EvalSettings:
    """What the rows now stand for: the lengths of both, and otherwise the newer settings where they measured something."""
    content = plain(had.eval) | {name: value for name, value in plain(asked.eval).items() if value}
    lengths = sorted({*had.eval_lengths, *asked.eval_lengths})
    return EvalSettings(**content | {"name": had.eval.name, "lengths": lengths})


def device(settings: Settings) -> torch.device:
    """Where to measure: as the run was set to be trained, the CPU where that is not to be had."""
    wanted = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if wanted is None or settings.trainer["accelerator"] == "cpu" else wanted
