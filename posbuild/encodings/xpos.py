"""xPos (Sun et al. 2022, arXiv:2212.10554, section 3.2), exact at every position.

The paper's factors zeta^p on queries and zeta^-p on keys leave float32 some 36 000 tokens from position 0 at its scale
base of 512, at the default base for short texts after 2000, and half precision much sooner. Only their quotient,
exp(-rate * distance), is bounded. Here it is made of factors that are taken from the borders of blocks of positions:
for a query and a key in the same block, or in neighbouring ones, both stay in range. A pair of channels that would
leave it in wider blocks has faded to nothing there, for blocks widen by no more than that takes; so a few widths serve
all distances, whatever positions are given.

A key whose position lies after the query's is hidden unless positions run backwards; where it is not, it does not fade:
the paper's factor would grow without bound.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posbuild.bias import Seen, distances
from posbuild.declaration import Dims
from posbuild.encodings.base import constants, widest
from posbuild.encodings.rope import TurnedAtScores
from posbuild.schemes.rope import Pairing
from posbuild.schemes.xpos import XPosOptions


def block_widths(rates: list[float], dtype: torch.dtype) -> list[int]:
    """Widths of blocks, in tokens, from the one in which no pair of channels leaves the range of the dtype to the first
    beyond which all have faded to nothing. Rates are those of XPosOptions.decay_per_token."""
    span, faded = spans(dtype)
    widths = [int(span / max(rates))]
    while min(rates) * widths[-1] < faded:
        widths.append(int(widths[-1] * span / faded))
    return widths


def in_one_block(width: int, *positions: Tensor) -> bool:
    """Whether all positions are known to lie in one block; not where a look at them costs more, as in `bias.each_once`."""
    if torch.compiler.is_compiling() or positions[0].device.type != "cpu":
        return False
    blocks = torch.cat([each.flatten() // width for each in positions])
    return bool((blocks == blocks[0]).all())


def spans(dtype: torch.dtype) -> tuple[float, float]:
    """The largest exponent of a factor, and that of a quotient that is nothing beside what a score is rounded to."""
    limits = torch.finfo(dtype)
    return 0.9 * math.log(limits.max), 8 - math.log(limits.eps)


class XPos(TurnedAtScores):
    """score = sum over pairs c of exp(-rate_c (i - j)) q_c·R_c(i - j)·k_c; channels that do not turn do not fade."""

    options: XPosOptions

    def __init__(self, options: XPosOptions, dims: Dims) -> None:
        super().__init__(options, dims)
        self.rates = options.decay_per_token(dims)

    def scores(self, seen: Seen) -> Tensor:
        wide = widest(seen.q_BHQD.device)
        where = seen.q_positions_BQ.to(wide), seen.k_positions_BK.to(wide)
        q_BHQD, k_BHKD = self.turned(seen.q_BHQD.to(wide), where[0]), self.turned(seen.k_BHKD.to(wide), where[1])
        rotary = 2 * len(self.rates)
        faded = self.faded(q_BHQD[..., :rotary], k_BHKD[..., :rotary], *where)
        if rotary < q_BHQD.shape[-1]:
            faded = faded + q_BHQD[..., rotary:] @ k_BHKD[..., rotary:].transpose(-2, -1)
        narrow = seen.q_BHQD.dtype
        whole = q_BHQD.to(narrow) @ k_BHKD.to(narrow).transpose(-2, -1)
        return torch.where(distances(*where)[:, None] >= 0, faded.to(narrow), whole) * seen.scale

    def faded(self, q_BHQR: Tensor, k_BHKR: Tensor, q_positions_BQ: Tensor, k_positions_BK: Tensor) -> Tensor:
        """The sum over pairs where the key is not after the query, (B, H, Q, K); finite elsewhere."""
        total = q_BHQR.new_zeros(())
        # The narrowest block that holds both counts, so it comes last; what shares none has faded altogether.
        widths = block_widths(self.rates, q_BHQR.dtype)
        together = in_one_block(widths[0], q_positions_BQ, k_positions_BK)
        for width in widths[:1] if together else widths[::-1]:
            held = [rate if rate * width <= spans(q_BHQR.dtype)[0] else math.inf for rate in self.rates]
            blocks_apart = distances(q_positions_BQ // width, k_positions_BK // width)[:, None]
            from_q, from_k = (positions % width for positions in (q_positions_BQ, k_positions_BK))
            k = k_BHKR * self.fading(-from_k, held, q_BHQR.dtype)
            for apart in (0,) if together else (1, 0):
                q = q_BHQR * self.fading(from_q + apart * width, held, q_BHQR.dtype)
                total = torch.where(blocks_apart == apart, q @ k.transpose(-2, -1), total)
        return total

    def fading(self, tokens_BT: Tensor, rates: list[float], dtype: torch.dtype) -> Tensor:
        """exp(-rate * tokens) for each rotary channel, (B, 1, T, R); 0 where the rate is infinite."""
        held = [rate if rate < math.inf else 0.0 for rate in rates]
        there = [float(rate < math.inf) for rate in rates]
        rate, factor = (constants(self.by_channel(values), tokens_BT.device) for values in (held, there))
        return ((-rate * tokens_BT.to(dtype)[..., None]).exp() * factor)[:, None]

    def by_channel(self, values: list[float]) -> list[float]:
        """A number for each pair as one for each rotary channel."""
        if self.options.layout is Pairing.half:
            return values + values
        return [value for value in values for _ in range(2)]
