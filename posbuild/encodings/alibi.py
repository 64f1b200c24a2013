"""ALiBi (Press et al. 2022, arXiv:2108.12409, section 3). The bias is not divided by sqrt(d) (footnote of that section)."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

from posbuild.bias import AffineInDistance, OfDistance
from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding, by_head, constants, widest
from posbuild.schemes.alibi import AlibiOptions, Form, slopes


class Alibi(Encoding):
    """score -= slope[head] * (i - j)."""

    options: AlibiOptions

    def __init__(self, options: AlibiOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.form = options.form_in(dims)
        # Learned in the logarithm: a slope that turned negative would reward distance.
        self.log_slopes = nn.Parameter(torch.empty(len(self.fixed_slopes()))) if options.learn_slopes else None

    def fixed_slopes(self) -> list[float]:
        """One slope a head (or one for all); in the asymmetric form those to the left, then those to the right.

        The asymmetric form deals the slopes of twice as many heads out in turn, the steeper to the left. Published uses of
        two slopes a head learn them from random starts; this fixed start is posbuild's own. In the split form the heads of
        either side have the slopes of half as many heads.
        """
        heads = self.dims.n_heads
        sides = [slopes(heads)]
        if self.form is Form.asymmetric:
            dealt = slopes(2 * heads)
            sides = [dealt[0::2], dealt[1::2]]
        elif self.form is Form.split:
            sides = [2 * slopes(heads // 2)]
        if not self.options.per_head:
            sides = [[math.exp(math.fsum(map(math.log, side)) / heads)] for side in sides]
        return [slope for side in sides for slope in side]

    def prepare(self, positions_BT: Tensor) -> AffineInDistance | OfDistance:
        if self.log_slopes is None:
            slope = constants(self.fixed_slopes(), positions_BT.device)
        else:
            # In half precision exp would round the slopes once more, by up to 0.4 % of the bias.
            slope = self.log_slopes.to(widest(positions_BT.device)).exp()
        if self.form is Form.asymmetric:
            left, right = (side.expand(self.dims.n_heads) for side in slope.chunk(2))
            return AffineInDistance(before_H=-left, after_H=-right)
        slope = slope.expand(self.dims.n_heads)
        if self.form is Form.split:
            return OfDistance(partial(self.to_one_side, slope))
        return AffineInDistance(before_H=-slope, after_H=slope if self.form is Form.causal else -slope)

    def to_one_side(self, slope_H: Tensor, distance: Tensor) -> Tensor:
        """The bias of distances of any shape S, (H, *S): the first half of the heads sees no later key, the rest no earlier."""
        first = torch.arange(self.dims.n_heads, device=distance.device) < self.dims.n_heads // 2
        ahead = torch.where(by_head(first, distance) > 0, distance, -distance)
        return (-by_head(slope_H, distance) * ahead).masked_fill(ahead < 0, -math.inf)

    def at_scores(
        self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: AffineInDistance | OfDistance
    ) -> AffineInDistance | OfDistance:
        return shared

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        with torch.no_grad():
            parameter.copy_(torch.tensor(self.fixed_slopes(), dtype=torch.float64).log())
