"""FlexGen: offloading to host DRAM or storage with attention on the CPU (HILOS sec. 2.2, 6.1, INF² sec. 2.2, 7.1).

Symbols: b batch, s context, h hidden, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from nearkv.costmodel.capacity import Fits, fits, reduced_batch
from nearkv.costmodel.compose import overlap, serial, stream
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.offload import (
    copied,
    exchange_with_cpu,
    gpu_working_set,
    kv_share_in,
    linear_step,
    load_weights,
    prefill_compute,
    weights_on_gpu,
    weights_on_storage,
    with_head,
)
from nearkv.costmodel.registry import Knob, system
from nearkv.costmodel.resources import Drives, Link, drives, gpu, host, link
from nearkv.costmodel.span import Port, Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine


@dataclass(frozen=True)
class Residence:
    """Where weights and KV cache live; the rest is on storage, or in host DRAM where weights stream.

    Attributes:
        gpu_weights: 1 where all weights stay on the GPU, else 0.
        ssd_weights: share of the others on storage [1].
        dram_kv: share of the KV cache in host DRAM [1].
    """

    gpu_weights: Real
    ssd_weights: Real
    dram_kv: Real


def kv_on_storage(
    hw: Machine, llm: LLM, work: Workload, store: Drives, role: str, lanes: Link, where: Residence
) -> Estimate:
    """KV cache on striped drives, read through the buffered file path, then attended to by the CPU.

    Reading a layer and attending to it are serial: the CPU attends to pages the file path has
    copied, and both run on the host (HILOS fig. 1b, steps 3 and 4). The cache is never pinned
    (`derate.unpinned`), so a prompt's keys and values leave the GPU slowly.
    """
    b, s = work.batch, work.context
    gpu_, host_, gpu_link = gpu(hw), host(hw), link(hw, "gpu_link", "pcie")
    way: dict[str, Port] = {"flash": store.read, "link": lanes.inward, "file": host_.file}
    streamed, stored = 1 - where.gpu_weights, 1 - where.dram_kv

    def load(amount: Real) -> Span:
        return load_weights(streamed * amount, where.ssd_weights, way, host_, gpu_link)

    layer = serial(
        linear=linear_step(llm, b, gpu_, load(llm.layer_weight_bytes(b))),
        exchange=exchange_with_cpu(llm, b, gpu_link),
        attention=overlap(
            read_and_attend=serial(
                read=stream(stored * llm.kv_bytes(b, s), "4sh, eq. 3", **way),
                attend=host_.attend(llm.kv_bytes(b, s), "CPU attention"),
            ),
            write=stream(
                stored * llm.kv_bytes(b, 1), "4h, eq. 3", link=lanes.outward, flash=store.write
            ),
        ),
    )
    prompt = llm.kv_bytes(b, work.prompt)
    prefill = overlap(
        weights=load(llm.layer_weight_bytes(b * work.prompt)),
        compute=prefill_compute(llm, work, b, gpu_),
        cache=overlap(
            gpu=link(hw, "gpu_link", "unpinned").outward(prompt, "4bsh"),
            drives=stream(stored * prompt, "4bsh", link=lanes.outward, flash=store.write),
        ),
    )
    return Estimate(
        prefill=with_head(llm, prefill, b, gpu_, load),
        step=with_head(llm, layer, b, gpu_, load),
        fits=capacity_check(
            llm, work, where, gpu=gpu_.memory, host=host_.memory, **{role: store.capacity}
        ),
        work=work,
        batch_run=b,
    )


def capacity_check(
    llm: LLM, work: Workload, where: Residence, *, gpu: Real, host: Real, **drives: Real
) -> Fits:
    """Weights and KV cache in the three memories of these sizes [B]."""
    kv = llm.layers * llm.kv_bytes(work.batch, work.final)
    streamed = (1 - where.gpu_weights) * llm.weight_bytes
    in_dram = (1 - where.ssd_weights) * streamed + copied(llm, work) + where.dram_kv * kv
    stored = where.ssd_weights * streamed + (1 - where.dram_kv) * kv
    return fits(
        gpu=(gpu_working_set(llm, work.prompt, where.gpu_weights), gpu),
        host=(in_dram, host),
        **{role: (stored, capacity) for role, capacity in drives.items()},
    )


def all_kv_on_storage(hw: Machine, llm: LLM) -> Residence:
    """Weights where the platform's policy puts them, the whole KV cache on storage (HILOS sec. 6.1)."""
    return Residence(0.0, weights_on_storage(hw, llm), 0.0)


@system(
    "flexgen-raid",
    platform="inf2-a100",
    cite="inf2",
    owns=("gpu", "host", "ssd", "chassis"),
    knobs={
        "ssd_weights": Knob("share of the weights that live on the drives (sec. 7.5)", default=0.0),
        "split": Knob(
            "KV cache whole in host DRAM or else on the drives (sec. 2.2), or filling host DRAM first",
            high=1,
            default=0,
            kind="choice",
            choices=("whole", "filled"),
        ),
        "drives": Knob("number of SSDs", kind="count", sets="ssd.count"),
        "memory": Knob("host memory budget (sec. 7.5)", kind="count", sets="host.memory"),
    },
)
def flexgen_raid(
    hw: Machine, llm: LLM, work: Workload, *, ssd_weights: Real, split: Real
) -> Estimate:
    """FlexGen on RAID-0 behind the shared uplink; the KV cache is in host DRAM, or on the drives if it exceeds it.

    Section 2.2 moves the cache as a whole. Its own rates agree: four times the memory gives OPT-175B
    0.034 instead of 0.032 tokens a second (sec. 7.5), as much as its weights gain by leaving the
    drives; a cache that filled the memory first would give 14 % (`split` = filled).

    Args:
        hw: roles gpu, gpu_link, host, ssd, uplink.
        llm, work: what runs.
        ssd_weights: share of the weights on the drives [1].
        split: 0 whole, 1 host DRAM is filled first.

    Returns:
        Prefill, one decode step and what fits. Source: INF² sec. 2.2, 3, 7.1, 7.5.
    """
    on_gpu = weights_on_gpu(llm, work.prompt, gpu(hw))
    weights = (1 - on_gpu) * (1 - ssd_weights) * llm.weight_bytes
    room = host(hw).memory - weights - copied(llm, work)
    fitting = kv_share_in(room, llm, work)
    kept = np.where(np.asarray(split) > 0, fitting, np.floor(fitting))[()]
    where = Residence(on_gpu, ssd_weights, kept)
    return kv_on_storage(
        hw, llm, work, drives(hw, "ssd"), "ssd", link(hw, "uplink", "uplink"), where
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
    lanes = link(hw, "ssd_link", "pcie")
    return kv_on_storage(hw, llm, work, drives(hw, "ssd"), "ssd", lanes, all_kv_on_storage(hw, llm))


@system(
    "flexgen-16ssd", platform="hilos-a100", cite="hilos", owns=("gpu", "host", "raid", "chassis")
)
def flexgen_16ssd(hw: Machine, llm: LLM, work: Workload) -> Estimate:
    """FlexGen on the drives of 16 SmartSSDs, accelerators off, behind one uplink (HILOS sec. 6.1).

    Args:
        hw: roles gpu, gpu_link, host, raid, uplink.
        llm, work: what runs.

    Returns:
        Prefill, one decode step and what fits. Source: HILOS sec. 6.1, 6.3.
    """
    lanes = link(hw, "uplink", "uplink")
    return kv_on_storage(
        hw, llm, work, drives(hw, "raid"), "raid", lanes, all_kv_on_storage(hw, llm)
    )


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
    per_sequence, in_dram = (
        layers * llm.kv_bytes(1, work.final),
        (1 - on_storage) * llm.weight_bytes,
    )
    b = reduced_batch(work.batch, per_sequence, host_.memory - in_dram)
    load = partial(load_weights, on_storage=on_storage, storage=way, host=host_, gpu_link=gpu_link)
    layer = serial(
        linear=linear_step(llm, b, gpu_, load(llm.layer_weight_bytes(b))),
        exchange=exchange_with_cpu(llm, b, gpu_link),
        attention=host_.attend(llm.kv_bytes(b, s), "CPU attention"),
    )
    prefill = overlap(
        weights=load(llm.layer_weight_bytes(b * work.prompt)),
        compute=prefill_compute(llm, work, b, gpu_),
        cache=link(hw, "gpu_link", "unpinned").outward(llm.kv_bytes(b, work.prompt), "4bsh"),
    )
    rounds = work.batch / b
    return Estimate(
        prefill=rounds * with_head(llm, prefill, b, gpu_, load),
        step=rounds * with_head(llm, layer, b, gpu_, load),
        fits=fits(
            gpu=(gpu_working_set(llm, work.prompt), gpu_.memory),
            host=(in_dram + b * per_sequence, host_.memory),
            ssd=(on_storage * llm.weight_bytes, store.capacity),
        ),
        work=work,
        batch_run=b,
    )
