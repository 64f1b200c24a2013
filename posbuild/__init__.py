"""posbuild: which positional encoding should a Transformer have? Build, train, measure and compare them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posbuild.api import build, codes, scores
    from posbuild.training.load import load

__version__ = "0.1.0"
__all__ = ["build", "codes", "load", "scores"]


def __getattr__(name: str) -> Any:
    """Import the Python interface, and torch with it, when it is first used."""
    import importlib

    if name in ("build", "codes", "scores"):
        return getattr(importlib.import_module("posbuild.api"), name)
    if name == "load":
        return importlib.import_module("posbuild.training.load").load
    raise AttributeError(f"module 'posbuild' has no attribute '{name}'")
