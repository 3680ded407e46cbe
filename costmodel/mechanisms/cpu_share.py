"""How many requests the CPU attends to while GPUs do the rest: NEO's rule, in closed form.

Symbols: N resident, Ng and Nc of them on the GPU and the CPU, L layers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.serving import (
    attention_launch,
    data_parallel,
    gpu_attention,
    gpu_room,
    in_use,
    kv_token_bytes,
    linear,
)
from nearkv.costmodel.registry import NO_KNOBS
from nearkv.costmodel.span import Port, Real
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine


def host_attention(hw: Machine) -> Port:
    """Decode attention of the CPU, in KV bytes [B]."""
    return Port("host.dram", "read", hw.host.bandwidth * hw.derate.cpu_attention)


def balanced_share(hw: Machine, llm: LLM, work: Workload, _: Mapping[str, Real] = NO_KNOBS) -> Real:
    """Share of the residents whose KV stays with the CPU so that neither side waits (NEO's rule, min-max) [1].

    Nc grows until T_CPU(Nc) = T_GPU(Ng, Nc), with Ng all that the GPUs hold, or all the others
    where the batch is small. T_GPU is the larger of two lines (weights, FLOPs), so the crossing is
    the larger of two; only a full host memory stops earlier.
    """
    hw = in_use(hw, llm)
    kv = kv_token_bytes(llm) * work.context
    most_gpu = np.minimum(gpu_room(hw, llm) / work.context, work.batch)
    most_cpu = hw.host.memory / kv
    cpu = host_attention(hw)(kv).seconds
    gpu_kv = gpu_attention(hw)(kv).seconds
    dp = data_parallel(hw, llm)
    working = np.minimum(work.batch / dp, 1.0)
    one_each = linear(hw, llm, dp).parts
    products = one_each["products"].parts
    weights, flops = (
        working * llm.layers * products["weights"].seconds,
        llm.layers * products["compute"].seconds / dp,
    )
    each = llm.layers * one_each["all_reduce"].seconds / dp
    a_layer = one_each["launch"].seconds + one_each["settle"].seconds + attention_launch(hw)
    fixed = working * llm.layers * a_layer

    full = fixed + (gpu_kv + each) * most_gpu
    beside_full = np.maximum(
        _crossing(weights + full, cpu - each),
        _crossing(full + flops * most_gpu, cpu - flops - each),
    )
    linear_all = np.maximum(weights, flops * work.batch) + each * work.batch
    all_served = (fixed + linear_all + gpu_kv * work.batch) / (cpu + gpu_kv)
    on_cpu = np.where(beside_full <= work.batch - most_gpu, beside_full, all_served)
    on_cpu = np.minimum(np.minimum(on_cpu, most_cpu), work.batch)
    on_gpu = np.minimum(most_gpu, work.batch - on_cpu)
    share: Real = on_cpu / np.maximum(on_cpu + on_gpu, 1e-30)
    return share


def _crossing(floor: Real, faster: Real) -> Real:
    """Nc where the CPU, slower by so much a request, has caught up; never where the GPU is slower."""
    return np.where(np.greater(faster, 0), floor / np.maximum(faster, 1e-30), np.inf)
