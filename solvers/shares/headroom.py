"""Numbers at which every memory holds what it must; where there are none, the least short.

Symbols: x share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations

import numpy as np

from nearkv.costmodel.algebra.span import Numbers, Real
from nearkv.costmodel.model.capacity import Fits

_ROUNDING = 1e-13
"""Share of a need that it may rise by from rounding alone [1]."""
_FULL = 1e-12
"""Share of a need by which it may exceed a capacity from rounding alone [1]."""


@dataclass(frozen=True)
class _Need:
    """Bytes that a memory must hold, by share, beside those it can hold.

    Attributes:
        start: needed at share 0 [B].
        rise: of the need beyond the capacity, from share 0 to share 1 [B].
        capacity: bytes available at share 0 [B].
    """

    start: Real
    rise: Real
    capacity: Real

    @property
    def excess(self) -> Real:
        """Bytes needed beyond the capacity at share 0 [B]."""
        return np.subtract(self.start, self.capacity)

    def short(self, x: Real) -> Real:
        """Bytes missing at a share, more than rounding makes [B]."""
        risen = self.start + np.multiply(x, self.rise)
        excess = np.subtract(risen, self.capacity)
        rounding = _FULL * (np.abs(self.start) + np.abs(self.rise))
        return np.where(excess > rounding, excess, 0.0)

    def interval(self, spare: Real) -> tuple[Numbers, Numbers]:
        """Lowest and highest share whose need exceeds the capacity by no more than a spare [1].

        A need that rises no faster than the capacity, and no slower, bounds nothing.
        """
        headroom = np.subtract(spare, self.excess)
        # a need that hardly rises reaches the capacity at no share: its edge is infinite
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            edge = np.divide(headroom, self.rise)
        falls, rises = np.less(self.rise, 0), np.greater(self.rise, 0)
        low = np.where(falls, edge, -np.inf)
        high = np.where(rises, edge, np.inf)
        return low, high


def feasible_share(start: Fits, end: Fits) -> tuple[Numbers, Numbers, Numbers]:
    """The shares from 0 to 1 at which every memory holds what it must.

    Args:
        start, end: needs and capacities at share 0 and at share 1; affine in between.

    Returns:
        Lowest and highest share [1], and the bytes missing there [B]; where none fits, those at
        which the memory that is shortest misses the fewest. A memory that misses or spares the same
        bytes at every share bounds nothing.
    """
    needs = []
    for name, (need, capacity) in start.tiers.items():
        need_at_end, capacity_at_end = end.tiers[name]
        rise = np.subtract(need_at_end, need) - _growth(capacity, capacity_at_end)
        # a memory that is full at every share would be short by rounding at some of them
        is_rise = np.greater(np.abs(rise), _ROUNDING * np.abs(need))
        needs.append(_Need(need, np.where(is_rise, rise, 0.0), capacity))
    low, high = _interval(needs, 0.0)
    empty = np.greater(low, high)
    if not np.any(empty):
        return low, high, _shortest(needs, low)
    x, missing = _least_short(needs)
    first, last = _interval(needs, missing)
    low = np.where(empty, np.minimum(first, x), low)
    high = np.where(empty, np.maximum(last, x), high)
    return low, high, np.where(empty, missing, _shortest(needs, low))


def _growth(start: Real, end: Real) -> Numbers:
    """Bytes that a capacity grows by; none where it stays the same, even without a limit [B]."""
    with np.errstate(invalid="ignore"):
        growth = np.subtract(end, start)
    return np.where(np.equal(start, end), 0.0, growth)


def _interval(needs: Sequence[_Need], spare: Real) -> tuple[Numbers, Numbers]:
    """Lowest and highest share from 0 to 1 that every need allows [1]."""
    low, high = np.asarray(0.0), np.asarray(1.0)
    for need in needs:
        first, last = need.interval(spare)
        low = np.maximum(low, first)
        high = np.minimum(high, last)
    return low, high


def _least_short(needs: Sequence[_Need]) -> tuple[Numbers, Numbers]:
    """The share at which the shortest memory misses the fewest bytes, and how many [1, B].

    The most that any memory misses is convex and piecewise linear in the share: it is least at an
    end, or where the shortages of two memories cross.
    """
    best: Numbers = np.asarray(0.0)
    missing = _shortest(needs, best)
    for candidate in (np.asarray(1.0), *_crossings(needs)):
        x = np.clip(candidate, 0.0, 1.0)
        short = _shortest(needs, x)
        better = np.less(short, missing)
        best = np.where(better, x, best)
        missing = np.where(better, short, missing)
    return best, missing


def _crossings(needs: Sequence[_Need]) -> Iterator[Numbers]:
    """Numbers where two memories miss equally many bytes, or one just fits."""
    for one, other in combinations(needs, 2):
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            apart = np.subtract(other.excess, one.excess)
            closing = np.subtract(one.rise, other.rise)
            crossing = np.divide(apart, closing)
        yield np.nan_to_num(crossing)


def _shortest(needs: Sequence[_Need], x: Real) -> Numbers:
    """Bytes missing in the memory that is shortest [B]."""
    missing = (need.short(x) for need in needs)
    return reduce(np.maximum, missing, np.zeros(()))
