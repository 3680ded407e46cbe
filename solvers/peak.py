"""The whole number with the highest rate, for many design points at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.solvers.search import AT_ONCE, Evaluate, Mask, Numbers, Points

CLOSE = 1e-3
"""Intervals that cannot hold anything better by this share are not searched."""
_TRIED = 1 << 18
"""Values over all points up to which every one is tried."""


@dataclass(frozen=True)
class Peak:
    """The whole number with the highest rate at each point.

    Attributes:
        value: the number [1].
        rate: the rate at it.
        bound: no number in the range does better; NaN where not every one was tried.
    """

    value: Numbers
    rate: Numbers
    bound: Numbers


@dataclass
class _Best:
    """The highest rate so far at each point, and the smallest value that has it."""

    rate_of: Evaluate
    value: Numbers
    rate: Numbers

    def try_values(self, points: Points, values: Numbers) -> Numbers:
        """Evaluate values and keep what is better; minus infinity where there is no rate."""
        if not len(points):
            return values
        rates = self.rate_of(points, values)
        rates = np.where(np.isnan(rates), -np.inf, rates)
        # the last of each point is its best, the smallest value on a tie
        order = np.lexsort((-values, rates, points))
        ordered = points[order]
        ends = np.append(ordered[1:] != ordered[:-1], True)
        last = order[ends]
        better = last[rates[last] > self.rate[points[last]]]
        self.rate[points[better]] = rates[better]
        self.value[points[better]] = values[better]
        return rates


@dataclass(frozen=True)
class _Intervals:
    """Ranges of values not searched yet, each of one design point."""

    point: Points
    low: Numbers
    high: Numbers
    rate_at_low: Numbers

    @property
    def ceiling(self) -> Numbers:
        """No value strictly inside has a higher rate, as rate(k) / k does not rise."""
        ceiling: Numbers = self.rate_at_low * (self.high - 1) / self.low
        return ceiling

    def kept(self, mask: Mask) -> _Intervals:
        """The intervals of a mask."""
        low, high = self.low[mask], self.high[mask]
        return _Intervals(self.point[mask], low, high, self.rate_at_low[mask])

    def split(self, middle: Numbers, rate_at_middle: Numbers) -> _Intervals:
        """Each interval as two."""
        point = np.concatenate([self.point, self.point])
        low = np.concatenate([self.low, middle])
        high = np.concatenate([middle, self.high])
        rate = np.concatenate([self.rate_at_low, rate_at_middle])
        return _Intervals(point, low, high, rate)


def peak(rate: Evaluate, high: Numbers) -> Peak:
    """Maximise a rate over 1 ... high.

    Where the ranges are short, every value is tried, which proves the best. Others are searched by
    branch and bound, which takes it that rate(k) / k does not rise with k, as of a batch that takes
    no less time than a smaller one: between a and b the rate is then at most rate(a) (b - 1) / a,
    and intervals that this rules out, up to `CLOSE`, are dropped. A mapping's rule may take less
    time for a larger batch, so this proves nothing.

    Args:
        rate: of a value at a point; NaN where it has none.
        high: largest value at each point; below 1 where there is none.

    Returns:
        The best; NaN where there is none.
    """
    count = len(high)
    best = _Best(rate, np.full(count, np.nan), np.full(count, -np.inf))
    point: Points = np.flatnonzero(high >= 1)
    shortest = point[np.argsort(high[point], kind="stable")]
    short = np.cumsum(high[shortest]) <= _TRIED
    _try_all(best, shortest[short], high)
    _branch_and_bound(best, np.sort(shortest[~short]), high)
    best_rate = np.where(np.isnan(best.value), np.nan, best.rate)
    bound = best_rate.copy()
    bound[shortest[~short]] = np.nan
    return Peak(best.value, best_rate, bound)


def _try_all(best: _Best, points: Points, high: Numbers) -> None:
    """Try every value from 1 up at some points."""
    many = high[points].astype(np.intp)
    point = np.repeat(points, many)
    before = np.repeat(np.cumsum(many) - many, many)
    place = np.arange(len(point))
    value: Numbers = np.asarray(place - before + 1, float)
    for start in range(0, len(point), AT_ONCE):
        piece = slice(start, start + AT_ONCE)
        best.try_values(point[piece], value[piece])


def _branch_and_bound(best: _Best, point: Points, high: Numbers) -> None:
    """Search some points without trying every value."""
    low, top = np.ones(len(point)), high[point]
    unsearched = _Intervals(point, low, top, best.try_values(point, low))
    best.try_values(point, top)
    while len(unsearched.point):
        ceiling = unsearched.ceiling
        inside = unsearched.high - unsearched.low > 1
        hopeless = ceiling <= best.rate[unsearched.point] * (1 + CLOSE)
        unsearched = unsearched.kept(inside & ~hopeless)
        geometric = np.round(np.sqrt(unsearched.low * unsearched.high))
        middle: Numbers = np.clip(geometric, unsearched.low + 1, unsearched.high - 1)
        rate_at_middle = best.try_values(unsearched.point, middle)
        unsearched = unsearched.split(middle, rate_at_middle)
