"""A window and attention sinks (Xiao et al. 2024, arXiv:2309.17453, section 3.2).

First and last are taken by the order of the tokens that the query sees: those of its document. Over a rotary encoding the
distance to a first token is the one in a cache that holds nothing but these tokens and the window: it stands right before
the window. Distances within the window are those of the positions, as without it.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from posbuild.bias import OfContent, Seen, softmax
from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding
from posbuild.encodings.rope import Rope
from posbuild.schemes.window import Inner, WindowOptions


class Window(Encoding):
    """A query sees the last `width` tokens and the first `sinks`."""

    options: WindowOptions

    def __init__(self, options: WindowOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.width, self.sinks = options.width_in(dims), options.sinks
        self.over = Encoding(options, dims) if options.over is Inner.none else Rope(options.over.options(), dims)

    def prepare(self, positions_BT: Tensor) -> Any:
        return self.over.prepare(positions_BT)

    def at_queries(self, q_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: Any) -> Tensor:
        return self.over.at_queries(q_BHTD, positions_BT, layer, shared)

    def at_keys(self, k_BHTD: Tensor, positions_BT: Tensor, layer: int, shared: Any) -> Tensor:
        return self.over.at_keys(k_BHTD, positions_BT, layer, shared)

    def at_scores(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: Any) -> OfContent:
        return OfContent(scores=lambda seen: self.near(seen, layer), weights=self.limited)

    def near(self, seen: Seen, layer: int) -> Tensor:
        """Scores as if each of the first tokens stood right before the window, should it lie before it."""
        scores_BHQK = seen.scores
        if not isinstance(self.over, Rope):
            return scores_BHQK
        order_BQK, last_BQ = order(seen)
        for place in range(self.sinks):
            is_sink_BQK = (order_BQK == place) & seen.visible_BHQK[:, 0]
            position_BQ = (is_sink_BQK * seen.k_positions_BK[:, None]).sum(dim=-1)
            held_BQ = last_BQ.clamp(max=self.sinks + self.width - 1)  # the query's place in the cache
            beyond_BQ = last_BQ - held_BQ
            is_sink_BQK = is_sink_BQK & (beyond_BQ > 0)[..., None]
            nearer_BQ = held_BQ - place - (seen.q_positions_BQ - position_BQ)
            turned_BHQD = self.over.at_queries(seen.q_BHQD, nearer_BQ, layer, self.over.prepare(nearer_BQ))
            # The queries have been lengthened once.
            moved_BHQK = turned_BHQD @ seen.k_BHKD.mT * (seen.scale / self.over.magnitude)
            scores_BHQK = moved_BHQK.where(is_sink_BQK[:, None], scores_BHQK)
        return scores_BHQK

    def limited(self, scores_BHQK: Tensor, seen: Seen) -> Tensor:
        """Weights of what lies in the window and of the first tokens."""
        order_BQK, last_BQ = order(seen)
        held_BQK = (last_BQ[..., None] - order_BQK < self.width) | (order_BQK < self.sinks)
        return softmax(scores_BHQK.masked_fill(~held_BQK[:, None], float("-inf")), seen)


def order(seen: Seen) -> tuple[Tensor, Tensor]:
    """The place of each key among those that a query sees, (B, Q, K), from 0, and the query's own, (B, Q)."""
    order_BQK = seen.visible_BHQK[:, 0].cumsum(dim=-1) - 1
    return order_BQK, order_BQK[..., -1]
