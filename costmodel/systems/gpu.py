"""GPUs alone, and GPUs with the CPU attending to what they cannot hold: baselines of L3 (sec. 6.1).

Symbols: N resident, Ng and Nc of them on the GPU and the CPU, L layers.
"""

from __future__ import annotations

import numpy as np

from costmodel.capacity import fits
from costmodel.estimate import Estimate
from costmodel.llm import LLM
from costmodel.registry import Knob, system
from costmodel.resources import gpu
from costmodel.serving import (
    POLICY,
    Load,
    Serving,
    data_parallel,
    gpu_attention,
    gpu_room,
    kv_token_bytes,
    linear,
    memory_needed,
    prompts_alone,
    resident,
    steady,
)
from costmodel.span import Port, Real, Span, overlap, serial
from costmodel.workload import Workload
from hardware.machine import Machine

@system("gpu-only", platform="dgx-a100-pim", cite="l3", owns=("gpu", "host"), knobs={"policy": POLICY})
def gpu_only(hw: Machine, llm: LLM, work: Workload, *, policy: Real) -> Estimate:
    """Weights and KV cache in GPU memory, tensor and data parallel; prompts come first.

    Args:
        hw: roles gpu, nvlink.
        llm, work: what runs.
        policy: 0 paged, 1 reserve.

    Returns:
        Prefill, one decode step of all rounds, and what fits. Source: L3 sec. 6.1 (no equations).
    """

    def iteration(load: Load) -> Span:
        attention = gpu_attention(hw)
        return llm.layers * serial(
            linear=linear(hw, llm, load.sequences),
            attention=attention(llm.kv_bytes(1, load.tokens), "kappa tokens / L"),
        )

    serving = Serving(
        iteration,
        prefill=lambda prompts, load: llm.layers * prompts_alone(hw, llm, prompts, load),
        room=gpu_room(hw, llm),
        replicas=data_parallel(hw, llm),
        reserve=policy,
    )
    need = serving.replicas * llm.weight_bytes + kv_token_bytes(llm) * memory_needed(work, serving)
    return steady(work, serving, fits(gpu=(need, gpu(hw).memory)))


def cpu_attention(hw: Machine) -> Port:
    """Decode attention of the CPU, in KV bytes [B]."""
    return Port("host.dram", "read", hw.host.bandwidth * hw.derate.cpu_attention)


def balanced_share(hw: Machine, llm: LLM, work: Workload) -> Real:
    """Share of the residents whose KV stays with the CPU so that neither side waits (NEO's rule, min-max) [1].

    Nc grows until T_CPU(Nc) = T_GPU(Ng, Nc), with Ng all that the GPUs hold, or all the others
    where the batch is small. T_GPU is the larger of two lines (weights, FLOPs), so the crossing is
    the larger of two; only a full host memory stops earlier.
    """
    kv = kv_token_bytes(llm) * work.context
    most_gpu = np.minimum(gpu_room(hw, llm) / work.context, work.batch)
    most_cpu = hw.host.memory / kv
    cpu = cpu_attention(hw)(kv).seconds
    gpu_kv = gpu_attention(hw)(kv).seconds
    dp = data_parallel(hw, llm)
    one_each = linear(hw, llm, dp).parts
    products = one_each["products"].parts
    weights, flops = llm.layers * products["weights"].seconds, llm.layers * products["compute"].seconds / dp
    each = llm.layers * one_each["all_reduce"].seconds / dp
    fixed = llm.layers * (one_each["launch"].seconds + one_each["settle"].seconds)

    def crossing(floor: Real, slope: Real) -> Real:
        """Nc where the CPU takes floor + slope Nc; never where each request costs the GPU more."""
        return np.where(cpu > slope, floor / np.maximum(cpu - slope, 1e-30), np.inf)

    full = fixed + (gpu_kv + each) * most_gpu
    beside_full = np.maximum(crossing(weights + full, each), crossing(full + flops * most_gpu, flops + each))
    linear_all = np.maximum(weights, flops * work.batch) + each * work.batch
    all_served = (fixed + linear_all + gpu_kv * work.batch) / (cpu + gpu_kv)
    on_cpu = np.where(beside_full <= work.batch - most_gpu, beside_full, all_served)
    on_cpu = np.minimum(np.minimum(on_cpu, most_cpu), work.batch)
    on_gpu = np.minimum(most_gpu, work.batch - on_cpu)
    return on_cpu / np.maximum(on_cpu + on_gpu, 1e-30)


@system(
    "cpu-offload",
    platform="dgx-a100-pim",
    cite="l3",
    owns=("gpu", "host"),
    knobs={
        "cpu_share": Knob(
            "share of the resident requests whose KV and attention stay with the CPU (1: FastDecode)",
            default="balanced",
            # the rule is exact, and the amounts are not affine in the share: auto means the rule
            rules={"balanced": balanced_share, "auto": balanced_share},
        )
    },
)
def cpu_offload(hw: Machine, llm: LLM, work: Workload, *, cpu_share: Real) -> Estimate:
    """GPUs hold what KV they can, the CPU attends to the rest beside them (NEO; FastDecode at share 1).

    Idealised in its favour: both sides run at once with the weights read once an iteration, where
    NEO's two sub-batches read them twice, and no transfer is exposed.

    Args:
        hw: roles gpu, nvlink, host.
        llm, work: what runs.
        cpu_share: share of the residents with the CPU [1].

    Returns:
        Prefill, one decode step of all rounds, and what fits. Source: L3 sec. 2.6, 6.1.
    """
    host_room = hw.host.memory / kv_token_bytes(llm)

    def iteration(load: Load) -> Span:
        on_gpu, on_cpu = gpu_attention(hw), cpu_attention(hw)
        return llm.layers * overlap(
            gpu=serial(
                linear=linear(hw, llm, load.sequences),
                attention=on_gpu((1 - cpu_share) * llm.kv_bytes(1, load.tokens), "kappa tokens / L"),
            ),
            cpu=on_cpu(cpu_share * llm.kv_bytes(1, load.tokens), "kappa tokens / L"),
        )

    with np.errstate(divide="ignore"):
        room = np.minimum(np.divide(gpu_room(hw, llm), 1 - cpu_share), np.divide(host_room, cpu_share))
    serving = Serving(
        iteration,
        prefill=lambda prompts, load: llm.layers * prompts_alone(hw, llm, prompts, load),
        room=room,
        replicas=data_parallel(hw, llm),
        longest_room=host_room,
    )
    kappa, dp, held = kv_token_bytes(llm), serving.replicas, resident(work, serving) * work.context
    # a request too long for the GPUs of a replica lives in host memory
    too_long = np.where(gpu_room(hw, llm) < dp * work.longest, dp * work.longest, 0.0)
    memories = fits(
        gpu=(dp * llm.weight_bytes + kappa * (1 - cpu_share) * held, gpu(hw).memory),
        host=(kappa * np.maximum(cpu_share * held, too_long), hw.host.memory),
    )
    return steady(work, serving, memories)
