"""How many requests the CPU attends to while GPUs do the rest (NEO; L3 sec. 2.6, 6.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.bisection import bisect, least, least_of
from nearkv.costmodel.mechanisms.fluid import resident_in
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
from nearkv.costmodel.resources import gpu
from nearkv.costmodel.span import Port, Real
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine

_ROUNDING = 1e-12


def host_attention(hw: Machine) -> Port:
    """Decode attention of the CPU, in KV bytes [B]."""
    return Port("host.dram", "read", hw.host.bandwidth * hw.derate.cpu_attention)


def served(hw: Machine, llm: LLM, work: Workload) -> Machine:
    """The machine with the GPUs that serve; replicas for which host memory has no request idle.

    A request too long for the GPUs of a replica lives in host memory, which all replicas share.
    """
    gpus = in_use(hw, llm)
    too_long = np.less(gpu_room(gpus, llm) / data_parallel(gpus, llm), work.longest)
    hosted = hw.host.memory / kv_token_bytes(llm) / work.longest
    return in_use(hw, llm, most=np.where(too_long, hosted, np.inf))


@dataclass(frozen=True)
class Pace:
    """Seconds of an iteration in all layers, by what it carries.

    Attributes:
        products: requests in all -> matrix products, launches and all-reduces [s].
        gpu_attention, cpu_attention: of one request on that side [s].
        attention_launch: of the GPUs' attention, where every replica attends to a request [s].
    """

    products: Callable[[Real], Real]
    gpu_attention: Real
    cpu_attention: Real
    attention_launch: Real


def pace(hw: Machine, llm: LLM, work: Workload) -> Pace:
    """Measure an iteration of the GPUs in use and of the CPU."""
    cache = kv_token_bytes(llm) * work.context
    dp = data_parallel(hw, llm)
    one_each = linear(hw, llm, dp).parts
    flops = one_each["products"].parts["compute"].seconds / dp
    all_reduce = one_each["all_reduce"].seconds / dp
    waits = one_each["launch"].seconds + one_each["latency"].seconds
    weights_read = gpu(hw).read.rate / dp

    def products(requests: Real) -> Real:
        """Of one iteration: launches, the weights or the FLOPs, all-reduces [s]."""
        of_replica = np.maximum(requests / dp, 1.0)
        visits = np.minimum(requests / dp, 1.0)
        weights = llm.layer_weight_bytes(of_replica) / weights_read
        slower = np.maximum(visits * weights, flops * requests)
        return llm.layers * (visits * waits + slower + all_reduce * requests)

    return Pace(
        products=products,
        gpu_attention=gpu_attention(hw)(cache).seconds,
        cpu_attention=host_attention(hw)(cache).seconds,
        attention_launch=llm.layers * attention_launch(hw),
    )


@dataclass(frozen=True)
class Room:
    """Requests of mean size that each memory holds, and how many there are [1].

    Attributes:
        gpu, host: memory beside the weights, and host memory, over all replicas.
        batch: requests in all.
        replicas: dp.
    """

    gpu: Real
    host: Real
    batch: Real
    replicas: Real

    @property
    def fewest(self) -> Real:
        """Requests that run however little memory there is, one in each replica [1]."""
        return np.maximum(np.minimum(self.replicas, self.batch), 1e-30)

    def resident(self, share: Real) -> Real:
        """Requests that decode together at a CPU share [1]."""
        gpu, host = at_share(self.gpu, 1 - share), at_share(self.host, share)
        return resident_in(np.minimum(gpu, host), self.batch, self.replicas)

    def fits(self, share: Real) -> NDArray[np.bool_]:
        """Whether both memories hold what they must at a CPU share."""
        n = self.resident(share)
        on_gpu, on_host = (1 - share) * n, share * n
        gpu_holds = np.less_equal(on_gpu, self.gpu * (1 + _ROUNDING))
        host_holds = np.less_equal(on_host, self.host * (1 + _ROUNDING))
        return gpu_holds & host_holds


def at_share(room: Real, share: Real) -> Real:
    """Requests in all where a memory with so much room holds a share of them [1]."""
    any_share = np.greater(share, 0)
    requests = np.divide(room, np.where(any_share, share, 1.0))
    return np.where(any_share, requests, np.inf)


def balanced_share(
    hw: Machine, llm: LLM, work: Workload, _: Mapping[str, Real] = NO_KNOBS
) -> Real:
    """Share of the residents with the CPU at which a step over all requests is fastest [1].

    NEO's rule, that neither side waits for the other (L3 sec. 2.6), under both memories. While the
    GPUs' memory binds, or all requests fit, a larger share speeds the GPUs up and slows the CPU
    down: best is where both take as long. Where host memory binds, a larger share leaves fewer
    residents to share the weights, so the GPUs have an optimum of their own, and both take as long
    at most once before it. Where nothing fits, the GPUs are full.
    """
    hw = served(hw, llm, work)
    t, room = pace(hw, llm, work), rooms(hw, llm, work)

    def on_gpus(share: Real) -> Real:
        """Of an iteration, over the requests it serves [s]."""
        n = np.maximum(room.resident(share), 1e-30)
        attended = (1 - share) * n
        launches = np.minimum(attended / room.replicas, 1.0) * t.attention_launch
        return (t.products(n) + launches + t.gpu_attention * attended) / n

    def on_cpu(share: Real) -> Real:
        """Of an iteration, over the requests it serves [s]."""
        return t.cpu_attention * share

    def seconds(share: Real) -> Real:
        """Of an iteration, over the requests it serves; infinite where they do not fit [s]."""
        slowest = np.maximum(on_gpus(share), on_cpu(share))
        return np.where(room.fits(share), slowest, np.inf)

    def gpu_slower(share: Real) -> NDArray[np.bool_]:
        return np.greater(on_gpus(share), on_cpu(share))

    most = np.minimum(room.gpu + room.host, room.batch)
    first = np.clip(1 - room.gpu / room.fewest, 0.0, 1.0)
    host_full = np.clip(room.host / np.maximum(most, 1e-30), first, 1.0)
    last = np.clip(room.host / room.fewest, host_full, 1.0)
    gpu_best = least(on_gpus, host_full, last)
    shares = (
        first,
        bisect(gpu_slower, first, host_full),
        host_full,
        bisect(gpu_slower, host_full, gpu_best),
        gpu_best,
        last,
    )
    return least_of(seconds, shares)


def rooms(hw: Machine, llm: LLM, work: Workload) -> Room:
    """Requests that the memories hold, at the context of the step."""
    context = work.context
    host = hw.host.memory / kv_token_bytes(llm)
    replicas = data_parallel(hw, llm)
    return Room(gpu_room(hw, llm) / context, host / context, work.batch, replicas)
