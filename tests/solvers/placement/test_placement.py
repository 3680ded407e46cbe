"""FlexGen's placement: its published rows, its LP against the printed table, its answers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.systems import model as catalogued

from nearkv.costmodel.algebra.span import Leaf, Real
from nearkv.costmodel.mechanisms.weights.placement import (
    DECODE,
    MEMORY_CONSTRAINTS,
    PLACEMENT_SHARES,
    PLACEMENT_VARIABLES,
    PREFILL,
    BlockSchedule,
    cpu_attention_rate,
)
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.solvers.placement import placement
from nearkv.solvers.placement.linear import Optimum, Program, Simplex
from nearkv.solvers.placement.placement import place

T4 = load_platform("t4-flexgen").machine()
WORK = Workload(1.0, 512.0, 32.0)
GIB = 2.0**30


def model(name: str, hw: Machine = T4) -> LLM:
    return catalogued(name, hw)


# Reference rows: FlexLLMGen's experimental/cost_model.py; 16, 200, 1500 GB; prompt 512, output 32.


def test_the_walk_of_opt_30b_is_flexgens() -> None:
    answer = place(T4, model("opt-30b"), WORK, search="paper")
    assert (answer.gpu_batch, answer.num_batches, answer.programs) == (32, 5, 543)
    assert answer.throughput_tok_s == pytest.approx(7.094728, rel=1e-6)
    shares = [answer.shares[name] for name in ("wg", "wc", "cg", "cc", "hg", "hc")]
    assert shares == pytest.approx([0.12428276, 0.77809922, 0, 1, 0, 1], rel=1e-6, abs=1e-9)


def test_the_walk_of_opt_6_7b_is_flexgens() -> None:
    answer = place(T4, model("opt-6.7b"), WORK, search="paper")
    assert (answer.gpu_batch, answer.num_batches, answer.programs) == (1, 2, 262)
    assert answer.throughput_tok_s == pytest.approx(60.848064, rel=1e-6)
    shares = [answer.shares[name] for name in ("wg", "wc", "cg", "cc", "hg", "hc")]
    assert shares == pytest.approx([1, 0, 1, 0, 1, 0], abs=1e-9)


def test_a_given_policy_is_evaluated_as_flexgen_does() -> None:
    fixed = {"wg": 0.2, "wc": 0.8, "cg": 0.0, "cc": 1.0, "hg": 0.0, "hc": 1.0}
    relaxed = T4.with_values({"offload.memory_share": 1.2})
    answer = place(relaxed, model("opt-30b"), WORK, gpu_batch=48, num_batches=3, fixed=fixed)
    assert answer.throughput_tok_s == pytest.approx(7.135733, rel=1e-6)
    assert answer.shares == pytest.approx({**fixed, "wd": 0, "cd": 0, "hd": 0}, abs=1e-9)


def printed(s: float, n: float, gbs: float, bls: float, x: dict[str, float]) -> dict[str, float]:
    """The printed table for OPT-30B, number by number, in bytes and seconds of one layer."""
    return printed_seconds(s, n, gbs, bls, x) | printed_bytes(s, n, gbs, bls, x)


def printed_seconds(
    s: float, n: float, gbs: float, bls: float, x: dict[str, float]
) -> dict[str, float]:
    h1, h2, gb, tera = 7168, 28672, GIB, 1e12
    wi = 8 * h1**2 + 4 * h1 * h2
    away, u = x["hc"] + x["hd"], max(0.0, math.log2(64 / gbs))
    cpu = 0.0123 * tera * max(0.1, 1 - 0.0328 * u)
    ctog_p = (wi * (x["wc"] + x["wd"]) + 2 * s * h1 * bls * away) / (12.89 * gb)
    cache_out = 4 * (s + 1) * h1 * bls * (x["cc"] + x["cd"])
    gtoc_p = cache_out / (0.97 * gb) + 2 * s * h1 * bls * away / (4.82 * gb)
    dtoc_p = (wi * x["wd"] + 2 * s * h1 * bls * x["hd"]) / (0.473 * gb)
    ctod_cache = 4 * bls * (s + 1) * h1 * x["cd"] / (0.746 * gb)
    ctod_hidden = 2 * s * h1 * bls * x["hd"] / (2.015 * gb)
    linear_p = bls * (8 * s * h1**2 + 4 * s * h1 * h2) / (21.24 * tera)
    attention_p = 4 * bls * s**2 * h1 / (9.97 * tera)
    ctog_g = (wi * (x["wc"] + x["wd"]) + 2 * h1 * bls * away) / (12.89 * gb)
    attention_g = 4 * bls * (s + n / 2) * h1
    dtoc_g = (attention_g * x["cd"] + 2 * h1 * bls * x["hd"]) / (0.473 * gb)
    decode = {
        "gtoc_g": 2 * h1 * bls * away / (4.82 * gb),
        "dtoc_g": dtoc_g + wi * x["wd"] / (0.95 * 0.473 * gb),
        "ctod_g": (4 * bls * h1 * x["cd"] + 2 * h1 * bls * x["hd"]) / (2.015 * gb),
        "comp_g": bls * (8 * h1**2 + 4 * h1 * h2) / (4.3 * tera)
        + attention_g * x["cg"] / (0.079 * tera)
        + attention_g * (x["cc"] + x["cd"]) / cpu,
    }
    return {
        "ctog_p + dtoc_p": ctog_p + dtoc_p,
        "gtoc_p + ctod_p": gtoc_p + ctod_cache + ctod_hidden,
        "comp_p": linear_p + attention_p,
        **{f"ctog_g + {name}": ctog_g + value for name, value in decode.items()},
    }


def printed_bytes(
    s: float, n: float, gbs: float, bls: float, x: dict[str, float]
) -> dict[str, float]:
    l, h1, h2, nh = 48, 7168, 28672, 56  # noqa: E741
    wi = 8 * h1**2 + 4 * h1 * h2
    cache = 4 * (s + n) * h1 * bls * l
    gpu = wi * l * x["wg"] + cache * x["cg"] + 2 * wi * (1 - x["wg"])
    mlp = 4 * s * h1 + 2 * s * h2 + 2 * s * h1
    prompt = 8 * s * h1 + 2 * s * h1 + 2 * nh * s**2 + 2 * s * h1 + mlp
    attention = 2 * h1 + 2 * (s + n) * h1 + 2 * nh * (s + n) + 2 * (s + n) * h1 + 2 * h1
    token = 8 * h1 + attention * x["cg"] + 4 * h1 + 2 * h2 + 2 * h1
    hidden = bls * x["hg"] + gbs * (1 - x["hg"])
    cpu_p = wi * l * x["wc"] + 2 * s * h1 * bls * x["hc"] + 4 * s * h1 * bls * l * x["cc"]
    cpu_g = wi * l * x["wc"] + 2 * h1 * bls * x["hc"] + cache * x["cc"] + wi * x["wd"]
    from_disk = 4 * h1 * gbs * x["hd"] + 8 * (s + n) * h1 * gbs * x["cd"]
    return {
        "gpu_prefill": gpu + 2 * s * h1 * hidden + gbs * prompt,
        "gpu_decode": gpu + 2 * h1 * hidden + 4 * gbs * (s + n) * h1 * x["cg"] + gbs * token,
        "cpu_prefill": cpu_p + wi * (1 - x["wg"]) + 2 * s * h1 * gbs * (1 - x["hg"]),
        "cpu_decode": cpu_g + from_disk + 2 * nh * (s + n) * gbs + 2 * h1 * gbs,
        "disk": wi * l * x["wd"] + 2 * s * h1 * bls * x["hd"] + cache * x["cd"],
    }


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_the_printed_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet((1, 1, 1), 3).ravel()
    gbs, nb, s, n = (float(v) for v in rng.integers(1, 90, 4))
    rate = float(cpu_attention_rate(T4, model("opt-30b"), gbs))
    block = BlockSchedule(T4, model("opt-30b"), Workload(1.0, s, n), gbs * nb, gbs, rate)
    at = np.concatenate([shares, [gbs * nb, gbs]])
    values = np.concatenate([block.prefill(), block.decode(), block.memory()]) @ at
    stated = printed(s, n, gbs, gbs * nb, dict(zip(PLACEMENT_SHARES, shares.tolist(), strict=True)))
    assert dict(
        zip((*PREFILL, *DECODE, *MEMORY_CONSTRAINTS), values.tolist(), strict=True)
    ) == pytest.approx(stated, rel=1e-12)


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
    disk, cache = MEMORY_CONSTRAINTS.index("disk"), PLACEMENT_VARIABLES.index("cd")
    assert shared.memory()[disk, cache] == of[0].memory()[disk, cache] / 8
    assert place(four, narrow, WORK).throughput_tok_s > place(T4, wide, WORK).throughput_tok_s


# What an answer says.


def test_shadow_prices_are_what_one_gb_more_brings() -> None:
    llm, hw = model("opt-30b"), T4.with_values({"host.memory": 120 * GIB})
    answer = place(hw, llm, WORK, gpu_batch=24, num_batches=8)
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
            - answer.throughput_tok_s
        )
        assert answer.worth[tier] == pytest.approx(gain, rel=1e-2, abs=1e-7)
    assert answer.worth["gpu"] > 0
    assert answer.worth["host"] > 0
    assert {"gpu_prefill", "cpu_decode"} <= set(answer.binding)


def test_a_shortage_is_exactly_what_is_missing() -> None:
    llm, hw = model("opt-175b"), T4.with_values({"gpu.memory": 2e9})
    answer = place(hw, llm, WORK)
    assert answer.status == "infeasible"
    assert answer.short["host"] == answer.short["disk"] == np.inf
    gib = f"{answer.short['gpu'] / 1024**3:.3f} GiB"
    assert f"gpu is short of {gib}" in answer.reason
    enough = {"gpu.memory": 2e9 + answer.short["gpu"] * (1 + 1e-6)}
    assert place(hw.with_values(enough), llm, WORK).status == "optimal"
    less = {"gpu.memory": 2e9 + answer.short["gpu"] * (1 - 1e-6)}
    assert place(hw.with_values(less), llm, WORK).status == "infeasible"


def test_a_shortage_is_that_of_each_part() -> None:
    """Four GPUs, and two disks: what each of them lacks is what the sentence says to add."""
    llm = model("opt-6.7b")
    small = {"gpu.count": 4.0, "disk.count": 2.0, "disk.capacity": 1e9, "host.memory": 8 * GIB}
    hw = T4.with_values(small)
    answer = place(hw, llm, Workload(1.0, 8192.0, 32.0), gpu_batch=8, num_batches=8)
    for address, tier in (("gpu.memory", "gpu"), ("disk.capacity", "disk")):
        role, _, key = address.partition(".")
        for factor, status in ((1 + 1e-6, "optimal"), (1 - 1e-6, "infeasible")):
            more = {address: float(hw[role][key]) + factor * answer.short[tier]}
            larger, work = hw.with_values(more), Workload(1.0, 8192.0, 32.0)
            found = place(larger, llm, work, gpu_batch=8, num_batches=8)
            assert found.status == status


def test_a_program_that_stalls_is_begun_anew() -> None:
    """HiGHS knows of one of its programs neither an optimum nor that there is none."""
    hw = T4.with_values(
        {
            "gpu.memory": 68868036550.5084,
            "host.memory": 152039047353.78903,
            "disk.capacity": 0.0,
            "offload.host_to_gpu": 3107892059.0476832,
            "offload.cpu_small_batch": 0.17015131039977596,
            "offload.attention_prefill": 58343703868376.945,
        }
    )
    answer = place(hw, model("opt-6.7b"), Workload(1.0, 5500.0, 39.0))
    assert answer.status == "optimal"
    assert answer.throughput_tok_s == pytest.approx(7.6259, rel=1e-4)


def test_no_memory_alone_cures_a_huge_block() -> None:
    answer = place(T4, model("opt-30b"), WORK, gpu_batch=10**12)
    assert all(np.isinf(need) for need in answer.short.values())
    assert "GiB to each of gpu.memory, host.memory, disk.capacity" in answer.reason
    sizes = {"gpu.memory": 16 * GIB, "host.memory": 200 * GIB, "disk.capacity": 1500 * GIB}
    hw = T4.with_values(sizes)
    short = place(hw, model("opt-30b"), WORK, gpu_batch=10**12).short_each
    for factor, status in ((1 + 1e-6, "optimal"), (1 - 1e-6, "infeasible")):
        larger = hw.with_values({address: size + short * factor for address, size in sizes.items()})
        assert (
            place(larger, model("opt-30b"), WORK, gpu_batch=10**12, num_batches=1).status == status
        )


@pytest.mark.parametrize(
    ("address", "size"),
    [
        ("host.memory", 1e18),
        ("host.memory", 1e21),
        ("disk.capacity", 1e18),
        ("disk.capacity", 1e21),
        ("disk.capacity", 1e24),
    ],
)
def test_a_memory_far_larger_than_the_others_overfills_none(address: str, size: float) -> None:
    answer, small = (
        place(T4.with_values({address: there}), model("opt-30b"), WORK) for there in (size, 1e15)
    )
    assert answer.status == "optimal"
    assert answer.gap < 1e-8
    assert all(used <= 1 + 1e-6 for used in answer.used.values())
    assert answer.throughput_tok_s == pytest.approx(small.throughput_tok_s, rel=0.01)


def test_shares_add_up_and_fit() -> None:
    answer = place(T4, model("opt-175b"), WORK)
    for tensor in "wch":
        assert sum(answer.shares[tensor + tier] for tier in "gcd") == pytest.approx(1, abs=1e-12)
    assert all(0 <= used <= 1 + 1e-8 for used in answer.used.values())
    assert answer.shares["hd"] == 0


def test_a_single_output_token_has_no_decode() -> None:
    answer = place(T4, model("opt-6.7b"), Workload(1.0, 512.0, 1.0))
    assert answer.decode == 0
    assert answer.throughput_tok_s > 0


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"search": "ful"}, "did you mean 'full'"),
        ({"fixed": {"wx": 0.5}}, "unknown share 'wx'"),
        ({"fixed": {"wg": 0.6, "wc": 0.6}}, "must add up to 1"),
        ({"fixed": {"hg": 0.2, "hc": 0.2}}, "must add up to 1"),
        ({"fixed": {"wg": -0.1}}, "between 0 and 1"),
        ({"fixed": {"hd": 0.5}}, "no activations on the disk"),
        ({"gpu_batch": 0}, "from 1 to"),
        ({"num_batches": -3}, "from 1 to"),
    ],
)
def test_contradictions_are_refused(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        place(T4, model("opt-6.7b"), WORK, **choice)


@pytest.mark.parametrize("rate", ["host_to_gpu", "cpu_attention"])
def test_a_dead_rate_is_refused(rate: str) -> None:
    with pytest.raises(InputError, match="a rate in 'offload' is zero"):
        place(T4.with_values({f"offload.{rate}": 0.0}), model("opt-6.7b"), WORK)


BLOCK = Workload(1.0, 512.0, 32.0)


def test_what_fits_is_short_of_nothing_and_what_does_not_makes_no_tokens() -> None:
    fitting = place(T4, model("opt-30b", T4), BLOCK, gpu_batch=4, num_batches=2)
    assert (fitting.status, fitting.short_each) == ("optimal", 0.0)
    huge = place(T4, model("opt-30b", T4), BLOCK, gpu_batch=10**12)
    assert huge.status == "infeasible"
    assert huge.throughput_tok_s == huge.bound_tok_s == 0.0
    assert np.isnan([huge.prefill, huge.decode, *huge.shares.values()]).all()


@pytest.mark.parametrize("prices", [0.0, 0.999])
def test_an_answer_that_its_prices_do_not_prove_is_refused(
    prices: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unproven(Simplex):
        def __call__(self, program: Program) -> Optimum | None:
            optimum = super().__call__(program)
            if optimum is None:
                return None
            return replace(optimum, bound=program.bound(prices * optimum.prices))

    monkeypatch.setattr(placement, "Simplex", Unproven)
    with pytest.raises(InputError, match="no prices prove the shares of 4 x 2 sequences"):
        placement.place(T4, model("opt-30b", T4), BLOCK, gpu_batch=4, num_batches=2)


def second(of: Real) -> Leaf:
    return Leaf("gpu", "run", np.ones(np.shape(of)), 1.0, "s")


def test_what_no_memory_alone_cures_is_added_to_each() -> None:
    hw = load_platform("t4-flexgen").machine()
    work = Workload(1.0, 512.0, 32.0)
    huge = placement.place(hw, model("opt-30b", hw), work, gpu_batch=10**12)
    short = replace(huge, short=dict.fromkeys(huge.short, np.inf), short_each=3.0 * 2**30)
    assert "add 3.000 GiB to each of" in short.reason
