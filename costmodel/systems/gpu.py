"""GPUs alone, and GPUs with the CPU attending to what they cannot hold: baselines of L3 (sec. 6.1).

Symbols: N resident, Ng and Nc of them on the GPU and the CPU, L layers.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from nearkv.costmodel.capacity import Fits, fits
from nearkv.costmodel.compose import overlap, serial
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.cpu_share import (
    at_share,
    balanced_share,
    host_attention,
    served,
)
from nearkv.costmodel.mechanisms.fluid import POLICY, resident, steady
from nearkv.costmodel.mechanisms.mixed_queue import cache_needed, room_in, seen_by_kinds
from nearkv.costmodel.mechanisms.serving import (
    LACKS,
    NO_INDEXER,
    all_prompts_alone,
    beside_weights,
    data_parallel,
    decode_attention,
    gpu_room,
    in_use,
    kv_token_bytes,
    linear,
    on_gpus,
    prompts_alone,
)
from nearkv.costmodel.queue import Load, Serving, over_kinds
from nearkv.costmodel.registry import Knob, system
from nearkv.costmodel.resources import gpu
from nearkv.costmodel.span import Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine


@system(
    "gpu-only",
    platform="dgx-a100-pim",
    cite="l3",
    owns=("gpu", "host"),
    attends=("full", "window", "chunk", "latent", "state"),
    lacks=NO_INDEXER,
    knobs={"policy": POLICY},
)
def gpu_only(hw: Machine, llm: LLM, work: Workload, *, policy: Real) -> Estimate:
    """Weights and KV cache in GPU memory, tensor and data parallel; prompts come first.

    Args:
        hw: roles gpu, nvlink.
        llm, work: what runs.
        policy: 0 paged, 1 reserve.

    Returns:
        Prefill, one decode step of all rounds, and what fits. Source: L3 sec. 6.1 (no equations).
    """
    hw = in_use(hw, llm)

    def layer(kind: LLM, load: Load) -> Span:
        return serial(
            linear=linear(hw, llm, load.sequences, kind=kind),
            attention=decode_attention(hw, llm, load.sequences, load.tokens, kind),
        )

    kept = partial(on_gpus, hw, llm)
    serving = Serving(
        iteration=lambda load: over_kinds(llm, load, layer),
        prefill=lambda prompts, load: all_prompts_alone(hw, llm, prompts, load),
        room=room_in(beside_weights(hw, llm), llm, work, policy, kept),
        replicas=data_parallel(hw, llm),
        reserve=policy,
        kinds=seen_by_kinds(llm, work),
    )
    cache = cache_needed(llm, work, serving, kept)
    needed = serving.replicas * llm.weight_bytes + cache
    return steady(work, serving, fits(gpu=(needed, gpu(hw).memory)))


CPU_SHARE = Knob(
    "share of resident requests whose KV and attention are the CPU's (1: FastDecode)",
    default="balanced",
    # the amounts are not affine in the share, and the rule is exact: auto means the rule
    rules={"balanced": balanced_share, "auto": balanced_share},
)


@system(
    "cpu-offload",
    platform="dgx-a100-pim",
    cite="l3",
    owns=("gpu", "host"),
    lacks=LACKS,
    knobs={"cpu_share": CPU_SHARE},
)
def cpu_offload(hw: Machine, llm: LLM, work: Workload, *, cpu_share: Real) -> Estimate:
    """GPUs hold what KV they can, the CPU attends to the rest beside them (NEO, FastDecode).

    Idealised in its favour: both sides run at once with the weights read once an iteration, where
    NEO's two sub-batches read them twice, and no transfer is exposed.

    Args:
        hw: roles gpu, nvlink, host.
        llm, work: what runs.
        cpu_share: share of the residents with the CPU [1].

    Returns:
        Prefill, one decode step of all rounds, and what fits. Source: L3 sec. 2.6, 6.1.
    """
    hw = served(hw, llm, work)
    gpu_share = 1 - cpu_share
    host_room = hw.host.memory / kv_token_bytes(llm)

    def iteration(load: Load) -> Span:
        sequences, tokens = gpu_share * load.sequences, gpu_share * load.tokens
        on_gpu = serial(
            linear=linear(hw, llm, load.sequences),
            attention=decode_attention(hw, llm, sequences, tokens),
        )
        on_cpu = host_attention(hw)(
            cpu_share * llm.kv_bytes(1, load.tokens), "kappa tokens / L"
        )
        return llm.layers * overlap(gpu=on_gpu, cpu=on_cpu)

    room = np.minimum(
        at_share(gpu_room(hw, llm), gpu_share),
        at_share(host_room, cpu_share),
    )
    serving = Serving(
        iteration=iteration,
        prefill=lambda prompts, load: llm.layers * prompts_alone(hw, llm, prompts, load),
        room=room,
        replicas=data_parallel(hw, llm),
        longest_room=host_room,
    )
    return steady(work, serving, both_memories(hw, llm, work, serving, cpu_share))


def both_memories(
    hw: Machine, llm: LLM, work: Workload, serving: Serving, cpu_share: Real
) -> Fits:
    """What GPUs and host hold; a request too long for the GPUs of a replica lives in the host."""
    replicas, kappa = serving.replicas, kv_token_bytes(llm)
    tokens = resident(work, serving) * work.context
    longest = replicas * work.longest
    too_long = np.where(gpu_room(hw, llm) < longest, longest, 0.0)
    on_gpu = replicas * llm.weight_bytes + kappa * (1 - cpu_share) * tokens
    on_host = kappa * np.maximum(cpu_share * tokens, too_long)
    return fits(gpu=(on_gpu, gpu(hw).memory), host=(on_host, hw.host.memory))
