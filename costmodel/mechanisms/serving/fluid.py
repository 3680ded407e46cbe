"""The fluid model: the average iteration of a queue that keeps the memory full.

Whenever a request ends, the next one starts. `sweeps/evaluate/simulate.py` runs the same
iterations event by event.

Symbols: B requests, N resident, R = B / N rounds, s prompt, n output, L layers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.mechanisms.serving.drain import decode_run, drain_of
from nearkv.costmodel.mechanisms.serving.residents import decoding, resident, room_for
from nearkv.costmodel.model.capacity import Fits
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.queue import Load, Serving
from nearkv.costmodel.model.registry import Knob
from nearkv.costmodel.model.workload import Workload

NONE: Mapping[str, Real] = {}
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
        also: columns beside the mean time between tokens, which counts the pauses for prompts.
        accelerator_power: as in `Estimate`.

    Returns:
        Prefill, and one decode step over all rounds.
    """
    n = decoding(work, serving)
    room = room_for(work, serving)
    batch = np.maximum(work.batch, 1e-9)
    first = np.where(n < resident(work, serving), n, room)
    later = np.maximum(1 - first / batch, 0.0)
    steps = np.maximum(work.output - 1, 1e-9)
    iterations = np.maximum(work.batch / np.maximum(n, 1e-9) * steps, 1e-9)
    drain = drain_of(work, np.less(room, work.batch), iterations)
    full = np.maximum(iterations - drain.remainder, 0.0)

    any_steps = np.greater(work.output, 1)
    riding = np.where(any_steps & np.greater(full, 0), serving.chunked * later, 0.0)
    carried = riding * work.batch * work.prompt / np.maximum(full, 1.0)
    prefill = prompts_first(work, serving, (1 - riding) * work.batch)
    waiting = (1 - serving.chunked) * decoding_beside(n, serving, later)
    paused = np.where(any_steps, waiting * prefill.seconds / iterations, 0.0)
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
        also={"tpot_ms": 1e3 * between_tokens, **also},
        serving=serving,
    )


def decoding_beside(n: Real, serving: Serving, later: Real) -> Real:
    """Of n_d places, those whose request waits while a prompt that comes first is computed [1].

    All but the one on each replica that the prompt is for. While memory fills at the start, half as
    many on average: the first request waits for all others, the last for none.

    Args:
        n: requests that decode together [1].
        serving: how they are served.
        later: share of the prompts that come once memory is full [1].
    """
    others = 1 - serving.one_on_each(n)
    return others * (later + (1 - later) / 2)


def prompts_first(work: Workload, serving: Serving, requests: Real) -> Span:
    """Prefill of so many requests that ride in no iteration."""
    squares = work.prompt**2 * work.spread.prompt_square
    load = Load(0.0, 0.0, 0.0, requests * work.prompt, requests * squares)
    return serving.prefill(requests, load.on_kinds(serving.kinds, serving.skew))
