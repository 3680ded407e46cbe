"""FlexGen's placement: its published rows, its LP against the printed table, the search against every block."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pulp
import pytest
from conftest import model as catalogued

from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.placement import (
    COLUMNS,
    DECODE,
    MEMORY,
    PREFILL,
    SHARES,
    BlockSchedule,
    cpu_attention_rate,
)
from nearkv.costmodel.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.solvers.placement.blocks import BlockProblem, Box, one
from nearkv.solvers.placement.linear import Program, Simplex, reference
from nearkv.solvers.placement.placement import place
from nearkv.solvers.placement.walks import full

T4 = load_platform("t4-flexgen").machine()
WORK = Workload(1.0, 512.0, 32.0)
GIB = 2.0**30


def model(name: str, hw: Machine = T4) -> LLM:
    return catalogued(name, hw)


# Reference rows: FlexLLMGen's experimental/cost_model.py, 16 / 200 / 1500 GB, prompt 512, output 32.


def test_the_walk_of_opt_30b_is_flexgens() -> None:
    found = place(T4, model("opt-30b"), WORK, search="paper")
    assert (found.gpu_batch, found.num_batches, found.programs) == (32, 5, 543)
    assert found.throughput_tok_s == pytest.approx(7.094728, rel=1e-6)
    shares = [found.shares[name] for name in ("wg", "wc", "cg", "cc", "hg", "hc")]
    assert shares == pytest.approx([0.12428276, 0.77809922, 0, 1, 0, 1], rel=1e-6, abs=1e-9)


def test_the_walk_of_opt_6_7b_is_flexgens() -> None:
    found = place(T4, model("opt-6.7b"), WORK, search="paper")
    assert (found.gpu_batch, found.num_batches, found.programs) == (1, 2, 262)
    assert found.throughput_tok_s == pytest.approx(60.848064, rel=1e-6)
    shares = [found.shares[name] for name in ("wg", "wc", "cg", "cc", "hg", "hc")]
    assert shares == pytest.approx([1, 0, 1, 0, 1, 0], abs=1e-9)


def test_a_given_policy_is_evaluated_as_flexgen_does() -> None:
    fixed = {"wg": 0.2, "wc": 0.8, "cg": 0.0, "cc": 1.0, "hg": 0.0, "hc": 1.0}
    relaxed = T4.with_values({"offload.memory_share": 1.2})
    found = place(relaxed, model("opt-30b"), WORK, gpu_batch=48, num_batches=3, fixed=fixed)
    assert found.throughput_tok_s == pytest.approx(7.135733, rel=1e-6)
    assert found.shares == pytest.approx({**fixed, "wd": 0, "cd": 0, "hd": 0}, abs=1e-9)


def printed(s: float, n: float, gbs: float, bls: float, x: dict[str, float]) -> dict[str, float]:
    """The printed table for OPT-30B, number by number, in bytes and seconds of one layer."""
    l, h1, h2, nh, gb, tera = 48, 7168, 28672, 56, GIB, 1e12  # noqa: E741
    wi = 8 * h1**2 + 4 * h1 * h2
    away, u = x["hc"] + x["hd"], max(0.0, math.log2(64 / gbs))
    cpu = 0.0123 * tera * max(0.1, 1 - 0.0328 * u)
    ctog_p = (wi * (x["wc"] + x["wd"]) + 2 * s * h1 * bls * away) / (12.89 * gb)
    gtoc_p = 4 * (s + 1) * h1 * bls * (x["cc"] + x["cd"]) / (
        0.97 * gb
    ) + 2 * s * h1 * bls * away / (4.82 * gb)
    dtoc_p = (wi * x["wd"] + 2 * s * h1 * bls * x["hd"]) / (0.473 * gb)
    ctod_p = 4 * bls * (s + 1) * h1 * x["cd"] / (0.746 * gb) + 2 * s * h1 * bls * x["hd"] / (
        2.015 * gb
    )
    ctog_g = (wi * (x["wc"] + x["wd"]) + 2 * h1 * bls * away) / (12.89 * gb)
    dtoc_g = (4 * bls * (s + n / 2) * h1 * x["cd"] + 2 * h1 * bls * x["hd"]) / (0.473 * gb)
    decode = {
        "gtoc_g": 2 * h1 * bls * away / (4.82 * gb),
        "dtoc_g": dtoc_g + wi * x["wd"] / (0.95 * 0.473 * gb),
        "ctod_g": (4 * bls * h1 * x["cd"] + 2 * h1 * bls * x["hd"]) / (2.015 * gb),
        "comp_g": bls * (8 * h1**2 + 4 * h1 * h2) / (4.3 * tera)
        + 4 * bls * (s + n / 2) * h1 * x["cg"] / (0.079 * tera)
        + 4 * bls * (s + n / 2) * h1 * (x["cc"] + x["cd"]) / cpu,
    }
    gpu = wi * l * x["wg"] + 4 * (s + n) * h1 * bls * l * x["cg"] + 2 * wi * (1 - x["wg"])
    attention = 2 * h1 + 2 * (s + n) * h1 + 2 * nh * (s + n) + 2 * (s + n) * h1 + 2 * h1
    cpu_g = (
        wi * l * x["wc"]
        + 2 * h1 * bls * x["hc"]
        + 4 * (s + n) * h1 * bls * l * x["cc"]
        + wi * x["wd"]
    )
    return {
        "ctog_p + dtoc_p": ctog_p + dtoc_p,
        "gtoc_p + ctod_p": gtoc_p + ctod_p,
        "comp_p": bls * (8 * s * h1**2 + 4 * s * h1 * h2) / (21.24 * tera) + 4 * bls * s**2 * h1 / (9.97 * tera),
        **{f"ctog_g + {name}": ctog_g + value for name, value in decode.items()},
        "gpu_prefill": gpu + 2 * s * h1 * bls * x["hg"] + 2 * s * h1 * gbs * (1 - x["hg"])
        + gbs * (8 * s * h1 + 2 * s * h1 + 2 * nh * s**2 + 2 * s * h1 + 4 * s * h1 + 2 * s * h2 + 2 * s * h1),
        "gpu_decode": gpu + 2 * h1 * bls * x["hg"] + 2 * h1 * gbs * (1 - x["hg"]) + 4 * gbs * (s + n) * h1 * x["cg"]
        + gbs * (8 * h1 + attention * x["cg"] + 4 * h1 + 2 * h2 + 2 * h1),
        "cpu_prefill": wi * l * x["wc"] + 2 * s * h1 * bls * x["hc"] + 4 * s * h1 * bls * l * x["cc"]
        + wi * (1 - x["wg"]) + 2 * s * h1 * gbs * (1 - x["hg"]),
        "cpu_decode": cpu_g + 4 * h1 * gbs * x["hd"] + 8 * (s + n) * h1 * gbs * x["cd"]
        + 2 * nh * (s + n) * gbs + 2 * h1 * gbs,
        "disk": wi * l * x["wd"] + 2 * s * h1 * bls * x["hd"] + 4 * (s + n) * h1 * bls * l * x["cd"],
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_the_printed_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet((1, 1, 1), 3).ravel()
    gbs, nb, s, n = (float(v) for v in rng.integers(1, 90, 4))
    rate = cpu_attention_rate(T4, model("opt-30b"), gbs)
    block = BlockSchedule(T4, model("opt-30b"), Workload(1.0, s, n), gbs * nb, gbs, rate)
    at = np.concatenate([shares, [gbs * nb, gbs]])
    values = np.concatenate([block.prefill(), block.decode(), block.memory()]) @ at
    wanted = printed(s, n, gbs, gbs * nb, dict(zip(SHARES, shares.tolist(), strict=True)))
    assert dict(zip((*PREFILL, *DECODE, *MEMORY), values.tolist(), strict=True)) == pytest.approx(
        wanted, rel=1e-12
    )


def test_rows_broadcast_over_blocks() -> None:
    gbs, nb = np.array([1.0, 8.0, 48.0])[:, None], np.array([1.0, 2.0, 3.0, 4.0])
    rate = np.asarray(cpu_attention_rate(T4, model("opt-30b"), gbs))
    many = BlockSchedule(T4, model("opt-30b"), WORK, gbs * nb, gbs, rate)
    alone = BlockSchedule(T4, model("opt-30b"), WORK, 48.0 * 3, 48.0, rate[2, 0])
    assert many.memory().shape == (3, 4, len(MEMORY), len(COLUMNS))
    assert np.array_equal(many.memory()[2, 2], alone.memory())
    assert np.array_equal(many.decode()[2, 2], alone.decode())


def test_no_entry_is_negative() -> None:
    for name in ("opt-30b", "llama2-70b", "mixtral-8x7b"):
        block = BlockSchedule(T4, model(name), WORK, 8.0, 2.0, 1e9)
        assert all(np.all(rows >= 0) for rows in (block.prefill(), block.decode(), block.memory()))


def test_four_bit_weights_are_a_quarter_and_gqa_shrinks_the_cache() -> None:
    four = T4.with_values({"precision.weight": 0.5})
    wide, narrow = model("opt-30b"), model("opt-30b", four)
    of = [BlockSchedule(T4, llm, WORK, 8.0, 2.0, 1e9) for llm in (wide, narrow)]
    assert of[1].weights == of[0].weights / 4
    assert np.array_equal(of[1].decode()[:, 3:], of[0].decode()[:, 3:])
    shared = BlockSchedule(T4, replace(wide, kv_heads=7.0), WORK, 8.0, 2.0, 1e9)
    disk, cache = MEMORY.index("disk"), COLUMNS.index("cd")
    assert shared.memory()[disk, cache] == of[0].memory()[disk, cache] / 8
    assert place(four, narrow, WORK).throughput_tok_s > place(T4, wide, WORK).throughput_tok_s


# The search.


def everything(problem: BlockProblem, space: Box) -> tuple[float, Box]:
    solve, best, where = Simplex(), np.inf, space
    for gbs in range(space.gbs_low, space.gbs_high + 1):
        for nb in range(space.nb_low, min(space.nb_high, problem.most // gbs) + 1):
            found = solve(problem.program(one(gbs, nb)))
            if found is None:
                break  # memory grows with the block
            if found.value < best:
                best, where = found.value, one(gbs, nb)
    return best, where


def test_the_full_search_beats_the_walk_by_more_than_it_must() -> None:
    llm = model("opt-30b")
    walk, best = place(T4, llm, WORK, search="paper"), place(T4, llm, WORK)
    assert best.throughput_tok_s >= 1.006 * walk.throughput_tok_s
    assert best.status == "optimal"
    assert 0 <= best.gap <= 1e-8


def test_the_full_search_is_the_best_of_every_block_of_opt_30b() -> None:
    problem = BlockProblem(T4, model("opt-30b"), WORK, {})
    best, where = everything(problem, Box(1, problem.most, 1, problem.most))
    found = place(T4, model("opt-30b"), WORK)
    assert found.throughput_tok_s == pytest.approx(32 / best, rel=1e-8)
    assert (found.gpu_batch, found.num_batches) == (where.gbs_low, where.nb_low)


@pytest.mark.parametrize("seed", range(12))
def test_the_full_search_is_the_best_of_every_block_on_random_machines(seed: int) -> None:
    rng = np.random.default_rng(seed)
    name = rng.choice(["opt-6.7b", "opt-13b", "llama2-70b", "qwen2.5-32b"])
    changes = {f"offload.{key}": T4.offload.values[key] * 10 ** rng.uniform(-1, 1) for key in (
        "host_to_gpu", "gpu_to_host_cache", "disk_to_host", "matmul_decode", "attention_decode", "cpu_attention",
    )}  # fmt: skip
    changes |= {
        "gpu.memory": rng.uniform(10, 40) * GIB,
        "disk.capacity": rng.uniform(100, 300) * GIB,
    }
    hw = T4.with_values(changes)
    work = Workload(1.0, float(rng.integers(1000, 4000)), float(rng.integers(1, 200)))
    problem = BlockProblem(hw, model(str(name)), work, {})
    space = Box(1, problem.most, 1, problem.most)
    best, _ = everything(problem, space)
    found = full(problem, Simplex(), space)
    if found is None:
        assert best == np.inf
    else:
        assert found.value == pytest.approx(best, rel=1e-8)
        assert found.bound <= best * (1 + 1e-12)
        assert found.bound == pytest.approx(best, rel=1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_no_block_of_a_box_undercuts_its_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem, solve = BlockProblem(T4, model("opt-30b"), WORK, {}), Simplex()
    gbs, nb = sorted(rng.integers(1, 70, 2).tolist()), sorted(rng.integers(1, 30, 2).tolist())
    bound = solve(problem.program(Box(gbs[0], gbs[1], nb[0], nb[1])))
    for _ in range(10):
        block = one(int(rng.integers(gbs[0], gbs[1] + 1)), int(rng.integers(nb[0], nb[1] + 1)))
        inside = solve(problem.program(block))
        assert inside is None or (bound is not None and bound.bound <= inside.value * (1 + 1e-9))


@pytest.mark.filterwarnings("ignore:PULP_CBC_CMD is deprecated")
def test_three_solvers_agree() -> None:
    problem = BlockProblem(T4, model("llama2-70b"), WORK, {})
    solve = Simplex()
    for block in (one(1, 1), one(16, 8), one(3, 40)):
        program = problem.program(block)
        found, written, cbc = (
            solve(program),
            reference(program),
            reference(program, pulp.PULP_CBC_CMD(msg=False)),
        )
        assert found is not None
        assert written is not None
        assert cbc is not None
        assert found.value == pytest.approx(written.value, rel=1e-9)
        assert found.value == pytest.approx(cbc.value, rel=1e-6)
        assert found.bound == pytest.approx(found.value, rel=1e-9)


def test_any_prices_prove_a_bound() -> None:
    program = BlockProblem(T4, model("opt-30b"), WORK, {}).program(one(8, 4))
    found = reference(program)
    assert found is not None
    rng = np.random.default_rng(0)
    for _ in range(100):
        prices = found.prices + rng.normal(0, 0.1, len(found.prices))
        assert program.bound(prices) <= found.value * (1 + 1e-9)


# What an answer says.


def test_shadow_prices_are_what_one_gb_more_brings() -> None:
    llm, hw = model("opt-30b"), T4.with_values({"host.memory": 120 * GIB})
    found = place(hw, llm, WORK, gpu_batch=24, num_batches=8)
    for tier, address in (
        ("gpu", "gpu.memory"),
        ("host", "host.memory"),
        ("disk", "disk.capacity"),
    ):
        more = hw.with_values(
            {address: hw[tier].values["capacity" if tier == "disk" else "memory"] + 1e8}
        )
        gain = 10 * (
            place(more, llm, WORK, gpu_batch=24, num_batches=8).throughput_tok_s
            - found.throughput_tok_s
        )
        assert found.worth[tier] == pytest.approx(gain, rel=1e-2, abs=1e-7)
    assert found.worth["gpu"] > 0
    assert found.worth["host"] > 0
    assert {"gpu_prefill", "cpu_decode"} <= set(found.binding)


def test_a_shortage_is_exactly_what_is_missing() -> None:
    llm, hw = model("opt-175b"), T4.with_values({"gpu.memory": 2e9})
    found = place(hw, llm, WORK)
    assert found.status == "infeasible"
    assert found.short["host"] == found.short["disk"] == np.inf
    assert "gpu is short of" in found.reason
    enough = {"gpu.memory": 2e9 + found.short["gpu"] * (1 + 1e-6)}
    assert place(hw.with_values(enough), llm, WORK).status == "optimal"
    less = {"gpu.memory": 2e9 + found.short["gpu"] * (1 - 1e-6)}
    assert place(hw.with_values(less), llm, WORK).status == "infeasible"


def test_no_memory_alone_cures_a_huge_block() -> None:
    found = place(T4, model("opt-30b"), WORK, gpu_batch=10**12)
    assert all(np.isinf(need) for need in found.short.values())
    assert "GiB to each of gpu.memory, host.memory, disk.capacity" in found.reason
    sizes = {"gpu.memory": 16 * GIB, "host.memory": 200 * GIB, "disk.capacity": 1500 * GIB}
    hw = T4.with_values(sizes)
    short = place(hw, model("opt-30b"), WORK, gpu_batch=10**12).short_each
    for factor, status in ((1 + 1e-6, "optimal"), (1 - 1e-6, "infeasible")):
        larger = hw.with_values({address: size + short * factor for address, size in sizes.items()})
        assert (
            place(larger, model("opt-30b"), WORK, gpu_batch=10**12, num_batches=1).status == status
        )


@pytest.mark.parametrize("address", ["host.memory", "disk.capacity"])
@pytest.mark.parametrize("size", [1e18, 1e21, 1e24])
def test_a_memory_far_larger_than_the_others_overfills_none(address: str, size: float) -> None:
    found, small = (
        place(T4.with_values({address: there}), model("opt-30b"), WORK) for there in (size, 1e15)
    )
    assert found.status == "optimal"
    assert found.gap < 1e-8
    assert all(used <= 1 + 1e-6 for used in found.used.values())
    assert found.throughput_tok_s == pytest.approx(small.throughput_tok_s, rel=0.01)


def test_shares_add_up_and_fit() -> None:
    found = place(T4, model("opt-175b"), WORK)
    for tensor in "wch":
        assert sum(found.shares[tensor + tier] for tier in "gcd") == pytest.approx(1, abs=1e-12)
    assert all(0 <= used <= 1 + 1e-8 for used in found.used.values())
    assert found.shares["hd"] == 0


def test_a_single_output_token_has_no_decode() -> None:
    found = place(T4, model("opt-6.7b"), Workload(1.0, 512.0, 1.0))
    assert found.decode == 0
    assert found.throughput_tok_s > 0


@pytest.mark.parametrize(
    ("choice", "requested"),
    [
        ({"search": "ful"}, "did you mean 'full'"),
        ({"fixed": {"wx": 0.5}}, "unknown share 'wx'"),
        ({"fixed": {"wg": 0.6, "wc": 0.6}}, "must add up to 1"),
        ({"fixed": {"hg": 0.2, "hc": 0.2}}, "must add up to 1"),
        ({"fixed": {"wg": -0.1}}, "between 0 and 1"),
        ({"fixed": {"hd": 0.5}}, "no activations on the disk"),
        ({"gpu_batch": 0}, "at least 1"),
        ({"num_batches": -3}, "at least 1"),
    ],
)
def test_contradictions_are_refused(choice: dict[str, Any], requested: str) -> None:
    with pytest.raises(InputError, match=requested):
        place(T4, model("opt-6.7b"), WORK, **choice)


def test_a_dead_rate_is_refused() -> None:
    with pytest.raises(InputError, match="a rate in 'offload' is zero"):
        place(T4.with_values({"offload.host_to_gpu": 0.0}), model("opt-6.7b"), WORK)


@pytest.mark.parametrize("package", ["pulp", "highspy"])
def test_a_missing_solver_is_one_sentence(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    real = importlib.import_module

    def without(name: str, *rest: Any) -> Any:
        if name == package:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(InputError, match=f"pip install {package}"):
        place(T4, model("opt-6.7b"), WORK)


def test_the_bound_of_a_program_knows_equalities() -> None:
    program = Program(
        cost=np.array([1.0, 2.0]), matrix=np.array([[1.0, 1.0], [1.0, 0.0]]), limit=np.array([1.0, 0.25]),
        equal=np.array([True, False]), low=np.zeros(2), high=np.ones(2), rows=("sum", "cap"), columns=("a", "b"),
    )  # fmt: skip
    found = Simplex()(program)
    assert found is not None
    assert found.x == pytest.approx([0.25, 0.75])
    assert found.bound == pytest.approx(1.75)
    assert found.prices == pytest.approx([2.0, -1.0])
