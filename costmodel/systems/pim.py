"""GPUs with units in their HBM, or at the ranks of host DIMMs: baselines of L3 (sec. 2.6, 6.1).

Symbols: n decoding sequences, L layers.
"""

from __future__ import annotations

from nearkv.costmodel.capacity import fits
from nearkv.costmodel.compose import overlap, serial
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.dimm import dimms
from nearkv.costmodel.mechanisms.fluid import POLICY, memory_needed, steady, switch
from nearkv.costmodel.mechanisms.serving import (
    LACKS,
    data_parallel,
    gpu_room,
    in_use,
    kv_token_bytes,
    linear,
    prompts_alone,
    prompts_to_dimms,
)
from nearkv.costmodel.queue import Load, Serving
from nearkv.costmodel.registry import system
from nearkv.costmodel.resources import gpu
from nearkv.costmodel.span import Port, Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine

SUB_BATCHES = switch(
    "two sub-batches in turn (L3 sec. 6.1, NeuPIMs), or one batch (AttAcc)"
)


@system(
    "hbm-pim",
    platform="dgx-a100-pim",
    cite="l3",
    owns=("gpu", "host"),
    lacks=LACKS,
    knobs={"interleave": SUB_BATCHES, "policy": POLICY},
)
def hbm_pim(
    hw: Machine, llm: LLM, work: Workload, *, interleave: Real, policy: Real
) -> Estimate:
    """Attention at the banks of HBM, two sub-batches in turn, prompts first (NeuPIMs, AttAcc).

    While one sub-batch computes on the GPU the other attends in memory, max(fc(b0), a1) +
    max(fc(b1), a0): every sub-batch reads the weights. Double row buffers let both use the HBM at
    once (sec. 6.1), so the banks are a resource of their own. One batch takes fc(b) + a.

    Args:
        hw: roles gpu (with pim_bandwidth), nvlink.
        llm, work: what runs.
        interleave: 1 two sub-batches, 0 one batch.
        policy: 0 paged, 1 reserve.

    Returns:
        Prefill, one decode step of all rounds, and what fits. Source: L3 sec. 2.6, 6.1, Table 2.
    """
    hw = in_use(hw, llm)
    banks = Port("gpu.banks", "read", hw.gpu.count * hw.gpu.pim_bandwidth)

    def iteration(load: Load) -> Span:
        half = load.share(0.5)
        phase = overlap(
            gpu=linear(hw, llm, half.sequences),
            pim=banks(llm.kv_bytes(1, half.tokens), "kappa tokens / L"),
        )
        one_batch = serial(
            gpu=linear(hw, llm, load.sequences),
            pim=banks(llm.kv_bytes(1, load.tokens), "kappa tokens / L"),
        )
        return llm.layers * serial(
            interleaved=(2 * interleave) * phase,
            one_batch=(1 - interleave) * one_batch,
        )

    serving = Serving(
        iteration=iteration,
        prefill=lambda prompts, load: llm.layers * prompts_alone(hw, llm, prompts, load),
        room=gpu_room(hw, llm),
        replicas=data_parallel(hw, llm),
        reserve=policy,
    )
    cache = kv_token_bytes(llm) * memory_needed(work, serving)
    needed = serving.replicas * llm.weight_bytes + cache
    return steady(work, serving, fits(gpu=(needed, gpu(hw).memory)))


@system(
    "rank-pim",
    platform="dgx-a100-pim",
    cite="l3",
    owns=("gpu", "host", "dimm"),
    lacks=LACKS,
    knobs={"policy": POLICY},
)
def rank_pim(hw: Machine, llm: LLM, work: Workload, *, policy: Real) -> Estimate:
    """Attention at the ranks of DIMMs, one batch, prompts first, transfers hidden (Hermes, R-PIM).

    Args:
        hw: roles gpu, nvlink, gpu_link, dimm.
        llm, work: what runs.
        policy: 0 paged, 1 reserve.

    Returns:
        Prefill, one decode step of all rounds, and what fits. Source: L3 sec. 2.6, 6.1.
    """
    memory, kappa = dimms(hw), kv_token_bytes(llm)
    hw = in_use(hw, llm, most=memory.capacity / (kappa * work.longest))

    def iteration(load: Load) -> Span:
        return llm.layers * serial(
            linear=linear(hw, llm, load.sequences),
            attention=memory.ranks(llm.kv_bytes(1, load.tokens), "kappa tokens / L"),
        )

    serving = Serving(
        iteration=iteration,
        prefill=lambda prompts, load: prompts_to_dimms(hw, llm, prompts, load),
        room=memory.capacity / kappa,
        replicas=data_parallel(hw, llm),
        reserve=policy,
    )
    memories = fits(
        gpu=(serving.replicas * llm.weight_bytes, gpu(hw).memory),
        dimm=(kappa * memory_needed(work, serving), memory.capacity),
    )
    return steady(work, serving, memories)
