"""One GPU that streams weights, its KV cache in GPU or host memory: what such systems share.

Symbols: b batch, s context.
"""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.algebra.compose import overlap, serial
from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.mechanisms.near_storage.latents import arriving_latents
from nearkv.costmodel.mechanisms.near_storage.offload import (
    FileStorage,
    file_storage,
    gpu_working_set,
)
from nearkv.costmodel.mechanisms.weights.unpacking import unpack_cache, unpack_weights
from nearkv.costmodel.mechanisms.weights.weights import WeightStream
from nearkv.costmodel.model.capacity import Fits, fits
from nearkv.costmodel.model.resources import host, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine


def drives_of(hw: Machine) -> FileStorage:
    """The drives behind their own link."""
    return file_storage(hw, "ssd", link(hw, "ssd_link", "pcie"), host(hw))


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


def attend_on_gpu(
    weights: WeightStream, b: Real, s: Real, beyond: Real, copies: Real
) -> Span:
    """Attention of one layer to a cache in GPU memory, unpacked first, by eager operations.

    Args:
        b, s: sequences and context [1].
        beyond: bytes an element that unpacking moves beyond one kernel's [B].
        copies: times that K and V are written and read again in full width before and by the
            products [1].
    """
    llm, device = weights.llm, weights.gpu
    cache = llm.kv_bytes(b, s)
    flops = llm.attention_flops(b, s)
    full = cache / llm.kv_width * np.maximum(llm.kv_width, llm.activation_width)
    moved = llm.cache_traffic(b, s) + copies * full
    attend = overlap(
        read=device.read(moved, "KV cache and its copies"),
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
    passing = (1 - on_gpu) * arriving_latents(llm, work.batch, work.final)
    gpu_need = working + on_gpu * cache + passing
    host_need = home.host * llm.weight_bytes + in_host * cache
    ssd_need = home.storage * llm.weight_bytes + stored * cache
    return fits(
        gpu=(gpu_need, weights.gpu.memory),
        host=(host_need, weights.host.memory),
        ssd=(ssd_need, storage.capacity),
    )
