"""The state of a simulated replica: its requests, its queue and its clock; what comes of all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field


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
        capacity_check: tokens that its requests hold now.
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
    capacity_check: float = 0.0
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
        tbt: mean time between tokens [s].
    """

    seconds: float
    tokens: float
    iterations: float
    preempted: int
    tbt: float

    @property
    def throughput(self) -> float:
        """Generated tokens per second [1/s]."""
        return self.tokens / self.seconds
