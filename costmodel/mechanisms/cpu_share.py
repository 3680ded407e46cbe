"""How many requests the CPU attends to while GPUs do the rest: NEO's rule, in closed form.

Symbols: N resident, Ng and Nc of them on the GPU and the CPU, L layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Pace:
    """What an iteration costs, as lines in how many requests it carries [s].

    Attributes:
        fixed: kernel launches and all-reduce latencies, whatever it carries [s].
        weights: reading them once [s].
        products: of one request more, where products are bound by compute [s].
        all_reduce: of one request more [s].
        gpu_attention, cpu_attention: of one request more on that side [s].
    """

    fixed: Real
    weights: Real
    products: Real
    all_reduce: Real
    gpu_attention: Real
    cpu_attention: Real


def pace(hw: Machine, llm: LLM, work: Workload) -> Pace:
    """Measure the lines of an iteration on the GPUs in use and on the CPU."""
    dp = data_parallel(hw, llm)
    cache = kv_token_bytes(llm) * work.context
    layer = linear(hw, llm, dp).parts
    products = layer["products"].parts
    waits = layer["launch"].seconds + layer["settle"].seconds + attention_launch(hw)
    # a replica without a request reads no weights and starts no kernel
    working = llm.layers * np.minimum(work.batch / dp, 1.0)
    return Pace(
        fixed=working * waits,
        weights=working * products["weights"].seconds,
        products=llm.layers * products["compute"].seconds / dp,
        all_reduce=llm.layers * layer["all_reduce"].seconds / dp,
        gpu_attention=gpu_attention(hw)(cache).seconds,
        cpu_attention=host_attention(hw)(cache).seconds,
    )


def balanced_share(hw: Machine, llm: LLM, work: Workload, _: Mapping[str, Real] = NO_KNOBS) -> Real:
    """Share of the residents whose KV stays with the CPU so that neither side waits [1].

    NEO's rule, a minimum of a maximum: Nc grows until T_CPU(Nc) = T_GPU(Ng, Nc), with Ng all that
    the GPUs hold, or all the others where the batch is small. T_GPU is the larger of two lines
    (weights, FLOPs), so the crossing is the larger of two; only a full host memory stops earlier.
    """
    hw = in_use(hw, llm)
    most_gpu = np.minimum(gpu_room(hw, llm) / work.context, work.batch)
    most_cpu = hw.host.memory / (kv_token_bytes(llm) * work.context)
    t = pace(hw, llm, work)
    full = t.fixed + (t.gpu_attention + t.all_reduce) * most_gpu
    per_request = t.cpu_attention - t.all_reduce
    weights_bound = crossing(t.weights + full, per_request)
    compute_bound = crossing(full + t.products * most_gpu, per_request - t.products)
    beside_full = np.maximum(weights_bound, compute_bound)

    products = np.maximum(t.weights, t.products * work.batch)
    on_gpu_alone = t.fixed + products + (t.all_reduce + t.gpu_attention) * work.batch
    all_served = on_gpu_alone / (t.cpu_attention + t.gpu_attention)
    room_left = beside_full <= work.batch - most_gpu
    balanced = np.where(room_left, beside_full, all_served)
    on_cpu = np.minimum(np.minimum(balanced, most_cpu), work.batch)
    on_gpu = np.minimum(most_gpu, work.batch - on_cpu)
    share: Real = on_cpu / np.maximum(on_cpu + on_gpu, 1e-30)
    return share


def crossing(floor: Real, faster: Real) -> Real:
    """Nc at which the CPU, slower by so much a request, catches up; infinite if the GPU is [1]."""
    catches_up = floor / np.maximum(faster, 1e-30)
    return np.where(np.greater(faster, 0), catches_up, np.inf)
