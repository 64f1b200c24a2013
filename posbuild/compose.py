"""Where the YAML files are, and from overrides, as on the command line, to settings. Imports no torch."""

from __future__ import annotations

from pathlib import Path

from posbuild.errors import ConfigError
from posbuild.settings import Settings


def conf_dir() -> Path:
    """The folder of the YAML files: a checkout's conf/, else the copy in the installed package.

    An editable install may leave a copy beside the package; the checkout's is the one that people edit. A conf/ in
    site-packages is some other project's, for nothing of ours lies there but the package.
    """
    package = Path(__file__).resolve().parent
    checkout = package.parent
    is_checkout = (checkout / "pyproject.toml").exists() and (checkout / "conf" / "config.yaml").exists()
    return (checkout if is_checkout else package) / "conf"


def settings_of(*overrides: str) -> Settings:
    """The settings that the overrides describe: `settings_of("pe=alibi", "seed=1")`. Raises ConfigError.

    Leaves a Hydra application that called it as it was.
    """
    from posbuild.overrides import Typed, plan, take_apart

    for override in overrides:
        if override.lstrip("+").startswith("experiment="):
            raise ConfigError(
                f"{override} is a sweep over several models, and build takes the settings of one. Name them, such as pe=alibi."
            )
    (job,) = plan(Typed([], list(overrides), take_apart([]).flags)).jobs
    return job.settings
