"""Search over one number of a design, for many design points at once.

A model is evaluated as `evaluate(points, values)`: flat arrays of the indices of design points and
of the values tried, one answer each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Indices, Numbers

Evaluate = Callable[[Indices, Numbers], Numbers]
Test = Callable[[Indices, Numbers], Booleans]

CLOSE_VALUES = 1e-12
"""Relative distance of the two sides of an edge."""
MOST_VALUE = float(2**40)
VALUES_AT_ONCE = 1 << 16
"""Values that are evaluated together."""
_MOST_STEPS = 200
_WORTH_TRYING = 1e-3
"""Share by which an interval may hold a higher rate, if it is to be searched."""
MOST_TRIED = 1 << 18
"""Values over all points up to which every one is tried for the highest rate."""


def largest(fits: Test, count: int, first: Numbers | float = 1.0) -> Numbers:
    """The largest whole number that fits at each point, where every smaller one fits too.

    Args:
        fits: whether a value fits.
        count: how many design points.
        first: the smallest number that is asked for, at each point.

    Returns:
        The number; 0 where not even the first fits, infinite where 2^40 does.
    """
    points = np.arange(count)
    low = np.zeros(count)
    high = np.ones(count) * first
    rising = np.ones(count, bool)
    while np.any(rising):
        rising[rising] = fits(points[rising], high[rising])
        low = np.where(rising, high, low)
        high = np.where(rising, 2 * high, high)
        rising &= high <= MOST_VALUE
    endless = low >= MOST_VALUE
    high = np.where(endless, low, high)
    low, _ = _bisect(lambda index, value: ~fits(index, value), low, high, whole=True)
    return np.where(endless, np.inf, low)


@dataclass(frozen=True)
class Crossing:
    """Two values between which a state changes.

    Attributes:
        point: index of the design point.
        below, above: the values, close to each other or neighbouring whole numbers.
        before, after: the state at them.
    """

    point: int
    below: float
    above: float
    before: float
    after: float

    @property
    def rises(self) -> bool:
        """True if the state is larger above."""
        return self.after > self.before


def looked_at(state: Evaluate, count: int, values: Numbers, whole: bool) -> Numbers:
    """Answers of all values at all points, some asked at once: (values, points).

    Whole numbers are asked octave by octave, as what is tried for each grows with the largest.

    Args:
        state, count, values, whole: as `crossings` takes them.
    """
    points = np.arange(count)
    octaves = np.flatnonzero(np.diff(np.floor(np.log2(values)))) + 1 if whole else ()
    answers = []
    for octave in np.split(values, octaves):
        pieces = max(count * len(octave) // VALUES_AT_ONCE, 1)
        for piece in np.array_split(octave, pieces):
            tiled, repeated = np.tile(points, len(piece)), np.repeat(piece, count)
            answers.append(state(tiled, repeated))
    return np.concatenate(answers).reshape(len(values), count)


def crossings(
    state: Evaluate,
    count: int,
    values: Numbers,
    whole: bool,
    known_at: Numbers | None = None,
) -> list[Crossing]:
    """Changes of a state along a line of values, refined between neighbours.

    Args:
        state: of a value at a point, one of a few numbers, such as whether a target is reached; NaN
            at values that a point does not have, which are passed over.
        count: how many design points.
        values: where to look, rising; a change and a change back between two of them go unseen.
        whole: whether only whole numbers count.
        known_at: the state at all of these, where that is known: (values, points).

    Returns:
        All crossings, point by point, rising.
    """
    looked = looked_at(state, count, values, whole) if known_at is None else known_at
    earlier = _latest_known(looked)[:-1]
    before = np.take_along_axis(looked, np.maximum(earlier, 0), axis=0)
    known = (earlier >= 0) & ~np.isnan(looked[1:])
    step, point = np.nonzero(known & (looked[1:] != before))
    ends = np.array(
        [
            values[earlier[step, point]],
            values[step + 1],
            before[step, point],
            looked[step + 1, point],
        ]
    )
    # between others lie values that have been looked at and that the point does not have
    close = earlier[step, point] == step
    found = _listed(point[~close], ends[:, ~close])
    found += _refined(state, point[close], ends[:, close], whole)
    return sorted(found, key=lambda crossing: (crossing.point, crossing.below))


def _refined(state: Evaluate, point: Indices, ends: Numbers, whole: bool) -> list[Crossing]:
    """All changes between two values: the first of each interval, then those behind it.

    Args:
        ends: (both values and their states, intervals).
    """
    if not len(point):
        return []
    low, high, first, last = ends
    below, above = _bisect(
        lambda index, value: state(point[index], value) != first[index], low, high, whole
    )
    after = state(point, above)
    found = _listed(point, np.array([below, above, first, after]))
    more = after != last
    rest = np.array([above, high, after, last])[:, more]
    return found + _refined(state, point[more], rest, whole)


def _listed(point: Indices, ends: Numbers) -> list[Crossing]:
    rows = zip(point.tolist(), *ends.tolist(), strict=True)
    return [Crossing(*row) for row in rows]


def _latest_known(looked: Numbers) -> Indices:
    """Place of the last number at or before each place of a column; -1 where there is none."""
    places = np.arange(len(looked))[:, None]
    known = np.where(np.isnan(looked), -1, places)
    latest: Indices = np.maximum.accumulate(known, axis=0)
    return latest


def _bisect(
    past: Test, low: Numbers, high: Numbers, whole: bool
) -> tuple[Numbers, Numbers]:
    """Values beside an edge: neighbouring whole numbers, or closer than `CLOSE_VALUES`."""
    low, high = low.copy(), high.copy()
    for _ in range(_MOST_STEPS):
        width = 1.0 if whole else CLOSE_VALUES * np.abs(high)
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


def peak(
    rate: Evaluate,
    high: Numbers,
    at_once: int = VALUES_AT_ONCE,
    most_tried: int = MOST_TRIED,
) -> Peak:
    """Maximise a rate over 1 ... high.

    Where the ranges are short, every value is tried, which proves the best. In others intervals are
    dropped, on the assumption that rate(k) / k does not rise with k, as of a batch that takes no
    less time than a smaller one: between a and b the rate is then at most rate(a) (b - 1) / a, and
    an interval that this puts at most `_WORTH_TRYING` above the best goes. A mapping's rule may
    take less time for a larger batch, so what is found there has no bound.

    Args:
        rate: of a value at a point; NaN where it has none.
        high: largest value at each point; below 1 where there is none.
        at_once: values that are evaluated together where each is tried.
        most_tried: values over all points up to which every one is tried.

    Returns:
        The best; NaN where there is none.
    """
    count = len(high)
    best, value = np.full(count, -np.inf), np.full(count, np.inf)

    def tried(points: Indices, values: Numbers) -> Numbers:
        """Rates of some values, of which the best are kept; minus infinity where there is none."""
        cuts = range(at_once, len(points), at_once)
        pieces = zip(np.split(points, cuts), np.split(values, cuts), strict=True)
        rates = np.concatenate([rate(*piece) for piece in pieces])
        rates = np.where(np.isnan(rates), -np.inf, rates)
        before = best.copy()
        np.maximum.at(best, points, rates)
        value[best > before] = np.inf
        # the smallest value on a tie
        is_best = (rates == best[points]) & (rates > -np.inf)
        np.minimum.at(value, points[is_best], values[is_best])
        return rates

    point: Indices = np.flatnonzero(high >= 1)
    shortest = point[np.argsort(high[point], kind="stable")]
    tries_all = np.zeros(count, bool)
    tries_all[shortest] = np.cumsum(high[shortest]) <= most_tried
    low, top = np.ones(len(point)), high[point]
    ends = np.concatenate([point, point]), np.concatenate([low, top])
    at_low = tried(*ends)[: len(point)] if len(point) else low
    while len(point):
        # no value between has a higher rate, as rate(k) / k does not rise
        # where the lower end has no rate nothing is known
        finite = np.where(np.isinf(at_low), 0.0, at_low)
        ceiling = np.where(np.isinf(at_low), np.inf, finite * (top - 1) / low)
        hopeless = ceiling <= best[point] * (1 + _WORTH_TRYING)
        kept = (top - low > 1) & (tries_all[point] | ~hopeless)
        point, low, top, at_low = point[kept], low[kept], top[kept], at_low[kept]
        if not len(point):
            break
        middle: Numbers = np.clip(np.round(np.sqrt(low * top)), low + 1, top - 1)
        at_middle = tried(point, middle)
        point = np.concatenate([point, point])
        low, top = np.concatenate([low, middle]), np.concatenate([middle, top])
        at_low = np.concatenate([at_low, at_middle])
    best[np.isinf(value)] = value[np.isinf(value)] = np.nan
    return Peak(value, best, np.where(tries_all, best, np.nan))
