"""Rotary encoding (Su et al. 2021, arXiv:2104.09864, section 3.2.2)."""

from __future__ import annotations

import torch
from torch import Tensor

from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding, angles
from posbuild.schemes.rope import Pairing, RopeOptions


class Rope(Encoding):
    """Pair c of the rotary width R turns by p / base^(2c/R), for queries and keys of every layer."""

    options: RopeOptions

    def __init__(self, options: RopeOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.width = options.rotary_width(dims)
        self.radians_per_token = [options.base ** (-2 * pair / self.width) for pair in range(self.width // 2)]

    def prepare(self, positions_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, (B, T, R/2)."""
        angle = angles(positions_BT, self.radians_per_token)
        return angle.cos(), angle.sin()

    def at_queries(self, q_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: tuple[Tensor, Tensor]) -> Tensor:
        return turn(q_BHTD, *shared, self.options.layout)

    def at_keys(self, k_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: tuple[Tensor, Tensor]) -> Tensor:
        return turn(k_BHTD, *shared, self.options.layout)


def turn(x_BHTD: Tensor, cos_BTF: Tensor, sin_BTF: Tensor, layout: Pairing) -> Tensor:
    """Turn the first 2F channels in pairs, in float32 or better; the others pass unchanged. Keeps shape and dtype."""
    wide = torch.promote_types(x_BHTD.dtype, torch.float32)
    cos, sin = cos_BTF[:, None].to(wide), sin_BTF[:, None].to(wide)
    width = 2 * cos.shape[-1]
    pairs = x_BHTD[..., :width].to(wide)
    first, second = pairs.chunk(2, dim=-1) if layout is Pairing.half else (pairs[..., 0::2], pairs[..., 1::2])
    turned = (first * cos - second * sin, first * sin + second * cos)
    joined = torch.cat(turned, dim=-1) if layout is Pairing.half else torch.stack(turned, dim=-1).flatten(-2)
    return torch.cat([joined.to(x_BHTD.dtype), x_BHTD[..., width:]], dim=-1)
