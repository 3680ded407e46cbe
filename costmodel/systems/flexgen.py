"""FlexGen: offloading to host DRAM or storage with attention on the CPU (HILOS sec. 2.2, 6.1).

Symbols: b batch, s context, h hidden, L layers.
"""

from __future__ import annotations

from costmodel.capacity import fits, reduced_batch
from costmodel.estimate import Estimate
from costmodel.llm import LLM
from costmodel.offload import gpu_working_set, linear_step, load_weights, prefill_compute, weights_on_storage
from costmodel.registry import system
from costmodel.resources import Drives, Link, drives, gpu, host, link
from costmodel.span import Port, overlap, serial, stream
from costmodel.workload import Workload
from hardware.machine import Machine


def kv_on_storage(hw: Machine, llm: LLM, work: Workload, store: Drives, role: str, lanes: Link) -> Estimate:
    """KV cache on striped drives, read through the buffered file path, then attended to by the CPU.

    Reading a layer and attending to it are serial: the CPU attends to pages the file path has
    copied, and both run on the host (HILOS fig. 1b, steps 3 and 4).
    """
    b, s, layers = work.batch, work.context, llm.layers
    gpu_, host_, gpu_link = gpu(hw), host(hw), link(hw, "gpu_link", "pcie")
    on_storage = weights_on_storage(hw, llm)
    way: dict[str, Port] = {"flash": store.read, "link": lanes.inward, "file": host_.file}

    new_kv = llm.kv_bytes(b, 1)
    layer = serial(
        linear=linear_step(llm, b, gpu_, load_weights(llm.layer_weight_bytes(b), on_storage, way, host_, gpu_link)),
        exchange=overlap(
            qkv=gpu_link.outward(llm.query_bytes(b) + new_kv, "Q, K, V to the CPU"),
            result=gpu_link.inward(llm.query_bytes(b), "attention output"),
        ),
        attention=overlap(
            read_and_attend=serial(
                read=stream(llm.kv_bytes(b, s), "4sh, eq. 3", **way),
                attend=host_.attend(llm.kv_bytes(b, s), "CPU attention"),
            ),
            write=stream(new_kv, "4h, eq. 3", link=lanes.outward, flash=store.write),
        ),
    )
    prefill = overlap(
        weights=load_weights(llm.layer_weight_bytes(b * work.prompt), on_storage, way, host_, gpu_link),
        compute=prefill_compute(llm, work, b, gpu_),
        cache=stream(llm.kv_bytes(b, work.prompt), "4bsh", gpu=gpu_link.outward, link=lanes.outward, flash=store.write),
    )
    held = on_storage * llm.weight_bytes + layers * llm.kv_bytes(b, work.final)
    return Estimate(
        prefill=layers * prefill,
        step=layers * layer,
        fits=fits(
            gpu=(gpu_working_set(llm, work.prompt), gpu_.memory),
            host=((1 - on_storage) * llm.weight_bytes + 2 * llm.kv_bytes(b, work.final), host_.memory),
            **{role: (held, store.capacity)},
        ),
        work=work,
        batch_run=b,
    )


@system("flexgen-ssd", platform="hilos-a100", cite="hilos", owns=("gpu", "host", "ssd"))
def flexgen_ssd(hw: Machine, llm: LLM, work: Workload) -> Estimate:
    """FlexGen with the KV cache on PCIe 4.0 SSDs, FLEX(SSD) (HILOS sec. 6.1).

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link.
        llm, work: what runs.

    Returns:
        Prefill, one decode step and what fits. Source: HILOS sec. 2.2, 4.1.
    """
    return kv_on_storage(hw, llm, work, drives(hw, "ssd"), "ssd", link(hw, "ssd_link", "pcie"))


@system("flexgen-16ssd", platform="hilos-a100", cite="hilos", owns=("gpu", "host", "raid", "chassis"))
def flexgen_16ssd(hw: Machine, llm: LLM, work: Workload) -> Estimate:
    """FlexGen on the drives of 16 SmartSSDs, accelerators off, behind one uplink (HILOS sec. 6.1).

    Args:
        hw: roles gpu, gpu_link, host, raid, uplink.
        llm, work: what runs.

    Returns:
        Prefill, one decode step and what fits. Source: HILOS sec. 6.1, 6.3.
    """
    return kv_on_storage(hw, llm, work, drives(hw, "raid"), "raid", link(hw, "uplink", "uplink"))


@system("flexgen-dram", platform="hilos-a100", cite="hilos", owns=("gpu", "host", "ssd"))
def flexgen_dram(hw: Machine, llm: LLM, work: Workload) -> Estimate:
    """FlexGen with the KV cache in host DRAM and the batch cut to what fits, FLEX(DRAM) (HILOS sec. 6.1).

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link.
        llm, work: what runs.

    Returns:
        Prefill, one decode step and what fits, over all rounds of the reduced batch.
        Source: HILOS sec. 2.2, 6.3.
    """
    s, layers = work.context, llm.layers
    gpu_, host_, gpu_link = gpu(hw), host(hw), link(hw, "gpu_link", "pcie")
    store, lanes = drives(hw, "ssd"), link(hw, "ssd_link", "pcie")
    on_storage = weights_on_storage(hw, llm)
    way: dict[str, Port] = {"flash": store.read, "link": lanes.inward, "file": host_.file}
    per_sequence, in_dram = layers * llm.kv_bytes(1, work.final), (1 - on_storage) * llm.weight_bytes
    b = reduced_batch(work.batch, per_sequence, host_.memory - in_dram)

    layer = serial(
        linear=linear_step(llm, b, gpu_, load_weights(llm.layer_weight_bytes(b), on_storage, way, host_, gpu_link)),
        exchange=overlap(
            qkv=gpu_link.outward(llm.query_bytes(b) + llm.kv_bytes(b, 1), "Q, K, V to the CPU"),
            result=gpu_link.inward(llm.query_bytes(b), "attention output"),
        ),
        attention=host_.attend(llm.kv_bytes(b, s), "CPU attention"),
    )
    prefill = overlap(
        weights=load_weights(llm.layer_weight_bytes(b * work.prompt), on_storage, way, host_, gpu_link),
        compute=prefill_compute(llm, work, b, gpu_),
        cache=gpu_link.outward(llm.kv_bytes(b, work.prompt), "4bsh"),
    )
    rounds = work.batch / b
    return Estimate(
        prefill=(rounds * layers) * prefill,
        step=(rounds * layers) * layer,
        fits=fits(
            gpu=(gpu_working_set(llm, work.prompt), gpu_.memory),
            host=(in_dram + b * per_sequence, host_.memory),
            ssd=(on_storage * llm.weight_bytes, store.capacity),
        ),
        work=work,
        batch_run=b,
    )
