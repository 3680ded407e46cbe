"""A replica that serves requests as they arrive: its iterations, its line, its answers.

All that decode share a replica (processor sharing, where means depend on mean lengths alone [1]);
prompts wait in line for the iterations that carry them, fewer where a router chooses among several
replicas [2]. An iteration that carries a prompt takes longer, and such iterations come in runs: a
chain of two states, plain and mixed.

[1] Kleinrock, Queueing Systems, vol. 2, sec. 4.4.
[2] Sakasegawa, An approximation formula Lq = alpha rho^beta / (1 - rho), 1977.
[3] vLLM, `v1/engine/core_client.py`, `get_core_engine_for_request`.

Symbols of requests: lambda per second of a replica, n that decode, m tokens after the first,
l prompt tokens, C chunk, k chunks of a prompt, a chance that a prompt has a last chunk of its own.
Symbols of iterations: D, M and I seconds of a plain, a mixed and a mean one, w share that is mixed,
r correlation of one with the next, x prompts that begin in one. In a share rho prompts wait.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Real
from nearkv.costmodel.mechanisms.serving.residents import resident
from nearkv.costmodel.model.estimate import Latency, WaitingLine
from nearkv.costmodel.model.workload import Load, Serving, Workload

OF_WAITING = 4
"""Running requests that one waiting request counts as, where a replica is chosen [3]."""
LEAST_RATE = 1e-12
"""Stands for 0 where a number must be above it."""
BELOW_ONE = 1 - 1e-6
"""Largest share of the time in which prompts wait; at 1 the line never ends [1]."""


def mean_of_parts(values: Real) -> Real:
    """Mean over parts of the requests, which are the first axis [theirs]."""
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
        """Time that one sequence more adds to a plain iteration [s]."""
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
        left = serving.budget - self.others
        budget = np.where(serving.budget > 0, left, serving.minimum_chunk)
        return np.where(serving.chunked > 0, np.maximum(budget, 1.0), np.inf)

    @property
    def chunks(self) -> Real:
        """Iterations that carry a part of each prompt, k [1]."""
        return np.maximum(np.ceil(self.prompts / self.prompt_budget - 1e-9), 1.0)

    @property
    def chance_of_own_chunk(self) -> Real:
        """Chance that another prompt does not fit the rest of a prompt's last chunk, a [1]."""
        left = self.over_prompts(self.chunks) * self.prompt_budget - self.work.prompt
        return np.minimum(self.work.prompt / np.maximum(left, LEAST_RATE), 1.0)

    def seconds_added(self, companions: Real) -> Real:
        """Seconds by which each prompt makes iterations longer, or stops them [s].

        Args:
            companions: other prompts that share its iterations, which hide less of it [1].
        """
        prompts, chunked = self.prompts, self.serving.chunked > 0
        chunk = np.minimum(self.prompt_budget, prompts + companions * self.work.prompt)
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
        """Time of other prompts that fill the rest of a prompt's last chunk [s].

        Args:
            came: tokens of the other prompts [1].
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
        return mean_of_parts(self.weights * values)

    def mean_as_met(self, values: Real) -> Real:
        """Mean of what depends on the prompt as one meets it at any moment, E[x^2] / E[x]."""
        return self.over_prompts(values**2) / np.maximum(
            self.over_prompts(values), LEAST_RATE
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
        others: that decode beside a request; `replica.others` in the end [1].
        decoding: from first to last token, on average [s].
        latency: of a mean request.
        line: what precedes a first token.
        tokens: after the first, m, of parts of the requests by their answers [1].
        mixed_met: share of mixed iterations among those that a request meets, by part [1].
        correlation: of an iteration with the next, r [1].
    """

    replica: Replica
    rate: Real
    pace: IterationTimes
    others: Real
    decoding: Real
    latency: Latency
    line: WaitingLine
    tokens: Real
    mixed_met: Real
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
        serving = self.replica.serving
        room = resident(self.replica.work, serving) / serving.replicas
        full = np.greater_equal(self.replica.others, room * BELOW_ONE)
        return full | (self.line.rho >= BELOW_ONE)


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
    replica: Replica, starts: Real, added: Real, own_chunk: Real, choice: Real
) -> IterationTimes:
    """The iterations in which prompts begin.

    Chunks follow one another in iterations of their own if they are full, and share one if not:
    w = a k x + (1 - a) (1 - exp(-k x)), and M makes I the mean. Where prompts come first, they
    begin in plain iterations alone.

    Args:
        replica: where requests are served.
        starts: prompts that begin in an iteration, x [1].
        added, choice: as in `IterationTimes`.
        own_chunk: a, or 1 where no prompt shares an iteration [1].
    """
    chunked, plain = replica.serving.chunked, replica.plain
    mean = plain + starts * replica.over_prompts(added)
    carried = replica.over_prompts(replica.chunks) * starts
    carried = carried * (chunked + (1 - chunked) * plain / mean)
    share = own_chunk * carried - (1 - own_chunk) * np.expm1(-carried)
    share = np.clip(share, LEAST_RATE, 1 - 1e-9)
    mixed = plain + (mean - plain) / share
    busy = np.minimum(share * mixed / mean, 1.0)
    return IterationTimes(mixed, mean, added, share, busy, choice)


def choice_of(replica: Replica) -> Real:
    """Replicas among which the router finds the one with fewest prompts [1].

    The next request goes to the replica with the least of 4 x waiting + running [3]. Replicas
    differ by about sqrt(n) running requests; where that is more than 4, prompts decide little.
    """
    dp = replica.serving.replicas
    return 1 + (dp - 1) / (1 + np.sqrt(replica.others) / OF_WAITING)


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
        waits=np.clip(pace.chance(rho), LEAST_RATE, 1.0),
        met=service / mean_of_parts(service),
        residual=residual,
        computing=replica.computing(pace.added),
        weights=replica.weights,
    )


def residual_of(replica: Replica, pace: IterationTimes, n: Real) -> Real:
    """Rest of the iteration that one meets at any moment; none where no request decodes [s]."""
    chunked, plain, w = replica.serving.chunked, replica.plain, pace.share
    mixed = chunked * pace.mixed + (1 - chunked) * plain
    met = (w * mixed**2 + (1 - w) * plain**2) / (w * mixed + (1 - w) * plain)
    return -np.expm1(-n) * met / 2
