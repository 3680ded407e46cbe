"""Exact minimum over a share: alpha, beta, and any knob in which a system's amounts are affine.

A span whose amounts are affine in a share x is a sum of maxima of lines: convex and piecewise
linear. Two evaluations of the system, at x = 0 and x = 1, give every line. The minimum is bracketed
by tangents; where they cross lies a lower bound, and once the span meets it the choice is optimal.

Symbols: x share, f seconds, d slope.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.blend import blend
from costmodel.capacity import Fits
from costmodel.span import Leaf, Overlap, Real, Repeat, Span

_ROUNDING = 1e-12
_MOST_PIECES = 200


@dataclass(frozen=True)
class Choice:
    """A solved share and its certificate.

    Attributes:
        value: the best share [1].
        seconds: what the span takes there [s].
        bound: no share in the interval takes less [s].
        low, high: the interval, cut to what fits in memory [1].
    """

    value: Real
    seconds: Real
    bound: Real
    low: Real
    high: Real

    @property
    def gap(self) -> Real:
        """Relative distance of the choice from its bound; rounding apart it is 0 [1]."""
        return np.subtract(self.seconds, self.bound) / np.where(np.greater(self.seconds, 0), self.seconds, 1.0)


def line(start: Span, end: Span, x: Real, side: int) -> tuple[Real, Real]:
    """Value and slope of a span between two evaluations.

    Args:
        start, end: the span at share 0 and at share 1, of one shape.
        x: the share [1].
        side: +1 for the slope to the right of x, -1 to the left.

    Returns:
        seconds at x [s], their slope [s].
    """
    if isinstance(start, Leaf) or start is end:
        rise = end.seconds - start.seconds
        return start.seconds + x * rise, rise
    if isinstance(start, Repeat) and isinstance(end, Repeat):
        value, slope = line(start.span, end.span, x, side)
        return start.times * value, start.times * slope
    lines = [line(part, end.parts[name], x, side) for name, part in start.parts.items()]
    if not isinstance(start, Overlap):
        return sum((v for v, _ in lines), 0.0), sum((d for _, d in lines), 0.0)
    for resource in start.shared:
        queue = start.busy_of(resource)
        rise = end.busy_of(resource) - queue
        lines.append((queue + x * rise, rise))
    return _steepest_of_longest(lines, side)


def _steepest_of_longest(lines: list[tuple[Real, Real]], side: int) -> tuple[Real, Real]:
    value, slope = lines[0]
    for other, other_slope in lines[1:]:
        tie = np.isclose(other, value, rtol=_ROUNDING, atol=0.0)
        steeper = np.maximum(slope, other_slope) if side > 0 else np.minimum(slope, other_slope)
        slope = np.where(tie, steeper, np.where(np.greater(other, value), other_slope, slope))
        value = np.maximum(value, other)
    return value, slope


def feasible_share(start: Fits, end: Fits) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The shares at which every memory holds what it must, its need being affine in the share.

    Args:
        start, end: needs at share 0 and at share 1.

    Returns:
        lowest and highest share [1]; the whole of [0, 1] where none fits.
    """
    low: Any = np.zeros(())
    high: Any = np.ones(())
    for name, (need, there) in start.tiers.items():
        rise, room = np.subtract(end.tiers[name][0], need), np.subtract(there, need)
        with np.errstate(divide="ignore", invalid="ignore"):
            edge = room / rise
        high = np.where(rise > 0, np.minimum(high, edge), np.where((rise == 0) & (room < 0), -1.0, high))
        low = np.where(rise < 0, np.maximum(low, edge), low)
    none = low > high
    return np.where(none, 0.0, low), np.where(none, 1.0, high)


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
    shape = np.broadcast_shapes(np.shape(start.seconds), np.shape(end.seconds), np.shape(low), np.shape(high))
    lo, hi = (np.broadcast_to(np.asarray(edge, float), shape).copy() for edge in (low, high))
    f_lo, d_lo = line(start, end, lo, +1)
    f_hi, d_hi = line(start, end, hi, -1)
    best = np.where(d_lo >= 0, lo, hi)
    value = np.where(d_lo >= 0, f_lo, f_hi)
    bound = np.array(np.broadcast_to(value, shape))
    open_ = np.broadcast_to((d_lo < 0) & (d_hi > 0), shape)
    for _ in range(_MOST_PIECES):
        if not np.any(open_):
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.clip((f_hi - f_lo + d_lo * lo - d_hi * hi) / (d_lo - d_hi), lo, hi)
        x = np.where(open_, x, best)
        floor = f_lo + d_lo * (x - lo)
        f, right = line(start, end, x, +1)
        left = line(start, end, x, -1)[1]
        best, value = np.where(open_, x, best), np.where(open_, f, value)
        bound = np.where(open_, np.minimum(floor, f), bound)
        at_valley = (left <= 0) & (right >= 0)
        bound = np.where(open_ & at_valley, f, bound)
        done = at_valley | (f <= floor * (1 + _ROUNDING))
        down, up = open_ & (right < 0), open_ & (left > 0)
        lo, f_lo, d_lo = np.where(down, x, lo), np.where(down, f, f_lo), np.where(down, right, d_lo)
        hi, f_hi, d_hi = np.where(up, x, hi), np.where(up, f, f_hi), np.where(up, left, d_hi)
        open_ = open_ & ~done
    return Choice(best[()], value[()], bound[()], low, high)


def binding(start: Span, end: Span, choice: Choice) -> NDArray[np.str_]:
    """Which resources meet at the choice: the one that binds below it and the one that binds above.

    Args:
        start, end: the span at share 0 and at share 1.
        choice: what `minimise` returned for them.

    Returns:
        `a = b` where two balance, one name at an end of [0, 1], with `memory` where capacity ends it.
    """
    names, sides = sorted(start.resources), []
    for step in (-1e-6, 1e-6):
        near = blend(start, end, np.clip(choice.value + step, choice.low, choice.high))
        moving = {path for (path, a, _), (_, b, _) in zip(start.leaves(), end.leaves(), strict=True) if a is not b}
        blamed = dict.fromkeys(names, np.zeros(()))
        for path, leaf, seconds in near.blamed_leaves():
            if path in moving and np.any(leaf.amount):
                blamed[leaf.resource] = blamed[leaf.resource] + seconds
        worst = np.argmax(np.stack(np.broadcast_arrays(*blamed.values())), axis=0)
        sides.append(np.array(names)[worst])
    below, above = sides
    both = np.where(below == above, above, np.char.add(np.char.add(below, " = "), above))
    both = np.where(
        np.less_equal(choice.value, choice.low),
        above,
        np.where(np.greater_equal(choice.value, choice.high), below, both),
    )
    full = (np.equal(choice.value, choice.high) & np.less(choice.high, 1)) | (
        np.equal(choice.value, choice.low) & np.greater(choice.low, 0)
    )
    return np.where(full, np.char.add("memory, ", both), both)
