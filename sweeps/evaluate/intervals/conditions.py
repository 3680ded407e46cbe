"""Rules of conditions: where one holds surely, and where perhaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nearkv.sweeps.evaluate.intervals.interval import (
    Array,
    Interval,
    Rule,
    interval_of,
    intervals_in,
)

Ends = tuple[Array, Array]


def _condition(ends_of: Callable[..., Ends]) -> Rule:
    """A rule from a function of intervals to where a condition surely and perhaps holds.

    An ordinary array where the two are the same.
    """

    def rule(*operands: Any, **options: Any) -> Any:
        outcomes = next(intervals_in(operands)).outcomes
        intervals = [interval_of(operand, outcomes) for operand in operands]
        surely, perhaps = ends_of(*intervals, **options)
        if np.array_equal(surely, perhaps):
            return surely
        return Interval(surely, perhaps, False, outcomes)

    return rule


def _known(a: Interval, b: Interval) -> Array:
    """Where neither is blank: no comparison with NaN holds."""
    blank: Array = np.logical_or(a.blank, b.blank)
    return ~blank


def _less(a: Interval, b: Interval) -> Ends:
    surely = a.high < b.low
    perhaps = a.low < b.high
    return surely & _known(a, b), perhaps


def _less_equal(a: Interval, b: Interval) -> Ends:
    surely = a.high <= b.low
    perhaps = a.low <= b.high
    return surely & _known(a, b), perhaps


def _greater(a: Interval, b: Interval) -> Ends:
    return _less(b, a)


def _greater_equal(a: Interval, b: Interval) -> Ends:
    return _less_equal(b, a)


def _equal(a: Interval, b: Interval) -> Ends:
    alike = a.low == b.low
    alike &= a.low == a.high
    alike &= b.low == b.high
    overlap = a.low <= b.high
    overlap &= b.low <= a.high
    return alike & _known(a, b), overlap


def _not_equal(a: Interval, b: Interval) -> Ends:
    surely, perhaps = _equal(a, b)
    return ~perhaps, ~surely


def _all_equal(a: Interval, b: Interval) -> Ends:
    have_one_shape = np.array(a.shape == b.shape)
    if not have_one_shape:
        return have_one_shape, have_one_shape
    surely, perhaps = _equal(a, b)
    return np.array(surely.all()), np.array(perhaps.all())


def _truth(a: Interval) -> Ends:
    """Where a condition holds, or a number is not 0."""
    if a.dtype == bool:
        return a.low, a.high
    surely = (a.low > 0) | (a.high < 0)
    perhaps = (a.low != 0) | (a.high != 0)
    return surely, perhaps | a.blank


def _both(a: Interval, b: Interval) -> Ends:
    surely, perhaps = _truth(a)
    also_surely, also_perhaps = _truth(b)
    return surely & also_surely, perhaps & also_perhaps


def _either(a: Interval, b: Interval) -> Ends:
    surely, perhaps = _truth(a)
    also_surely, also_perhaps = _truth(b)
    return surely | also_surely, perhaps | also_perhaps


def _not(a: Interval) -> Ends:
    surely, perhaps = _truth(a)
    return ~perhaps, ~surely


def _over(function: Any) -> Rule:
    """The rule of `any` and `all`."""

    def ends_of(a: Interval, **options: Any) -> Ends:
        surely, perhaps = _truth(a)
        return function(surely, **options), function(perhaps, **options)

    return _condition(ends_of)


def _where(condition: Any, chosen: Any, other: Any) -> Interval:
    outcomes = next(intervals_in((condition, chosen, other))).outcomes
    surely, perhaps = _truth(interval_of(condition, outcomes))
    a = interval_of(chosen, outcomes)
    b = interval_of(other, outcomes)
    low = np.minimum(a.low, b.low)
    low = np.where(perhaps, low, b.low)
    low = np.where(surely, a.low, low)
    high = np.maximum(a.high, b.high)
    high = np.where(perhaps, high, b.high)
    high = np.where(surely, a.high, high)
    blank = (perhaps & a.blank) | (~surely & b.blank)
    return Interval(low, high, blank, outcomes)


def _select(conditions: Any, choices: Any, otherwise: Any) -> Any:
    """Of conditions that hold together the first one counts, so it is looked at last."""
    chosen = otherwise
    cases = list(zip(conditions, choices, strict=True))
    for condition, choice in reversed(cases):
        chosen = np.where(condition, choice, chosen)
    return chosen


RULES: dict[Any, Rule] = {
    np.less: _condition(_less),
    np.less_equal: _condition(_less_equal),
    np.greater: _condition(_greater),
    np.greater_equal: _condition(_greater_equal),
    np.equal: _condition(_equal),
    np.not_equal: _condition(_not_equal),
    np.array_equal: _condition(_all_equal),
    np.logical_and: _condition(_both),
    np.bitwise_and: _condition(_both),
    np.logical_or: _condition(_either),
    np.bitwise_or: _condition(_either),
    np.logical_not: _condition(_not),
    np.invert: _condition(_not),
    np.any: _over(np.any),
    np.all: _over(np.all),
    np.where: _where,
    np.select: _select,
}
