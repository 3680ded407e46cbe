"""Least values of tables over prefixes and ranges of units, for many ranges at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def prefix_minimum(table: Array, top: Array) -> Array:
    """Least of table[0..top] at each point; infinite where top is -1.

    Args:
        table: (points or 1, units).
        top: (points, ...), last unit that counts [1].
    """
    least = np.minimum.accumulate(table, 1)
    shape = (len(table), 1)
    nothing = np.full(shape, np.inf)
    least = np.concatenate([nothing, least], 1)
    # one index into all rows, which takes a third of the time of an index of rows and one of units
    width = least.shape[1]
    first = width * _points(table) + 1
    place = top + first
    values: Array = least.ravel().take(place)
    return values


def range_minimum(table: Array, low: Array, top: Array) -> Array:
    """Least of table[low..top] at each point by a sparse table; infinite where that is empty.

    Args:
        table: (points or 1, units).
        low, top: (points, ...), first and last unit that count [1].
    """
    sparse = _sparse_table(table)
    low, top = np.broadcast_arrays(low, top)
    empty = low > top
    width = np.where(empty, 1, top - low + 1)
    level = np.frexp(width.astype(float))[1] - 1
    point = _points(table)
    first = np.where(empty, 0, low)
    last = np.where(empty, 0, top - 2**level + 1)
    from_low = sparse[point, level, first]
    to_top = sparse[point, level, last]
    least = np.minimum(from_low, to_top)
    return np.where(empty, np.inf, least)


def _points(table: Array) -> Array:
    """Index of each point, before two axes; one row of a table serves all points."""
    point = np.arange(len(table))
    return point[:, None, None]


def _sparse_table(table: Array) -> Array:
    """Least of every 1, 2, 4, 8, ... neighbouring units: (points, levels, units)."""
    levels = [table]
    while 2 ** len(levels) <= table.shape[1]:
        half = 2 ** (len(levels) - 1)
        before = levels[-1]
        end = np.full((len(table), half), np.inf)
        later = np.append(before[:, half:], end, axis=1)
        least = np.minimum(before, later)
        levels.append(least)
    return np.stack(levels, 1)
