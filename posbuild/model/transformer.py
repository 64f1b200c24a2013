"""A pre-norm Transformer that takes any encoding and never asks which it holds.

Suffixes: B batch, T new tokens, M d_model, H heads, G key/value heads, D head width, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from posbuild.attention import Pattern, fused_attention
from posbuild.declaration import Dims
from posbuild.encodings.base import Encoding
from posbuild.errors import ConfigError
from posbuild.model.axes import check_by_axis, last_dimension
from posbuild.model.cache import Cache
from posbuild.positions import Numbering
from posbuild.settings import Activation, ModelSettings, Norm, PositionsSettings

TOKEN_STD = 0.05  # spread of the token vectors at the start


class Linear(nn.Linear):
    """A linear layer that starts at normal weights of standard deviation `gain / sqrt(inputs)` and a zero bias."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, gain: float) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.gain = gain

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        if name == "bias" or self.gain == 0:
            nn.init.zeros_(parameter)
        else:
            nn.init.normal_(parameter, std=self.gain / math.sqrt(self.in_features), generator=generator)


class Embedding(nn.Embedding):
    """Token vectors."""

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        nn.init.normal_(parameter, std=TOKEN_STD, generator=generator)


def norm(settings: ModelSettings) -> nn.Module:
    """The normalisation of the token vectors."""
    return nn.RMSNorm(settings.d_model, eps=1e-6) if settings.norm is Norm.rmsnorm else nn.LayerNorm(settings.d_model)


class Attention(nn.Module):
    """Attention of one layer; the encoding acts through its hooks."""

    def __init__(self, settings: ModelSettings, dims: Dims, layer: int) -> None:
        super().__init__()
        self.dims, self.layer = dims, layer
        self.scale = settings.scale
        width = dims.head_dim
        self.qkv = Linear(dims.d_model, (dims.n_heads + 2 * dims.n_kv_heads) * width, bias=settings.bias, gain=0.5)
        self.out = Linear(dims.d_model, dims.d_model, bias=settings.bias, gain=0.0)

    def forward(
        self,
        x_BTM: Tensor,
        positions_BT: Tensor,
        pattern: Pattern,
        encoding: Encoding,
        shared: Any,
        cache: Cache | None,
    ) -> Tensor:
        dims = self.dims
        heads = self.qkv(x_BTM).unflatten(-1, (-1, dims.head_dim)).transpose(1, 2)
        q, k, v = heads.split([dims.n_heads, dims.n_kv_heads, dims.n_kv_heads], dim=1)
        q = encoding.at_queries(q, positions_BT, self.layer, shared)
        if not encoding.keys_change:
            k = encoding.at_keys(k, positions_BT, self.layer, shared)
        kept = encoding.at_tokens(x_BTM, self.layer)
        if cache is not None:
            k, v = cache.add_layer(self.layer, k, v)
            kept = cache.add_kept(self.layer, kept)
        if encoding.keys_change:
            k = encoding.at_keys(k, pattern.k_positions_BK, self.layer, shared)
        bias = encoding.at_scores(pattern.q_positions_BQ, pattern.k_positions_BK, self.layer, shared)
        gathered_BHTD = fused_attention(q, k, v, pattern, bias, self.scale, kept)
        return self.out(gathered_BHTD.transpose(1, 2).flatten(-2))


class SquaredReLU(torch.autograd.Function):
    """relu(x)^2. Its gradient 2 relu(x) is zero where x < 0 by itself, so one product does what autograd takes four for."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = F.relu(x)
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        return torch.addcmul(gradient.new_zeros(()), gradient, positive, value=2)


class FeedForward(nn.Module):
    """Two linear layers with an activation between them; swiglu gates the inner channels with a third."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.activation = settings.activation
        gated = settings.activation is Activation.swiglu
        inner = settings.inner_width
        self.wide = Linear(settings.d_model, 2 * inner if gated else inner, bias=settings.bias, gain=0.5)
        self.out = Linear(inner, settings.d_model, bias=settings.bias, gain=0.0)

    def forward(self, x_BTM: Tensor) -> Tensor:
        inner = self.wide(x_BTM)
        if self.activation is Activation.swiglu:
            gate, inner = inner.chunk(2, dim=-1)
            return self.out(F.silu(gate) * inner)
        return self.out(F.gelu(inner) if self.activation is Activation.gelu else SquaredReLU.apply(inner))


class Block(nn.Module):
    """One layer: attention, then feed-forward, each on the normalised token vectors and added back."""

    def __init__(self, settings: ModelSettings, dims: Dims, layer: int) -> None:
        super().__init__()
        self.attention_norm, self.attention = norm(settings), Attention(settings, dims, layer)
        self.feed_forward_norm, self.feed_forward = norm(settings), FeedForward(settings)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x_BTM: Tensor, *where: Any) -> Tensor:
        x_BTM = x_BTM + self.dropout(self.attention(self.attention_norm(x_BTM), *where))
        return x_BTM + self.dropout(self.feed_forward(self.feed_forward_norm(x_BTM)))


class Transformer(nn.Module):
    """Tokens to logits, causal or bidirectional, with any encoding.

    Build it with `posbuild.build`; a model made by hand needs `init_parameters(model, seed)` before use.
    """

    def __init__(
        self,
        settings: ModelSettings,
        encoding: Encoding,
        dims: Dims,
        vocab_size: int,
        numbering: Numbering | None = None,
    ) -> None:
        super().__init__()
        self.dims, self.vocab_size = dims, vocab_size
        self.numbering = numbering or Numbering(PositionsSettings(), dims.train_length, seed=0)
        self.embedding = Embedding(vocab_size, dims.d_model)
        self.encoding = encoding
        self.dropout = nn.Dropout(settings.dropout)
        self.blocks = nn.ModuleList(Block(settings, dims, layer) for layer in range(dims.n_layers))
        self.norm = norm(settings)
        self.head = Linear(dims.d_model, vocab_size, bias=False, gain=0.0)
        if settings.tie_embeddings:
            self.head.weight = self.embedding.weight

    @property
    def longest(self) -> int | None:
        """The number of tokens that the encoding is defined for, and that there are numbers for; None: any."""
        limits = [self.encoding.options.longest(self.dims), self.numbering.longest]
        known = [limit for limit in limits if limit is not None]
        return min(known) if known else None  # a compiled model cannot follow `min` of a generator

    def new_cache(self, batch_size: int, capacity: int = 256) -> Cache:
        """An empty cache for `batch_size` rows, with room for `capacity` tokens before it has to grow."""
        dims, like = self.dims, self.embedding.weight.detach()
        widths = self.encoding.key_width, dims.head_dim
        return Cache(
            dims.n_layers, batch_size, dims.n_kv_heads, *widths, capacity, like, last_dimension(self.encoding.options)
        )

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
        cache: Cache | None = None,
        window: int | None = None,
    ) -> Tensor:
        """Logits of each token, (B, T, V).

        tokens     (B, T) int64
        positions  (B, T) or (1, T) int64, in tokens (float32 where fractions are trained on); None: counted from 0 in each
                   document, on from what the cache holds. (B, T, axes) or (1, T, axes) for an encoding of several axes
        documents  (B, T) int64 ids: attention stays within equal ones; -1 is padding. None: each row is one document
        cache      from `new_cache`, filled in place; the tokens follow those that it holds
        window     attention sees the last `window` tokens only, the query's own among them (a control)

        Raises ConfigError for more tokens than the encoding is defined for, and for positions of other axes than its own.
        """
        return self.head(self.vectors(tokens, positions, documents, cache, window))

    def vectors(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
        cache: Cache | None = None,
        window: int | None = None,
    ) -> Tensor:
        """What `head` makes the logits of `forward` from, (B, T, M): of a large vocabulary they are better made in parts."""
        positions = self._positions(tokens, positions, documents, cache)
        k_positions, k_documents = (positions, documents) if cache is None else cache.add_tokens(positions, documents)
        pattern = Pattern(
            positions,
            k_positions,
            causal=self.dims.causal,
            q_documents_BQ=documents,
            k_documents_BK=k_documents,
            window=window,
        )
        shared = self.encoding.prepare(k_positions if self.encoding.keys_change else positions)
        x_BTM = self.dropout(self.encoding.at_input(self.embedding(tokens), positions))
        for block in self.blocks:
            x_BTM = block(x_BTM, positions, pattern, self.encoding, shared, cache)
        return self.norm(x_BTM)

    def _positions(
        self, tokens: Tensor, positions: Tensor | None, documents: Tensor | None, cache: Cache | None
    ) -> Tensor:
        """Positions of the tokens, (B or 1, T), or (B or 1, T, axes)."""
        if cache is not None and not self.dims.causal:
            raise ValueError("A cache serves causal models only: in a bidirectional one earlier tokens see later ones.")
        if last_dimension(self.encoding.options) or (positions is not None and positions.dim() != 2):
            return check_by_axis(positions, self.encoding.options, self.dims)
        held = 0 if cache is None else cache.length
        if positions is not None:
            least, largest = map(int, positions.aminmax()) if self.longest is not None else (0, 0)
            if least < 0:  # of a table that would be one of the last rows
                raise ConfigError(
                    f"The encoding is defined for {self.longest} positions, counted from 0, and the input begins at position {least}."
                )
        elif documents is None:
            positions = torch.arange(held, held + tokens.shape[1], device=tokens.device)[None]
            largest = held + tokens.shape[1] - 1
        else:
            every = (
                documents if cache is None or not held else torch.cat([cache.documents_BC[:, :held], documents], dim=1)
            )
            positions = count_in_documents(every)[:, held:]
            largest = int(positions.max()) if self.longest is not None else 0
        if self.longest is not None and largest >= self.longest:
            raise ConfigError(
                f"The encoding is defined for {self.longest} positions and the input reaches position {largest} ({largest + 1} tokens). "
                f"Use {self.longest} tokens or fewer, or an encoding without such a limit."
            )
        return positions


def count_in_documents(documents_BT: Tensor) -> Tensor:
    """The number of earlier tokens of the same document, (B, T); 0 for padding (-1)."""
    order = torch.arange(documents_BT.shape[1], device=documents_BT.device).expand_as(documents_BT)
    sorted_documents, index = documents_BT.sort(dim=1, stable=True)
    first = torch.searchsorted(sorted_documents.contiguous(), sorted_documents.contiguous())
    return torch.zeros_like(documents_BT).scatter(1, index, order - first).masked_fill(documents_BT == -1, 0)
