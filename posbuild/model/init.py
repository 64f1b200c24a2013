"""How parameters start: each from a generator of its own, so that what two schemes share starts equal."""

from __future__ import annotations

import hashlib

import torch
from torch import nn


def init_parameters(model: nn.Module, seed: int) -> None:
    """Draw every parameter of `model` from a generator seeded by (seed, the parameter's name), on the CPU, in place.

    A module with parameters either has `init_parameter(name, parameter, generator)` or starts at constants (norms), which its
    `reset_parameters` writes.
    """
    done: set[int] = set()  # a tied matrix is drawn once, by the name it has first
    for module_name, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in done:
                continue
            done.add(id(parameter))
            if not hasattr(module, "init_parameter"):
                module.reset_parameters()
                continue
            drawn = torch.empty(parameter.shape, dtype=parameter.dtype)
            module.init_parameter(name, drawn, generator(seed, f"{module_name}.{name}"))
            with torch.no_grad():
                parameter.copy_(drawn)


def generator(seed: int, name: str) -> torch.Generator:
    """A generator on the CPU whose stream depends on the seed and the name alone."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
