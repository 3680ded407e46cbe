"""GPUs with units in their HBM, and with units at the ranks of host DIMMs: baselines of L3 (sec. 2.6, 6.1).

Symbols: n decoding sequences, L layers.
"""

from __future__ import annotations

from nearkv.costmodel.capacity import fits
from nearkv.costmodel.compose import overlap, serial, stream
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.dimm import dimms
from nearkv.costmodel.mechanisms.serving import (
    POLICY,
    data_parallel,
    gpu_room,
    in_use,
    kv_token_bytes,
    linear,
    memory_needed,
    prompts_alone,
    steady,
)
from nearkv.costmodel.queue import Load, Serving
from nearkv.costmodel.registry import system
from nearkv.costmodel.resources import gpu, link
from nearkv.costmodel.span import Port, Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine


@system(
    "hbm-pim", platform="dgx-a100-pim", cite="l3", owns=("gpu", "host"), knobs={"policy": POLICY}
)
def hbm_pim(hw: Machine, llm: LLM, work: Workload, *, policy: Real) -> Estimate:
    """Attention at the banks of HBM, two sub-batches in turn, prompts first (NeuPIMs, AttAcc).

    While one sub-batch computes on the GPU the other attends in memory, max(fc(b0), a1) +
    max(fc(b1), a0): every sub-batch reads the weights. Double row buffers let both use the HBM at
    once (sec. 6.1), so the banks are a resource of their own.

    Args:
        hw: roles gpu (with pim_bandwidth), nvlink.
        llm, work: what runs.
        policy: 0 paged, 1 reserve.

    Returns:
        Prefill, one decode step of all rounds, and what fits. Source: L3 sec. 2.6, 6.1, Table 2.
    """
    hw = in_use(hw, llm)

    def iteration(load: Load) -> Span:
        half = load.share(0.5)
        banks = Port("gpu.banks", "read", hw.gpu.count * hw.gpu.pim_bandwidth)
        return (2 * llm.layers) * overlap(
            gpu=linear(hw, llm, half.sequences),
            pim=banks(llm.kv_bytes(1, half.tokens), "kappa tokens / L"),
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


@system(
    "rank-pim",
    platform="dgx-a100-pim",
    cite="l3",
    owns=("gpu", "host", "dimm"),
    knobs={"policy": POLICY},
)
def rank_pim(hw: Machine, llm: LLM, work: Workload, *, policy: Real) -> Estimate:
    """Attention at the ranks of DIMMs, one batch, prompts first, transfers hidden (Hermes as R-PIM).

    Args:
        hw: roles gpu, nvlink, gpu_link, dimm.
        llm, work: what runs.
        policy: 0 paged, 1 reserve.

    Returns:
        Prefill, one decode step of all rounds, and what fits. Source: L3 sec. 2.6, 6.1.
    """
    hw = in_use(hw, llm)
    memory, pcie = dimms(hw), link(hw, "gpu_link", "link")

    def iteration(load: Load) -> Span:
        return llm.layers * serial(
            linear=linear(hw, llm, load.sequences),
            attention=memory.ranks(llm.kv_bytes(1, load.tokens), "kappa tokens / L"),
        )

    def prefill(prompts: Real, load: Load) -> Span:
        return llm.layers * overlap(
            compute=prompts_alone(hw, llm, prompts, load),
            cache=stream(llm.kv_bytes(1, load.prompt), "4 D l", link=pcie.outward, bus=memory.bus),
        )

    kappa = kv_token_bytes(llm)
    serving = Serving(
        iteration,
        prefill,
        room=memory.capacity / kappa,
        replicas=data_parallel(hw, llm),
        reserve=policy,
    )
    memories = fits(
        gpu=(serving.replicas * llm.weight_bytes, gpu(hw).memory),
        dimm=(kappa * memory_needed(work, serving), memory.capacity),
    )
    return steady(work, serving, memories)
