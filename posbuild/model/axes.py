"""Positions of several axes: an image has rows and columns where a text has a count of tokens."""

from __future__ import annotations

from torch import Tensor

from posbuild.declaration import Dims, Options
from posbuild.errors import ConfigError


def last_dimension(options: Options) -> tuple[int, ...]:
    """What the shape of positions has after (B or 1, T): nothing for one axis, else the number of axes."""
    axes = options.number_of_axes()
    return () if axes == 1 else (axes,)


def check_by_axis(positions: Tensor | None, options: Options, dims: Dims) -> Tensor:
    """The positions, (B or 1, T, axes). Raises ConfigError for none, for another shape, and for any that the scheme has not.

    They cannot be counted: the number of a token says nothing of its row and column.
    """
    axes = last_dimension(options)
    if positions is None or positions.dim() != 2 + len(axes) or positions.shape[2:] != axes:
        shape = ", ".join(["B or 1", "T", *map(str, axes)])
        given = "None" if positions is None else tuple(positions.shape)
        raise ConfigError(f"The encoding needs positions of the shape ({shape}), and those given have {given}.")
    sizes = options.sizes(dims)
    if sizes is not None:
        by_axis = positions.reshape(-1, len(sizes))
        least, most = ([int(bound) for bound in each] for each in (by_axis.amin(0), by_axis.amax(0)))
        if min(least) < 0 or any(largest >= size for largest, size in zip(most, sizes, strict=True)):
            raise ConfigError(
                f"The encoding is defined for {' x '.join(map(str, sizes))} positions, counted from 0, and those given reach from "
                f"{least} to {most}. Give positions within, or choose a scheme without such a limit."
            )
    return positions
