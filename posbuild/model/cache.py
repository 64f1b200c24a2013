"""Keys and values of the tokens that a model has read."""

from __future__ import annotations

import torch
from torch import Tensor


class Cache:
    """Filled in place by `Transformer.forward`; grows by doubling, so decoding allocates seldom.

    Keys are held as the encoding left them, or as they came where the encoding changes them as the text grows.
    Suffixes: N layers, B batch, G key/value heads, C capacity, D width of a head.
    """

    def __init__(
        self,
        n_layers: int,
        batch_size: int,
        n_kv_heads: int,
        key_width: int,
        value_width: int,
        capacity: int,
        like: Tensor,
        axes: tuple[int, ...] = (),
    ) -> None:
        shape = (n_layers, batch_size, n_kv_heads, capacity)
        self.keys_NBGCD, self.values_NBGCD = like.new_empty(*shape, key_width), like.new_empty(*shape, value_width)
        self.kept_N: list[Tensor | None] = [None] * n_layers
        self.positions_BC = torch.empty(batch_size, capacity, *axes, dtype=torch.int64, device=like.device)
        self.documents_BC = torch.zeros(batch_size, capacity, dtype=torch.int64, device=like.device)
        self.length = 0  # tokens held
        self.documents_given = False

    @property
    def batch_size(self) -> int:
        return self.positions_BC.shape[0]

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` more."""
        capacity, needed = self.positions_BC.shape[1], self.length + tokens
        if needed <= capacity:
            return
        larger = max(needed, 2 * capacity)
        for name, dim in (("keys_NBGCD", 3), ("values_NBGCD", 3), ("positions_BC", 1), ("documents_BC", 1)):
            old = getattr(self, name)
            new = old.new_zeros(*old.shape[:dim], larger, *old.shape[dim + 1 :])
            new.narrow(dim, 0, self.length).copy_(old.narrow(dim, 0, self.length))
            setattr(self, name, new)

    def add_tokens(self, positions_BT: Tensor, documents_BT: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Note new tokens; return positions and documents of all tokens, the new ones last."""
        tokens = positions_BT.shape[1]
        self.reserve(tokens)
        end = self.length + tokens
        self.positions_BC[:, self.length : end] = positions_BT
        if documents_BT is not None:
            self.documents_BC[:, self.length : end] = documents_BT
            self.documents_given = True
        elif self.documents_given:
            raise ValueError("The tokens in the cache came with documents; give documents for the new ones too.")
        self.length = end
        return self.positions_BC[:, :end], self.documents_BC[:, :end] if self.documents_given else None

    def add_layer(self, layer: int, k_BGTD: Tensor, v_BGTD: Tensor) -> tuple[Tensor, Tensor]:
        """Write keys and values of the newest tokens; return those of all tokens."""
        begin = self.length - k_BGTD.shape[2]
        self.keys_NBGCD[layer, :, :, begin : self.length] = k_BGTD
        self.values_NBGCD[layer, :, :, begin : self.length] = v_BGTD
        return self.keys_NBGCD[layer, :, :, : self.length], self.values_NBGCD[layer, :, :, : self.length]

    def add_kept(self, layer: int, kept_BTC: Tensor | None) -> Tensor | None:
        """Hold what the encoding keeps of the newest tokens, in its own dtype; return that of all tokens."""
        held = self.kept_N[layer]
        self.kept_N[layer] = kept_BTC if held is None or kept_BTC is None else torch.cat([held, kept_BTC], dim=1)
        return self.kept_N[layer]
