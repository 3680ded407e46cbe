"""Sub-batches of L3: the paper's example, the MILP against brute force, bounds, time limits."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from support.subbatch import exhaustive
from support.systems import model

import nearkv
from nearkv.costmodel.model.workload import Load
from nearkv.costmodel.systems.l3 import gpu_side, pim_side
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.solvers.subbatch.problem import (
    ChunkPlan,
    Costs,
    SubbatchProblem,
    costs_of,
    gpu_seconds,
    phases,
    pim_seconds,
    planes,
)
from nearkv.solvers.subbatch.schedule import (
    Schedule,
    even_halves,
    evenest,
    greedy,
    one_batch,
    optimal,
)
from nearkv.sweeps.explore import subbatch

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
    assert EXAMPLE[evenest(EXAMPLE)].sum() == 7168


def test_the_rule_is_not_always_even() -> None:
    contexts = (
        np.array([3.0, 3.0, 2.0, 2.0, 2.0]) * 1000
    )  # longest first gives 7 and 5, the best is 6 and 6
    in_one = even_halves(contexts)
    assert max(contexts[in_one].sum(), contexts[~in_one].sum()) == 7000
    assert contexts[evenest(contexts)].sum() == 6000


@pytest.mark.parametrize("seed", range(20))
def test_the_evenest_halves_are_those_of_trying_all(seed: int) -> None:
    random = np.random.default_rng(seed)
    contexts = np.floor(random.lognormal(3, 2, int(random.integers(1, 12)))) + 1
    codes = np.arange(2 ** len(contexts))[:, np.newaxis]
    halves = (codes >> np.arange(len(contexts))) % 2 @ contexts
    larger = np.maximum(halves, contexts.sum() - halves)
    split = evenest(contexts)
    assert max(contexts[split].sum(), contexts[~split].sum()) == larger.min()


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


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(20, 100, 20))]
)
@pytest.mark.slow
def test_milp_is_never_worse_than_greedy_or_trying_all(first: int) -> None:
    for seed in range(first, first + 20):
        instance = drawn(seed, 9)
        best, (_, least) = optimal(instance, 20.0), exhaustive(instance)
        assert best.proof == "optimal", seed
        assert best.decode == pytest.approx(least, rel=1e-5), seed
        assert best.decode <= greedy(instance).decode * (1 + 1e-12), seed
        assert best.bound <= least * (1 + 1e-9), seed


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(25, 100, 25))]
)
@pytest.mark.slow
def test_prompts_leave_the_proof_of_decoding_alone(first: int) -> None:
    for seed in range(first, first + 25):
        instance = drawn(seed, 6, prompts=2)
        best, (_, least) = optimal(instance, 20.0), exhaustive(instance)
        assert best.decode == pytest.approx(least, rel=1e-5), seed
        assert best.bound == pytest.approx(best.decode, rel=1e-5), seed
        assert (
            best.decode * (1 - 1e-12) <= best.split_decode == sum(phases(instance, best.in_one))
        ), seed
        assert best.seconds <= best.decode * 1.02 * (1 + 3e-6), seed


def test_milp_equals_trying_all_of_twelve_requests() -> None:
    for seed in (1, 2):
        random = np.random.default_rng(seed)
        instance = problem(np.floor(random.uniform(1e3, 6e4, 12)), random.integers(0, 4, 12), [])
        assert optimal(instance, 20.0).decode == pytest.approx(exhaustive(instance)[1], rel=1e-5)


def carried(*chunks: tuple[int, float]) -> ChunkPlan:
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
    hurried, patient = optimal(instance, 1e-6), optimal(instance, 0.5)
    assert hurried.proof == "time limit"
    assert 0 <= hurried.bound <= patient.decode <= hurried.decode * (1 + 1e-9)
    assert hurried.decode <= min(greedy(instance).decode, one_batch(instance).decode)
    assert isinstance(hurried, Schedule)


def test_bad_problems_are_refused() -> None:
    with pytest.raises(InputError, match="no requests"):
        problem(np.zeros(0), np.zeros(0), [])
    with pytest.raises(InputError, match="less than one token"):
        problem(np.array([-4.0]), np.full(1, -1), [])
    shortest = problem(np.array([1.0]), np.full(1, -1), [1.0])
    assert len(shortest.contexts) == 1


# --- costs that are written down: two requests of 100 tokens -------------------------------------
# The GPU reads its weights in 1 s for any sub-batch; attention takes 0.02 s a token. Apart, each
# phase attends for 2 s beside 1 s of GPU: 4 s. Together, the GPU's 1 s is followed by 4 s: 5 s.

# constant, a sequence, a prompt token, its square on the GPU; a sequence, a token held, a prompt
# token beside attention
SIMPLE = Costs(np.array([[1.0, 0.0, 0.0, 0.0]]), np.array([[0.0, 0.0, 0.02, 0.0]]))


def pair(costs: Costs, *prompts: float) -> SubbatchProblem:
    spread_over_all = np.full(2, -1)
    return SubbatchProblem(np.full(2, 100.0), spread_over_all, 1, np.array(prompts), costs)


def on_gpu(token: float, square: float) -> Costs:
    return replace(SIMPLE, gpu=np.array([[1.0, 0.0, token, square]]))


def test_apart_is_faster_than_together() -> None:
    instance = pair(SIMPLE)
    assert phases(instance, np.array([False, True])) == pytest.approx((2, 2))
    assert phases(instance, np.array([False, False])) == pytest.approx((1, 4))
    assert one_batch(instance).decode == pytest.approx(5)
    assert exhaustive(instance)[1] == pytest.approx(4)
    best = optimal(instance)
    assert best.decode == best.seconds == pytest.approx(4)
    assert best.in_one.sum() == 1
    assert best.proof == "optimal"
    # attending to 200 tokens takes 4 s in any sub-batch
    assert best.bound == pytest.approx(4)


def test_without_time_nothing_is_proven() -> None:
    assert optimal(pair(SIMPLE), 0.0).proof == "time limit"


@pytest.mark.parametrize(
    ("token", "square", "tokens"),
    [
        # beside 2 s of attention the GPU has 1 s: 212 tokens, so 208; 0.08 s are 17 more
        (0.0047, 0.0, 208 + 224),
        # 218 tokens by the square; each of 224 ends 0.03 s late, and 0.08 s are allowed
        (0.0037, 4e-6, 224 + 224),
    ],
)
def test_prompts_add_a_fiftieth_of_the_time_at_most(
    token: float, square: float, tokens: float
) -> None:
    best = optimal(pair(on_gpu(token, square), 300.0, 300.0), 20.0)
    assert best.prompt_tokens == tokens
    assert best.most_tokens == tokens
    assert best.proof == "optimal"
    assert best.decode == pytest.approx(4)
    assert best.seconds <= 4.08 * (1 + 1e-5)


def test_squares_of_long_parts_are_counted_in_full() -> None:
    """Beside 2 s of attention the GPU has 1 s, which 1000 tokens squared take.

    Of the 0.08 s allowed, 1008 tokens take 0.016 and 1024 take 0.049, so that 1024 fit once; 1040
    take 0.082. Lines below the squares, with which the search begins, would let more ride.
    """
    best = optimal(pair(on_gpu(0.0, 1e-6), 1600.0, 1600.0), 20.0)
    assert sorted(tokens for chunks in best.chunks for _, tokens in chunks) == [1008, 1024]
    assert best.most_tokens == 2032
    assert best.proof == "optimal"
    assert best.seconds == pytest.approx(4 + (1024**2 + 1008**2 - 2 * 1000**2) * 1e-6)


def test_one_prompt_rides_in_one_sub_batch() -> None:
    """Of 300 tokens 212 and 17 fit; parts are multiples of 16."""
    best = optimal(pair(on_gpu(0.0047, 0.0), 300.0), 20.0)
    assert sorted(len(chunks) for chunks in best.chunks) == [0, 1]
    assert best.prompt_tokens == best.most_tokens == 224
    assert best.proof == "optimal"


def test_the_rule_fills_the_gpu_up_to_attention_without_prompts() -> None:
    """Sec. 5.3: 1 s beside 2 s is left for 212 tokens of each, whatever moving them takes."""
    costs = replace(on_gpu(0.0047, 0.0), pim=np.array([[0.0, 0.0, 0.02, 0.1]]))
    plan = greedy(pair(costs, 300.0, 300.0))
    assert [list(chunks) for chunks in plan.chunks] == [[(1, 208.0)], [(0, 208.0)]]
    # the one that is cut is the last: 100 + 80 leave room for two steps of 16
    several = greedy(pair(costs, 100.0, 80.0, 300.0))
    assert several.chunks == ((), ((0, 100.0), (1, 80.0), (2, 32.0)))


def test_a_part_between_two_chords_is_proven() -> None:
    """Squares of 16 k, k from 15 on, lie up to 5 % above the chord through 15 and 16. It lets 336
    tokens in, whose square is 1.13 s; 320 tokens take 1.03 s of the 1.08 s that are left."""
    best = optimal(pair(on_gpu(0.0, 1.0045e-5), 1000.0), 20.0)
    assert best.prompt_tokens == best.most_tokens == 320
    assert best.proof == "optimal"


@pytest.mark.parametrize(
    ("seconds", "token", "chunks"),
    [
        # decoding alone takes longer than attention: none joins
        (3.0, 0.001, ((), ())),
        # one step fits, and one that is a little longer does not
        (1.0, 1 / 16, (((1, 16.0),), ((0, 16.0),))),
        (1.0, 1 / 15, ((), ())),
        # both whole, in order, where there is time for 20 + 30 tokens
        (1.0, 1 / 50, ((), ((0, 20.0), (1, 30.0)))),
    ],
)
def test_the_rule_adds_what_the_gpu_has_time_for(
    seconds: float, token: float, chunks: tuple[ChunkPlan, ChunkPlan]
) -> None:
    costs = replace(SIMPLE, gpu=np.array([[seconds, 0.0, token, 0.0]]))
    assert greedy(pair(costs, 20.0, 30.0)).chunks == chunks


def test_prompts_leave_for_the_banks_though_none_attends() -> None:
    """30 tokens of a prompt at 0.1 s each, beside a GPU that takes 1 s."""
    costs = replace(SIMPLE, pim=np.array([[0.25, 0.0, 0.02, 0.1]]))
    instance, together = pair(costs, 30.0), np.array([False, False])
    assert phases(instance, together, (((0, 30.0),), ())) == pytest.approx((0.25 + 3, 0.25 + 4))
    assert phases(instance, together, ((), ((0, 30.0),))) == pytest.approx((1, 0.25 + 4 + 3))
    # without prompts the banks have nothing to do while no request attends
    assert phases(instance, together) == pytest.approx((1, 0.25 + 4))


@pytest.mark.parametrize(
    ("model", "requests", "prompts", "slack", "most"),
    [
        ("opt-6.7b", "1430", "1431", 0.02, 144),
        ("opt-6.7b", "1430", "1431,28", 0.02, 144),
        ("gpt-175b", "64,64", "2,1728", 0.5, 208),
        ("gpt-175b", "1,2,4,2", "146,157,15", 0.5, 205),
    ],
)
def test_the_most_prompt_tokens_are_those_of_all_plans(
    model: str,
    requests: str,
    prompts: str,
    slack: float,
    most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counted by trying all plans; a solver proved less where its numbers span too wide a range.

    The plans were counted of decoder layers alone, at these rates.
    """
    monkeypatch.setattr(subbatch, "SLACK", slack)
    counted = {"precision.output_head": 0, "gpu.hbm": 0.85, "gpu.launch": "20us"}
    rows = nearkv.solve("subbatch", model, requests=requests, prompts=prompts, sets=counted)
    best = rows.query("load == 'modelled' and method == 'optimal'")
    assert best["proof"].item() == "optimal"
    assert best["prompt_tok"].item() == best["most_prompt_tok"].item() == most
