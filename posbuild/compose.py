"""From overrides, as on the command line, to settings: Hydra's composition, without its jobs. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from posbuild.errors import ConfigError
from posbuild.settings import Settings, from_config


def conf_dir() -> Path:
    """The folder of the YAML files: a checkout's conf/, else the copy in the installed package.

    An editable install leaves a copy in neither or both places; the checkout's is the one that people edit.
    """
    package = Path(__file__).resolve().parent
    checkout = package.parent / "conf"
    return checkout if (checkout / "config.yaml").exists() else package / "conf"


def compose(overrides: Sequence[str], *, return_hydra_config: bool = False) -> DictConfig:
    """The composed configuration of one job. Leaves a Hydra application that called it as it was."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    held = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(config_dir=str(conf_dir()), version_base="1.3"):
            return hydra_compose("config", overrides=list(overrides), return_hydra_config=return_hydra_config)
    finally:
        GlobalHydra.instance().hydra = held


def settings_of(*overrides: str) -> Settings:
    """The settings that the overrides describe: `settings_of("pe=alibi", "seed=1")`. Raises ConfigError."""
    from hydra.errors import HydraException

    for override in overrides:
        if override.lstrip("+").startswith("experiment="):
            raise ConfigError(
                f"{override} is a sweep over several models, and build takes the settings of one. Name them, such as pe=alibi."
            )
    try:
        return from_config(compose(overrides))
    except HydraException as error:
        raise ConfigError(str(error)) from error
