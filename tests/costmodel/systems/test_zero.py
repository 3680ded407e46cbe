"""ZeRO-Inference: weights fetched ahead, pinned or not, eager attention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.offloading import CACHE, WEIGHTS, bed, layers, short_step
from support.systems import model
from support.tiny import (
    ACTIVATIONS,
    ALL_WEIGHTS,
    ATTEND,
    BUFFER,
    FINAL_KV,
    HEAD_FLOPS,
    KV,
    LAYERS,
    LINEAR,
    NEW_KV,
    PROMPT_KV,
    QUERIES,
    STREAMED,
    TINY,
    amounts,
    check,
    estimate,
    needed,
    plus,
)

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.costmodel.systems.zero import eager_copies
from nearkv.hardware.catalog import load_platform

LINK = 0.8 * 31.5e9
"""PCIe 4.0 x16 from pinned memory [B/s]."""


def test_zero_inference_waits_for_what_its_bucket_does_not_hold() -> None:
    # 2 h^2 of the 12 h^2 weights of a layer come beside its attention, which takes longer
    hw = bed("zero-a6000")
    attend = CACHE / (0.114 * 153.6e9)
    step = layers("zero-inference", hw, cache=0.0, pin=2.0).seconds
    assert step > WEIGHTS / LINK * 10 / 12 + attend
    assert step == pytest.approx(WEIGHTS / LINK * 10 / 12 + attend, rel=0.05)
    alone = layers("zero-inference", hw, cache=0.0, prefetch=12.0, pin=2.0).seconds
    # then all weights come beside attention, and both read the host's memory
    assert alone == pytest.approx(attend + WEIGHTS / 153.6e9, rel=0.01)


def test_a_larger_bucket_never_slows_a_step_down() -> None:
    buckets = np.arange(13.0)
    step = layers("zero-inference", bed("zero-a6000"), cache=1.0, prefetch=buckets)
    seconds = np.asarray(step.seconds)
    assert np.all(np.diff(seconds) <= 1e-9)
    assert seconds[2] < seconds[0]


def test_zero_inference_takes_what_nobody_pins_at_the_pageable_rate() -> None:
    # 0.8 of the link or 0.29; drives pass pinned buffers either way
    auto, pageable, pinned = (short_step("zero-inference", cache=1.0, pin=pin) for pin in range(3))
    assert pageable / pinned == pytest.approx(0.8 / 0.29, rel=0.01)
    assert auto == pinned  # the cache is on the GPU
    drives = [short_step("zero-inference", cache=1.0, ssd_weights=1.0, pin=pin) for pin in range(3)]
    assert len(set(drives)) == 1


@pytest.mark.parametrize(("on_gpu", "ahead"), [(0, 0), (1, 3), (0, 3), (0, 64)])
def test_zero_inference_moves_every_weight_once_however_early(on_gpu: int, ahead: int) -> None:
    answer = estimate("zero-inference", ssd_weights=0.25, cache=on_gpu, prefetch=ahead)
    loaded: dict[str, Real] = {
        "ssd.flash read": 0.25 * STREAMED,
        "ssd_link.in move": 0.25 * STREAMED,
        "host.file move": 0.25 * STREAMED,
        "host.dram read": 0.75 * STREAMED,
        "gpu_link.in move": STREAMED,
        "gpu.hbm read": STREAMED,
        "gpu.tensor run": LINEAR + HEAD_FLOPS,
    }
    # three query heads a KV head: read, written with the new token, read, written and read thrice
    near: dict[str, Real] = {"gpu.hbm read": 9 * KV, "gpu.tensor run": ATTEND}
    far: dict[str, Real] = {
        "host.dram read": KV,
        "gpu_link.in move": QUERIES,
        "gpu_link.out move": QUERIES + NEW_KV,
    }
    check(answer.step, plus(loaded, near if on_gpu else far))
    assert amounts(answer.prefill).get("gpu_link.out move", 0) == (1 - on_gpu) * PROMPT_KV
    host = 0.75 * ALL_WEIGHTS + (1 - on_gpu) * FINAL_KV
    gpu = BUFFER + ACTIVATIONS + on_gpu * FINAL_KV
    assert needed(answer) == {"gpu": gpu, "host": host, "ssd": 0.25 * ALL_WEIGHTS}
    layer = amounts(answer.step.parts["layers"])
    assert layer["gpu_link.in move"] == LAYERS + (0 if on_gpu else QUERIES)


@pytest.mark.parametrize(("heads", "times"), [(2.0, 2), (4.0, 6), (6.0, 8)])
def test_eager_attention_repeats_shared_heads(heads: float, times: float) -> None:
    """K and V are written and read again; of g queries each, g copies are written and read."""
    assert eager_copies(replace(TINY, heads=heads)) == times


def test_a_cache_on_the_gpu_leaves_no_latents_to_pass() -> None:
    """70,272 B a token in 61 layers; where host memory keeps them one layer's 1,152 B pass."""
    system = find_system("zero-inference")
    hw, work = load_platform("zero-a6000").machine(), Workload(2.0, 100.0, 28.0)
    knobs = {"ssd_weights": 0.0, "prefetch": 0.0, "pin": 2.0}
    in_host, on_gpu = [
        needed(system(hw, model("deepseek-v3"), work, {**knobs, "cache": cache}))["gpu"]
        for cache in (0.0, 1.0)
    ]
    assert on_gpu - in_host == pytest.approx(2 * 128 * (61 * 1152 - 1152))
