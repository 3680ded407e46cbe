"""Exact minimum over a share: alpha, beta, and any knob in which a system's amounts are affine.

A span whose amounts are affine in a share x is a tree of sums and maxima of lines: a convex,
piecewise linear curve that two evaluations of the system, at x = 0 and x = 1, give at every x. The
minimum is bracketed by tangents; where they cross lies a lower bound, and once the curve meets it
the share is optimal (Kelley's cutting planes in one dimension).

Symbols: x share, f seconds, d slope.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.blend import is_same
from nearkv.costmodel.algebra.overlap import Overlap
from nearkv.costmodel.algebra.span import Leaf, Real, Repeat, Span, total

Mask = NDArray[np.bool_]

_ROUNDING = 1e-12
_MOST_STEPS = 200
_FEW = 3
"""Once fewer than one design point in this many is unsolved, those are looked at alone."""


@dataclass(frozen=True)
class Choice:
    """A solved share and its certificate.

    Attributes:
        value: the best share [1].
        seconds: what the span takes there [s].
        bound: no share in the interval takes less; NaN where values were tried and nothing is
            proven [s].
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
    curve = curve_between(start, end)
    lowest = _lowest(curve, curve.tangent(low), curve.tangent(high))
    return Choice(
        value=lowest.x[()],
        seconds=lowest.f[()],
        bound=lowest.bound[()],
        low=low,
        high=high,
    )


# --- the curve ----------------------------------------------------------------------------------


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

    def at(self, where: Mask) -> Tangent:
        """This tangent at some of the design points."""
        return Tangent(*[_at(number, where) for number in self])

    def moved(self, to: Tangent, where: Mask) -> Tangent:
        """This tangent, replaced by another one at some design points."""
        pairs = zip(to, self, strict=True)
        return Tangent(*[np.where(where, new, old) for new, old in pairs])


class Curve(Protocol):
    """Seconds by share, convex and piecewise linear."""

    def tangent(self, x: Real) -> Tangent:
        """Value and slope at a share; of lines that meet there, the first one's slope."""

    def at(self, where: Mask) -> Curve:
        """This curve at some of the design points, in one row."""


@dataclass(frozen=True)
class Line:
    """Affine seconds.

    Attributes:
        start: at share 0 [s].
        end: at share 1; the same object where nothing changes with the share [s].
    """

    start: Real
    end: Real

    @property
    def is_level(self) -> bool:
        """Whether the share changes nothing."""
        return self.start is self.end

    @cached_property
    def slope(self) -> Real:
        """Rise from share 0 to share 1 [s]."""
        return self.end - self.start

    def tangent(self, x: Real) -> Tangent:
        """The line itself."""
        if self.is_level:
            return Tangent(x, self.start, 0.0)
        # start + x (end - start) would lose a small end behind a large start
        blended = (1 - x) * self.start + x * self.end
        # to the bit as where all design points are level
        at_x = np.where(np.equal(self.slope, 0), self.start, blended)
        return Tangent(x, at_x, self.slope)

    def covers(self, other: Line) -> bool:
        """Whether another line is nowhere above this one, at any share or design point."""
        at_start = np.all(np.greater_equal(self.start, other.start))
        return bool(at_start and np.all(np.greater_equal(self.end, other.end)))

    def repeated(self, times: Real) -> Line:
        """This line a number of times in a row."""
        start = times * self.start
        return Line(start, start if self.is_level else times * self.end)

    def at(self, where: Mask) -> Line:
        """This line at some of the design points."""
        start = _at(self.start, where)
        return Line(start, start if self.is_level else _at(self.end, where))


@dataclass(frozen=True)
class Sum:
    """Curves one after the other.

    Attributes:
        line: the sum of those that are affine.
        bent: the others.
    """

    line: Line
    bent: list[Curve]

    def tangent(self, x: Real) -> Tangent:
        """Values and slopes add up."""
        tangents = [curve.tangent(x) for curve in (*self.bent, self.line)]
        return Tangent(
            x, total(one.f for one in tangents), total(one.d for one in tangents)
        )

    def at(self, where: Mask) -> Sum:
        """These curves at some of the design points."""
        bent = [curve.at(where) for curve in self.bent]
        return Sum(self.line.at(where), bent)


@dataclass(frozen=True)
class Highest:
    """Curves at the same time, of which the highest counts."""

    parts: list[Curve]

    def tangent(self, x: Real) -> Tangent:
        """That of the highest."""
        return reduce(_higher, [part.tangent(x) for part in self.parts])

    def at(self, where: Mask) -> Highest:
        """These curves at some of the design points."""
        return Highest([part.at(where) for part in self.parts])


@dataclass(frozen=True)
class Repeated:
    """A curve several times in a row."""

    times: Real
    part: Curve

    def tangent(self, x: Real) -> Tangent:
        """Times value and times slope."""
        _, f, d = self.part.tangent(x)
        return Tangent(x, self.times * f, self.times * d)

    def at(self, where: Mask) -> Repeated:
        """This curve at some of the design points."""
        return Repeated(_at(self.times, where), self.part.at(where))


def curve_between(start: Span, end: Span) -> Curve:
    """Seconds of a span at every share between two evaluations of it.

    Args:
        start, end: the span at share 0 and at share 1, of one shape.

    Raises:
        ValueError: the spans differ in more than their amounts.
    """
    if type(start) is not type(end) or start.parts.keys() != end.parts.keys():
        raise ValueError("the two evaluations have trees of different shape")
    if isinstance(start, Leaf) and isinstance(end, Leaf):
        return _of_leaf(start, end)
    if isinstance(start, Repeat) and isinstance(end, Repeat):
        return _of_repeat(start, end)
    parts = [curve_between(part, end.parts[name]) for name, part in start.parts.items()]
    if isinstance(start, Overlap):
        # a queue may shrink behind a part that hides its leaves
        busy = [(start.busy_of(name), end.busy_of(name)) for name in start.shared]
        parts += [_line(*ends) for ends in busy]
    if all(isinstance(part, Line) and part.is_level for part in parts):
        return Line(start.seconds, start.seconds)
    return _highest(parts) if isinstance(start, Overlap) else _sum(parts)


def _of_leaf(start: Leaf, end: Leaf) -> Line:
    if start.resource != end.resource or not is_same(start.rate, end.rate):
        raise ValueError(f"leaf {start.resource!r} changes more than its amount")
    return Line(start.seconds, start.seconds if is_unchanged(start, end) else end.seconds)


def _line(start: Real, end: Real) -> Line:
    return Line(start, start if is_same(start, end) else end)


def is_unchanged(start: Leaf, end: Leaf) -> bool:
    """Whether a leaf has the same amount in two evaluations."""
    return is_same(start.amount, end.amount)


def _of_repeat(start: Repeat, end: Repeat) -> Curve:
    if not is_same(start.times, end.times):
        raise ValueError("the number of repetitions changes with the share")
    part = curve_between(start.span, end.span)
    if isinstance(part, Line):
        return Line(start.seconds, start.seconds if part.is_level else end.seconds)
    if lines := _lines(part):
        return Highest([line.repeated(start.times) for line in lines])
    return Repeated(start.times, part)


def _lines(curve: Curve) -> list[Line]:
    """Lines of which the highest is the curve; none where there is a sum of several maxima."""
    if isinstance(curve, Line):
        return [curve]
    if isinstance(curve, Highest):
        lines = [part for part in curve.parts if isinstance(part, Line)]
        return lines if len(lines) == len(curve.parts) else []
    if isinstance(curve, Sum) and len(curve.bent) == 1:
        return [_added([curve.line, line]) for line in _lines(curve.bent[0])]
    return []


def _highest(parts: list[Curve]) -> Curve:
    """The highest of curves, without lines that never count."""
    opened: list[Curve] = []
    for part in parts:
        opened += part.parts if isinstance(part, Highest) else _lines(part) or [part]
    lines = [curve for curve in opened if isinstance(curve, Line)]
    bent = [curve for curve in opened if not isinstance(curve, Line)]
    highest = [*_non_dominated(lines), *bent]
    return Highest(highest)


def _non_dominated(lines: list[Line]) -> list[Line]:
    """Lines of which each is the highest somewhere; those that are zero at one end are one line."""
    falling = [line.start for line in lines if not np.any(line.end)]
    sloped = [line for line in lines if np.any(line.end)]
    rising = [line.end for line in sloped if not np.any(line.start)]
    merged: list[Line] = []
    if rising:
        merged.append(Line(0.0, reduce(np.maximum, rising)))
    if falling:
        merged.append(Line(reduce(np.maximum, falling), 0.0))
    kept: list[Line] = []
    for line in merged + [line for line in sloped if np.any(line.start)]:
        if not any(other.covers(line) for other in kept):
            kept = [other for other in kept if not line.covers(other)]
            kept.append(line)
    return kept


def _sum(parts: list[Curve]) -> Curve:
    """The sum of curves; one line where all of them are."""
    lines: list[Line] = []
    bent: list[Curve] = []
    for part in parts:
        if isinstance(part, Line):
            lines.append(part)
        elif isinstance(part, Sum):
            lines.append(part.line)
            bent += part.bent
        else:
            bent.append(part)
    line = _added(lines)
    return Sum(line, bent) if bent else line


def _added(lines: list[Line]) -> Line:
    """The sum of lines; what stays the same is added up once, not at both ends."""
    level = [line.start for line in lines if line.is_level]
    sloped = [line for line in lines if not line.is_level]
    if not sloped:
        seconds = total(level)
        return Line(seconds, seconds)
    common = [total(level)] if level else []
    start = total([*common, *[line.start for line in sloped]])
    end = total([*common, *[line.end for line in sloped]])
    return Line(start, end)


def _higher(one: Tangent, other: Tangent) -> Tangent:
    is_other = np.greater(other.f, one.f)
    f = np.maximum(one.f, other.f)
    d = np.where(is_other, other.d, one.d)
    return Tangent(one.x, f, d)


# --- its minimum --------------------------------------------------------------------------------


class _Lowest(NamedTuple):
    """The lowest point of a curve.

    Attributes:
        x: the share [1].
        f: the curve's value there [s].
        bound: the curve is nowhere below [s].
    """

    x: NDArray[np.float64]
    f: NDArray[np.float64]
    bound: NDArray[np.float64]


def _lowest(curve: Curve, left: Tangent, right: Tangent) -> _Lowest:
    """The lowest point of a curve between the points of two tangents."""
    rising = np.greater_equal(left.d, 0)
    x = np.where(rising, left.x, right.x)
    f = np.where(rising, left.f, right.f)
    bound = f
    unsolved: Mask = np.less(left.d, 0) & np.greater(right.d, 0)
    for _ in range(_MOST_STEPS):
        remaining = np.count_nonzero(unsolved)
        if not remaining:
            break
        if _FEW * remaining < unsolved.size:
            return _completed(
                _Lowest(x, f, bound),
                _lowest(curve.at(unsolved), left.at(unsolved), right.at(unsolved)),
                unsolved,
            )
        x = np.where(unsolved, _crossing(left, right, unsolved), x)
        middle = curve.tangent(x)
        floor = left.f + left.d * (x - left.x)
        flat = np.equal(middle.d, 0)
        f = np.where(unsolved, middle.f, f)
        proven = np.where(flat, middle.f, np.minimum(floor, middle.f))
        bound = np.where(unsolved, proven, bound)
        unsolved = unsolved & ~flat & (middle.f > floor * (1 + _ROUNDING))
        left = left.moved(middle, np.less(middle.d, 0))
        right = right.moved(middle, np.greater(middle.d, 0))
    return _Lowest(x, f, bound)


def _crossing(left: Tangent, right: Tangent, where: Mask) -> Real:
    """The share where two tangents cross; there they bound the curve from below [1]."""
    width = right.x - left.x
    drop = np.where(where, right.d - left.d, 1.0)
    step = (right.f - left.f - right.d * width) / -drop
    return left.x + np.clip(step, 0.0, width)


def _completed(solved: _Lowest, rest: _Lowest, where: Mask) -> _Lowest:
    """Lowest points of all design points, of which some are those of the rest."""
    columns = []
    for values, own in zip(solved, rest, strict=True):
        column = np.broadcast_to(values, where.shape).copy()
        column[where] = own
        columns.append(column)
    return _Lowest(*columns)


def _at(number: Real, where: Mask) -> Real:
    """A number at some of the design points, in one row [its own]."""
    if np.ndim(number) == 0:
        return number
    return np.broadcast_to(number, where.shape)[where]
