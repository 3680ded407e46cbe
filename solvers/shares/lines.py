"""A span whose amounts are affine in a share, as the upper envelope of a few lines.

Two evaluations of a system, at share 0 and at share 1, give every leaf at any share. A sum of
envelopes is the envelope of all sums of their lines, a maximum that of all their lines; so any tree
of `serial` and `overlap` is one maximum of lines, convex and piecewise linear.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np

from nearkv.costmodel.span import Leaf, Overlap, Real, Repeat, Span, total

Line = tuple[Real, Real]
"""Seconds at share 0 and at share 1 [s]."""


@dataclass(frozen=True)
class Envelope:
    """times x (base + the highest of some lines).

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
        (b0, b1), n = self.base, self.times
        if self.base is _NONE and np.all(np.equal(n, 1)):
            return self.lines
        lines: list[Line] = []
        for at0, at1 in self.lines:
            start = n * (b0 + at0)
            level = b0 is b1 and at0 is at1  # such a line is computed once
            lines.append((start, start if level else n * (b1 + at1)))
        return lines


_NONE: Line = (0.0, 0.0)


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
        if start.resource != end.resource or not np.array_equal(start.rate, end.rate):
            raise ValueError(f"leaf {start.resource!r} changes more than its amount")
        return Envelope(_NONE, [(start.seconds, end.seconds)])
    if isinstance(start, Repeat) and isinstance(end, Repeat):
        if not np.array_equal(start.times, end.times):
            raise ValueError("the number of repetitions changes with the share")
        inner = envelope(start.span, end.span)
        return Envelope(inner.base, inner.lines, start.times * inner.times)
    if unmoved(start, end):
        return Envelope(_NONE, [(start.seconds, start.seconds)])
    if isinstance(start, Overlap):
        return Envelope(_NONE, _merge(_longest(start, end, set())))
    return _sum([envelope(part, end.parts[name]) for name, part in start.parts.items()])


def _sum(parts: list[Envelope]) -> Envelope:
    """Parts of one line add to the base; the lines of the others add every one to every one."""
    straight = [line for part in parts if len(part.lines) == 1 for line in part.flat()]
    level = total(
        a for a, b in straight if a is b
    )  # what stays the same is added up once, not at both ends
    base = _total([(level, level), *(line for line in straight if line[0] is not line[1])])
    bent = [part.flat() for part in parts if len(part.lines) > 1]
    return Envelope(base, [_total(list(lines)) for lines in product(*bent)])


def _total(lines: list[Line]) -> Line:
    return total(a for a, _ in lines), total(b for _, b in lines)


def unmoved(start: Span, end: Span) -> bool:
    """Whether no amount differs between two evaluations."""
    if isinstance(start, Leaf) and isinstance(end, Leaf):
        return start.amount is end.amount or np.array_equal(start.amount, end.amount)
    if isinstance(start, Repeat) and isinstance(end, Repeat):
        return unmoved(start.span, end.span)
    return all(unmoved(part, end.parts[name]) for name, part in start.parts.items())


def _longest(start: Overlap, end: Span, queued: set[str]) -> list[Line]:
    """All lines of an overlap, less those of parts that a queue for their only resource covers."""
    lines = [
        (start.busy_of(name), end.busy_of(name)) for name in start.shared if name not in queued
    ]
    covered = queued | set(start.shared)
    for name, part in start.parts.items():
        if len(part.resources) == 1 and part.resources <= covered:
            continue
        if isinstance(part, Overlap):
            lines += _longest(part, end.parts[name], covered)
        else:
            lines += envelope(part, end.parts[name]).flat()
    return lines


def _merge(lines: list[Line]) -> list[Line]:
    """Lines that meet at an end are one on [0, 1]: the one that is higher at the other end."""
    rising = [line for line in lines if not np.any(line[0])]
    falling = [line for line in lines if np.any(line[0]) and not np.any(line[1])]
    rest = [line for line in lines if np.any(line[0]) and np.any(line[1])]
    merged: list[Line] = [(0.0, reduce(np.maximum, [end for _, end in rising]))] if rising else []
    merged += [(reduce(np.maximum, [start for start, _ in falling]), 0.0)] if falling else []
    return merged + rest
