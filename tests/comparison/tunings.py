"""Studies that tuned, and studies at the best of each scheme, as runs leave them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posbuild import records
from posbuild.records import Record
from tests.comparison.studies import add_run, measured, record

GRID = [1.0, 3.0, 10.0, 30.0, 100.0]
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
DECLARED = {"t5": 30.0, "relative": 30.0, "learned": 3.0}


def trial(
    study: Path,
    scheme: str,
    lr: float,
    loss: float | None,
    *,
    seed: int = 0,
    multiplier: float | None = None,
    status: str = records.COMPLETE,
    grid: list[float] | None = GRID,
    **more: Any,
) -> Path:
    """A run that tried a rate; without a loss one that ended with `status`."""
    rows = [measured("training/loss", loss or 9.0, fraction=part) for part in (0.25, 0.5, 1.0)]
    content = record(scheme, seed, found=[*rows, measured("training/slope", 0.02)], **more)
    content.settings["optim"] |= {"lr": lr, "pe_lr_mult": multiplier, "pe_lr_mult_grid": grid}
    content.training["pe_lr_mult"] = multiplier or DECLARED.get(scheme, 1.0)
    folder = f"{scheme}_s{seed}_{lr:g}_{multiplier}"
    if loss is not None:
        return add_run(study, content, folder)
    path = study / folder
    path.mkdir(parents=True)
    records.write_json(path / "settings.json", {"schema": 1, "command": "", **content.settings})
    records.write_status(path, status, "as planned")
    return path


def tried(study: Path, scheme: str, losses: dict[float, float | None], **more: Any) -> None:
    """Runs of one scheme over rates, those without a loss diverged; one that learns something at all multipliers too."""
    for lr, loss in losses.items():
        trial(study, scheme, lr, loss, status=records.DIVERGED, **more)
    if scheme in DECLARED:
        best = min((loss, lr) for lr, loss in losses.items() if loss is not None)
        for multiplier in GRID:
            if multiplier != DECLARED[scheme]:
                trial(study, scheme, best[1], best[0] + 0.01, multiplier=multiplier, **more)


def at_best(
    study: Path, scheme: str, seed: int, loss: float, *, tuned: str | None, lr: float, far: float = 1.5
) -> Record:
    """A finished run of a study at the rate of a tuning study (tuned: its folder), or at the shared rate."""
    rows = [
        *(measured("training/loss", 1.3, fraction=part) for part in (0.25, 0.5, 1.0)),
        measured("training/slope", 0.02),
        measured("loss/whole_windows", loss, documents=True, length=64, window=0),
        measured("loss/whole_windows", far, documents=True, length=1024, window=0),
    ]
    content = record(scheme, seed, found=rows)
    multiplier = DECLARED.get(scheme) if tuned else None
    content.settings["optim"] |= {"lr": lr, "pe_lr_mult": multiplier, "tuned": tuned}
    add_run(study, content, f"{scheme}_s{seed}_{'best' if tuned else 'shared'}")
    return content
