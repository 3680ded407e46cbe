"""Simulate a queue of requests on a system event by event, to check the fluid model.

Between two events (a request ends, a prompt is done, memory is full) the batch is constant and its
context grows evenly, so a run of iterations costs its number times the iteration in its middle.

Symbols: n decoding sequences, k iterations so far.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.queue import Load, Serving
from nearkv.hardware.errors import InputError
from nearkv.solvers.subbatch.planes import planes
from nearkv.solvers.subbatch.problem import CHUNK_TOKENS
from nearkv.sweeps.evaluate.replica import Queue, Replica, Request, SimulatedQueue
from nearkv.sweeps.study.traces import Trace


def simulate(trace: Trace, serving: Serving, mean_held: float) -> SimulatedQueue:
    """Serve all requests of a trace.

    They wait in one queue, and replicas take them as they have free memory.

    Args:
        trace: the requests, all of which arrive at time 0.
        serving: how one design point serves them, all numbers scalar.
        mean_held: tokens that a resident request takes on average, for admission [1].

    Returns:
        The time, tokens, iterations, preemptions and time between tokens.

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
        tbt=sum(one.decoding for one in replicas) / waits,
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
    """A load, as in `Queue.seconds`, with what layers of each kind see of it."""
    return Load(n, t, h, p, q).on_kinds(serving.kinds, serving.skew)


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
            and it.capacity_check > queue.capacity
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
        used = it.promised if queue.reserve else it.capacity_check
        is_full = used + need > queue.capacity
        if busy and (is_full or busy * queue.replicas >= queue.unfinished):
            return False
        queue.waiting.popleft()
        it.capacity_check += head.prompt
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
    it.capacity_check += 1
    it.count += 1
    it.order[it.count] = request
    heapq.heappush(it.running, (request.ends, it.count))
    _finish(it)


def _finish(it: Replica) -> None:
    while it.running and (it.running[0][0] <= it.k or it.running[0][1] not in it.order):
        _, key = heapq.heappop(it.running)
        request = it.order.pop(key, None)  # a preempted one left its place in the heap
        if request:
            it.capacity_check -= request.prompt + request.left
            it.promised -= request.prompt + request.left
            it.queue.unfinished -= 1


def _preempt(it: Replica) -> None:
    """Put the newest request back; what it generated becomes part of its prompt."""
    if it.loading:
        request = it.loading.pop()
        it.loading_tokens -= request.prompt
        capacity_check, request.done = request.prompt, 0.0
    else:
        _, request = it.order.popitem()
        generated = it.k - request.since + 1
        capacity_check = request.prompt + generated
        request.prompt, request.left = capacity_check, request.left - generated
    it.capacity_check -= capacity_check
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
    context = it.capacity_check - it.loading_tokens
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
    if it.order and not it.queue.reserve and it.capacity_check <= it.queue.capacity:
        steps = min(steps, (it.queue.capacity - it.capacity_check) // len(it.order) + 1)
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
        context = it.capacity_check - loading + n * steps / 2
        skewed = context * it.queue.skew[min(int(n), len(it.queue.skew) - 1)]
        seconds = steps * it.queue.seconds(n, context, skewed, prompt, squares)
        it.now += seconds
        it.decoding += n * seconds
    it.k += steps
    it.capacity_check += n * steps
    for request in done:
        _start(it, request)
