"""PaTH attention (Yang et al. 2025, arXiv:2505.16381, section 3).

Directions come from token vectors by two matrices without a bias between, and have length 1; strengths lie between 0 and 2.
All start as in the authors' layer (flash-linear-attention, PaTHAttention). Its short convolution over the directions with
a SiLU after it, on by default there, is left out: it reads tokens before those that a query sees under a window. So are
its forget gate, off by default, and the sharing of directions by query heads that share a key head.

Nothing is multiplied token by token: with y_s = w_s · (what q has become on its way from i to s) the way to key j leaves
q - sum over s > j of b_s y_s w_s, and the y of all s solve one triangular system for each query, which all queries share.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posbuild.bias import OfContent, Seen
from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding, start_linear, widest
from posbuild.schemes.path import PathOptions

EPSILON = 1e-6  # added to the square of a direction's length


class Path(Encoding):
    """score_ij = k_j · H_(j+1) ... H_i q_i with H_s = 1 - b_s w_s w_s^T."""

    options: PathOptions

    def __init__(self, options: PathOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        layers, width, rank = dims.n_layers, dims.d_model, options.rank
        self.weight_in = nn.Parameter(torch.empty(layers, rank, width))
        self.weight_out = nn.Parameter(torch.empty(layers, width, rank))
        self.weight_strength = nn.Parameter(torch.empty(layers, dims.n_heads, width))
        self.bias_strength = nn.Parameter(torch.empty(layers, dims.n_heads))

    def at_tokens(self, x_BTM: Tensor, layer: int) -> Tensor:
        """Of each head the direction and then the strengths of all, (B, T, H D + H)."""
        wide = widest(x_BTM.device)
        x_BTM = x_BTM.to(wide)
        direction_BTM = F.linear(F.linear(x_BTM, self.weight_in[layer].to(wide)), self.weight_out[layer].to(wide))
        heads_BTHD = direction_BTM.unflatten(-1, (self.dims.n_heads, -1))
        heads_BTHD = heads_BTHD * (heads_BTHD.square().sum(dim=-1, keepdim=True) + EPSILON).rsqrt()
        logits_BTH = F.linear(x_BTM, self.weight_strength[layer].to(wide), self.bias_strength[layer].to(wide))
        return torch.cat([heads_BTHD.flatten(-2), 2 * logits_BTH.sigmoid()], dim=-1)

    def at_scores(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: None) -> OfContent:
        return OfContent(scores=self.reflected)

    def reflected(self, seen: Seen) -> Tensor:
        """Scores of keys reflected by the tokens between them and the query."""
        assert seen.kept_BKC is not None
        heads = self.dims.n_heads
        w_BHKD = seen.kept_BKC[..., :-heads].unflatten(-1, (heads, -1)).transpose(1, 2)
        strength_BHK = seen.kept_BKC[..., -heads:].transpose(1, 2)
        q_BHQD, k_BHKD = seen.q_BHQD.to(w_BHKD.dtype), seen.k_BHKD.to(w_BHKD.dtype)
        # Rows s, columns t: what token t > s of the same document does to y_s.
        later_BHKK = (w_BHKD @ w_BHKD.mT * strength_BHK[:, :, None]).triu(1)
        of_keys_BHKK = (w_BHKD @ k_BHKD.mT).tril(-1)
        if seen.documents_BK is not None:
            same_BHKK = (seen.documents_BK[:, :, None] == seen.documents_BK[:, None])[:, None]
            later_BHKK, of_keys_BHKK = later_BHKK * same_BHKK, of_keys_BHKK * same_BHKK
        met_BHKQ = w_BHKD @ q_BHQD.mT * seen.visible_BHQK.mT
        y_BHKQ = torch.linalg.solve_triangular(later_BHKK, met_BHKQ, upper=True, unitriangular=True)
        taken_BHQK = (strength_BHK[..., None] * y_BHKQ).mT @ of_keys_BHKK
        return ((q_BHQD @ k_BHKD.mT - taken_BHQK) * seen.scale).to(seen.q_BHQD.dtype)

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        start_linear(parameter, self.options.rank if name == "weight_out" else self.dims.d_model, generator)
