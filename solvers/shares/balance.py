"""Exact minimum over a share: alpha, beta, and any knob in which a system's amounts are affine.

A span whose amounts are affine in a share x is a sum of maxima of lines: convex and piecewise
linear. Two evaluations of the system, at x = 0 and x = 1, give every line
(`nearkv.solvers.shares.lines`). The minimum is bracketed by tangents; where they cross lies a
lower bound, and once the span meets it the choice is optimal.

Symbols: x share, f seconds, d slope.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real, Span, total
from nearkv.solvers.shares.lines import Envelope, Line, envelope, serial_terms, summed

_ROUNDING = 1e-12
_MOST_STEPS = 200
_FEW = 3
"""Unsolved design points are looked at alone once fewer than one of so many is."""
_MOST_LINES = 512
"""An envelope of more lines is kept as a sum of those of its terms."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Choice:
    """A solved share and its certificate.

    Attributes:
        value: the best share [1].
        seconds: what the span takes there [s].
        bound: no share in the interval takes less [s].
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

    @property
    def gap(self) -> Real:
        """Relative distance of the choice from its bound; rounding apart it is 0 [1]."""
        excess = np.subtract(self.seconds, self.bound)
        positive = np.greater(self.seconds, 0)
        return excess / np.where(positive, self.seconds, 1.0)


@dataclass(frozen=True)
class _Tangent:
    """The line that touches a convex curve at a share.

    Attributes:
        x: the share [1].
        f: the curve's value there [s].
        d: its slope there [s].
    """

    x: Real
    f: Real
    d: Real

    def at(self, where: Mask) -> _Tangent:
        """This tangent at some of the design points."""
        x = _at(self.x, where)
        f = _at(self.f, where)
        d = _at(self.d, where)
        return _Tangent(x, f, d)

    def moved(self, to: _Tangent, where: Mask) -> _Tangent:
        """This tangent, replaced by another one at some design points."""
        x = np.where(where, to.x, self.x)
        f = np.where(where, to.f, self.f)
        d = np.where(where, to.d, self.d)
        return _Tangent(x, f, d)


@dataclass(frozen=True)
class _Lowest:
    """The lowest point of a curve.

    Attributes:
        x: the share [1].
        f: the curve's value there [s].
        bound: the curve is nowhere below [s].
    """

    x: NDArray[np.float64]
    f: NDArray[np.float64]
    bound: NDArray[np.float64]

    def completed(self, rest: _Lowest, where: Mask) -> _Lowest:
        """This point, with that of the design points that were left for the rest."""
        x = _filled(self.x, rest.x, where)
        f = _filled(self.f, rest.f, where)
        bound = _filled(self.bound, rest.bound, where)
        return _Lowest(x, f, bound)


class _Curve:
    """An envelope but for its `times`, with the slopes of its lines."""

    def __init__(self, curve: Envelope) -> None:
        self.lines, self.base, self.times = curve.lines, curve.base, curve.times
        self._slopes = [line.end - line.start for line in self.lines]
        self._base_slope = self.base.end - self.base.start

    def at(self, where: Mask) -> _Curve:
        """This curve at some of the design points."""
        base = _line_at(self.base, where)
        lines = [_line_at(line, where) for line in self.lines]
        times = _at(self.times, where)
        return _Curve(Envelope(base, lines, times))

    def tangent(self, x: Real) -> _Tangent:
        """Value and slope at a share; of lines that meet there, the first one's slope."""
        rest = 1 - x

        def value_of(line: Line) -> Real:
            # start + x (end - start) would lose a small end behind a large start
            return rest * line.start + x * line.end

        value = value_of(self.lines[0])
        slope = self._slopes[0]
        for line, rise in zip(self.lines[1:], self._slopes[1:], strict=True):
            other = value_of(line)
            higher = np.greater(other, value)
            slope = np.where(higher, rise, slope)
            value = np.maximum(value, other)
        value = value + value_of(self.base)
        slope = slope + self._base_slope
        return _Tangent(x, value, slope)


class _SumOfCurves:
    """Curves that add up, such as those of several kinds of layer.

    As one envelope they would have as many lines as all of theirs multiplied.
    """

    times: Real = 1.0

    def __init__(self, curves: list[_Curve]) -> None:
        self.curves = curves

    def at(self, where: Mask) -> _SumOfCurves:
        """These curves at some of the design points."""
        return _SumOfCurves([curve.at(where) for curve in self.curves])

    def tangent(self, x: Real) -> _Tangent:
        """Value and slope at a share."""
        tangents = [curve.tangent(x) for curve in self.curves]
        scaled = list(zip(self.curves, tangents, strict=True))
        value = total(curve.times * tangent.f for curve, tangent in scaled)
        slope = total(curve.times * tangent.d for curve, tangent in scaled)
        return _Tangent(x, value, slope)


def _curve(start: Span, end: Span) -> _Curve | _SumOfCurves:
    """The time between two evaluations, as one envelope, or as a sum where that has many lines."""
    terms = [envelope(*term) for term in serial_terms(start, end)]
    if prod(len(term.lines) for term in terms) > _MOST_LINES:
        return _SumOfCurves([_Curve(term) for term in terms])
    return _Curve(summed(terms))


def minimise(start: Span, end: Span, low: Real = 0.0, high: Real = 1.0) -> Choice:
    """Find the share with the fewest seconds, exactly, for every design point at once.

    Args:
        start, end: the span at share 0 and at share 1; amounts affine between.
        low, high: the interval to choose from [1].

    Returns:
        The choice; its gap to the bound is 0 up to rounding.

    Raises:
        ValueError: the spans differ in more than their amounts.
    """
    curve = _curve(start, end)
    lowest = _lowest(curve, curve.tangent(low), curve.tangent(high))
    seconds = curve.times * lowest.f
    proven = curve.times * lowest.bound
    return Choice(lowest.x[()], seconds[()], proven[()], low, high)


def _lowest(curve: _Curve | _SumOfCurves, left: _Tangent, right: _Tangent) -> _Lowest:
    """The lowest point of a curve between the points of two tangents.

    Once few design points are unsolved, only they are looked at.
    """
    rising = left.d >= 0
    best = np.where(rising, left.x, right.x)
    value = np.where(rising, left.f, right.f)
    bound = value
    unsolved: Mask = np.less(left.d, 0) & np.greater(right.d, 0)
    for _ in range(_MOST_STEPS):
        if not np.any(unsolved):
            break
        crossing = _crossing(left, right, unsolved)
        best = np.where(unsolved, crossing, best)
        middle = curve.tangent(best)
        floor = left.f + left.d * (best - left.x)
        flat = np.equal(middle.d, 0)
        lowest = np.minimum(floor, middle.f)
        lowest = np.where(flat, middle.f, lowest)
        value = np.where(unsolved, middle.f, value)
        bound = np.where(unsolved, lowest, bound)
        unsolved = unsolved & ~flat & (middle.f > floor * (1 + _ROUNDING))
        remaining = np.count_nonzero(unsolved)
        if 0 < _FEW * remaining < unsolved.size:
            tangents = (left, right, middle)
            few = [tangent.at(unsolved) for tangent in tangents]
            rest = _lowest(curve.at(unsolved), *_narrowed(*few))
            whole = _Lowest(best, value, bound)
            return whole.completed(rest, unsolved)
        left, right = _narrowed(left, right, middle)
    return _Lowest(best, value, bound)


def _narrowed(
    left: _Tangent, right: _Tangent, middle: _Tangent
) -> tuple[_Tangent, _Tangent]:
    """The two tangents, the one on whose side the middle one falls replaced by it."""
    falling = np.less(middle.d, 0)
    rising = np.greater(middle.d, 0)
    return left.moved(middle, falling), right.moved(middle, rising)


def _at(number: Real, where: Mask) -> Real:
    """A number at some of the design points, in one row [its own]."""
    if np.ndim(number) == 0:
        return number
    everywhere = np.broadcast_to(number, where.shape)
    return everywhere[where]


def _line_at(line: Line, where: Mask) -> Line:
    start = _at(line.start, where)
    end = _at(line.end, where)
    return Line(start, end)


def _filled(
    values: NDArray[np.float64], rest: NDArray[np.float64], where: Mask
) -> NDArray[np.float64]:
    """Values at all design points, of which some are those of the rest."""
    everywhere = np.broadcast_to(values, where.shape)
    whole = everywhere.copy()
    whole[where] = rest
    return whole


def _crossing(left: _Tangent, right: _Tangent, where: Mask) -> Real:
    """The share where two tangents cross; there they bound the curve from below [1]."""
    width = right.x - left.x
    drop = np.where(where, right.d - left.d, 1.0)
    step = (right.f - left.f - right.d * width) / -drop
    return left.x + np.clip(step, 0.0, width)
