"""Experts beside the CPU: amounts by hand, limits, tiers, and what a user types."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from support.command_line import refusal, succeed
from support.systems import SYSTEMS, model

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.cpu_layer import processor
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.layers import Mixed, Recurrent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.costmodel.systems.expert_offload import (
    INTEGERS,
    SEVERAL,
    SMALL_CHUNKS,
    TAKE_TURNS,
    UNPACKED,
    expert_breaks,
)
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import resolve_knobs

CASES = int(os.environ.get("NEARKV_CASES", "24"))
OFFLOAD = SYSTEMS["expert-offload"]
BED = load_platform("workstation-5090").machine()
BED = BED.with_values({"host.usable": 1.0, "engine.reserved": 0.0})
WORK = Workload(2.0, 100.0, 21.0).at_context(110.0)

# three layers of hidden 8, 2 x 3 heads of size 3, eight gated experts of size 5, two a token
MOE = LLM(
    layers=3,
    hidden=8,
    ffn=5,
    heads=6,
    kv_heads=2,
    head_size=3,
    vocab=11,
    positions=0,
    gated=1,
    tied=0,
    experts=8,
    active_experts=2,
    shared_parameters=7,
)
DENSE = replace(MOE, experts=1, active_experts=1, shared_parameters=0)
EXPERT = 3 * 8 * 5
ATTENTION = 2 * 8 * (18 + 6)
ALL_EXPERTS = 3 * 8 * EXPERT * 2


def answer(llm: LLM = MOE, hw: Machine = BED, work: Workload = WORK, **knobs: Real) -> Estimate:
    return OFFLOAD(hw, llm, work, {"gpu_experts": 0.0, "experts": 0.0, **knobs})


def test_a_step_reads_the_experts_in_use_from_dram_and_all_else_from_the_gpu() -> None:
    """Two tokens of two choices each use 8 (1 - (3/4)^2) = 3.5 of the eight experts."""
    step = answer().step
    assert step.traffic("read")["host.dram", "read"] == pytest.approx(3 * 3.5 * EXPERT * 2)
    assert step.traffic("run")["host.cores", "run"] == pytest.approx(2 * 2 * 2 * EXPERT * 3)
    kv = 3 * 2 * 110 * 2 * 6 * 2
    shared = 3 * (ATTENTION + 7) * 2 + 11 * 8 * 2
    assert step.traffic("read")["gpu.hbm", "read"] == pytest.approx(kv + shared)


def test_streamed_experts_cross_the_link_and_the_cores_rest() -> None:
    step = answer(experts=1.0).step
    assert step.traffic("move")["gpu_link.in", "move"] == pytest.approx(3 * 3.5 * EXPERT * 2)
    assert step.traffic("run")["host.cores", "run"] == 0


def test_with_all_experts_on_the_gpu_nothing_is_beside_it() -> None:
    held = answer(gpu_experts=1.0)
    for span in (held.prefill, held.step):
        for resource in ("host.dram", "host.cores", "host.launch", "gpu_link.in", "ssd.flash"):
            assert span.busy_of(resource) == 0
    assert held.fits.contents["gpu"]["experts"] == ALL_EXPERTS
    assert held.fits.tiers["host"][0] == 0


def test_a_skewed_router_chooses_what_the_gpu_holds() -> None:
    """Odds of 2 of 4 experts by Zipf's law with exponent 1: the first is always chosen.

    Weights 1, 1/2, 1/3, 1/4 sum to 25/12, and 2 x 12/25 is less than one; so is no expert always
    chosen, and odds are 24/25, 12/25, 8/25, 6/25.
    """
    skewed = replace(MOE, experts=4.0, router_skew=1.0)
    assert skewed.expert_odds == pytest.approx(np.array([24, 12, 8, 6]) / 25)
    always = replace(skewed, router_skew=2.0)
    # 1, 1/4, 1/9, 1/16: twice the first exceeds all, so it is always chosen, the others share one
    assert always.expert_odds == pytest.approx([1, *(np.array([36, 16, 9]) / 61)])
    assert always.distinct_experts(1.0, 1.0) == pytest.approx(1.0)
    # ranks 2 and 3 are one group, of 26/61 each
    assert always.distinct_experts(1.0, 1.5) == pytest.approx(1 - 13 / 61)
    assert always.distinct_experts(2.0, 1.0) == pytest.approx(
        2 * (1 - (35 / 61) ** 2) + 1 - (52 / 61) ** 2
    )
    even = replace(MOE, router_skew=1e-9)
    assert even.distinct_experts(5.0) == pytest.approx(MOE.distinct_experts(5.0))
    one, both = (answer(llm, gpu_experts=0.25).step for llm in (MOE, replace(MOE, router_skew=1.0)))
    assert both.busy_of("host.dram") < 0.75 * one.busy_of("host.dram")


def test_more_tokens_than_the_crossover_are_streamed() -> None:
    """Just below it the cores compute a chunk, just above it the experts come over the link."""
    llm = model("qwen3-30b-a3b")
    cross = float(answer(llm).columns["crossover_tok"])
    for factor, busy in ((0.9, "host.cores"), (1.1, "gpu_link.in")):
        prompt = np.floor(factor * cross)
        prefill = answer(llm, work=Workload(1.0, prompt, 2.0), chunk=prompt, prompts=3.0).prefill
        assert prefill.busy_of(busy) > 0
        assert prefill.busy_of("host.cores") * prefill.busy_of("gpu_link.in") == 0
    fixed = [answer(llm, prompts=way).prefill.seconds for way in (0.0, 1.0, 3.0)]
    assert fixed[2] == min(fixed)


def test_each_chunk_of_a_prompt_is_chosen_for_itself() -> None:
    """A full chunk is streamed; one token more is computed by the cores, as a step's is."""
    llm = model("qwen3-30b-a3b")
    chunk = np.ceil(2 * float(answer(llm).columns["crossover_tok"]))
    full, more = (
        answer(llm, work=Workload(1.0, prompt, 2.0), chunk=chunk).prefill
        for prompt in (chunk, chunk + 1)
    )
    assert full.busy_of("host.cores") == 0
    assert more.busy_of("gpu_link.in") == pytest.approx(full.busy_of("gpu_link.in"))
    one_token = answer(llm, work=Workload(1.0, 1.0, 2.0)).prefill
    assert more.busy_of("host.dram") == pytest.approx(
        full.busy_of("host.dram") + one_token.busy_of("host.dram")
    )


def test_chunks_below_the_crossover_of_a_longer_prompt_say_so() -> None:
    """Not where a chunk is larger, the cores compute prompts, or all experts are on the GPU."""
    llm = model("qwen3-30b-a3b")
    cross = float(answer(llm).columns["crossover_tok"])
    work, small = Workload(1.0, np.ceil(2 * cross), 2.0), np.floor(0.9 * cross)
    assert SMALL_CHUNKS in answer(llm, work=work, chunk=small, prompts=3.0).notes
    silent = (
        answer(llm, work=work, chunk=work.prompt),
        answer(llm, work=work, chunk=small, prompts=0.0),
        answer(llm, work=work, chunk=small, gpu_experts=1.0),
        answer(llm, work=Workload(1.0, small, 2.0), chunk=small),
    )
    assert not any(SMALL_CHUNKS in one.notes for one in silent)


def test_a_hit_rate_is_of_what_memory_does_not_hold_whole() -> None:
    hw = BED.with_values({"router.hit": 0.5})
    for held in (answer(hw=hw, gpu_experts=1.0), SYSTEMS["cpu-only"](hw, MOE, WORK, {})):
        assert held.step.busy_of("ssd.flash") == 0


def test_a_layer_with_experts_launches_twice() -> None:
    """Once for what every token needs and once for the experts; a dense layer once."""
    for llm, launches in ((MOE, 2), (DENSE, 1)):
        seconds = answer(llm, gpu_experts=1.0).step.busy_of("gpu.launch")
        assert seconds == pytest.approx(3 * launches * BED.gpu.launch_alone)


def test_one_token_is_multiplied_without_tiles() -> None:
    """Three layers, two experts, two FLOPs a weight."""
    flops = answer(gpu_experts=1.0, work=Workload(1.0, 100.0, 2.0)).step.traffic("run")
    experts = 3 * 2 * 2 * EXPERT
    assert flops["gpu.tensor", "run"] < 20 * experts


def test_a_dense_model_has_whole_layers_on_the_cores() -> None:
    """A quarter of the layers, their cache and attention; `-ngl` of llama.cpp."""
    split = answer(DENSE, gpu_experts=0.75)
    kv = 3 * 2 * 110 * 2 * 6 * 2
    layers = 3 * (ATTENTION + EXPERT) * 2
    assert split.step.traffic("read")["host.dram", "read"] == pytest.approx((kv + layers) / 4)
    assert split.fits.contents["host"]["experts"] == pytest.approx(layers / 4)
    final = 3 * 2 * 121 * 2 * 6 * 2
    assert split.fits.contents["host"]["KV cache"] == pytest.approx(final / 4)
    assert split.fits.tiers["ssd"][0] == 0


def test_a_cache_in_dram_is_attended_to_by_the_cores() -> None:
    here, there = answer(model("deepseek-v3")), answer(model("deepseek-v3"), cache=1.0)
    assert here.fits.contents["gpu"]["KV cache"] == there.fits.contents["host"]["KV cache"]
    latents = 61 * 2 * 110 * 576 * 2
    read = ("host.dram", "read")
    moved = there.step.traffic("read")[read] - here.step.traffic("read")[read]
    assert moved == pytest.approx(latents)


def test_sockets_read_each_others_memory_or_hold_copies() -> None:
    hw = load_platform("ktransformers-4090").machine()
    copies, remote = (answer(hw=hw, numa=choice) for choice in (1.0, 0.0))
    assert copies.fits.contents["host"]["experts"] == 2 * ALL_EXPERTS
    assert remote.fits.contents["host"]["experts"] == ALL_EXPERTS
    assert copies.step.busy_of("host.sockets") == 0
    across = remote.step.traffic("move")["host.sockets", "move"]
    assert across == pytest.approx(3 * 3.5 * EXPERT * 2 / 2)


def test_pages_that_lie_on_one_of_two_sockets_have_half_of_the_dram() -> None:
    """Its DRAM gives half as much; the cores of the other read all of theirs over the link."""
    hw = load_platform("ktransformers-4090").machine()
    spread, one = (SYSTEMS["cpu-only"](hw, MOE, WORK, {"numa": choice}) for choice in (0.0, 2.0))
    assert one.step.busy_of("host.dram") == pytest.approx(2 * spread.step.busy_of("host.dram"))
    links = one.step.busy_of("host.sockets"), spread.step.busy_of("host.sockets")
    assert links[0] == pytest.approx(2 * links[1])
    assert one.fits.tiers["host"][1] == pytest.approx(spread.fits.tiers["host"][1] / 2)


def test_drives_bring_the_experts_that_dram_does_not_hold() -> None:
    """A quarter on the GPU and half in DRAM leave a quarter of the reads, or what `hit` states."""
    hw = BED.with_values({"host.memory": 0.5 * ALL_EXPERTS, "ssd.iops": 1e15})
    tiered = answer(hw=hw, gpu_experts=0.25)
    assert tiered.fits.contents["ssd"]["experts"] == pytest.approx(0.25 * ALL_EXPERTS)
    read = ("ssd.flash", "read")
    used = 3 * 3.5 * EXPERT * 2
    assert tiered.step.traffic("read")[read] == pytest.approx(used / 4)
    stated = answer(hw=hw.with_values({"router.hit": 0.9}), gpu_experts=0.25)
    assert stated.step.traffic("read")[read] == pytest.approx(used / 10)
    cached = answer(hw=hw, gpu_experts=0.25, reads=1.0)
    assert cached.step.traffic("move")["host.file", "move"] == pytest.approx(used / 4)
    assert cached.step.seconds > tiered.step.seconds
    # three matrices of each expert, a read each
    slow = hw.with_values({"ssd.iops": 1.0, "ssd.count": 1.0})
    commands = answer(hw=slow, gpu_experts=0.25).step.busy_of("ssd.commands")
    assert commands == pytest.approx(3 * 3.5 / 4 * 3)


def test_a_cache_in_dram_takes_the_room_of_experts() -> None:
    """DRAM of the cache and half of the experts, which holds them all once the cache is away."""
    cache = MOE.kv_cache_bytes(WORK.batch, WORK.final)
    hw = BED.with_values({"host.memory": cache + ALL_EXPERTS / 2, "host.count": 1.0})
    for where, stored in ((0.0, 0.0), (1.0, ALL_EXPERTS / 2)):
        held = answer(hw=hw, cache=where).fits.contents
        assert held["ssd"]["experts"] == pytest.approx(stored)
        assert held["host"]["experts"] == pytest.approx(ALL_EXPERTS - stored)
    (half,) = expert_breaks(hw, MOE, WORK, {"numa": 0.0, "cache": 1.0})
    assert half == pytest.approx(0.5)


def test_without_drives_experts_that_fit_nowhere_are_infeasible() -> None:
    hw = load_platform("threadripper-a6000").machine()
    short = answer(hw=hw.with_values({"host.memory": 0.5 * ALL_EXPERTS}))
    assert short.fits.short_of == "host"
    left = 0.5 * ALL_EXPERTS * hw.host.usable
    assert short.fits.short_bytes == pytest.approx(ALL_EXPERTS - left)


def random_case(seed: int) -> tuple[Machine, LLM, Workload]:
    """Machines whose memories hold some of the experts of models that differ."""
    random = np.random.default_rng(seed)

    def between(low: float, high: float, whole: bool = False) -> Real:
        drawn = np.exp(random.uniform(np.log(low), np.log(high), (CASES, 1)))
        return np.ceil(drawn) if whole else drawn

    experts = between(2, 40, whole=True)
    llm = replace(
        MOE,
        layers=between(2, 60, whole=True),
        ffn=between(100, 4000, whole=True),
        hidden=between(500, 8000, whole=True),
        experts=experts,
        active_experts=np.ceil(experts * random.uniform(0.02, 0.9, (CASES, 1))),
        weight_width=random.choice([0.5, 0.60, 1.0, 2.0], (CASES, 1)),
        router_skew=random.choice([0.0, 0.5, 1.2], (CASES, 1)) if seed % 2 else 0.0,
    )
    size = llm.layers * llm.experts * llm.expert_parameters * llm.weight_width
    fixed = llm.weight_bytes - size
    numbers = {
        "gpu.memory": 3 * fixed + 1e8 + size * between(0.05, 3),
        "host.memory": 1e8 + size * between(0.2, 3),
        "gpu.bandwidth": between(1e11, 4e12),
        "host.bandwidth": between(2e10, 4e12),
        "host.clock": between(1e8, 1e11),
        "gpu_link.bandwidth": between(4e9, 4e11),
        "ssd.read": between(1e9, 1e11),
        "gpu.launch_alone": between(1e-6, 1e-3),
        "host.launch": between(1e-6, 1e-3),
    }
    return BED.with_values(numbers), llm, Workload(between(1, 60, whole=True), 64.0, 8.0)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_solved_share_and_the_better_way_equal_brute_force(seed: int) -> None:
    """4,001 shares, computed and streamed, on random machines and models."""
    hw, llm, work = random_case(seed)
    solved = resolve_knobs(OFFLOAD, hw, llm, work, OFFLOAD.defaults)
    assert np.all(solved.estimate.fits.ok)
    shares = np.linspace(0, 1, 4001)
    best = np.full((CASES, 1), np.inf)
    for way in (0.0, 1.0):
        tried = answer(llm, hw, work, gpu_experts=shares, experts=way)
        seconds = np.where(tried.fits.ok, tried.total.seconds, np.inf)
        best = np.minimum(best, seconds.min(axis=1, keepdims=True))
    least = solved.estimate.total.seconds
    # at a break a share is right to 1e-9
    assert np.all(least <= best * (1 + 1e-7))
    # a grid misses the best share by less than one of its steps
    assert np.all(best <= least * 1.01)


def test_the_cores_alone_do_all_of_a_model() -> None:
    alone = SYSTEMS["cpu-only"](BED, MOE, WORK, {})
    kv = 3 * 2 * 110 * 2 * 6 * 2
    weights = 3 * (ATTENTION + 7 + 3.5 * EXPERT) * 2 + 11 * 8 * 2
    assert alone.step.traffic("read")["host.dram", "read"] == pytest.approx(kv + weights)
    assert {name.partition(".")[0] for name in alone.step.resources} == {"host", "ssd", "ssd_link"}


def test_blocks_of_a_few_bits_are_unpacked() -> None:
    """Half a byte a weight: a quarter of the bytes, read at 0.70 of the DRAM rate and not 0.80."""
    wide, packed = (
        SYSTEMS["cpu-only"](BED, llm, WORK.at_context(0.0), {}).step.busy_of("host.dram")
        for llm in (MOE, replace(MOE, weight_width=0.5))
    )
    assert packed == pytest.approx(wide / 4 * 0.8 / 0.7)


# --- as a user types it -------------------------------------------------------------------------


def test_gpt_oss_with_experts_beside_a_desktop_cpu() -> None:
    """25.6 tokens/s are reported with 8 GB of GPU memory in use and 12.7k of context."""
    asked = "--model gpt-oss-120b-gguf --batch 1 --context 12700 --output-tokens 128"
    placed = "--set gpu.memory=8GB --knob gpu_experts=0 --format json"
    words = f"estimate expert-offload --platform desktop-14900k {asked} {placed}"
    printed = succeed(*words.split())
    assert '"status": "ok"' in printed
    rate = float(printed.partition('"decode_tok_s": ')[2].partition(",")[0])
    assert rate == pytest.approx(25.6, rel=0.3)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("expert-offload --set gpu.count=0", "must be more than zero; without a GPU take cpu-only"),
        ("expert-offload --set router.hit=1.5", "router.hit: '1.5' must be at most 1"),
        ("expert-offload --set router.skew=-1", "must be a finite number, zero or more"),
        ("expert-offload --set precision.weight=q4_k_x", "did you mean 'q4_k_"),
        ("expert-offload --platform ryzen-7950x", "lacks what expert-offload reads: gpu"),
    ],
)
def test_what_cannot_be_answered_is_one_sentence(arguments: str, sentence: str) -> None:
    assert sentence in refusal("estimate", *arguments.split(), "--model", "gpt-oss-120b-gguf")


def test_a_drive_that_outpaces_its_link_says_so() -> None:
    """12 GB/s behind PCIe 4.0 x4: as fast as 10, and the row says why."""
    asked = "--model gpt-oss-120b-gguf --batch 1 --context 512 --set host.memory=32GiB"
    words = (
        f"estimate cpu-only --platform colibri-5070ti {asked} --columns step_ms,note --format csv"
    )
    rows = [succeed(*words.split(), "--set", f"ssd.read={rate}GB/s") for rate in (10, 12, 5)]
    assert rows[0] == rows[1]
    assert "ssd_link" in rows[1]
    assert "ssd_link" not in rows[2]


def test_linear_layers_of_a_chain_of_operators_wait_for_each() -> None:
    """One of three layers is linear: its launch of a second counts 2.4 times, the others' once."""
    hw = BED.with_values({"host.launch": 1.0, "engine.state_launches": 2.4})
    linear = Recurrent(**vars(replace(MOE, layers=1)), state_size=4.0, state_flops=8.0)
    mixed = Mixed(**vars(MOE), types_by_name={"full": replace(MOE, layers=2), "linear": linear})
    step = SYSTEMS["cpu-only"](hw, mixed, WORK, {}).step
    assert step.traffic("wait")["host.launch", "wait"] == pytest.approx(2 + 2.4)


def test_few_cores_read_less_than_dram_gives() -> None:
    """A core of 3 B/s, DRAM that gives 0.5 of 20 B/s: one core reads 3, two 6, and four 10."""
    rates = {"host.count": 1, "host.bandwidth": 20.0, "host.dram_read": 0.5, "host.core_read": 3.0}
    cores = np.array([1.0, 2.0, 4.0, 64.0])
    hw = BED.with_values(rates | {"host.cores": cores})
    assert np.asarray(processor(hw, 2.0).read.rate).tolist() == [3.0, 6.0, 10.0, 10.0]


def test_hits_are_what_memories_hold_of_the_experts_in_use() -> None:
    """Of 8 experts alike DRAM holds 4, so half; a stated hit rate holds where not all fit."""
    half = {"host.memory": ALL_EXPERTS / 2, "router.skew": 0.0}
    capacity = {"ssd.capacity": 1e12}
    hw = BED.with_values(half | capacity)
    assert answer(hw=hw).columns["expert_hit_share"] == pytest.approx(0.5, abs=0.05)
    assert answer().columns["expert_hit_share"] == 1.0
    assert np.isnan(answer(llm=DENSE).columns["expert_hit_share"])


def test_several_gpus_say_that_they_take_turns() -> None:
    assert TAKE_TURNS not in answer().notes
    assert TAKE_TURNS in answer(hw=BED.with_values({"gpu.count": 2})).notes


def test_an_answer_says_which_defaults_nobody_uses_here() -> None:
    """Each sentence stands only where its number was left as it is for all systems."""
    packed = replace(MOE, weight_width=0.5625)
    one = replace(WORK, batch=1.0)
    for llm, work, said in (
        (MOE, WORK, {SEVERAL, UNPACKED}),
        (packed, WORK, {SEVERAL}),
        (MOE, one, {UNPACKED}),
        (packed, one, set()),
    ):
        notes = answer(llm, work=work).notes
        assert {SEVERAL, UNPACKED} & notes.keys() == said


@pytest.mark.parametrize("name", ["expert-offload", "cpu-only"])
def test_a_prompt_behind_a_prefix_takes_what_a_longer_prompt_takes_more(name: str) -> None:
    """Chunks of 10 tokens: 110 tokens less 100 of them, but for the output head, once each."""
    hw = BED.with_values({"host.launch": 0.0, "gpu.launch_alone": 0.0})
    stated = {"gpu_experts": 0.5, "experts": 0.0} if name == "expert-offload" else {}
    knobs = {"chunk": 10.0, **stated}

    def prompt(tokens: float, before: float = 0.0) -> float:
        work = Workload(2.0, tokens, 21.0)
        estimate = SYSTEMS[name](hw, MOE, work, {**knobs, "prefix": before})
        assert estimate.work.context == before + tokens + 10.5
        return float(estimate.prefill.parts["layers"].seconds)

    assert prompt(10.0, before=100.0) == pytest.approx(prompt(110.0) - prompt(100.0))


def test_8_bit_floats_on_cores_say_that_units_are_for_integers() -> None:
    floats = replace(MOE, weight_width=1.0, operand_width=1.0)
    assert INTEGERS in SYSTEMS["cpu-only"](BED, floats, WORK, {}).notes
    assert INTEGERS not in SYSTEMS["cpu-only"](BED, MOE, WORK, {}).notes


def test_buffered_reads_pass_the_file_system_of_the_drives() -> None:
    """Half of the experts are on drives that read without end: their file system sets the pace."""
    half = {"host.memory": ALL_EXPERTS / 2, "ssd.read": 1e18, "ssd_link.bandwidth": 1e18}
    hw = BED.with_values(half | {"ssd.file_read": 100.0})
    direct, buffered = (answer(hw=hw, reads=way).step for way in (0.0, 1.0))
    assert direct.busy_of("host.file") == 0
    missed = buffered.traffic("move")["host.file", "move"]
    assert missed > 0
    assert buffered.busy_of("host.file") == pytest.approx(missed / 100)
