"""Number of requests of a queue that are in memory.

Symbols: B requests, N resident, dp replicas.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Real, choose
from nearkv.costmodel.model.workload import Serving, Workload

_ROUNDING = 1e-12
"""A share solved for the last byte may miss it by that; it counts as fitting."""
RESIDENT_HALVINGS = 48
REGULA_FALSI_STEPS = 7
"""Steps of regula falsi, which find a zero of a smooth function to about a part in 10^6."""
_SOLVED = 1e-11
"""Width of an interval that is solved, over its end."""
_LEAST_DIFFERENCE = 1e-30
"""Keeps a difference of two numbers from being none."""


def tokens_reserved(work: Workload, reserve: Real) -> Real:
    """Tokens a resident request takes: its context, or its final length if reserved [1]."""
    return work.context + reserve * (work.final_seen - work.context)


def requests_held(work: Workload, serving: Serving) -> Real:
    """Requests of mean size that memory holds and that may run, whole ones if all are alike [1]."""
    return np.minimum(_in_memory(work, serving), serving.most_running)


def _in_memory(work: Workload, serving: Serving) -> Real:
    """Requests of mean size that would fill the memory, whole ones where all are alike [1]."""
    held = serving.capacity / tokens_reserved(work, serving.reserve)
    return whole(work, serving, held)


def resident(work: Workload, serving: Serving) -> Real:
    """Requests that decode together, N: all, or as many of mean size as the memory holds [1]."""
    n = resident_in(_in_memory(work, serving), work.batch, serving.replicas)
    running = np.minimum(whole(work, serving, n), serving.most_running)
    return np.minimum(running, work.batch)


def whole(work: Workload, serving: Serving, requests: Real) -> Real:
    """Requests in memory, of which each replica holds whole ones where all are alike [1].

    As many as fit when they end are always held, and never more than fit when they begin: of
    requests that grow little both are the same number. Requests of unlike lengths fill what is
    left beside one another, so their mean number is no whole one.

    Args:
        work, serving: the queue.
        requests: of mean size, in the memory of all replicas [1].
    """
    dp = serving.replicas
    begin = work.before + np.maximum(work.prompt, 1.0) + serving.reserve * work.output
    one_each = np.minimum(dp, work.batch)
    fewest, most = (
        np.maximum(dp * np.floor(serving.capacity / (dp * length) + _ROUNDING), one_each)
        for length in (work.final, begin)
    )
    alike = (work.spread.longest <= 1) & (not serving.in_parts)
    return choose(alike, np.clip(requests, fewest, most), requests)


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
    holds_all = batch <= held * (1 + _ROUNDING)
    return choose(holds_all, batch, queued)


def bisect(
    holds: Callable[[Real], Booleans],
    low: Real,
    high: Real,
    halvings: int = RESIDENT_HALVINGS,
) -> Real:
    """Point up to which a condition holds from `low` on, `high` if it holds throughout.

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


def crossing(
    gap: Callable[[Real], Real],
    low: Real,
    high: Real,
    steps: int = REGULA_FALSI_STEPS,
) -> Real:
    """Zero of a falling function, `high` if it stays above (regula falsi, Illinois).

    Args:
        gap: number -> value, above zero at `low`.
        low, high: ends of the interval [any unit].
        steps: at most.

    Returns:
        The point, on its far side where it is solved [unit of the interval].
    """
    above, below = gap(low), gap(high)
    middle, before = low, np.zeros_like(above)
    for _ in range(steps):
        share = np.where(below < 0, above / (above - below + _LEAST_DIFFERENCE), 1.0)
        within = low + np.clip(share, 0.0, 1.0) * (high - low)
        is_open = high - low > _SOLVED * high
        middle = np.where(is_open, within, high)
        if not np.any(is_open):
            break
        value = gap(middle)
        side = np.sign(value)
        # an end that stays twice counts half, so that it is left soon
        stays = np.where(side == before, 0.5, 1.0)
        low = np.where(side >= 0, middle, low)
        high = np.where(side > 0, high, middle)
        above = np.where(side > 0, value, stays * above)
        below = np.where(side > 0, stays * below, value)
        before = side
    return middle
