"""Which resources end a share: those that balance where it was chosen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.blend import blend
from nearkv.costmodel.algebra.span import Real, Span
from nearkv.solvers.shares.balance import Choice, Mask
from nearkv.solvers.shares.lines import unmoved

_ASIDE = 1e-6
"""How far beside the choice to look [1]."""

Names = NDArray[np.str_]


def binding(start: Span, end: Span, choice: Choice) -> Names:
    """Resources that meet at the choice: the one that binds below it and the one that binds above.

    Args:
        start, end: the span at the choice's `start` and `end`.
        choice: a solved share.

    Returns:
        `a = b` where two balance, one name at an end of [0, 1], with `memory` where capacity
        ends it.
    """
    below = _slowest(start, end, choice, -_ASIDE)
    above = _slowest(start, end, choice, _ASIDE)
    equals = np.char.add(below, " = ")
    balance = np.char.add(equals, above)
    names = np.where(below == above, above, balance)
    at_low = np.less_equal(choice.value, choice.low)
    at_high = np.greater_equal(choice.value, choice.high)
    names = np.where(at_high, below, names)
    names = np.where(at_low, above, names)
    cut = _memory_ends(choice)
    limited = np.char.add("memory, ", names)
    return np.where(cut, limited, names)


def _memory_ends(choice: Choice) -> Mask:
    """Whether the choice is at an end of its interval that capacity has cut."""
    at_high = np.equal(choice.value, choice.high)
    high_end: Mask = at_high & np.less(choice.high, 1)
    at_low = np.equal(choice.value, choice.low)
    low_end: Mask = at_low & np.greater(choice.low, 0)
    return high_end | low_end


def _slowest(start: Span, end: Span, choice: Choice, aside: float) -> Names:
    """The resource whose moving leaves take most of the time a step aside from the choice."""
    share = choice.value + aside
    share = np.clip(share, choice.low, choice.high)
    near = blend(start, end, _along(choice, share))
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


def _along(choice: Choice, share: Real) -> Real:
    """How far a share is from the choice's `start` to its `end` [1]."""
    width = np.subtract(choice.end, choice.start)
    positive = np.greater(width, 0)
    step = share - choice.start
    return step / np.where(positive, width, 1.0)


def _moving(start: Span, end: Span) -> set[str]:
    """Paths of the leaves whose amount changes with the share."""
    moving = set()
    pairs = zip(start.leaves(), end.leaves(), strict=True)
    for at_start, at_end in pairs:
        path, before, _ = at_start
        _, after, _ = at_end
        if not unmoved(before, after):
            moving.add(path)
    return moving
