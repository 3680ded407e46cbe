"""One replica of GPUs, counted by hand for a small model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.configs import FP8, quantised_llama
from support.systems import SYSTEMS, machine_of, model
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
    WORK,
    check,
    estimate,
    needed,
)

from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.costmodel.systems.tensor_parallel import UNLINKED
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


def test_messages_climb_a_tree_of_nodes_and_come_down() -> None:
    """Two nodes are one hop up, one down, of 0.25 s; two all-reduces in each of 32 layers."""
    hw, llm = load_platform("hgx-h200").machine(), model("llama2-7b")
    apart = hw.with_values(
        {"gpu.count": 16, "nvlink.count": 16, "fabric.count": 8, "fabric.latency": 0.25}
    )
    step = SYSTEMS["tensor-parallel"](apart, llm, WORK, {}).step
    assert waited_for("fabric.latency", step) == pytest.approx(32 * 2 * 2 * 0.25)
    message = WORK.batch * llm.hidden * llm.activation_width  # a ring of two sends it once
    sent = {place: amount for place, amount in step.traffic().items() if "fabric" in place[0]}
    assert max(sent.values()) == pytest.approx(32 * 2 * message)
    alone = hw.with_values({"gpu.count": 8, "fabric.latency": 0.25})
    together = SYSTEMS["tensor-parallel"](alone, llm, WORK, {}).step
    assert waited_for("fabric.latency", together) == 0.0


def waited_for(resource: str, span: Span) -> Real:
    """Seconds of all waits for a resource."""
    return sum(
        times * leaf.seconds for _, leaf, times in span.leaves() if leaf.resource == resource
    )


def test_a_latent_is_kept_by_every_gpu() -> None:
    """DeepSeek-V3 on 8 GPUs: 70,272 B of a token, 8 times."""
    system, llm = SYSTEMS["tensor-parallel"], model("deepseek-v3")
    rows: list[Real] = []
    for prompt in (8192.0, 16384.0):
        fits = system(machine_of(system), llm, Workload(1.0, prompt, 64.0), {}).fits
        rows.append(fits.tiers["gpu"][0])
    assert rows[1] - rows[0] == pytest.approx(8 * 70_272 * 8192)


def test_products_in_8_bits_shorten_the_compute_of_a_prompt_but_not_its_attention(
    tmp_path: Path,
) -> None:
    system, work = SYSTEMS["tensor-parallel"], Workload(8.0, 16384.0, 64.0)
    hw = machine_of(system)

    def compute(llm: LLM) -> tuple[Real, Real]:
        layers = system(hw, llm, work, {}).prefill.parts["layers"]
        return (
            layers.parts["products"].parts["shared"].parts["compute"].seconds,
            layers.parts["attention"].seconds,
        )

    wide, narrow = compute(quantised_llama(tmp_path)), compute(quantised_llama(tmp_path, FP8))
    assert narrow[0] == pytest.approx(wide[0] * 0.77 / (2 * 0.5))
    assert narrow[1] == wide[1]


def test_gpus_without_links_or_in_part_of_a_node_are_named() -> None:
    """Of 16 GPUs 8 have links; 12 fill one and a half nodes of 8; 72 heads divide over 12."""
    system, llm = SYSTEMS["tensor-parallel"], model("opt-66b")
    hw = machine_of(system)
    alone = system(hw, llm, WORK, {})
    unlinked = system(hw.with_values({"gpu.count": 16}), llm, WORK, {})
    assert UNLINKED in unlinked.notes
    assert UNLINKED not in alone.notes
    assert unlinked.step.seconds == alone.step.seconds
    part = system(hw.with_values({"gpu.count": 12, "nvlink.count": 12}), llm, WORK, {})
    assert part.fits.unmodelled
    whole = hw.with_values({"gpu.count": 12, "nvlink.count": 12, "fabric.count": 6})
    assert not system(whole, llm, WORK, {}).fits.unmodelled


def test_a_draft_costs_a_layer_and_a_head_and_saves_a_pass() -> None:
    """A pass checks two tokens: caches are read once, products double; a draft is one layer."""
    llm = replace(model("llama2-7b"), mtp_layers=1.0)
    hw = load_platform("hgx-h200").machine()
    plain = SYSTEMS["tensor-parallel"](hw, llm, WORK, {})
    half = SYSTEMS["tensor-parallel"](hw, llm, WORK, {"mtp": 1.0, "accepted": 0.5})

    def moved(answer: Estimate, place: str) -> float:
        amounts = answer.step.traffic().items()
        return sum(float(amount) for key, amount in amounts if key[0] == place)

    # two tokens in each of 32 layers and in the head, then one in a draft's layer and its head
    launches = waited_for("gpu.launch", half.step) / waited_for("gpu.launch", plain.step)
    assert launches == pytest.approx((32 + 1) / 32 / 1.5)
    tensor = moved(half, "gpu.tensor") / moved(plain, "gpu.tensor")
    head = llm.vocab * llm.hidden
    layers = llm.sum_over_layers(lambda kind: kind.linear_flops(1) / 2)
    attended = llm.layers * llm.attention_flops(1, WORK.context) / 2
    one = layers + attended + head
    assert tensor == pytest.approx((2 * one + (layers + attended) / 32 + head) / one / 1.5)
    assert needed(half)["gpu"] > needed(plain)["gpu"]
    nothing = SYSTEMS["tensor-parallel"](hw, model("llama2-7b"), WORK, {"mtp": 1.0})
    assert not np.any(nothing.fits.ok)
