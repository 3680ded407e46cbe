"""One GPU that streams weights, its KV cache in GPU or host memory: what such systems share.

Symbols: b batch, s context.
"""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.capacity import Fits, fits
from nearkv.costmodel.compose import overlap, serial
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.offload import FileStorage, file_storage, gpu_working_set
from nearkv.costmodel.mechanisms.residency import (
    Residency,
)
from nearkv.costmodel.mechanisms.unpacking import unpack_cache, unpack_weights
from nearkv.costmodel.mechanisms.weights import WeightStream
from nearkv.costmodel.resources import Link, gpu, host, link
from nearkv.costmodel.span import Port, Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine


def drives_of(hw: Machine) -> FileStorage:
    """The drives behind their own link."""
    return file_storage(hw, "ssd", link(hw, "ssd_link", "pcie"), host(hw))


def weights_at(hw: Machine, llm: LLM, home: Residency, pinned: Real = 1.0) -> WeightStream:
    """The layers of a model, each layer's weights coming from their homes.

    Args:
        home: shares by memory.
        pinned: 1 where weights in host memory are pinned; others come at `derate.pageable` [1].
    """
    derate = np.where(np.equal(pinned, 1), hw.derate.pcie, hw.derate.pageable)
    raw = hw.gpu_link.count * hw.gpu_link.bandwidth
    rate = raw * derate[()]
    to_gpu = Port("gpu_link.in", "move", rate)
    from_gpu = Port("gpu_link.out", "move", rate)
    return WeightStream(
        llm=llm,
        gpu=gpu(hw),
        host=host(hw),
        link=Link(to_gpu, from_gpu),
        home=home,
        storage=drives_of(hw).read,
    )


def products(weights: WeightStream, b: Real, beyond: Real) -> Span:
    """Projections and feed-forward of one layer, weights unpacked first.

    Args:
        b: sequences [1].
        beyond: bytes an element that unpacking moves beyond one kernel's [B].
    """
    packed = weights.llm.layer_weight_bytes(b)
    return serial(
        unpack=unpack_weights(weights.llm, packed, weights.gpu, beyond),
        projections=weights.projections(b),
        feed_forward=weights.feed_forward(b),
    )


def attend_on_gpu(weights: WeightStream, b: Real, s: Real, beyond: Real) -> Span:
    """Attention of one layer to a cache in GPU memory, unpacked first.

    Args:
        b, s: sequences and context [1].
        beyond: bytes an element that unpacking moves beyond one kernel's [B].
    """
    llm, device = weights.llm, weights.gpu
    cache = llm.kv_bytes(b, s)
    flops = llm.attention_flops(b, s)
    attend = overlap(
        read=device.read(llm.cache_traffic(b, s), "KV cache"),
        compute=device.run(flops, "attention"),
    )
    unpack = unpack_cache(llm, cache, device, beyond)
    return serial(unpack=unpack, attend=attend)


def memories(
    weights: WeightStream, work: Workload, storage: FileStorage, on_gpu: Real, stored: Real
) -> Fits:
    """Bytes on the GPU, in host memory and on the drives.

    Args:
        on_gpu, stored: shares of the KV cache on the GPU and on the drives [1].
    """
    llm, home = weights.llm, weights.home
    cache = llm.kv_cache_bytes(work.batch, work.final)
    in_host = 1 - on_gpu - stored
    working = gpu_working_set(llm, work.prompt, home.gpu, work.batch)
    gpu_need = working + on_gpu * cache
    host_need = home.host * llm.weight_bytes + in_host * cache
    ssd_need = home.storage * llm.weight_bytes + stored * cache
    return fits(
        gpu=(gpu_need, weights.gpu.memory),
        host=(host_need, weights.host.memory),
        ssd=(ssd_need, storage.capacity),
    )
