"""The way in from Python: scores, codes, build. `posbuild.NAME` imports this module, and torch, on first use."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from posbuild import registry
from posbuild.declaration import ActsOn, Dims
from posbuild.encodings.base import AbsoluteCode, Encoding
from posbuild.errors import ConfigError
from posbuild.model import Transformer, init_parameters, model_of, scores_of
from posbuild.model.axes import check_by_axis, last_dimension
from posbuild.overrides import settings_of
from posbuild.settings import options_of


def scores(
    name: str,
    q: Tensor,
    k: Tensor,
    q_positions: Tensor,
    k_positions: Tensor,
    *,
    causal: bool = True,
    layer: int = 0,
    n_layers: int | None = None,
    train_length: int | None = None,
    x: Tensor | None = None,
    state: dict[str, Tensor] | None = None,
    **options: Any,
) -> Tensor:
    """Scores of one layer after scaling and bias, before mask and softmax, by the exact path in the dtype given: (B, H, Q, K).

    q, k                      (B, H, Q, D) and (B, H, K, D)
    q_positions, k_positions  (Q,) and (K,), or (B, Q) and (B, K), int64; (Q, axes) and (K, axes), or with B before them, for a
                              scheme of several axes
    causal                    of the model that the encoding is built for; nothing is masked here. A scheme that counts
                              what a query sees takes the queries for the last Q of the K tokens
    layer, n_layers           which layer, of how many; None: of layer + 1
    train_length              of that model; None: up to the largest position
    x                         (B, K, M), for schemes that read token vectors: those that keys are made of
    state                     learned parameters by name (`Encoding.state_dict`); None: as they start, seed 0
    options                   of the scheme, as under `pe.` on the command line

    Encodings at the input leave q·k/sqrt(D), and a warning says so. Raises ConfigError for an unknown scheme or option, and
    where x is missing.
    """
    if registry.scheme(name).acts_on is ActsOn.input:
        warnings.warn(
            f"pe={name} acts on the token vectors at the input and adds nothing to scores: these are q·k/sqrt(D). "
            "posbuild.codes shows its vectors.",
            stacklevel=2,
        )
    chosen = options_of(name, options)
    dimensions = 2 + len(last_dimension(chosen))
    q_positions, k_positions = (
        each if each.dim() == dimensions else each[None] for each in map(torch.atleast_2d, (q_positions, k_positions))
    )
    _, n_heads, _, width = q.shape
    dims = Dims(
        d_model=n_heads * width,
        n_layers=n_layers or layer + 1,
        n_heads=n_heads,
        n_kv_heads=k.shape[1],
        train_length=train_length or 1 + int(max(q_positions.max(), k_positions.max())),
        causal=causal,
    )
    for each in (q_positions, k_positions):
        check_by_axis(each, chosen, dims)
    encoding = _encoding(name, options, dims, state)
    return scores_of(encoding, q, k, q_positions, k_positions, layer, x)


def codes(name: str, positions: Tensor, dim: int, *, state: dict[str, Tensor] | None = None, **options: Any) -> Tensor:
    """The vectors of an encoding at the input, (T, dim), for positions (T,), or (T, axes) for a scheme of several axes.

    Raises ConfigError if it has none.
    """
    scheme = registry.scheme(name)
    if scheme.acts_on is not ActsOn.input:
        raise ConfigError(
            f"pe={name} has no code at the input: it acts on {scheme.acts_on.value}. posbuild.scores shows what it does there."
        )
    least, most = (int(bound) for bound in positions.aminmax())
    dims = Dims(d_model=dim, n_layers=1, n_heads=1, n_kv_heads=1, train_length=most + 1, causal=True)
    chosen = options_of(name, options)
    if last_dimension(chosen):
        check_by_axis(positions[None], chosen, dims)
    longest = chosen.longest(dims)
    if not last_dimension(chosen) and longest is not None and (least < 0 or most >= longest):
        raise ConfigError(
            f"pe={name} is defined for the positions 0 to {longest - 1}, and those given reach from {least} to {most}."
        )
    encoding = _encoding(name, options, dims, state)
    assert isinstance(encoding, AbsoluteCode)
    return encoding.codes(positions)


def _encoding(name: str, options: dict[str, Any], dims: Dims, state: dict[str, Tensor] | None) -> Encoding:
    encoding = registry.encoding(name, options_of(name, options), dims)
    init_parameters(encoding, seed=0)
    if state is not None:
        _adopt(encoding, state)
    return encoding


def _adopt(encoding: Encoding, state: dict[str, Tensor]) -> None:
    """Put the tensors themselves in the parameters' places: a float64 state stays float64 and gradients reach it."""
    own = {name: tuple(parameter.shape) for name, parameter in encoding.named_parameters()}
    given = {name: tuple(tensor.shape) for name, tensor in state.items()}
    if own != given:
        raise ConfigError(f"state has {given}, and with these options and sizes the encoding learns {own}.")
    for name, tensor in state.items():
        path, _, last = name.rpartition(".")
        module = encoding.get_submodule(path)
        del module._parameters[last]
        setattr(module, last, tensor)


def build(*overrides: str) -> Transformer:
    """The model that the overrides describe, as on the command line: `build("pe=alibi", "model=tiny", "seed=0")`.

    Its parameters are drawn, nothing is trained. Usable inside a Hydra application. Raises ConfigError.
    """
    return model_of(settings_of(*overrides))
