"""Exact minimum over a share: alpha, beta, and any knob in which a system's amounts are affine.

A span whose amounts are affine in a share x is a sum of maxima of lines: convex and piecewise
linear. Two evaluations of the system, at x = 0 and x = 1, give every line (`nearkv.solvers.shares.lines`). The minimum
is bracketed by tangents; where they cross lies a lower bound, and once the span meets it the choice is optimal.

Symbols: x share, f seconds, d slope.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.blend import blend
from nearkv.costmodel.capacity import Fits
from nearkv.costmodel.span import Real, Span
from nearkv.solvers.shares.lines import Envelope, Line, envelope, unmoved

_ROUNDING = 1e-12
_MOST_STEPS = 200


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
        return np.subtract(self.seconds, self.bound) / np.where(
            np.greater(self.seconds, 0), self.seconds, 1.0
        )


def _highest(curve: Envelope, slopes: Sequence[Real], x: Real) -> tuple[Real, Real]:
    """Value and slope of an envelope at a share, but for its `times`."""
    at_an_end = 0 if not np.any(x) else 1 if np.all(np.equal(x, 1)) else None
    rest = 1 - x

    def value_of(line: Line) -> Real:
        # at0 + x (at1 - at0) would lose a small at1 behind a large at0
        return rest * line[0] + x * line[1] if at_an_end is None else line[at_an_end]

    value, slope = value_of(curve.lines[0]), slopes[0]
    for line, rise in zip(curve.lines[1:], slopes[1:], strict=False):
        other = value_of(line)
        slope = np.where(np.greater(other, value), rise, slope)
        value = np.maximum(value, other)
    return value + value_of(curve.base), slope + slopes[-1]


def feasible_share(start: Fits, end: Fits) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The shares at which every memory holds what it must, its need being affine in the share.

    Args:
        start, end: needs at share 0 and at share 1.

    Returns:
        lowest and highest share [1]; the whole of [0, 1] where none fits. A memory whose need does
        not change with the share bounds nothing: where it is short, it is short at every share.
    """
    low: Any = np.zeros(())
    high: Any = np.ones(())
    for name, (need, there) in start.tiers.items():
        rise, room = np.subtract(end.tiers[name][0], need), np.subtract(there, need)
        with np.errstate(divide="ignore", invalid="ignore"):
            edge = room / rise
        high = np.where(rise > 0, np.minimum(high, edge), high)
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
    curve = envelope(start, end)
    slopes = [at1 - at0 for at0, at1 in (*curve.lines, curve.base)]
    f_lo, d_lo = _highest(curve, slopes, low)
    f_hi, d_hi = _highest(curve, slopes, high)
    lo, hi = low, high
    best = np.where(d_lo >= 0, lo, hi)
    value = bound = np.where(d_lo >= 0, f_lo, f_hi)
    open_: NDArray[np.bool_] = np.less(d_lo, 0) & np.greater(d_hi, 0)
    for _ in range(_MOST_STEPS if np.any(open_) else 0):
        # where the tangents at both ends cross, they bound the span from below
        drop = np.where(open_, d_hi - d_lo, 1.0)
        x = np.where(
            open_, lo + np.clip((f_hi - f_lo - d_hi * (hi - lo)) / -drop, 0.0, hi - lo), best
        )
        floor = f_lo + d_lo * (x - lo)
        f, d = _highest(curve, slopes, x)
        flat = np.equal(d, 0)
        best, value = np.where(open_, x, best), np.where(open_, f, value)
        bound = np.where(open_, np.where(flat, f, np.minimum(floor, f)), bound)
        open_ = open_ & ~flat & (f > floor * (1 + _ROUNDING))
        if not np.any(open_):
            break
        down, up = open_ & (d < 0), open_ & (d > 0)
        lo, f_lo, d_lo = np.where(down, x, lo), np.where(down, f, f_lo), np.where(down, d, d_lo)
        hi, f_hi, d_hi = np.where(up, x, hi), np.where(up, f, f_hi), np.where(up, d, d_hi)
    return Choice(best[()], (curve.times * value)[()], (curve.times * bound)[()], low, high)


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
        moving = {
            path
            for (path, a, _), (_, b, _) in zip(start.leaves(), end.leaves(), strict=True)
            if not unmoved(a, b)
        }
        attributed = dict.fromkeys(names, np.zeros(()))
        for path, leaf, seconds in near.attributed_leaves():
            if path in moving and np.any(leaf.amount):
                attributed[leaf.resource] = attributed[leaf.resource] + seconds
        worst = np.argmax(np.stack(np.broadcast_arrays(*attributed.values())), axis=0)
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
