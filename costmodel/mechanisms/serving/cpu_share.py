"""How many requests the CPU attends to while GPUs do the rest (NEO; L3 sec. 2.6, 6.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Port, Real
from nearkv.costmodel.algebra.sums import total
from nearkv.costmodel.mechanisms.near_storage.cache_sides import (
    Room,
    least_share,
    rooms,
    served,
)
from nearkv.costmodel.mechanisms.serving.mixed_queue import seen_by_kinds
from nearkv.costmodel.mechanisms.serving.serving import (
    attention_launch,
    data_parallel,
    gpu_attention,
    kv_token_bytes,
    linear,
)
from nearkv.costmodel.mechanisms.weights.bisection import bisect, least, least_of
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import NO_KNOBS
from nearkv.costmodel.model.resources import gpu
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine


def host_attention(hw: Machine) -> Port:
    """Decode attention of the CPU, in KV bytes [B]."""
    return Port("host.dram", "read", hw.host.bandwidth * hw.derate.cpu_attention)


@dataclass(frozen=True)
class Pace:
    """Seconds of an iteration in all layers of one kind, by what it carries.

    Attributes:
        products: requests in all -> matrix products, launches and all-reduces [s].
        gpu_attention, cpu_attention: of one request on that side [s].
        attention_launch: of the GPUs' attention, where every replica attends to a request [s].
        replicas: dp [1].
        movable: share of the requests that the CPU may take, none of recurrent states [1].
    """

    products: Callable[[Real], Real]
    gpu_attention: Real
    cpu_attention: Real
    attention_launch: Real
    replicas: Real
    movable: float = 1.0

    def on_gpus(self, n: Real, share: Real) -> Real:
        """Of an iteration of n requests at a CPU share, over those requests [s]."""
        attended = (1 - self.movable * share) * n
        launches = np.minimum(attended / self.replicas, 1.0) * self.attention_launch
        return (self.products(n) + launches + self.gpu_attention * attended) / n

    def on_cpu(self, share: Real) -> Real:
        """Of an iteration, over the requests it serves [s]."""
        return self.cpu_attention * share


def paces(hw: Machine, llm: LLM, work: Workload) -> list[Pace]:
    """Measure an iteration of the GPUs in use and of the CPU, by kind of layer."""
    if not llm.kinds:
        cache = kv_token_bytes(llm) * work.context
        return [_pace(hw, llm, llm, cache, cache)]
    seen = seen_by_kinds(llm, work)
    measured: list[Pace] = []
    for name, kind in llm.kinds.items():
        tokens = kind.layers * seen[name].tokens * work.context
        read, kept = kind.cache_traffic(tokens, 1), kind.kv_bytes(tokens, 1)
        measured.append(_pace(hw, llm, kind, read, kept))
    return measured


def _pace(hw: Machine, llm: LLM, kind: LLM, read: Real, kept: Real) -> Pace:
    """Measure the layers of one kind, given bytes of one request that a GPU or a CPU reads."""
    dp = data_parallel(hw, llm)
    one_each = linear(hw, llm, dp, kind=kind).parts
    flops = one_each["products"].parts["compute"].seconds / dp
    all_reduce = one_each["all_reduce"].seconds / dp
    waits = one_each["launch"].seconds + one_each["latency"].seconds
    weights_read = gpu(hw).read.rate / dp

    def products(requests: Real) -> Real:
        """Of one iteration: launches, the weights or the FLOPs, all-reduces [s]."""
        of_replica = np.maximum(requests / dp, 1.0)
        visits = np.minimum(requests / dp, 1.0)
        weights = kind.layer_weight_bytes(of_replica) / weights_read
        slower = np.maximum(visits * weights, flops * requests)
        return kind.layers * (visits * waits + slower + all_reduce * requests)

    return Pace(
        products=products,
        gpu_attention=gpu_attention(hw)(read).seconds,
        cpu_attention=host_attention(hw)(kept).seconds,
        attention_launch=kind.layers * attention_launch(hw),
        replicas=dp,
        movable=0.0 if isinstance(kind, Recurrent) else 1.0,
    )


@dataclass(frozen=True)
class Balance:
    """An iteration over the requests it serves, by the CPU share.

    Attributes:
        paces: of each kind of layer.
        room: of both memories.
    """

    paces: list[Pace]
    room: Room

    def served(self, share: Real) -> Real:
        """Requests that decode together [1]."""
        return np.maximum(self.room.resident(share), 1e-30)

    def gpu_seconds(self, share: Real) -> Real:
        """The GPUs' part of all layers [s]."""
        n = self.served(share)
        return total(pace.on_gpus(n, share) for pace in self.paces)

    def seconds(self, share: Real) -> Real:
        """All layers, each as long as its slower side; infinite where requests do not fit [s]."""
        n = self.served(share)
        slower = [
            np.maximum(pace.on_gpus(n, share), pace.on_cpu(share)) for pace in self.paces
        ]
        return np.where(self.room.fits(share), total(slower), np.inf)

    def kink(self, pace: Pace, low: Real, high: Real) -> Real:
        """Share up to which the GPUs are slower in layers of one kind, and the CPU beyond [1]."""

        def gpu_slower(share: Real) -> NDArray[np.bool_]:
            on_gpus = pace.on_gpus(self.served(share), share)
            return np.greater(on_gpus, pace.on_cpu(share))

        return bisect(gpu_slower, low, high)


def balanced_share(
    hw: Machine, llm: LLM, work: Workload, _: Mapping[str, Real] = NO_KNOBS
) -> Real:
    """Share of the residents with the CPU at which a step over all requests is fastest [1].

    NEO's rule, that neither side waits for the other (L3 sec. 2.6), under both memories. While the
    GPUs' memory binds, or all requests fit, a larger share speeds the GPUs up and slows the CPU
    down: best is where both take as long. Where host memory binds, a larger share leaves fewer
    residents to share the weights, so the GPUs have an optimum of their own, and both take as long
    at most once before it. Where nothing fits, the GPUs are full. What exceeds the GPUs of a
    replica is the CPU's.

    Layers of several kinds balance at shares of their own. Between the shares where a memory begins
    to bind, their sum bends where one of them balances, and is least there or between two.
    """
    hw = served(hw, llm, work)
    balance = Balance(paces(hw, llm, work), rooms(hw, llm, work))
    room = balance.room
    most = np.minimum((room.gpu + room.host) / (1 + room.state), room.batch)
    full_gpus = np.clip(1 + room.state - room.gpu / room.fewest, 0.0, 1.0)
    first = np.maximum(full_gpus, least_share(hw, llm, work))
    host_full = np.clip(room.host / np.maximum(most, 1e-30), first, 1.0)
    last = np.clip(room.host / room.fewest, host_full, 1.0)
    if not llm.kinds:
        shares = _of_layers_alike(balance, first, host_full, last)
    else:
        shares = _of_several_kinds(balance, first, host_full, last)
    return least_of(balance.seconds, shares)


def _of_layers_alike(
    balance: Balance, first: Real, host_full: Real, last: Real
) -> list[Real]:
    """Shares of which one is best where all layers balance at the same."""
    (pace,) = balance.paces
    gpu_best = least(balance.gpu_seconds, host_full, last)
    return [
        first,
        balance.kink(pace, first, host_full),
        host_full,
        balance.kink(pace, host_full, gpu_best),
        gpu_best,
        last,
    ]


def _of_several_kinds(
    balance: Balance, first: Real, host_full: Real, last: Real
) -> list[Real]:
    """Shares of which one is best: ends, kinks, and what is least between ends."""

    def some_wait(share: Real) -> NDArray[np.bool_]:
        return np.less(balance.room.resident(share), balance.room.batch)

    all_run = bisect(some_wait, first, host_full)
    ends = [first, all_run, host_full, last]
    shares: list[Real] = list(ends)
    for low, high in pairwise(ends):
        shares.append(least(balance.seconds, low, high))
        shares += [balance.kink(pace, low, high) for pace in balance.paces]
    return shares
