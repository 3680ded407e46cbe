"""Latency of requests that arrive, in closed form: at a rate, or from users that ask again.

Requests at a rate are an open stream, whose prompts wait in line as in M/G/1 (Pollaczek and
Khinchine [1]). `replica` holds the iterations and the line of a replica, `closed_loop` the users
that ask again.

[1] Kleinrock, Queueing Systems, vol. 1, sec. 5.6.

Symbols: those of `replica`, and u share of the time that prompts add.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nearkv.costmodel.algebra.span import Real, Span, serial, wait
from nearkv.costmodel.mechanisms.serving.closed_loop import of_users
from nearkv.costmodel.mechanisms.serving.replica import (
    BELOW_ONE,
    LEAST_RATE,
    IterationTimes,
    Replica,
    Response,
    choice_of,
    mean_of_parts,
    pace_of,
    residual_of,
    waiting_line,
)
from nearkv.costmodel.mechanisms.serving.residents import (
    crossing,
    requests_held,
    resident,
)
from nearkv.costmodel.model.estimate import (
    Estimate,
    Fits,
    Latency,
    LatencyLaws,
    WaitingLine,
)
from nearkv.costmodel.model.workload import Serving, Workload

FULL = (
    "memory is full at times, which the closed form leaves out and --method simulate counts"
)
PUT_BACK = (
    "a full memory puts requests back, which the closed form leaves out and --method simulate "
    "counts"
)
FULL_SHARE = 0.85
"""Share of the requests that memory holds from which on it is full at times."""


def open_pace(replica: Replica, rate: Real) -> IterationTimes:
    """The iterations under a stream, in which a prompt is joined by those that come during one.

    Args:
        replica: where requests are served.
        rate: lambda [1/s].
    """
    added = replica.seconds_added(rate * replica.plain)
    mean = replica.plain / (1 - np.minimum(rate * replica.over_prompts(added), BELOW_ONE))
    return pace_of(
        replica, rate * mean, added, replica.chance_of_own_chunk, choice_of(replica)
    )


def chance_behind_prompt(replica: Replica, rate: Real, pace: IterationTimes) -> Real:
    """Chance that the iteration after one's own prompt is mixed [1].

    It is so as often as a prompt that is done leaves another behind, and more seldom where a
    router finds a replica without one.

    Args:
        replica, rate, pace: as in `line_of`.
    """
    a, chunked = replica.chance_of_own_chunk, replica.serving.chunked
    arrives = -np.expm1(-rate * pace.mixed)
    if_riding = a * pace.chance(pace.busy) + (1 - a) * arrives
    u = 1 - replica.plain / pace.mean
    in_line = rate * replica.mean_as_met(pace.added) / (2 * pace.choice * (1 - u))
    if_first = pace.chance(u) * (1 + in_line)
    return chunked * if_riding + (1 - chunked) * if_first


def correlation(replica: Replica, w: Real, after: Real) -> Real:
    """Correlation of one iteration with the next, r [1].

    Mixed ones come in runs as uneven as busy periods of k iterations: (1 + r) / (1 - r) =
    (1 - w) E[k^2] / E[k] / (1 - after)^2. Prompts that come first all stop one iteration.

    Args:
        replica: where requests are served.
        w: share of mixed iterations [1].
        after: chance that the iteration after one's own prompt is mixed [1].
    """
    uneven = (
        (1 - w) * replica.mean_as_met(replica.chunks) / (1 - np.minimum(after, 0.95)) ** 2
    )
    runs: Real = np.maximum(uneven, 1.0)
    return replica.serving.chunked * (runs - 1) / (runs + 1)


def respond(replica: Replica, rate: Real) -> Response:
    """The response to a stream, given how many others decode beside a request.

    A request begins after its own prompt; from then on the chance of a mixed iteration returns to
    w at a rate r. The next request goes to the replica with fewest. So a request of n meets
    others = n^2 / (n + 1 - 1 / dp), and mixed iterations in a share w others / n.

    Args:
        replica: where requests are served.
        rate: lambda [1/s].
    """
    pace = open_pace(replica, rate)
    plain, w = replica.plain, pace.share
    steps = np.maximum(replica.along_parts(replica.work.outputs) - 1, 0.0)
    m = np.maximum(steps, 1.0)
    after = chance_behind_prompt(replica, rate, pace)
    r = correlation(replica, w, after)
    others, not_first = replica.others, 1 - 1 / replica.serving.replicas
    among = (others + np.sqrt(others**2 + 4 * not_first * others)) / 2
    w_met = w * (among + LEAST_RATE) / (among + not_first + LEAST_RATE)
    mixed_met = w_met + (after - w_met) * (1 - r**m) / ((1 - r) * m)
    tpot = plain + (pace.mixed - plain) * mixed_met
    decoding = mean_of_parts(steps * tpot)
    # answers of one token have none
    has_second = np.greater(steps, 0)
    mean_tpot = mean_of_parts(has_second * tpot) / np.maximum(
        mean_of_parts(has_second), LEAST_RATE
    )
    n = rate * decoding
    line = line_of(replica, rate, pace, n)
    return Response(
        replica=replica,
        rate=rate,
        pace=pace,
        others=n * n / np.maximum(n + not_first, LEAST_RATE),
        decoding=decoding,
        latency=Latency(line.mean, mean_tpot),
        line=line,
        tokens=m,
        mixed_met=mixed_met,
        correlation=r,
    )


def laws_of(response: Response) -> LatencyLaws:
    """Spread of the latencies of requests.

    The number of others follows a Poisson law. The share of mixed iterations that a request meets
    follows a Beta law, as the mean of m iterations correlated by r. The longest carries a full
    chunk.
    """
    replica, pace = response.replica, response.pace
    m, r = response.tokens, response.correlation
    longer = pace.mixed - replica.plain
    of_chunk = (
        replica.mean_as_met(pace.added)
        / replica.mean_as_met(replica.chunks)
        * replica.over_prompts(replica.chunks)
    )
    unequal = np.maximum(
        of_chunk / np.maximum(replica.over_prompts(pace.added), LEAST_RATE), 1.0
    )
    correlated = (1 + r) / (1 - r) - 2 * r * (1 - r**m) / (m * (1 - r) ** 2)
    return LatencyLaws(
        plain=replica.plain,
        least=replace(replica, others=0.0 * replica.others).plain,
        scatter=replica.slope * np.sqrt(replica.others),
        longest=np.maximum(longer * unequal, LEAST_RATE),
        mixed=np.clip(response.mixed_met / unequal, 1e-9, 1 - 1e-9),
        size=1 / np.clip(correlated / m, 1e-9, BELOW_ONE) - 1,
        line=response.line,
    )


def line_of(replica: Replica, rate: Real, pace: IterationTimes, n: Real) -> WaitingLine:
    """Time before a first token: other prompts, the iteration that runs, and one's own.

    One waits for prompts before one's own as in M/G/1, less what the iteration that runs computes
    of them; long iterations are met more often. Prompts behind fill the rest of one's last chunk.

    Args:
        replica, rate: as in `respond`.
        pace: the iterations.
        n: requests that decode [1].
    """
    chunked, chunks, added = replica.serving.chunked, replica.chunks, pace.added
    service = replica.service(added)
    rho = np.minimum(rate * replica.over_prompts(service), BELOW_ONE)
    waits = np.clip(pace.chance(rho), LEAST_RATE, 1.0)
    wait = waits * replica.mean_as_met(service) / (2 * pace.choice * (1 - rho))
    running = chunked * pace.busy * (pace.mixed - replica.plain) / 2
    before = np.maximum(wait - running, 0.0)
    residual = residual_of(replica, pace, n)
    until_last = before + residual + replica.computing(added) * (1 - 1 / chunks)
    came = rate * replica.work.prompt * until_last
    behind = chunked * replica.behind(came, added)
    return waiting_line(replica, pace, rho, before + behind, residual)


def at_rate(work: Workload, serving: Serving, rate: Real) -> Response:
    """The response to a rate, in which as many decode beside a request as it brings about.

    Args:
        work, serving: the requests, and how they are served.
        rate: requests per second over all replicas [1/s].
    """
    of_each = rate / serving.replicas
    most = resident(work, serving) / serving.replicas
    doublings = np.log1p(most) + 0.0 * of_each

    def response_at(part: Real) -> Response:
        """The response at a part of the way from no others to the most, on a logarithmic scale."""
        return respond(Replica(work, serving, np.expm1(part * doublings)), of_each)

    def lacking(part: Real) -> Real:
        """Others that the response brings about beyond those supposed, as a logarithm [1]."""
        return np.log1p(response_at(part).others) - part * doublings

    return response_at(crossing(lacking, 0.0 * doublings, 1.0 + 0.0 * doublings))


def _first_token(work: Workload, serving: Serving, ttft: Real) -> Span:
    """The time to the first token: the prompt's own, as far as it goes, and waiting [s]."""
    load = serving.load_of(work, 0.0, serving.replicas * work.prompt)
    prompt = serving.prefill(serving.replicas, load)
    own = np.minimum(prompt.seconds, ttft)
    return serial(
        waiting=wait(
            "queue.wait", ttft - own, "in line, for an iteration to end, and beside others"
        ),
        prompt=own / np.maximum(prompt.seconds, LEAST_RATE) * prompt,
    )


def under_load(
    work: Workload,
    serving: Serving,
    fits: Fits,
) -> Estimate:
    """The answer to requests that arrive: of a mean request, and of the iterations it meets.

    The batch is the number of requests present, so that by Little's law throughput is their tokens
    over the time of one. It follows a Poisson law, or is the number of users; a replica without a
    request rests.

    Args:
        work: the requests, and how they arrive.
        serving, fits: how they are served, and what fits.
    """
    arrivals, dp = work.arrivals, serving.replicas
    assert arrivals is not None, "a batch is answered by `fluid.steady`"
    held = requests_held(work, serving)
    is_short = np.greater(work.batch, held)
    if arrivals.users is None:
        response = at_rate(work, serving, arrivals.rate)
        rate = arrivals.rate
        busy = -np.expm1(-rate * response.sojourn / dp)
        if arrivals.overload:
            fits = fits.without({arrivals.overload: response.overloaded})
        full = dp * response.at_once > FULL_SHARE * held
        notes = {FULL: full & is_short & ~fits.unmodelled}
    else:
        response = of_users(work, serving, arrivals.users)
        rate = dp * response.rate
        busy = np.minimum(arrivals.users / dp, 1.0)
        by_memory = (held < serving.most_running) & (serving.reserve < 1)
        notes = {PUT_BACK: is_short & by_memory}
    n = dp * response.at_once
    carried = rate * work.prompt * response.pace.mean
    iteration = serving.iteration_of(work, n, serving.chunked * carried)
    tokens = np.maximum(work.output - 1, LEAST_RATE)
    paced = response.decoding / (tokens * np.maximum(iteration.seconds, LEAST_RATE))
    return Estimate(
        prefill=_first_token(work, serving, response.latency.ttft),
        step=paced * iteration,
        fits=fits,
        work=replace(work, batch=rate * response.sojourn),
        batch_run=n,
        step_carries=carried,
        serving=serving,
        queued=response.latency,
        laws=laws_of(response),
        busy=busy,
        notes=notes,
    )
