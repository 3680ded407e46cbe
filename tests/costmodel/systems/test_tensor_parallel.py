"""One replica of GPUs, counted by hand for a small model."""

from __future__ import annotations

from support.tiny import (
    ALL_WEIGHTS,
    ATTEND,
    FINAL_KV,
    HEAD,
    HEAD_FLOPS,
    KV,
    LAYERS,
    LINEAR,
    PROMPT_FLOPS,
    STREAMED,
    check,
    estimate,
    needed,
)

from nearkv.costmodel.algebra.span import Real
from nearkv.hardware.catalog import load_platform


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
