"""L3 and its baselines: numbers of the paper, the twelve cells, fluid model and simulation."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from support.systems import model
from support.tiny import HEAD_FLOPS, NEW_KV, QUERIES, STREAMED, TINY, TOKEN_KV, check, split

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.serving.dimm import (
    bank_bandwidth,
    bus_bandwidth,
    dimms,
    imbalance,
    least_loaded,
    rank_unit_area,
    row_efficiency,
    unit_power,
)
from nearkv.costmodel.mechanisms.serving.parallel import (
    beside_weights,
    data_parallel,
    in_use,
    kv_token_bytes,
    tensor_parallel,
)
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Load, Workload
from nearkv.costmodel.systems.l3 import iteration, pim_side, pu_overhead
from nearkv.hardware.catalog import load_part, load_platform
from nearkv.hardware.errors import InputError
from nearkv.solvers.calibrate import fit
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.simulate.play import SimulatedQueue, simulate
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.study.traces import Trace, load_trace
from nearkv.sweeps.validation.claims import load

HW = load_platform("dgx-a100-pim").machine()


MODELS = ("opt-66b", "gpt-89b", "gpt-175b")


TRACES = ("openr1", "dolphin", "openthoughts", "longbench")


SYSTEMS = ("gpu", "cpu-offload", "rank-pim", "hbm-pim", "l3")


LLMS = {name: model(name, HW) for name in MODELS}


DRAWN = {name: load_trace(name) for name in TRACES}


def estimate(system: str, llm: LLM, work: Workload, **stated: Real | str) -> Estimate:
    spec = find_system(system)
    knobs = {name: knob.default for name, knob in spec.knobs.items() if not knob.sets}
    if system == "gpu":  # as the paper splits it
        knobs |= {"tp": "l3", "dp": "remaining", "pp": 1.0, "ep": 1.0, "attention": 0.0}
    return resolve_knobs(spec, HW, llm, work, {**knobs, **stated}).estimate


def throughput(estimate: Estimate) -> float:
    return float(estimate.work.batch * estimate.work.output / estimate.total.seconds)


@cache
def served(system: str, name: str, trace: str) -> Estimate:
    """One of the cells of the paper's figures."""
    return estimate(system, LLMS[name], DRAWN[trace].workload)


@cache
def simulated(system: str, name: str, trace: str) -> SimulatedQueue:
    """The same, request by request."""
    serving = served(system, name, trace).serving
    assert serving is not None
    return simulate(DRAWN[trace], serving)


def test_bandwidths_follow_from_channels_ranks_banks_and_timing() -> None:
    assert bus_bandwidth(HW) == pytest.approx(406e9, rel=0.01)  # Table 2
    assert bank_bandwidth(HW) == pytest.approx(
        13.0e12, rel=0.01
    )  # Table 2: 0.406 x 4 x 16 x BL 4 / CCDL 8
    assert bank_bandwidth(HW) / bus_bandwidth(HW) == 32  # sec. 2.2: more than 30x
    assert (
        bank_bandwidth(HW) / (HW.dimm.ranksets * bus_bandwidth(HW)) == 8
    )  # sec. 6.2: about 8x R-PIM
    assert HW.gpu.count * HW.gpu.pim_bandwidth == pytest.approx(260.8e12)  # Table 2
    # 128 bursts of CCDL 8 over those, RP + RCD and 16 activations RRD 4 apart
    assert row_efficiency(HW) == pytest.approx(1024 / (1024 + 44 + 64))
    assert 0.86 <= dimms(HW).banks.rate / bank_bandwidth(HW) <= 1.0


def test_splits_of_table_3() -> None:
    for name, tp, dp in (("opt-66b", 2, 4), ("gpt-89b", 4, 2), ("gpt-175b", 8, 1)):
        assert (tensor_parallel(HW, LLMS[name]), data_parallel(HW, LLMS[name])) == (tp, dp)


@pytest.mark.parametrize("system", SYSTEMS)
def test_gpus_that_fill_no_replica_do_nothing(system: str) -> None:
    spec = find_system(system)
    knobs = {name: knob.default for name, knob in spec.knobs.items() if not knob.sets}
    counts = HW.with_values({"gpu.count": np.array([8.0, 12.0, 15.0, 16.0, 20.0, 23.0])})
    answer = resolve_knobs(spec, counts, LLMS["gpt-175b"], DRAWN["openr1"].workload, knobs).estimate
    one, two = np.split(np.broadcast_to(answer.total.seconds, 6), 2)
    assert np.all(one == one[0])
    assert np.all(two == two[0])
    assert two[0] != one[0]


def test_memory_left_and_requests_that_fill_a_gpu() -> None:
    left = HW.gpu.count * HW.gpu.memory - LLMS["gpt-175b"].weight_bytes
    assert left / 2**30 == pytest.approx(310, rel=0.03)  # sec. 6.2, in GiB
    a_request = 8000 * kv_token_bytes(LLMS["gpt-175b"])
    assert HW.gpu.memory / a_request == pytest.approx(2.28, abs=0.01)  # sec. 1


def test_area_and_power_of_the_units() -> None:
    assert rank_unit_area(HW) == pytest.approx(22900e-12)  # Table 5, the three units of a rank
    assert rank_unit_area(HW) / HW.dimm.buffer_area == pytest.approx(0.000229)
    # 2 ranks x (6.4 mW + 128 bank units x 1.129 mW); sec. 6.4 counts the rank's only
    assert unit_power(HW) == pytest.approx(2 * (6.402e-3 + 128 * 1.129e-3))


def test_one_rankset_of_four_is_engaged_as_long_as_pcie_takes() -> None:
    # sec. 5.1: the KV of prompts comes over 8 PCIe 4.0 x16 links, 252 GB/s, slower than the bus
    llm, prompts = LLMS["gpt-175b"], Load(8.0, 8e4, 8e4, 512.0, 512.0 * 2048)
    side = pim_side(HW, llm, prompts, 1.0)
    arrival = llm.kv_bytes(1, 512.0) / (8 * 31.5e9)
    assert side.parts["receive"].seconds == pytest.approx(arrival / 4, rel=0.01)


def test_prompt_cache_hides_under_feed_forward() -> None:
    llm, tokens = LLMS["gpt-175b"], 1000.0
    sent = llm.kv_bytes(1, tokens) / (HW.gpu_link.count * HW.gpu_link.bandwidth * HW.derate.link)
    computed = llm.ffn_flops(tokens) / (HW.gpu.count * HW.gpu.flops * HW.gpu.gemm)
    assert sent / computed == pytest.approx(0.16, abs=0.02)  # sec. 5.1: typically 16 %


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_l3_comes_first_in_every_cell(name: str) -> None:
    for trace in TRACES:
        answers = {system: served(system, name, trace) for system in SYSTEMS}
        rates = {system: throughput(e) for system, e in answers.items() if e.fits.ok}
        assert max(rates, key=rates.__getitem__) == "l3", trace
        out_of_memory = {system for system in SYSTEMS if not answers[system].fits.ok}
        expected = (
            {"gpu", "hbm-pim"}
            if name == "opt-66b" and trace in ("openr1", "openthoughts")
            else set()
        )
        assert out_of_memory == expected, trace  # fig. 8a, 8c
        assert all(str(answers[system].fits.short_of) == "gpu" for system in out_of_memory)


def test_hbm_pim_falls_below_the_gpu_where_batches_are_small() -> None:
    work = DRAWN["dolphin"].workload  # sec. 6.2
    assert throughput(estimate("hbm-pim", LLMS["opt-66b"], work)) < throughput(
        estimate("gpu", LLMS["opt-66b"], work)
    )


FLUID_ERROR = {("cpu-offload", "opt-66b", "longbench"): 0.13}
"""Where throughput is further from the simulation than elsewhere: the ten prompts of LongBench that
fill a replica come whole, and the fluid model lets a part of one run."""


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(
    "name", ["opt-66b", pytest.param("gpt-89b", marks=pytest.mark.deep), "gpt-175b"]
)
@pytest.mark.slow
def test_fluid_model_is_near_the_simulation(system: str, name: str) -> None:
    for trace in TRACES:
        fluid = served(system, name, trace)
        if fluid.fits.ok:
            apart = throughput(fluid) / simulated(system, name, trace).throughput - 1
            assert abs(apart) <= FLUID_ERROR.get((system, name, trace), 0.12), trace
            between = simulated(system, name, trace).decoding
            assert fluid.latency.tpot == pytest.approx(between, rel=0.16), trace


@pytest.mark.parametrize("policy", [0.0, 1.0])
@pytest.mark.parametrize(
    "capacity", [16e9, pytest.param(64 * 2**30, marks=pytest.mark.deep), 128e9]
)
@pytest.mark.slow
def test_time_between_tokens_is_near_the_simulation_where_prompts_bind(
    policy: float, capacity: float
) -> None:
    """0.5, 2 and 4 TB of DIMMs; LongBench's prompts bind, Dolphin's drain is a third of the run."""
    hw = HW.with_values({"dimm.capacity": capacity})
    for name in ("opt-66b", "gpt-175b"):
        for trace in ("longbench", "dolphin"):
            work = DRAWN[trace].workload
            knobs = {"interleave": 1.0, "overlap_comm": 1.0, "homes": 1.0, "policy": policy}
            fluid = find_system("l3")(hw, LLMS[name], work, knobs)
            assert fluid.serving is not None
            queue = simulate(DRAWN[trace], fluid.serving)
            ratio = float(fluid.latency.tpot) / queue.decoding
            assert 1 / 1.3 < ratio < 1.3, (name, trace)


@pytest.mark.slow
def test_l3_comes_first_in_the_simulation_too() -> None:
    for trace in ("openr1", "longbench"):
        rates = {system: simulated(system, "gpt-175b", trace).throughput for system in SYSTEMS}
        assert max(rates, key=rates.__getitem__) == "l3", trace


def test_each_optimisation_of_l3_helps_where_the_paper_uses_it() -> None:
    work = DRAWN["openr1"].workload  # fig. 10: GPT-175B, OpenR1
    off = {"interleave": 0.0, "overlap_comm": 0.0, "homes": 0.0}
    naive = throughput(estimate("l3", LLMS["gpt-175b"], work, **off))
    comm = throughput(estimate("l3", LLMS["gpt-175b"], work, interleave=0.0))
    full = throughput(estimate("l3", LLMS["gpt-175b"], work))
    assert naive < comm < full


def test_small_batches_are_better_left_whole() -> None:
    work = Workload(4.0, 3584.0, 1.0)
    split, whole = (
        estimate("l3", LLMS["gpt-175b"], work, interleave=on).step.seconds for on in (1.0, 0.0)
    )
    assert split > 1.2 * whole


def test_reserving_the_final_length_admits_fewer() -> None:
    work = DRAWN["dolphin"].workload
    paged, reserve = (
        estimate("gpu", LLMS["gpt-175b"], work, policy=p).batch_run for p in (0.0, 1.0)
    )
    assert 0.4 < reserve / paged < 0.7


def test_a_refresh_that_never_ends_is_refused() -> None:
    # tRFC 0.35 us every 7.8 us; 8 us would leave the banks no time
    hw = HW.with_values({"dimm.refresh": np.array([0.35e-6, 8e-6])})
    with pytest.raises(InputError, match=r"dimm.refresh: 8000 ns is not below"):
        dimms(hw)
    with pytest.raises(InputError, match=r"is not below dimm.refresh_interval, 0 ns"):
        dimms(HW.with_values({"dimm.refresh_interval": 0.0}))


def test_imbalance_matches_random_placement() -> None:
    random = np.random.default_rng(0)
    for requests, ranksets in ((8, 4), (40, 4), (100, 4), (8, 16), (25, 16), (200, 16)):
        loads = np.zeros((4000, ranksets))
        homes = random.integers(0, ranksets, (4000, requests))
        for r in range(ranksets):
            loads[:, r] = (homes == r).sum(axis=1)
        assert imbalance(float(requests), float(ranksets), 1.0) == pytest.approx(
            float(loads.max(axis=1).mean() / loads.mean()), rel=0.03
        )
    assert imbalance(10.0, 1.0, 2.0) == 1.0
    assert imbalance(0.1, 4.0, 2.0) == 4.0


def test_least_loaded_homes_match_requests_placed_one_by_one() -> None:
    """Lengths as uniform as contexts of one trace: E[x^2] / E[x]^2 = 4 / 3."""
    random = np.random.default_rng(1)
    for requests, ranksets in ((8, 4), (40, 4), (100, 4), (40, 16), (200, 16)):
        excess = []
        for _ in range(300):
            loads = np.zeros(ranksets)
            for size in random.uniform(0.0, 2.0, requests):
                loads[np.argmin(loads)] += size
            excess.append(loads.max() / loads.mean())
        placed = least_loaded(float(requests), float(ranksets), 4 / 3)
        assert placed == pytest.approx(np.mean(excess), rel=0.12)
    assert least_loaded(10.0, 1.0, 2.0) == 1.0
    assert least_loaded(0.1, 4.0, 2.0) == 4.0


def equal(requests: int, prompt: float, output: float) -> Trace:
    return Trace("equal", np.full(requests, prompt), np.full(requests, output))


@pytest.mark.parametrize("system", ["gpu", "rank-pim", "hbm-pim"])
def test_a_batch_that_fits_takes_prefill_and_its_steps(system: str) -> None:
    """Token by token: prompts one after the other, then every iteration at its own context."""
    llm, trace = LLMS["gpt-175b"], equal(4, 1000.0, 40.0)
    serving = estimate(system, llm, trace.workload).serving
    assert serving is not None
    queue = simulate(trace, serving)
    steps = [
        estimate(system, llm, trace.workload.at_context(1000.0 + t)).step.seconds
        for t in range(1, 40)
    ]
    prefill = estimate(system, llm, trace.workload).prefill.seconds
    assert queue.seconds == pytest.approx(prefill + sum(steps), rel=2e-3)
    assert queue.output.sum() == 160
    assert queue.preempted == 0


@pytest.mark.parametrize("system", ["gpu", "rank-pim", "hbm-pim", "l3"])
@pytest.mark.parametrize(("prompt", "output"), [(64.0, 2.0), (4000.0, 200.0)])
@pytest.mark.parametrize("named", ["gpt-175b", "opt-66b"])
def test_a_lone_request_takes_what_the_fluid_model_says(
    system: str, prompt: float, output: float, named: str
) -> None:
    """On the one replica of GPT-175B, and on one of the four of OPT-66B."""
    llm, trace = LLMS[named], equal(1, prompt, output)
    fluid = estimate(system, llm, trace.workload)
    assert fluid.serving is not None
    assert simulate(trace, fluid.serving).seconds == pytest.approx(
        float(fluid.total.seconds), rel=0.02
    )


@pytest.mark.parametrize("system", ["gpu", "cpu-offload", "hbm-pim", "rank-pim", "l3"])
@pytest.mark.parametrize("requests", [1, 3])
def test_each_request_waits_for_all_weights_of_its_own_replica(system: str, requests: int) -> None:
    """OPT-66B is on two GPUs: no step is shorter than reading half the weights at one's rate."""
    llm = LLMS["opt-66b"]
    answer = estimate(system, llm, equal(requests, 100.0, 2.0).workload)
    layers = llm.layers * llm.layer_weight_bytes(1.0)
    at_least = layers / 2 / (HW.gpu.bandwidth * HW.gpu.hbm)
    assert answer.step.seconds >= at_least
    assert answer.prefill.seconds >= at_least


def test_no_token_is_lost_when_memory_runs_out() -> None:
    trace = equal(40, 500.0, 6000.0)
    serving = estimate("gpu", LLMS["gpt-175b"], trace.workload).serving
    assert serving is not None
    queue = simulate(trace, serving)
    assert queue.preempted > 0
    assert queue.output.sum() == 40 * 6000
    assert np.all(np.isfinite(queue.ended))
    # no more decode at a time than memory holds
    most = (
        beside_weights(HW, LLMS["gpt-175b"], trace.workload)
        / kv_token_bytes(LLMS["gpt-175b"])
        / 500
    )
    assert 40 * 5999 * queue.decoding / queue.seconds <= most


def test_a_request_beyond_the_memory_is_named() -> None:
    trace = equal(2, 100.0, 30_000.0)
    fluid = estimate("gpu", LLMS["opt-66b"], trace.workload)
    assert not fluid.fits.ok
    assert fluid.serving is not None
    with pytest.raises(InputError, match="a request of 30,100 tokens exceeds the 17,"):
        simulate(trace, fluid.serving)


@pytest.mark.parametrize("system", ["l3", "rank-pim"])
def test_more_gpus_than_the_dimms_have_requests_for_stay_idle(system: str) -> None:
    """64 replicas of 8 GPUs would each hold a request of 16,384 tokens: 4.9 TB of cache."""
    work = Workload(256.0, 15_000.0, 1384.0)
    hw = HW.with_values({"gpu.count": np.array([8.0, 512.0])})
    knobs = {"policy": 0.0, "interleave": 1.0, "overlap_comm": 1.0, "homes": 1.0}
    spec = find_system(system)
    known = {name: value for name, value in knobs.items() if name in spec.knobs}
    solved = resolve_knobs(spec, hw, LLMS["gpt-175b"], work, known).estimate
    assert np.all(solved.fits.ok)


FOUR = {"policy.weights_per_gpu": 2_000.0}
"""They need 2.75 GPUs, so 4: two replicas of 8 GPUs."""


LAUNCH, HOP = HW.gpu.launch, HW.nvlink.hop


# two all-reduces a layer, each 2 (tp - 1) / tp of the activations on each of tp GPUs, tp = 4
ALL_REDUCE = 3 * 2 * (2 * 3) * (5 * 8 * 2)


@pytest.mark.parametrize("interleave", [0.0, 0.25, 1.0])
def test_an_iteration_of_l3_moves_queries_new_tokens_and_prompts_once(interleave: float) -> None:
    """Ten prompt tokens ride; one quarter of their KV stops all ranksets, the rest one of them."""
    load = Load(sequences=5.0, tokens=552.5, hottest=600.0, prompt=10.0, squares=700.0)
    hw = in_use(HW.with_values(FOUR), TINY)
    span = iteration(hw, TINY, load, interleave, overlap_comm=0.75)
    riding = 10 * TOKEN_KV
    passes = 1 + interleave
    expected: dict[str, Real] = {
        "gpu.hbm read": passes * 2 * STREAMED,
        "gpu.tensor run": 2 * 15 * 3 * 840 + 2 * 700 * 3 * 18 + HEAD_FLOPS,
        "gpu.launch wait": passes * 3 * LAUNCH,
        "nvlink.latency wait": passes * 3 * 2 * 3 * HOP,
        "nvlink.out move": 3 * ALL_REDUCE,
        "gpu_link.out move": QUERIES + NEW_KV + riding,
        "gpu_link.in move": QUERIES,
        "dimm.bus move": 2 * QUERIES + NEW_KV + riding,
        "dimm.banks read": 600 * TOKEN_KV,
        "dimm.banks wait": 0.75 * riding,
    }
    check(span, expected)


def test_units_take_a_quarter_of_a_chip_and_a_tenth_of_the_power() -> None:
    """7 of 28 areas; one rank's 6 W and 16 x 2 x 4 banks' 0.25 W of 380 W."""
    numbers = {"channels": 4.0, "ranksets": 1.0, "count": 4.0, "chips": 16.0, "bank_groups": 2.0}
    numbers |= {"banks": 4.0, "relayout_power": 1.0, "adder_power": 2.0, "softmax_power": 3.0}
    numbers |= {"bank_power": 0.25, "relayout_area": 1.0, "adder_area": 2.0, "softmax_area": 4.0}
    numbers |= {"buffer_area": 28.0, "power": 380.0}
    hw = load_platform("dgx-a100-pim").machine()
    shares = pu_overhead(hw.with_values({f"dimm.{name}": size for name, size in numbers.items()}))
    assert shares == pytest.approx({"rank_pu_area_pct": 25.0, "pu_power_pct": 10.0})


# --- Where the L3 paper contradicts itself, its tables or arithmetic (docs/misses.md) ---


STATED = {claim.id: claim for claim in load("l3")}


GPT175 = model("gpt-175b", HW)


def prompt_cache_over_feed_forward(flops: float) -> float:
    sent = GPT175.kv_bytes(1, 1.0) / (HW.gpu_link.count * HW.gpu_link.bandwidth * HW.derate.link)
    return float(sent / (GPT175.ffn_flops(1.0) / (flops * HW.gpu.gemm)))


def test_156_tflops_is_the_fp32_rate() -> None:
    fp32 = 19.5e12  # of one A100 (its datasheet); 8 of them make the 156 TFLOP/s of sec. 5.1
    assert HW.gpu.count * fp32 == 156e12
    assert HW.gpu.count * HW.gpu.flops == 2496e12
    assert prompt_cache_over_feed_forward(2496e12) == pytest.approx(0.16, abs=0.02)  # sec. 5.1
    assert prompt_cache_over_feed_forward(156e12) < 0.011


def test_capacities_are_binary_in_one_place_and_decimal_in_another() -> None:
    a_request = kv_token_bytes(GPT175) * 8000.0
    assert 80 * 2**30 / a_request == pytest.approx(2.28, abs=0.01)  # sec. 1
    assert 80e9 / a_request == pytest.approx(2.12, abs=0.01)
    llama = model("llama2-7b", HW)
    beside = [
        (memory - llama.weight_bytes) / (2048 * kv_token_bytes(llama))
        for memory in (80e9, 80 * 2**30)
    ]
    assert beside == pytest.approx([62.0, 67.5], abs=0.1)  # sec. 2.3: about 62
    left = HW.gpu.count * 80.0 * 2**30 - GPT175.weight_bytes
    assert left / 2**30 == pytest.approx(310, rel=0.02)  # sec. 6.2
    assert (640e9 - GPT175.weight_bytes) / 1e9 == pytest.approx(291, abs=1)


def test_four_ranks_a_channel_are_a_tenth_of_the_gpus_bandwidth() -> None:
    gpus = HW.gpu.count * HW.gpu.bandwidth
    assert HW.dimm.ranksets * bus_bandwidth(HW) / gpus == pytest.approx(
        0.10, abs=0.005
    )  # sec. 2.6: one fourth
    assert 0.25 * gpus / bus_bandwidth(HW) == pytest.approx(
        10, abs=0.1
    )  # ranks a channel that would need


def test_mean_answers_of_openr1_are_6k_in_section_1_and_12k_in_table_4() -> None:
    assert load_part("openr1", "trace").numbers["output_mean"].si / 2 == pytest.approx(6342, abs=1)
    assert load_trace("openr1").output.mean() > 12_000


def test_units_at_the_banks_take_3_percent_of_a_dimm_not_a_thousandth() -> None:
    of_rank = HW.dimm.relayout_power + HW.dimm.adder_power + HW.dimm.softmax_power
    assert of_rank / HW.dimm.power == pytest.approx(0.00064, rel=0.01)  # sec. 6.4: negligible
    assert unit_power(HW) / HW.dimm.power == pytest.approx(0.03, abs=0.001)
    assert rank_unit_area(HW) / HW.dimm.buffer_area == pytest.approx(0.000229, rel=0.01)


def test_gains_of_figure_10_do_not_multiply() -> None:
    # the gains of sec. 6.2, 1.3 and 1.7, would make 2.2 together; the axis ends at 1.8
    both = {"interleave": "on,off", "overlap_comm": "on,off", "homes": "balanced,random"}
    fitted = table(Study(("l3",), ("gpt-175b",), traces=("openr1",), knobs=both))[
        "throughput_tok_s"
    ].astype(float)
    assert 1.5 < fitted.max() / fitted.min() < 1.8


def test_full_host_memory_does_not_keep_the_time_between_tokens() -> None:
    # sec. 1 and 9: no worse than GPUs; reading 2 TB at 13 TB/s takes 170 ms, GPUs read theirs in 42
    memory = dimms(HW)
    assert memory.capacity / bank_bandwidth(HW) == pytest.approx(0.168, abs=0.002)
    assert HW.gpu.count * HW.gpu.memory / (HW.gpu.count * HW.gpu.bandwidth) == pytest.approx(
        0.042, abs=0.001
    )


def test_kernels_started_one_by_one_are_what_figure_2_shows() -> None:
    # fig. 2b: 27.7 ms at 1k tokens; weights, output head and KV cache alone take 9.1 ms
    llm, work = model("llama2-7b", HW), Workload(4.0, 1024.0, 1.0).at_context(1024.0)
    step = find_system("gpu")(load_platform("a100-slora").machine(), llm, work, split(1.0)).step
    waits = sum(took for name, took in step.breakdown().items() if name.endswith("launch"))
    assert step.seconds - waits == pytest.approx(9.13e-3, rel=0.01)
    assert step.seconds == pytest.approx(27.7e-3, rel=0.1)


def test_the_two_launch_times_are_the_fit_of_six_statements() -> None:
    # fig. 2b: shares of attention at 1k to 16k tokens [%], and the latency at 1k [ms]
    llm, contexts = model("llama2-7b", HW), np.array([1024.0, 2048.0, 4096.0, 8192.0, 16384.0])
    stated = np.array([*(float(STATED[f"l3-mha-share-{k}k"].low) for k in (1, 2, 4, 8, 16)), 27.7])
    bed, keys = load_platform("a100-slora"), ("launch", "attention_launch")
    numbers = [bed.roles["gpu"].numbers[key] for key in keys]
    low, high = np.array([number.range for number in numbers], float).T

    def residuals(points: NDArray[np.float64]) -> NDArray[np.float64]:
        rows = []
        for launch, attention_launch in 1e-3 * (low + points * (high - low)):
            hw = bed.machine().with_values(
                {"gpu.launch": launch, "gpu.attention_launch": attention_launch}
            )
            step = find_system("gpu")(
                hw, llm, Workload(4.0, contexts, 1.0).at_context(contexts), split(1.0)
            ).step
            attention = sum(took for name, took in step.breakdown().items() if "attention" in name)
            rows.append(
                np.append(100 * attention / step.seconds, 1e3 * np.ravel(step.seconds)[0]) / stated
            )
        return np.log(rows)

    fitted = low + fit(residuals, np.array([0.5, 0.5])).factors * (high - low)
    assert [number.value for number in numbers] == pytest.approx(fitted, rel=5e-3)


BLOCK = Workload(1.0, 512.0, 32.0)


def test_two_sub_batches_are_each_half_as_even() -> None:
    """Requests of a sub-batch alone fall on the ranksets; of one batch, all of them."""
    system = find_system("l3")
    hw = load_platform(system.platform).machine()
    for interleave, sequences in ((1.0, 32.0), (0.0, 64.0)):
        knobs = {"interleave": interleave, "overlap_comm": 1.0, "homes": 0.0, "policy": 0.0}
        serving = system(hw, model("opt-66b", hw), BLOCK, knobs).serving
        assert serving is not None
        expected = imbalance(sequences, hw.dimm.ranksets, 1.0)
        assert serving.skew(64.0, 1.0) == pytest.approx(expected, rel=1e-12)


def test_tokens_of_a_batch_fill_what_is_left_after_its_first_ones() -> None:
    """All requests end together: a mean TPOT counts the prompts that others wait for meanwhile."""
    llm = model("llama3.1-8b", HW)
    answer = estimate("l3", llm, Workload(16.0, 65536.0, 64.0))
    latency = answer.latency
    assert answer.batch_run == 16
    assert latency.ttft + 63 * latency.tpot == pytest.approx(answer.total.seconds, rel=1e-3)
