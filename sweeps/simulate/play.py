"""Serve the requests of a trace event by event, to check the closed forms and where none holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.model.workload import Arrivals, Serving
from nearkv.hardware.errors import InputError
from nearkv.sweeps.simulate.iterations import Iterations
from nearkv.sweeps.simulate.scheduler import Queue, ReplicaRules, Request, SimulatedReplica
from nearkv.sweeps.study.grid import scalar
from nearkv.sweeps.study.traces import REQUESTS, Trace

OF_A_USER = 3
"""Requests of each user that count, at least, as all of them begin together [1]."""
WARM_UP = 0.2
"""Requests that come before those that count, and after them, over their number [1]."""


@dataclass(frozen=True)
class SimulatedQueue:
    """Result of a simulation: times of the requests that count.

    Attributes:
        arrived, first, ended: when each came, had its first and its last token [s].
        output: tokens each generated [1].
        seconds: in which they are served: the whole run, or of a load without end the time in
            which as many come [s].
        preempted: requests put back because memory was full [1].
        decoding: time per output token while in memory, over all requests [s].
    """

    arrived: Numbers
    first: Numbers
    ended: Numbers
    output: Numbers
    seconds: float
    preempted: int
    decoding: float

    @property
    def throughput(self) -> float:
        """Generated tokens per second [1/s]."""
        return float(np.sum(self.output)) / self.seconds

    @property
    def at_once(self) -> float:
        """Requests between their first and their last token at a time, by Little's law [1]."""
        return float(np.sum(self.ended - self.first)) / self.seconds

    @property
    def sojourn(self) -> Numbers:
        """Time from arrival to last token of each request [s]."""
        return self.ended - self.arrived

    @property
    def ttft(self) -> Numbers:
        """Time to first token of each request [s]."""
        return self.first - self.arrived

    @property
    def tpot(self) -> Numbers:
        """Mean time per output token after the first, of requests that have another [s]."""
        more = self.output > 1
        times: Numbers = (self.ended - self.first)[more] / (self.output[more] - 1)
        return times if len(times) else np.full(1, np.nan)

    def meets(self, arrivals: Arrivals) -> NDArray[np.bool_]:
        """Mask of the requests that keep both limits of a service level."""
        steps = np.maximum(self.output - 1, 1)
        tpot = (self.ended - self.first) / steps
        return (self.ttft <= arrivals.ttft_slo) & (tpot <= arrivals.tpot_slo)


def simulate(
    trace: Trace, serving: Serving, arrivals: Arrivals | None = None, seed: int = 0
) -> SimulatedQueue:
    """Serve all requests of a trace to the last one.

    Requests that come at a rate, or in a closed loop, have neither a first nor a last one: they
    are preceded and followed by more, in the same order again, which do not count.

    Args:
        trace: the requests, which come when it says, else all at time 0.
        serving: how one design point serves them, all numbers scalar.
        arrivals: a rate or users, for a trace that does not say when requests come.
        seed: of the arrival times.

    Returns:
        The times of each request, and preemptions.

    Raises:
        InputError: a request is longer than the memory of a replica.
    """
    rules = _rules(trace, serving)
    queue = Queue([SimulatedReplica(rules) for _ in range(int(scalar(serving.replicas)))])
    more = 0
    if trace.arrival is not None:
        requests = _requests(trace, trace.arrival, trace.output)
        queue.ask(requests)
    elif arrivals is None:
        requests = _requests(trace, np.zeros(len(trace.prompt)), trace.output)
        queue.line_up(requests)
    else:
        users = 0 if arrivals.users is None else int(scalar(arrivals.users))
        count = max(len(trace.prompt), REQUESTS, OF_A_USER * users)
        present = users or _present(trace, scalar(arrivals.rate), rules)
        more = int(np.ceil(WARM_UP * count + present))
        requests = _endless(trace, arrivals, seed, count + 2 * more)
        at_first = users or len(requests)
        queue.ask(requests[:at_first])
        queue.later.extend(requests[at_first:])
    queue.play()
    return _result(trace, queue, requests, more)


def _requests(trace: Trace, times: Numbers, outputs: Numbers) -> list[Request]:
    """Requests that come at some times, in the order of the trace again and again."""
    prompts = np.resize(trace.prompt, len(times))
    known = prompts - np.resize(trace.computed, len(times))
    columns = (times, prompts, outputs, known)
    return [Request(*row) for row in np.stack(columns, axis=1).tolist()]


def _endless(trace: Trace, arrivals: Arrivals, seed: int, count: int) -> list[Request]:
    """Requests of a load without end, or all that its users ask one after the other."""
    random = np.random.default_rng(seed)
    outputs = np.resize(trace.output, count)
    if arrivals.users is None:
        times = np.cumsum(random.exponential(1 / scalar(arrivals.rate), count))
        return _requests(trace, times, outputs)
    # users that begin together are in the middle of their answers
    begun = int(scalar(arrivals.users))
    outputs[:begun] = np.ceil(random.uniform(size=begun) * outputs[:begun])
    return _requests(trace, np.zeros(count), outputs)


def _present(trace: Trace, rate: float, rules: ReplicaRules) -> float:
    """Requests that come at a rate during the life of one, as long as iterations meet them [1].

    A queue forgets how it began in that time.
    """
    slowest = rules.iterations.seconds(rules.capacity / rules.mean, rules.capacity)
    met = float(np.mean(trace.output**2) / np.mean(trace.output))
    return rate * met * slowest


def _result(
    trace: Trace, queue: Queue, requests: list[Request], more: int
) -> SimulatedQueue:
    """Times of the requests that count, which as many precede and follow."""
    last = len(requests) - more
    times = [(one.arrived, one.first, one.ended) for one in requests[more:last]]
    arrived, first, ended = np.array(times).T
    # a run ends with its last answer; of a load without end a part as long as it comes
    seconds = float(np.max(ended) - np.min(arrived))
    if more:
        seconds = float(np.ptp(arrived)) * len(arrived) / (len(arrived) - 1)
    outputs = np.resize(trace.output, len(requests))
    steps = float(np.sum(outputs - 1)) or 1.0
    return SimulatedQueue(
        arrived=arrived,
        first=first,
        ended=ended,
        output=outputs[more:last],
        seconds=seconds,
        preempted=sum(one.preempted for one in queue.replicas),
        decoding=sum(one.decoding for one in queue.replicas) / steps,
    )


def _rules(trace: Trace, serving: Serving) -> ReplicaRules:
    """State of each replica.

    Raises:
        InputError: a request is longer than the memory of a replica.
    """
    dp = scalar(serving.replicas)
    capacity = scalar(serving.capacity) / dp
    shortest = float(np.min(trace.computed))
    longest = float(np.max(trace.prompt + trace.output))
    most = max(capacity, scalar(serving.longest_capacity) / dp)
    if longest > most:
        raise InputError(
            f"trace {trace.name}: a request of {longest:,.0f} tokens exceeds "
            f"the {most:,.0f} a replica holds; leave it out, or use a larger memory"
        )
    minimum, budget = scalar(serving.minimum_chunk), scalar(serving.budget)
    return ReplicaRules(
        iterations=Iterations(
            serving,
            sequences=capacity / shortest,
            lengths=(shortest, longest),
            prompt=budget or max(longest, minimum),
            sizes=trace.workload.spread.context_square,
        ),
        capacity=capacity,
        mean=float(trace.workload.context),
        sequences=scalar(serving.sequences),
        chunked=bool(np.any(serving.chunked)),
        reserve=bool(np.any(serving.reserve)),
        minimum_chunk=minimum,
        budget=budget,
    )
