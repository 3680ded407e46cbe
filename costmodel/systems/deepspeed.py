"""DeepSpeed ZeRO-Inference with unified virtual memory (HILOS sec. 6.1, 6.3).

Symbols: b batch, s context, L layers.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from nearkv.costmodel.capacity import fits, reduced_batch
from nearkv.costmodel.compose import overlap, serial
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.offload import (
    linear_step,
    load_weights,
    prefill_compute,
    weights_on_storage,
    with_head,
)
from nearkv.costmodel.registry import system
from nearkv.costmodel.resources import drives, gpu, host, link
from nearkv.costmodel.span import Port
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine


@system("deepspeed-uvm", platform="hilos-a100", cite="hilos", owns=("gpu", "host", "ssd"))
def deepspeed_uvm(hw: Machine, llm: LLM, work: Workload) -> Estimate:
    """DeepSpeed whose KV cache and activations live in managed memory and move by page faults, DS+UVM(DRAM).

    The paper gives the effect, over 4x slower than FLEX(DRAM), not the path. Here tensors that
    exceed GPU memory are managed: attention touches the whole KV cache once a step, and prefill,
    one prompt at a time, touches each spilled activation twice (out and back), at the rate page
    faults allow.

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link; derate uvm.
        llm, work: what runs.

    Returns:
        Prefill, one decode step and what fits, over all rounds of the reduced batch.
        Source: HILOS sec. 6.1, 6.3.
    """
    s, layers = work.context, llm.layers
    gpu_, host_, gpu_link = gpu(hw), host(hw), link(hw, "gpu_link", "pcie")
    faults = Port("gpu_link.in", "move", hw.gpu_link.count * hw.gpu_link.bandwidth * hw.derate.uvm)
    store, lanes = drives(hw, "ssd"), link(hw, "ssd_link", "pcie")
    on_storage = weights_on_storage(hw, llm)
    way: dict[str, Port] = {"flash": store.read, "link": lanes.inward, "file": host_.file}
    in_dram = (1 - on_storage) * llm.weight_bytes
    activations = llm.activation_bytes(work.prompt)
    per_sequence = layers * llm.kv_bytes(1, work.final) + activations
    b = reduced_batch(work.batch, per_sequence, host_.memory - in_dram)
    spilled = b * np.maximum(llm.weight_buffer_bytes() + activations - gpu_.memory, 0.0)
    load = partial(load_weights, on_storage=on_storage, storage=way, host=host_, gpu_link=gpu_link)
    layer = serial(
        linear=linear_step(llm, b, gpu_, load(llm.layer_weight_bytes(b))),
        attention=overlap(
            faults=faults(llm.kv_bytes(b, s), "KV cache by page faults"),
            compute=gpu_.run(llm.attention_flops(b, s), "4 b s H d"),
        ),
    )
    prefill = overlap(
        weights=load(llm.layer_weight_bytes(b * work.prompt)),
        compute=prefill_compute(llm, work, b, gpu_),
        faults=faults(2 * spilled, "activations that exceed the GPU, out and back"),
        cache=gpu_link.outward(llm.kv_bytes(b, work.prompt), "4bsh"),
    )
    rounds = work.batch / b
    return Estimate(
        prefill=rounds * with_head(llm, prefill, b, gpu_, load),
        step=rounds * with_head(llm, layer, b, gpu_, load),
        fits=fits(
            gpu=(llm.weight_buffer_bytes(), gpu_.memory),
            host=(in_dram + b * per_sequence, host_.memory),
            ssd=(on_storage * llm.weight_bytes, store.capacity),
        ),
        work=work,
        batch_run=b,
    )
