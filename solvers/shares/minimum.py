"""Exact minimum over a share: alpha, beta, and any knob in which a system's amounts are affine.

A span whose amounts are affine in a share x is a tree of sums and maxima of lines: a convex,
piecewise linear curve that two evaluations of the system, at x = 0 and x = 1, give at every x. The
minimum is bracketed by tangents; where they cross lies a lower bound, and once the curve meets it
the share is optimal (Kelley's cutting planes in one dimension).

Symbols: x share, f seconds, d slope.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np

from nearkv.costmodel.algebra.span import (
    Booleans,
    Leaf,
    Overlap,
    Real,
    Repeat,
    Span,
    is_same,
    total,
)

_SOLVED_GAP = 1e-12
"""Relative distance of a share's seconds from their bound that is rounding [1]."""
_MOST_STEPS = 200


@dataclass(frozen=True)
class Minimum:
    """A solved share, with a bound of what any other takes.

    Attributes:
        value: the best share [1].
        seconds: what the span takes there [s].
        bound: no share in the interval takes less; NaN where values were tried and none
            is known [s].
        low, high: the interval, cut to what fits in memory [1].
        start, end: shares between which the amounts are affine [1].
    """

    value: Real
    seconds: Real
    bound: Real
    low: Real
    high: Real
    start: Real = 0.0
    end: Real = 1.0

    def times(self, number: Real) -> Minimum:
        """The minimum of as many such spans one after the other [1]."""
        return replace(self, seconds=number * self.seconds, bound=number * self.bound)

    @property
    def gap(self) -> Real:
        """Relative distance of the choice from its bound; rounding apart it is 0 [1]."""
        excess = np.subtract(self.seconds, self.bound)
        positive = self.seconds > 0
        return excess / np.where(positive, self.seconds, 1.0)


def minimise(start: Span, end: Span, low: Real = 0.0, high: Real = 1.0) -> Minimum:
    """Find the share with the fewest seconds, exactly, for every design point at once.

    Args:
        start, end: the span at share 0 and at share 1; amounts affine between.
        low, high: the interval to choose from [1].

    Returns:
        The choice; its gap to the bound is 0 up to rounding.

    Raises:
        ValueError: the spans differ in more than their amounts.
    """
    left, right = tangent(start, end, low), tangent(start, end, high)
    at_low = left
    rising = np.greater_equal(left.d, 0)
    x = np.where(rising, left.x, right.x)
    f = np.where(rising, left.f, right.f)
    bound = f
    unsolved: Booleans = np.less(left.d, 0) & np.greater(right.d, 0)
    for _ in range(_MOST_STEPS):
        if not np.any(unsolved):
            break
        x = np.where(unsolved, _crossing(left, right, unsolved), x)
        middle = tangent(start, end, x)
        floor = left.f + left.d * (x - left.x)
        flat = np.equal(middle.d, 0)
        f = np.where(unsolved, middle.f, f)
        proven = np.where(flat, middle.f, np.minimum(floor, middle.f))
        bound = np.where(unsolved, proven, bound)
        unsolved = unsolved & ~flat & (middle.f > floor * (1 + _SOLVED_GAP))
        left = left.moved(middle, np.less(middle.d, 0))
        right = right.moved(middle, np.greater(middle.d, 0))
    # a share that rounding alone sets apart from the lowest is the lowest
    is_lowest = np.less_equal(at_low.f, f * (1 + _SOLVED_GAP))
    x, f = np.where(is_lowest, at_low.x, x), np.where(is_lowest, at_low.f, f)
    return Minimum(value=x[()], seconds=f[()], bound=bound[()], low=low, high=high)


class Tangent(NamedTuple):
    """The line that touches a convex curve at a share.

    Attributes:
        x: the share [1].
        f: the curve's value there [s].
        d: its slope there [s].
    """

    x: Real
    f: Real
    d: Real

    def moved(self, to: Tangent, where: Booleans) -> Tangent:
        """This tangent, replaced by another one at some design points."""
        pairs = zip(to, self, strict=True)
        return Tangent(*[np.where(where, new, old) for new, old in pairs])


def tangent(start: Span, end: Span, x: Real) -> Tangent:
    """Seconds of a span at a share and their slope, between two evaluations of the span.

    Args:
        start, end: the span at share 0 and at share 1, of one shape.
        x: the share; of lines that meet there, the first one's slope counts [1].

    Raises:
        ValueError: the spans differ in more than their amounts.
    """
    if type(start) is not type(end) or start.parts.keys() != end.parts.keys():
        raise ValueError("the two evaluations have trees of different shape")
    if isinstance(start, Leaf) and isinstance(end, Leaf):
        if start.resource != end.resource or not is_same(start.rate, end.rate):
            raise ValueError(f"leaf {start.resource!r} changes more than its amount")
        return _line(start.seconds, end.seconds, x)
    if isinstance(start, Repeat) and isinstance(end, Repeat):
        if not is_same(start.times, end.times):
            raise ValueError("the number of repetitions changes with the share")
        one = tangent(start.span, end.span, x)
        return Tangent(x, start.times * one.f, start.times * one.d)
    parts = [tangent(part, end.parts[name], x) for name, part in start.parts.items()]
    if isinstance(start, Overlap) and parts:
        # a queue may shrink behind a part that hides its leaves
        queues = [_line(start.busy_of(name), end.busy_of(name), x) for name in start.shared]
        return reduce(_higher, parts + queues)
    return Tangent(x, total(part.f for part in parts), total(part.d for part in parts))


def _line(start: Real, end: Real, x: Real) -> Tangent:
    """The line itself, through its seconds at share 0 and at share 1."""
    if is_same(start, end):
        return Tangent(x, start, 0.0)
    slope = end - start
    # start + x (end - start) would lose a small end behind a large start
    blended = (1 - x) * start + x * end
    # to the bit as where all design points are level
    return Tangent(x, np.where(slope == 0, start, blended), slope)


def _higher(one: Tangent, other: Tangent) -> Tangent:
    is_other = other.f > one.f
    f = np.maximum(one.f, other.f)
    d = np.where(is_other, other.d, one.d)
    return Tangent(one.x, f, d)


def _crossing(left: Tangent, right: Tangent, where: Booleans) -> Real:
    """The share where two tangents cross; there they bound the curve from below [1]."""
    width = right.x - left.x
    drop = np.where(where, right.d - left.d, 1.0)
    step = (right.f - left.f - right.d * width) / -drop
    return left.x + np.clip(step, 0.0, width)
