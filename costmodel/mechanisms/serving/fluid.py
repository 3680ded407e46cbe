"""Queues in closed form; `sweeps/evaluate/simulate.py` runs the same iterations event by event.

The fluid model is the average iteration of a queue that keeps the memory full. Whenever a request
ends, the next one starts; once nothing waits, fewer and fewer decode (the drain).

Requests that arrive at random, or from users that ask again when answered, have a model of their
own. All that decode share a replica (processor sharing, where means depend on mean lengths alone
[1]); prompts wait in line for the iterations that carry them (M/G/1, Pollaczek and Khinchine [1];
of several replicas Sakasegawa's approximation [2]). An iteration that carries a prompt takes
longer, and such iterations come in runs: a chain of two states, plain and mixed.

[1] Kleinrock, Queueing Systems, vol. 1, sec. 5.6, and vol. 2, sec. 4.4.
[2] Sakasegawa, An approximation formula Lq = alpha rho^beta / (1 - rho), 1977.

Symbols: B requests, N resident, n_d decoding, R = B / N rounds, s prompt, n output, L layers,
t iterations since the last admission, r mean remainder. Of requests that arrive: lambda requests
per second of a replica, n requests that decode, m tokens after the first, l prompt tokens, C chunk,
k chunks of a prompt, D, M and I seconds of a plain, a mixed and a mean iteration, w share of mixed
iterations, r correlation of one with the next, u share of the time that prompts add, rho share in
which prompts wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.compose import serial
from nearkv.costmodel.algebra.span import Port, Real, Span
from nearkv.costmodel.mechanisms.serving.residents import bisect, requests_held, resident
from nearkv.costmodel.model.capacity import Fits
from nearkv.costmodel.model.estimate import Estimate, Latency, Laws, Line
from nearkv.costmodel.model.queue import Load, Serving
from nearkv.costmodel.model.registry import choice
from nearkv.costmodel.model.workload import Workload

NONE: Mapping[str, Real] = {}
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
    also: Mapping[str, Real] = NONE,
    accelerator_power: Mapping[str, Real] = NONE,
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
        also: columns of one system alone.
        accelerator_power: as in `Estimate`.

    Returns:
        Prefill, and one decode step over all rounds.
    """
    if work.arrivals is not None:
        return under_load(work, serving, fits, also, accelerator_power)
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

    any_steps = np.greater(work.output, 1)
    may_ride = any_steps & np.greater(full, 0)
    riding = np.where(may_ride, serving.chunked * later, 0.0)
    # fewer than one iteration cannot spread prompts
    carried = riding * work.batch * work.prompt / np.maximum(full, 1.0)
    prefill = prompts_first(work, serving, (1 - riding) * work.batch)
    waiting = (1 - serving.chunked) * decoding_beside(n, serving, later)
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
        accelerator_power=accelerator_power,
        step_carries=carried,
        also=also,
        serving=serving,
        queued=Latency(ttft, between_tokens),
    )


def prompts_first(work: Workload, serving: Serving, requests: Real) -> Span:
    """Prefill of requests that ride in no iteration, given how many [1]."""
    load = serving.load_of(work, 0.0, requests * work.prompt)
    return serving.prefill(requests, load)


def decoding_beside(n: Real, serving: Serving, later: Real) -> Real:
    """Of n_d decoding requests, those that wait while another's prompt is computed first [1].

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
    waits = np.less(requests_held(work, serving), work.batch)
    queued = waits & np.greater(serving.chunked, 0)
    prompt_rate = work.prompt / np.maximum(work.output - 1, 1.0)
    chunks = prompt_rate / np.maximum(serving.minimum_chunk, 1.0)
    fewest = np.minimum(dp, most)
    not_loading = np.maximum(most / (1 + chunks), most - dp)
    beside_loading = np.maximum(not_loading, fewest)
    carried = dp / np.maximum(chunks, 1e-30)
    riding = np.clip(carried, fewest, beside_loading)
    # hidden prompts take 56 more iterations to solve for: only where chunks carry too few
    if np.any(queued & np.less(riding, beside_loading)):
        riding = _with_hidden(work, serving, prompt_rate, riding, beside_loading)
    return np.where(queued, riding, most)[()]


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


# --- the drain --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
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

    def pieces(self, least: Real) -> Iterator[Piece]:
        """Parts of the drain in order, that of the last request at the end.

        Args:
            least: share of the requests that decodes until the end, one on each replica [1].
        """
        remainder = np.maximum(self.remainder, 1e-9)
        k = np.maximum(self.longest / remainder - 1, 1e-9)
        steepness = -np.log(least) / k
        until_last = -np.expm1(-steepness)
        slow = np.less_equal(k, _FAST)
        for place, weight in zip(_PLACES, _WEIGHTS, strict=True):
            # steps of equal time where shares fall slowly, of equal ratio where they fall fast
            steeply = np.exp(-place * steepness)
            left = np.where(slow, 1 - place * until_last, steeply)
            length = np.where(slow, until_last, steepness * steeply)
            share = left**k
            yield Piece(self.longest * weight * length, share, share)
        alone = self.longest * (1 - until_last)
        yield Piece(alone, least, least / (k + 1))


def drain_of(work: Workload, queued: NDArray[np.bool_], iterations: Real) -> Drain:
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
    differ = np.greater(spread.output_square, 1)
    residual = steps * spread.output_square / 2
    remainder = np.where(queued, np.minimum(residual, iterations), steps)
    longest = np.maximum(steps * spread.longest_output, remainder)
    return Drain(
        longest=np.where(differ, longest, 0.0),
        remainder=np.where(differ, remainder, 0.0),
    )


@dataclass(frozen=True)
class Run:
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
) -> Run:
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
    return Run(step, token_seconds, full_seconds)


# --- requests that arrive ---------------------------------------------------------------------


GROWS = "requests come faster than they are answered, so the queue grows without end"
FULL = (
    "memory is full at times, which the closed form leaves out; --method simulate counts it"
)
FULL_SHARE = 0.85
"""Share of the requests that memory holds from which on it is full at times."""
_TINY = 1e-12
_BELOW_ONE = 1 - 1e-6
_OF_RATES = 20
"""Halvings of a rate alone; where users are solved for too, both are to a part in 4,096."""
_OF_USERS = 12


def _mean(values: Real) -> Real:
    """Over parts of the requests, which are the first axis."""
    mean: Real = np.mean(values, axis=0)
    return mean


@dataclass(frozen=True)
class Stream:
    """Requests that come to the replicas.

    Attributes:
        work, serving: the requests, and how they are served.
        rate: requests per second of a replica, lambda [1/s].
        others: that decode beside a request [1].
        own: share of all requests present that is one's own, for which it does not wait: 1 over
            users; 0 of a stream without end [1].
    """

    work: Workload
    serving: Serving
    rate: Real
    others: Real
    own: Real = 0.0

    @cached_property
    def plain(self) -> Real:
        """An iteration without a prompt [s]."""
        return self.iteration(0.0, 0.0)

    def iteration(self, prompt: Real, length: Real) -> Real:
        """An iteration beside which a request decodes, with tokens of prompts of a length [s]."""
        return self.serving.iteration(self.load(1 + self.others, prompt, length)).seconds

    def load(self, sequences: Real, prompt: Real, length: Real) -> Load:
        """Of all replicas, each with as many sequences, and tokens of prompts of a length [1]."""
        dp, work = self.serving.replicas, self.work
        sizes = work.spread.context_square
        return self.serving.load_at(
            dp * sequences, work.context, sizes, dp * prompt, length
        )

    def parts(self, parts: list[Real]) -> Real:
        """Lengths of parts of the requests, along a new first axis [1]."""
        stacked = np.stack(np.broadcast_arrays(*parts))
        points = np.ndim(self.plain)
        missing = points - (stacked.ndim - 1)
        return stacked.reshape(len(parts), *(1,) * missing, *stacked.shape[1:])


@dataclass(frozen=True)
class Response:
    """How the replicas answer a stream.

    Attributes:
        stream: the requests.
        beside: others that decode beside a request, which is `stream.others` in the end [1].
        mean: a mean iteration, I [s].
        at_once: requests that decode, n [1].
        decoding: from first to last token, on average [s].
        latency: of a mean request.
        laws: of all requests.
    """

    stream: Stream
    beside: Real
    mean: Real
    at_once: Real
    decoding: Real
    latency: Latency
    laws: Laws

    @property
    def overloaded(self) -> NDArray[np.bool_]:
        """Whether the queue grows without end: prompts or memory are never done with."""
        serving = self.stream.serving
        most = resident(self.stream.work, serving) / serving.replicas
        full = np.greater_equal(self.stream.others, most * _BELOW_ONE)
        return full | np.greater_equal(self.laws.line.rho, _BELOW_ONE)


@dataclass(frozen=True)
class Pace:
    """Iterations of a replica under a stream, plain and mixed.

    Attributes:
        prompts: tokens, l, of parts of the requests that hold as many tokens each [1].
        plain, mixed, mean: D, M and I [s].
        most: prompt tokens of an iteration, C; all where prompts come first [1].
        chunks: iterations that carry a part of each prompt, k [1].
        added: seconds by which each prompt makes iterations longer, or stops them [s].
        apart: chance that another prompt does not fit what one leaves of its last chunk [1].
        share: of the iterations that are mixed, w [1].
        busy: share of the time in them [1].
        choice: replicas among which a prompt finds one that computes no other [1].
    """

    prompts: Real
    plain: Real
    mixed: Real
    mean: Real
    most: Real
    chunks: Real
    added: Real
    apart: Real
    share: Real
    busy: Real
    choice: Real

    def over_prompts(self, values: Real) -> Real:
        """Mean over requests of what depends on the prompt; long parts hold fewer [its unit]."""
        weights = 1 / self.prompts
        return _mean(values * weights) / _mean(weights)

    def met(self, values: Real) -> Real:
        """Mean of what depends on the prompt as one meets it at any moment, E[x^2] / E[x]."""
        return self.over_prompts(values**2) / np.maximum(self.over_prompts(values), _TINY)

    def chance(self, busy: Real) -> Real:
        """Chance to wait where each replica is busy for a share of the time [2]."""
        return busy ** (np.sqrt(2 * (self.choice + 1)) - 1)


def pace_of(stream: Stream) -> Pace:
    """The iterations under a stream.

    Chunks follow one another in iterations of their own if they are full, and share an iteration
    if not: w = a k lambda I + (1 - a) (1 - exp(-k lambda I)), and M makes I the mean. Replicas
    whose prompts fill an iteration take no other; else the number of requests decides where one
    goes, which says little of prompts if many decode.
    """
    work, serving, rate, others = stream.work, stream.serving, stream.rate, stream.others
    chunked = serving.chunked
    prompts = stream.parts(work.prompt_parts)
    plain = stream.plain
    beside = serving.budget - 1 - others
    budget = np.where(np.greater(serving.budget, 0), beside, serving.minimum_chunk)
    most = np.where(np.greater(chunked, 0), np.maximum(budget, 1.0), np.inf)
    chunk = np.minimum(most, prompts)
    chunks = np.maximum(np.ceil(prompts / most - 1e-9), 1.0)
    riding = prompts / chunk * (stream.iteration(chunk, prompts) - plain)
    alone = serving.prefill(serving.replicas, stream.load(0.0, prompts, prompts)).seconds
    added = np.where(np.greater(chunked, 0), riding, alone)
    weights = work.prompt / prompts
    k = _mean(weights * chunks)
    mean = plain / (1 - np.minimum(rate * _mean(weights * added), _BELOW_ONE))
    apart = np.minimum(work.prompt / np.maximum(k * most - work.prompt, _TINY), 1.0)
    each = k * rate * (chunked * mean + (1 - chunked) * plain)
    share = np.clip(apart * each - (1 - apart) * np.expm1(-each), _TINY, 1 - 1e-9)
    mixed = plain + (mean - plain) / share
    busy = np.minimum(share * mixed / mean, 1.0)
    choice = 1 + (serving.replicas - 1) * np.maximum(apart, 1 / (1 + others))
    return Pace(
        prompts, plain, mixed, mean, most, chunks, added, apart, share, busy, choice
    )


def respond(stream: Stream) -> Response:
    """The response to a stream, given how many others decode beside a request.

    A request begins after its own prompt, when the next iteration is mixed as often as a departure
    leaves a prompt behind; then that chance returns to w at a rate r, which makes runs as uneven as
    busy periods of k iterations: (1 + r) / (1 - r) = (1 - w) E[k^2] / E[k] / (1 - chance)^2. The
    number that decodes swings with the share of the time that is left to decoding, which is as
    uneven as the unfinished work of M/G/1. The next request goes to the replica with fewest, so
    that others = n^2 / (n + 1 - 1 / dp), none where a few have a replica each.
    """
    work, rate, others = stream.work, stream.rate, stream.others
    pace, strangers = pace_of(stream), 1 - stream.own
    plain, longer, w = pace.plain, pace.mixed - pace.plain, pace.share
    steps = np.maximum(stream.parts(work.outputs) - 1, 0.0)
    m = np.maximum(steps, 1.0)
    chunked = stream.serving.chunked
    shared = -np.expm1(-rate * pace.mixed)
    riding = pace.apart * pace.chance(pace.busy) + (1 - pace.apart) * shared
    u = 1 - plain / pace.mean
    left_behind = u * (1 + rate * pace.met(pace.added) / (2 * (1 - u)))
    after = strangers * (chunked * riding + (1 - chunked) * left_behind)
    runs = (1 - w) * pace.met(pace.chunks) / (1 - np.minimum(after, 0.95)) ** 2
    # prompts that come first all stop one iteration
    r = chunked * (np.maximum(runs, 1.0) - 1) / (np.maximum(runs, 1.0) + 1)
    uneven = 1 - 1 / stream.serving.replicas
    present = (others + np.sqrt(others**2 + 4 * uneven * others)) / 2
    later = strangers * w * (present + _TINY) / (present + uneven + _TINY)
    seen = later + (after - later) * (1 - r**m) / ((1 - r) * m)
    tpot = plain + longer * seen
    decoding = _mean(steps * tpot)
    n = rate * decoding

    slope = replace(stream, others=others + 1).plain - plain
    steady = 1 - np.clip(others * slope / plain, 0.0, 0.95)
    swing = pace.busy * (1 - pace.busy) * (longer / pace.mixed * pace.mean / plain) ** 2
    forgets = 2 * (1 - pace.busy) / pace.met(plain * pace.chunks + pace.added)
    burst = n * swing / (steady * (steady + forgets * _mean(steps) * pace.mean))
    beside = strangers * (n * n / np.maximum(n + uneven, _TINY) + burst)

    # over their lives requests meet as many others as a Poisson law says, and bursts of them
    lives = np.maximum(steps * _mean(steps) / np.maximum(_mean(steps**2), 1.0), 1e-6)
    averaged = 2 * (np.expm1(-lives) + lives) / lives**2
    spread = others * (1 / steady + work.spread.context_square - 1 + burst)
    of_chunk = pace.met(pace.added) / pace.met(pace.chunks) * pace.over_prompts(pace.chunks)
    unequal = np.maximum(of_chunk / np.maximum(pace.over_prompts(pace.added), _TINY), 1.0)
    alike = (1 + r) / (1 - r) - 2 * r * (1 - r**m) / (m * (1 - r) ** 2)
    line = line_of(stream, pace, n)
    laws = Laws(
        plain=plain,
        scatter=slope * np.sqrt(spread * averaged),
        longest=np.maximum(longer * unequal, _TINY),
        mixed=np.clip(seen / unequal, 1e-9, 1 - 1e-9),
        size=1 / np.clip(alike / m, 1e-9, _BELOW_ONE) - 1,
        line=line,
    )
    latency = Latency(line.mean, _mean(tpot))
    return Response(stream, beside, pace.mean, n, decoding, latency, laws)


def line_of(stream: Stream, pace: Pace, n: Real) -> Line:
    """What precedes a first token: other prompts, the iteration that runs, and one's own.

    Prompts before one's own wait as in M/G/1, beyond what the iteration that runs holds of them. It
    is longer the more often it is met. Those behind fill the rest of one's last chunk.

    Args:
        stream, pace: the requests and their iterations.
        n: that decode [1].
    """
    chunked, strangers = stream.serving.chunked, 1 - stream.own
    plain, w, prompts = pace.plain, pace.share, pace.prompts
    service = pace.added + plain * prompts / pace.most
    rho = np.minimum(stream.rate * pace.over_prompts(service), _BELOW_ONE)
    waits = np.clip(pace.chance(rho), _TINY, 1.0)
    wait = waits * pace.met(service) / (2 * pace.choice * (1 - rho))
    line = strangers * np.maximum(
        wait - chunked * pace.busy * (pace.mixed - plain) / 2, 0.0
    )
    mixed = chunked * pace.mixed + (1 - chunked) * plain
    met = (w * mixed**2 + (1 - w) * plain**2) / (w * mixed + (1 - w) * plain)
    residual = strangers * -np.expm1(-n) * met / 2
    own = pace.added + chunked * plain * pace.chunks
    behind = (
        stream.rate * stream.work.prompt * (line + residual + own * (1 - 1 / pace.chunks))
    )
    rest = np.minimum(pace.most * pace.chunks - prompts, behind)
    computing = own + chunked * strangers * rest * pace.added / prompts
    weights = stream.work.prompt / prompts
    return Line(rho, line, waits, residual, computing, weights)


def at_rate(
    work: Workload,
    serving: Serving,
    rate: Real,
    own: Real = 0.0,
    halvings: int = _OF_RATES,
) -> Response:
    """The response to a rate, with as many decoding beside a request as it brings about.

    Args:
        work, serving: the requests, and how they are served.
        rate: requests per second over all replicas [1/s].
        own: as in `Stream`.
        halvings: of the number that decodes.
    """
    stream = Stream(work, serving, rate / serving.replicas, 0.0, own)
    most = resident(work, serving) / serving.replicas
    doublings = np.log1p(most) + 0.0 * rate

    def at(part: Real) -> Response:
        """With others at a place between none and all, at equal ratios."""
        return respond(replace(stream, others=np.expm1(part * doublings)))

    def more(part: Real) -> NDArray[np.bool_]:
        response = at(part)
        return np.greater(response.beside, response.stream.others)

    return at(bisect(more, 0.0 * doublings, 1.0 + 0.0 * doublings, halvings))


def of_users(work: Workload, serving: Serving, users: Real) -> Response:
    """The response to a closed loop: the rate at which as many requests are present as users."""
    own = 1 / np.maximum(users, 1.0)
    lonely = respond(Stream(work, serving, _TINY, 0.0, 1.0))
    alone = lonely.latency.ttft + lonely.decoding

    def fewer(rate: Real) -> NDArray[np.bool_]:
        response = at_rate(work, serving, rate, own, _OF_USERS)
        present = rate * (response.latency.ttft + response.decoding)
        return np.less(present, users) & ~response.overloaded

    return at_rate(work, serving, bisect(fewer, 0.0 * alone, users / alone, _OF_USERS), own)


def under_load(
    work: Workload,
    serving: Serving,
    fits: Fits,
    also: Mapping[str, Real],
    accelerator_power: Mapping[str, Real],
) -> Estimate:
    """The answer to requests that arrive: of a mean request, and of the iterations it meets.

    The batch is that of the requests present, so that by Little's law throughput is their tokens
    over the time of one.

    Args:
        work: the requests, and how they arrive.
        serving, fits: how they are served, and what fits.
        also, accelerator_power: as in `Estimate`.
    """
    arrivals, dp = work.arrivals, serving.replicas
    assert arrivals is not None, "a batch is answered by `fluid.steady`"
    if arrivals.users is None:
        response = at_rate(work, serving, arrivals.rate)
        fits = fits.without({GROWS: response.overloaded})
        latency, rate = response.latency, arrivals.rate
    else:
        response = of_users(work, serving, arrivals.users)
        rate = dp * response.stream.rate
        # who finds memory full waits for it, too
        ttft = arrivals.users / rate - response.decoding
        latency = replace(response.latency, ttft=ttft)
    n = dp * response.at_once
    carried = rate * work.prompt * response.mean
    iteration = serving.iteration_of(work, n, serving.chunked * carried)
    tokens = np.maximum(work.output - 1, _TINY)
    paced = response.decoding / (tokens * np.maximum(iteration.seconds, _TINY))
    waiting = Port("queue.wait", "wait", 1.0, "s")
    held = requests_held(work, serving)
    crowded = np.greater(n, FULL_SHARE * held) & np.greater(work.batch, held)
    return Estimate(
        prefill=serial(waiting=waiting(latency.ttft, "line, residual and prompt")),
        step=paced * iteration,
        fits=fits,
        work=replace(work, batch=rate * (latency.ttft + response.decoding)),
        batch_run=n,
        accelerator_power=accelerator_power,
        step_carries=carried,
        also=also,
        serving=serving,
        queued=latency,
        laws=response.laws,
        notes={FULL: crowded} if np.any(crowded) else {},
    )
