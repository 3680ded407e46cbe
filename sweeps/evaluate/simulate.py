"""Simulate a queue of requests on a system event by event, to check the fluid model.

Between two events (a request ends, a prompt is done, memory is full) the batch is constant and its
context grows evenly, so a run of iterations costs its number times the iteration in its middle.

Symbols: n decoding sequences, k iterations so far.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.serving.fluid import tokens_reserved
from nearkv.costmodel.model.layers import not_modelled
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.queue import Load, Serving
from nearkv.hardware.errors import InputError
from nearkv.solvers.knobs import Resolved
from nearkv.solvers.subbatch.planes import planes
from nearkv.solvers.subbatch.problem import CHUNK_TOKENS
from nearkv.sweeps.study.grid import Box, shape_of
from nearkv.sweeps.study.study import Block
from nearkv.sweeps.study.traces import Trace

MOST_POINTS = 2_000
"""Simulations a table may ask for; each takes about a tenth of a second."""
NOT_SIMULATED = ("prefill_s", "ttft_s", "step_ms", "decode_tok_s", "energy_j_tok")
"""Columns of the fluid model that a simulation does not answer; blank."""
NOT_AFFINE = dict.fromkeys(
    ("window", "chunk", "latent", "sparse", "state"),
    "a simulation counts all tokens of a request in every layer; use --method fluid",
)
"""Why a simulation takes no other attention than full, by its name."""
EXPERTS = (
    "experts not modelled: a simulation needs iterations affine in their load, and the experts "
    "that are read are not; use --method fluid"
)


@dataclass
class Request:
    """One request that is not finished.

    Attributes:
        prompt: tokens of its prompt.
        left: tokens still to generate.
        done: prompt tokens computed so far.
        since: the iteration in which it began to decode.
        ends: the iteration after which it has all its tokens.
    """

    prompt: float
    left: float
    done: float = 0.0
    since: float = 0.0
    ends: float = 0.0


@dataclass
class Queue:
    """What all replicas share: the requests, and how each replica works.

    Attributes:
        rows: an iteration as planes over a replica's (sequences, tokens, hottest, prompt, squares).
        single: the same while one sequence decodes and no prompt does, without a second sub-batch.
        alone: tokens and squares of one prompt -> seconds to compute them while nothing decodes.
        skew: load of the fullest rankset over the mean, by number of sequences.
        capacity: tokens that a replica holds.
        mean: tokens that a resident request takes on average.
        chunked, reserve, minimum_chunk: as in `Serving`.
        waiting: requests that no replica has taken.
        replicas: number of replicas that share the queue.
        unfinished: requests that still need tokens.
    """

    rows: list[list[float]]
    single: list[list[float]]
    alone: Callable[[float, float], float]
    skew: list[float]
    capacity: float
    mean: float
    chunked: bool
    reserve: bool
    minimum_chunk: float
    waiting: deque[Request]
    replicas: int
    unfinished: int = 0

    def seconds(self, n: float, t: float, h: float, p: float, q: float) -> float:
        """Seconds of an iteration of a replica, the highest of its planes, written out for speed.

        Args:
            n, t, h: sequences that decode, their tokens, those of the fullest rankset [1].
            p, q: prompt tokens, and their products with the lengths of their prompts [1].
        """
        if n == 1 and not p:
            return max([c + d + at * t + ah * h for c, d, at, ah, _, _ in self.single])
        planes = []
        for const, of_n, of_t, of_h, of_p, of_q in self.rows:
            decode = const + of_n * n + of_t * t + of_h * h
            planes.append(decode + of_p * p + of_q * q)
        return max(planes)


@dataclass
class Replica:
    """State of one replica.

    Attributes:
        queue: what it shares with the other replicas.
        loading: requests whose prompts are being computed.
        loading_tokens: of their prompts [1].
        running: a heap of (iteration after which a request ends, its key in `order`).
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
    loading: deque[Request] = field(default_factory=deque)
    loading_tokens: float = 0.0
    running: list[tuple[float, int]] = field(default_factory=list)
    order: dict[int, Request] = field(default_factory=dict)
    now: float = 0.0
    k: float = 0.0
    held_tokens: float = 0.0
    promised: float = 0.0
    count: int = 0
    preempted: int = 0
    decoding: float = 0.0


@dataclass(frozen=True)
class SimulatedQueue:
    """Result of a simulation.

    Attributes:
        seconds: time until the last request ends [s].
        tokens: generated tokens, over all requests [1].
        iterations: decode iterations of the busiest replica [1].
        preempted: requests put back because memory was full [1].
        tpot: mean time per output token (TPOT) [s].
    """

    seconds: float
    tokens: float
    iterations: float
    preempted: int
    tpot: float

    @property
    def throughput(self) -> float:
        """Generated tokens per second [1/s]."""
        return self.tokens / self.seconds


def simulate(trace: Trace, serving: Serving, mean_held: float) -> SimulatedQueue:
    """Serve all requests of a trace.

    They wait in one queue, and replicas take them as they have free memory.

    Args:
        trace: the requests, all of which arrive at time 0.
        serving: how one design point serves them, all numbers scalar.
        mean_held: tokens that a resident request takes on average, for admission [1].

    Returns:
        The time, tokens, iterations, preemptions and time per output token.

    Raises:
        InputError: a request is longer than the memory of a replica.
    """
    queue = _queue(trace, serving, mean_held)
    replicas = _play(queue)
    last = max(replicas, key=lambda one: one.now)
    waits = float(np.sum(trace.output - 1)) or 1.0
    return SimulatedQueue(
        seconds=last.now,
        tokens=float(np.sum(trace.output)),
        iterations=last.k,
        preempted=sum(one.preempted for one in replicas),
        tpot=sum(one.decoding for one in replicas) / waits,
    )


def _queue(trace: Trace, serving: Serving, mean_held: float) -> Queue:
    """The queue before any replica has taken a request."""
    dp = int(_one(serving.replicas))
    capacity = _one(serving.capacity) / dp
    _check_longest(trace, max(capacity, _one(serving.longest_capacity) / dp))
    lengths = zip(trace.prompt.tolist(), trace.output.tolist(), strict=True)
    requests = deque(Request(prompt, output) for prompt, output in lengths)
    counts = np.arange(1, len(requests) + 1)
    sizes = trace.workload.spread.context_square
    skew = np.ravel(serving.skew(dp * counts.astype(float), sizes))
    return Queue(
        rows=_iteration(serving, dp),
        single=_iteration_of_one(serving, dp),
        alone=_prefill(serving, dp),
        skew=[1.0, *np.broadcast_to(skew, counts.shape).tolist()],
        capacity=capacity,
        mean=mean_held,
        chunked=bool(np.any(serving.chunked)),
        reserve=bool(np.any(serving.reserve)),
        minimum_chunk=_one(serving.minimum_chunk),
        waiting=requests,
        replicas=dp,
        unfinished=len(requests),
    )


def _check_longest(trace: Trace, most: float) -> None:
    """Check that each request of a trace fits the tokens that one replica holds at most."""
    longest = float(np.max(trace.prompt + trace.output))
    if longest > most:
        raise InputError(
            f"trace {trace.name}: a request of {longest:,.0f} tokens exceeds "
            f"the {most:,.0f} a replica holds; leave it out, or use a larger memory"
        )


def _iteration(serving: Serving, dp: int) -> list[list[float]]:
    """Planes of an iteration over the load of one replica, as in `Queue.rows`."""
    rows: list[list[float]] = planes(
        lambda *load: serving.iteration(_load(serving, *(dp * x for x in load))), 5
    ).tolist()
    return rows


def _load(
    serving: Serving, n: Real, t: Real, h: Real, p: Real = 0.0, q: Real = 0.0
) -> Load:
    """A load, as in `Queue.seconds`, with what layers of each type see of it."""
    return Load(n, t, h, p, q).on_layer_types(serving.by_type, serving.skew)


def _iteration_of_one(serving: Serving, dp: int) -> list[list[float]]:
    """Planes of an iteration in which one sequence decodes, as in `Queue.single`."""
    rows = planes(lambda t, h: serving.iteration(_load(serving, dp, dp * t, dp * h)), 2)
    return [[const, 0.0, *slopes, 0.0, 0.0] for const, *slopes in rows]


def _one(value: object) -> float:
    return float(np.asarray(value).ravel()[0])


def _prefill(serving: Serving, dp: int) -> Callable[[float, float], float]:
    """A function that returns the seconds to prefill one prompt, alone on a replica."""
    rows = planes(
        lambda b, p, q: serving.prefill(
            dp * b, _load(serving, 0.0, 0.0, 0.0, dp * p, dp * q)
        ),
        3,
    ).tolist()
    return lambda tokens, squares: max(
        c + b + p * tokens + q * squares for c, b, p, q in rows
    )


def _play(queue: Queue) -> list[Replica]:
    """Let the replica that is furthest behind act next, until nothing waits."""
    replicas = [Replica(queue) for _ in range(queue.replicas)]
    clock = [(0.0, i) for i in range(queue.replicas)]
    while clock:
        _, i = heapq.heappop(clock)
        it = replicas[i]
        if _admit(it):
            heapq.heappush(clock, (it.now, i))
            continue
        if not it.loading and not it.order:
            continue
        chunk = _chunk(it)
        _advance(it, _until_event(it, chunk), chunk)
        _finish(it)
        while (
            not queue.reserve
            and it.held_tokens > queue.capacity
            and len(it.order) + len(it.loading) > 1
        ):
            _preempt(it)
        _finish(it)
        heapq.heappush(clock, (it.now, i))
    return replicas


def _admit(it: Replica) -> bool:
    """Take requests while one of mean size fits and every replica gets its share.

    Chunked prompts wait in `loading`. Others are computed now, while decoding pauses, one at a
    time: meanwhile the replicas that are behind take theirs.

    Returns:
        Whether a prompt was computed.
    """
    queue = it.queue
    while queue.waiting:
        head, busy = queue.waiting[0], len(it.order) + len(it.loading)
        need = head.prompt + head.left if queue.reserve else max(queue.mean, head.prompt)
        used = it.promised if queue.reserve else it.held_tokens
        is_full = used + need > queue.capacity
        if busy and (is_full or busy * queue.replicas >= queue.unfinished):
            return False
        queue.waiting.popleft()
        it.held_tokens += head.prompt
        it.promised += head.prompt + head.left
        if queue.chunked:
            it.loading.append(head)
            it.loading_tokens += head.prompt
        else:
            seconds = queue.alone(head.prompt, head.prompt**2)
            it.now += seconds
            it.decoding += len(it.order) * seconds
            _start(it, head)
            return True
    return False


def _start(it: Replica, request: Request) -> None:
    """Decode the other tokens of a request; its prompt gave the first."""
    request.since, request.ends = it.k, it.k + request.left - 1
    it.held_tokens += 1
    it.count += 1
    it.order[it.count] = request
    heapq.heappush(it.running, (request.ends, it.count))
    _finish(it)


def _finish(it: Replica) -> None:
    while it.running and (it.running[0][0] <= it.k or it.running[0][1] not in it.order):
        _, key = heapq.heappop(it.running)
        request = it.order.pop(key, None)  # a preempted one left its place in the heap
        if request:
            it.held_tokens -= request.prompt + request.left
            it.promised -= request.prompt + request.left
            it.queue.unfinished -= 1


def _preempt(it: Replica) -> None:
    """Put the newest request back; what it generated becomes part of its prompt."""
    if it.loading:
        request = it.loading.pop()
        it.loading_tokens -= request.prompt
        held_tokens, request.done = request.prompt, 0.0
    else:
        _, request = it.order.popitem()
        generated = it.k - request.since + 1
        held_tokens = request.prompt + generated
        request.prompt, request.left = held_tokens, request.left - generated
    it.held_tokens -= held_tokens
    it.promised -= request.prompt + request.left
    it.preempted += 1
    it.queue.waiting.appendleft(request)


def _chunk(it: Replica) -> float:
    """Prompt tokens of an iteration: as many as decoding hides, at least the minimum.

    Source: L3 sec. 5.3, steps 3 and 4.
    """
    if not it.loading:
        return 0.0
    if not it.order:
        return it.loading[0].prompt - it.loading[0].done
    n = len(it.order)
    context = it.held_tokens - it.loading_tokens
    length = it.loading[0].prompt
    skewed = context * it.queue.skew[min(n, len(it.queue.skew) - 1)]
    base = [c + d * n + t * context + h * skewed for c, d, t, h, _, _ in it.queue.rows]
    most = max(base)
    slopes = [p + q * length for _, _, _, _, p, q in it.queue.rows]
    hidden = min(
        [(most - b) / slope for b, slope in zip(base, slopes, strict=True) if slope > 0]
    )
    return float(max(CHUNK_TOKENS * (hidden // CHUNK_TOKENS), it.queue.minimum_chunk))


def _until_event(it: Replica, chunk: float) -> float:
    """Iterations until a request ends, the first prompt is done, or memory is full."""
    steps = it.running[0][0] - it.k if it.order else 1.0
    if chunk:
        steps = min(steps, max((it.loading[0].prompt - it.loading[0].done) // chunk, 1.0))
    if it.order and not it.queue.reserve and it.held_tokens <= it.queue.capacity:
        steps = min(steps, (it.queue.capacity - it.held_tokens) // len(it.order) + 1)
    return max(steps, 1.0)


def _advance(it: Replica, steps: float, chunk: float) -> None:
    n = float(len(it.order))
    prompt = squares = 0.0
    loading = it.loading_tokens
    budget, done = chunk * steps, []
    while it.loading and budget > 0:
        head = it.loading[0]
        taken = min(budget, head.prompt - head.done)
        head.done += taken
        budget -= taken
        prompt += taken / steps
        squares += taken / steps * head.prompt
        if head.done < head.prompt:
            break
        done.append(it.loading.popleft())
        it.loading_tokens -= head.prompt
    if prompt and not it.order:
        # nothing to interleave with: the weights are read once
        it.now += it.queue.alone(prompt, squares)
    elif it.order:
        context = it.held_tokens - loading + n * steps / 2
        skewed = context * it.queue.skew[min(int(n), len(it.queue.skew) - 1)]
        seconds = steps * it.queue.seconds(n, context, skewed, prompt, squares)
        it.now += seconds
        it.decoding += n * seconds
    it.k += steps
    it.held_tokens += n * steps
    for request in done:
        _start(it, request)


def simulable(llm: LLM, resolved: Resolved) -> Resolved:
    """Answers that a simulation can give: none for layers of fewer tokens, or experts.

    Between two events an iteration is affine in the tokens of its requests, which min(s, w) is not.
    """
    lacks = not_modelled(llm, ("full",), NOT_AFFINE)
    experts = np.greater(llm.sum_over_layers(lambda kind: kind.is_moe), 0)
    if np.any(experts):
        lacks[EXPERTS] = experts
    if not lacks:
        return resolved
    estimate = resolved.estimate
    fits = estimate.fits.without(lacks)
    return replace(resolved, estimate=replace(estimate, fits=fits))


def simulated(block: Block, box: Box, resolved: Resolved) -> dict[str, NDArray[np.float64]]:
    """Play the queue of every design point in a box that fits.

    Args:
        block, box: the design points.
        resolved: their knobs, and what fits.

    Returns:
        `total_s`, `throughput_tok_s`, `tpot_ms` and `preempted`, NaN where a point does not fit.

    Raises:
        InputError: too many points, or a system that serves no queue.
    """
    shape = shape_of(box)
    if block.grid.size > MOST_POINTS:
        raise InputError(
            f"{block.grid.size:,} points are too many to simulate (at most {MOST_POINTS:,}); "
            "use --method fluid"
        )
    if resolved.estimate.serving is None:
        raise InputError(
            f"{block.system.name} serves one batch at a time and has no queue to play; "
            "use --method fluid"
        )
    columns: dict[str, NDArray[np.float64]] = {}
    for name in ("total_s", "throughput_tok_s", "tpot_ms", "preempted", *NOT_SIMULATED):
        columns[name] = np.full(shape, np.nan)
    fits = np.broadcast_to(resolved.estimate.fits.ok, shape)
    knobs = {name: np.broadcast_to(value, shape) for name, value in resolved.knobs.items()}
    for place in np.argwhere(fits):
        index = tuple(place)
        starts = [side.start + i for side, i in zip(box, index, strict=True)]
        point = tuple(slice(start, start + 1) for start in starts)
        chosen = {name: float(values[index]) for name, values in knobs.items()}
        answer = _simulate_point(block, point, chosen)
        columns["total_s"][index] = answer.seconds
        columns["throughput_tok_s"][index] = answer.throughput
        columns["tpot_ms"][index] = 1e3 * answer.tpot
        columns["preempted"][index] = answer.preempted
    return columns


def _simulate_point(block: Block, point: Box, knobs: dict[str, float]) -> SimulatedQueue:
    hw, llm, work, _ = block.inputs(point)
    serving = block.system(hw, llm, work, knobs).serving
    assert serving is not None, "a system whose box has no queue is refused before"
    trace = block.traces[int(block.grid.mesh(point)["trace"].ravel()[0])]
    held = tokens_reserved(work, serving.reserve)
    return simulate(trace, serving, float(np.ravel(held)[0]))
