"""A small model with any scheme, and tokens for it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from posbuild import registry
from posbuild.declaration import Dims
from posbuild.model import Transformer, init_parameters
from posbuild.settings import ModelSettings, options_of

LENGTH, VOCABULARY = 48, 13
every_scheme = pytest.mark.parametrize("scheme", registry.schemes())
# Every scheme under the masks that it works with.
every_direction = pytest.mark.parametrize(
    ("scheme", "causal"),
    [
        (name, causal)
        for name, scheme in registry.schemes().items()
        for causal in ((True,) if scheme.causal_only else (True, False))
    ],
)


def build(scheme: str, *, seed: int = 0, awake: bool = True, options: dict | None = None, **changes) -> Transformer:
    """A small model; `awake` draws at random what starts at zero, which would hide faults."""
    sizes = {"d_model": 48, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "causal": True} | changes
    settings = ModelSettings(**sizes, allow_orderless=True)
    dims = Dims(
        d_model=settings.d_model,
        n_layers=settings.n_layers,
        n_heads=settings.n_heads,
        n_kv_heads=settings.n_kv_heads or settings.n_heads,
        train_length=LENGTH,
        causal=settings.causal,
    )
    encoding = registry.encoding(scheme, options_of(scheme, options or {}), dims)
    model = Transformer(settings, encoding, dims, VOCABULARY)
    init_parameters(model, seed)
    if awake:
        generator = torch.Generator().manual_seed(1)
        for parameter in model.parameters():
            if not parameter.any():
                nn.init.normal_(parameter, std=0.2, generator=generator)
    return model.eval()


def tokens(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))
