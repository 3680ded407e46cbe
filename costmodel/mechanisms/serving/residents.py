"""How many requests of a queue are in memory and decode together.

Symbols: B requests, n_d decoding, s prompt, n output.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.queue import Serving
from nearkv.costmodel.model.workload import Workload

HALVINGS = 48


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


_ROUNDING = 1e-12
"""A share solved for the last byte may miss it by that; it counts as fitting."""


_HIDDEN = 1e-9
"""An iteration longer by less than that hides its prompts."""


_HALVINGS = 28
"""Decoding requests are solved to 4e-9 of the residents."""


def tokens_reserved(work: Workload, reserve: Real) -> Real:
    """Tokens a resident request takes: its context, or its final length if reserved [1]."""
    return work.context + reserve * (work.final_seen - work.context)


def room_for(work: Workload, serving: Serving) -> Real:
    """Requests of mean size that would fill the memory [1]."""
    return serving.room / tokens_reserved(work, serving.reserve)


def resident(work: Workload, serving: Serving) -> Real:
    """Requests that decode together, N: all, or as many of mean size as the memory holds [1]."""
    return resident_in(room_for(work, serving), work.batch, serving.replicas)


def resident_in(room: Real, batch: Real, replicas: Real) -> Real:
    """Requests that decode together in a memory that holds so many of mean size [1].

    A queue fills memory with whole requests, which leaves room for half of one idle in each replica
    on average; at least one runs.

    Args:
        room: requests of mean size that would fill the memory of all replicas [1].
        batch: requests in all [1].
        replicas: dp [1].
    """
    one_each = np.minimum(replicas, batch)
    left = replicas / 2
    filled = np.maximum(room - left, one_each)
    queued = np.minimum(filled, batch)
    holds_all = np.less_equal(batch, np.multiply(room, 1 + _ROUNDING))
    return np.where(holds_all, batch, queued)[()]


def memory_needed(work: Workload, serving: Serving) -> Real:
    """Tokens of KV cache needed: all residents', on each replica at least the longest [1]."""
    of_residents = resident(work, serving) * work.context
    return np.maximum(of_residents, serving.replicas * work.longest)


def decoding(work: Workload, serving: Serving) -> Real:
    """Requests that decode at a time: the residents, or as many as riding prompts replace [1].

    n_d requests end at a rate of n_d / (n - 1) an iteration, and as many prompts of s tokens must
    ride in it. An iteration carries what decoding hides, or the minimum chunk of a replica; where
    that is less, fewer decode than memory holds: the largest n_d whose prompts still ride along. A
    prompt takes memory before it decodes, s / chunk iterations, one prompt a replica at a time.
    """
    most = resident(work, serving)
    room = room_for(work, serving)
    ride = np.greater(serving.chunked, 0)
    queued = np.less(room, work.batch) & ride
    if not np.any(queued):
        return most
    steps = np.maximum(work.output - 1, 1.0)
    prompt_rate = work.prompt / steps
    chunk = np.maximum(serving.minimum_chunk, 1.0)
    chunks = prompt_rate / chunk
    fewest = np.minimum(serving.replicas, most)
    one_loads = np.maximum(most / (1 + chunks), most - serving.replicas)
    beside_loading = np.maximum(one_loads, fewest)
    carried = serving.replicas / np.maximum(chunks, 1e-30)
    riding = np.minimum(carried, beside_loading)
    sustained = np.maximum(riding, fewest)
    if np.any(queued & np.less(sustained, beside_loading)):
        sustained = _with_hidden(work, serving, prompt_rate, sustained, beside_loading)
    return np.where(queued, sustained, most)[()]


def _with_hidden(
    work: Workload,
    serving: Serving,
    prompt_rate: Real,
    riding: Real,
    most: Real,
) -> Real:
    """Requests up to which chunks carry the prompts, or decoding hides more of them [1].

    Args:
        work, serving: the queue.
        prompt_rate: prompt tokens an iteration for each request that decodes [1].
        riding: requests whose prompts the minimum chunks carry [1].
        most: that memory holds [1].
    """

    def hides(sequences: Real) -> NDArray[np.bool_]:
        """Whether the iteration of these sequences takes no longer with their prompts in it."""
        alone = serving.iteration_of(work, sequences, 0.0).seconds
        both = serving.iteration_of(work, sequences, sequences * prompt_rate).seconds
        return np.less_equal(both, np.multiply(alone, 1 + _HIDDEN))

    all_hide, more_hide = hides(most), hides(riding)
    if np.any(more_hide & ~all_hide):
        further = bisect(hides, riding, most, halvings=_HALVINGS)
        riding = np.where(more_hide, further, riding)
    return np.where(all_hide, most, riding)
