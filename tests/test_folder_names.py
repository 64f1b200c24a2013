"""Names of run folders, and settings that refer to others: no hole in either."""

from __future__ import annotations

from pathlib import Path

import pytest

from posbuild.errors import ConfigError
from posbuild.overrides import plan, take_apart


def planned(*arguments: str):
    return plan(take_apart([*arguments, "study=s"]))


@pytest.mark.parametrize("scheme", ["rope", "alibi"])
def test_a_run_has_the_same_folder_alone_and_in_a_sweep(scheme: str) -> None:
    (alone,) = planned(f"pe={scheme}", "seed=3").jobs
    swept = next(job for job in planned("-m", "pe=rope,alibi", "seed=3").jobs if job.settings.scheme == scheme)
    assert alone.folder == swept.folder == Path("outputs", "s", alone.settings.run_name)
    assert "None" not in str(alone.folder)


def test_references_between_settings_are_resolved_before_they_are_recorded() -> None:
    (job,) = planned("pe=rope", "model.d_model=${train.length}", "train.length=128").jobs
    assert job.settings.model.d_model == 128
    assert "${" not in repr(job.settings.plain()) and "???" not in repr(job.settings.plain())


def test_a_value_left_open_or_a_reference_to_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pe").mkdir()
    (tmp_path / "pe" / "mine.yaml").write_text("name: rope\nbase: ???\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"pe\.base"):
        planned("--config-dir", str(tmp_path), "pe=mine")
    (job,) = planned("--config-dir", str(tmp_path), "pe=mine", "pe.base=20").jobs
    assert job.settings.pe.base == 20  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"nowhere\.at_all"):
        planned("model.d_model=${nowhere.at_all}")


@pytest.mark.parametrize("setting", ["logger.id=fixed", "+logger.id=fixed", "+logger.run_id=x", "+logger.resume=must"])
def test_a_fixed_id_is_not_offered(setting: str) -> None:
    with pytest.raises(ConfigError, match=setting.lstrip("+").replace(".", r"\.")):
        planned("-m", "pe=rope,none", setting)


def test_a_warm_up_longer_than_the_run_is_refused() -> None:
    from posbuild.settings import check

    for steps, warmup in ((10, 11), (1, 100)):
        (job,) = planned(f"train.steps={steps}", f"optim.warmup={warmup}").jobs
        with pytest.raises(ConfigError, match=rf"optim\.warmup={warmup} .*train\.steps={steps}"):
            check(job.settings)
    for steps, warmup in ((10, 0), (10, 1), (10, 10), (1, 1)):
        check(planned(f"train.steps={steps}", f"optim.warmup={warmup}").jobs[0].settings)
    with pytest.raises(ConfigError, match=r"optim\.warmup=0\.5"):
        planned("optim.warmup=0.5")


def test_a_job_number_in_a_folder_name_needs_a_sweep() -> None:
    naming = "hydra.sweep.subdir=${hydra:job.num}_${hydra:runtime.choices.pe}"
    assert [job.folder.name for job in planned("-m", "pe=rope,none", naming).jobs] == ["0_rope", "1_none"]
    with pytest.raises(ConfigError, match=r"hydra\.sweep\.subdir=.*job\.num.* has a job number"):
        planned("pe=rope", naming)
