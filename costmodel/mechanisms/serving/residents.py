"""How many requests of a queue are in memory.

Symbols: B requests, N resident, dp replicas.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.queue import Serving
from nearkv.costmodel.model.workload import Workload

_ROUNDING = 1e-12
"""A share solved for the last byte may miss it by that; it counts as fitting."""
HALVINGS = 48


def tokens_reserved(work: Workload, reserve: Real) -> Real:
    """Tokens a resident request takes: its context, or its final length if reserved [1]."""
    return work.context + reserve * (work.final_seen - work.context)


def requests_held(work: Workload, serving: Serving) -> Real:
    """Requests of mean size that would fill the memory [1]."""
    return serving.capacity / tokens_reserved(work, serving.reserve)


def resident(work: Workload, serving: Serving) -> Real:
    """Requests that decode together, N: all, or as many of mean size as the memory holds [1]."""
    return resident_in(requests_held(work, serving), work.batch, serving.replicas)


def resident_in(held: Real, batch: Real, replicas: Real) -> Real:
    """Requests that decode together, N, in a memory that holds `held` of mean size [1].

    A queue fills memory with whole requests, so half of one stays free in each replica on average;
    at least one runs.

    Args:
        held: requests of mean size that would fill the memory of all replicas [1].
        batch: requests in all, B [1].
        replicas: dp [1].
    """
    one_each = np.minimum(replicas, batch)
    filled = np.maximum(held - replicas / 2, one_each)
    queued = np.minimum(filled, batch)
    holds_all = np.less_equal(batch, np.multiply(held, 1 + _ROUNDING))
    return np.where(holds_all, batch, queued)[()]


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
