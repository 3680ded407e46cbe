"""Masks of design points that cost nothing where they hold at all of them, or at none."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.sums import Number, is_everywhere, is_zero

Mask = bool | NDArray[np.bool_]
"""Some of the design points: all or none of them, or a flag for each."""


def plain(mask: Any) -> Mask:
    """A mask as True or False where it is that at all design points.

    Where work is recorded to be repeated, it stays as it is: other points may differ.
    """
    if isinstance(mask, np.bool_):
        return bool(mask)
    if isinstance(mask, np.ndarray):
        if not mask.size:
            return False
        first: bool = mask.item(0)
        other = mask.argmin() if first else mask.argmax()
        if mask.item(other) == first:
            return first
    outcome: Mask = mask
    return outcome


def seconds_where(where: Mask, *factors: Number) -> Number:
    """The product of factors, the last of them seconds, at some design points; 0 elsewhere [s]."""
    if where is False:
        return 0.0
    *times, seconds = factors
    if is_zero(seconds):
        return seconds
    for number in reversed(times):
        if not is_everywhere(number, 1.0):
            seconds = number * seconds
    return seconds if where is True else np.multiply(where, seconds)
