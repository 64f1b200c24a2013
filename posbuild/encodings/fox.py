"""The Forgetting Transformer (Lin et al. 2025, arXiv:2503.02130, section 3) and CABLE (Veisi et al. 2025, arXiv:2503.08067).

Both add to a score the sum of a negative number for each token after the key, up to the query: log sigmoid(w·x + b) in the
first, -softplus(w·x + b) = log sigmoid(-(w·x + b)) in the second. Weights start at a normal spread of 0.02 and biases at 0 in
the code of both, so that untrained they are the same; they part in the sign by which a checkpoint is read.

A cache holds the summands, never the sums: these are formed anew of all tokens, in float64 where the device has it. The
released layer of the first also normalises queries and keys, gates its output and may shift keys; none of it is here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posbuild.bias import OfContent, Seen
from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding, widest
from posbuild.schemes.fox import FoxOptions

STD = 0.02  # of the weights at the start


class Fox(Encoding):
    """score += sum over j < l <= i of log sigmoid(sign * (weight[layer, head] · x_l + bias[layer, head]))."""

    options: FoxOptions

    def __init__(self, options: FoxOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.weight = nn.Parameter(torch.empty(dims.n_layers, dims.n_heads, dims.d_model))
        self.bias = nn.Parameter(torch.empty(dims.n_layers, dims.n_heads))

    def at_tokens(self, x_BTM: Tensor, layer: int) -> Tensor:
        """What each token adds to the scores of all before it, (B, T, H)."""
        wide = widest(x_BTM.device)
        logits = F.linear(x_BTM.to(wide), self.weight[layer].to(wide), self.bias[layer].to(wide))
        return F.logsigmoid(self.options.sign * logits)

    def at_scores(self, q_positions_BQ: Tensor, k_positions_BK: Tensor, layer: int, shared: None) -> OfContent:
        return OfContent(scores=forgotten)

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        if name == "weight":
            nn.init.normal_(parameter, std=STD, generator=generator)
        else:
            nn.init.constant_(parameter, self.options.sign * self.options.gate_start)


def forgotten(seen: Seen) -> Tensor:
    """Scores with the sum of what the tokens after a key say, of those that the query sees."""
    assert seen.kept_BKC is not None
    of_tokens_BHQK = seen.kept_BKC.mT[:, :, None] * seen.visible_BHQK
    from_key_BHQK = of_tokens_BHQK.flip(-1).cumsum(dim=-1).flip(-1)
    scores_BHQK = seen.scores
    return scores_BHQK + (from_key_BHQK - of_tokens_BHQK).to(scores_BHQK.dtype)
