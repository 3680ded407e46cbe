"""Latency of requests that arrive, in closed form: at a rate, or from users that ask again.

All that decode share a replica (processor sharing, where means depend on mean lengths alone [1]);
prompts wait in line for the iterations that carry them (M/G/1, Pollaczek and Khinchine [1]; of
several replicas Sakasegawa's approximation [2]). An iteration that carries a prompt takes longer,
and such iterations come in runs: a chain of two states, plain and mixed.

[1] Kleinrock, Queueing Systems, vol. 1, sec. 5.6, and vol. 2, sec. 4.4.
[2] Sakasegawa, An approximation formula Lq = alpha rho^beta / (1 - rho), 1977.
[3] vLLM, `v1/engine/core_client.py`, `get_core_engine_for_request`.

Symbols: lambda requests per second of a replica, n requests that decode, m tokens after the first,
l prompt tokens, C chunk, k chunks of a prompt, D, M and I seconds of a plain, a mixed and a mean
iteration, w share of mixed iterations, r correlation of one with the next, u share of the time that
prompts add, rho share in which prompts wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.compose import serial
from nearkv.costmodel.algebra.span import Port, Real
from nearkv.costmodel.mechanisms.serving.residents import crossing, requests_held, resident
from nearkv.costmodel.model.capacity import Fits
from nearkv.costmodel.model.estimate import Estimate, Latency, Laws, WaitingLine
from nearkv.costmodel.model.queue import Load, Serving
from nearkv.costmodel.model.workload import Workload

FULL = (
    "memory is full at times, which the closed form leaves out and --method simulate counts"
)
IN_STEP = (
    "users whose requests are all alike fall into step and wait less than the closed form says, "
    "which --method simulate counts"
)
FULL_SHARE = 0.85
"""Share of the requests that memory holds from which on it is full at times."""
OF_WAITING = 4
"""Running requests that one waiting request counts as, where a replica is chosen [3]."""
_LEAST_RATE = 1e-12
_BELOW_ONE = 1 - 1e-6


def _mean(values: Real) -> Real:
    """Over parts of the requests, which are the first axis."""
    mean: Real = np.mean(values, axis=0)
    return mean


@dataclass(frozen=True)
class Replica:
    """A replica on which a request decodes beside others.

    Attributes:
        work, serving: the requests, and how they are served.
        others: that decode beside a request [1].
    """

    work: Workload
    serving: Serving
    others: Real

    @cached_property
    def plain(self) -> Real:
        """An iteration without a prompt, D [s]."""
        return self.iteration(0.0, 0.0)

    @cached_property
    def slope(self) -> Real:
        """What one sequence more adds to it [s]."""
        return replace(self, others=self.others + 1).plain - self.plain

    @cached_property
    def prompts(self) -> Real:
        """Prompt tokens, l, of parts of the requests that hold as many tokens each [1]."""
        return self.parts(self.work.prompt_parts)

    @cached_property
    def weights(self) -> Real:
        """Requests of each of these parts, over their mean: long prompts are few [1]."""
        return self.work.prompt / self.prompts

    @cached_property
    def alone(self) -> Real:
        """Each prompt on its own, while decoding pauses [s]."""
        load = self.load(0.0, self.prompts, self.prompts)
        return self.serving.prefill(self.serving.replicas, load).seconds

    @property
    def most(self) -> Real:
        """Prompt tokens of an iteration, C; all where prompts come first [1]."""
        serving = self.serving
        beside = serving.budget - 1 - self.others
        budget = np.where(np.greater(serving.budget, 0), beside, serving.minimum_chunk)
        return np.where(np.greater(serving.chunked, 0), np.maximum(budget, 1.0), np.inf)

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

    def over_prompts(self, values: Real) -> Real:
        """Mean over requests of what depends on the prompt [its unit]."""
        return _mean(self.weights * values)

    def met(self, values: Real) -> Real:
        """Mean of what depends on the prompt as one meets it at any moment, E[x^2] / E[x]."""
        return self.over_prompts(values**2) / np.maximum(
            self.over_prompts(values), _LEAST_RATE
        )

    def parts(self, parts: list[Real]) -> Real:
        """Lengths of parts of the requests, along a new first axis [1]."""
        stacked = np.stack(np.broadcast_arrays(*parts))
        points = np.ndim(self.plain)
        missing = points - (stacked.ndim - 1)
        return stacked.reshape(len(parts), *(1,) * missing, *stacked.shape[1:])


@dataclass(frozen=True)
class Response:
    """How the replicas answer a stream of requests.

    Attributes:
        replica: where they are served.
        rate: requests per second of a replica, lambda [1/s].
        pace: the iterations.
        beside: others that decode beside a request, which are `replica.others` in the end [1].
        at_once: requests that decode, n [1].
        decoding: from first to last token, on average [s].
        latency: of a mean request.
        line: what precedes a first token.
        tokens: after the first, m, of parts of the requests by their answers [1].
        seen: share of the iterations met that are mixed, by part [1].
        lasting: correlation of an iteration with the next, r [1].
    """

    replica: Replica
    rate: Real
    pace: Pace
    beside: Real
    at_once: Real
    decoding: Real
    latency: Latency
    line: WaitingLine
    tokens: Real
    seen: Real
    lasting: Real

    @property
    def sojourn(self) -> Real:
        """From when a request comes to its last token, on average [s]."""
        return self.latency.ttft + self.decoding

    @property
    def overloaded(self) -> NDArray[np.bool_]:
        """Whether the queue grows without end: prompts or memory are never done with."""
        full = np.greater_equal(self.replica.others, _room(self.replica) * _BELOW_ONE)
        return full | np.greater_equal(self.line.rho, _BELOW_ONE)


def _room(replica: Replica) -> Real:
    """Requests that a replica holds [1]."""
    return resident(replica.work, replica.serving) / replica.serving.replicas


@dataclass(frozen=True)
class Pace:
    """Iterations of a replica under a stream, plain and mixed.

    Attributes:
        mixed, mean: M and I [s].
        chunks: iterations that carry a part of each prompt, k [1].
        added: seconds by which each prompt makes iterations longer, or stops them [s].
        apart: chance that another prompt does not fit what one leaves of its last chunk [1].
        share: of the iterations that are mixed, w [1].
        busy: share of the time in them [1].
        choice: replicas among which a prompt finds one that computes no other [1].
    """

    mixed: Real
    mean: Real
    chunks: Real
    added: Real
    apart: Real
    share: Real
    busy: Real
    choice: Real

    def chance(self, busy: Real) -> Real:
        """Chance to wait where each replica is busy for a share of the time [2]."""
        return busy ** (np.sqrt(2 * (self.choice + 1)) - 1)


def pace_of(replica: Replica, rate: Real) -> Pace:
    """The iterations under a stream.

    A prompt shares its iterations with what comes during one, which hides less than each alone.
    Chunks follow one another in iterations of their own if they are full, and share one if not:
    w = a k lambda I + (1 - a) (1 - exp(-k lambda I)), and M makes I the mean. The next request goes
    to the replica with the least of 4 x waiting + running [3], which says little of prompts where
    the numbers that run, apart by sqrt(n), differ by more than 4.

    Args:
        replica: where requests are served.
        rate: lambda [1/s].
    """
    work, serving, others = replica.work, replica.serving, replica.others
    chunked, plain = serving.chunked, replica.plain
    prompts, most = replica.prompts, replica.most
    chunk = np.minimum(most, prompts + rate * work.prompt * plain)
    chunks = np.maximum(np.ceil(prompts / most - 1e-9), 1.0)
    riding = prompts / chunk * (replica.iteration(chunk, prompts) - plain)
    added = np.where(np.greater(chunked, 0), riding, replica.alone)
    k = replica.over_prompts(chunks)
    mean = plain / (1 - np.minimum(rate * replica.over_prompts(added), _BELOW_ONE))
    apart = np.minimum(work.prompt / np.maximum(k * most - work.prompt, _LEAST_RATE), 1.0)
    each = k * rate * (chunked * mean + (1 - chunked) * plain)
    share = np.clip(apart * each - (1 - apart) * np.expm1(-each), _LEAST_RATE, 1 - 1e-9)
    mixed = plain + (mean - plain) / share
    busy = np.minimum(share * mixed / mean, 1.0)
    choice = 1 + (serving.replicas - 1) / (1 + np.sqrt(others) / OF_WAITING)
    return Pace(mixed, mean, chunks, added, apart, share, busy, choice)


def respond(replica: Replica, rate: Real, own: Real = 0.0) -> Response:
    """The response to a stream, given how many others decode beside a request.

    A request begins after its own prompt, when the next iteration is mixed as often as a departure
    leaves a prompt behind; then that chance returns to w at a rate r, which makes runs as uneven as
    busy periods of k iterations: (1 + r) / (1 - r) = (1 - w) E[k^2] / E[k] / (1 - chance)^2. The
    next request goes to the replica with fewest, so that others = n^2 / (n + 1 - 1 / dp), none
    where a few have a replica each.

    Args:
        replica: where requests are served.
        rate: lambda [1/s].
        own: share of all requests present that is one's own, for which it does not wait: 1 over
            users; 0 of a stream without end [1].
    """
    work, others = replica.work, replica.others
    pace, strangers = pace_of(replica, rate), 1 - own
    plain, longer, w = replica.plain, pace.mixed - replica.plain, pace.share
    steps = np.maximum(replica.parts(work.outputs) - 1, 0.0)
    m = np.maximum(steps, 1.0)
    chunked = replica.serving.chunked
    shared = -np.expm1(-rate * pace.mixed)
    riding = pace.apart * pace.chance(pace.busy) + (1 - pace.apart) * shared
    u = 1 - plain / pace.mean
    left_behind = u * (1 + rate * replica.met(pace.added) / (2 * (1 - u)))
    after = strangers * (chunked * riding + (1 - chunked) * left_behind)
    runs = (1 - w) * replica.met(pace.chunks) / (1 - np.minimum(after, 0.95)) ** 2
    # prompts that come first all stop one iteration
    r = chunked * (np.maximum(runs, 1.0) - 1) / (np.maximum(runs, 1.0) + 1)
    uneven = 1 - 1 / replica.serving.replicas
    present = (others + np.sqrt(others**2 + 4 * uneven * others)) / 2
    later = strangers * w * (present + _LEAST_RATE) / (present + uneven + _LEAST_RATE)
    seen = later + (after - later) * (1 - r**m) / ((1 - r) * m)
    tpot = plain + longer * seen
    decoding = _mean(steps * tpot)
    n = rate * decoding
    line = line_of(replica, rate, own, pace, n)
    return Response(
        replica=replica,
        rate=rate,
        pace=pace,
        beside=strangers * n * n / np.maximum(n + uneven, _LEAST_RATE),
        at_once=n,
        decoding=decoding,
        latency=Latency(line.mean, _mean(tpot)),
        line=line,
        tokens=m,
        seen=seen,
        lasting=r,
    )


def laws_of(response: Response) -> Laws:
    """How the latencies of requests differ.

    As many others as a Poisson law says decode beside one. A request meets mixed iterations by a
    Beta law: what m iterations say that are correlated by r. The longest carries a full chunk.
    """
    replica, pace = response.replica, response.pace
    m, r = response.tokens, response.lasting
    longer = pace.mixed - replica.plain
    of_chunk = (
        replica.met(pace.added)
        / replica.met(pace.chunks)
        * replica.over_prompts(pace.chunks)
    )
    unequal = np.maximum(
        of_chunk / np.maximum(replica.over_prompts(pace.added), _LEAST_RATE), 1.0
    )
    alike = (1 + r) / (1 - r) - 2 * r * (1 - r**m) / (m * (1 - r) ** 2)
    return Laws(
        plain=replica.plain,
        least=replace(replica, others=0.0 * replica.others).plain,
        scatter=replica.slope * np.sqrt(replica.others),
        longest=np.maximum(longer * unequal, _LEAST_RATE),
        mixed=np.clip(response.seen / unequal, 1e-9, 1 - 1e-9),
        size=1 / np.clip(alike / m, 1e-9, _BELOW_ONE) - 1,
        line=response.line,
    )


def line_of(replica: Replica, rate: Real, own: Real, pace: Pace, n: Real) -> WaitingLine:
    """What precedes a first token: other prompts, the iteration that runs, and one's own.

    Prompts before one's own wait as in M/G/1, beyond what the iteration that runs holds of them. It
    is longer the more often it is met. Those behind fill the rest of one's last chunk.

    Args:
        replica, rate, own: as in `respond`.
        pace: the iterations.
        n: requests that decode [1].
    """
    chunked, strangers = replica.serving.chunked, 1 - own
    plain, w, prompts = replica.plain, pace.share, replica.prompts
    service = pace.added + plain * prompts / replica.most
    rho = np.minimum(rate * replica.over_prompts(service), _BELOW_ONE)
    waits = np.clip(pace.chance(rho), _LEAST_RATE, 1.0)
    wait = waits * replica.met(service) / (2 * pace.choice * (1 - rho))
    running = chunked * pace.busy * (pace.mixed - plain) / 2
    before = strangers * np.maximum(wait - running, 0.0)
    mixed = chunked * pace.mixed + (1 - chunked) * plain
    met = (w * mixed**2 + (1 - w) * plain**2) / (w * mixed + (1 - w) * plain)
    residual = strangers * -np.expm1(-n) * met / 2
    computing = pace.added + chunked * plain * pace.chunks
    until_last = before + residual + computing * (1 - 1 / pace.chunks)
    came = rate * replica.work.prompt * until_last
    rest = np.minimum(replica.most * pace.chunks - prompts, came)
    behind = chunked * strangers * replica.over_prompts(rest * pace.added / prompts)
    return WaitingLine(
        rho=rho,
        wait=before + behind,
        waits=waits,
        met=service / _mean(service),
        residual=residual,
        computing=computing,
        weights=replica.weights,
    )


def at_rate(work: Workload, serving: Serving, rate: Real) -> Response:
    """The response to a rate.

    Args:
        work, serving: the requests, and how they are served.
        rate: requests per second over all replicas [1/s].
    """
    of_each = rate / serving.replicas
    return _balanced(work, serving, lambda replica: respond(replica, of_each), of_each)


def of_users(work: Workload, serving: Serving, users: Real) -> Response:
    """The response to a closed loop: the rate at which as many requests are present as users.

    The time of a request that meets no prompt bounds the rate, and so does memory.

    Args:
        work, serving: the requests, and how they are served.
        users: over all replicas [1].
    """
    of_each = users / serving.replicas
    own = 1 / np.maximum(users, 1.0)

    def answer(replica: Replica) -> Response:
        unhindered = respond(replica, _LEAST_RATE, own).sojourn
        fastest = of_each / unhindered
        room = _room(replica)

        def spare(part: Real) -> Real:
            """What users ask for beyond a part of the fastest rate; none beyond memory [1]."""
            response = respond(replica, part * fastest, own)
            asked = unhindered / response.sojourn
            free = (room - response.beside) / (room + response.beside)
            return np.minimum(asked - part, free)

        part = crossing(spare, 0.0 * fastest, 1.0 + 0.0 * fastest)
        return respond(replica, part * fastest, own)

    return _balanced(work, serving, answer, of_each)


def _balanced(
    work: Workload, serving: Serving, answer: Callable[[Replica], Response], like: Real
) -> Response:
    """The response in which as many decode beside a request as it brings about.

    Args:
        work, serving: the requests, and how they are served.
        answer: replica, given how many decode beside a request -> its response.
        like: numbers of the shape of the answer.
    """
    most = resident(work, serving) / serving.replicas
    doublings = np.log1p(most) + 0.0 * like

    def at(part: Real) -> Response:
        """With others at a place between none and all, at equal ratios."""
        return answer(Replica(work, serving, np.expm1(part * doublings)))

    def more(part: Real) -> Real:
        """What the response lacks, as a logarithm [1]."""
        return np.log1p(at(part).beside) - part * doublings

    return at(crossing(more, 0.0 * doublings, 1.0 + 0.0 * doublings))


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
        if arrivals.overload:
            fits = fits.without({arrivals.overload: response.overloaded})
        latency, rate = response.latency, arrivals.rate
    else:
        response = of_users(work, serving, arrivals.users)
        rate = dp * response.rate
        # who finds memory full waits for it, too
        ttft = arrivals.users / rate - response.decoding
        latency = replace(response.latency, ttft=ttft)
    n = dp * response.at_once
    carried = rate * work.prompt * response.pace.mean
    iteration = serving.iteration_of(work, n, serving.chunked * carried)
    tokens = np.maximum(work.output - 1, _LEAST_RATE)
    paced = response.decoding / (tokens * np.maximum(iteration.seconds, _LEAST_RATE))
    waiting = Port("queue.wait", "wait", 1.0, "s")
    held = requests_held(work, serving)
    users = 0.0 if arrivals.users is None else arrivals.users
    notes = {
        FULL: ~fits.unmodelled
        & np.greater(n, FULL_SHARE * held)
        & np.greater(work.batch, held),
        IN_STEP: np.less_equal(work.spread.longest, 1) & np.greater(users, 1),
    }
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
        laws=laws_of(response),
        notes={sentence: where for sentence, where in notes.items() if np.any(where)},
    )
