"""The search for FlexGen's block: against every block, against its bounds, by three solvers."""

from __future__ import annotations

import numpy as np
import pulp
import pytest
from support.linear_programs import reference
from support.systems import model as catalogued

from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError, NearkvWarning
from nearkv.hardware.machine import Machine
from nearkv.solvers.placement.blocks import BlockBox, BlockProblem, single_block
from nearkv.solvers.placement.linear import Simplex
from nearkv.solvers.placement.placement import full, place
from nearkv.sweeps.explore.placement import find_placements
from nearkv.sweeps.study.study import Study

T4 = load_platform("t4-flexgen").machine()
WORK = Workload(1.0, 512.0, 32.0)
GIB = 2.0**30
RATES = (
    "host_to_gpu",
    "gpu_to_host_cache",
    "disk_to_host",
    "matmul_decode",
    "attention_decode",
    "cpu_attention",
)


def model(name: str, hw: Machine = T4) -> LLM:
    return catalogued(name, hw)


def everything(problem: BlockProblem, space: BlockBox) -> tuple[float, BlockBox]:
    solve, best, where = Simplex(), np.inf, space
    for gbs in range(space.gbs_low, space.gbs_high + 1):
        for nb in range(space.nb_low, min(space.nb_high, problem.most // gbs) + 1):
            answer = solve(problem.program(single_block(gbs, nb)))
            if answer is None:
                break  # memory grows with the block
            if answer.value < best:
                best, where = answer.value, single_block(gbs, nb)
    return best, where


def test_the_full_search_beats_the_walk_by_more_than_it_must() -> None:
    llm = model("opt-30b")
    walk, best = place(T4, llm, WORK, search="paper"), place(T4, llm, WORK)
    assert best.throughput_tok_s >= 1.006 * walk.throughput_tok_s
    assert best.status == "optimal"
    assert 0 <= best.gap <= 1e-8


@pytest.mark.deep
def test_the_full_search_is_the_best_of_every_block_of_opt_30b() -> None:
    problem = BlockProblem(T4, model("opt-30b"), WORK, {})
    best, where = everything(problem, BlockBox(1, problem.most, 1, problem.most))
    answer = place(T4, model("opt-30b"), WORK)
    assert answer.throughput_tok_s == pytest.approx(32 / best, rel=1e-8)
    assert (answer.gpu_batch, answer.num_batches) == (where.gbs_low, where.nb_low)


@pytest.mark.parametrize(
    "seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(5, 12))]
)
@pytest.mark.slow
def test_the_full_search_is_the_best_of_every_block_on_random_machines(seed: int) -> None:
    rng = np.random.default_rng(seed)
    name = rng.choice(["opt-6.7b", "opt-13b", "llama2-70b", "qwen2.5-32b"])
    changes = {f"offload.{key}": T4.offload.values[key] * 10 ** rng.uniform(-1, 1) for key in RATES}
    changes |= {
        "gpu.memory": rng.uniform(10, 40) * GIB,
        "disk.capacity": rng.uniform(100, 300) * GIB,
    }
    hw = T4.with_values(changes)
    work = Workload(1.0, float(rng.integers(1000, 4000)), float(rng.integers(1, 200)))
    problem = BlockProblem(hw, model(str(name)), work, {})
    space = BlockBox(1, problem.most, 1, problem.most)
    best, _ = everything(problem, space)
    answer = full(problem, Simplex(), space)
    if answer is None:
        assert best == np.inf
    else:
        assert answer.value == pytest.approx(best, rel=1e-8)
        assert answer.bound <= best * (1 + 1e-12)
        assert answer.bound == pytest.approx(best, rel=1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_no_block_of_a_box_undercuts_its_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem, solve = BlockProblem(T4, model("opt-30b"), WORK, {}), Simplex()
    gbs, nb = sorted(rng.integers(1, 70, 2).tolist()), sorted(rng.integers(1, 30, 2).tolist())
    bound = solve(problem.program(BlockBox(gbs[0], gbs[1], nb[0], nb[1])))
    for _ in range(10):
        block = single_block(
            int(rng.integers(gbs[0], gbs[1] + 1)), int(rng.integers(nb[0], nb[1] + 1))
        )
        inside = solve(problem.program(block))
        assert inside is None or (bound is not None and bound.bound <= inside.value * (1 + 1e-9))


@pytest.mark.filterwarnings("ignore:PULP_CBC_CMD is deprecated")
def test_three_solvers_agree() -> None:
    problem = BlockProblem(T4, model("llama2-70b"), WORK, {})
    solve = Simplex()
    for block in (single_block(1, 1), single_block(16, 8), single_block(3, 40)):
        program = problem.program(block)
        answer, written, cbc = (
            solve(program),
            reference(program),
            reference(program, pulp.PULP_CBC_CMD(msg=False)),
        )
        assert answer is not None
        assert written is not None
        assert cbc is not None
        assert answer.value == pytest.approx(written.value, rel=1e-9)
        assert answer.value == pytest.approx(cbc.value, rel=1e-6)
        assert answer.bound == pytest.approx(answer.value, rel=1e-9)


def test_any_prices_prove_a_bound() -> None:
    program = BlockProblem(T4, model("opt-30b"), WORK, {}).program(single_block(8, 4))
    answer = reference(program)
    assert answer is not None
    rng = np.random.default_rng(0)
    for _ in range(100):
        prices = answer.prices + rng.normal(0, 0.1, len(answer.prices))
        assert program.bound(prices) <= answer.value * (1 + 1e-9)


@pytest.mark.slow
def test_the_walk_ends_where_tens_of_millions_of_sequences_fit() -> None:
    # prompts of two tokens: 55 million sequences fit, and FlexGen's steps of one would not end
    answer = place(T4, model("llama2-13b"), Workload(1.0, 2.0, 1.0), search="paper")
    best = place(T4, model("llama2-13b"), Workload(1.0, 2.0, 1.0))
    assert answer.status == "walked"
    assert answer.programs < 20_000
    assert answer.throughput_tok_s <= best.bound_tok_s * (1 + 1e-9)
    assert answer.gpu_batch * answer.num_batches > 1_000


def test_bisection_ends_where_steps_of_one_do(monkeypatch: pytest.MonkeyPatch) -> None:
    # the reference walk of OPT-30B stops at 5 batches of 32; so does one that bisects from 2 on
    monkeypatch.setattr("nearkv.solvers.placement.placement.WALK_STEPS", 1)
    answer = place(T4, model("opt-30b"), WORK, search="paper")
    assert (answer.gpu_batch, answer.num_batches) == (32, 5)


def test_what_a_placement_does_not_depend_on_is_not_taken_in_silence() -> None:
    study = Study("hilos", "opt-6.7b", 1, 512, 32, platforms="t4-flexgen")
    with pytest.warns(NearkvWarning, match=r"--set gpu\.bandwidth .* no placement reads it"):
        find_placements(study.but(sets={"gpu.bandwidth": "1TB/s", "host.memory": "100GB"}))
    with pytest.warns(NearkvWarning, match="--part gpu=l4: .* its rates are those of the role"):
        (row,) = find_placements(study.but(parts={"gpu": "l4"}), gpu_batch=4, num_batches=1)
    assert "offload" in row["note"]
    with pytest.raises(InputError, match="--search paper: --gpu-batch and --num-batches state"):
        find_placements(study, search="paper", gpu_batch=4, num_batches=1)
