"""Relative encoding of Transformer-XL (Dai et al. 2019, arXiv:1901.02860, section 3.3).

R of a distance is a sinusoid of width d_model, all sines first, for query position minus key position: negative for later
keys. The authors' code makes R for earlier keys alone and shifts the products into place, so that above the diagonal stand
those of other distances; it serves a causal model only. Here every pair has its own distance.

W R(i - j)·q is one product of q W with R(i - j), and sin a(i - j), cos a(i - j) are sums of products of one factor of i and
one of j: so the term of position is a product of what queries and keys have, and no distance is looked up. In float64: at
far positions the factors must keep their digits, and no setting of torch may lower them.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from posbuild.bias import OfContent, Seen, distances
from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding, angles, widest
from posbuild.encodings.shaw import pick
from posbuild.schemes.transformer_xl import TransformerXlOptions


class TransformerXl(Encoding):
    """score = ((q + u)·k + (q + v)·(W[layer] R(i - j))) / sqrt(D)."""

    options: TransformerXlOptions

    def __init__(self, options: TransformerXlOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        biases = 1 if options.share_biases else dims.n_layers
        self.u = nn.Parameter(torch.empty(biases, dims.n_heads, dims.head_dim))
        self.v = nn.Parameter(torch.empty(biases, dims.n_heads, dims.head_dim))
        self.weight = nn.Parameter(torch.empty(dims.n_layers, dims.n_heads, dims.head_dim, dims.d_model))
        self.frequencies = [10_000.0 ** (-2 * pair / dims.d_model) for pair in range((dims.d_model + 1) // 2)]

    def scores(self, layer: int, keys: tuple[Tensor, Tensor] | None, seen: Seen) -> Tensor:
        wide = widest(seen.q_BHQD.device)
        u_HD, v_HD = (parameter[layer % len(parameter)].to(wide) for parameter in (self.u, self.v))
        content = seen.q_BHQD + u_HD[:, None].to(seen.q_BHQD.dtype)
        query = seen.q_BHQD.to(wide) + v_HD[:, None]
        weight_HDM = self.weight[layer].to(wide)
        by_position = (
            self.by_table(query, weight_HDM, seen) if keys is None else self.by_factors(query, weight_HDM, keys, seen)
        )
        by_content = content @ seen.k_BHKD.transpose(-2, -1)
        return (by_content + by_position.to(by_content.dtype)) * seen.scale

    def by_factors(self, query_BHQD: Tensor, weight_HDM: Tensor, keys: tuple[Tensor, Tensor], seen: Seen) -> Tensor:
        """query·(W R(i - j)) from the sines and cosines of the keys, (B, H, Q, K)."""
        pairs = len(self.frequencies)
        on_sine, on_cosine = (query_BHQD @ weight_HDM).tensor_split([pairs], dim=-1)
        on_cosine = nn.functional.pad(on_cosine, (0, on_sine.shape[-1] - on_cosine.shape[-1]))  # d_model may be odd
        sine, cosine = (each[:, None] for each in self.sines(seen.q_positions_BQ))
        of_query = torch.cat([on_sine * sine + on_cosine * cosine, on_cosine * sine - on_sine * cosine], dim=-1)
        of_key = torch.cat([keys[1], keys[0]], dim=-1)
        # Heads and queries are one axis: the factors of the keys are the same for all heads.
        return (of_query.flatten(1, 2) @ of_key.transpose(-2, -1)).unflatten(1, of_query.shape[1:3])

    def by_table(self, query_BHQD: Tensor, weight_HDM: Tensor, seen: Seen) -> Tensor:
        """The same with distances that are clipped, from the products with each."""
        far = self.options.clamp
        assert far is not None
        sine, cosine = self.sines(torch.arange(-far, far + 1, device=query_BHQD.device))
        sinusoid_NM = torch.cat([sine, cosine], dim=-1)[:, : weight_HDM.shape[-1]]
        products_BHQN = query_BHQD @ (weight_HDM @ sinusoid_NM.T)
        return pick(products_BHQN, distances(seen.q_positions_BQ, seen.k_positions_BK).clamp(-far, far) + far)

    def sines(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Sine and cosine of each frequency at positions of any shape S, (*S, pairs)."""
        angle = angles(positions, self.frequencies)
        return angle.sin(), angle.cos()

    def at_scores(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: None) -> OfContent:
        keys = self.sines(k_positions_BK) if self.options.clamp is None else None
        return OfContent(scores=partial(self.scores, layer, keys))

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        # The projection as the model's own of the keys, which is what it is in the authors' code; there both 0.02.
        std = 0.5 * self.dims.d_model**-0.5 if name == "weight" else 0.02
        nn.init.normal_(parameter, std=std, generator=generator)
