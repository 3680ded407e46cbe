"""The fluid model: the average iteration of a queue that keeps the memory full.

Whenever a request ends, the next one starts. `sweeps/evaluation/simulate.py` runs the same
iterations event by event.

Symbols: B requests, N resident, R = B / N rounds, s prompt, n output, L layers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nearkv.costmodel.capacity import Fits
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.queue import Load, Serving
from nearkv.costmodel.registry import Knob
from nearkv.costmodel.span import Real
from nearkv.costmodel.workload import Workload

NONE: Mapping[str, Real] = {}
_ROUNDING = 1e-12
"""A share solved for the last byte may miss it by that; it counts as fitting."""
POLICY = Knob(
    "let a request's memory grow page by page, or admit it with its final length reserved",
    high=1,
    default=0,
    kind="choice",
    choices=("paged", "reserve"),
)
"""L3 leaves admission open; every system of its family can do either."""


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
    filled = np.maximum(room - replicas / 2, one_each)
    queued = np.minimum(filled, batch)
    holds_all = np.less_equal(batch, np.multiply(room, 1 + _ROUNDING))
    return np.where(holds_all, batch, queued)[()]


def memory_needed(work: Workload, serving: Serving) -> Real:
    """Tokens of KV cache needed: all residents', on each replica at least the longest [1]."""
    of_residents = resident(work, serving) * work.context
    return np.maximum(of_residents, serving.replicas * work.longest)


def steady(
    work: Workload,
    serving: Serving,
    fits: Fits,
    also: Mapping[str, Real] = NONE,
    accelerator_power: Mapping[str, Real] = NONE,
) -> Estimate:
    """Fluid model: prefill and one decode step of all B requests, N at a time.

    The prompts that fill an empty memory have no decode step to share. Where prompts ride in decode
    iterations, all later ones do, spread over R (n - 1) iterations; elsewhere all come first.

    Args:
        work: mean lengths and moments of the requests.
        serving: how the system serves them.
        fits: what fits.
        also: columns beside the time between tokens, which counts the pauses for prompts that
            come later. That time is too long, up to 9 x, where riding prompts take longer than
            decoding: fewer than N would decode then (docs/l3.md).
        accelerator_power: as in `Estimate`.

    Returns:
        Prefill, and one decode step over all R rounds.
    """
    n = resident(work, serving)
    batch = np.maximum(work.batch, 1e-9)
    rounds = work.batch / np.maximum(n, 1e-9)
    iterations = np.maximum(rounds * (work.output - 1), 1.0)
    later = np.maximum(1 - room_for(work, serving) / batch, 0.0)
    riding = np.where(work.output > 1, serving.chunked * later, 0.0)
    each = riding * work.batch / iterations
    alone = (1 - riding) * work.batch
    squares = work.prompt**2 * work.spread.prompt_square
    tokens = n * work.context
    load = Load(n, tokens, tokens * serving.skew(n), each * work.prompt, each * squares)
    prompts = Load(0.0, 0.0, 0.0, alone * work.prompt, alone * squares)
    iteration = serving.iteration(load)
    prefill = serving.prefill(alone, prompts)
    paused = (1 - serving.chunked) * later * prefill.seconds / iterations
    between_tokens = iteration.seconds + paused
    return Estimate(
        prefill=prefill,
        step=rounds * iteration,
        fits=fits,
        work=work,
        batch_run=n,
        accelerator_power=accelerator_power,
        step_carries=each * work.prompt,
        also={"tbt_ms": 1e3 * between_tokens, **also},
        serving=serving,
    )
