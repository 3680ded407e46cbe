"""Stages and micro-batches on nodes of GPUs, by hand."""

from __future__ import annotations

import pytest
from support.systems import model
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
    amounts,
    check,
    estimate,
    needed,
)

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.systems.vllm import Parallel, communicate
from nearkv.hardware.catalog import load_platform


def test_a_cluster_pipelines_micro_batches_through_its_nodes() -> None:
    """Two nodes of four GPUs: micro-batches of 2.5, weights read for each, KV heads kept twice."""
    changes = {"cluster_gpu.count": 8, "cluster_host.count": 2}
    answer = estimate("vllm-multinode", changes)
    handed = 2.5 * 8 * 2
    step: dict[str, Real] = {
        "cluster_gpu.hbm read": 2 * STREAMED + 2 * KV,
        "cluster_gpu.tensor run": LINEAR + ATTEND + HEAD_FLOPS,
        "cluster_pcie.out move": 2 * 3 * 2 * 3 / 4 * handed,
        "cluster_link.out move": handed,
    }
    check(answer.step, step)
    prompt: dict[str, Real] = {
        "cluster_gpu.hbm read": LAYERS + 2 * HEAD,
        "cluster_gpu.tensor run": PROMPT_FLOPS + HEAD_FLOPS,
        "cluster_pcie.out move": 100 * 2 * 3 * 2 * 3 / 4 * handed,
        "cluster_link.out move": 100 * handed,
    }
    check(answer.prefill, prompt)
    assert needed(answer) == {"cluster_gpu": ALL_WEIGHTS + 2 * FINAL_KV}


def test_nodes_without_a_micro_batch_idle() -> None:
    """Five sequences on eight nodes: five micro-batches of one keep five of eight busy."""
    answer = estimate("vllm-multinode", {"cluster_gpu.count": 8, "cluster_host.count": 8})
    assert amounts(answer.step)["cluster_gpu.tensor run"] == pytest.approx(
        8 / 5 * (LINEAR + ATTEND + HEAD_FLOPS)
    )


def test_stages_hand_over_one_tensor_each() -> None:
    """Two stages: the hidden vector of every token, 16 bits an element, once over the fabric."""
    hw = load_platform("hilos-a100").machine()
    llm = model("opt-66b")
    one_stage = communicate(hw, llm, 5.0, Parallel(tp=4.0, pp=1.0, micro=5.0, idle=1.0))
    two_stages = communicate(hw, llm, 5.0, Parallel(tp=4.0, pp=2.0, micro=5.0, idle=1.0))
    assert one_stage["hand_over"].seconds == 0
    rate = hw.cluster_link.bandwidth * hw.derate.pcie
    assert two_stages["hand_over"].seconds == pytest.approx(9216 * 5 * 2 / rate)
