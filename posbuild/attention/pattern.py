"""Which keys each query sees, and the positions of both: made once a forward pass, used by every layer.

The queries are the last Q of the K tokens. Causality and the window go by this order, never by position: positions may
repeat, skip or run backwards.

Suffixes: B batch (1 where all rows are alike), H heads, Q queries, K keys.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posbuild.bias import Positional, Seen


class Pattern:
    """Positions, documents and mask of one forward pass.

    q_positions_BQ, k_positions_BK  positions of the queries and of all keys
    q_documents_BQ, k_documents_BK  document of each token: attention stays within equal ones; None: one document
    causal                          a query sees itself and what came before
    window                          a query sees the last `window` tokens only, itself among them; None: all
    """

    def __init__(
        self,
        q_positions_BQ: Tensor,
        k_positions_BK: Tensor,
        *,
        causal: bool,
        q_documents_BQ: Tensor | None = None,
        k_documents_BK: Tensor | None = None,
        window: int | None = None,
    ) -> None:
        self.q_positions_BQ, self.k_positions_BK = q_positions_BQ, k_positions_BK
        self.q_documents_BQ, self.k_documents_BK = q_documents_BQ, k_documents_BK
        self.causal, self.window = causal, window
        self._visible: Tensor | None = None
        self._added: dict[int, tuple[Positional, Tensor]] = {}

    @property
    def plain(self) -> str:
        """ "all" or "causal" where a kernel needs no mask, else ""."""
        n_queries, n_keys = self.q_positions_BQ.shape[1], self.k_positions_BK.shape[1]
        if self.k_documents_BK is not None or (self.window is not None and self.window < n_keys):
            return ""
        if not self.causal or n_queries == 1:
            return "all"
        return "causal" if n_queries == n_keys else ""

    def reach(self, queries: slice) -> slice:
        """The keys that causality and the window leave to some of these queries."""
        n_queries, n_keys = self.q_positions_BQ.shape[1], self.k_positions_BK.shape[1]
        first, last = (place + n_keys - n_queries for place in (queries.start, queries.stop - 1))
        far = n_keys if self.window is None else self.window - 1
        return slice(max(0, first - far), min(n_keys, last + 1 + (0 if self.causal else far)))

    def seen(
        self,
        q_BHQD: Tensor,
        k_BGKD: Tensor,
        scale: float,
        kept_BKC: Tensor | None = None,
        queries: slice | None = None,
    ) -> Seen:
        """What a bias that depends on content is shown: all keys, and the queries at these places among the queries."""
        n_queries, n_keys = q_BHQD.shape[2], k_BGKD.shape[2]
        rows = slice(0, n_queries) if queries is None else queries
        wide = torch.promote_types(q_BHQD.dtype, torch.float32)
        return Seen(
            q_BHQD=q_BHQD[:, :, rows].to(wide),
            k_BHKD=k_BGKD.to(wide).repeat_interleave(q_BHQD.shape[1] // k_BGKD.shape[1], dim=1),
            scale=scale,
            q_positions_BQ=self.q_positions_BQ[:, rows],
            k_positions_BK=self.k_positions_BK,
            visible_BHQK=self.visible()[:, :, rows],
            queries=slice(rows.start + n_keys - n_queries, rows.stop + n_keys - n_queries),
            kept_BKC=kept_BKC,
            documents_BK=self.k_documents_BK,
        )

    def visible(self) -> Tensor:
        """(B, 1, Q, K) bool: true where the query sees the key."""
        if self._visible is None:
            n_queries, n_keys = self.q_positions_BQ.shape[1], self.k_positions_BK.shape[1]
            order = torch.arange(n_keys, device=self.k_positions_BK.device)
            back_QK = order[n_keys - n_queries :, None] - order
            seen = (back_QK >= 0) if self.causal else torch.ones_like(back_QK, dtype=torch.bool)
            if self.window is not None:
                seen = seen & (back_QK.abs() < self.window)
            seen_BQK = seen[None]
            if self.q_documents_BQ is not None and self.k_documents_BK is not None:
                seen_BQK = seen_BQK & (self.q_documents_BQ[:, :, None] == self.k_documents_BK[:, None, :])
            self._visible = seen_BQK[:, None]
        return self._visible

    def added(self, bias: Positional, dtype: torch.dtype) -> Tensor:
        """(B, H, Q, K) in `dtype`: the bias where the query sees the key, -inf elsewhere. Computed in float32 or better.

        Layers that share a bias hand in the same object, and share this.
        """
        if id(bias) not in self._added:
            wide = torch.promote_types(dtype, torch.float32)
            dense = bias.dense(self.q_positions_BQ, self.k_positions_BK, wide)
            if self.plain != "all":
                dense = dense.masked_fill(~self.visible(), float("-inf"))
            self._added[id(bias)] = (bias, dense.to(dtype))  # the bias is kept too: its id must not be used again
        return self._added[id(bias)][1]
