"""Serve requests event by event, by the rules of vLLM's scheduler, to check the closed forms.

A request that arrives goes to the replica with the least of 4 x waiting + running [2]; those of a
batch wait in one line, from which the replica with fewest takes the next. A replica admits a
request, first come first served, once memory holds its prompt [1]; without a budget of tokens, a
request of mean size. Prompts ride in decode iterations chunk by chunk, or are computed first. A
full memory puts the newest request back, whose tokens so far become its prompt.

Between two events (a request arrives or ends, a prompt is done, memory is full) the batch is
constant and its context grows evenly, so a run of iterations costs its number times the iteration
in its middle.

[1] vLLM, `v1/core/sched/scheduler.py`; Kwon et al., SOSP 2023, sec. 4.5.
[2] vLLM, `v1/engine/core_client.py`, `get_core_engine_for_request`.

Symbols: n decoding sequences, k iterations so far.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Numbers, Real
from nearkv.costmodel.mechanisms.serving.arrivals import OF_WAITING
from nearkv.costmodel.model.queue import Load, Serving
from nearkv.costmodel.model.workload import Arrivals
from nearkv.hardware.errors import InputError
from nearkv.solvers.knobs import Resolved
from nearkv.solvers.subbatch.problem import CHUNK_TOKENS
from nearkv.sweeps.study.grid import Slices, scalar, shape_of
from nearkv.sweeps.study.study import Block
from nearkv.sweeps.study.traces import Trace, alike

MOST_SIMULATED = 2_000
"""Simulations a table may ask for; each takes about a tenth of a second."""
NOT_SIMULATED = (
    "prefill_s",
    "step_ms",
    "decode_tok_s",
    "energy_j_tok",
    "decode_energy_j_tok",
)
"""Columns of the closed forms that a simulation does not answer; blank."""
WATERMARK = 0.99
"""Share of the memory that prompts may fill, so that those that decode have pages to grow."""
WARM_UP = 0.2
"""Requests that come before those that count, and after them, over their number [1]."""
PERCENTILES = (50, 90, 99)
_ONE_BY_ONE = np.arange(9.0)
"""Numbers of sequences where sub-batches and experts begin."""
_NODES = 32
"""Further nodes along each axis, at equal ratios; times are close to affine between two."""


# --- the seconds of an iteration, tabulated once -------------------------------------------------


class Interpolant:
    """A function of a few variables, affine between the nodes at which it is evaluated once."""

    def __init__(self, function: Callable[..., Real], *axes: Numbers) -> None:
        mesh = np.meshgrid(*axes, indexing="ij")
        values = np.broadcast_to(function(*mesh), mesh[0].shape)
        self._axes: list[list[float]] = [axis.tolist() for axis in axes]
        self._strides = [stride // values.itemsize for stride in values.copy().strides]
        self._values: list[float] = values.ravel().tolist()

    def __call__(self, *place: float) -> float:
        """The function at a place; plain Python, which is fastest for single numbers."""
        corners = [(0, 1.0)]
        for axis, stride, x in zip(self._axes, self._strides, place, strict=True):
            below = min(max(bisect_right(axis, x) - 1, 0), len(axis) - 2)
            share = (x - axis[below]) / (axis[below + 1] - axis[below])
            low = below * stride
            nearer = [(at + low, weight * (1 - share)) for at, weight in corners]
            if share:
                nearer += [(at + low + stride, weight * share) for at, weight in corners]
            corners = nearer
        return sum([weight * self._values[at] for at, weight in corners])


class Iterations:
    """Seconds of the iterations of one replica; `alone` of a prompt, while decoding pauses.

    Args:
        serving: how one design point serves, all numbers scalar.
        sequences: the most that decode on a replica [1].
        lengths: of the shortest prompt, and of the longest request [tokens].
        prompt: the most prompt tokens of an iteration [tokens].
        sizes: mean square over squared mean of the contexts [1].
    """

    def __init__(
        self,
        serving: Serving,
        sequences: float,
        lengths: tuple[float, float],
        prompt: float,
        sizes: Real,
    ) -> None:
        dp = serving.replicas

        def load(n: Real, context: Real, tokens: Real, length: Real) -> Load:
            """Of all replicas, each with as much [1]."""
            return serving.load_at(dp * n, context, sizes, dp * tokens, length)

        most = max(sequences, _ONE_BY_ONE[-1] + 1)

        def counts(nodes: int) -> Numbers:
            """Numbers of sequences, the first ones one by one [1]."""
            return np.unique([*_ONE_BY_ONE, *np.geomspace(_ONE_BY_ONE[-1], most, nodes)])

        def tokens(nodes: int) -> Numbers:
            """Tokens of a request [1]."""
            return np.geomspace(lengths[0], lengths[1] + 1, nodes)

        chunks = np.append(0.0, np.geomspace(1.0, max(prompt, 2.0), _NODES))
        self._decode = Interpolant(
            lambda n, context: serving.iteration(load(n, context, 0.0, 0.0)).seconds,
            counts(4 * _NODES),
            tokens(2 * _NODES),
        )
        self._mixed = Interpolant(
            lambda *at: serving.iteration(load(*at)).seconds,
            counts(_NODES),
            tokens(_NODES // 4),
            chunks,
            tokens(_NODES // 4),
        )
        self.alone = Interpolant(
            lambda length: serving.prefill(dp, load(0.0, 0.0, length, length)).seconds,
            tokens(4 * _NODES),
        )

    def seconds(
        self, n: float, tokens: float, prompt: float = 0, squares: float = 0
    ) -> float:
        """An iteration: one token of n sequences, and a part of the prompts that wait [s].

        Args:
            n: sequences that decode [1].
            tokens: of context they attend to, in all [1].
            prompt: prompt tokens beside them [1].
            squares: of those, the sum of l^2 + 2 l c0 over chunks of l tokens after c0 [1].
        """
        context = tokens / n if n else 0.0
        if not prompt:
            return self._decode(n, context)
        return self._mixed(n, context, prompt, squares / prompt)


# --- the queue -----------------------------------------------------------------------------------


@dataclass(eq=False)
class Request:
    """One request and its times.

    Attributes:
        arrived: when it came [s].
        prompt: tokens to compute before it decodes; after a preemption, what it generated too.
        left: tokens still to generate.
        done: prompt tokens computed so far.
        ends: the iteration after which it has all its tokens.
        first: when it had its first token [s].
        ended: when it had its last token [s].
    """

    arrived: float
    prompt: float
    left: float
    done: float = 0.0
    ends: float = 0.0
    first: float = np.nan
    ended: float = np.nan

    @property
    def unread(self) -> float:
        """Prompt tokens that are still to be computed."""
        return self.prompt - self.done

    @property
    def final(self) -> float:
        """Tokens that it holds at its end."""
        return self.prompt + self.left


@dataclass
class Queue:
    """What all replicas share: the requests, and how each replica works.

    Attributes:
        iterations: their seconds.
        capacity: tokens that a replica holds.
        mean: tokens that a resident request takes on average.
        chunked, reserve, minimum_chunk, budget: as in `Serving`.
        coming: a heap of requests that have yet to arrive: (arrival, number, request).
        later: requests of a closed loop, each asked once another one is answered.
        replicas: all of them.
        clock: a heap of (time, number) of the replicas that have something to do.
    """

    iterations: Iterations
    capacity: float
    mean: float
    chunked: bool
    reserve: bool
    minimum_chunk: float
    budget: float
    coming: list[tuple[float, int, Request]] = field(default_factory=list)
    later: deque[Request] = field(default_factory=deque)
    replicas: list[SimulatedReplica] = field(default_factory=list)
    clock: list[tuple[float, int]] = field(default_factory=list)
    asked: int = 0

    def ask(self, request: Request) -> None:
        """Let a request come when it says."""
        heapq.heappush(self.coming, (request.arrived, self.asked, request))
        self.asked += 1

    def route(self) -> None:
        """Let the next request wait at the replica that has least to do."""
        _, _, request = heapq.heappop(self.coming)
        busy = [OF_WAITING * len(one.waiting) + one.running for one in self.replicas]
        number = busy.index(min(busy))
        chosen = self.replicas[number]
        if not busy[number]:
            heapq.heappush(self.clock, (max(chosen.now, request.arrived), number))
        chosen.waiting.append(request)


@dataclass
class SimulatedReplica:
    """State of one replica.

    Attributes:
        queue: what it shares with the other replicas.
        waiting: requests that have come to it and are not admitted.
        loading: requests whose prompts are being computed.
        ends: a heap of (iteration after which a request ends, its key in `order`).
        order: decoding requests by key, the newest last.
        now: its clock [s].
        k: iterations so far.
        held_tokens: tokens that its requests hold now.
        promised: tokens that they hold at their ends.
        count: requests it has started, from which keys are drawn.
        preempted: requests it has put back.
        decoding: seconds that its requests spent decoding, over all of them [s].
    """

    queue: Queue
    waiting: deque[Request] = field(default_factory=deque)
    loading: deque[Request] = field(default_factory=deque)
    ends: list[tuple[float, int]] = field(default_factory=list)
    order: dict[int, Request] = field(default_factory=dict)
    now: float = 0.0
    k: float = 0.0
    held_tokens: float = 0.0
    promised: float = 0.0
    count: int = 0
    preempted: int = 0
    decoding: float = 0.0

    @property
    def running(self) -> int:
        """Requests that it has admitted."""
        return len(self.order) + len(self.loading)

    @property
    def context(self) -> float:
        """Tokens that decoding requests attend to, in all [1]."""
        return self.held_tokens - sum([one.prompt for one in self.loading])

    def takes(self, request: Request) -> bool:
        """Whether memory holds one more; a replica without any takes it.

        Prompts that wait for their turn hold no memory: one is taken once those before it no longer
        fill an iteration.
        """
        if not self.running:
            return True
        queue = self.queue
        unread = sum([one.unread for one in self.loading])
        if self.loading and unread >= max(queue.budget, queue.minimum_chunk):
            return False
        if queue.reserve:
            return self.promised + request.final <= queue.capacity
        if queue.budget:
            return self.held_tokens + request.prompt <= WATERMARK * queue.capacity
        return self.held_tokens + max(queue.mean, request.prompt) <= queue.capacity


@dataclass(frozen=True)
class SimulatedQueue:
    """Result of a simulation: times of the requests that count.

    Attributes:
        arrived, first, ended: when each came, had its first and its last token [s].
        output: tokens each generated [1].
        iterations: decode iterations of the busiest replica [1].
        preempted: requests put back because memory was full [1].
        decoding: time per output token while in memory, over all requests [s].
    """

    arrived: Numbers
    first: Numbers
    ended: Numbers
    output: Numbers
    iterations: float
    preempted: int
    decoding: float

    @property
    def seconds(self) -> float:
        """Time in which as many requests come, or until the last one ends if all come at once."""
        span = (
            float(np.ptp(self.arrived)) * len(self.arrived) / max(len(self.arrived) - 1, 1)
        )
        return span or float(np.max(self.ended) - np.min(self.arrived))

    @property
    def throughput(self) -> float:
        """Generated tokens per second [1/s]."""
        return float(np.sum(self.output)) / self.seconds

    @property
    def ttft(self) -> Numbers:
        """Time to first token of each request [s]."""
        return self.first - self.arrived

    @property
    def tpot(self) -> Numbers:
        """Mean time per output token after the first, of requests that have another [s]."""
        more = self.output > 1
        times: Numbers = (self.ended - self.first)[more] / (self.output[more] - 1)
        return times if len(times) else np.zeros(1)

    def meets(self, arrivals: Arrivals) -> NDArray[np.bool_]:
        """Which requests keep both limits of a service level."""
        steps = np.maximum(self.output - 1, 1)
        tpot = (self.ended - self.first) / steps
        return (self.ttft <= arrivals.ttft_slo) & (tpot <= arrivals.tpot_slo)


def simulate(
    trace: Trace, serving: Serving, arrivals: Arrivals | None = None, seed: int = 0
) -> SimulatedQueue:
    """Serve all requests of a trace.

    Requests that arrive at a rate, or in a closed loop, are preceded and followed by
    more, in the same order again, which do not count: the queue has no beginning and no end.

    Args:
        trace: the requests, which come when it says, else all at time 0.
        serving: how one design point serves them, all numbers scalar.
        arrivals: a rate or users, for a trace that does not say when requests come.
        seed: of the arrival times.

    Returns:
        The times of each request, iterations and preemptions.

    Raises:
        InputError: a request is longer than the memory of a replica.
    """
    queue = _queue(trace, serving)
    requests, counted = _requests(trace, arrivals, seed, queue)
    users = len(requests)
    if arrivals is not None and arrivals.users is not None:
        users = int(scalar(arrivals.users))
    queue.later.extend(requests[users:])
    queue.replicas = [SimulatedReplica(queue) for _ in range(int(scalar(serving.replicas)))]
    if arrivals is None and trace.arrival is None:
        line = deque(requests)
        for number, replica in enumerate(queue.replicas):
            replica.waiting = line
            queue.clock.append((0.0, number))
    else:
        for request in requests[:users]:
            queue.ask(request)
    _play(queue)
    last = max(queue.replicas, key=lambda one: one.k)
    steps = float(np.sum(np.resize(trace.output, len(requests)) - 1)) or 1.0
    return SimulatedQueue(
        arrived=np.array([one.arrived for one in requests[counted]]),
        first=np.array([one.first for one in requests[counted]]),
        ended=np.array([one.ended for one in requests[counted]]),
        output=np.resize(trace.output, len(requests))[counted],
        iterations=last.k,
        preempted=sum(one.preempted for one in queue.replicas),
        decoding=sum(one.decoding for one in queue.replicas) / steps,
    )


def _requests(
    trace: Trace, arrivals: Arrivals | None, seed: int, queue: Queue
) -> tuple[list[Request], slice]:
    """The requests in order of arrival, and those of them that count."""
    count, more = len(trace.prompt), 0
    times = np.zeros(count) if trace.arrival is None else trace.arrival
    if arrivals is not None and trace.arrival is None:
        more = _warm_up(trace, arrivals, queue)
        times = np.zeros(count + 2 * more)
        random = np.random.default_rng(seed)
        if arrivals.users is None:
            times = np.cumsum(random.exponential(1 / scalar(arrivals.rate), len(times)))
    prompts = np.resize(trace.prompt, len(times))
    outputs = np.resize(trace.output, len(times))
    if arrivals is not None and arrivals.users is not None:
        # users that begin together are in the middle of their answers
        begun = int(scalar(arrivals.users))
        outputs[:begun] = np.ceil(random.uniform(size=begun) * outputs[:begun])
    rows = zip(times.tolist(), prompts.tolist(), outputs.tolist(), strict=True)
    return [Request(*row) for row in rows], slice(more, more + count)


def _warm_up(trace: Trace, arrivals: Arrivals, queue: Queue) -> int:
    """Requests before those that count: a share, and all that come during the life of one.

    A queue forgets how it began in the time of a request, as long as iterations meet them.
    """
    if arrivals.users is not None:
        present = scalar(arrivals.users)
    else:
        full = queue.capacity / queue.mean
        slowest = queue.iterations.seconds(full, queue.capacity)
        met = float(np.mean(trace.output**2) / np.mean(trace.output))
        present = scalar(arrivals.rate) * met * slowest
    return int(np.ceil(WARM_UP * len(trace.prompt) + present))


def _queue(trace: Trace, serving: Serving) -> Queue:
    """The queue before any replica has taken a request.

    Raises:
        InputError: a request is longer than the memory of a replica.
    """
    dp = scalar(serving.replicas)
    capacity = scalar(serving.capacity) / dp
    shortest = float(np.min(trace.prompt))
    longest = float(np.max(trace.prompt + trace.output))
    most = max(capacity, scalar(serving.longest_capacity) / dp)
    if longest > most:
        raise InputError(
            f"trace {trace.name}: a request of {longest:,.0f} tokens exceeds "
            f"the {most:,.0f} a replica holds; leave it out, or use a larger memory"
        )
    minimum, budget = scalar(serving.minimum_chunk), scalar(serving.budget)
    return Queue(
        iterations=Iterations(
            serving,
            sequences=capacity / shortest,
            lengths=(shortest, longest),
            prompt=budget or max(longest, minimum),
            sizes=trace.workload.spread.context_square,
        ),
        capacity=capacity,
        mean=float(trace.workload.context),
        chunked=bool(np.any(serving.chunked)),
        reserve=bool(np.any(serving.reserve)),
        minimum_chunk=minimum,
        budget=budget,
    )


def _play(queue: Queue) -> None:
    """Let requests come and the replica that is furthest behind act, until nothing is left."""
    while queue.coming or queue.clock:
        if queue.coming and (not queue.clock or queue.coming[0][0] <= queue.clock[0][0]):
            queue.route()
            continue
        now, number = heapq.heappop(queue.clock)
        it = queue.replicas[number]
        it.now = now
        if not _admit(it) and it.running:
            _iterate(it)
        if it.running or it.waiting:
            heapq.heappush(queue.clock, (it.now, number))


def _admit(it: SimulatedReplica) -> bool:
    """Take requests that wait while memory has room.

    Chunked prompts wait in `loading`. Others are computed now, one at a time, while decoding
    pauses.

    Returns:
        Whether a prompt was computed.
    """
    queue = it.queue
    while it.waiting and it.takes(it.waiting[0]) and not _yields(it):
        head = it.waiting.popleft()
        it.held_tokens += head.prompt
        it.promised += head.final
        if not queue.chunked:
            seconds = queue.iterations.alone(head.prompt)
            it.now += seconds
            it.decoding += seconds * len(it.order)
            _start(it, head)
            return True
        it.loading.append(head)
    return False


def _yields(it: SimulatedReplica) -> bool:
    """Whether a replica leaves the next request of its line to another with fewer."""
    return any(
        one.waiting is it.waiting
        and one.now <= it.now
        and one.running < it.running
        and one.takes(it.waiting[0])
        for one in it.queue.replicas
    )


def _start(it: SimulatedReplica, request: Request) -> None:
    """Decode the other tokens of a request; its prompt gave the first."""
    if np.isnan(request.first):
        request.first = it.now
    request.ends = it.k + request.left - 1
    it.held_tokens += 1
    it.count += 1
    it.order[it.count] = request
    heapq.heappush(it.ends, (request.ends, it.count))
    _finish(it)


def _finish(it: SimulatedReplica) -> None:
    while it.ends and (it.ends[0][0] <= it.k or it.ends[0][1] not in it.order):
        _, key = heapq.heappop(it.ends)
        request = it.order.pop(key, None)  # a preempted one left its place in the heap
        if request:
            request.ended = it.now
            it.held_tokens -= request.final
            it.promised -= request.final
            if it.queue.later:
                successor = it.queue.later.popleft()
                successor.arrived = it.now
                it.queue.ask(successor)


def _preempt(it: SimulatedReplica) -> None:
    """Put the newest request back; what it generated becomes part of its prompt."""
    if it.loading:
        request = it.loading.pop()
        held_tokens = request.prompt
    else:
        _, request = it.order.popitem()
        remaining = request.ends - it.k
        held_tokens = request.prompt + request.left - remaining
        request.prompt, request.left = held_tokens, remaining
    request.done = 0.0
    it.held_tokens -= held_tokens
    it.promised -= request.final
    it.preempted += 1
    it.waiting.appendleft(request)


def _iterate(it: SimulatedReplica) -> None:
    """Run until the next event; then requests end, or are put back where memory is full."""
    chunk = _chunk(it)
    steps = _until_event(it, chunk)
    _advance(it, steps, chunk)
    _finish(it)
    if it.queue.reserve:
        return
    while it.held_tokens > it.queue.capacity and it.running > 1:
        _preempt(it)


def _chunk(it: SimulatedReplica) -> float:
    """Prompt tokens of an iteration.

    What decoding leaves of the budget (vLLM, `max_num_batched_tokens`); without a budget as many
    as decoding hides, at least the minimum (L3 sec. 5.3, steps 3 and 4).
    """
    if not it.loading:
        return 0.0
    n = len(it.order)
    if it.queue.budget:
        return max(it.queue.budget - n, 1.0)
    first = it.loading[0]
    if not n:
        return first.unread
    seconds = it.queue.iterations.seconds
    alone = seconds(n, it.context) * (1 + 1e-9)

    def is_longer(chunks: int) -> bool:
        tokens = CHUNK_TOKENS * chunks
        return seconds(n, it.context, tokens, tokens * first.prompt) > alone

    minimum, most = it.queue.minimum_chunk, int(first.unread // CHUNK_TOKENS)
    least = int(minimum // CHUNK_TOKENS) + 1
    if least > most or is_longer(least):
        return minimum
    hidden = bisect_left(range(most + 1), x=True, lo=least, key=is_longer) - 1
    return float(CHUNK_TOKENS * hidden)


def _until_event(it: SimulatedReplica, chunk: float) -> float:
    """Iterations until a request ends or arrives, the first prompt is done, or memory is full."""
    steps = it.ends[0][0] - it.k if it.order else np.inf
    if chunk:
        steps = min(steps, max(it.loading[0].unread // chunk, 1.0))
    if it.order and not it.queue.reserve and it.held_tokens <= it.queue.capacity:
        steps = min(steps, (it.queue.capacity - it.held_tokens) // len(it.order) + 1)
    if steps > 1 and it.queue.coming:
        until_next = it.queue.coming[0][0] - it.now
        steps = min(steps, np.ceil(until_next / _seconds(it, 1.0, chunk)))
    return max(float(steps), 1.0)


def _seconds(it: SimulatedReplica, steps: float, chunk: float) -> float:
    """Each of the next iterations, at their middle [s]."""
    n = len(it.order)
    prompt = squares = 0.0
    for tokens, request in _next_prompts(it, steps * chunk):
        prompt += tokens / steps
        squares += tokens / steps * request.prompt
    context = it.context + n * steps / 2
    return it.queue.iterations.seconds(n, context, prompt, squares)


def _next_prompts(it: SimulatedReplica, tokens: float) -> Iterator[tuple[float, Request]]:
    """Prompts of which some tokens are computed next, and how many of each."""
    for request in it.loading:
        if tokens <= 0:
            return
        taken = min(tokens, request.unread)
        tokens -= taken
        yield taken, request


def _advance(it: SimulatedReplica, steps: float, chunk: float) -> None:
    """Run some iterations, then start the requests whose prompts are done."""
    seconds = steps * _seconds(it, steps, chunk)
    it.now += seconds
    it.decoding += seconds * len(it.order)
    it.k += steps
    it.held_tokens += len(it.order) * steps
    for taken, request in _next_prompts(it, steps * chunk):
        request.done += taken
    while it.loading and it.loading[0].unread <= 0:
        _start(it, it.loading.popleft())


def simulated(
    block: Block, box: Slices, resolved: Resolved
) -> dict[str, NDArray[np.float64]]:
    """Play the queue of every design point in a box that fits.

    Args:
        block, box: the design points.
        resolved: their knobs, and what fits.

    Returns:
        Times, rates and quantiles of requests by column, NaN where a point does not fit.

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
    columns = {name: np.full(shape, np.nan) for name in NOT_SIMULATED}
    fits = np.broadcast_to(resolved.estimate.fits.ok, shape)
    knobs = {name: np.broadcast_to(value, shape) for name, value in resolved.knobs.items()}
    for place in np.argwhere(fits):
        index = tuple(place)
        starts = [side.start + i for side, i in zip(box, index, strict=True)]
        point = tuple(slice(start, start + 1) for start in starts)
        chosen = {name: float(values[index]) for name, values in knobs.items()}
        for name, value in _simulate_point(block, point, chosen).items():
            columns.setdefault(name, np.full(shape, np.nan))[index] = value
    return columns


def _simulate_point(
    block: Block, point: Slices, knobs: dict[str, float]
) -> dict[str, float]:
    """The columns of one design point."""
    hw, llm, work, _ = block.inputs(point)
    serving = block.system(hw, llm, work, knobs).serving
    assert serving is not None, "a system whose box has no queue is refused before"
    if block.traces:
        trace = block.traces[int(scalar(block.grid.mesh(point)["trace"]))]
    else:
        trace = alike(scalar(work.prompt), scalar(work.output))
    arrivals = work.arrivals
    queue = simulate(trace, serving, arrivals, block.seed)
    sojourn = queue.ended - queue.arrived
    comes = arrivals is not None
    columns = {
        "total_s": float(np.mean(sojourn)) if comes else queue.seconds,
        "throughput_tok_s": queue.throughput,
        "ttft_s": float(np.mean(queue.ttft)),
        "tpot_ms": 1e3 * (float(np.mean(queue.tpot)) if comes else queue.decoding),
        "preempted": float(queue.preempted),
    }
    for share in PERCENTILES:
        columns[f"ttft_p{share}_s"] = float(np.percentile(queue.ttft, share))
        columns[f"tpot_p{share}_ms"] = 1e3 * float(np.percentile(queue.tpot, share))
    if arrivals is not None:
        met = queue.meets(arrivals)
        columns["goodput_req_s"] = float(np.sum(met)) / queue.seconds
        columns["users_served"] = float(np.sum(sojourn[met])) / queue.seconds
    return columns
