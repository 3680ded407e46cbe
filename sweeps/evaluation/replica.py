"""What a simulated replica knows: its requests, the queue it shares, and how far it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Request:
    """One request on its way.

    Attributes:
        prompt: its tokens.
        left: tokens still to generate.
        done: prompt tokens computed.
        since: iteration it began to decode.
        ends: iteration after which it has all tokens.
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
        single: the same where one sequence decodes and no prompt rides, so that no second sub-batch runs.
        alone: tokens and squares of one prompt -> seconds to compute them while nothing decodes.
        skew: sequences -> load of the fullest rankset over the mean.
        room: tokens a replica holds.
        mean: tokens a resident takes on average.
        chunked, reserve, minimum_chunk: as in `Serving`.
        waiting: requests no replica has taken.
        replicas: how many share the queue.
        unfinished: requests that still need tokens.
    """

    rows: list[list[float]]
    single: list[list[float]]
    alone: Callable[[float, float], float]
    skew: list[float]
    room: float
    mean: float
    chunked: bool
    reserve: bool
    minimum_chunk: float
    waiting: deque[Request]
    replicas: int
    unfinished: int = 0


@dataclass
class Replica:
    """State of one replica: its clock `now`, iteration `k`, tokens `held` and `promised`."""

    queue: Queue
    loading: deque[Request] = field(default_factory=deque)
    running: list[tuple[float, int]] = field(default_factory=list)
    order: dict[int, Request] = field(default_factory=dict)
    now: float = 0.0
    k: float = 0.0
    capacity_check: float = 0.0
    promised: float = 0.0
    count: int = 0
    preempted: int = 0
    decoding: float = 0.0
