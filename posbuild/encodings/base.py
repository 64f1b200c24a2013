"""The contract of an encoding: hooks that do nothing unless a scheme overrides them.

The model calls every hook, always, and never asks which scheme it holds. Every hook is given positions, never lengths:
then cached decoding, left padding, packed documents and queries that are a slice of the keys need no special case.

Suffixes: B batch (1 where all rows share their positions), H heads (key/value heads for keys), T tokens, Q queries,
K keys, M d_model, D head width, C numbers kept of a token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from posbuild.bias import Bias, OfDistance
from posbuild.declaration import Dims, Options


def angles(positions: Tensor, radians_per_token: Sequence[float]) -> Tensor:
    """Angle of each position and frequency: any shape S to (*S, frequencies), in float64 where the device has it.

    Frequencies are Python numbers, never a buffer: no cast, autocast or load of a model can lower or lose them. In bf16
    position 257 would already equal 256.
    """
    frequencies = constants(radians_per_token, positions.device)
    return positions.to(frequencies.dtype)[..., None] * frequencies


def constants(values: Sequence[float], device: torch.device) -> Tensor:
    """Python numbers as a tensor, in float64 where the device has it."""
    return moved(torch.tensor(values, dtype=widest(device)), device)


def widest(device: torch.device) -> torch.dtype:
    """float64 where the device has it. Autocast leaves it alone, and no setting lowers its matrix products."""
    return torch.float32 if device.type == "mps" else torch.float64


def by_head(values_H: Tensor, distance: Tensor) -> Tensor:
    """A number a head as (H, 1, ...), to be combined with distances of any shape, in float64 where the device has it."""
    return values_H.to(widest(distance.device)).view(-1, *[1] * distance.dim())


def perceptron(x: Tensor, layers: Sequence[tuple[Tensor, Tensor]], activation: Callable[[Tensor], Tensor]) -> Tensor:
    """A network that takes each number of x, of any shape S, to H numbers, (H, *S), in the dtype of x.

    layers: weight (out, in) and bias (out,) of each; the activation stands between two.
    """
    hidden = x.flatten()[None]
    for number, (weight, bias) in enumerate(layers):
        hidden = activation(hidden) if number else hidden
        hidden = torch.addmm(bias.to(x.dtype)[:, None], weight.to(x.dtype), hidden)
    return hidden.view(-1, *x.shape)


def start_linear(parameter: Tensor, inputs: int, generator: torch.Generator) -> None:
    """Draw weight or bias of a linear layer of so many inputs as torch.nn.Linear does, in place."""
    nn.init.uniform_(parameter, -(inputs**-0.5), inputs**-0.5, generator=generator)


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """A fresh tensor of the CPU on another device. A GPU is handed it in turn: waiting for it would empty the queue
    in every forward pass.
    """
    return tensor.to(device, non_blocking=device.type == "cuda")


class Encoding(nn.Module):
    """Base of all encodings.

    `shared` is what `prepare` returned: computed once a forward pass, in float32 or better, used by every layer.
    `prepare` is given the positions of the new tokens, or, where `keys_change`, those of all tokens, the new ones last.
    """

    keys_change = False
    """Whether the keys of earlier tokens change as the text grows (dynamic NTK): the cache then holds them as they came,
    and `at_keys` is given those of all tokens."""

    def __init__(self, options: Options, dims: Dims) -> None:
        super().__init__()
        self.options = options
        self.dims = dims

    @property
    def key_width(self) -> int:
        """Channels of a query or key after the hooks."""
        return self.dims.head_dim

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Draw the starting value of the parameter of this name, in place. Must not use any other source of chance."""
        raise NotImplementedError(f"{type(self).__name__} has a parameter '{name}' and does not say how it starts.")

    def at_input(self, x_BTM: Tensor, positions_BT: Tensor) -> Tensor:
        """Token vectors to token vectors, before the first layer."""
        return x_BTM

    def prepare(self, positions_BT: Tensor) -> Any:
        """What all layers of one forward pass share for the tokens at these positions (angles, a bias that layers share)."""
        return None

    def at_queries(self, q_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: Any) -> Tensor:
        """Queries of one layer to queries. Keeps the dtype, and the shape but for the width, which is `key_width`."""
        return q_BHTD

    def at_keys(self, k_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: Any) -> Tensor:
        """Keys of one layer to keys, as `at_queries`: of the new tokens alone unless `keys_change`."""
        return k_BHTD

    def at_tokens(self, x_BTM: Tensor, layer: int) -> Tensor | None:
        """What scores need of each token beside its key, (B, T, C), from what queries and keys of the layer are made of.

        In float32 or better; it depends on the token alone, and a cache keeps it. A bias finds it in `Seen.kept_BKC`.
        """
        return None

    def at_scores(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: Any) -> Bias | None:
        """What is added to q·k·scale in one layer, or what stands in its place. Layers that share a bias return the same
        object."""
        return None


class SharedDistanceBias(Encoding):
    """Base of encodings that add one function of the distance to the scores, the same in every layer."""

    def bias(self, distance: Tensor) -> Tensor:
        """Distances (query minus key) of any shape S to (H, *S)."""
        raise NotImplementedError

    def prepare(self, positions_BT: Tensor) -> OfDistance:
        return OfDistance(self.bias)

    def at_scores(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: OfDistance) -> OfDistance:
        return shared


class AbsoluteCode(Encoding):
    """Base of encodings at the input: a code for each position, added to the token vector or joined to it.

    Joined (`options.combine` is `concat`), the code takes `dims.d_model` channels beside those of the token vector, and
    a learned projection without bias brings the pair back to d_model.
    """

    def __init__(self, options: Any, dims: Dims) -> None:
        super().__init__(options, dims)
        self.projection = (
            nn.Parameter(torch.empty(dims.d_model, 2 * dims.d_model)) if options.combine.name == "concat" else None
        )

    def codes(self, positions: Tensor) -> Tensor:
        """The code of each position: any shape S to (*S, d_model), in float32 or better, a learned table in its own dtype."""
        raise NotImplementedError

    def at_input(self, x_BTM: Tensor, positions_BT: Tensor) -> Tensor:
        code_BTM = self.codes(positions_BT).to(x_BTM.dtype)
        if self.projection is None:
            return x_BTM + code_BTM
        return nn.functional.linear(torch.cat([x_BTM, code_BTM.expand_as(x_BTM)], dim=-1), self.projection)

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        if name != "projection":
            return super().init_parameter(name, parameter, generator)
        # Identity on the token vector and on the code: joined and added start as the same function.
        with torch.no_grad():
            eye = torch.eye(self.dims.d_model, dtype=parameter.dtype, device=parameter.device)
            parameter.copy_(torch.cat([eye, eye], dim=1))
