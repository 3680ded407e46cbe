"""Sub-batches of L3: the paper's example, the MILP against brute force, bounds, time limits."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from support.subbatch import exhaustive
from support.systems import model

from nearkv.costmodel.model.queue import Load
from nearkv.costmodel.systems.l3 import gpu_side, pim_side
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.solvers.subbatch.planes import planes
from nearkv.solvers.subbatch.problem import (
    Chunks,
    Costs,
    SubbatchProblem,
    costs_of,
    gpu_seconds,
    least_decode,
    phases,
    pim_seconds,
)
from nearkv.solvers.subbatch.schedule import (
    Schedule,
    even_halves,
    evenest,
    greedy,
    one_batch,
    optimal,
)

HW = load_platform("dgx-a100-pim").machine()
LLM = model("gpt-175b", HW)
COSTS = costs_of(HW, LLM)
EXAMPLE = np.array([2048.0, 3072.0, 4096.0, 5120.0])
EVERYWHERE = np.full(4, -1)


def problem(
    contexts: np.ndarray, rankset_of: np.ndarray, prompts: list[float], costs: Costs = COSTS
) -> SubbatchProblem:
    return SubbatchProblem(contexts, rankset_of, 4, np.array(prompts), costs)


def drawn(seed: int, most: int, prompts: int = 0) -> SubbatchProblem:
    random = np.random.default_rng(seed)
    n = int(random.integers(2, most + 1))
    contexts = np.floor(random.lognormal(9.5, 1.0, n)) + 1
    rankset_of = random.integers(0, 4, n) if seed % 2 else np.full(n, -1)
    waiting = np.floor(random.lognormal(5.5, 1.0, prompts)) + 1
    return problem(contexts, rankset_of, waiting.tolist())


def test_planes_are_the_seconds_of_the_tree() -> None:
    random = np.random.default_rng(0)
    for n, hottest, prompt, squares in random.uniform(2, 1e5, (20, 4)):
        load = Load(n, hottest, hottest, prompt, squares)
        chunks = ((0, prompt),)
        tree = LLM.layers * gpu_side(HW, LLM, Load(n, 0.0, 0.0, prompt, prompt**2))
        assert gpu_seconds(COSTS, n, chunks) == pytest.approx(tree.seconds, rel=1e-9)
        pim = LLM.layers * pim_side(HW, LLM, load, 1.0)
        assert np.max(COSTS.pim @ [1.0, n, hottest, prompt]) >= pim.seconds * (1 - 1e-9)


def test_planes_refuse_what_is_not_affine() -> None:
    mixture = model("mixtral-8x7b", HW)
    with pytest.raises(InputError, match="not affine"):
        costs_of(HW, mixture)
    with pytest.raises(InputError, match="not affine"):
        planes(lambda n: gpu_side(HW, LLM, Load(n * n, 0.0, 0.0)), 1)


def test_example_of_section_5_3() -> None:
    in_one = even_halves(EXAMPLE)  # 2k and 5k against 3k and 4k
    assert sorted([sorted(EXAMPLE[in_one]), sorted(EXAMPLE[~in_one])]) == [
        [2048, 5120],
        [3072, 4096],
    ]
    halves = evenest(EXAMPLE)
    assert halves.larger == halves.bound == 7168
    assert EXAMPLE[halves.in_one].sum() == 7168


def test_the_rule_is_not_always_even() -> None:
    contexts = (
        np.array([3.0, 3.0, 2.0, 2.0, 2.0]) * 1000
    )  # longest first gives 7 and 5, the best is 6 and 6
    in_one = even_halves(contexts)
    assert max(contexts[in_one].sum(), contexts[~in_one].sum()) == 7000
    halves = evenest(contexts)
    assert (halves.larger, halves.bound) == (6000, 6000)


def test_a_small_batch_should_not_be_split() -> None:
    instance = problem(EXAMPLE, EVERYWHERE, [])
    rule, best = greedy(instance), optimal(instance)
    assert best.proof == "optimal"
    assert best.in_one.sum() in (0, 4)
    assert best.decode < 0.62 * rule.decode  # the weights are read once instead of twice


def test_greedy_fills_the_gpu_up_to_the_other_sub_batch() -> None:
    contexts = np.full(60, 9000.0)
    plan = greedy(problem(contexts, np.full(60, -1), [500.0, 4000.0, 900.0]))
    assert [len(chunks) for chunks in plan.chunks] == [1, 1]
    for s in (0, 1):
        sizes = [tokens for _, tokens in plan.chunks[s]]
        assert sizes[-1] % 16 == 0
        limit = pim_seconds(
            problem(contexts, np.full(60, -1), []), ~plan.in_one if s else plan.in_one, 0.0
        )
        longer = ((0, sum(sizes) + 32.0),)
        assert gpu_seconds(COSTS, 30.0, plan.chunks[s]) <= limit < gpu_seconds(COSTS, 30.0, longer)


@pytest.mark.parametrize("first", range(0, 100, 20))
@pytest.mark.slow
def test_milp_is_never_worse_than_greedy_or_trying_all(first: int) -> None:
    for seed in range(first, first + 20):
        instance = drawn(seed, 9)
        best, (_, least) = optimal(instance, 20.0), exhaustive(instance)
        assert best.proof == "optimal", seed
        assert best.decode == pytest.approx(least, rel=1e-5), seed
        assert best.decode <= greedy(instance).decode * (1 + 1e-12), seed
        assert best.bound <= least * (1 + 1e-9), seed
        assert 0 < least_decode(instance) <= least * (1 + 1e-12), seed


@pytest.mark.parametrize("first", range(0, 100, 25))
@pytest.mark.slow
def test_prompts_leave_the_proof_of_decoding_alone(first: int) -> None:
    for seed in range(first, first + 25):
        instance = drawn(seed, 6, prompts=2)
        best, (_, least) = optimal(instance, 20.0), exhaustive(instance)
        assert best.decode == pytest.approx(least, rel=1e-5), seed
        assert best.gap < 1e-5, seed
        assert (
            best.decode * (1 - 1e-12) <= best.split_decode == sum(phases(instance, best.in_one))
        ), seed
        assert best.seconds <= best.decode * 1.02 * (1 + 3e-6), seed


def test_milp_equals_trying_all_of_twelve_requests() -> None:
    for seed in (1, 2):
        random = np.random.default_rng(seed)
        instance = problem(np.floor(random.uniform(1e3, 6e4, 12)), random.integers(0, 4, 12), [])
        assert optimal(instance, 20.0).decode == pytest.approx(exhaustive(instance)[1], rel=1e-5)


def carried(*chunks: tuple[int, float]) -> Chunks:
    return tuple(chunk for chunk in chunks if chunk[1])


def most_prompt_tokens(instance: SubbatchProblem, limit: float) -> float:
    """Every split, and every chunk of one prompt in each sub-batch or none: at most two prompts."""
    lengths = instance.prompts.tolist()
    sizes = [[0.0, *np.arange(16.0, length, 16.0).tolist(), length] for length in lengths]
    best, n = 0.0, len(instance.contexts)
    for code in range(2**n):
        split: np.ndarray = (code >> np.arange(n)) % 2 == 1
        for a, b in product(*sizes):
            if a + b <= best:
                continue
            one, other = carried((0, a)), carried((1, b))
            plans = [(one, other), (other, one)]
            if a in (0.0, lengths[0]) or b in (0.0, lengths[1]):
                plans += [(one + other, ()), ((), one + other)]
            if any(sum(phases(instance, split, plan)) <= limit for plan in plans):
                best = a + b
    return best


def test_most_prompt_tokens_equal_trying_all() -> None:
    for seed in (0, 3):
        random = np.random.default_rng(seed)
        contexts = np.floor(random.uniform(5e4, 1.4e5, 4))
        instance = problem(contexts, np.full(4, -1), [150.0, 90.0])
        best = optimal(instance, 30.0)
        assert best.proof == "optimal"
        assert best.seconds <= best.decode * 1.02 * (1 + 3e-6)
        assert best.prompt_tokens == pytest.approx(
            most_prompt_tokens(instance, best.decode * 1.02 * (1 + 2e-6))
        )


def test_chunks_obey_the_rules_and_beat_the_greedy() -> None:
    for seed in range(6):
        instance = drawn(seed, 30, prompts=4)
        rule, best = greedy(instance), optimal(instance, 5.0)
        assert best.prompt_tokens <= best.most_tokens
        if rule.decode <= best.decode * (1 + 1e-9) and rule.seconds <= best.decode * 1.02:
            assert best.prompt_tokens >= rule.prompt_tokens
        used = [j for chunks in best.chunks for j, _ in chunks]
        assert len(used) == len(set(used))
        for chunks in best.chunks:
            parts = [tokens for j, tokens in chunks if tokens != instance.prompts[j]]
            assert len(parts) <= 1
            assert all(
                tokens % 16 == 0 and tokens <= instance.prompts[j]
                for j, tokens in chunks
                if tokens in parts
            )


@pytest.mark.slow
def test_a_time_limit_is_said_and_the_bound_stays_below() -> None:
    instance = drawn(7, 40, prompts=10)
    hurried, patient = optimal(instance, 1e-6), optimal(instance, 2.0)
    assert hurried.proof == "time limit"
    assert 0 < hurried.bound <= patient.decode <= hurried.decode * (1 + 1e-9)
    assert hurried.decode <= min(greedy(instance).decode, one_batch(instance).decode)
    assert isinstance(hurried, Schedule)
    hurried_halves = evenest(instance.contexts, 1e-6)
    patient_halves = evenest(instance.contexts, 2.0)
    assert hurried_halves.bound <= patient_halves.larger <= hurried_halves.larger


def test_bad_problems_are_refused() -> None:
    with pytest.raises(InputError, match="no requests"):
        problem(np.zeros(0), np.zeros(0), [])
    with pytest.raises(InputError, match="less than one token"):
        problem(np.array([-4.0]), np.full(1, -1), [])
