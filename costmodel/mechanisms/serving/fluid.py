"""Full queues in closed form; `sweeps/simulate` runs the same event by event.

The fluid model is the average iteration of a queue that keeps the memory full. Whenever a request
ends, the next one starts; once nothing waits, fewer and fewer decode (the drain).

Symbols: B requests, N resident, n_d decoding, R = B / N rounds, s prompt, n output, L layers,
t iterations since the last admission, r mean remainder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import (
    Booleans,
    Real,
    Span,
    choose,
    quotient,
    serial,
)
from nearkv.costmodel.mechanisms.serving.arrivals import under_load
from nearkv.costmodel.mechanisms.serving.residents import bisect, requests_held, resident
from nearkv.costmodel.model.estimate import Estimate, Fits, Latency
from nearkv.costmodel.model.registry import choice
from nearkv.costmodel.model.workload import Serving, Workload

POLICY = choice(
    "let a request's memory grow page by page, or admit it with its final length reserved",
    ("paged", "reserve"),
)
"""L3 leaves admission open; every system of its family can do either."""
_HIDDEN = 1e-9
"""An iteration longer by less than that hides its prompts."""
_HALVINGS = 28
"""Decoding requests are solved to 4e-9 of the residents."""
_NODES, _GAUSS = np.polynomial.legendre.leggauss(6)
_PLACES, _WEIGHTS = (1 + _NODES) / 2, _GAUSS / 2
"""Points and weights of the integral over the drain, as shares of its length."""
_FAST = 2.0
"""Exponent of the law from which on shares fall so fast that their logarithm is stepped through."""


# --- the run --------------------------------------------------------------------------------


def steady(
    work: Workload,
    serving: Serving,
    fits: Fits,
) -> Estimate:
    """Fluid model: prefill and one decode step of all B requests, n_d at a time.

    Requests that arrive one by one, or again and again, are answered by `under_load`.

    The prompts of the first n_d requests have no decode step to share. Where prompts ride in decode
    iterations, all later ones do, spread over the iterations before the drain; elsewhere all come
    first. The drain decodes the last requests of a trace, fewer and fewer at a time.

    Args:
        work: mean lengths and moments of the requests.
        serving: how the system serves them.
        fits: what fits.

    Returns:
        Prefill, and one decode step over all rounds.
    """
    if work.arrivals is not None:
        return under_load(work, serving, fits)
    n = decoding(work, serving)
    held = requests_held(work, serving)
    batch = np.maximum(work.batch, 1e-9)
    # where riding prompts leave fewer decoding than memory holds, only those start at once
    first = np.where(n < resident(work, serving), n, held)
    later = np.maximum(1 - first / batch, 0.0)
    steps = np.maximum(work.output - 1, 1e-9)
    rounds = work.batch / np.maximum(n, 1e-9)
    iterations = np.maximum(rounds * steps, 1e-9)
    drain = drain_of(work, np.less(held, work.batch), iterations)
    # what the last requests decode in the drain takes no full iteration
    full = np.maximum(iterations - drain.remainder, 0.0)

    any_steps = work.output > 1
    may_ride = any_steps & (full > 0)
    riding = np.where(may_ride, serving.chunked * later, 0.0)
    # fewer than one iteration cannot spread prompts
    carried = riding * work.batch * work.prompt / np.maximum(full, 1.0)
    not_riding = (1 - riding) * work.batch
    prompts = serving.load_of(work, 0.0, not_riding * work.prompt)
    prefill = serving.prefill(not_riding, prompts)
    # of the prompts that ride in no iteration, the share that comes while others decode
    behind = (later - riding) / np.maximum(1 - riding, 1e-9)
    waiting = decoding_beside(n, serving, behind)
    paused = np.where(any_steps, waiting * prefill.seconds / iterations, 0.0)
    run = decode_run(work, serving, n, carried, full, drain)
    between_tokens = run.token_seconds / iterations + paused
    # the first requests load one after another; later ones begin evenly over what follows
    loading = prefill.seconds * (1 - later) / np.maximum(1 - riding, 1e-9)
    until_mean = loading * (1 + serving.one_on_each((1 - later) * batch)) / 2
    evenly = (run.full_seconds + prefill.seconds - loading) / 2
    ttft = until_mean + later * (loading + evenly - until_mean)
    return Estimate(
        prefill=prefill,
        step=run.step,
        fits=fits,
        work=work,
        batch_run=n,
        step_carries=carried,
        serving=serving,
        queued=Latency(ttft, between_tokens),
    )


def decoding_beside(n: Real, serving: Serving, later: Real) -> Real:
    """Decoding requests, of n_d, that wait while another's prompt is computed first [1].

    All but the one on each replica that the prompt is for. While memory fills at the start, half as
    many on average: the first request waits for all others, the last for none.

    Args:
        n: requests that decode together [1].
        serving: how they are served.
        later: share of the prompts that come once memory is full [1].
    """
    others = 1 - serving.one_on_each(n)
    return others * (later + (1 - later) / 2)


# --- how many of them decode ------------------------------------------------------------------


def decoding(work: Workload, serving: Serving) -> Real:
    """Requests that decode at a time: the residents, or as many as riding prompts replace [1].

    n_d requests end at a rate of n_d / (n - 1) an iteration, and as many prompts of s tokens must
    ride in it. An iteration carries what decoding hides, or the minimum chunk of a replica; where
    that is less, fewer decode than memory holds: the largest n_d whose prompts still ride along. A
    prompt takes memory before it decodes, s / chunk iterations, one prompt a replica at a time.
    """
    most, dp = resident(work, serving), serving.replicas
    waits = requests_held(work, serving) < work.batch
    queued = waits & (serving.chunked > 0)
    prompt_rate = work.prompt / np.maximum(work.output - 1, 1.0)
    chunks = prompt_rate / np.maximum(serving.minimum_chunk, 1.0)
    fewest = np.minimum(dp, most)
    not_loading = np.maximum(most / (1 + chunks), most - dp)
    beside_loading = np.maximum(not_loading, fewest)
    carried = quotient(dp, chunks)
    riding: Real = np.clip(carried, fewest, beside_loading)
    # hidden prompts take 56 more iterations to solve for: only where chunks carry too few
    if np.any(queued & (riding < beside_loading)):
        riding = _with_hidden(work, serving, prompt_rate, riding, beside_loading)
    return choose(queued, riding, most)


def _with_hidden(
    work: Workload, serving: Serving, prompt_rate: Real, riding: Real, most: Real
) -> Real:
    """Requests up to which chunks carry the prompts, or decoding hides more of them [1].

    Args:
        work, serving: the queue.
        prompt_rate: prompt tokens an iteration for each request that decodes [1].
        riding: requests whose prompts the minimum chunks carry [1].
        most: that memory holds [1].
    """

    def hides(sequences: Real) -> Booleans:
        """True if the iteration of these sequences takes no longer with their prompts in it."""
        alone = serving.iteration_of(work, sequences, 0.0).seconds
        both = serving.iteration_of(work, sequences, sequences * prompt_rate).seconds
        return both <= np.multiply(alone, 1 + _HIDDEN)

    all_hide, more_hide = hides(most), hides(riding)
    if np.any(more_hide & ~all_hide):
        further = bisect(hides, riding, most, halvings=_HALVINGS)
        riding = np.where(more_hide, further, riding)
    return np.where(all_hide, most, riding)


# --- the drain --------------------------------------------------------------------------------


@dataclass(frozen=True)
class DrainPiece:
    """A part of the drain.

    Attributes:
        iterations: that it takes [1].
        decoding: share of the last requests that decode in each [1].
        served: the share by the law of their remainders, less where one goes on alone [1].
    """

    iterations: Real
    decoding: Real
    served: Real


@dataclass(frozen=True)
class Drain:
    """The end of a run: nothing waits any more, and the last requests leave one after another.

    Shares of the last requests that still decode follow (1 - t / t_max)^k, which has the longest
    answer as its end and their mean remainder r as its integral: k = t_max / r - 1. It is exact for
    equal requests out of step (k = 1) and for a geometric law (k large). Until t_max at least one
    decodes, which takes the time of an iteration.

    Attributes:
        longest: iterations until the last request ends, t_max [1].
        remainder: of a mean request among the last ones, r [1].
    """

    longest: Real
    remainder: Real

    def pieces(self, least: Real) -> Iterator[DrainPiece]:
        """Parts of the drain in order, that of the last request at the end.

        Args:
            least: share of the requests that decodes until the end, one on each replica [1].
        """
        remainder = np.maximum(self.remainder, 1e-9)
        k = np.maximum(self.longest / remainder - 1, 1e-9)
        steepness = -np.log(least) / k
        until_last = -np.expm1(-steepness)
        slow = k <= _FAST
        for place, weight in zip(_PLACES, _WEIGHTS, strict=True):
            # steps of equal time where shares fall slowly, of equal ratio where they fall fast
            steeply = np.exp(-place * steepness)
            left = np.where(slow, 1 - place * until_last, steeply)
            length = np.where(slow, until_last, steepness * steeply)
            share = left**k
            yield DrainPiece(self.longest * weight * length, share, share)
        alone = self.longest * (1 - until_last)
        yield DrainPiece(alone, least, least / (k + 1))


def drain_of(work: Workload, queued: Booleans, iterations: Real) -> Drain:
    """The drain of the last requests; those that never queued began together.

    Requests of equal length end together: nothing drains. The last ones have no more to generate
    than all: where nearly all are resident from the start, their mean remainder is what is left.

    Args:
        work: mean lengths and moments of the requests.
        queued: where some waited.
        iterations: of as many requests at a time as decode together, if none drained [1].
    """
    spread = work.spread
    steps = np.maximum(work.output - 1, 0.0)
    differ = spread.output_square > 1
    residual = steps * spread.output_square / 2
    remainder = np.where(queued, np.minimum(residual, iterations), steps)
    longest = np.maximum(steps * spread.longest_output, remainder)
    return Drain(
        longest=np.where(differ, longest, 0.0),
        remainder=np.where(differ, remainder, 0.0),
    )


@dataclass(frozen=True)
class IterationRun:
    """The iterations of a run.

    Attributes:
        step: all of them over the tokens of a request beyond the first.
        token_seconds: what one place of n_d waits, weighted by how many of them are taken [s].
        full_seconds: of the full iterations [s].
    """

    step: Span
    token_seconds: Real
    full_seconds: Real


def decode_run(
    work: Workload,
    serving: Serving,
    sequences: Real,
    carried: Real,
    full: Real,
    drain: Drain,
) -> IterationRun:
    """Full iterations with the prompts they carry, then the drain.

    Args:
        work, serving: the queue.
        sequences: decoding in a full iteration [1].
        carried: prompt tokens in a full iteration [1].
        full: how many full iterations [1].
        drain: what follows.
    """
    steps = np.maximum(work.output - 1, 1e-9)
    iteration = serving.iteration_of(work, sequences, carried)
    full_seconds = full * iteration.seconds
    token_seconds = full_seconds
    parts: dict[str, Span] = {"queue": (full / steps) * iteration}
    least = serving.one_on_each(sequences)
    # only a trace drains, so that other answers show no parts of a drain
    pieces = drain.pieces(least) if np.any(drain.remainder) else ()
    for number, piece in enumerate(pieces, 1):
        drained = serving.iteration_of(work, piece.decoding * sequences, 0.0)
        parts[f"drain_{number}"] = (piece.iterations / steps) * drained
        token_seconds = token_seconds + piece.iterations * piece.served * drained.seconds
    step = serial(**parts) if len(parts) > 1 else parts["queue"]
    return IterationRun(step, token_seconds, full_seconds)
