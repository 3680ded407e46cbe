"""DeepSpeed ZeRO-Inference with unified virtual memory (HILOS sec. 6.1, 6.3).

Symbols: b batch, s context, L layers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nearkv.costmodel.algebra.span import ByName, Port, Real, Span, overlap
from nearkv.costmodel.mechanisms.gpu_layer import (
    gpu_contents,
    gpu_working_set,
    prefill_compute,
)
from nearkv.costmodel.mechanisms.prompt_chunks import chunk_knob, tokens_before
from nearkv.costmodel.mechanisms.weights.residency import (
    FILLED,
    LEAST_IN_ALL,
    SSD_WEIGHTS,
    WEIGHTS,
    Headroom,
    Residency,
    dram_or_drives,
    overflow,
    room_for_prompts,
)
from nearkv.costmodel.mechanisms.weights.streaming import (
    ATTENDS,
    WeightStream,
    drives_of,
    weights_from,
)
from nearkv.costmodel.model.estimate import (
    Estimate,
    batch_with_states,
    fits,
    possible_batches,
    reduced_batch,
)
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import system
from nearkv.costmodel.model.resources import host
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine


def rounds_breaks(hw: Machine, llm: LLM, work: Workload, knobs: ByName) -> tuple[Real, ...]:
    """Shares of weights on the drives at which DRAM begins to hold more sequences at once [1]."""
    tiers = residency(hw, llm, work, knobs.get("weights", FILLED), 0.0)
    streamed = np.maximum((1 - tiers.gpu) * llm.weight_bytes, 1.0)
    sequence = managed_bytes(llm, work)
    rooms = [host(hw).memory - b * sequence for b in possible_batches(work.batch)]
    return (overflow(tiers), *(1 - room / streamed for room in rooms))


@system(
    "deepspeed-uvm",
    platform="hilos-a100",
    cite="hilos",
    technology="host memory",
    owns=("gpu", "host", "ssd"),
    knobs={
        "chunk": chunk_knob(room_for_prompts, default=0),
        "weights": WEIGHTS,
        "ssd_weights": replace(SSD_WEIGHTS, breaks=rounds_breaks),
    },
    attends=ATTENDS,
    lacks={
        "sparse": "page faults bring pages, and how chosen tokens share them is not known"
    },
    reversals=(LEAST_IN_ALL,),
)
def deepspeed_uvm(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    weights: Real,
    ssd_weights: Real,
) -> Estimate:
    """DeepSpeed whose KV cache and activations live in managed memory, DS+UVM(DRAM).

    The paper gives the effect, over 4x slower than FLEX(DRAM), not the path. Here tensors that
    exceed GPU memory are managed: attention touches the whole KV cache once a step, and prefill,
    one prompt at a time, touches each spilled activation twice (out and back), at the rate page
    faults allow. Managed memory holds what the GPU does not, so prompts are whole by default; each
    chunk of a prompt would pass all layers, whose weights come anew.

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link; derate uvm.
        llm, work: what runs.
        weights: where weights live, as in `mechanisms.weights.residency`.
        ssd_weights: least share on the drives of what is not on the GPU [1].

    Returns:
        Prefill, one decode step and what fits, over all rounds of the reduced batch.
        Source: HILOS sec. 6.1, 6.3.
    """
    drives = drives_of(hw)
    activations = llm.activation_bytes(work.together)
    cache = llm.kv_cache_bytes(1, work.final)
    sequence = managed_bytes(llm, work)
    tiers = residency(hw, llm, work, weights, ssd_weights)
    streamed = weights_from(hw, llm, tiers, drives.read)
    in_dram = tiers.host * llm.weight_bytes
    hosted = reduced_batch(work.batch, sequence, streamed.host.memory - in_dram)
    working = gpu_working_set(llm, work.together, tiers.gpu)
    excess = working - streamed.gpu.memory
    # activations can be paged out for states, which cannot
    b = batch_with_states(
        hosted, work.batch, llm.all_state_bytes(1.0), activations - excess
    )
    # the GPU's link at the rate at which page faults move managed memory
    rate = hw.gpu_link.count * hw.gpu_link.bandwidth * hw.derate.uvm
    faults = Port("gpu_link.in", "move", rate)
    spilled = faults(
        2 * b * work.chunks * np.maximum(excess, 0.0),
        "activations beyond the GPU, out and back",
    )
    prefill = streamed.over_layers(
        lambda layer_type: prefill_layer(layer_type, work, b, spilled, faults), b
    )
    step = streamed.over_layers(
        lambda layer_type: decode_layer(layer_type, b, work.context, faults), b
    )
    rounds = work.batch / b
    return Estimate(
        prefill=rounds * prefill,
        step=rounds * step,
        fits=fits(
            gpu=(gpu_contents(llm, 0.0, tiers.gpu, b), streamed.gpu.memory),
            host=(
                {
                    "weights": in_dram,
                    "KV cache": b * cache,
                    "activations of all prompts": b * activations,
                },
                streamed.host.memory,
            ),
            ssd=({"weights": tiers.storage * llm.weight_bytes}, drives.capacity),
        ),
        work=work,
        batch_run=b,
    )


def managed_bytes(llm: LLM, work: Workload) -> Real:
    """Host memory behind the KV cache and the activations of one sequence [B]."""
    return llm.kv_cache_bytes(1, work.final) + llm.activation_bytes(work.together)


def residency(
    hw: Machine, llm: LLM, work: Workload, choice: Real, stored: Real
) -> Residency:
    """Weights where the choice puts them beside one sequence, a share on the drives at least."""
    left = host(hw).memory - managed_bytes(llm, work)
    return dram_or_drives(
        hw, llm, work, choice, Headroom(left, stored=stored, pinned=False)
    )


def prefill_layer(
    weights: WeightStream, work: Workload, b: Real, spilled: Span, faults: Port
) -> Span:
    """One layer over all prompts beside spilled activations; its K and V leave the GPU.

    Attention of later chunks touches K and V of earlier ones by page faults.
    """
    llm, later = weights.llm, (work.chunks - 1) * b
    packed = work.chunks * llm.layer_weight_bytes(b * work.together)
    earlier = llm.kv_bytes(later, tokens_before(work))
    return overlap(
        weights=weights.load(packed),
        compute=prefill_compute(llm, work, b, weights.gpu),
        faults=spilled,
        cache=weights.link.outward(llm.kv_bytes(b, work.prompt), "4bsh"),
        earlier=faults(earlier, "KV of earlier chunks by page faults"),
    )


def decode_layer(weights: WeightStream, b: Real, s: Real, faults: Port) -> Span:
    """One layer of a step: its attention touches the KV cache by page faults."""
    llm = weights.llm
    if isinstance(llm, Recurrent):
        return weights.recurrent_layer(b)
    attention = overlap(
        faults=faults(llm.kv_bytes(b, s), "KV cache by page faults"),
        compute=weights.gpu.run(llm.attention_flops(b, s), "4 b s H d"),
    )
    return weights.layer(b, attention=attention)
