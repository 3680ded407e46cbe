"""Rules of arithmetic: the ends of an answer from those of its operands.

Functions that are not rounded to the nearest number are widened by `_ULPS` units in the last
place; NumPy states errors of at most 4.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from nearkv.sweeps.evaluate.intervals.interval import (
    Array,
    Interval,
    Rule,
    interval_of,
    intervals_in,
    refused,
)

_ULPS = 16
"""Units in the last place by which answers are widened [1]."""

Ends = tuple[Array, Array]


def _elementwise(ends_of: Callable[..., Ends]) -> Rule:
    """A rule from a function of intervals to the ends of the answer.

    An end that is not finite may stand for more: inf - inf, 0 x inf and 0 / 0 are NaN.
    """

    def rule(*operands: Any) -> Interval:
        outcomes = next(intervals_in(operands)).outcomes
        intervals = [interval_of(operand, outcomes) for operand in operands]
        low, high = ends_of(*intervals)
        blanks = [interval.blank for interval in intervals]
        blank = reduce(np.logical_or, blanks)
        added = np.sum(low) + np.sum(high)
        if not np.isfinite(added):
            is_finite = np.isfinite(low) & np.isfinite(high)
            blank = blank | ~is_finite
            low = np.where(np.isnan(low), -np.inf, low)
            high = np.where(np.isnan(high), np.inf, high)
        return Interval(low, high, blank, outcomes)

    return rule


def _rising(function: Any) -> Rule:
    """The rule of a function that never falls in any operand."""

    def ends_of(*operands: Interval) -> Ends:
        low = function(*(operand.low for operand in operands))
        high = function(*(operand.high for operand in operands))
        return low, high

    return _elementwise(ends_of)


def _roughly(function: Any) -> Rule:
    """The rule of a function that rises, but for rounding errors."""

    def ends_of(number: Interval) -> Ends:
        low = function(number.low)
        high = function(number.high)
        return _outward(low, high)

    return _elementwise(ends_of)


def _outward(low: Array, high: Array) -> Ends:
    """Ends that no rounding error passes."""
    below = _ULPS * np.spacing(np.abs(low))
    above = _ULPS * np.spacing(np.abs(high))
    return low - below, high + above


def _corners(function: Any, a: Interval, b: Interval) -> Ends:
    """The ends of a function that rises or falls in either operand, whatever the other is."""
    answers = []
    for x in (a.low, a.high):
        for y in (b.low, b.high):
            answer = function(x, y)
            answers.append(answer)
    low = reduce(np.minimum, answers)
    high = reduce(np.maximum, answers)
    return low, high


def _difference(a: Interval, b: Interval) -> Ends:
    return a.low - b.high, a.high - b.low


def _negative(a: Interval) -> Ends:
    return -a.high, -a.low


def _product(a: Interval, b: Interval) -> Ends:
    if a.is_nonnegative and b.is_nonnegative:
        return a.low * b.low, a.high * b.high
    return _corners(np.multiply, a, b)


def _quotient(a: Interval, b: Interval) -> Ends:
    if a.is_nonnegative and b.is_positive:
        return a.low / b.high, a.high / b.low
    low, high = _corners(np.divide, a, b)
    has_zero = (b.low <= 0) & (b.high >= 0)
    low = np.where(has_zero, -np.inf, low)
    return low, np.where(has_zero, np.inf, high)


def _power(base: Interval, exponent: Interval) -> Ends:
    if not base.is_nonnegative:
        refused()
    low, high = _outward(*_corners(np.power, base, exponent))
    # -0 to an odd power below 0 is -inf, whatever lies beside it
    is_endless = (base.low <= 0) & (exponent.low < 0)
    low = np.where(is_endless, -np.inf, low)
    return low, np.where(is_endless, np.inf, high)


def _absolute(a: Interval) -> Ends:
    at_low = np.abs(a.low)
    at_high = np.abs(a.high)
    least = np.minimum(at_low, at_high)
    has_zero = (a.low < 0) & (a.high > 0)
    least = np.where(has_zero, 0.0, least)
    return least, np.maximum(at_low, at_high)


def _square(a: Interval) -> Ends:
    low, high = _absolute(a)
    return low * low, high * high


def _frexp(number: Interval) -> tuple[Interval, Interval]:
    """Mantissa and exponent; the exponent rises with a number above 0."""
    if not number.is_positive:
        refused()
    _, lowest = np.frexp(number.low)
    _, highest = np.frexp(number.high)
    half = np.full(number.shape, 0.5)
    mantissa = Interval(half, 2 * half, number.blank, number.outcomes)
    return mantissa, Interval(lowest, highest, number.blank, number.outcomes)


def _clip(number: Any, low: Any, high: Any) -> Any:
    return np.minimum(np.maximum(number, low), high)


_RISING = (
    np.add,
    np.maximum,
    np.minimum,
    np.floor,
    np.ceil,
    np.rint,
    np.trunc,
    np.sqrt,
)
_ROUGH = (
    np.exp,
    np.exp2,
    np.expm1,
    np.log,
    np.log2,
    np.log10,
    np.log1p,
)

RULES: dict[Any, Rule] = {
    **{function: _rising(function) for function in _RISING},
    **{function: _roughly(function) for function in _ROUGH},
    np.subtract: _elementwise(_difference),
    np.negative: _elementwise(_negative),
    np.multiply: _elementwise(_product),
    np.divide: _elementwise(_quotient),
    np.power: _elementwise(_power),
    np.absolute: _elementwise(_absolute),
    np.square: _elementwise(_square),
    np.frexp: _frexp,
    np.clip: _clip,
}
