"""Page faults of DeepSpeed with unified virtual memory, by hand."""

from __future__ import annotations

import pytest
from support.offloading import IN_FILES, storage_path
from support.tiny import (
    ACTIVATIONS,
    ALL_WEIGHTS,
    ATTEND,
    BUFFER,
    FINAL_KV,
    HEAD,
    HEAD_FLOPS,
    KV,
    LINEAR,
    PROMPT_FLOPS,
    PROMPT_KV,
    STREAMED,
    check,
    estimate,
    needed,
)


@pytest.mark.parametrize("in_files", [0, 1])
def test_deepspeed_faults_the_cache_in_and_loads_every_weight(in_files: int) -> None:
    answer = estimate("deepspeed-uvm", IN_FILES if in_files else {}, weights=2)
    stored = in_files * STREAMED
    weights = storage_path("ssd", "ssd_link", stored)
    weights["host.dram read"] = STREAMED - stored
    weights["gpu.hbm read"] = STREAMED
    step = {**weights, "gpu_link.in move": STREAMED + KV}
    check(answer.step, {**step, "gpu.tensor run": LINEAR + ATTEND + HEAD_FLOPS})
    prompt = {**weights, "gpu_link.in move": STREAMED, "gpu_link.out move": PROMPT_KV}
    prompt["gpu.hbm read"] = HEAD
    check(answer.prefill, {**prompt, "gpu.tensor run": PROMPT_FLOPS + HEAD_FLOPS})
    in_dram = (1 - in_files) * ALL_WEIGHTS
    host = in_dram + FINAL_KV + 5 * ACTIVATIONS
    assert needed(answer) == {"gpu": BUFFER, "host": host, "ssd": in_files * ALL_WEIGHTS}


def test_deepspeed_pages_activations_that_the_gpu_cannot_hold_out_and_back() -> None:
    """A GPU of 10 kB lacks what weight buffer and a prompt's activations take beyond it."""
    answer = estimate("deepspeed-uvm", {"gpu.memory": 10_000}, weights=2)
    spilled = 3 * 2 * 5 * (BUFFER + ACTIVATIONS - 10_000)
    faults = answer.prefill.traffic("move")[("gpu_link.in", "move")]
    assert faults == pytest.approx(STREAMED + spilled)
