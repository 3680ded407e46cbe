"""Engines: memory that they keep, how they divide a model, which path prompts take."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.command_line import refusal, succeed
from support.systems import SYSTEMS, model

from nearkv.costmodel.mechanisms.serving.engines import (
    engine_memory,
    looked_up_on_host,
    of_engine,
    usable_memory,
)
from nearkv.costmodel.mechanisms.serving.split import GpuSplit
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_part, load_platform
from nearkv.hardware.machine import Machine


def under(engine: str, bed: str = "hgx-h100") -> Machine:
    return load_platform(bed).with_part("engine", load_part(engine), engine).machine()


def test_a_gpu_keeps_its_context_an_iteration_and_the_buffers_of_its_sampler() -> None:
    llm, hw = model("llama3.1-8b"), under("vllm")
    # of one token the MLP holds input and output of 4,096 and twice 14,336 between them, 2 B each
    activations = 8192 * (2 * 4096 + 2 * 14336) * 2
    sampled = 1024 * 128256 * 38
    kept = engine_memory(hw, llm, GpuSplit(1.0, 1.0), 8192.0)
    assert kept == pytest.approx(0.6e9 + activations + sampled)
    two = engine_memory(hw, llm, GpuSplit(2.0, 1.0), 8192.0)
    assert two == pytest.approx(2 * (0.6e9 + activations / 2 + sampled))


def test_a_small_gpu_has_smaller_defaults() -> None:
    assert of_engine(under("vllm"), "chunk") == 8192
    assert of_engine(under("vllm", "rtx-4090-box"), "chunk") == 2048
    assert of_engine(under("vllm", "rtx-4090-box"), "sequences") == 256
    assert of_engine(under("llama.cpp", "rtx-4090-box"), "chunk") == 512


def test_tokens_that_start_up_logs_print_are_met() -> None:
    """Qwen3-8B on an A100, Qwen3-235B in FP8 on four H100; gpt-oss-120b on one does not start."""
    measured = {"qwen3-8b": 389_872, "qwen3-235b-a22b": 178_880}
    for name, bed, gpus in (("qwen3-8b", "hgx-a100", 1.0), ("qwen3-235b-a22b", "hgx-h100", 4.0)):
        hw = load_platform(bed).machine().with_values({"gpu.count": gpus})
        llm = model(name)
        if gpus > 1:
            llm = replace(llm, weight_width=1.0, head_width=2.0)
        tp = GpuSplit(gpus, 1.0)
        kept = engine_memory(hw, llm, tp, of_engine(hw, "chunk"))
        free = usable_memory(hw) - tp.weight_bytes(llm) - kept
        assert free / (llm.layers * llm.kv_bytes(1, 1)) == pytest.approx(measured[name], rel=0.25)
    hw = load_platform("hgx-h100").machine().with_values({"gpu.count": 1.0})
    llm, alone = model("gpt-oss-120b"), GpuSplit(1.0, 1.0)
    assert 69.1e9 <= alone.weight_bytes(llm, hw.engine.padding) <= 70.8e9
    assert usable_memory(hw) < alone.weight_bytes(llm, 256.0) + engine_memory(
        hw, llm, alone, 8192.0
    )


def test_llama_cpp_keeps_token_embeddings_in_the_memory_of_the_host() -> None:
    """128,256 words of 4,096 in 16 bits beside a card; one memory holds them either way."""
    llm = model("llama3.1-8b")
    assert looked_up_on_host(under("llama.cpp", "rtx-4090-box"), llm) == 128_256 * 4_096 * 2
    assert looked_up_on_host(under("vllm", "rtx-4090-box"), llm) == 0
    assert looked_up_on_host(under("llama.cpp", "strix-halo"), llm) == 0


def test_prompts_take_the_path_of_the_engine() -> None:
    """llama.cpp streams experts from 32 tokens on, KTransformers from 4,096."""
    system, llm = SYSTEMS["expert-offload"], model("qwen3-30b-a3b")

    def prefill(engine: str, prompt: float, **knobs: float) -> float:
        hw = under(engine, "workstation-5090")
        asked = {"gpu_experts": 0.0, "experts": 0.0, "chunk": 8192.0, **knobs}
        return float(system(hw, llm, Workload(1.0, prompt, 2.0), asked).prefill.seconds)

    for engine, few, many in (("llama.cpp", 31.0, 32.0), ("ktransformers", 4095.0, 4096.0)):
        assert prefill(engine, few) == prefill(engine, few, prompts=0.0)
        assert prefill(engine, many) == prefill(engine, many, prompts=1.0)


def test_one_memory_holds_what_gpu_and_host_hold_together() -> None:
    words = [
        "--platform",
        "strix-halo",
        "--model",
        "deepseek-v3",
        "--batch",
        "1",
        "--context",
        "1k",
    ]
    more = ["--set", "precision.weight=q2_k", "--set", "host.memory=128GB"]
    told = succeed(
        "compare", "expert-offload", *words, *more, "--columns", "status,short_of", code=3
    )
    assert "infeasible" in told
    assert "both" in told
    told = succeed("estimate", "expert-offload", *words, *more, code=3)
    assert "gpu.pool = 137 GB would do." in told


def test_an_8_bit_cache_of_chosen_latents_keeps_scales_and_the_rotated_part() -> None:
    """48,068 B a token: 61 x (512 + 4 x 4 + 64 x 2 + 128 + 4); SGLang logs 48,071."""
    llm = model("deepseek-v3.2")
    narrow = {name: replace(kind, kv_width=1.0) for name, kind in llm.layer_types.items()}
    held = sum(kind.layers * kind.kv_bytes(1, 1) for kind in narrow.values())
    assert held == 61 * (512 + 4 * 4 + 64 * 2 + 128 + 4)


def test_formats_and_roles_can_be_asked_for() -> None:
    told = succeed("hardware", "formats", "--format", "csv")
    for words in ("int4,4.125", "a bare 4bit", "a bare 8bit", "fp4,4,", "nvfp4,4.5"):
        assert words in told
    assert "bandwidth" in succeed("hardware", "keys", "gpu_link", "--format", "csv")
    assert "did you mean 'engine'" in refusal("hardware", "keys", "engines")
