"""Bytes and FLOPs of systems that serve requests from GPUs, counted by hand for a small model."""

from __future__ import annotations

import pytest
from support.tiny import (
    ALL_WEIGHTS,
    ATTEND,
    FINAL_KV,
    HEAD,
    HEAD_FLOPS,
    KV,
    LAYERS,
    LINEAR,
    NEW_KV,
    PROMPT_FLOPS,
    PROMPT_KV,
    QUERIES,
    STREAMED,
    TINY,
    TOKEN_KV,
    amounts,
    check,
    estimate,
    needed,
)

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.serving.parallel import in_use, prefill_attention, prompts_alone
from nearkv.costmodel.model.queue import Load
from nearkv.costmodel.systems.l3 import iteration
from nearkv.hardware.catalog import load_platform

HW = load_platform("dgx-a100-pim").machine()
FOUR = {"policy.weights_per_gpu": 2_000.0}
"""They need 2.75 GPUs, so 4: two replicas of 8 GPUs."""
START = {**FOUR, "gpu.attention_launch": 7e-6}
LAUNCH, HOP = HW.gpu.launch, HW.nvlink.latency
# two all-reduces a layer, each 2 (tp - 1) / tp of the activations on each of tp GPUs, tp = 4
ALL_REDUCE = 3 * 2 * (2 * 3) * (5 * 8 * 2)
LINEAR_PART: dict[str, Real] = {
    "gpu.hbm read": 2 * LAYERS,
    "gpu.tensor run": LINEAR,
    "gpu.launch wait": 3 * LAUNCH,
    "nvlink.latency wait": 3 * 2 * 3 * HOP,
    "nvlink.out move": ALL_REDUCE,
}
"""Two replicas, each with its weights: of 5 tokens, 2.5 each."""
PROMPT_PART: dict[str, Real] = {
    "gpu.hbm read": 5 * LAYERS,
    "gpu.tensor run": PROMPT_FLOPS,
    "gpu.launch wait": 3 * 2.5 * LAUNCH,
    "nvlink.latency wait": 3 * 2.5 * 2 * 3 * HOP,
    "nvlink.out move": 100 * ALL_REDUCE,
}
"""Five prompts, one after the other in two replicas: each reads the weights."""


def test_gpus_alone_read_weights_of_each_replica_and_the_cache() -> None:
    answer = estimate("gpu-only", START)
    attention: dict[str, Real] = {"gpu.hbm read": 2 * LAYERS + KV}
    launches = 3 * (LAUNCH + 7e-6)
    check(answer.step, LINEAR_PART | attention | {"gpu.launch wait": launches})
    check(answer.prefill, PROMPT_PART)
    # memory for five requests at their mean size
    assert needed(answer) == {"gpu": 2 * ALL_WEIGHTS + KV}


def test_the_longest_request_of_each_replica_needs_room() -> None:
    """One request of 121 tokens in each of five replicas is more than five at their mean.

    The other three of the eight GPUs have no request, and hold nothing.
    """
    answer = estimate("gpu-only")
    assert needed(answer) == {"gpu": 5 * ALL_WEIGHTS + 5 * 121 * TOKEN_KV}


def test_a_share_of_the_requests_is_the_cpus() -> None:
    answer = estimate("cpu-offload", START, cpu_share=0.4)
    launches = 3 * (LAUNCH + 7e-6)
    more: dict[str, Real] = {
        "gpu.hbm read": 2 * LAYERS + 0.6 * KV,
        "gpu.launch wait": launches,
        "host.dram read": 0.4 * KV,
    }
    check(answer.step, LINEAR_PART | more)
    check(answer.prefill, PROMPT_PART)
    assert needed(answer) == pytest.approx({"gpu": 2 * ALL_WEIGHTS + 0.6 * KV, "host": 0.4 * KV})


def test_pim_in_hbm_reads_the_cache_at_the_banks_and_weights_twice() -> None:
    """Two sub-batches in turn, of 1.25 requests a replica: each reads the weights."""
    answer = estimate("hbm-pim", FOUR)
    twice = ("gpu.hbm read", "gpu.launch wait", "nvlink.latency wait")
    step = {key: (2 if key in twice else 1) * value for key, value in LINEAR_PART.items()}
    check(answer.step, step | {"gpu.banks read": KV})
    check(answer.prefill, PROMPT_PART)
    assert needed(answer) == {"gpu": 2 * ALL_WEIGHTS + KV}


@pytest.mark.parametrize("name", ["rank-pim", "l3"])
def test_prompts_go_to_the_dimms(name: str) -> None:
    knobs: dict[str, Real] = (
        {"interleave": 0, "overlap_comm": 1, "placement": 1} if name == "l3" else {}
    )
    answer = estimate(name, FOUR, policy=0, **knobs)
    cache: dict[str, Real] = {"gpu_link.out move": PROMPT_KV, "dimm.bus move": PROMPT_KV}
    check(answer.prefill, PROMPT_PART | cache)
    assert needed(answer) == {"gpu": 2 * ALL_WEIGHTS, "dimm": KV}
    attended = "dimm.ranks read" if name == "rank-pim" else "dimm.banks read"
    assert amounts(answer.step)[attended] == KV


@pytest.mark.parametrize("interleave", [0.0, 0.25, 1.0])
def test_an_iteration_of_l3_moves_queries_new_tokens_and_prompts_once(interleave: float) -> None:
    """Ten prompt tokens ride; one quarter of their KV stops all ranksets, the rest one of them."""
    load = Load(sequences=5.0, tokens=552.5, hottest=600.0, prompt=10.0, squares=700.0)
    hw = in_use(HW.with_values(FOUR), TINY)
    span = iteration(hw, TINY, load, interleave, overlap_comm=0.75)
    riding = 10 * TOKEN_KV
    passes = 1 + interleave
    expected: dict[str, Real] = {
        "gpu.hbm read": passes * 2 * LAYERS,
        "gpu.tensor run": 2 * 15 * 3 * 840 + 2 * 700 * 3 * 18,
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


def test_a_prompt_visits_one_replica() -> None:
    hw = in_use(HW.with_values(FOUR), TINY)
    load = Load(0.0, 0.0, 0.0, prompt=100.0, squares=100.0**2)
    span = amounts(prompts_alone(hw, TINY, 1.0, load))
    assert span["gpu.hbm read"] == LAYERS / 3
    assert span["gpu.launch wait"] == pytest.approx(LAUNCH / 2)


def test_prompts_attend_at_a_rate_of_their_own() -> None:
    rate = 8 * HW.gpu.flops * HW.derate.prefill_attention
    assert prefill_attention(HW, TINY, 1000.0).seconds == pytest.approx(2 * 1000 * 18 / rate)


@pytest.mark.parametrize(("served", "gpus"), [(1.0, 4.0), (1.9, 4.0), (2.0, 8.0), (9.0, 8.0)])
def test_gpus_in_use_are_whole_replicas_that_have_a_request(served: float, gpus: float) -> None:
    hw = in_use(HW.with_values(FOUR), TINY, most=served)
    assert hw.gpu.count == gpus
    assert hw.nvlink.count == gpus


def test_tensor_parallel_gpus_share_weights_and_reduce_twice_a_layer() -> None:
    """Eight GPUs and two KV heads: each head is kept by four of them."""
    hw = load_platform("hgx-h200").machine()
    answer = estimate("tensor-parallel")
    reduced = 3 * 2 * 2 * 7 / 8 * 8 * (8 * 5 * 2)
    step: dict[str, Real] = {
        "gpu.hbm read": STREAMED + 4 * KV,
        "gpu.tensor run": LINEAR + ATTEND + HEAD_FLOPS,
        "gpu.launch wait": 3 * hw.gpu.launch,
        "nvlink.latency wait": 3 * 2 * 2 * 7 / 8 * hw.nvlink.latency,
        "nvlink.out move": reduced,
    }
    check(answer.step, step)
    prompt: dict[str, Real] = {
        "gpu.hbm read": 5 * LAYERS + HEAD,
        "gpu.tensor run": PROMPT_FLOPS + HEAD_FLOPS,
        "gpu.launch wait": 5 * 3 * hw.gpu.launch,
        "nvlink.latency wait": 5 * 3 * 2 * 2 * 7 / 8 * hw.nvlink.latency,
        "nvlink.out move": 100 * reduced,
    }
    check(answer.prefill, prompt)
    assert needed(answer) == {"gpu": ALL_WEIGHTS + 4 * FINAL_KV}


def test_a_cluster_pipelines_micro_batches_through_its_nodes() -> None:
    """Two nodes of four GPUs: micro-batches of 2.5, weights read for each, KV heads kept twice."""
    changes = {"cluster_gpu.count": 8, "cluster_host.count": 2}
    answer = estimate("vllm-multinode", changes)
    handed = 2.5 * 8 * 2
    step: dict[str, Real] = {
        "cluster_gpu.hbm read": 2 * LAYERS + 2 * KV,
        "cluster_gpu.tensor run": LINEAR + ATTEND,
        "cluster_pcie.out move": 2 * 3 * 2 * 3 / 4 * handed,
        "cluster_link.out move": handed,
    }
    check(answer.step, step)
    prompt: dict[str, Real] = {
        "cluster_gpu.hbm read": LAYERS,
        "cluster_gpu.tensor run": PROMPT_FLOPS,
        "cluster_pcie.out move": 100 * 2 * 3 * 2 * 3 / 4 * handed,
        "cluster_link.out move": 100 * handed,
    }
    check(answer.prefill, prompt)
    assert needed(answer) == {"cluster_gpu": ALL_WEIGHTS + 2 * FINAL_KV}


def test_nodes_without_a_micro_batch_idle() -> None:
    """Five sequences on eight nodes: five micro-batches of one keep five of eight busy."""
    answer = estimate("vllm-multinode", {"cluster_gpu.count": 8, "cluster_host.count": 8})
    assert amounts(answer.step)["cluster_gpu.tensor run"] == pytest.approx(
        8 / 5 * (LINEAR + ATTEND)
    )
