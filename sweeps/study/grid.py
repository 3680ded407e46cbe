"""A sparse mesh of design points: a term costs only the axes it depends on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import InputError

Box = tuple[slice, ...]
"""A rectangular piece of a grid, one slice per axis."""

MOST_AXES = 56
"""Arrays have 64 dimensions; solvers add some of their own to those of a grid."""


@dataclass(frozen=True)
class Axis:
    """One dimension of a grid.

    Attributes:
        name: column name.
        values: numbers along the axis, or indices into `labels`.
        labels: names, where the axis is one of names.
    """

    name: str
    values: NDArray[np.float64]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grid:
    """The product of axes, in row-major order; never materialised as a whole."""

    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        """Refuse more axes than arrays have dimensions.

        Raises:
            InputError: too many axes.
        """
        count = len(self.axes)
        if count > MOST_AXES:
            advice = (
                "write the numbers that do not vary into a platform, --platform FILE.toml"
            )
            raise InputError(
                f"{count} axes are more than the {MOST_AXES} of a grid; {advice}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values along each axis."""
        return tuple(len(axis.values) for axis in self.axes)

    @property
    def size(self) -> int:
        """Number of design points."""
        return math.prod(self.shape)

    @property
    def whole(self) -> Box:
        """The box that is the whole grid."""
        return tuple(slice(0, n) for n in self.shape)

    def boxes(self, most: int) -> Iterator[Box]:
        """Cut the grid into boxes of at most so many points, consecutive in row-major order."""
        cut = self._first_whole_axis(most)
        tail = self.whole[cut:]
        if cut == 0:
            yield tail
            return
        inner = math.prod(self.shape[cut:])
        for outer in np.ndindex(*self.shape[: cut - 1]):
            head = tuple(slice(i, i + 1) for i in outer)
            for piece in _even_pieces(self.shape[cut - 1], max(most // inner, 1)):
                yield (*head, piece, *tail)

    def _first_whole_axis(self, most: int) -> int:
        """The first of the innermost axes whose points all fit one box together."""
        points, axis = 1, len(self.shape)
        while axis > 0 and points * self.shape[axis - 1] <= most:
            axis -= 1
            points *= self.shape[axis]
        return axis

    def mesh(self, box: Box) -> dict[str, NDArray[np.float64]]:
        """Values of every axis in a box, each shaped to broadcast along its own dimension."""
        mesh: dict[str, NDArray[np.float64]] = {}
        for place, (axis, piece) in enumerate(zip(self.axes, box, strict=True)):
            shape = [1] * len(self.axes)
            shape[place] = -1
            mesh[axis.name] = axis.values[piece].reshape(shape)
        return mesh


def shape_of(box: Box) -> tuple[int, ...]:
    """Number of values of a box along each axis."""
    return tuple(piece.stop - piece.start for piece in box)


def _even_pieces(length: int, most: int) -> Iterator[slice]:
    """Cut an axis into pieces of equal length, with no small one at the end."""
    pieces = math.ceil(length / most)
    width = math.ceil(length / pieces)
    for start in range(0, length, width):
        yield slice(start, min(start + width, length))
