"""Retention (Sun et al. 2023, arXiv:2307.08621, section 2), the mixing of tokens alone.

In the paper a normalisation of each head and a gate follow; they are parts of the block and not here. With the first any
factor on a row cancels, so the released code lets no gradient through the row's divisor, and bounds it at 50 000 for half
precision; here the divisor counts, so it has its gradient and no bound. Rates are those of the heads' numbers, whatever
their count: 1 - 2^(-5 - head).
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from posbuild.bias import OfContent, Seen, distances
from posbuild.encodings.base import by_head, constants
from posbuild.encodings.rope import Rope
from posbuild.schemes.retnet import RetnetOptions, RowSum


class Retnet(Rope):
    """weight_ij = q_i · k_j rate^(i - j) / sqrt(sum_l rate^(i - l)), divided by the sum of its row where that is above 1."""

    options: RetnetOptions

    def at_scores(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: Any) -> OfContent:
        return OfContent(scores=self.decayed, weights=self.divided)

    def decayed(self, seen: Seen) -> Tensor:
        """Scores times the decay, whose row has the length 1 if scores are alike."""
        rates = constants([math.log1p(-(2.0 ** (-5 - head))) for head in range(self.dims.n_heads)], seen.q_BHQD.device)
        distance_BQK = distances(seen.q_positions_BQ, seen.k_positions_BK).abs()
        decay_BHQK = (by_head(rates, distance_BQK) * distance_BQK).exp().transpose(0, 1)
        total_BHQ1 = (decay_BHQK * seen.visible_BHQK).sum(dim=-1, keepdim=True)
        scores_BHQK = seen.scores
        return scores_BHQK * (decay_BHQK / total_BHQ1.sqrt()).to(scores_BHQK.dtype)

    def divided(self, scores_BHQK: Tensor, seen: Seen) -> Tensor:
        """Weights from scores."""
        scores_BHQK = scores_BHQK * seen.visible_BHQK
        sizes = scores_BHQK.abs() if self.options.row_sum is RowSum.absolute else scores_BHQK
        return scores_BHQK / sizes.sum(dim=-1, keepdim=True).abs().clamp(min=1.0)
