"""LieRE (Ostmeier et al. 2024, arXiv:2406.10322), as in the released code, StanfordMIMI/LieRE.

Only what lies above the diagonal of its raw parameters matters there; here nothing else is held, row by row. (It takes 0.5
from them too, which cancels.)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding, widest
from posbuild.schemes.grid.liere import LiereOptions


class Liere(Encoding):
    """Blocks of g channels of queries and keys at position p turn by exp(sum over axes of p_a / (span - 1) S_a), S_a skew."""

    options: LiereOptions

    def __init__(self, options: LiereOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.block = options.block(dims)
        layers, heads = dims.n_layers if options.per_layer else 1, dims.n_kv_heads if options.per_head else 1
        blocks, above = dims.head_dim // self.block, self.block * (self.block - 1) // 2
        self.generators = nn.Parameter(torch.empty(options.axes, layers, heads, blocks, above))

    def prepare(self, positions_BTA: Tensor) -> list[Tensor]:
        """Of each layer that has its own the rotation of each block, (B, H or 1, T, blocks, g, g).

        Formed once for each distinct position: the exponential of a matrix costs some twenty products of its size.
        """
        rows, tokens = positions_BTA.shape[:2]
        each_NA, place = positions_BTA.flatten(0, 1), None
        if not torch.compiler.is_compiling():  # how many are distinct depends on data
            each_NA, place = each_NA.unique(dim=0, return_inverse=True)
        skew_ALHNgg = self.skew()
        coordinates_NA = each_NA.to(skew_ALHNgg.dtype) / (self.options.span - 1)
        found = []
        for skew_AHNgg in skew_ALHNgg.unbind(1):
            exponent = (coordinates_NA @ skew_AHNgg.flatten(1)).unflatten(1, skew_AHNgg.shape[1:])
            rotation = torch.matrix_exp(exponent)
            rotation = rotation if place is None else rotation[place]
            found.append(rotation.unflatten(0, (rows, tokens)).transpose(1, 2))
        return found

    def skew(self) -> Tensor:
        """The skew-symmetric matrices, (axes, layers, heads, blocks, g, g), in float64 where the device has it."""
        device = self.generators.device
        row, column = torch.triu_indices(self.block, self.block, offset=1, device=device)
        upper = torch.zeros(*self.generators.shape[:-1], self.block, self.block, dtype=widest(device), device=device)
        upper[..., row, column] = self.generators.to(upper.dtype)
        return upper - upper.mT

    def turned(self, x_BHTD: Tensor, rotation: Tensor) -> Tensor:
        """The blocks of channels, turned in float32 or better; what is left over passes unchanged. Keeps shape and dtype."""
        wide, width = torch.promote_types(x_BHTD.dtype, torch.float32), rotation.shape[-3] * self.block
        blocks = x_BHTD[..., :width].to(wide).unflatten(-1, (-1, self.block, 1))
        with torch.autocast(x_BHTD.device.type, enabled=False):
            turned = (rotation.to(wide) @ blocks).flatten(-3).to(x_BHTD.dtype)
        return turned if width == x_BHTD.shape[-1] else torch.cat([turned, x_BHTD[..., width:]], dim=-1)

    def at_queries(self, q_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: list[Tensor]) -> Tensor:
        rotation = shared[layer % len(shared)][:, :, -q_BHTD.shape[2] :]
        groups = q_BHTD.shape[1] // self.dims.n_kv_heads if self.options.per_head else 1
        return self.turned(q_BHTD, rotation.repeat_interleave(groups, dim=1))

    def at_keys(self, k_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: list[Tensor]) -> Tensor:
        return self.turned(k_BHTD, shared[layer % len(shared)][:, :, : k_BHTD.shape[2]])

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        nn.init.uniform_(parameter, 0.0, 2 * math.pi, generator=generator)
