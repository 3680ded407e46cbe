"""The fluid model: the average iteration of a queue that keeps the memory full.

Whenever a request ends, the next one starts. `sweeps/evaluation/simulate.py` runs the same
iterations event by event.

Symbols: B requests, N resident, R = B / N rounds, s prompt, n output, L layers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.capacity import Fits
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.mechanisms.bisection import bisect
from nearkv.costmodel.mechanisms.drain import decode_run, drain_of, iteration_seconds
from nearkv.costmodel.queue import Load, Serving
from nearkv.costmodel.registry import Knob
from nearkv.costmodel.span import Real, Span
from nearkv.costmodel.workload import Workload

NONE: Mapping[str, Real] = {}
_ROUNDING = 1e-12
"""A share solved for the last byte may miss it by that; it counts as fitting."""
_HIDDEN = 1e-9
"""An iteration longer by less than that hides its prompts."""
_HALVINGS = 28
"""Decoding requests are solved to 4e-9 of the residents."""
POLICY = Knob(
    "let a request's memory grow page by page, or admit it with its final length reserved",
    high=1,
    default=0,
    kind="choice",
    choices=("paged", "reserve"),
)
"""L3 leaves admission open; every system of its family can do either."""


def switch(what: str, on: str = "on", off: str = "off", default: float | str = 1) -> Knob:
    """A choice between two names, `on` being the default."""
    choices = (off, on)
    return Knob(
        what,
        high=1,
        default=default,
        kind="choice",
        choices=choices,
    )


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


def decoding(work: Workload, serving: Serving) -> Real:
    """Requests that decode at a time: the residents, or as many as riding prompts replace [1].

    n_d requests end at a rate of n_d / (n - 1) an iteration, and as many prompts of s tokens must
    ride in it. An iteration carries what decoding hides, or the minimum chunk of a replica; where
    that is less, fewer decode than memory holds: the largest n_d whose prompts still ride along. A
    prompt takes memory before it decodes, s / chunk iterations, one prompt a replica at a time.
    """
    most = resident(work, serving)
    queued = np.less(room_for(work, serving), work.batch) & np.greater(serving.chunked, 0)
    if not np.any(queued):
        return most
    chunk = np.maximum(serving.minimum_chunk, 1.0)
    prompt_rate = work.prompt / np.maximum(work.output - 1, 1.0)

    fewest = np.minimum(serving.replicas, most)
    one_loads = np.maximum(most / (1 + prompt_rate / chunk), most - serving.replicas)
    beside_loading = np.maximum(one_loads, fewest)
    carried = chunk * serving.replicas / np.maximum(prompt_rate, 1e-30)
    riding = np.maximum(np.minimum(carried, beside_loading), fewest)
    sustained = riding
    if np.any(queued & np.less(riding, beside_loading)):
        sustained = _hidden(work, serving, prompt_rate, riding, beside_loading)
    return np.where(queued, sustained, most)[()]


def _hidden(
    work: Workload, serving: Serving, prompt_rate: Real, riding: Real, most: Real
) -> Real:
    """Requests up to which chunks carry the prompts, or decoding hides more of them [1].

    Args:
        work, serving: as in `decoding`.
        prompt_rate: prompt tokens an iteration for each request that decodes [1].
        riding: requests whose prompts the minimum chunks carry [1].
        most: that memory holds [1].
    """

    def hides(*numbers: Real) -> list[NDArray[np.bool_]]:
        """Whether iterations of so many requests hide their prompts."""
        alone = [(sequences, 0.0) for sequences in numbers]
        beside = [(sequences, sequences * prompt_rate) for sequences in numbers]
        seconds = iteration_seconds(work, serving, [*alone, *beside])
        pairs = zip(seconds[: len(numbers)], seconds[len(numbers) :], strict=True)
        return [np.less_equal(both, np.multiply(one, 1 + _HIDDEN)) for one, both in pairs]

    hides_all, hides_more = hides(most, riding)
    if np.any(hides_more & ~hides_all):
        further = bisect(lambda number: hides(number)[0], riding, most, halvings=_HALVINGS)
        riding = np.where(hides_more, further, riding)
    return np.where(hides_all, most, riding)


def steady(
    work: Workload,
    serving: Serving,
    fits: Fits,
    also: Mapping[str, Real] = NONE,
    accelerator_power: Mapping[str, Real] = NONE,
) -> Estimate:
    """Fluid model: prefill and one decode step of all B requests, n_d at a time.

    The prompts of the first n_d requests have no decode step to share. Where prompts ride in decode
    iterations, all later ones do, spread over the iterations before the drain; elsewhere all come
    first. The drain decodes the last requests of a trace, fewer and fewer at a time.

    Args:
        work: mean lengths and moments of the requests.
        serving: how the system serves them.
        fits: what fits.
        also: columns beside the mean time between tokens, which counts the pauses for prompts that
            come later.
        accelerator_power: as in `Estimate`.

    Returns:
        Prefill, and one decode step over all rounds.
    """
    n = decoding(work, serving)
    room = room_for(work, serving)
    batch = np.maximum(work.batch, 1e-9)
    first = np.where(n < resident(work, serving), n, room)
    later = np.maximum(1 - first / batch, 0.0)
    drain = drain_of(work, np.less(room, work.batch))
    steps = np.maximum(work.output - 1, 1e-9)
    iterations = np.maximum(work.batch / np.maximum(n, 1e-9) * steps, 1e-9)
    full = np.maximum(iterations - drain.remainder, 0.0)

    any_steps = np.greater(work.output, 1) & np.greater(full, 0)
    riding = np.where(any_steps, serving.chunked * later, 0.0)
    carried = riding * work.batch * work.prompt / np.maximum(full, 1.0)
    prefill = prompts_first(work, serving, (1 - riding) * work.batch)
    waiting = np.where(any_steps, (1 - serving.chunked) * later, 0.0)
    paused = waiting * prefill.seconds / iterations
    run = decode_run(work, serving, n, carried, full, drain)
    between_tokens = run.token_seconds / iterations + paused
    return Estimate(
        prefill=prefill,
        step=run.step,
        fits=fits,
        work=work,
        batch_run=n,
        accelerator_power=accelerator_power,
        step_carries=carried,
        also={"tbt_ms": 1e3 * between_tokens, **also},
        serving=serving,
    )


def prompts_first(work: Workload, serving: Serving, requests: Real) -> Span:
    """Prefill of so many requests that ride in no iteration."""
    squares = work.prompt**2 * work.spread.prompt_square
    load = Load(0.0, 0.0, 0.0, requests * work.prompt, requests * squares)
    return serving.prefill(requests, load.on_kinds(serving.kinds, serving.skew))
