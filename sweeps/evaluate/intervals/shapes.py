"""Rules of what moves numbers into other shapes, and of what is taken along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearkv.sweeps.evaluate.intervals.interval import (
    Array,
    Interval,
    Rule,
    by_part,
    plain,
)


def _blank_along(numbers: Interval, axis: Any) -> Array:
    """Where any number along an axis may be blank."""
    blank = np.broadcast_to(numbers.blank, numbers.shape)
    along: Array = np.any(blank, axis=axis)
    return along


def _extreme(function: Any) -> Rule:
    """The rule of the least or the largest along an axis."""

    def rule(numbers: Interval, axis: Any = None) -> Interval:
        low = function(numbers.low, axis=axis)
        high = function(numbers.high, axis=axis)
        return Interval(low, high, _blank_along(numbers, axis), numbers.outcomes)

    return rule


def _largest_place(numbers: Interval, axis: int) -> Any:
    """Place of the largest number: known where one is above all others."""
    low = np.moveaxis(numbers.low, axis, 0)
    high = np.moveaxis(numbers.high, axis, 0)
    first = np.argmax(low, axis=0)
    last = len(low) - 1
    others = high.copy()
    np.put_along_axis(others, first[np.newaxis], -np.inf, axis=0)
    is_known = np.max(low, axis=0) > np.max(others, axis=0)
    is_known &= ~_blank_along(numbers, axis)
    lowest = np.where(is_known, first, 0)
    highest = np.where(is_known, first, last)
    nowhere = np.zeros(first.shape, bool)
    return plain(lowest, highest, nowhere, numbers.outcomes)


def _sum(numbers: Interval, axis: Any = None) -> Interval:
    """NumPy adds in an order that depends on the shape: n numbers may differ by n roundings."""
    at_low = np.abs(numbers.low)
    at_high = np.abs(numbers.high)
    sizes = np.maximum(at_low, at_high)
    rounding = numbers.size * np.finfo(float).eps
    error = rounding * np.sum(sizes, axis=axis)
    low = np.sum(numbers.low, axis=axis) - error
    high = np.sum(numbers.high, axis=axis) + error
    is_finite = np.isfinite(low) & np.isfinite(high)
    low = np.where(is_finite, low, -np.inf)
    high = np.where(is_finite, high, np.inf)
    blank = _blank_along(numbers, axis) | ~is_finite
    return Interval(low, high, blank, numbers.outcomes)


_MOVING = (
    np.broadcast_arrays,
    np.broadcast_to,
    np.concatenate,
    np.copy,
    np.expand_dims,
    np.moveaxis,
    np.ravel,
    np.reshape,
    np.squeeze,
    np.stack,
)

RULES: dict[Any, Rule] = {
    **{function: by_part(function) for function in _MOVING},
    np.max: _extreme(np.max),
    np.min: _extreme(np.min),
    np.argmax: _largest_place,
    np.sum: _sum,
}
