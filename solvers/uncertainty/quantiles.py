"""Quantiles of samples, of which some have no answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def quantiles(samples: Numbers, shares: Sequence[float]) -> Numbers:
    """Quantiles along the last axis, NaN left out, interpolated between neighbours.

    Between two whole numbers the nearer is taken: a batch is no fraction.

    Args:
        samples: of any shape (..., samples); NaN where a sample has no answer.
        shares: of the samples that lie below each quantile [1].

    Returns:
        (shares, ...); NaN where no sample has an answer.
    """
    ordered = np.sort(samples, axis=-1)
    known = ~np.isnan(ordered)
    count = np.sum(known, axis=-1)
    rows = []
    for share in shares:
        quantile = _quantile(ordered, count, share)
        rows.append(quantile)
    return np.stack(rows)


def _quantile(ordered: Numbers, count: NDArray[np.intp], share: float) -> Numbers:
    """One quantile of rows in ascending order, the first `count` of each a number."""
    last = np.maximum(count - 1, 0)
    place = share * last
    below = np.floor(place).astype(np.intp)
    above = np.minimum(below + 1, last)
    low = _at(ordered, below)
    high = _at(ordered, above)
    weight = place - below
    with np.errstate(invalid="ignore"):  # two infinite neighbours
        between = low + weight * (high - low)
    nearest = np.where(weight < 0.5, low, high)
    is_exact = weight == 0
    is_whole = low == np.floor(low)
    is_whole &= high == np.floor(high)
    return np.where(is_whole | is_exact, nearest, between)


def _at(ordered: Numbers, place: NDArray[np.intp]) -> Numbers:
    column = place[..., np.newaxis]
    taken: Numbers = np.take_along_axis(ordered, column, axis=-1)
    return taken[..., 0]
