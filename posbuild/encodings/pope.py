"""PoPE (Gopalakrishnan et al. 2025, arXiv:2509.10534, section 3).

Scores are scaled by 1/sqrt(D) as for every scheme, D the width of the head before a channel becomes two.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding, angles
from posbuild.schemes.pope import PopeOptions, Start


class PoPE(Encoding):
    """score = sum over channels c of softplus(q_c) softplus(k_c) cos((j - i) theta_c + phase_c)."""

    options: PopeOptions

    def __init__(self, options: PopeOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.radians = options.radians_per_token(dims)
        self.phase = nn.Parameter(torch.empty(dims.n_layers, dims.n_kv_heads, dims.head_dim))

    @property
    def key_width(self) -> int:
        return 2 * self.dims.head_dim

    def prepare(self, positions_BT: Tensor) -> tuple[Tensor, Tensor]:
        angle_BTD = angles(positions_BT, self.radians)
        return angle_BTD.cos()[:, None], angle_BTD.sin()[:, None]

    def at_queries(self, q_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: tuple[Tensor, Tensor]) -> Tensor:
        return as_points(q_BHTD, *(each[:, :, -q_BHTD.shape[2] :] for each in shared))

    def at_keys(self, k_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: tuple[Tensor, Tensor]) -> Tensor:
        cos, sin = (each[:, :, : k_BHTD.shape[2]] for each in shared)
        phase = self.phase[layer][:, None].to(cos.dtype)
        by_cos, by_sin = phase.cos(), phase.sin()
        return as_points(k_BHTD, cos * by_cos - sin * by_sin, sin * by_cos + cos * by_sin)

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        if self.options.start is Start.zero:
            nn.init.zeros_(parameter)
        else:
            nn.init.uniform_(parameter, -2 * torch.pi, 0, generator=generator)


def as_points(x_BHTD: Tensor, cos_BHTD: Tensor, sin_BHTD: Tensor) -> Tensor:
    """Points of the plane, softplus(x) far out at an angle: all first coordinates, then all second, (B, H, T, 2D)."""
    wide = torch.promote_types(x_BHTD.dtype, torch.float32)
    size = nn.functional.softplus(x_BHTD.to(wide))
    return torch.cat([size * cos_BHTD.to(wide), size * sin_BHTD.to(wide)], dim=-1).to(x_BHTD.dtype)
