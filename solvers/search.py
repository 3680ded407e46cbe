"""Search over one number of a design, for many design points at once.

A model is evaluated as `evaluate(points, values)`: flat arrays of the indices of design points and
of the values tried, one answer each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Points = NDArray[np.intp]
Mask = NDArray[np.bool_]
Evaluate = Callable[[Points, Numbers], Numbers]
Test = Callable[[Points, Numbers], Mask]

CLOSE = 1e-12
"""Relative distance of the two sides of an edge."""
MOST = float(2**40)
AT_ONCE = 1 << 16
"""Values that are evaluated together."""
_MOST_STEPS = 200


def largest(fits: Test, count: int) -> Numbers:
    """The largest whole number that fits at each point, where every smaller one fits too.

    Args:
        fits: whether a value fits.
        count: how many design points.

    Returns:
        The number; 0 where not even 1 fits, infinite where 2^40 does.
    """
    points = np.arange(count)
    low = np.zeros(count)
    high = np.ones(count)
    rising = np.ones(count, bool)
    while np.any(rising):
        rising[rising] = fits(points[rising], high[rising])
        low = np.where(rising, high, low)
        high = np.where(rising, 2 * high, high)
        rising &= high <= MOST
    endless = low >= MOST
    while np.any(unsolved := (high - low > 1) & ~endless):
        middle = np.floor((low + high) / 2)
        fit = fits(points[unsolved], middle[unsolved])
        tried = middle[unsolved]
        below, above = low[unsolved], high[unsolved]
        low[unsolved] = np.where(fit, tried, below)
        high[unsolved] = np.where(fit, above, tried)
    return np.where(endless, np.inf, low)


@dataclass(frozen=True)
class Crossing:
    """A value at which something changes sides.

    Attributes:
        point: index of the design point.
        below, above: values on either side of it, next to each other (whole numbers) or closer
            than the eye can tell; the side changes between them.
        rises: True where it is negative below and not above.
    """

    point: int
    below: float
    above: float
    rises: bool


def crossings(margin: Evaluate, count: int, values: Numbers, whole: bool) -> list[Crossing]:
    """Where a margin changes sign along a line of values, refined between neighbours.

    A margin that stays at zero over a range (a plateau) changes sign where the range begins or
    ends: what is searched is the edge of `margin >= 0`, not a zero.

    Args:
        margin: of a value at a point; negative on one side, zero or positive on the other.
        count: how many design points.
        values: where to look, rising; a change and a change back between two of them go unseen.
        whole: whether only whole numbers count.

    Returns:
        All crossings, point by point, rising.
    """
    reached = _reached(margin, count, values)
    step, point = np.nonzero(reached[1:] != reached[:-1])
    rises = reached[step + 1, point]

    def past(index: Points, value: Numbers) -> Mask:
        above = margin(point[index], value) >= 0
        beyond: Mask = above == rises[index]
        return beyond

    low, high = _bisect(past, values[step], values[step + 1], whole)
    table = []
    for i in np.lexsort((low, point)):
        crossing = Crossing(int(point[i]), float(low[i]), float(high[i]), bool(rises[i]))
        table.append(crossing)
    return table


def _reached(margin: Evaluate, count: int, values: Numbers) -> Mask:
    """Whether the margin is not negative, values by points."""
    points = np.arange(count)
    pieces = max(count * len(values) // AT_ONCE, 1)
    signs = []
    for piece in np.array_split(values, pieces):
        tiled = np.tile(points, len(piece))
        repeated = np.repeat(piece, count)
        signs.append(margin(tiled, repeated) >= 0)
    return np.concatenate(signs).reshape(len(values), count)


def _bisect(
    past: Test, low: Numbers, high: Numbers, whole: bool
) -> tuple[Numbers, Numbers]:
    """Values on either side of an edge: neighbouring whole numbers, or closer than `CLOSE`."""
    low, high = low.copy(), high.copy()
    for _ in range(_MOST_STEPS):
        width = 1.0 if whole else CLOSE * np.abs(high)
        index = np.flatnonzero(high - low > width)
        if not len(index):
            break
        below, above = low[index], high[index]
        middle = (below + above) / 2
        middle = np.floor(middle) if whole else middle
        beyond = past(index, middle)
        low[index] = np.where(beyond, below, middle)
        high[index] = np.where(beyond, middle, above)
    return low, high
