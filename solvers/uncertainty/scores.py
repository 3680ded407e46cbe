"""How good bands are: an interval must hold what was measured, and be narrow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


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
