"""Sums and maxima of numbers that broadcast over design points, without needless passes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

Number = float | NDArray[np.float64]
Shape = tuple[int, ...]
Key = TypeVar("Key")


def total(numbers: Iterable[Number]) -> Number:
    """Sum of numbers [theirs], 0 of none; those that are 0 everywhere save an array operation."""
    remaining = iter(numbers)
    added = next(remaining, 0.0)
    is_blank: bool | None = None  # whether the sum is 0 everywhere, once it is looked at
    is_own = False
    for number in remaining:
        if is_blank is None:
            is_blank = is_zero(added)
        zero = is_zero(number)
        if zero and _spans(added, number):
            continue
        if is_blank and _spans(number, added):
            added, is_own = number, False
        elif is_own and _has_place(added, number):
            np.add(added, number, out=added)
        else:
            added, is_own = added + number, True
        is_blank = is_blank and zero
    return added


def _spans(whole: Number, part: Number) -> bool:
    """Whether a sum of two numbers has no axes but those of the first."""
    own = _shape(part)
    return not own or _covers(_shape(whole), own)


def _shape(number: Any) -> Shape:
    """That of an array, () of a scalar; `np.shape` makes an array of each scalar."""
    shape: Shape = getattr(number, "shape", ())
    return shape


@lru_cache(1 << 10)
def _covers(shape: Shape, own: Shape) -> bool:
    """Whether an array of a shape keeps it where it meets one of another."""
    if len(own) > len(shape):
        return False
    extents = zip(reversed(own), reversed(shape), strict=False)
    return all(extent in (1, kept) for extent, kept in extents)


def is_zero(number: Any) -> bool:
    """Whether a number is 0 at all design points; most others show at an end that they are not.

    A number of no design point counts as none.
    """
    if getattr(number, "ndim", 0) == 0:
        return not number
    if isinstance(number, np.ndarray):
        if not number.size:
            return False
        item = number.item  # and the largest shows what is positive, sooner than `any`
        return not (item(0) or item(-1) or item(number.argmax()) or item(number.argmin()))
    first, last = ends(number)
    return not (first or last or number.any())


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
    return (number.item(0), number.item(-1)) if number.size else (np.nan, np.nan)


def _size(number: Any) -> int:
    """How many numbers an array has, 1 of a scalar; `np.size` makes an array of each scalar."""
    size: int = getattr(number, "size", 1)
    return size


def longest_of(seconds: Iterable[Number]) -> Number:
    """The largest of several times, 0 of none [s].

    Those of one shape first, then the smallest arrays, each into one that has all its axes, if
    there is one: few operations then meet the shape that all of them make.
    """
    by_shape: dict[Shape, Number] = {}
    for one in seconds:
        shape = _shape(one)
        known = by_shape.get(shape)
        by_shape[shape] = one if known is None else np.maximum(known, one)
    smallest_first = sorted(by_shape.values(), key=_size) or [0.0]
    largest = smallest_first.pop()
    others = [one for one in smallest_first if not (is_zero(one) and _spans(largest, one))]
    is_own = False
    for place, one in enumerate(others):
        into = (
            later for later in range(place + 1, len(others)) if _spans(others[later], one)
        )
        if later := next(into, None):
            others[later] = np.maximum(one, others[later])
        elif is_own and _has_place(largest, one):
            np.maximum(largest, one, out=largest)
        else:
            largest, is_own = np.maximum(largest, one), True
    return largest


def _has_place(whole: Number, part: Number) -> TypeGuard[NDArray[np.float64]]:
    """Whether a sum of two arrays, or their maximum, can take the place of the first."""
    return _is_plain(whole) and _is_plain(part) and _spans(whole, part)


def _is_plain(number: Any) -> bool:
    """Whether a number is an array of NumPy's own, not one of those that are recorded."""
    return isinstance(number, np.ndarray) and number.dtype == np.float64


def sum_by_key(items: Iterable[tuple[Key, Number]]) -> dict[Key, Number]:
    """Sums of the values that share a key [theirs]."""
    sums: dict[Key, Number] = {}
    for key, value in items:
        if key not in sums or is_everywhere(sums[key], 0.0):
            sums[key] = value
        elif not is_everywhere(value, 0.0):
            sums[key] = sums[key] + value
    return sums


def is_everywhere(number: Number, value: float) -> bool:
    """Whether a number is one scalar of this value, which spares an array operation."""
    return isinstance(number, float) and number == value
