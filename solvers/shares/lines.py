"""A span whose amounts are affine in a share, as the upper envelope of a few lines.

Two evaluations of a system, at share 0 and at share 1, give every leaf at any share. A sum of
envelopes is the envelope of all sums of their lines, a maximum that of all their lines; so any tree
of `serial` and `overlap` is one maximum of lines, convex and piecewise linear.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import NamedTuple

import numpy as np

from nearkv.costmodel.algebra.overlap import Overlap
from nearkv.costmodel.algebra.span import Leaf, Real, Repeat, Serial, Span, total


class Line(NamedTuple):
    """Seconds of an affine piece.

    Attributes:
        start: at share 0 [s].
        end: at share 1 [s].
    """

    start: Real
    end: Real

    @property
    def level(self) -> bool:
        """Whether both ends are one object, so that they need computing only once."""
        return self.start is self.end

    def covers(self, other: Line) -> bool:
        """Whether another line is nowhere above this one, at any share or design point."""
        at_start = np.all(np.greater_equal(self.start, other.start))
        return bool(at_start and np.all(np.greater_equal(self.end, other.end)))

    def scaled(self, base: Line, times: Real) -> Line:
        """Times x (base + line) [s]."""
        start = total((base.start, self.start))
        end = start if base.level and self.level else total((base.end, self.end))
        return Line(start, end).repeated(times)

    def repeated(self, times: Real) -> Line:
        """So many of these lines one after the other [s]."""
        start = times * self.start
        return Line(start, start if self.level else times * self.end)


_ZERO = Line(0.0, 0.0)


@dataclass(frozen=True)
class Envelope:
    """times x (base + the highest of several lines).

    Attributes:
        base: what is added whichever line is highest [s].
        lines: at least one [s].
        times: how often all of it happens [1].
    """

    base: Line
    lines: list[Line]
    times: Real = 1.0

    def flat(self) -> list[Line]:
        """The same as lines alone [s]."""
        return [line.scaled(self.base, self.times) for line in self.lines]


def envelope(start: Span, end: Span) -> Envelope:
    """Lines whose maximum is the span's time at every share between two evaluations.

    Args:
        start, end: the span at share 0 and at share 1, of one shape.

    Raises:
        ValueError: the spans differ in more than their amounts.
    """
    if type(start) is not type(end) or start.parts.keys() != end.parts.keys():
        raise ValueError("the two evaluations have trees of different shape")
    if isinstance(start, Leaf) and isinstance(end, Leaf):
        return Envelope(_ZERO, [_leaf_line(start, end)])
    if isinstance(start, Repeat) and isinstance(end, Repeat):
        return _repeated(start, end)
    if unmoved(start, end):
        seconds = start.seconds
        return Envelope(_ZERO, [Line(seconds, seconds)])
    if isinstance(start, Overlap):
        lines = _overlap_lines(start, end, frozenset())
        return Envelope(_ZERO, _merge(lines))
    parts = [envelope(part, end.parts[name]) for name, part in start.parts.items()]
    return summed(parts)


def serial_terms(start: Span, end: Span) -> list[tuple[Span, Span]]:
    """The parts that follow one another at the top of two evaluations, serials taken apart."""
    if not isinstance(start, Serial):
        return [(start, end)]
    terms: list[tuple[Span, Span]] = []
    for name, part in start.parts.items():
        terms += serial_terms(part, end.parts[name])
    return terms


def _leaf_line(start: Leaf, end: Leaf) -> Line:
    same_rate = start.rate is end.rate or np.array_equal(start.rate, end.rate)
    if start.resource != end.resource or not same_rate:
        raise ValueError(f"leaf {start.resource!r} changes more than its amount")
    return Line(start.seconds, end.seconds)


def _repeated(start: Repeat, end: Repeat) -> Envelope:
    if start.times is not end.times and not np.array_equal(start.times, end.times):
        raise ValueError("the number of repetitions changes with the share")
    inner = envelope(start.span, end.span)
    times = start.times * inner.times
    return Envelope(inner.base, inner.lines, times)


def summed(parts: list[Envelope]) -> Envelope:
    """The sum of envelopes.

    Parts of one line add to the base; of the others, every line adds to every line.
    """
    straight: list[Line] = []
    bent: list[list[Line]] = []
    for part in parts:
        if len(part.lines) == 1:
            straight += part.flat()
        else:
            bent.append(part.flat())
    # what stays the same is added up once, not at both ends
    level = total(line.start for line in straight if line.level)
    sloped = [line for line in straight if not line.level]
    base = _total([Line(level, level), *sloped])
    sums = bent.pop() if bent else [_ZERO]
    for lines in bent:
        sums = [_added(*pair) for pair in product(sums, lines)]
    return Envelope(base, sums)


def _total(lines: list[Line]) -> Line:
    start = total(line.start for line in lines)
    end = total(line.end for line in lines)
    return Line(start, end)


def _added(line: Line, other: Line) -> Line:
    """Their sum [s]."""
    start = line.start + other.start
    end = line.end + other.end
    return Line(start, end)


def unmoved(start: Span, end: Span) -> bool:
    """Whether no amount differs between two evaluations."""
    if isinstance(start, Leaf) and isinstance(end, Leaf):
        same = start.amount is end.amount
        return same or np.array_equal(start.amount, end.amount)
    if isinstance(start, Repeat) and isinstance(end, Repeat):
        return unmoved(start.span, end.span)
    parts = start.parts.items()
    return all(unmoved(part, end.parts[name]) for name, part in parts)


def _overlap_lines(start: Overlap, end: Span, queues: frozenset[str]) -> list[Line]:
    """All lines of an overlap.

    Args:
        start, end: the overlap at share 0 and at share 1.
        queues: resources whose queue is a line already; a part that needs nothing else adds none.
    """
    waiting = [name for name in start.shared if name not in queues]
    lines = [Line(start.busy_of(name), end.busy_of(name)) for name in waiting]
    covered = queues.union(start.shared)
    for name, part in start.parts.items():
        if len(part.resources) == 1 and part.resources <= covered:
            continue
        other = end.parts[name]
        if isinstance(part, Overlap):
            lines += _overlap_lines(part, other, covered)
        else:
            lines += envelope(part, other).flat()
    return lines


def _merge(lines: list[Line]) -> list[Line]:
    """Lines that meet at an end are one on [0, 1]: the one that is higher at the other end."""
    rising: list[Real] = []
    falling: list[Real] = []
    others: list[Line] = []
    for line in lines:
        if not np.any(line.start):
            rising.append(line.end)
        elif not np.any(line.end):
            falling.append(line.start)
        else:
            others.append(line)
    merged: list[Line] = []
    if rising:
        merged.append(Line(0.0, reduce(np.maximum, rising)))
    if falling:
        merged.append(Line(reduce(np.maximum, falling), 0.0))
    return _undominated(merged + others)


def _undominated(lines: list[Line]) -> list[Line]:
    """Lines that no other one exceeds at every share and design point.

    Sums of overlaps multiply their lines, so one that never counts is dropped before it does.
    """
    kept: list[Line] = []
    for line in lines:
        if any(other.covers(line) for other in kept):
            continue
        kept = [other for other in kept if not line.covers(other)]
        kept.append(line)
    return kept
