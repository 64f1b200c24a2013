"""CoPE (Golovneva et al. 2024, arXiv:2405.18719, section 4).

The gate of a key is sigmoid(q·k / sqrt(d)), and 0 where the query does not see it; a key's position is the sum of the gates from it to
the query, at most max_position; the position's vector stands between those of the whole numbers around it. All heads share
a table, which starts at zero. The options of the released code to make gates from other keys or from values are left out.

Positions are summed in float64 where the device has it: in half precision a count would stop at 256.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posbuild.bias import OfContent, Seen
from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding, widest
from posbuild.schemes.cope import CopeOptions


class Cope(Encoding):
    """score += q_i · e[p_ij], where p_ij = sum over j <= l <= i of sigmoid(q_i · k_l)."""

    options: CopeOptions

    def __init__(self, options: CopeOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        tables, self.furthest = 1 if options.share_layers else dims.n_layers, options.furthest(dims)
        self.table = nn.Parameter(torch.empty(tables, self.furthest + 1, dims.head_dim))

    def at_scores(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: None) -> OfContent:
        table_PD = self.table[layer % len(self.table)]
        return OfContent(scores=lambda seen: self.counted(seen, table_PD))

    def counted(self, seen: Seen, table_PD: Tensor) -> Tensor:
        """Scores with those of each key's position."""
        scores_BHQK = seen.scores
        gates_BHQK = scores_BHQK.sigmoid().to(widest(scores_BHQK.device)) * seen.visible_BHQK
        position_BHQK = gates_BHQK.flip(-1).cumsum(dim=-1).flip(-1).clamp(max=self.furthest)
        below_BHQK = position_BHQK.floor()
        share_BHQK = (position_BHQK - below_BHQK).to(scores_BHQK.dtype)
        of_positions_BHQP = seen.q_BHQD @ table_PD.to(scores_BHQK.dtype).mT
        if self.options.divided:
            of_positions_BHQP = of_positions_BHQP * seen.scale
        lower_BHQK = of_positions_BHQP.gather(-1, below_BHQK.long())
        upper_BHQK = of_positions_BHQP.gather(-1, position_BHQK.ceil().long())
        return scores_BHQK + torch.lerp(lower_BHQK, upper_BHQK, share_BHQK)

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        nn.init.zeros_(parameter)
