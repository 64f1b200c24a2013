"""Relative encoding of Transformer-XL (Dai et al. 2019, arXiv:1901.02860, section 3.3).

R of a distance is a sinusoid of width d_model, all sines first, for query position minus key position: negative for later
keys. The authors' code makes R for earlier keys alone and shifts the products into place, so that above the diagonal stand
those of other distances; it serves a causal model only. Here every pair has its own distance.

Where distances are few, as in a text, queries meet each projected sinusoid once and the products are looked up. Else, and
in a compiled model, sin a(i - j) and cos a(i - j) are sums of products of a factor of i and one of j, so the term of position
is itself a product of what queries and keys have.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from posbuild.bias import OfContent, Seen, distances, each_once
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

    def scores(self, layer: int, seen: Seen) -> Tensor:
        dtype, wide = seen.q_BHQD.dtype, widest(seen.q_BHQD.device)
        u_HD, v_HD = (parameter[layer % len(parameter)] for parameter in (self.u, self.v))
        by_content = (seen.q_BHQD + u_HD.to(dtype)[:, None]) @ seen.k_BHKD.transpose(-2, -1)
        # In float64, so that both ways give the same numbers, at far positions too.
        query, weight_HDM = seen.q_BHQD.to(wide) + v_HD.to(wide)[:, None], self.weight[layer].to(wide)
        distance_BQK, far = distances(seen.q_positions_BQ, seen.k_positions_BK), self.options.clamp
        if far is not None:
            distance_BQK = distance_BQK.clamp(-far, far)
        each_N = each_once(distance_BQK)
        if each_N is None and far is not None:
            each_N = torch.arange(-far, far + 1, device=query.device)
        if each_N is None:
            by_position = self.by_factors(query, weight_HDM, seen).to(dtype)
        else:
            sinusoid_NM = torch.cat(self.sines(each_N), dim=-1)[:, : weight_HDM.shape[-1]]
            by_position = pick((query @ (weight_HDM @ sinusoid_NM.T)).to(dtype), distance_BQK - each_N[0])
        return (by_content + by_position) * seen.scale

    def by_factors(self, query_BHQD: Tensor, weight_HDM: Tensor, seen: Seen) -> Tensor:
        """query·(W R(i - j)), (B, H, Q, K)."""
        pairs = len(self.frequencies)
        on_sine, on_cosine = (query_BHQD @ weight_HDM).tensor_split([pairs], dim=-1)
        on_cosine = nn.functional.pad(on_cosine, (0, on_sine.shape[-1] - on_cosine.shape[-1]))  # d_model may be odd
        sine, cosine = (each[:, None] for each in self.sines(seen.q_positions_BQ))
        of_query = torch.cat([on_sine * sine + on_cosine * cosine, on_cosine * sine - on_sine * cosine], dim=-1)
        of_key = torch.cat(self.sines(seen.k_positions_BK)[::-1], dim=-1)
        # Heads and queries are one axis: the factors of the keys are the same for all heads.
        return (of_query.flatten(1, 2) @ of_key.transpose(-2, -1)).unflatten(1, of_query.shape[1:3])

    def sines(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Sine and cosine of each frequency at positions of any shape S, (*S, pairs)."""
        angle = angles(positions, self.frequencies)
        return angle.sin(), angle.cos()

    def at_scores(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: None) -> OfContent:
        return OfContent(scores=partial(self.scores, layer))

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        # The projection as the model's own of the keys, which is what it is in the authors' code; there both 0.02.
        std = 0.5 * self.dims.d_model**-0.5 if name == "weight" else 0.02
        nn.init.normal_(parameter, std=std, generator=generator)
