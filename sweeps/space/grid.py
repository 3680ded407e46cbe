"""A sparse mesh of design points: axes are kept apart, so a term costs only the axes it depends on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Box = tuple[slice, ...]
"""A rectangular piece of a grid, one slice an axis."""


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
    """The product of some axes, in row-major order; never materialised as a whole."""

    axes: tuple[Axis, ...]

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
        inner, cut = 1, len(self.shape)
        while cut > 0 and inner * self.shape[cut - 1] <= most:
            cut -= 1
            inner *= self.shape[cut]
        tail = tuple(slice(0, n) for n in self.shape[cut:])
        if cut == 0:
            yield tail
            return
        pieces = math.ceil(self.shape[cut - 1] / max(most // inner, 1))
        width = math.ceil(
            self.shape[cut - 1] / pieces
        )  # pieces of equal size, no small one at the end
        for outer in np.ndindex(*self.shape[: cut - 1]):
            head = tuple(slice(i, i + 1) for i in outer)
            for start in range(0, self.shape[cut - 1], width):
                yield (*head, slice(start, min(start + width, self.shape[cut - 1])), *tail)

    def mesh(self, box: Box) -> dict[str, NDArray[np.float64]]:
        """Values of every axis in a box, each shaped to broadcast along its own dimension."""
        return {
            axis.name: axis.values[piece].reshape(
                [-1 if i == k else 1 for i in range(len(self.axes))]
            )
            for k, (axis, piece) in enumerate(zip(self.axes, box, strict=True))
        }
