"""Text from a causal model, token by token, with the cache."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from posbuild.model.transformer import Transformer


@torch.inference_mode()
def sample(
    model: Transformer,
    prompt_T: Tensor,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    most: int | None = None,
) -> Iterator[int]:
    """Tokens that go on from a prompt of at least one token, without end, or as far as the encoding is defined.

    temperature  divides the logits; 0: always the most probable token
    top_k        draw among the k most probable tokens
    top_p        draw among the fewest tokens that together have at least this probability (Holtzman et al. 2020, arXiv:1904.09751)
    most         the number of tokens that are asked for: where position numbers are drawn, those of a text of that length

    Raises ConfigError for a prompt beyond the positions that the encoding is defined for.
    """
    generator = torch.Generator().manual_seed(seed)
    cache = model.new_cache(1, 2 * len(prompt_T))
    numbers = None if most is None else model.numbering.in_evaluation(range(1), len(prompt_T) + most)
    tokens = prompt_T[None]
    while True:
        held = cache.length
        positions = None if numbers is None else numbers[:, held : held + tokens.shape[1]].to(prompt_T.device)
        logits_V = model(tokens, positions, cache=cache)[0, -1].double().cpu()
        token = draw(logits_V, temperature, top_k, top_p, generator)
        yield token
        if model.longest is not None and cache.length >= model.longest:
            return
        tokens = torch.tensor([[token]], device=prompt_T.device)


def draw(
    logits_V: Tensor, temperature: float, top_k: int | None, top_p: float | None, generator: torch.Generator
) -> int:
    """One token. The temperature acts first, then top_k, then top_p on what is left."""
    if temperature < torch.finfo(torch.float64).tiny:  # 0, or a number whose inverse is infinite
        return int(logits_V.argmax())
    # The largest becomes 0 before the division, by which it could overflow.
    logits_V, order_V = ((logits_V - logits_V.max()) / temperature).sort(descending=True, stable=True)
    probabilities_V = logits_V[:top_k].softmax(dim=0)
    if top_p is not None:
        before_V = probabilities_V.cumsum(dim=0) - probabilities_V  # of the more probable ones
        probabilities_V = probabilities_V[before_V < top_p]
    return int(order_V[torch.multinomial(probabilities_V, 1, generator=generator)])
