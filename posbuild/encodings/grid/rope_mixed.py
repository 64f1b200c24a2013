"""RoPE-Mixed (Heo et al. 2024, arXiv:2403.13298): rotary encoding by both coordinates at learned frequencies."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from posbuild.declaration import Dims
from posbuild.encodings.base import widest
from posbuild.encodings.rope import Rope, Turn, turn
from posbuild.schemes.grid.rope_mixed import RopeMixedOptions


class RopeMixed(Rope):
    """Pair c of a head turns by the sum over the axes of position times frequency, `freqs[axis, layer, head, c]`."""

    options: RopeMixedOptions

    def __init__(self, options: RopeMixedOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.kinds = list(range(dims.n_layers))
        self.freqs = nn.Parameter(torch.empty(2, dims.n_layers, dims.n_kv_heads, options.rotary_width(dims) // 2))

    def prepare(self, positions_BTA: Tensor) -> list[Turn | None]:
        """Of each layer the turns of its key heads, (B, T, G, R)."""
        wide = widest(positions_BTA.device)
        position_BTAGP, freqs_LAGP = positions_BTA[..., None, None].to(wide), self.freqs.to(wide).transpose(0, 1)
        return [self.turn_by((position_BTAGP * freqs_AGP).sum(2)) for freqs_AGP in freqs_LAGP]

    def at_queries(self, q_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: list[Turn | None]) -> Tensor:
        by, groups = shared[layer], self.dims.n_heads // self.dims.n_kv_heads
        assert by is not None
        cos, sin = (each[:, -q_BHTD.shape[2] :].repeat_interleave(groups, dim=2) for each in by)
        return turn(q_BHTD, cos, sin, self.options.layout)

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Two directions at right angles for the halves of the pairs, drawn for each layer and head."""
        layers, heads = parameter.shape[1:3]
        drawn = torch.rand(layers, heads, 1, generator=generator, dtype=torch.float64, device="cpu") * (2 * math.pi)
        angle = drawn if self.options.rotate else torch.zeros_like(drawn)
        radians = torch.tensor(self.options.radians_per_token(self.dims, 0), dtype=torch.float64, device="cpu")
        directions = torch.cat([radians * 0 + angle, radians * 0 + angle + math.pi / 2], dim=-1)
        with torch.no_grad():
            parameter.copy_(torch.cat([radians, radians]) * torch.stack([directions.cos(), directions.sin()]))
