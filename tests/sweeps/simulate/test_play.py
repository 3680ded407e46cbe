"""The simulation against sequences of events worked out by hand.

An iteration takes 1 + n / 2 + p / 100 seconds with n sequences and p prompt tokens on a replica, a
prompt alone 1 + l / 100: a prompt of 50 alone takes 1.5 s, and so does a token of one request.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nearkv.costmodel.algebra.span import Leaf, Real, Span
from nearkv.costmodel.model.workload import Arrivals, Load, Serving
from nearkv.sweeps.simulate.play import SimulatedQueue, simulate
from nearkv.sweeps.study.traces import Trace

Rows = list[tuple[float, float, float]]
"""Arrival [s], prompt and output [tokens] of each request."""


def serving(dp: float = 1.0, budget: float = 100.0, chunked: float = 1.0, **more: Any) -> Serving:
    def iteration(load: Load) -> Span:
        return Leaf("gpu", "run", 1 + (load.sequences / 2 + load.prompt / 100) / dp, 1.0, "s")

    def prefill(requests: Real, load: Load) -> Span:
        return Leaf("gpu", "run", (requests + load.prompt / 100) / dp, 1.0, "s")

    capacity = dp * more.pop("capacity", 1e6)
    return Serving(
        iteration, prefill, capacity, dp, chunked=chunked, budget=chunked * budget, **more
    )


def played(rows: Rows, of: Serving) -> SimulatedQueue:
    arrival, prompt, output = np.array(rows, float).T
    return simulate(Trace("by-hand", prompt, output, arrival), of)


ONE: dict[str, float] = {}
TWO_REPLICAS, FIRST = {"dp": 2.0}, {"chunked": 0.0}
SEQUENCES: dict[str, tuple[dict[str, float], Rows, list[float], list[float]]] = {
    "one token": (ONE, [(0, 50, 1)], [1.5], [1.5]),
    "two tokens after it": (ONE, [(0, 50, 3)], [1.5], [4.5]),
    "chunks of 100, 100 and 50": (ONE, [(0, 250, 1)], [5.5], [5.5]),
    "two prompts in one iteration": (ONE, [(0, 50, 1), (0, 50, 1)], [2, 2], [2, 2]),
    "a prompt begins in another's chunk": (ONE, [(0, 80, 1), (0, 80, 1)], [2, 3.6], [2, 3.6]),
    "a mixed step": (ONE, [(0, 50, 3), (1, 50, 1)], [1.5, 3.5], [5, 3.5]),
    "nobody there": (ONE, [(0, 50, 1), (10, 50, 1)], [1.5, 11.5], [1.5, 11.5]),
    "decoding takes of the budget": (
        ONE,
        [(0, 50, 3), (1, 200, 1)],
        [1.5, 7.5],  # 99, 99 and 2 tokens: 2.49, 2.49 and 1.02 s
        [6.48, 7.5],
    ),
    "two decode": (ONE, [(0, 50, 2), (0, 50, 2)], [2, 2], [4, 4]),
    "one goes on alone": (ONE, [(0, 50, 2), (0, 50, 3)], [2, 2], [4, 5.5]),
    "the final length is reserved": (
        {"capacity": 120.0, "reserve": 1.0},
        [(0, 50, 10), (0, 50, 20)],
        [1.5, 16.5],
        [15, 45],
    ),
    "no room for a prompt": (
        {"capacity": 100.0},
        [(0, 60, 2), (0, 60, 1)],
        [1.6, 4.7],
        [3.1, 4.7],
    ),
    "first come, first served": (
        {"capacity": 100.0},
        [(0, 60, 2), (0.1, 60, 1), (0.2, 20, 1)],
        [1.6, 4.9, 4.9],
        [3.1, 4.9, 4.9],
    ),
    "the newest is put back": (
        {"capacity": 110.0},
        # 102 tokens grow by 2 each 2 s, and are 112 at 12 s; then 4 tokens of one, 56 and 3 of one
        [(0, 50, 10), (0, 50, 10)],
        [2, 2],
        [18, 24.06],
    ),
    "a replica each": (TWO_REPLICAS, [(0, 50, 1), (0, 50, 1)], [1.5, 1.5], [1.5, 1.5]),
    "the third joins the first": (
        TWO_REPLICAS,
        [(0, 50, 1), (0, 50, 1), (0, 50, 1)],
        [2, 1.5, 2],
        [2, 1.5, 2],
    ),
    "to the replica with fewer": (
        TWO_REPLICAS,
        [(0, 50, 9), (0, 50, 1), (2, 50, 1)],
        [1.5, 1.5, 3.5],
        [13.5, 1.5, 3.5],
    ),
    "prompts first": (FIRST, [(0, 50, 3), (0, 50, 1)], [1.5, 3], [6, 3]),
    "decoding pauses": (FIRST, [(0, 50, 3), (2, 50, 1)], [1.5, 4.5], [6, 4.5]),
    "at least the minimum rides": (
        {"budget": 0.0, "minimum_chunk": 100.0},
        [(0, 50, 5), (1, 150, 1)],
        [1.5, 6],
        [9, 6],
    ),
}


@pytest.mark.parametrize("named", SEQUENCES)
def test_events_come_when_they_do_by_hand(named: str) -> None:
    how, rows, first, ended = SEQUENCES[named]
    queue = played(rows, serving(**how))
    assert queue.first == pytest.approx(first)
    assert queue.ended == pytest.approx(ended)


def test_a_batch_goes_to_the_replica_with_fewest_and_nobody_rests_for_it() -> None:
    """Two replicas have answered one token each by 1.5 s; only the first has another to decode.

    Both take a prompt all the same until 3 s; then each decodes two more tokens of one request.
    """
    trace = Trace("by-hand", np.full(4, 50.0), np.array([3.0, 1.0, 3.0, 1.0]))
    queue = simulate(trace, serving(dp=2.0, chunked=0.0))
    assert queue.first == pytest.approx([1.5, 1.5, 3, 3])
    assert queue.ended == pytest.approx([6, 1.5, 6, 3])


def test_a_replica_without_work_takes_what_another_puts_back() -> None:
    """From 3 s on two hold 102 tokens of one replica's 110 and grow by 2 each 2 s: 112 at 13 s.

    The newest has 4 of its 10 tokens to go; the other replica computes its 56 so far in 1.56 s.
    """
    trace = Trace("by-hand", np.full(4, 50.0), np.array([10.0, 1.0, 1.0, 10.0]))
    queue = simulate(trace, serving(dp=2.0, chunked=0.0, capacity=110.0))
    assert queue.preempted == 1
    assert queue.ended == pytest.approx([13 + 4 * 1.5, 1.5, 3, 13 + 1.56 + 3 * 1.5])


def test_only_what_is_put_back_counts_as_preempted() -> None:
    how, rows, *_ = SEQUENCES["the newest is put back"]
    assert played(rows, serving(**how)).preempted == 1
    assert played(rows, serving()).preempted == 0


def test_a_user_alone_never_waits() -> None:
    trace = Trace("alike", np.full(50, 50.0), np.full(50, 3.0))
    queue = simulate(trace, serving(), Arrivals(users=1.0))
    assert queue.ttft == pytest.approx(1.5)
    assert queue.tpot == pytest.approx(1.5)
    # a request each 4.5 s
    assert queue.throughput == pytest.approx(3 / 4.5)


def test_an_answer_on_one_replica_brings_its_successor_to_the_one_with_fewer() -> None:
    """Users of two replicas: none waits for a run of the other that was planned before it asked."""
    outputs = np.resize([3.0, 400.0], 60)
    queue = simulate(Trace("two", np.full(60, 50.0), outputs), serving(2.0), Arrivals(users=2.0))
    # each has a replica of its own, but for the end of an iteration of 1.5 s
    assert np.all(queue.ttft < 1.5 + 1.5 + 1e-9)


def test_a_rate_brings_as_many_requests_as_it_says() -> None:
    trace = Trace("alike", np.full(2000, 10.0), np.full(2000, 2.0))
    queue = simulate(trace, serving(), Arrivals(rate=0.05), seed=3)
    assert len(queue.first) == 2000
    assert queue.seconds == pytest.approx(2000 / 0.05, rel=0.05)
    # at 5 % of the time busy hardly any waits: 1.1 s for the prompt
    assert np.median(queue.ttft) == pytest.approx(1.1)
