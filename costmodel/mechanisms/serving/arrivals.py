"""Latency of requests that arrive, in closed form: at a rate, or from users that ask again.

All that decode share a replica (processor sharing, where means depend on mean lengths alone [1]);
prompts wait in line for the iterations that carry them (M/G/1, Pollaczek and Khinchine [1]; of
several replicas Sakasegawa's approximation [2]). An iteration that carries a prompt takes longer,
and such iterations come in runs: a chain of two states, plain and mixed.

Users who ask again are a closed network. Counted in iterations, decoding is a delay of m, whatever
an iteration takes, and prompts are served C tokens an iteration: mean-value analysis [4] with the
residual life of a prompt, up to the rate at which each iteration is full [5].

[1] Kleinrock, Queueing Systems, vol. 1, sec. 5.6, and vol. 2, sec. 4.4.
[2] Sakasegawa, An approximation formula Lq = alpha rho^beta / (1 - rho), 1977.
[3] vLLM, `v1/engine/core_client.py`, `get_core_engine_for_request`.
[4] Reiser and Lavenberg, Mean-value analysis of closed queuing networks, J. ACM 27, 1980.
[5] Denning and Buzen, Operational analysis of queueing network models, ACM Surveys 10, 1978.

Symbols: lambda requests per second of a replica, n requests that decode, m tokens after the first,
l prompt tokens, C chunk, k chunks of a prompt, D, M and I seconds of a plain, a mixed and a mean
iteration, w share of mixed iterations, r correlation of one with the next, u share of the time that
prompts add, rho share in which prompts wait, x prompts that begin in an iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Port, Real, Span, serial
from nearkv.costmodel.mechanisms.serving.residents import (
    bisect,
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
from nearkv.costmodel.model.workload import Load, Serving, Workload

FULL = (
    "memory is full at times, which the closed form leaves out and --method simulate counts"
)
PUT_BACK = (
    "a full memory puts requests back, which the closed form leaves out and --method simulate "
    "counts"
)
FULL_SHARE = 0.85
"""Share of the requests that memory holds from which on it is full at times."""
OF_WAITING = 4
"""Running requests that one waiting request counts as, where a replica is chosen [3]."""
_LEAST_RATE = 1e-12
_BELOW_ONE = 1 - 1e-6
_LEAST_STEPS = 1e-9
"""Stands for the steps of answers of one token, which their prompts give [1]."""
_RATE_HALVINGS = 36
"""Prompts of an iteration are solved to 1e-11 of the most."""


def _mean(values: Real) -> Real:
    """Mean over parts of the requests, which are the first axis."""
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
        """Time that one sequence more adds to it [s]."""
        return replace(self, others=self.others + 1).plain - self.plain

    @cached_property
    def prompts(self) -> Real:
        """Prompt tokens, l, of parts of the requests that hold as many tokens each [1]."""
        return self.along_parts(self.work.prompt_parts)

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
    def prompt_budget(self) -> Real:
        """Prompt tokens of an iteration, C; all where prompts come first [1]."""
        serving = self.serving
        beside = serving.budget - 1 - self.others
        budget = np.where(np.greater(serving.budget, 0), beside, serving.minimum_chunk)
        return np.where(np.greater(serving.chunked, 0), np.maximum(budget, 1.0), np.inf)

    @property
    def chunks(self) -> Real:
        """Iterations that carry a part of each prompt, k [1]."""
        return np.maximum(np.ceil(self.prompts / self.prompt_budget - 1e-9), 1.0)

    @property
    def chance_of_own_chunk(self) -> Real:
        """Chance that another prompt does not fit what one leaves of its last chunk, a [1]."""
        left = self.over_prompts(self.chunks) * self.prompt_budget - self.work.prompt
        return np.minimum(self.work.prompt / np.maximum(left, _LEAST_RATE), 1.0)

    def seconds_added(self, beside: Real) -> Real:
        """Seconds by which each prompt makes iterations longer, or stops them [s].

        Args:
            beside: other prompts that share its iterations, which hides less than each alone [1].
        """
        prompts, chunked = self.prompts, np.greater(self.serving.chunked, 0)
        chunk = np.minimum(self.prompt_budget, prompts + beside * self.work.prompt)
        riding = prompts / chunk * (self.iteration(chunk, prompts) - self.plain)
        if np.all(chunked):
            return riding
        return np.where(chunked, riding, self.alone)

    def iteration(self, prompt: Real, length: Real) -> Real:
        """An iteration beside which a request decodes, with tokens of prompts of a length [s]."""
        return self.serving.iteration(self.load(1 + self.others, prompt, length)).seconds

    def service(self, added: Real) -> Real:
        """Time for which each prompt is served, given what it adds to iterations [s]."""
        return added + self.plain * self.prompts / self.prompt_budget

    def computing(self, added: Real) -> Real:
        """Iterations of each prompt, given what it adds to them [s]."""
        return added + self.serving.chunked * self.plain * self.chunks

    def behind(self, came: Real, added: Real) -> Real:
        """Time that others take which fill the rest of one's last chunk [s].

        Args:
            came: tokens of their prompts [1].
            added: by each prompt to iterations [s].
        """
        rest = np.minimum(self.prompt_budget * self.chunks - self.prompts, came)
        return self.over_prompts(rest * added / self.prompts)

    def load(self, sequences: Real, prompt: Real, length: Real) -> Load:
        """Load of all replicas, each with as many sequences, and tokens of prompts [1]."""
        dp, work = self.serving.replicas, self.work
        sizes = work.spread.context_square
        return self.serving.load_at(
            dp * sequences, work.context, sizes, dp * prompt, length
        )

    def over_prompts(self, values: Real) -> Real:
        """Mean over requests of what depends on the prompt [its unit]."""
        return _mean(self.weights * values)

    def mean_as_met(self, values: Real) -> Real:
        """Mean of what depends on the prompt as one meets it at any moment, E[x^2] / E[x]."""
        return self.over_prompts(values**2) / np.maximum(
            self.over_prompts(values), _LEAST_RATE
        )

    def along_parts(self, parts: list[Real]) -> Real:
        """Lengths of parts of the requests, along a new first axis [1]."""
        stacked = np.stack(np.broadcast_arrays(*parts))
        points = np.ndim(self.plain)
        missing = points - (stacked.ndim - 1)
        return stacked.reshape(len(parts), *(1,) * missing, *stacked.shape[1:])


@dataclass(frozen=True)
class Response:
    """Response of the replicas to a stream of requests.

    Attributes:
        replica: where they are served.
        rate: requests per second of a replica, lambda [1/s].
        pace: the iterations.
        beside: others that decode beside a request, which are `replica.others` in the end [1].
        decoding: from first to last token, on average [s].
        latency: of a mean request.
        line: what precedes a first token.
        tokens: after the first, m, of parts of the requests by their answers [1].
        seen: share of the iterations met that are mixed, by part [1].
        correlation: of an iteration with the next, r [1].
    """

    replica: Replica
    rate: Real
    pace: IterationTimes
    beside: Real
    decoding: Real
    latency: Latency
    line: WaitingLine
    tokens: Real
    seen: Real
    correlation: Real

    @property
    def at_once(self) -> Real:
        """Requests that decode, n [1]."""
        return self.rate * self.decoding

    @property
    def sojourn(self) -> Real:
        """From when a request comes to its last token, on average [s]."""
        return self.latency.ttft + self.decoding

    @property
    def overloaded(self) -> Booleans:
        """True if the queue grows without end: prompts or memory are never done with."""
        full = np.greater_equal(self.replica.others, _room(self.replica) * _BELOW_ONE)
        return full | np.greater_equal(self.line.rho, _BELOW_ONE)


def _room(replica: Replica) -> Real:
    """Requests that a replica holds [1]."""
    return resident(replica.work, replica.serving) / replica.serving.replicas


@dataclass(frozen=True)
class IterationTimes:
    """Iterations of a replica under a stream, plain and mixed.

    Attributes:
        mixed, mean: M and I [s].
        added: seconds by which each prompt makes iterations longer, or stops them [s].
        share: of the iterations that are mixed, w [1].
        busy: share of the time in them [1].
        choice: replicas among which a prompt finds one that computes no other [1].
    """

    mixed: Real
    mean: Real
    added: Real
    share: Real
    busy: Real
    choice: Real

    def chance(self, busy: Real) -> Real:
        """Chance to wait where each replica is busy for a share of the time [2]."""
        return busy ** (np.sqrt(2 * (self.choice + 1)) - 1)


def pace_of(
    replica: Replica, starts: Real, added: Real, apart: Real, choice: Real
) -> IterationTimes:
    """The iterations in which prompts begin.

    Chunks follow one another in iterations of their own if they are full, and share one if not:
    w = a k x + (1 - a) (1 - exp(-k x)), and M makes I the mean. Where prompts come first, they
    begin in plain iterations alone.

    Args:
        replica: where requests are served.
        starts: prompts that begin in an iteration, x [1].
        added, choice: as in `IterationTimes`.
        apart: a, or 1 where no prompt shares an iteration [1].
    """
    chunked, plain = replica.serving.chunked, replica.plain
    mean = plain + starts * replica.over_prompts(added)
    each = replica.over_prompts(replica.chunks) * starts
    each = each * (chunked + (1 - chunked) * plain / mean)
    share = np.clip(apart * each - (1 - apart) * np.expm1(-each), _LEAST_RATE, 1 - 1e-9)
    mixed = plain + (mean - plain) / share
    busy = np.minimum(share * mixed / mean, 1.0)
    return IterationTimes(mixed, mean, added, share, busy, choice)


def choice_of(replica: Replica) -> Real:
    """Replicas among which the router finds the one with fewest prompts [1].

    The next request goes to the replica with the least of 4 x waiting + running [3], which says
    little of prompts where the numbers that run, apart by sqrt(n), differ by more than 4.
    """
    dp = replica.serving.replicas
    return 1 + (dp - 1) / (1 + np.sqrt(replica.others) / OF_WAITING)


def open_pace(replica: Replica, rate: Real) -> IterationTimes:
    """The iterations under a stream, of which a prompt shares its own with what comes during one.

    Args:
        replica: where requests are served.
        rate: lambda [1/s].
    """
    added = replica.seconds_added(rate * replica.plain)
    mean = replica.plain / (1 - np.minimum(rate * replica.over_prompts(added), _BELOW_ONE))
    return pace_of(
        replica, rate * mean, added, replica.chance_of_own_chunk, choice_of(replica)
    )


def chance_behind_prompt(replica: Replica, rate: Real, pace: IterationTimes) -> Real:
    """Chance that the iteration after one's own prompt is mixed [1].

    It is as often as a departure leaves a prompt behind, fewer where a router finds a replica
    without one.

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
    w at a rate r. The next request goes to the replica with fewest, so that others =
    n^2 / (n + 1 - 1 / dp), none where a few have a replica each, and of n that decode as many see
    the prompt of one.

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
    at_others = (others + np.sqrt(others**2 + 4 * not_first * others)) / 2
    w_seen = w * (at_others + _LEAST_RATE) / (at_others + not_first + _LEAST_RATE)
    seen = w_seen + (after - w_seen) * (1 - r**m) / ((1 - r) * m)
    tpot = plain + (pace.mixed - plain) * seen
    decoding = _mean(steps * tpot)
    # answers of one token have none
    has_second = np.greater(steps, 0)
    mean_tpot = _mean(has_second * tpot) / np.maximum(_mean(has_second), _LEAST_RATE)
    n = rate * decoding
    line = line_of(replica, rate, pace, n)
    return Response(
        replica=replica,
        rate=rate,
        pace=pace,
        beside=n * n / np.maximum(n + not_first, _LEAST_RATE),
        decoding=decoding,
        latency=Latency(line.mean, mean_tpot),
        line=line,
        tokens=m,
        seen=seen,
        correlation=r,
    )


def laws_of(response: Response) -> LatencyLaws:
    """Spread of the latencies of requests.

    As many others as a Poisson law says decode beside one. A request meets mixed iterations by a
    Beta law: what m iterations say that are correlated by r. The longest carries a full chunk.
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
        of_chunk / np.maximum(replica.over_prompts(pace.added), _LEAST_RATE), 1.0
    )
    correlated = (1 + r) / (1 - r) - 2 * r * (1 - r**m) / (m * (1 - r) ** 2)
    return LatencyLaws(
        plain=replica.plain,
        least=replace(replica, others=0.0 * replica.others).plain,
        scatter=replica.slope * np.sqrt(replica.others),
        longest=np.maximum(longer * unequal, _LEAST_RATE),
        mixed=np.clip(response.seen / unequal, 1e-9, 1 - 1e-9),
        size=1 / np.clip(correlated / m, 1e-9, _BELOW_ONE) - 1,
        line=response.line,
    )


def line_of(replica: Replica, rate: Real, pace: IterationTimes, n: Real) -> WaitingLine:
    """Time before a first token: other prompts, the iteration that runs, and one's own.

    Prompts before one's own wait as in M/G/1, beyond what the iteration that runs holds of them. It
    is longer the more often it is met. Those behind fill the rest of one's last chunk.

    Args:
        replica, rate: as in `respond`.
        pace: the iterations.
        n: requests that decode [1].
    """
    chunked, chunks, added = replica.serving.chunked, replica.chunks, pace.added
    service = replica.service(added)
    rho = np.minimum(rate * replica.over_prompts(service), _BELOW_ONE)
    waits = np.clip(pace.chance(rho), _LEAST_RATE, 1.0)
    wait = waits * replica.mean_as_met(service) / (2 * pace.choice * (1 - rho))
    running = chunked * pace.busy * (pace.mixed - replica.plain) / 2
    before = np.maximum(wait - running, 0.0)
    residual = residual_of(replica, pace, n)
    until_last = before + residual + replica.computing(added) * (1 - 1 / chunks)
    came = rate * replica.work.prompt * until_last
    behind = chunked * replica.behind(came, added)
    return waiting_line(replica, pace, rho, before + behind, residual)


def waiting_line(
    replica: Replica, pace: IterationTimes, rho: Real, wait: Real, residual: Real
) -> WaitingLine:
    """Time before a first token, given how often prompts wait, and for how long.

    Args:
        replica, pace: as in `line_of`.
        rho, wait, residual: as in `WaitingLine`.
    """
    service = replica.service(pace.added)
    return WaitingLine(
        rho=rho,
        wait=wait,
        waits=np.clip(pace.chance(rho), _LEAST_RATE, 1.0),
        met=service / _mean(service),
        residual=residual,
        computing=replica.computing(pace.added),
        weights=replica.weights,
    )


def residual_of(replica: Replica, pace: IterationTimes, n: Real) -> Real:
    """Rest of the iteration that one meets at any moment; none where nobody decodes [s]."""
    chunked, plain, w = replica.serving.chunked, replica.plain, pace.share
    mixed = chunked * pace.mixed + (1 - chunked) * plain
    met = (w * mixed**2 + (1 - w) * plain**2) / (w * mixed + (1 - w) * plain)
    return -np.expm1(-n) * met / 2


def at_rate(work: Workload, serving: Serving, rate: Real) -> Response:
    """The response to a rate.

    Args:
        work, serving: the requests, and how they are served.
        rate: requests per second over all replicas [1/s].
    """
    of_each = rate / serving.replicas
    return _balanced(work, serving, lambda replica: respond(replica, of_each), of_each)


@dataclass(frozen=True)
class Loop:
    """Users of a replica who ask again once they are answered.

    Users ask again as an iteration ends. Prompts that come first therefore meet those of the same
    iteration alone: none comes while decoding pauses. Where all requests are alike, a router with
    several replicas parts users who meet, until they are in step; a prompt then meets another one
    only if more than one begins in each iteration. On one replica users who began together stay
    together, as far as an iteration has room for their prompts.

    Attributes:
        work, serving: the requests, and how they are served.
        users: of a replica [1].
        inside: of them in memory, at most [1].
    """

    work: Workload
    serving: Serving
    users: Real
    inside: Real

    @property
    def strangers(self) -> Real:
        """Share of those inside that are others [1]."""
        return np.maximum(1 - 1 / self.inside, 0.0)

    @property
    def steps(self) -> Real:
        """Tokens after the first, m [1]."""
        return np.maximum(self.work.output - 1, _LEAST_STEPS)

    @property
    def most_starts(self) -> Real:
        """Prompts that begin in an iteration where all decode, or where each is full [1]."""
        return np.minimum(self.inside / self.steps, self.room)

    @property
    def room(self) -> Real:
        """Prompts of an iteration that is full; without end where they come first [1]."""
        serving, prompt = self.serving, self.work.prompt
        of_budget = np.maximum(serving.budget - 1, 1.0) / (
            prompt + self.strangers * self.steps
        )
        of_chunk = np.maximum(serving.minimum_chunk, 1.0) / prompt
        full = np.where(np.greater(serving.budget, 0), of_budget, of_chunk)
        return np.where(np.greater(serving.chunked, 0), full, np.inf)

    def beside(self, starts: Real, alike: Booleans) -> Real:
        """Prompts that begin in an iteration beside another one [1].

        Args:
            starts: that begin in one on average [1].
            alike: whether all requests are.
        """
        in_step = np.maximum(starts - 1, 0.0)
        together = self.strangers * starts
        kept = np.minimum(together, np.maximum(self.room - 1, 0.0))
        parted = np.where(np.greater(self.serving.replicas, 1), in_step, kept)
        return np.where(alike, np.maximum(parted, in_step), together)

    def respond(self, starts: Real) -> Response:
        """The response in which as many prompts begin in an iteration, x.

        A request that decodes meets mixed iterations but its own. Of X prompts that come at once
        the first X / 4 stay with their replica, whose line is longest at that moment, and others
        come within another's iteration.
        """
        work, serving = self.work, self.serving
        n = starts * self.steps
        alike = np.less_equal(work.spread.longest, 1)
        beside = self.beside(starts, alike)
        replica = Replica(work, serving, self.strangers * n)
        added = replica.seconds_added(beside)
        apart = np.where(alike, 1.0, replica.chance_of_own_chunk)
        pace = pace_of(replica, starts, added, apart, choice_of(replica))
        rate = starts / pace.mean
        others = np.maximum(self.inside - 1, 0.0)
        seen = pace.share * np.minimum(others / np.maximum(n, _LEAST_RATE), 1.0)
        tpot = replica.plain + (pace.mixed - replica.plain) * seen
        tokens = np.maximum(replica.along_parts(work.outputs) - 1, 1.0)
        filled = replica.over_prompts(replica.prompts / replica.prompt_budget)
        rho = np.minimum(self.strangers * starts * filled, _BELOW_ONE)
        queue = np.where(alike, 0.0, self.queue(replica, pace, starts, rho))
        in_chunks = queue + replica.behind(beside * work.prompt, added)
        at_once = beside * replica.over_prompts(added) / 2
        wait = np.where(np.greater(serving.chunked, 0), in_chunks, at_once)
        together = 1 + beside
        away = 1 - np.maximum(1.0, together / OF_WAITING) / together
        several = np.greater(serving.replicas, 1)
        residual = several * away * residual_of(replica, pace, n)
        line = waiting_line(replica, pace, rho, wait, residual)
        return Response(
            replica=replica,
            rate=rate,
            pace=pace,
            beside=self.strangers * n,
            decoding=(work.output - 1) * tpot,
            latency=Latency(line.mean, tpot),
            line=line,
            tokens=tokens,
            seen=seen + 0.0 * tokens,
            correlation=0.0 * tokens,
        )

    def queue(
        self, replica: Replica, pace: IterationTimes, starts: Real, rho: Real
    ) -> Real:
        """Time in line for prompts of others, as in M/G/1 but counted in iterations [s].

        Answers are counted so, too. A prompt fills S = l / C of them: each user brings no more than
        one while another is computed, with mu of each an iteration (P - 1) (S - (1 - exp(-mu S)) /
        mu) in place of x S^2 / 2, less rho / 2 that an iteration has begun with. A full one takes
        as long as all its prompt tokens make it.

        Args:
            replica, pace: what serves, and its iterations.
            starts: prompts that begin in one, x [1].
            rho: share in which prompts wait [1].
        """
        filled = replica.prompts / replica.prompt_budget
        of_each = starts / self.inside
        late = filled + np.expm1(-of_each * filled) / of_each
        met = np.maximum(self.inside - 1, 0.0) * replica.over_prompts(late)
        chance = pace.chance(rho) / np.maximum(rho, _LEAST_RATE)
        iterations = np.maximum(chance * met / (pace.choice * (1 - rho)) - rho / 2, 0.0)
        served = replica.over_prompts(replica.service(pace.added))
        return iterations * served / np.maximum(replica.over_prompts(filled), _LEAST_RATE)

    def balanced(self) -> Response:
        """The response in which as many are present as memory holds, or as there are users.

        The others wait for a place.
        """
        most = self.most_starts

        def is_room(part: Real) -> Booleans:
            response = self.respond(part * most)
            return np.less(response.rate * response.sojourn, self.inside)

        part = bisect(is_room, 0.0 * self.users, 1.0 + 0.0 * self.users, _RATE_HALVINGS)
        response = self.respond(part * most)
        ttft = self.users / response.rate - response.decoding
        line = replace(
            response.line, wait=response.line.wait + ttft - response.latency.ttft
        )
        return replace(response, latency=replace(response.latency, ttft=ttft), line=line)


def of_users(work: Workload, serving: Serving, users: Real) -> Response:
    """The response to a closed loop.

    Args:
        work, serving: the requests, and how they are served.
        users: over all replicas [1].
    """
    dp = serving.replicas
    # as many as all fit keep their places when another one waits
    held = np.floor(requests_held(work, serving))
    inside = np.minimum(users, np.maximum(resident(work, serving), held))
    return Loop(work, serving, users / dp, inside / dp).balanced()


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
        """The response at a part of the way from no others to the most, on a logarithmic scale."""
        return answer(Replica(work, serving, np.expm1(part * doublings)))

    def more(part: Real) -> Real:
        """Difference that the response lacks, as a logarithm [1]."""
        return np.log1p(at(part).beside) - part * doublings

    return at(crossing(more, 0.0 * doublings, 1.0 + 0.0 * doublings))


def _first_token(work: Workload, serving: Serving, ttft: Real) -> Span:
    """The time to the first token: the prompt's own, as far as it goes, and waiting [s]."""
    load = serving.load_of(work, 0.0, serving.replicas * work.prompt)
    prompt = serving.prefill(serving.replicas, load)
    own = np.minimum(prompt.seconds, ttft)
    wait = Port("queue.wait", "wait", 1.0, "s")
    return serial(
        waiting=wait(ttft - own, "in line, for an iteration to end, and beside others"),
        prompt=own / np.maximum(prompt.seconds, _LEAST_RATE) * prompt,
    )


def under_load(
    work: Workload,
    serving: Serving,
    fits: Fits,
) -> Estimate:
    """The answer to requests that arrive: of a mean request, and of the iterations it meets.

    The batch is that of the requests present, so that by Little's law throughput is their tokens
    over the time of one. A replica rests while none is: as many are as a Poisson law says, or as
    there are users.

    Args:
        work: the requests, and how they arrive.
        serving, fits: how they are served, and what fits.
    """
    arrivals, dp = work.arrivals, serving.replicas
    assert arrivals is not None, "a batch is answered by `fluid.steady`"
    if arrivals.users is None:
        response = at_rate(work, serving, arrivals.rate)
        if arrivals.overload:
            fits = fits.without({arrivals.overload: response.overloaded})
        latency, rate = response.latency, arrivals.rate
        busy = -np.expm1(-rate * response.sojourn / dp)
    else:
        response = of_users(work, serving, arrivals.users)
        latency, rate = response.latency, dp * response.rate
        busy = np.minimum(arrivals.users / dp, 1.0)
    n = dp * response.at_once
    carried = rate * work.prompt * response.pace.mean
    iteration = serving.iteration_of(work, n, serving.chunked * carried)
    tokens = np.maximum(work.output - 1, _LEAST_RATE)
    paced = response.decoding / (tokens * np.maximum(iteration.seconds, _LEAST_RATE))
    held = requests_held(work, serving)
    is_short = np.greater(work.batch, held)
    if arrivals.users is None:
        full = np.greater(n, FULL_SHARE * held)
        notes = {FULL: full & is_short & ~fits.unmodelled}
    else:
        by_memory = np.less(held, serving.most_running) & np.less(serving.reserve, 1)
        notes = {PUT_BACK: is_short & by_memory}
    return Estimate(
        prefill=_first_token(work, serving, latency.ttft),
        step=paced * iteration,
        fits=fits,
        work=replace(work, batch=rate * response.sojourn),
        batch_run=n,
        step_carries=carried,
        serving=serving,
        queued=latency,
        laws=laws_of(response),
        busy=busy,
        notes=notes,
    )
