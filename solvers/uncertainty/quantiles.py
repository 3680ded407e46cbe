"""Quantiles of samples, of which some have no answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def quantiles(samples: Numbers, shares: Sequence[float]) -> Numbers:
    """Quantiles along the last axis, NaN left out, interpolated between neighbours.

    Args:
        samples: of any shape (..., samples); NaN where a sample has no answer.
        shares: of the samples that lie below each quantile [1].

    Returns:
        (shares, ...); NaN where no sample has an answer.
    """
    ordered = np.sort(samples, axis=-1)
    known = ~np.isnan(ordered)
    count = np.sum(known, axis=-1)
    rows = [_quantile(ordered, count, share) for share in shares]
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
    return np.where(low == high, low, between)


def _at(ordered: Numbers, place: NDArray[np.intp]) -> Numbers:
    column = place[..., np.newaxis]
    taken: Numbers = np.take_along_axis(ordered, column, axis=-1)
    return taken[..., 0]
