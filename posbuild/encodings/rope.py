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
        """For each rotary channel the cosine of its pair's angle, and the sine with the sign of its partner, (B, T, R)."""
        angle = angles(positions_BT, self.radians_per_token)
        cos, sin = angle.cos(), angle.sin()
        if self.options.layout is Pairing.half:
            return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)
        return torch.stack([cos, cos], dim=-1).flatten(-2), torch.stack([-sin, sin], dim=-1).flatten(-2)

    def at_queries(self, q_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: tuple[Tensor, Tensor]) -> Tensor:
        return turn(q_BHTD, *shared, self.options.layout)

    def at_keys(self, k_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: tuple[Tensor, Tensor]) -> Tensor:
        return turn(k_BHTD, *shared, self.options.layout)


def turn(x_BHTD: Tensor, cos_BTR: Tensor, sin_BTR: Tensor, layout: Pairing) -> Tensor:
    """Turn the first R channels in pairs, in float32 or better; the others pass unchanged. Keeps shape and dtype."""
    wide = torch.promote_types(x_BHTD.dtype, torch.float32)
    cos, sin = cos_BTR[:, None].to(wide), sin_BTR[:, None].to(wide)
    width = cos.shape[-1]
    rotary = x_BHTD[..., :width].to(wide)
    # `roll` and `addcmul` take three passes over the channels where products of halves, joined again, take seven.
    partner = (
        rotary.roll(width // 2, -1) if layout is Pairing.half else rotary.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    )
    turned = torch.addcmul(rotary * cos, partner, sin).to(x_BHTD.dtype)
    return turned if width == x_BHTD.shape[-1] else torch.cat([turned, x_BHTD[..., width:]], dim=-1)
