"""A small whole model with the encoding of a case, and the tokens and the places that it is given.

In float64, and awake: what starts at zero is drawn, for zeros would hide faults. Two query heads share each key head.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from posbuild import registry
from posbuild.conformance.cases import TRAIN_LENGTH, Case
from posbuild.conformance.layer import generator
from posbuild.model import Transformer, init_parameters
from posbuild.model.cache import Cache
from posbuild.settings import ModelSettings

VOCABULARY = 13
HEADS, KEY_HEADS = 4, 2


def model_of(case: Case, layers: int = 2, key_heads: int = KEY_HEADS) -> Transformer:
    """The model, ready to be asked."""
    size = replace(case.dims(HEADS, layers=layers), n_kv_heads=key_heads)
    settings = ModelSettings(
        d_model=size.d_model,
        n_layers=layers,
        n_heads=HEADS,
        n_kv_heads=key_heads,
        causal=case.causal,
        allow_orderless=True,
    )
    encoding = registry.encoding(case.name, case.chosen, size)
    model = Transformer(settings, encoding, size, VOCABULARY)
    init_parameters(model, seed=0)
    for number, parameter in enumerate(model.parameters()):
        if not parameter.any():
            nn.init.normal_(parameter, std=0.2, generator=generator(number))
    return model.double().eval()


def assert_same(found: Tensor, expected: Tensor, rtol: float = 0.0, atol: float = 1e-12) -> None:
    """Logits of about 1 from two layers of float64: the sums of one chunk or another differ by some 1e-14."""
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)


def tokens(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(VOCABULARY, (rows, length), generator=generator(seed))


def room(case: Case, most: int = 3 * TRAIN_LENGTH) -> int:
    """So many tokens, or as many as its tables hold."""
    sizes = case.chosen.sizes(case.dims(HEADS))
    if sizes is None:
        return most
    held = (case.counted(most).view(most, -1) < torch.tensor(sizes)).all(dim=1)
    return most if held.all() else int(held.int().argmin())


def settled(case: Case, most: int = 3 * TRAIN_LENGTH) -> int:
    """As many as the output of a token is the same with: all, or what the declaration calls the original length."""
    if case.scheme.prefix_stable:
        return room(case, most)
    original = getattr(case.chosen, "original", None)
    return min(room(case, most), TRAIN_LENGTH if original is None else original(case.dims(HEADS)))


def places(case: Case, length: int) -> Tensor | None:
    """Positions of tokens in a row; None where the model counts them itself."""
    return None if case.axes == 1 else case.counted(length)


def decoded(
    model: Transformer,
    text: Tensor,
    chunk: int,
    positions: Tensor | None = None,
    documents: Tensor | None = None,
    cache: Cache | None = None,
) -> Tensor:
    """Logits of a text read in chunks through one cache, which begins with room for few tokens."""
    cache, parts = cache or model.new_cache(len(text), capacity=5), []
    for start in range(0, text.shape[1], chunk):
        now = slice(start, start + chunk)
        parts.append(
            model(
                text[:, now],
                None if positions is None else positions[:, now],
                None if documents is None else documents[:, now],
                cache,
            )
        )
    return torch.cat(parts, dim=1)
