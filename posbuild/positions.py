"""Which position numbers the tokens of a window get: a choice beside the encoding, which is given them.

plain       0, 1, 2, ...
randomised  a sorted draw without repeats from a range far larger than the window (Ruoss et al. 2023, arXiv:2305.16843), in
            evaluation too, as in the authors' code (google-deepmind/randomized_positional_encodings): there the draw is one
            for a batch, here one for a row, and there relative encodings and ALiBi draw distances in place of positions
shape       plain, shifted by one number for each window (SHAPE: Kiyono et al. 2021, arXiv:2109.05644). The authors' code
            (butsugiri/shape a2b04a2) draws below the largest shift and evaluates at that shift, here at none
cape        plain, shifted as a whole and each by a little, then scaled: fractions (CAPE: Likhomanenko et al. 2021,
            arXiv:2106.03143). Not the context-adaptive encoding that was first named so and is now DAPE
pose        two chunks, the second shifted, so that distances to a target length are met (PoSE: Zhu et al. 2024,
            arXiv:2309.10400, section 3.2; draws as in the authors' code at 43b43b3, which also takes the second chunk's text
            from further on: here the text is the same whatever the numbers)

All but randomised are evaluated on plain numbers. Draws depend on the seed, the batch and the process alone.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from posbuild.settings import PositionsName, PositionsSettings

TRAINING_KEY, EVALUATION_KEY = 10, 11  # of the generators that draw


class Numbering:
    """The numbers of the tokens, in training and in evaluation; None stands for plain ones."""

    def __init__(self, settings: PositionsSettings, train_length: int, seed: int) -> None:
        self.settings, self.train_length, self.seed = settings, train_length, seed

    @property
    def longest(self) -> int | None:
        """The number of tokens that there are numbers for; None: any."""
        return self.settings.largest if self.settings.name is PositionsName.randomised else None

    def in_training(self, rows: int, length: int, batch: int, process: int) -> Tensor | None:
        """(rows, length), int64, or float32 under cape."""
        if self.settings.name is PositionsName.plain:
            return None
        numbers = np.random.default_rng((self.seed, TRAINING_KEY, batch, process))
        return torch.from_numpy(DRAWS[self.settings.name](self.settings, self.train_length, rows, length, numbers))

    def in_evaluation(self, rows: range, length: int) -> Tensor | None:
        """(len(rows), length) int64: a row has the same numbers in whichever batch it comes."""
        if self.settings.name is not PositionsName.randomised:
            return None
        drawn = [
            randomised(self.settings, 0, 1, length, np.random.default_rng((self.seed, EVALUATION_KEY, length, row)))
            for row in rows
        ]
        return torch.from_numpy(np.concatenate(drawn))


def randomised(
    settings: PositionsSettings, train_length: int, rows: int, length: int, numbers: np.random.Generator
) -> np.ndarray:
    drawn = [numbers.choice(settings.largest, length, replace=False, shuffle=False) for _ in range(rows)]
    return np.sort(np.stack(drawn), axis=1)


def shape(
    settings: PositionsSettings, train_length: int, rows: int, length: int, numbers: np.random.Generator
) -> np.ndarray:
    return np.arange(length) + numbers.integers(settings.shift_in(train_length) + 1, size=(rows, 1))


def cape(
    settings: PositionsSettings, train_length: int, rows: int, length: int, numbers: np.random.Generator
) -> np.ndarray:
    def between(most: float, *size: int) -> np.ndarray:
        return numbers.uniform(-most, most, size)

    shifted = np.arange(length) + between(settings.global_shift, rows, 1) + between(settings.local_shift, rows, length)
    return (shifted * np.exp(between(np.log(settings.scale), rows, 1))).astype(np.float32)


def pose(
    settings: PositionsSettings, train_length: int, rows: int, length: int, numbers: np.random.Generator
) -> np.ndarray:
    first = numbers.integers(1, (length + 1) // 2 + 1, size=(rows, 1))  # tokens of the first chunk
    skipped = numbers.integers(settings.target_in(train_length) - length + 1, size=(rows, 1))
    places = np.arange(length)
    return places + np.where(places < first, 0, skipped)


DRAWS = {
    PositionsName.randomised: randomised,
    PositionsName.shape: shape,
    PositionsName.cape: cape,
    PositionsName.pose: pose,
}
