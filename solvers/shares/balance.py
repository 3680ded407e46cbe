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

from nearkv.costmodel.span import Real, Span, total
from nearkv.solvers.shares.lines import Envelope, Line, envelope, serial_terms

_ROUNDING = 1e-12
_MOST_STEPS = 200
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

    def moved(self, to: _Tangent, where: Mask) -> _Tangent:
        """This tangent, replaced by another one at some design points."""
        x = np.where(where, to.x, self.x)
        f = np.where(where, to.f, self.f)
        d = np.where(where, to.d, self.d)
        return _Tangent(x, f, d)


class _Curve:
    """An envelope but for its `times`, with the slopes of its lines."""

    def __init__(self, curve: Envelope) -> None:
        self.lines, self.base, self.times = curve.lines, curve.base, curve.times
        self._slopes = [line.end - line.start for line in self.lines]
        self._base_slope = self.base.end - self.base.start

    def tangent(self, x: Real) -> _Tangent:
        """Value and slope at a share; of lines that meet there, the first one's slope."""
        at_start = not np.any(x)
        at_end = np.all(np.equal(x, 1))
        rest = 1 - x

        def value_of(line: Line) -> Real:
            if at_start:
                return line.start
            if at_end:
                return line.end
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
    return _Curve(envelope(start, end))


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
    left = curve.tangent(low)
    right = curve.tangent(high)
    rising = left.d >= 0
    best = np.where(rising, low, high)
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
        left = left.moved(middle, unsolved & (middle.d < 0))
        right = right.moved(middle, unsolved & (middle.d > 0))
    seconds = curve.times * value
    proven = curve.times * bound
    return Choice(best[()], seconds[()], proven[()], low, high)


def _crossing(left: _Tangent, right: _Tangent, where: Mask) -> Real:
    """The share where two tangents cross; there they bound the curve from below [1]."""
    width = right.x - left.x
    drop = np.where(where, right.d - left.d, 1.0)
    step = (right.f - left.f - right.d * width) / -drop
    return left.x + np.clip(step, 0.0, width)
