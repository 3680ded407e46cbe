"""Sums and maxima of numbers that broadcast over design points, without needless passes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

Number = float | NDArray[np.float64]


def total(numbers: Iterable[Number]) -> Number:
    """Sum of numbers [theirs], 0 of none; those that are 0 everywhere save an array operation."""
    added: Number = 0.0
    for number in numbers:
        if _adds_nothing(number, added):
            continue
        added = number if _adds_nothing(added, number) else added + number
    return added


def _adds_nothing(number: Number, other: Number) -> bool:
    """Whether a sum with another number is that number, which has all of the sum's axes."""
    if not is_zero(number):
        return False
    own, whole = np.shape(number), np.shape(other)
    return not own or own == whole or np.broadcast_shapes(own, whole) == whole


def is_zero(number: Number) -> bool:
    """Whether a number is 0 at all design points; most others show at the first that they are not.

    A number of no design point counts as none.
    """
    first, _ = ends(number)
    if isinstance(number, np.ndarray) and number.size == 1:
        return not first
    return not (first or np.any(number))


def ends(number: Any) -> tuple[float, float]:
    """The first and the last of the values of a number, NaN of none [its own].

    A glimpse that spares work where it decides between two ways to one answer. No answer may
    depend on it: where work is recorded to be repeated, it is no part of the record.
    """
    if getattr(number, "ndim", 0) == 0:
        return number, number
    if not isinstance(number, np.ndarray):
        first, last = number.ends
        return first, last
    return (number.flat[0], number.flat[-1]) if number.size else (np.nan, np.nan)


def longest_of(seconds: Iterable[Number]) -> Number:
    """The largest of several times, 0 of none [s].

    The smallest arrays first: few operations then meet the shape that all of them make.
    """
    smallest_first = sorted(seconds, key=np.size) or [0.0]
    largest = smallest_first.pop()
    others = [number for number in smallest_first if not _adds_nothing(number, largest)]
    return reduce(np.maximum, [*others, largest])
