"""The fluid model of a queue whose iterations are counted by hand.

A hundred requests of 200 + 21 tokens: 20 steps each, at 210.5 tokens on average. Memory holds 10.5
requests of mean size, so 10 decode: half of one is idle.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nearkv.costmodel.algebra.span import Leaf, Real, Span, serial
from nearkv.costmodel.mechanisms.serving.fluid import Drain, decoding, drain_of, steady
from nearkv.costmodel.mechanisms.serving.residents import (
    bisect,
    crossing,
    resident,
    resident_in,
    tokens_reserved,
)
from nearkv.costmodel.model.estimate import Estimate, fits
from nearkv.costmodel.model.workload import Load, Serving, Spread, Workload

WORK = Workload(batch=100.0, prompt=200.0, output=21.0)


A_SEQUENCE, A_TOKEN, A_SQUARE = 0.125, 1e-3, 1e-6
"""Seconds that each adds to an iteration of 1 s."""


def seconds(of: Real) -> Span:
    return Leaf("gpu", "run", of, 1.0, "s")


def iteration(load: Load) -> Span:
    prompts = A_TOKEN * load.prompt + A_SQUARE * load.squares
    return seconds(1 + A_SEQUENCE * load.sequences + prompts)


def prefill(requests: Real, load: Load) -> Span:
    return seconds(requests + A_TOKEN * load.prompt + A_SQUARE * load.squares)


WAITING = 0.9 * (0.895 + 0.105 / 2)
"""Of ten places, those whose request waits for a prompt of a hundred, 10.5 of which fill memory."""


def served(work: Workload, chunked: float) -> Estimate:
    serving = Serving(
        iteration=iteration,
        prefill=prefill,
        capacity=10.5 * work.context,
        replicas=1.0,
        chunked=chunked,
        minimum_chunk=1000.0,
    )
    return steady(work, serving, fits(gpu=(1.0, 2.0)))


def tbt(answer: Estimate) -> Real:
    return 1e3 * answer.latency.tpot


def test_prompts_that_come_first_pause_those_that_decode() -> None:
    """10 rounds of 20 iterations; a prompt beyond the first 10.5 makes the nine others wait, one of
    those that fill memory half of them on average."""
    answer = served(WORK, chunked=0.0)
    prompts = 100 * (1 + 200 * A_TOKEN + 200**2 * A_SQUARE)
    whole = 1 + 10 * A_SEQUENCE
    assert answer.batch_run == 10
    assert answer.prefill.seconds == pytest.approx(prompts)
    assert answer.step.seconds == pytest.approx(10 * whole)
    assert answer.step_carries == 0
    assert tbt(answer) == pytest.approx(1e3 * (whole + WAITING * prompts / 200))
    # 10.5 load one after another, 89.5 begin evenly over what follows
    loading = 0.105 * prompts
    first = loading * (1 + 1 / 10.5) / 2
    evenly = loading + (200 * whole + 0.895 * prompts) / 2
    assert answer.latency.ttft == pytest.approx(0.105 * first + 0.895 * evenly)


def test_prompts_that_ride_load_a_hundredth_of_the_places() -> None:
    """10 prompt tokens a token decoded, in chunks of 1,000. The first n prompts come alone, so that
    all but one wait for half of them on average; the others ride in 2,000 / n iterations."""
    answer = served(WORK, chunked=1.0)
    n = 10 / 1.01
    carried = (100 - n) * 200 / (2000 / n)
    whole = 1 + n * A_SEQUENCE + carried * (A_TOKEN + 200 * A_SQUARE)
    assert answer.batch_run == pytest.approx(n)
    assert answer.prefill.seconds == pytest.approx(n * (1 + 200 * A_TOKEN + 200**2 * A_SQUARE))
    assert answer.step_carries == pytest.approx(carried)
    assert answer.step.seconds == pytest.approx(100 / n * whole)
    paused = (1 - 1 / n) / 2 * answer.prefill.seconds / (2000 / n)
    assert tbt(answer) == pytest.approx(1e3 * (whole + paused))


def test_prompts_that_differ_attend_by_their_mean_square() -> None:
    spread = Spread(prompt_square=1.25)
    for chunked in (0.0, 1.0):
        alike = served(WORK, chunked)
        differ = served(Workload(100.0, 200.0, 21.0, spread=spread), chunked)
        alone = 100.0 if chunked == 0 else float(alike.batch_run)
        more = 0.25 * alone * 200**2 * A_SQUARE
        assert differ.prefill.seconds - alike.prefill.seconds == pytest.approx(more)
        rides = 0.25 * alike.step_carries * 200 * A_SQUARE
        longer = tbt(differ) - tbt(alike)
        n = float(alike.batch_run)
        paused = (1 - 1 / n) / 2 * more / (2000 / n) if chunked else WAITING * more / 200
        assert longer == pytest.approx(1e3 * (rides + paused))


def test_requests_that_drain_decode_as_many_tokens() -> None:
    """Answers with E[n^2] = 1.5 E[n]^2 and up to 4 times the mean: 80 iterations at the end for 15
    that a mean request of the last ones needs. 185 full ones make 2,000 sequences' steps whole; at
    the end, where less than one of ten would be left, one goes on."""
    work = Workload(100.0, 200.0, 21.0, spread=Spread(output_square=1.5, longest_output=4.0))
    answer = served(work, chunked=0.0)
    k = 80 / 15 - 1
    alone = 80 * 0.1 ** (1 / k)
    iterations, steps = 185 + 80, 185 * 10 + 15 * 10 + alone * (1 - 1 / (k + 1))
    assert answer.step.seconds == pytest.approx((iterations + A_SEQUENCE * steps) / 20, rel=1e-4)
    prompts = 100 * (1 + 200 * A_TOKEN + 200**2 * A_SQUARE)
    # places: 185 + 15; those of the drain beside ever fewer, (1 - t)^k of ten, then beside none
    beside = 80 / (2 * k + 1) * (1 - 0.1 ** (2 + 1 / k)) + alone * 0.1 * 0.1 / (k + 1)
    places = 200 + A_SEQUENCE * 10 * (185 + beside)
    expected = 1e3 * (places + WAITING * prompts) / 200
    assert tbt(answer) == pytest.approx(expected, rel=1e-4)


def test_what_fits_but_for_rounding_decodes_together() -> None:
    assert resident_in(8 * (1 - 5e-13), 8.0, 1.0) == 8
    assert resident_in(8 * (1 - 5e-12), 8.0, 1.0) == pytest.approx(7.5)


def test_an_answer_of_two_tokens_has_one_step() -> None:
    """200 prompt tokens ride with each: of 21 places one loads in chunks of 4,000."""
    work = Workload(100.0, 200.0, 2.0)
    serving = Serving(iteration, prefill, 12 * 201.0, 1.0, chunked=1.0, minimum_chunk=4000.0)
    n = 11.5 / 1.05
    assert decoding(work, serving) == pytest.approx(n)
    # those beyond the first n ride in as many iterations as it takes n at a time
    carried = steady(work, serving, fits(gpu=(1.0, 2.0))).step_carries
    assert carried == pytest.approx((100 - n) * 200 / (100 / n))


@pytest.mark.parametrize(
    ("prompt", "hidden", "decode"),
    [
        # 500 prompt tokens hide in an iteration: 10 for each of 50 that decode
        (200.0, 500.0, 50.0),
        # none hides, but one token rides in any iteration: a tenth for each of 10 that decode
        (2.0, 0.0, 10.0),
    ],
)
def test_fewer_decode_where_prompts_must_ride(prompt: float, hidden: float, decode: float) -> None:
    work = Workload(1000.0, prompt, 21.0)

    def hiding(load: Load) -> Span:
        return seconds(1 + np.maximum(load.prompt - hidden, 0.0) * A_TOKEN)

    serving = Serving(hiding, prefill, 80.5 * work.context, 1.0, chunked=1.0)
    assert decoding(work, serving) == pytest.approx(decode, rel=1e-6)


def test_points_of_a_grid_decode_as_each_alone() -> None:
    """Decoding hides all prompt tokens, 500, 50 or none of them; chunks carry 100 at least."""
    work = Workload(1000.0, 200.0, 21.0)
    most_hidden = np.array([1e6, 500.0, 50.0, 0.0])

    def decode(hidden: Real) -> Real:
        def hiding(load: Load) -> Span:
            return seconds(1 + np.maximum(load.prompt - hidden, 0.0) * A_TOKEN)

        room = 80.5 * work.context
        serving = Serving(hiding, prefill, room, 1.0, 1.0, minimum_chunk=100.0)
        return decoding(work, serving)

    together = np.asarray(decode(most_hidden))
    assert together.tolist() == [float(decode(hidden)) for hidden in most_hidden]
    # of 80 places one loads; 10 prompt tokens a token decoded
    assert together == pytest.approx([79, 50, 10, 10])


@pytest.mark.parametrize(("chunk", "iterations"), [(1000.0, 0), (100.0, 4)])
def test_no_iteration_is_evaluated_that_cannot_hide_prompts(chunk: float, iterations: int) -> None:
    """Chunks of 1,000 carry all prompts; of 100, those of 10 requests: are more hidden, or all?

    An iteration of all and one of ten, each with its prompts and without.
    """
    work, evaluated = Workload(1000.0, 200.0, 21.0), []

    def counted(load: Load) -> Span:
        evaluated.append(load)
        return iteration(load)

    serving = Serving(counted, prefill, 80.5 * work.context, 1.0, 1.0, minimum_chunk=chunk)
    decoding(work, serving)
    assert len(evaluated) == iterations


def test_one_request_at_a_time_takes_one_step_each() -> None:
    """A hundred requests of two tokens, one after the other: no prompt makes another one wait."""
    work = Workload(100.0, 200.0, 2.0)
    serving = Serving(iteration, prefill, 1.5 * 201.0, 1.0)
    answer = steady(work, serving, fits(gpu=(1.0, 2.0)))
    whole = 1 + A_SEQUENCE
    assert answer.batch_run == 1
    assert answer.step.seconds == pytest.approx(100 * whole, rel=1e-12)
    assert tbt(answer) == pytest.approx(1e3 * whole, rel=1e-12)


def test_a_remainder_of_less_than_a_step_drains_as_well() -> None:
    pieces = list(Drain(longest=4.0, remainder=0.5).pieces(0.1))
    assert sum(piece.iterations for piece in pieces) == pytest.approx(4)
    assert sum(piece.iterations * piece.served for piece in pieces) == pytest.approx(0.5)


def test_those_who_leave_last_take_their_remainder_between_them() -> None:
    """Shares of the last requests integrate to their mean remainder over the longest answer."""
    pieces = list(Drain(longest=300.0, remainder=100.0).pieces(0.01))
    assert sum(piece.iterations for piece in pieces) == pytest.approx(300)
    assert sum(piece.iterations * piece.served for piece in pieces) == pytest.approx(100)
    shares = [float(piece.decoding) for piece in pieces]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0.01


@pytest.mark.parametrize("longest", [100.0, 101.0, 130.0, 200.0, 299.0, 301.0, 2000.0, 30000.0])
@pytest.mark.parametrize("least", [1.0, 0.5, 0.1, 1e-3])
def test_every_drain_serves_the_remainders_and_ends_with_the_last(
    longest: float, least: float
) -> None:
    """Laws from equal remainders to one request of three hundred that goes on."""
    pieces = list(Drain(longest, remainder=100.0).pieces(least))
    assert sum(piece.iterations for piece in pieces) == pytest.approx(longest, rel=1e-9)
    assert sum(piece.iterations * piece.served for piece in pieces) == pytest.approx(100, rel=2e-3)
    assert all(float(piece.decoding) >= least * (1 - 1e-9) for piece in pieces)


def test_a_drain_lasts_as_long_as_the_longest_answer() -> None:
    """Answers of 21 with E[n^2] = 1.5 E[n]^2 and up to 4 times the mean."""
    spread = Spread(output_square=1.5, longest_output=4.0)
    work = Workload(5.0, 100.0, 21.0, spread=spread)
    queue = drain_of(work, np.array(True), 200.0)
    assert (float(queue.longest), float(queue.remainder)) == (80, 15)
    nearly_all = drain_of(work, np.array(True), 12.0)  # resident from the start: no more is left
    assert (float(nearly_all.longest), float(nearly_all.remainder)) == (80, 12)
    together = drain_of(work, np.array(False), 20.0)
    assert (float(together.longest), float(together.remainder)) == (80, 20)
    alike = drain_of(Workload(5.0, 100.0, 21.0), np.array(True), 200.0)
    assert (float(alike.longest), float(alike.remainder)) == (0, 0)
    single = drain_of(Workload(5.0, 100.0, 1.0, spread=spread), np.array(True), 0.0)
    assert (float(single.longest), float(single.remainder)) == (0, 0)


def test_an_iteration_counts_tokens_and_the_fullest_rankset() -> None:
    work = Workload(5.0, 100.0, 21.0, spread=Spread(prompt_square=2.0))
    idle = serial()
    serving = Serving(
        iteration=lambda load: idle,
        prefill=lambda prompts, load: idle,
        capacity=1.0,
        replicas=1.0,
        skew=lambda sequences, sizes: 1 + sizes * sequences,
    )
    load = serving.load_of(work, 3.0, 7.0)
    assert (load.sequences, load.tokens, load.prompt) == (3, 3 * 110.5, 7)
    assert load.hottest == 4 * 3 * 110.5
    assert load.squares == 7 * 100 * 2
    assert load.share(0.5).squares == 700


def test_a_request_reserves_its_mean_or_its_final_length() -> None:
    """121 tokens in the end, 110.5 on average."""
    work = Workload(5.0, 100.0, 21.0)
    assert tokens_reserved(work, 0.0) == 110.5
    assert tokens_reserved(work, 1.0) == 121
    assert tokens_reserved(work, 0.5) == (110.5 + 121) / 2


@pytest.mark.parametrize(
    ("room", "resident"), [(9.0, 5.0), (5.0, 5.0), (4.5, 3.5), (1.5, 2.0), (0.0, 2.0)]
)
def test_a_queue_leaves_half_a_request_of_room_in_each_replica(
    room: float, resident: float
) -> None:
    """Five requests in two replicas: room but for one, at least one in each."""
    assert resident_in(room, 5.0, 2.0) == resident


def queue(room: float, chunk: float) -> Serving:
    """A server whose iterations take a second, whatever they carry."""
    return Serving(
        iteration=lambda load: second(load.sequences),
        prefill=lambda requests, load: second(requests),
        capacity=room,
        replicas=1.0,
        chunked=1.0,
        minimum_chunk=chunk,
    )


def second(of: Real) -> Leaf:
    return Leaf("gpu", "run", np.ones(np.shape(of)), 1.0, "s")


@pytest.mark.parametrize(
    ("chunk", "decode"),
    [
        # 10 tokens of prompts a token decoded come in chunks of 200: of each 21 places one loads
        (200.0, 11.5 / 1.05),
        # in chunks of 20 one of three would, but one prompt loads at a time
        (20.0, 11.5 - 1),
    ],
)
def test_requests_load_before_they_decode(chunk: float, decode: float) -> None:
    """Memory for 12 requests, half of one idle."""
    work = Workload(batch=1000.0, prompt=200.0, output=21.0)
    serving = queue(12 * 210.5, chunk)
    assert resident(work, serving) == pytest.approx(11.5)
    assert decoding(work, serving) == pytest.approx(decode)


@pytest.mark.parametrize(
    ("tokens", "replicas", "reserve", "longest", "expected"),
    [
        # two prompts of 200 never fit, though 1.9 requests of mean length do
        (399.0, 1.0, 0.0, 1.0, 1.0),
        # two begin (400 <= 420), and one has to leave before they end (442): between one and two
        (420.0, 1.0, 0.0, 1.0, 420 / 210.5 - 0.5),
        # three with their 221 tokens reserved
        (663.0, 1.0, 1.0, 1.0, 3.0),
        # 2.67 of them on each of two replicas
        (1180.0, 2.0, 1.0, 1.0, 4.0),
        # of unlike lengths as many as on average: half of one on each replica is idle
        (663.0, 1.0, 0.0, 2.0, 663 / 210.5 - 0.5),
    ],
)
def test_requests_that_are_alike_are_held_whole(
    tokens: float, replicas: float, reserve: float, longest: float, expected: float
) -> None:
    """A hundred requests of 200 + 21 tokens."""
    serving = replace(queue(tokens, 1.0), replicas=replicas, reserve=reserve)
    work = replace(WORK, spread=Spread(longest=longest))
    assert resident(work, serving) == pytest.approx(expected)


LOWEST = np.array([0.1, 0.37, 0.8])


def test_bisection_ends_where_a_condition_does() -> None:
    end = bisect(lambda x: np.less(x, LOWEST), np.zeros(3), np.ones(3))
    assert end == pytest.approx(LOWEST, abs=1e-14)
    assert bisect(lambda x: np.less(x, 2.0), 0.0, 1.0) == 1
    assert bisect(lambda x: np.less(x, 0.5), 0.0, 1.0, halvings=3) == 0.5


def test_a_falling_function_is_crossed_at_each_point_of_a_grid() -> None:
    """1 / (1 + x) - 1 / (1 + root) falls, and bends; one that stays above zero ends at `high`."""
    roots = np.array([0.01, 0.3, 0.9, 2.0])
    end = crossing(lambda x: 1 / (1 + x) - 1 / (1 + roots), np.zeros(4), np.ones(4))
    assert end == pytest.approx([0.01, 0.3, 0.9, 1.0], rel=1e-6)
    one = crossing(lambda x: 1 / (1 + x) - 1 / 1.3, np.zeros(1), np.ones(1))
    assert one == np.ravel(end)[1]


def test_a_jump_is_crossed_on_its_far_side_whatever_other_points_do() -> None:
    """One point jumps from 1 to -3, one falls in a line; the last stays above zero."""
    ends = np.array([LOWEST[1], LOWEST[1], 2.0])

    def gap(x: Real) -> Real:
        jumps = np.where(np.less(x, LOWEST[1]), 1.0, -3.0)
        return np.where([True, False, False], jumps, ends - x)

    jump, line, high = np.asarray(crossing(gap, np.zeros(3), np.ones(3), steps=100))
    assert LOWEST[1] <= jump <= LOWEST[1] * (1 + 1e-11)
    alone = crossing(lambda x: LOWEST[1] - x, np.zeros(1), np.ones(1), steps=100)
    assert line == np.ravel(alone)[0] == pytest.approx(LOWEST[1], rel=1e-11)
    assert high == 1
