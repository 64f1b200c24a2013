"""Stick-breaking attention (Tan et al. 2025, arXiv:2410.17980, section 2), which has no softmax.

Summed as logarithms in float64 where the device has it. The released kernel leaves the query's own token out and returns
what is left over; its tests and the models trained with it give that to the own value. The normalisation of heads that
those models have after it is not here.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from posbuild.bias import OfContent, Seen
from posbuild.encodings.base import Encoding, widest
from posbuild.schemes.stick_breaking import StickBreakingOptions


class StickBreaking(Encoding):
    """weight_ij = b_ij times the product over j < l < i of (1 - b_il), with b = sigmoid(score)."""

    options: StickBreakingOptions

    def at_scores(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: None) -> OfContent:
        return OfContent(scores=lambda seen: seen.scores, weights=self.broken)

    def broken(self, scores_BHQK: Tensor, seen: Seen) -> Tensor:
        """Weights from scores."""
        places = torch.arange(scores_BHQK.shape[-1], device=scores_BHQK.device)
        own_QK = places[seen.queries, None] == places
        taking = seen.visible_BHQK if self.options.own_token else seen.visible_BHQK & ~own_QK
        logits_BHQK = scores_BHQK.to(widest(scores_BHQK.device))
        left_BHQK = F.logsigmoid(-logits_BHQK).masked_fill(~taking, 0.0)  # log of the share that a key leaves
        from_key_BHQK = left_BHQK.flip(-1).cumsum(dim=-1).flip(-1)
        log_weights_BHQK = F.logsigmoid(logits_BHQK) + from_key_BHQK - left_BHQK
        weights_BHQK = log_weights_BHQK.masked_fill(~taking, float("-inf")).exp()
        if self.options.remainder:
            weights_BHQK = weights_BHQK + own_QK * from_key_BHQK[..., :1].exp()
        return weights_BHQK.to(scores_BHQK.dtype)
