"""Serve the requests of a trace event by event, to check the closed forms and where none holds.

The columns of a design point are those of the queue that it serves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.costmodel.model.workload import Arrivals, Serving
from nearkv.hardware.errors import InputError
from nearkv.solvers.knobs import Resolved
from nearkv.sweeps.simulate.iterations import Iterations
from nearkv.sweeps.simulate.scheduler import Queue, ReplicaRules, Request, SimulatedReplica
from nearkv.sweeps.study.grid import Block, Slices, scalar, shape_of
from nearkv.sweeps.study.traces import REQUESTS, Trace, alike

OF_A_USER = 3
"""Requests of each user that count, at least, as all of them begin together [1]."""
WARM_UP = 0.2
"""Requests that come before those that count, and after them, over their number [1]."""
MOST_SIMULATED = 2_000
"""Simulations a table may ask for; each takes about a tenth of a second."""
PERCENTILES = (50, 90, 99)


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
    replicas = range(int(scalar(serving.replicas)))
    queue = Queue([SimulatedReplica(number, rules) for number in replicas])
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
    columns = (times, prompts, outputs, np.resize(trace.computed, len(times)))
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


def simulated(block: Block, box: Slices, resolved: Resolved) -> dict[str, Numbers]:
    """Serve the queue of every design point in a box that fits.

    Args:
        block, box: the design points.
        resolved: their knobs, and what fits.

    Returns:
        Every column that a run decides: times, rates and quantiles of requests; NaN where a
        simulation does not say it, or a point does not fit.

    Raises:
        InputError: too many points, or a system that serves no queue.
    """
    shape = shape_of(box)
    if block.grid.size > MOST_SIMULATED:
        raise InputError(
            f"{block.grid.size:,} points are too many to simulate (at most {MOST_SIMULATED:,}); "
            "use --method fluid"
        )
    if resolved.estimate.serving is None and np.any(resolved.estimate.fits.ok):
        raise InputError(
            f"{block.system.name} serves one batch at a time and has no queue to play; "
            "use --method fluid"
        )
    if resolved.estimate.serving and np.any(resolved.estimate.serving.before):
        raise InputError(
            "--knob prefix: a simulation begins with an empty cache; use --method fluid"
        )
    of_a_run = [name for name, column in COLUMNS.items() if not column.of_machine]
    columns = {name: np.full(shape, np.nan) for name in of_a_run}
    fits = np.broadcast_to(resolved.estimate.fits.ok, shape)
    knobs = {name: np.broadcast_to(value, shape) for name, value in resolved.knobs.items()}
    for place in np.argwhere(fits):
        index = tuple(place)
        starts = [side.start + i for side, i in zip(box, index, strict=True)]
        point = tuple(slice(start, start + 1) for start in starts)
        chosen = {name: float(values[index]) for name, values in knobs.items()}
        for name, value in _of_point(block, point, chosen).items():
            columns.setdefault(name, np.full(shape, np.nan))[index] = value
    return columns


def _of_point(block: Block, point: Slices, knobs: dict[str, float]) -> dict[str, float]:
    """Simulate one design point: its columns."""
    hw, llm, work, _ = block.inputs(point)
    serving = block.system(hw, llm, work, knobs).serving
    assert serving is not None, "a system whose box has no queue is refused before"
    if block.traces:
        trace = block.traces[int(scalar(block.grid.mesh(point)["trace"]))]
    else:
        trace = alike(scalar(work.prompt), scalar(work.output))
    arrivals = work.arrivals
    queue = simulate(trace, serving, arrivals, block.seed)
    if arrivals is None:
        return _of_batch(queue)
    columns = _times(queue)
    met = queue.meets(arrivals)
    columns["goodput_req_s"] = float(np.sum(met)) / queue.seconds
    columns["users_served"] = float(np.sum(queue.sojourn[met])) / queue.seconds
    return columns


def _of_batch(queue: SimulatedQueue) -> dict[str, float]:
    """Columns of one batch, as the closed form means them: a request that is put back waits.

    So `batch_run` are those in memory at a time, and `ttft_s` is all that is not decoding.
    """
    requests, tokens = len(queue.output), float(np.sum(queue.output - 1))
    decoding = queue.decoding * tokens
    return {
        "batch_run": decoding / queue.seconds,
        "total_s": queue.seconds,
        "throughput_tok_s": queue.throughput,
        "ttft_s": (float(np.sum(queue.sojourn)) - decoding) / requests,
        "tpot_ms": 1e3 * queue.decoding if tokens else np.nan,
        "preempted": float(queue.preempted),
    }


def _times(queue: SimulatedQueue) -> dict[str, float]:
    """Rates of a queue, and times of its requests: means and quantiles."""
    columns = {
        "batch_run": queue.at_once,
        "total_s": float(np.mean(queue.sojourn)),
        "throughput_tok_s": queue.throughput,
        "ttft_s": float(np.mean(queue.ttft)),
        "tpot_ms": 1e3 * float(np.mean(queue.tpot)),
        "preempted": float(queue.preempted),
    }
    for share in PERCENTILES:
        columns[f"ttft_p{share}_s"] = float(np.percentile(queue.ttft, share))
        columns[f"tpot_p{share}_ms"] = 1e3 * float(np.percentile(queue.tpot, share))
    return columns
