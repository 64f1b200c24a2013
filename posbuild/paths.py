"""Paths: where the YAML files are, and what a typed path means in another folder."""

from __future__ import annotations

import glob
import os
from pathlib import Path


def conf_dir() -> Path:
    """The folder of the YAML files: a checkout's conf/, else the copy in the installed package.

    An editable install may leave a copy beside the package; the checkout's is the one that people edit. A conf/ in
    site-packages is some other project's, for nothing of ours lies there but the package.
    """
    package = Path(__file__).resolve().parent
    checkout = package.parent
    is_checkout = (checkout / "pyproject.toml").exists() and (checkout / "conf" / "config.yaml").exists()
    return (checkout if is_checkout else package) / "conf"


def expanded(path: str | Path) -> Path:
    """A file or folder as typed, absolute. A leading `~` is the home folder, `~x` a name like any other if nobody is x."""
    return Path(os.path.expanduser(path)).absolute()


def absolute_path(path: str, folder: str | Path) -> str:
    """`path`, a file, folder or glob as typed in `folder`, in a form that means the same in every folder.

    What exists is taken literally even if its name holds `*`, `?` or brackets: the whole path, else the folders it
    starts with; the rest is the pattern. A leading `~` is the home folder.
    """
    whole = Path(folder).absolute() / os.path.expanduser(path)
    there = next(place for place in (whole, *whole.parents) if os.path.lexists(place))
    return str(whole) if there == whole else os.path.join(glob.escape(str(there)), whole.relative_to(there))


def shown(folder: Path) -> Path:
    """A folder as one would type it here."""
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
