"""Bytes and FLOPs of L3's baselines, counted by hand for a small model."""

from __future__ import annotations

import pytest
from support.tiny import (
    ACTIVATIONS,
    ALL_WEIGHTS,
    HEAD_FLOPS,
    KV,
    LINEAR,
    PROMPT_FLOPS,
    PROMPT_KV,
    STREAMED,
    TOKEN_KV,
    amounts,
    check,
    estimate,
    gpus_of_l3,
    needed,
    split,
)

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.serving.dimm import imbalance
from nearkv.hardware.catalog import load_platform

HW = load_platform("dgx-a100-pim").machine()


FOUR = {"policy.weights_per_gpu": 2_000.0}
"""They need 2.75 GPUs, so 4: two replicas of 8 GPUs, where each KV head is kept twice."""


START = {**FOUR, "gpu.attention_launch": 7e-6}


LAUNCH, HOP = HW.gpu.launch, HW.nvlink.hop


# two all-reduces a layer, each 2 (tp - 1) / tp of the activations on each of tp GPUs, tp = 4
ALL_REDUCE = 3 * 2 * (2 * 3) * (5 * 8 * 2)


LINEAR_PART: dict[str, Real] = {
    "gpu.hbm read": 2 * STREAMED,
    "gpu.tensor run": LINEAR + HEAD_FLOPS,
    "gpu.launch wait": 3 * LAUNCH,
    "nvlink.latency wait": 3 * 2 * 3 * HOP,
    "nvlink.out move": ALL_REDUCE,
}
"""Two replicas, each with its weights: of 5 tokens, 2.5 each."""


PROMPT_PART: dict[str, Real] = {
    "gpu.hbm read": 5 * STREAMED,
    "gpu.tensor run": PROMPT_FLOPS + HEAD_FLOPS,
    "gpu.launch wait": 3 * 2.5 * LAUNCH,
    "nvlink.latency wait": 3 * 2.5 * 2 * 3 * HOP,
    "nvlink.out move": 100 * ALL_REDUCE,
}
"""Five prompts, one after the other in two replicas: each reads the weights."""


def test_gpus_alone_read_weights_of_each_replica_and_the_cache() -> None:
    answer = gpus_of_l3(split(4.0, 2.0), START)
    attention: dict[str, Real] = {"gpu.hbm read": 2 * STREAMED + 2 * KV}
    launches = 3 * (LAUNCH + 7e-6)
    check(answer.step, LINEAR_PART | attention | {"gpu.launch wait": launches})
    check(answer.prefill, PROMPT_PART)
    # memory for five requests at their mean size
    assert needed(answer) == {"gpu": 2 * ALL_WEIGHTS + 2 * KV}


def test_the_longest_request_of_each_replica_needs_room() -> None:
    """One request of 121 tokens in each of five replicas is more than five at their mean.

    The other three of the eight GPUs have no request, and hold nothing.
    """
    answer = gpus_of_l3(split(1.0, 8.0))
    assert needed(answer) == {"gpu": 5 * ALL_WEIGHTS + 5 * 121 * TOKEN_KV}


def test_a_share_of_the_requests_is_the_cpus() -> None:
    answer = estimate("cpu-offload", START, cpu_share=0.4)
    launches = 3 * (LAUNCH + 7e-6)
    more: dict[str, Real] = {
        "gpu.hbm read": 2 * STREAMED + 0.6 * 2 * KV,
        "gpu.launch wait": launches,
        "host.dram read": 0.4 * KV,
    }
    check(answer.step, LINEAR_PART | more)
    check(answer.prefill, PROMPT_PART)
    assert needed(answer) == pytest.approx(
        {"gpu": 2 * ALL_WEIGHTS + 0.6 * 2 * KV, "host": 0.4 * KV}
    )


def test_pim_in_hbm_reads_the_cache_at_the_banks_and_weights_twice() -> None:
    """Two sub-batches in turn, of 1.25 requests a replica: each reads the weights."""
    answer = estimate("hbm-pim", FOUR)
    twice = ("gpu.hbm read", "gpu.launch wait", "nvlink.latency wait")
    step = {key: (2 if key in twice else 1) * value for key, value in LINEAR_PART.items()}
    check(answer.step, step | {"gpu.banks read": 2 * KV})
    check(answer.prefill, PROMPT_PART)
    assert needed(answer) == {"gpu": 2 * ALL_WEIGHTS + 2 * KV}


@pytest.mark.parametrize("name", ["rank-pim", "l3"])
def test_prompts_go_to_the_dimms(name: str) -> None:
    knobs: dict[str, Real] = {"interleave": 0, "overlap_comm": 1} if name == "l3" else {}
    answer = estimate(name, FOUR, policy=0, homes=1, **knobs)
    cache: dict[str, Real] = {"gpu_link.out move": PROMPT_KV, "dimm.bus move": PROMPT_KV}
    check(answer.prefill, PROMPT_PART | cache)
    # the activations of one prompt on each of two replicas
    assert needed(answer) == {"gpu": 2 * (ALL_WEIGHTS + ACTIVATIONS), "dimm": KV}
    attended = "dimm.ranks read" if name == "rank-pim" else "dimm.banks read"
    assert amounts(answer.step)[attended] == KV


def test_the_fullest_rank_decides_where_requests_lie_on_random_ones() -> None:
    """In one layer a request lies on one rank of each channel, whatever computes at it."""
    fullest = imbalance(5.0, HW.dimm.ranksets, 1.0)
    step = estimate("rank-pim", FOUR, policy=0, homes=0).step
    assert 1.2 < fullest < HW.dimm.ranksets
    assert amounts(step)["dimm.ranks read"] == pytest.approx(KV * fullest, rel=1e-12)
