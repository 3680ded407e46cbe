"""Find where a condition ends or a convex function is least, at all design points at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real

GOLDEN = (np.sqrt(5.0) - 1) / 2
HALVINGS = 48
NARROWINGS = 40
"""Golden sections: an interval of 4e-9 of the first, enough near a smooth minimum."""


def bisect(
    holds: Callable[[Real], NDArray[np.bool_]],
    low: Real,
    high: Real,
    halvings: int = HALVINGS,
) -> Real:
    """Where a condition ends that holds from `low` up to a point, `high` if it holds throughout.

    Args:
        holds: number -> whether the condition holds there.
        low, high: ends of the interval [any unit].
        halvings: of the interval.

    Returns:
        The point, on its far side [unit of the interval].
    """
    for _ in range(halvings):
        middle = (low + high) / 2
        beyond = holds(middle)
        low = np.where(beyond, middle, low)
        high = np.where(beyond, high, middle)
    return high


def least(function: Callable[[Real], Real], low: Real, high: Real) -> Real:
    """Where a convex function is least, by golden sections.

    Args:
        function: number -> value.
        low, high: ends of the interval [any unit].

    Returns:
        The point [unit of the interval].
    """
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(NARROWINGS):
        falling = np.greater(at_left, at_right)
        low = np.where(falling, left, low)
        high = np.where(falling, high, right)
        width = GOLDEN * (high - low)
        fresh = np.where(falling, low + width, high - width)
        at_fresh = function(fresh)
        left, right = np.where(falling, right, fresh), np.where(falling, fresh, left)
        at_left, at_right = (
            np.where(falling, at_right, at_fresh),
            np.where(falling, at_fresh, at_left),
        )
    return (low + high) / 2


def least_of(function: Callable[[Real], Real], points: Sequence[Real]) -> Real:
    """At which of some points a function is least, of equals the first.

    Args:
        function: number -> value.
        points: where to look; the first is taken where all values are infinite [any unit].

    Returns:
        The point [unit of the points].
    """
    best: Real = points[0]
    fewest: Real = np.inf
    for point in points:
        value = function(point)
        best = np.where(value < fewest, point, best)
        fewest = np.minimum(fewest, value)
    return np.asarray(best)[()]
