"""Masked tokens (Devlin et al. 2019, arXiv:1810.04805, section 3.1): what is hidden, what stands in its place, and what is to be found.

The mask token has an id of its own, the first beyond those of the data, so no text holds it and it is never a target.
Everything is a function of the numbers that are handed in: whoever draws them from the seed and the step has the same
masks for every scheme.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from posbuild.settings import ObjectiveSettings

NO_TARGET = -100  # the label of a token that is not scored: what torch's cross-entropy leaves out


class Masked(NamedTuple):
    """A batch of masked windows, int64.

    inputs  (B, T): the tokens that the model sees
    labels  (B, T): the token to be found at each place, NO_TARGET where nothing is to be found
    """

    inputs: torch.Tensor
    labels: torch.Tensor


def pick(numbers: np.ndarray, count: int) -> np.ndarray:
    """(N, T) bool: in each row the places of the `count` smallest numbers (N, T).

    Every row has as many, so the mean over a batch is that of its equal parts.
    """
    order = np.argsort(numbers, axis=1, kind="stable")[:, :count]
    picked = np.zeros(numbers.shape, dtype=bool)
    np.put_along_axis(picked, order, True, axis=1)
    return picked


def mask(tokens: np.ndarray, objective: ObjectiveSettings, vocabulary: int, numbers: np.ndarray) -> Masked:
    """A batch for training.

    tokens      (B, T), of any integer type, ids below `vocabulary`, which is the id of the mask token
    numbers     (B, 3, T) uint64, uniform: which tokens are picked, what becomes of each, and the random ones
    """
    picked, fate = pick(numbers[:, 0], objective.scored(tokens.shape[1])), unit(numbers[:, 1])
    tokens = tokens.astype(np.int64)
    hidden = picked & (fate < objective.mask_replace_prob)
    other = picked & ~hidden & (fate < objective.mask_replace_prob + objective.random_replace_prob)
    random = (numbers[:, 2] % np.uint64(vocabulary)).astype(np.int64)
    inputs = np.where(hidden, vocabulary, np.where(other, random, tokens))
    labels = np.where(picked, tokens, NO_TARGET)
    return Masked(torch.from_numpy(inputs), torch.from_numpy(labels))


def hide(tokens: np.ndarray, hidden: np.ndarray, scored: np.ndarray, vocabulary: int) -> Masked:
    """A batch for evaluation: the mask token stands for every hidden token, the scored ones among them.

    Nothing is left as it is or replaced by another token there: a token that stays would be its own answer.
    tokens (B, T) of any integer type; hidden, scored (B, T) bool
    """
    tokens = tokens.astype(np.int64)
    inputs = np.where(hidden | scored, vocabulary, tokens)
    return Masked(torch.from_numpy(inputs), torch.from_numpy(np.where(scored, tokens, NO_TARGET)))


def unit(numbers: np.ndarray) -> np.ndarray:
    """uint64 as float64 in [0, 1), by their 53 highest bits."""
    return (numbers >> np.uint64(11)) * 2.0**-53
