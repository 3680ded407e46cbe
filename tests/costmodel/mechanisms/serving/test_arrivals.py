"""Latency under load, at the limits where queueing theory has an exact answer, and by simulation.

An iteration takes 0.1 + 0.01 n + 0.001 p seconds with n sequences and p prompt tokens.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nearkv.costmodel.algebra.span import Booleans, Leaf, Real, Span, serial
from nearkv.costmodel.mechanisms.serving.arrivals import at_rate, laws_of, under_load
from nearkv.costmodel.mechanisms.serving.closed_loop import Loop, of_users
from nearkv.costmodel.mechanisms.serving.residents import bisect
from nearkv.costmodel.model.estimate import fits
from nearkv.costmodel.model.workload import Arrivals, Load, Serving, Workload
from nearkv.solvers.goodput import first_within, quantile, within
from nearkv.sweeps.simulate.play import simulate
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.study.traces import Trace, alike


def iteration(load: Load) -> Span:
    busy = np.minimum(load.sequences + load.prompt, 1.0)
    seconds = 0.1 * busy + 0.01 * load.sequences + 0.001 * load.prompt
    return Leaf("gpu", "run", seconds, 1.0, "s")


def prefill(requests: Real, load: Load) -> Span:
    return Leaf("gpu", "run", 0.1 * requests + 0.001 * load.prompt, 1.0, "s")


def serving(chunked: float = 1.0, **more: Any) -> Serving:
    budget = 512.0 * chunked
    return Serving(iteration, prefill, 1e7, 1.0, chunked=chunked, budget=budget, **more)


def work(prompt: float, output: float) -> Workload:
    return Workload(1e6, prompt, output)


def test_a_request_that_is_alone_waits_for_nothing() -> None:
    lonely = at_rate(work(100.0, 11.0), serving(), 1e-9)
    assert lonely.latency.ttft == pytest.approx(0.1 + 0.01 + 0.1, rel=1e-3)
    assert lonely.latency.tpot == pytest.approx(0.11, rel=1e-3)


def test_a_user_alone_waits_for_nothing_either() -> None:
    user = of_users(work(100.0, 11.0), serving(), 1.0)
    assert user.latency.ttft == pytest.approx(0.21, rel=1e-3)
    assert user.latency.tpot == pytest.approx(0.11, rel=1e-3)
    assert user.rate == pytest.approx(1 / (0.21 + 10 * 0.11), rel=1e-3)


def test_a_prompt_that_just_fills_an_iteration_takes_one() -> None:
    """512 tokens of 512 while nobody decodes; one more takes an iteration of its own."""
    fits_in, too_long = (of_users(work(size, 2.0), serving(), 1.0) for size in (512.0, 513.0))
    assert fits_in.latency.ttft == pytest.approx(0.1 + 0.01 + 0.512, rel=1e-3)
    assert too_long.latency.ttft == pytest.approx(2 * 0.11 + 0.513, rel=1e-3)


@pytest.mark.parametrize(("users", "most"), [("1", 0.05), ("32", 0.95)])
def test_a_prompt_of_its_own_is_no_waiting(users: str, most: float) -> None:
    """The time to the first token of one user is the prompt's, but for iterations that it rides."""
    study = Study(("gpu",), ("llama3.1-70b",), users=users, context="8k", platforms=("hgx-h200",))
    (block,) = blocks(study)
    estimate = block.resolved(block.grid.whole).estimate
    seconds = estimate.prefill.attribution()
    total = estimate.prefill.seconds
    assert total == pytest.approx(estimate.latency.ttft)
    assert sum(seconds.values()) == pytest.approx(total)
    assert 0 <= seconds["queue.wait"] <= most * total


def test_a_step_carries_the_prompt_tokens_that_come_in_its_time() -> None:
    """Beside one token of each that decodes; all of them where prompts ride, none elsewhere."""

    def tokens(load: Load) -> Span:
        decoding = Leaf("gpu", "run", load.sequences, 100.0, "token")
        return serial(decoding=decoding, prompts=Leaf("gpu", "run", load.prompt, 1000.0, "token"))

    asked = replace(work(100.0, 11.0), arrivals=Arrivals(rate=1.0))
    for chunked in (1.0, 0.0):
        of = replace(serving(chunked), iteration=tokens)
        answer = under_load(asked, of, fits())
        parts = answer.step.breakdown()
        in_prompts, in_decoding = 1000 * parts["prompts"], 100 * parts["decoding"]
        expected = chunked * answer.step_carries / answer.batch_run
        assert in_prompts / in_decoding == pytest.approx(expected)


@pytest.mark.parametrize("rho", [0.2, 0.5, 0.8])
def test_prompts_alone_wait_as_in_m_d_1(rho: float) -> None:
    """Answers of one token: nothing decodes, and a prompt of 400 takes 0.5 s."""
    prompts = at_rate(work(400.0, 1.0), serving(chunked=0.0), rho / 0.5)
    assert prompts.latency.ttft == pytest.approx(0.5 + 0.5 * rho / (2 * (1 - rho)), rel=1e-3)


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.5])
def test_decoding_shares_as_processor_sharing_does(rate: float) -> None:
    """Prompts of a token hardly count: a request that meets n others, by Little n = a D(1 + n)."""
    steps = 100.0
    answer = at_rate(work(1.0, steps + 1), serving(chunked=0.0), rate)
    a = rate * steps
    n = a * 0.11 / (1 - a * 0.01)
    assert answer.at_once == pytest.approx(n, rel=0.15)
    assert answer.latency.tpot == pytest.approx(0.11 + 0.01 * n, rel=0.15)


@pytest.mark.parametrize("users", [1.0, 4.0, 16.0])
def test_users_of_one_token_keep_a_replica_at_their_prompts(users: float) -> None:
    """Nobody decodes: prompts of 0.5 s follow one another, and each user waits for all of them."""
    answer = of_users(work(400.0, 1.0), serving(chunked=0.0), users)
    assert answer.rate == pytest.approx(1 / 0.5, rel=1e-8)
    assert answer.latency.ttft == pytest.approx(users * 0.5, rel=1e-8)


def test_answers_of_one_token_have_no_time_of_a_second() -> None:
    """Half of the requests decode 60 more tokens: all decoding time is theirs."""
    trace = Trace("half", np.full(64, 300.0), np.resize([1.0, 61.0], 64))
    answer = at_rate(trace.workload, serving(), 0.3)
    assert answer.latency.tpot == pytest.approx(answer.decoding / (0.5 * 60))


@pytest.mark.parametrize("chunked", [0.0, 1.0])
def test_more_requests_per_second_never_wait_less(chunked: float) -> None:
    rates = np.linspace(0.05, 0.6, 12)
    answer = at_rate(work(300.0, 60.0), serving(chunked=chunked), rates)
    assert np.all(np.diff(answer.latency.ttft) > 0)
    assert np.all(np.diff(answer.latency.tpot) > 0)
    one = at_rate(work(300.0, 60.0), serving(chunked=chunked), float(rates[5]))
    assert one.latency.ttft == pytest.approx(np.ravel(answer.latency.ttft)[5], rel=1e-9)


def test_a_queue_that_grows_is_overloaded() -> None:
    """A prompt adds 0.3 s and fills 300 of 511 tokens of an iteration of 0.11 s: 2.7 a second."""
    rates = np.array([0.1, 3.0])
    assert at_rate(work(300.0, 2.0), serving(), rates).overloaded.tolist() == [False, True]


def test_a_second_replica_takes_half_of_the_requests() -> None:
    """Each of two serves a rate as one replica serves it alone; few are luckier by the choice."""
    alone, rate = serving(chunked=0.0), 0.2

    def halved(load: Load) -> Span:
        return iteration(load.share(0.5))

    pair = replace(alone, replicas=2.0, iteration=halved, capacity=2 * alone.capacity)
    one = at_rate(work(1.0, 101.0), alone, rate)
    each = at_rate(work(1.0, 101.0), pair, 2 * rate)
    assert each.at_once == pytest.approx(one.at_once, rel=0.03)
    assert each.latency.tpot == pytest.approx(one.latency.tpot, rel=0.03)


def test_a_prompt_leaves_few_behind_where_a_router_chooses() -> None:
    """Long prompts that come first, few tokens, two replicas: against the simulation.

    A prompt that comes while another is computed goes to the replica that computes none.
    """
    one = serving(chunked=0.0)

    def halved(load: Load) -> Span:
        return iteration(load.share(0.5))

    def first(requests: Real, load: Load) -> Span:
        return Leaf("gpu", "run", (0.1 * requests + 0.001 * load.prompt) / 2, 1.0, "s")

    pair = replace(one, replicas=2.0, iteration=halved, prefill=first)
    trace, rate = alike(5000.0, 40.0), 0.15
    closed = at_rate(trace.workload, pair, rate).latency
    queue = simulate(trace, pair, Arrivals(rate=rate), 1)
    assert closed.tpot == pytest.approx(np.mean(queue.tpot), rel=0.1)
    assert closed.ttft == pytest.approx(np.mean(queue.ttft), rel=0.1)


def test_prompts_have_no_luck_where_the_numbers_that_run_decide() -> None:
    """Prompts of 0.5 s, one a second in each of two replicas, leave half of the time to decoding:
    10^6 steps of 0.1 s keep 200,000 there, and some hundreds more or less hide where a prompt is.
    So a prompt waits as in M/D/1, and for half a step.
    """
    half = 0.5

    def decoding_is_free(load: Load) -> Span:
        busy = np.minimum(load.sequences + load.prompt, 1.0)
        return Leaf("gpu", "run", 0.1 * busy + 0.001 * half * load.prompt, 1.0, "s")

    def halved(requests: Real, load: Load) -> Span:
        return prefill(half * requests, load.share(half))

    alone = serving(chunked=0.0)
    pair = replace(alone, iteration=decoding_is_free, prefill=halved, capacity=1e12, replicas=2.0)
    answer = at_rate(work(400.0, 1e6), pair, 2.0)
    assert answer.at_once == pytest.approx(2e5, rel=1e-3)
    assert answer.latency.ttft == pytest.approx(0.5 + 0.5 * 0.5 / (2 * 0.5) + 0.1 / 2, rel=0.01)


def test_no_step_is_shorter_than_that_of_a_request_alone() -> None:
    answer = at_rate(work(100.0, 11.0), serving(), 2.0)
    assert answer.latency.tpot > 1.1 * 0.11
    assert laws_of(answer).least == pytest.approx(0.1 + 0.01)


def test_no_replica_decodes_more_than_its_memory_holds() -> None:
    """Tokens of 1,000 in two replicas: 3.3 requests of a mean of 150 each, but for half a one."""
    small = replace(serving(), replicas=2.0, capacity=1e3)
    answer = at_rate(work(100.0, 100.0), small, np.array([5.0, 50.0]))
    assert answer.replica.others == pytest.approx([1e3 / 2 / 150 - 0.5] * 2, rel=1e-3)


def test_prompts_that_wait_are_not_counted_with_the_iteration_that_runs() -> None:
    """Equal prompts of 300 ride in 512 at two thirds of what can be served.

    The iteration that runs holds prompts, which are no longer in line: were they counted twice, or
    the excess of the iteration not halved, the first token would come a fifth later or sooner.
    """
    many = np.ones(4000)
    trace, of = Trace("equal", 300 * many, 10 * many), serving()
    answer, queue = at_rate(trace.workload, of, 1.5), simulate(trace, of, Arrivals(rate=1.5))
    assert answer.latency.ttft == pytest.approx(queue.ttft.mean(), rel=0.1)


@pytest.mark.parametrize("chunked", [0.0, 1.0])
@pytest.mark.parametrize(("prompt", "output", "rate"), [(200, 60, 0.5), (1500, 20, 0.3)])
def test_the_closed_form_is_near_the_simulation(
    prompt: float, output: float, rate: float, chunked: float
) -> None:
    random = np.random.default_rng(0)
    spread = np.exp(random.normal(0.0, 0.6, (2, 4000)) - 0.18)
    prompts, outputs = np.ceil(prompt * spread[0]), np.ceil(output * spread[1])
    trace = Trace("drawn", prompts, outputs)
    # never full, and no larger: the simulation warms up for as long as all that it holds takes
    of = replace(serving(chunked=chunked), capacity=5e4)
    answer = at_rate(trace.workload, of, rate)
    queue = simulate(trace, of, Arrivals(rate=rate))
    assert answer.latency.ttft == pytest.approx(queue.ttft.mean(), rel=0.15)
    assert answer.latency.tpot == pytest.approx(queue.tpot.mean(), rel=0.15)
    if not chunked:  # few prompts stop a short answer, for long: the law of those is coarse
        return
    assert quantile(laws_of(answer), 0.9) == pytest.approx(np.percentile(queue.tpot, 90), rel=0.2)
    for share in (50, 90):
        ttft, tpot = np.percentile(queue.ttft, share), np.percentile(queue.tpot, share)
        assert first_within(laws_of(answer), ttft) == pytest.approx(share / 100, abs=0.15)
        assert within(laws_of(answer), tpot) == pytest.approx(share / 100, abs=0.15)


def random_machine(random: np.random.Generator) -> tuple[Serving, Workload]:
    """An iteration that reads weights and caches or multiplies, whichever takes longer."""
    launch, weights, cache, product = 10 ** random.uniform([-4, -4, -6, -7], [-1, -1, -3, -3])
    budget = float(random.choice([0, 16, 512, 8192]))
    dp = float(random.choice([1, 2, 8]))
    prompt, output = 10 ** random.uniform([0, 0], [5, 3.5])

    def seconds(sequences: Real, prompts: Real) -> Span:
        read = weights + cache * sequences / dp
        computed = product * (sequences + prompts) / dp
        return Leaf("gpu", "run", launch + np.maximum(read, computed), 1.0, "s")

    of = Serving(
        iteration=lambda load: seconds(load.sequences, load.prompt),
        prefill=lambda requests, load: seconds(0.0, load.prompt),
        capacity=dp * (prompt + output) * 10 ** random.uniform(0.1, 4),
        replicas=dp,
        chunked=float(budget > 0),
        budget=budget,
        reserve=float(random.integers(2)),
        sequences=float(random.choice([np.inf, 4, 256])),
    )
    return of, work(float(np.ceil(prompt)), float(np.ceil(output)))


@pytest.mark.parametrize(
    "seed", [*range(30), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(30, 300))]
)
def test_users_of_any_machine_are_served_as_many_as_there_are(seed: int) -> None:
    """From 1 to 1,024: Little's law, no first token before one's prompt, no fall of throughput."""
    of, asked = random_machine(np.random.default_rng(seed))
    users = np.arange(1, 1025.0)
    answer = of_users(replace(asked, batch=users), of, users)
    rate, ttft = np.asarray(of.replicas * answer.rate), np.asarray(answer.latency.ttft)
    assert rate * (ttft + answer.decoding) == pytest.approx(users)
    assert np.all(of.replicas * answer.at_once <= users * (1 + 1e-9))
    assert np.all(ttft >= ttft[0] * (1 - 1e-6))  # a user alone waits for the own prompt
    assert np.all(answer.latency.tpot >= answer.replica.plain * (1 - 1e-9))
    assert np.all(rate[1:] >= 0.9 * rate[:-1])


@pytest.mark.parametrize("seed", [0, 1, 2, 14])
def test_as_many_prompts_begin_as_halving_finds(seed: int) -> None:
    """Times jump where a prompt takes a chunk more, as the last machine's do at its answer."""
    of, asked = random_machine(np.random.default_rng(seed))
    users = np.geomspace(1.0, 1024.0, 16)
    loop = Loop(asked, of, users, users)

    def is_room(starts: Real) -> Booleans:
        response = loop.respond(starts)
        return np.less(response.rate * response.sojourn, users)

    least = np.where(of.chunked > 0, 0.0, loop.most_starts / users)
    starts = bisect(is_room, least, loop.most_starts, halvings=60)
    assert loop.balanced().rate == pytest.approx(loop.respond(starts).rate, rel=1e-10)
