"""Quantiles of samples, of which some have no answer, and how good an interval between two is."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from nearkv.costmodel.algebra.span import Numbers


def quantiles(samples: Numbers, shares: Sequence[float]) -> Numbers:
    """Quantiles along the last axis, NaN left out, interpolated between neighbours.

    Of whole numbers the nearer neighbour is taken: a batch is no fraction.

    Args:
        samples: of any shape (..., samples); NaN where a sample has no answer.
        shares: of the samples that lie below each quantile [1].

    Returns:
        (shares, ...); NaN where no sample has an answer.
    """
    blank = np.isnan(samples)
    # nanquantile walks over the rows in Python
    quantile = np.nanquantile if blank.any() else np.quantile
    is_whole = samples == np.floor(samples)
    whole = np.all(blank | is_whole, axis=-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rows without an answer are NaN
        between: Numbers = quantile(samples, shares, axis=-1)
        # no line lies between two infinite neighbours
        jumps = whole | np.isnan(between)
        if not jumps.any():
            return between
        nearest = quantile(samples, shares, axis=-1, method="nearest")
    return np.where(jumps, nearest, between)


def interval_score(low: Numbers, high: Numbers, measured: Numbers, level: float) -> Numbers:
    """The width of an interval, and a penalty where it misses: less is better.

    The expected score is least for the true quantiles, so a wide interval does not pay.

    Args:
        low, high: ends of the intervals.
        measured: what was measured.
        level: share that the intervals should hold [1].

    Source: Gneiting and Raftery, Strictly proper scoring rules, JASA 102 (2007), eq. 43.
    """
    below = np.maximum(low - measured, 0.0)
    above = np.maximum(measured - high, 0.0)
    score: Numbers = high - low + 2 / (1 - level) * (below + above)
    return score
