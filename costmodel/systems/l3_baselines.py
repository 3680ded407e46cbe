"""Baselines of L3: GPUs alone, with the CPU, with units in HBM or at the ranks of DIMMs.

Source: L3 sec. 2.6, 6.1; the paper names them and prints no equations.

Symbols: n decoding sequences, N resident, Ng and Nc of them on the GPU and the CPU, L layers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from nearkv.costmodel.algebra.span import Port, Real, Span, overlap, quotient, serial
from nearkv.costmodel.mechanisms.serving.cpu_share import (
    balanced_share,
    beyond_gpus,
    capacities,
    served,
    shared_layer,
    takes_excess,
)
from nearkv.costmodel.mechanisms.serving.dimm import (
    KV_PLACEMENT,
    dimm_capacity,
    dimms,
    fullest_rankset,
)
from nearkv.costmodel.mechanisms.serving.fluid import POLICY, steady
from nearkv.costmodel.mechanisms.serving.parallel import (
    CHUNK,
    activations_and_buffers,
    all_prompts_alone,
    beside_weights,
    copies,
    data_parallel,
    gpu_cache,
    in_use,
    on_gpus,
    paired,
    products_and_states,
    prompt_in_flight,
    prompts_to_dimms,
    ring,
    tensor_parallel,
)
from nearkv.costmodel.mechanisms.serving.request_bytes import (
    cache_bytes,
    cache_needed,
    longest_requests,
    request_bytes,
    seen_by_type,
    tokens_beside_states,
    tokens_held,
    weights_and_states,
)
from nearkv.costmodel.mechanisms.serving.residents import resident
from nearkv.costmodel.model.estimate import Estimate, Fits, fits
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, Reversal, choice, system
from nearkv.costmodel.model.resources import gpu
from nearkv.costmodel.model.workload import Load, Serving, Workload, over_layer_types
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
    hw = served(hw, llm, work)

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


SUB_BATCHES = choice(
    "two sub-batches in turn (L3 sec. 6.1, NeuPIMs), or one batch (AttAcc)",
    ("off", "on"),
    default=1,
)

FEWER_AT_ONCE = Reversal(
    ("step_ms", "total_s"),
    ("context", "output_tokens"),
    "as many run at once as fit; rounds of fewer, each in two sub-batches, may be faster",
)


@system(
    "hbm-pim",
    variant_of="l3",
    technology="HBM with units",
    owns=("gpu", "host"),
    knobs={"chunk": CHUNK, "interleave": SUB_BATCHES, "policy": POLICY},
    reversals=(ring("gpu.count"), FEWER_AT_ONCE),
)
def hbm_pim(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    interleave: Real,
    policy: Real,
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

    def layer(layer_type: LLM, load: Load) -> Span:
        head_copies = copies(layer_type, tensor_parallel(hw, llm))

        def parts(part: Load) -> dict[str, Span]:
            cache = head_copies * layer_type.kv_bytes(part.tokens, 1)
            return {
                "gpu": products_and_states(hw, llm, part, layer_type),
                "pim": banks(cache, "kappa tokens / L"),
            }

        in_turns = interleave * paired(load.sequences, data_parallel(hw, llm))
        return serial(
            interleaved=2 * in_turns * overlap(**parts(load.share(0.5))),
            one_batch=(1 - in_turns) * serial(**parts(load)),
        )

    kept = partial(on_gpus, hw, llm)
    serving = Serving(
        iteration=lambda load: over_layer_types(llm, load, layer),
        prefill=lambda prompts, load: all_prompts_alone(hw, llm, work.chunk, prompts, load),
        capacity=tokens_held(beside_weights(hw, llm, work), llm, work, policy, kept),
        replicas=data_parallel(hw, llm),
        reserve=policy,
        by_type=seen_by_type(llm, work),
    )
    needed = {
        "weights": serving.replicas * llm.weight_bytes,
        "activations and buffers": activations_and_buffers(hw, llm, work),
        "KV cache and states": cache_needed(llm, work, serving, kept),
    }
    return steady(work, serving, fits(gpu=(needed, gpu(hw).memory)))


@system(
    "rank-pim",
    variant_of="l3",
    knobs={"chunk": CHUNK, "homes": KV_PLACEMENT, "policy": POLICY},
    reversals=(ring("gpu.count"),),
)
def rank_pim(
    hw: Machine, llm: LLM, work: Workload, *, homes: Real, policy: Real
) -> Estimate:
    """Attention at the ranks of DIMMs, one batch, prompts first, transfers hidden (Hermes, R-PIM).

    In one layer a request's KV lies on one rank of each channel, by default a random one: the even
    layout is what L3 adds (sec. 5.1).

    Args:
        hw: roles gpu, nvlink, gpu_link, dimm.
        llm, work: what runs.
        homes: 0 random, 1 balanced, 2 the least loaded rankset in each layer.
        policy: 0 paged, 1 reserve.

    Returns:
        Prefill, one decode step of all rounds, and what fits. Source: L3 sec. 2.6, 6.1.
    """
    hosted = longest_requests(dimm_capacity(hw), llm, work)
    hw = in_use(hw, llm, most=np.minimum(hosted, work.batch))
    memory = dimms(hw)

    def layer(layer_type: LLM, load: Load) -> Span:
        return serial(
            linear=products_and_states(hw, llm, load, layer_type),
            attention=memory.ranks(
                layer_type.kv_bytes(load.hottest, 1), "kappa tokens / L"
            ),
        )

    serving = Serving(
        iteration=lambda load: over_layer_types(llm, load, layer),
        prefill=lambda prompts, load: prompts_to_dimms(hw, llm, work, prompts, load),
        capacity=tokens_beside_states(hw, llm, work, memory.capacity, policy),
        replicas=data_parallel(hw, llm),
        reserve=policy,
        skew=fullest_rankset(hw, homes, at_once=lambda sequences: sequences),
        by_type=seen_by_type(llm, work),
    )
    memories = fits(
        gpu=(
            weights_and_states(llm, work, serving) | prompt_in_flight(hw, llm, work),
            gpu(hw).memory,
        ),
        dimm=({"KV cache": cache_needed(llm, work, serving)}, memory.capacity),
    )
    return replace(steady(work, serving, memories), attention={"dimm": 1.0})
