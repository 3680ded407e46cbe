"""GPUs with units in their HBM, or at the ranks of host DIMMs: baselines of L3 (sec. 2.6, 6.1).

Symbols: n decoding sequences, L layers.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from nearkv.costmodel.algebra.compose import overlap, serial
from nearkv.costmodel.algebra.span import Port, Real, Span
from nearkv.costmodel.mechanisms.serving.dimm import dimm_capacity, dimms
from nearkv.costmodel.mechanisms.serving.fluid import POLICY, steady, switch
from nearkv.costmodel.mechanisms.serving.parallel import (
    HEADS_AND_STATES,
    LACKS,
    all_prompts_alone,
    beside_weights,
    data_parallel,
    in_use,
    on_gpus,
    paired,
    products_and_states,
    prompts_to_dimms,
)
from nearkv.costmodel.mechanisms.serving.request_bytes import (
    cache_needed,
    longest_requests,
    room_beside_states,
    room_in,
    seen_by_kinds,
    weights_and_states,
)
from nearkv.costmodel.model.capacity import fits
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.queue import Load, Serving, over_kinds
from nearkv.costmodel.model.registry import system
from nearkv.costmodel.model.resources import gpu
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

SUB_BATCHES = switch(
    "two sub-batches in turn (L3 sec. 6.1, NeuPIMs), or one batch (AttAcc)"
)


@system(
    "hbm-pim",
    platform="dgx-a100-pim",
    cite="l3",
    owns=("gpu", "host"),
    attends=HEADS_AND_STATES,
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
    hw = in_use(hw, llm, most=work.batch)
    banks = Port("gpu.banks", "read", hw.gpu.count * hw.gpu.pim_bandwidth)

    def layer(kind: LLM, load: Load) -> Span:
        def parts(part: Load) -> dict[str, Span]:
            cache = kind.kv_bytes(part.tokens, 1)
            return {
                "gpu": products_and_states(hw, llm, part, kind),
                "pim": banks(cache, "kappa tokens / L"),
            }

        in_turns = interleave * paired(load.sequences, data_parallel(hw, llm))
        return serial(
            interleaved=2 * in_turns * overlap(**parts(load.share(0.5))),
            one_batch=(1 - in_turns) * serial(**parts(load)),
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


@system(
    "rank-pim",
    platform="dgx-a100-pim",
    cite="l3",
    owns=("gpu", "host", "dimm"),
    attends=HEADS_AND_STATES,
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
    hosted = longest_requests(dimm_capacity(hw), llm, work)
    hw = in_use(hw, llm, most=np.minimum(hosted, work.batch))
    memory = dimms(hw)

    def layer(kind: LLM, load: Load) -> Span:
        return serial(
            linear=products_and_states(hw, llm, load, kind),
            attention=memory.ranks(kind.kv_bytes(load.tokens, 1), "kappa tokens / L"),
        )

    serving = Serving(
        iteration=lambda load: over_kinds(llm, load, layer),
        prefill=lambda prompts, load: prompts_to_dimms(hw, llm, prompts, load),
        room=room_beside_states(hw, llm, work, memory.capacity, policy),
        replicas=data_parallel(hw, llm),
        reserve=policy,
        kinds=seen_by_kinds(llm, work),
    )
    memories = fits(
        gpu=(weights_and_states(llm, work, serving), gpu(hw).memory),
        dimm=(cache_needed(llm, work, serving), memory.capacity),
    )
    return steady(work, serving, memories)
