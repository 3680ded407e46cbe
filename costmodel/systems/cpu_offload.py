"""The baseline of L3 whose CPU attends to what GPUs do not hold.

Source: L3 sec. 2.6, 6.1; the paper names it and prints no equations.

Symbols: n residents, m mean size of one, l longest, c CPU share of them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from nearkv.costmodel.algebra.span import Real, quotient
from nearkv.costmodel.mechanisms.serving.cpu_share import (
    balanced_share,
    beyond_gpus,
    capacities,
    shared_layer,
    takes_excess,
    with_requests,
)
from nearkv.costmodel.mechanisms.serving.engines import CHUNK
from nearkv.costmodel.mechanisms.serving.fluid import steady
from nearkv.costmodel.mechanisms.serving.parallel import (
    activations_and_buffers,
    all_prompts_alone,
    data_parallel,
    gpu_cache,
    ring,
)
from nearkv.costmodel.mechanisms.serving.request_bytes import (
    cache_bytes,
    request_bytes,
    seen_by_type,
    tokens_held,
)
from nearkv.costmodel.mechanisms.serving.residents import resident
from nearkv.costmodel.model.estimate import Estimate, Fits, fits
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, Reversal, system
from nearkv.costmodel.model.resources import gpu
from nearkv.costmodel.model.workload import Serving, Workload, over_layer_types
from nearkv.hardware.machine import Machine

CPU_LACKS = {
    "latent": "no rate is known of a CPU that attends to latents",
    "sparse": "no rate is known of a CPU that chooses tokens",
}


CPU_SHARE = Knob(
    "share of resident requests whose KV and attention are the CPU's (1: FastDecode)",
    default="balanced",
    # amounts are not affine in it; the rule is exact for an iteration of mean requests, and over
    # the run of a trace, or where requests arrive, `auto` may be faster
    kind="number",
    rules={"balanced": balanced_share},
)

STATED_SHARE = Reversal(
    ("status",),
    ("gpu.count", "gpu.memory"),
    "requests lie in host memory by a share, and larger GPUs set idle replicas to work",
)


@system(
    "cpu-offload",
    variant_of="l3",
    technology="host memory",
    owns=("gpu", "host"),
    lacks=CPU_LACKS,
    knobs={"chunk": CHUNK, "cpu_share": CPU_SHARE},
    reversals=(ring("gpu.count"), STATED_SHARE),
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
    hw = with_requests(hw, llm, work)

    layer = partial(shared_layer, hw, llm, cpu_share)
    serving = Serving(
        iteration=lambda load: over_layer_types(llm, load, layer),
        prefill=lambda prompts, load: all_prompts_alone(hw, llm, work.chunk, prompts, load),
        capacity=capacities(hw, llm, work).holding(cpu_share) * work.context,
        replicas=data_parallel(hw, llm),
        longest_capacity=np.greater(cpu_share, 0)
        * tokens_held(hw.host.memory, llm, work, 0.0),
        by_type=seen_by_type(llm, work),
        in_parts=True,
    )
    memories = both_memories(hw, llm, work, serving, cpu_share)
    shares = {"gpu": 1 - cpu_share, "host": cpu_share}
    return replace(steady(work, serving, memories), attention=shares)


def both_memories(
    hw: Machine, llm: LLM, work: Workload, serving: Serving, cpu_share: Real
) -> Fits:
    """Bytes on GPUs and host of n residents of mean size m, the longest of each replica l.

    GPUs: W + max((1 - c) n m, l unless the CPU takes it) + states; host: max(c n m, l if it is
    there). The CPU can take the longest request if its share covers all that exceeds the GPUs, and
    holds all of it if it is too long for them. If the share is smaller than that, the longest
    request fits nowhere. Recurrent states, which the CPU does not update, stay on the GPUs.
    """
    replicas, residents = serving.replicas, resident(work, serving)
    size = request_bytes(llm, work, cache_bytes)
    cached, longest = residents * size.mean, replicas * size.longest
    cpu_takes = takes_excess(hw, llm, work, cpu_share)
    in_host = cpu_takes & beyond_gpus(hw, llm, work)
    on_gpu = np.maximum((1 - cpu_share) * cached, ~cpu_takes * longest)
    on_host = np.maximum(cpu_share * cached, in_host * longest)
    kept = gpu_copies(hw, llm) * on_gpu
    gpu_need = {
        "weights": replicas * llm.weight_bytes,
        "activations and buffers": activations_and_buffers(hw, llm, work),
        "KV cache": kept,
    }
    if llm.layer_types:
        gpu_need["recurrent states"] = residents * llm.all_state_bytes(1)
    return fits(
        gpu=(gpu_need, gpu(hw).memory),
        host=({"KV cache": on_host}, hw.host.memory),
    )


def gpu_copies(hw: Machine, llm: LLM) -> Real:
    """Times that GPUs keep a token's cache, over the types of layers that keep one [1]."""
    kept = llm.sum_over_layers(lambda layer_type: gpu_cache(hw, llm, layer_type, 1.0))
    cached = llm.sum_over_layers(lambda layer_type: layer_type.kv_bytes(1, 1.0))
    return quotient(kept, cached)
