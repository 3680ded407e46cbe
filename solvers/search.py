"""Search over one number of a design, for many design points at once: the largest, the best, the smallest.

A model is asked as `ask(point, value)`: flat arrays of the indices of design points and of the values tried,
one answer each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Points = NDArray[np.intp]
Ask = Callable[[Points, Numbers], Numbers]
Test = Callable[[Points, Numbers], NDArray[np.bool_]]

PROVEN = 1e-3
"""Intervals that cannot hold anything better by this share are not looked into."""
MOST = float(2**40)
_AT_ONCE = 1 << 16


def largest(fits: Test, points: int) -> Numbers:
    """The largest whole number that fits at each point, where every smaller one fits too.

    Args:
        fits: whether a value fits.
        points: how many design points.

    Returns:
        The number; 0 where not even 1 fits, infinite where 2^40 does.
    """
    every = np.arange(points)
    low, high = np.zeros(points), np.ones(points)
    rising = np.ones(points, bool)
    while np.any(rising):
        rising[rising] = fits(every[rising], high[rising])
        low, high = np.where(rising, high, low), np.where(rising, 2 * high, high)
        rising &= high <= MOST
    endless = low >= MOST
    while np.any(open_ := (high - low > 1) & ~endless):
        middle = np.floor((low + high) / 2)
        fit = fits(every[open_], middle[open_])
        low[open_] = np.where(fit, middle[open_], low[open_])
        high[open_] = np.where(fit, high[open_], middle[open_])
    return np.where(endless, np.inf, low)


@dataclass(frozen=True)
class Peak:
    """The whole number with the highest rate at each point.

    Attributes:
        value: it [1].
        rate: the rate there.
        bound: no number in the range does better.
    """

    value: Numbers
    rate: Numbers
    bound: Numbers


def peak(rate: Ask, high: Numbers) -> Peak:
    """Maximise a rate over 1 ... high, by branch and bound; rate(k) / k must not rise with k.

    A batch that takes no less time than a smaller one has such a rate. Between a and b it is at most
    rate(a) (b - 1) / a; intervals that this bound rules out, up to `PROVEN`, are dropped.

    Args:
        rate: of a value at a point; NaN where it has none.
        high: largest value at each point; below 1 where there is none.

    Returns:
        The best; NaN where there is none.
    """
    points = len(high)
    point: Points = np.flatnonzero(high >= 1)
    low: Numbers = np.ones(len(point))
    top: Numbers = high[point]
    value, best, bound = np.full(points, np.nan), np.full(points, -np.inf), np.full(points, -np.inf)

    def improve(at: Points, tried: Numbers) -> Numbers:
        found = rate(at, tried) if len(at) else tried
        found = np.where(np.isnan(found), -np.inf, found)
        order = np.lexsort(
            (-tried, found, at)
        )  # the last of each point is its best, the smallest on a tie
        last = order[np.append(at[order][1:] != at[order][:-1], True)] if len(order) else order
        better = last[found[last] > best[at[last]]]
        best[at[better]], value[at[better]] = found[better], tried[better]
        return found

    at_low = improve(point, low)
    improve(point, top)
    while len(point):
        ceiling = at_low * (top - 1) / low
        closed = (top - low <= 1) | (ceiling <= best[point] * (1 + PROVEN))
        np.maximum.at(bound, point[closed & (top - low > 1)], ceiling[closed & (top - low > 1)])
        point, low, top, at_low = point[~closed], low[~closed], top[~closed], at_low[~closed]
        middle: Numbers = np.clip(np.round(np.sqrt(low * top)), low + 1, top - 1)
        at_middle = improve(point, middle)
        point, at_low = np.concatenate([point, point]), np.concatenate([at_low, at_middle])
        low, top = np.concatenate([low, middle]), np.concatenate([middle, top])
    best = np.where(np.isnan(value), np.nan, best)
    return Peak(value, best, np.where(np.isnan(value), np.nan, np.maximum(bound, best)))


@dataclass(frozen=True)
class Crossing:
    """A value at which something changes sides.

    Attributes:
        point: index of the design point.
        below, above: values on either side of it, next to each other (whole numbers) or closer than
            the eye can tell; the side changes between them.
        rises: True where it is negative below and not above.
    """

    point: int
    below: float
    above: float
    rises: bool


def crossings(margin: Ask, points: int, values: Numbers, whole: bool) -> list[Crossing]:
    """Where a margin changes sign along a line of values, refined between the values it is asked at.

    Args:
        margin: of a value at a point; negative on one side, zero or positive on the other.
        points: how many design points.
        values: where to look, rising; a change and a change back between two of them go unseen.
        whole: whether only whole numbers count; else a SciPy root refines.

    Returns:
        All crossings, point by point, rising.
    """
    every = np.arange(points)
    pieces = np.array_split(values, max(points * len(values) // _AT_ONCE, 1))
    asked = [margin(np.tile(every, len(piece)), np.repeat(piece, points)) >= 0 for piece in pieces]
    at = np.concatenate(asked).reshape(len(values), points)
    step, point = np.nonzero(at[1:] != at[:-1])
    rises = at[step + 1, point]
    low, high = (_whole if whole else _root)(
        lambda index, value: np.where(rises[index], 1.0, -1.0) * margin(point[index], value),
        lambda index, value: (margin(point[index], value) >= 0) == rises[index],
        values[step],
        values[step + 1],
    )
    order = np.lexsort((low, point))
    return [Crossing(int(point[i]), float(low[i]), float(high[i]), bool(rises[i])) for i in order]


def _whole(_: Ask, over: Test, low: Numbers, high: Numbers) -> tuple[Numbers, Numbers]:
    low, high = low.copy(), high.copy()
    while np.any(open_ := high - low > 1):
        index = np.flatnonzero(open_)
        middle = np.floor((low[index] + high[index]) / 2)
        past = over(index, middle)
        low[index], high[index] = (
            np.where(past, low[index], middle),
            np.where(past, middle, high[index]),
        )
    return low, high


def _root(side: Ask, _: Test, low: Numbers, high: Numbers) -> tuple[Numbers, Numbers]:
    from scipy.optimize.elementwise import find_root

    if not len(low):
        return low, high

    def asked(value: Numbers, index: Numbers) -> Numbers:
        return side(index.astype(np.intp), value)

    found: Any = find_root(
        asked, (low, high), args=(np.arange(len(low)),), tolerances={"xrtol": 1e-12, "xatol": 0.0}
    )
    exact = side(np.arange(len(low)), found.x) == 0
    return np.where(exact, found.x, found.bracket[0]), np.where(exact, found.x, found.bracket[1])
