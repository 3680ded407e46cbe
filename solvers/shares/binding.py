"""Which resources end a share: those that balance where it was chosen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.blend import blend
from nearkv.costmodel.algebra.span import Real, Span
from nearkv.solvers.shares.minimum import Choice, is_unchanged

_ASIDE = 1e-6
"""How far beside the choice to look, as a share of the range [1]."""

Names = NDArray[np.str_]


def binding(
    start: Span, end: Span, choice: Choice, low: Real = 0.0, high: Real = 1.0
) -> Names:
    """Resources that meet at the choice: the one that binds below it and the one that binds above.

    Args:
        start, end: the span at the choice's `start` and `end`.
        choice: a solved value.
        low, high: the range of the knob.

    Returns:
        `a = b` where two balance, one name at an end of the range, with `memory` where capacity
        ends it.
    """
    aside = _ASIDE * (high - low)
    below = _slowest(start, end, choice, -aside)
    above = _slowest(start, end, choice, aside)
    equals = np.char.add(below, " = ")
    balance = np.char.add(equals, above)
    names = np.where(below == above, above, balance)
    at_low = np.less_equal(choice.value, choice.low)
    at_high = np.greater_equal(choice.value, choice.high)
    names = np.where(at_high, below, names)
    names = np.where(at_low, above, names)
    # an end of the interval that is none of the range is where a memory is full
    limited = np.char.add("memory, ", names)
    at_high = np.equal(choice.value, choice.high)
    at_low = np.equal(choice.value, choice.low)
    cut_above = at_high & np.less(choice.high, high)
    cut_below = at_low & np.greater(choice.low, low)
    return np.where(cut_above | cut_below, limited, names)


def _slowest(start: Span, end: Span, choice: Choice, aside: Real) -> Names:
    """The resource whose moving leaves take most of the time a step aside from the choice."""
    share = choice.value + aside
    share = np.clip(share, choice.low, choice.high)
    width = np.subtract(choice.end, choice.start)
    along = (share - choice.start) / np.where(width > 0, width, 1.0)
    near = blend(start, end, along)
    moving = _moving(start, end)
    resources = sorted(start.resources)
    seconds: dict[str, Real] = dict.fromkeys(resources, np.zeros(()))
    for path, leaf, attributed in near.attributed_leaves():
        works = np.any(leaf.amount)
        if path in moving and works:
            name = leaf.resource
            seconds[name] = seconds[name] + attributed
    columns = np.broadcast_arrays(*seconds.values())
    worst = np.argmax(np.stack(columns), axis=0)
    names = np.array(list(seconds))
    slowest: Names = names[worst]
    return slowest


def _moving(start: Span, end: Span) -> set[str]:
    """Paths of the leaves whose amount changes with the share."""
    moving = set()
    pairs = zip(start.leaves(), end.leaves(), strict=True)
    for at_start, at_end in pairs:
        path, before, _ = at_start
        _, after, _ = at_end
        if not is_unchanged(before, after):
            moving.add(path)
    return moving
