"""Accelerate's weights, eager scores and projected latents, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from support.systems import SYSTEMS, machine_of, middle, model
from support.tiny import (
    ACTIVATIONS,
    ALL_WEIGHTS,
    ATTEND,
    BUFFER,
    FINAL_KV,
    HEAD_FLOPS,
    KV,
    LINEAR,
    STREAMED,
    check,
    estimate,
    needed,
)

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.models import llm_from_part
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_llm, load_platform


def test_accelerate_with_weights_on_the_gpu_moves_nothing_over_the_link() -> None:
    answer = estimate("accelerate", weights=2)
    flops = LINEAR + ATTEND + HEAD_FLOPS
    check(answer.step, {"gpu.hbm read": STREAMED + KV, "gpu.tensor run": flops})
    # eager scores of 6 heads: 4 bytes in and out of the softmax and 2 x 2 beside it, moved twice
    scores = 6 * 100**2 * 8
    prompt = {
        "gpu.hbm read": STREAMED + 2 * 3 * 5 * scores,
        "gpu.tensor run": 2 * 500 * 3 * 840 + 4 * 5 * 100**2 * 3 * 18 + HEAD_FLOPS,
    }
    check(answer.prefill, prompt)
    resident = ALL_WEIGHTS + ACTIVATIONS + FINAL_KV + scores
    assert needed(answer) == {"gpu": resident, "host": 0, "ssd": 0}


def test_accelerate_streams_all_weights_where_the_gpu_is_a_byte_too_small() -> None:
    resident = ALL_WEIGHTS + ACTIVATIONS + FINAL_KV + 6 * 100**2 * 8
    step = {"gpu.hbm read": STREAMED + KV, "gpu.tensor run": LINEAR + ATTEND + HEAD_FLOPS}
    for weights in (0, 2):
        full = estimate("accelerate", {"gpu.memory": resident}, weights=weights)
        check(full.step, step)
    short = estimate("accelerate", {"gpu.memory": resident - 1}, weights=2)
    assert short.step.traffic("move")["gpu_link.in", "move"] == STREAMED
    assert short.prefill.traffic("move")["gpu_link.in", "move"] == STREAMED
    assert needed(short) == {"gpu": resident - ALL_WEIGHTS + BUFFER, "host": ALL_WEIGHTS, "ssd": 0}


def test_accelerate_keeps_the_weights_that_fit_beside_a_buffer_for_the_others() -> None:
    beside = BUFFER + ACTIVATIONS + FINAL_KV + 6 * 100**2 * 8
    answer = estimate("accelerate", {"gpu.memory": beside + 0.25 * (ALL_WEIGHTS - BUFFER)})
    assert answer.step.traffic("move")["gpu_link.in", "move"] == 0.75 * STREAMED
    assert needed(answer)["host"] == 0.75 * ALL_WEIGHTS


def test_accelerate_reads_from_drives_what_neither_gpu_nor_host_holds() -> None:
    """Of the weights beside a buffer a quarter fits the GPU, half of all the host: a quarter."""
    beside = BUFFER + ACTIVATIONS + FINAL_KV + 6 * 100**2 * 8
    memories = {
        "gpu.memory": beside + 0.25 * (ALL_WEIGHTS - BUFFER),
        "host.memory": 0.5 * ALL_WEIGHTS,
        "host.usable": 1.0,
    }
    answer = estimate("accelerate", memories)
    assert answer.step.traffic("read")["ssd.flash", "read"] == pytest.approx(0.25 * STREAMED)
    assert answer.step.traffic("move")["gpu_link.in", "move"] == pytest.approx(0.75 * STREAMED)
    assert needed(answer)["ssd"] == pytest.approx(0.25 * ALL_WEIGHTS)


DEEPSEEK = model("deepseek-v3")


def test_transformers_caches_latents_projected_to_heads() -> None:
    """A token keeps 128 heads x (192 + 128) elements in 61 layers, 71 times its latents.

    A step reads them at the share of the peak at which the GPU reads weights.
    """
    system = SYSTEMS["accelerate"]
    hw = machine_of(system).with_values({"gpu.memory": 1e15, "gpu.flops": np.inf})
    token = 61 * 128 * (128 + 64 + 128) * 2
    seconds: list[Real] = []
    memory: list[Real] = []
    for context in (4096.0, 8192.0):
        answer = system(hw, DEEPSEEK, Workload(4.0, context, 2.0), middle(system))
        seconds.append(answer.step.seconds)
        scores = 128 * context**2 * (2 * 2 + 4)  # of one prompt, in 16 bits twice and in 32
        activations = DEEPSEEK.activation_bytes(context)
        memory.append(answer.fits.tiers["gpu"][0] - scores - activations)
    assert memory[1] - memory[0] == pytest.approx(4 * token * 4096, rel=1e-6)
    read = 4 * token * 4096 / (hw.gpu.hbm * hw.gpu.bandwidth)
    assert seconds[1] - seconds[0] == pytest.approx(read, rel=1e-6)


def test_eager_attention_of_a_prompt_is_in_heads() -> None:
    """The whole square: keys of 192 and values of 128 elements, 128 heads, 2 FLOPs each."""
    kind = DEEPSEEK.layer_types["latent_moe"]
    assert kind.eager_attention_flops(2, 1000.0) == 2 * 2 * 1000**2 * 128 * (192 + 128)


def test_weights_leave_a_gpu_that_has_no_room_for_them_beside_the_cache() -> None:
    """Llama-3.1-70B takes 141 GB: a GPU of 160 GB holds it, but not 40 GB of cache as well."""
    platform = load_platform("inf2-h100").machine()
    llm = llm_from_part(load_llm("llama3.1-70b"), platform["precision"])
    work = Workload(batch=128.0, prompt=512.0, output=512.0)
    assert 40e9 < llm.kv_cache_bytes(work.batch, work.final) < 44e9
    filled: list[float] = []
    whole: list[float] = []
    for memory in (80e9, 160e9, 400e9):
        hw = platform.with_values({"gpu.memory": memory})
        for steps, choice in ((filled, 0.0), (whole, 2.0)):
            estimate = find_system("accelerate")(hw, llm, work, {"weights": choice})
            assert estimate.fits.ok, memory
            steps.append(float(estimate.step.seconds))
    assert filled[0] > filled[1] > filled[2]
    assert whole[0] == whole[1] > whole[2]
    assert filled[2] == whole[2]
