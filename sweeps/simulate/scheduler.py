"""The scheduler of a queue, by the rules of vLLM: who is served where, and what runs together.

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
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from nearkv.costmodel.mechanisms.serving.replica import OF_WAITING
from nearkv.solvers.subbatch.problem import CHUNK_TOKENS
from nearkv.sweeps.simulate.iterations import Iterations

WATERMARK = 0.99
"""Share of the memory that prompts may fill, so that those that decode have pages to grow."""

_ROUNDING = 1e-9
"""Share of an iteration by which a request may miss the next one and still join it."""


@dataclass(eq=False, slots=True)
class Request:
    """One request and its times.

    Attributes:
        arrived: when it came [s].
        prompt: tokens to compute before it decodes; after a preemption, what it generated too.
        left: tokens still to generate.
        computed: prompt tokens that are computed, or were; all, but those that a cache has.
        unread: of these, the tokens still to be computed.
        ends: the iteration after which it has all its tokens.
        first: when it had its first token [s].
        ended: when it had its last token [s].
    """

    arrived: float
    prompt: float
    left: float
    computed: float
    unread: float = field(init=False)
    ends: float = 0.0
    first: float = math.nan
    ended: float = math.nan

    def __post_init__(self) -> None:
        self.unread = self.computed

    @property
    def final(self) -> float:
        """Tokens that it holds at its end."""
        return self.prompt + self.left


@dataclass(frozen=True)
class ReplicaRules:
    """State of each replica.

    Attributes:
        iterations: their seconds.
        capacity: tokens that a replica holds.
        mean: tokens that a resident request takes on average.
        sequences: requests that it runs at once, at most.
        chunked, reserve, minimum_chunk, budget: as in `Serving`.
    """

    iterations: Iterations
    capacity: float
    mean: float
    sequences: float
    chunked: bool
    reserve: bool
    minimum_chunk: float
    budget: float


@dataclass(eq=False, slots=True)
class SimulatedReplica:
    """State of one replica and its run, which is a few iterations, or a prompt computed first.

    Attributes:
        number: its place among the replicas of the queue.
        rules: how it works.
        waiting: requests that have come to it and are not admitted.
        loading: requests whose prompts are being computed.
        ends: a heap of (iteration after which a request ends, its key in `order`).
        order: decoding requests by key, the newest last.
        now: when its run began [s].
        until: when it ends; never while the replica is idle, or between two runs [s].
        iterations: of the run; none while a prompt is computed first [1].
        chunk: prompt tokens of each [1].
        reading: prompt tokens that the run computes, and of which requests.
        k: iterations before it.
        held_tokens: tokens that its requests hold then.
        promised: tokens that they hold at their ends.
        running: requests that it has admitted.
        count: requests it has started, from which keys are drawn.
        preempted: requests it has put back.
        decoding: seconds that its requests spent decoding, over all of them [s].
    """

    number: int
    rules: ReplicaRules
    waiting: deque[Request] = field(default_factory=deque)
    loading: deque[Request] = field(default_factory=deque)
    ends: list[tuple[float, int]] = field(default_factory=list)
    order: dict[int, Request] = field(default_factory=dict)
    now: float = 0.0
    until: float = math.inf
    iterations: float = 0.0
    chunk: float = 0.0
    reading: list[tuple[float, Request]] = field(default_factory=list)
    k: float = 0.0
    held_tokens: float = 0.0
    promised: float = 0.0
    running: int = 0
    count: int = 0
    preempted: int = 0
    decoding: float = 0.0

    @property
    def context(self) -> float:
        """Tokens that decoding requests attend to, in all [1]."""
        if not self.loading:
            return self.held_tokens
        return self.held_tokens - sum([one.prompt for one in self.loading])

    def takes(self, request: Request) -> bool:
        """True if memory holds one more, and it may run; a replica without any takes it.

        Prompts that wait for their turn hold no memory: one is taken once those before it no longer
        fill an iteration.
        """
        rules = self.rules
        if not self.running:
            return True
        if self.running >= rules.sequences:
            return False
        if self.loading:
            unread = sum([one.unread for one in self.loading])
            if unread >= max(rules.budget, rules.minimum_chunk):
                return False
        if rules.reserve:
            return self.promised + request.final <= rules.capacity
        if rules.budget:
            return self.held_tokens + request.prompt <= WATERMARK * rules.capacity
        return self.held_tokens + max(rules.mean, request.prompt) <= rules.capacity

    def admit(self, request: Request) -> None:
        """Give a request a place in memory; its prompt is computed next."""
        self.running += 1
        self.held_tokens += request.prompt
        self.promised += request.final
        self.loading.append(request)

    # --- a run begins -------------------------------------------------------------------------

    def begin(self) -> None:
        """Decode until the next event, or compute one prompt first, while decoding pauses."""
        if self.loading and not self.rules.chunked:
            first = self.loading[0]
            self.iterations, self.reading = 0.0, [(first.unread, first)]
            seconds = self.rules.iterations.alone(self.running, first.computed)
            self.until = self.now + seconds
        elif self.running:
            self.chunk = self._chunk()
            self.plan(math.inf)

    def plan(self, most: float) -> None:
        """Plan iterations up to the next event, at most as many as named."""
        self.iterations = min(most, self._until_event())
        self.until = self.now + self.iterations * self._seconds(self.iterations)

    def interrupt(self, arrived: float) -> None:
        """End a run with the iteration in which a request comes, which may join the next."""
        if self.iterations > 1:
            begun = (arrived - self.now) / self._seconds(1.0)
            self.plan(max(math.ceil(begun - _ROUNDING), 1.0))

    def _chunk(self) -> float:
        """Prompt tokens of an iteration.

        What decoding leaves of the budget (vLLM, `max_num_batched_tokens`); without a budget as
        many as decoding hides, at least the minimum (L3 sec. 5.3, steps 3 and 4).
        """
        if not self.loading:
            return 0.0
        n = len(self.order)
        if self.rules.budget:
            return max(self.rules.budget - n, 1.0)
        first = self.loading[0]
        if not n:
            return first.unread
        seconds = self.rules.iterations.seconds
        alone = seconds(n, self.context) * (1 + 1e-9)

        def is_longer(chunks: int) -> bool:
            tokens = CHUNK_TOKENS * chunks
            return seconds(n, self.context, tokens, tokens * first.computed) > alone

        minimum, most = self.rules.minimum_chunk, int(first.unread // CHUNK_TOKENS)
        least = int(minimum // CHUNK_TOKENS) + 1
        if least > most or is_longer(least):
            return minimum
        hidden = bisect_left(range(most + 1), x=True, lo=least, key=is_longer) - 1
        return float(CHUNK_TOKENS * hidden)

    def _until_event(self) -> float:
        """Iterations until a request ends, the first prompt is done, or memory is full."""
        steps = self.ends[0][0] - self.k if self.order else math.inf
        if self.chunk:
            steps = min(steps, self.loading[0].unread // self.chunk)
        free = self.rules.capacity - self.held_tokens
        if self.order and not self.rules.reserve and free >= 0:
            steps = min(steps, free // len(self.order) + 1)
        return max(steps, 1.0)

    def _seconds(self, steps: float) -> float:
        """Each of the next iterations, at their middle, in which they read prompts [s]."""
        n = len(self.order)
        prompt = squares = 0.0
        self.reading = self._next_prompts(steps * self.chunk) if self.chunk else []
        for tokens, request in self.reading:
            prompt += tokens / steps
            squares += tokens / steps * request.computed
        context = self.context + n * steps / 2
        return self.rules.iterations.seconds(n, context, prompt, squares)

    def _next_prompts(self, tokens: float) -> list[tuple[float, Request]]:
        """Prompts of which some tokens are computed next, and how many of each."""
        reading = []
        for request in self.loading:
            if tokens <= 0:
                break
            taken = min(tokens, request.unread)
            tokens -= taken
            reading.append((taken, request))
        return reading

    # --- and ends -----------------------------------------------------------------------------

    def end(self) -> list[Request]:
        """End the run; requests start, and others are put back where memory is full.

        Returns:
            The requests that have all their tokens.
        """
        n = len(self.order)
        self.decoding += (self.until - self.now) * n
        self.held_tokens += n * self.iterations
        self.k += self.iterations
        self.now, self.until = self.until, math.inf
        for tokens, request in self.reading:
            request.unread -= tokens
        while self.loading and self.loading[0].unread <= 0:
            self._start(self.loading.popleft())
        ended = self._finish()
        grows = not self.rules.reserve
        while grows and self.held_tokens > self.rules.capacity and self.running > 1:
            self._preempt()
        return ended

    def _start(self, request: Request) -> None:
        """Decode the other tokens of a request; its prompt gave the first."""
        if math.isnan(request.first):
            request.first = self.now
        request.ends = self.k + request.left - 1
        self.held_tokens += 1
        self.count += 1
        self.order[self.count] = request
        heapq.heappush(self.ends, (request.ends, self.count))

    def _finish(self) -> list[Request]:
        """Let go of the requests that have all their tokens."""
        ended = []
        while self.ends and (
            self.ends[0][0] <= self.k or self.ends[0][1] not in self.order
        ):
            _, key = heapq.heappop(self.ends)
            request = self.order.pop(
                key, None
            )  # a preempted one left its place in the heap
            if request:
                request.ended = self.now
                self.running -= 1
                self.held_tokens -= request.final
                self.promised -= request.final
                ended.append(request)
        return ended

    def _preempt(self) -> None:
        """Put the newest request back; what it generated becomes part of its prompt."""
        if self.loading:
            request = self.loading.pop()
            held_tokens = request.prompt
        else:
            _, request = self.order.popitem()
            remaining = request.ends - self.k
            held_tokens = request.prompt + request.left - remaining
            request.prompt, request.left = held_tokens, remaining
        request.computed = request.unread = request.prompt
        self.running -= 1
        self.held_tokens -= held_tokens
        self.promised -= request.final
        self.preempted += 1
        self.waiting.appendleft(request)


@dataclass
class Queue:
    """Requests that come, and replicas that serve them.

    Attributes:
        replicas: all of them.
        coming: a heap of requests that have yet to arrive: (arrival, number, request).
        later: requests of a closed loop, each asked once another one is answered.
        clock: a heap of (time, number) of the replicas whose runs end.
    """

    replicas: list[SimulatedReplica]
    coming: list[tuple[float, int, Request]] = field(default_factory=list)
    later: deque[Request] = field(default_factory=deque)
    clock: list[tuple[float, int]] = field(default_factory=list)
    asked: int = 0

    def ask(self, requests: Iterable[Request]) -> None:
        """Let requests come when they say."""
        for request in requests:
            heapq.heappush(self.coming, (request.arrived, self.asked, request))
            self.asked += 1

    def line_up(self, requests: Iterable[Request]) -> None:
        """Let requests wait in one line for all replicas."""
        line = deque(requests)
        for replica in self.replicas:
            replica.waiting = line

    def play(self) -> None:
        """Let requests come and be served until nothing is left."""
        self._begin(0.0)
        while self.coming or self.clock:
            comes = self.coming[0][0] if self.coming else math.inf
            ends = self.clock[0][0] if self.clock else math.inf
            now = min(comes, ends)
            self._end(now)
            while self.coming and self.coming[0][0] <= now:
                self._route()
            self._begin(now)

    def _end(self, now: float) -> None:
        """End the runs that end now; each answered request lets another one come."""
        while self.clock and self.clock[0][0] <= now:
            until, number = heapq.heappop(self.clock)
            replica = self.replicas[number]
            if replica.until != until:
                continue  # interrupted before
            for _ in replica.end():
                if self.later:
                    successor = self.later.popleft()
                    successor.arrived = replica.now
                    self.ask([successor])

    def _route(self) -> None:
        """Let the next request wait at the replica that has least to do."""
        now, _, request = heapq.heappop(self.coming)
        busy = [OF_WAITING * len(one.waiting) + one.running for one in self.replicas]
        number = busy.index(min(busy))
        chosen = self.replicas[number]
        # behind one that waits already, it would not join the next iteration
        if chosen.until < math.inf and not chosen.waiting:
            chosen.interrupt(now)
            heapq.heappush(self.clock, (chosen.until, number))
        chosen.waiting.append(request)

    def _begin(self, now: float) -> None:
        """Let replicas that do nothing admit who waits, the one with fewest first, and run."""
        idle = [one for one in self.replicas if one.until == math.inf]
        admitting = [one for one in idle if one.waiting]
        while admitting:
            replica = min(admitting, key=lambda one: one.running)
            is_taken = bool(replica.waiting) and replica.takes(replica.waiting[0])
            if is_taken:
                replica.admit(replica.waiting.popleft())
            if not (is_taken and replica.rules.chunked):
                admitting.remove(replica)
        for replica in idle:
            replica.now = now
            replica.begin()
            if replica.until < math.inf:
                heapq.heappush(self.clock, (replica.until, replica.number))
