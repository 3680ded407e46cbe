"""Number of requests that the CPU attends to while GPUs do the rest (NEO; L3 sec. 2.6, 6.1).

Symbols: c CPU share of the residents, n requests that decode together, G and H requests that the
memories of GPUs and host hold, B requests in all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from nearkv.costmodel.algebra.span import (
    TINY,
    Booleans,
    ByName,
    Numbers,
    Port,
    Real,
    Span,
    overlap,
    quotient,
    serial,
    total,
)
from nearkv.costmodel.mechanisms.serving.parallel import (
    beside_weights,
    data_parallel,
    decode_attention,
    decode_products,
    gpu_cache,
    in_use,
    on_gpus,
)
from nearkv.costmodel.mechanisms.serving.request_bytes import (
    cache_bytes,
    longest_requests,
    request_bytes,
    seen_by_type,
)
from nearkv.costmodel.mechanisms.serving.residents import bisect, resident_in
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import NO_KNOBS
from nearkv.costmodel.model.workload import Load, Workload, even, over_layer_types
from nearkv.hardware.machine import Machine

_ROUNDING = 1e-12
GOLDEN = (np.sqrt(5.0) - 1) / 2
NARROWINGS = 52
"""Golden sections: an interval of 1e-11 of the first, since the least may be at a sharp bend."""


# --- what exceeds the GPUs --------------------------------------------------------------------


def with_requests(hw: Machine, llm: LLM, work: Workload) -> Machine:
    """The machine with the GPUs that have requests: as many as come, or as host memory holds.

    A request too long for the GPUs of a replica lives in host memory, which all replicas share.
    """
    gpus = in_use(hw, llm, most=work.batch)
    too_long = beyond_gpus(gpus, llm, work)
    hosted = longest_requests(hw.host.memory, llm, work)
    most = np.where(too_long, np.minimum(hosted, work.batch), work.batch)
    return in_use(hw, llm, most)


def beyond_gpus(hw: Machine, llm: LLM, work: Workload) -> Booleans:
    """True if the longest request exceeds the GPUs of a replica, which hold its states at least."""
    return np.greater(_excess(hw, llm, work, work.longest), 0)


def _excess(hw: Machine, llm: LLM, work: Workload, tokens: Real) -> Real:
    """Cache of a request that the GPUs of a replica do not hold, by its tokens [B]."""
    free = beside_weights(hw, llm, work) / data_parallel(hw, llm)
    return np.maximum(_on_gpus(hw, llm, tokens) - free, 0.0)


def _on_gpus(hw: Machine, llm: LLM, tokens: Real) -> Real:
    """Bytes that GPUs would keep of a request, states included, by its tokens [B]."""
    return llm.sum_over_layers(lambda layer_type: on_gpus(hw, llm, layer_type, tokens))


def least_share(hw: Machine, llm: LLM, work: Workload) -> Real:
    """Least share of the residents' cache with the CPU: what exceeds the GPUs [1].

    Summed over the parts in which the contexts of the requests' lives are known. The end of a life,
    after the middle of its last part, is at most a triangle of a quarter of a part's area.
    """
    contexts = work.contexts
    states = _on_gpus(hw, llm, 0.0)
    cached = total([_on_gpus(hw, llm, one) - states for one in contexts])
    excess = total([_excess(hw, llm, work, one) for one in contexts])
    requests = np.maximum(work.batch, 1.0)
    at_end = _excess(hw, llm, work, work.longest) / (4 * requests)
    most = np.maximum(excess, at_end)
    return np.minimum(quotient(most, cached), 1.0)


def takes_excess(hw: Machine, llm: LLM, work: Workload, share: Real) -> Booleans:
    """True if a CPU share, which is not 0, is no less than what exceeds the GPUs."""
    least = least_share(hw, llm, work) * (1 - _ROUNDING)
    return np.greater(share, 0) & (share >= least)


# --- both memories ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Capacities:
    """Requests of mean size that each memory holds, and how many there are [1].

    Attributes:
        gpu, host: memory beside the weights, and host memory, over all replicas: G, H.
        batch: requests in all, B.
        replicas: dp.
        state: recurrent states of a request, which stay with the GPUs, over its cache.
    """

    gpu: Real
    host: Real
    batch: Real
    replicas: Real
    state: Real = 0.0

    @property
    def fewest(self) -> Real:
        """Fewest requests that run, one in each replica [1]."""
        return np.maximum(np.minimum(self.replicas, self.batch), TINY)

    def on_gpus(self, share: Real) -> Real:
        """Part of a mean request that GPUs keep at a CPU share, in requests [1]."""
        return 1 - share + self.state

    def holding(self, share: Real) -> Real:
        """Requests whose shares fit both memories, min(G / (1 - c), H / c) [1]."""
        gpu = at_share(self.gpu, self.on_gpus(share))
        host = at_share(self.host, share)
        return np.minimum(gpu, host)

    def resident(self, share: Real) -> Real:
        """Requests that decode together at a CPU share, n [1]."""
        return resident_in(self.holding(share), self.batch, self.replicas)

    def fits(self, share: Real) -> Booleans:
        """True if both memories hold what they must at a CPU share."""
        n = self.resident(share)
        on_gpu = self.on_gpus(share) * n
        on_host = share * n
        gpu_holds = np.less_equal(on_gpu, self.gpu * (1 + _ROUNDING))
        host_holds = on_host <= self.host * (1 + _ROUNDING)
        return gpu_holds & host_holds


def at_share(capacity: Real, share: Real) -> Real:
    """Requests in all where a memory holds a share of each; without a share it never fills [1].

    Args:
        capacity: whole requests that the memory holds [1].
        share: of each that it keeps [1].
    """
    any_share = share > 0
    of_each = np.where(any_share, share, 1.0)
    return np.where(any_share, capacity / of_each, np.inf)


def capacities(hw: Machine, llm: LLM, work: Workload) -> Capacities:
    """Requests that the memories hold, at the context of the step."""
    replicas = data_parallel(hw, llm)
    cache = np.maximum(request_bytes(llm, work, cache_bytes).mean, TINY)
    on_gpu = np.maximum(request_bytes(llm, work, partial(gpu_cache, hw, llm)).mean, TINY)
    gpu = beside_weights(hw, llm, work) / on_gpu
    host = hw.host.memory / cache
    state = llm.all_state_bytes(1) / on_gpu
    return Capacities(gpu, host, work.batch, replicas, state)


# --- an iteration, and the share at which neither side waits ------------------------------------


def host_attention(hw: Machine) -> Port:
    """Decode attention of the CPU, in KV bytes [B]."""
    return Port("host.dram", "read", hw.host.bandwidth * hw.derate.cpu_attention)


def shared_layer(
    hw: Machine, llm: LLM, cpu_share: Real, layer_type: LLM, load: Load
) -> Span:
    """One layer: the CPU attends to its share of the requests beside all that GPUs do.

    Args:
        hw, llm: the machine in use, and the model.
        cpu_share: of the requests; recurrent states stay on the GPUs [1].
        layer_type: a model of such layers.
        load: what the iteration carries.
    """
    attended = load if isinstance(layer_type, Recurrent) else load.share(1 - cpu_share)
    kept = cpu_share * layer_type.kv_bytes(load.tokens, 1)
    return overlap(
        gpu=serial(
            linear=decode_products(hw, llm, load, layer_type),
            attention=decode_attention(hw, llm, attended, layer_type),
        ),
        cpu=host_attention(hw)(kept, "kappa tokens / L"),
    )


def balanced_share(hw: Machine, llm: LLM, work: Workload, knobs: ByName = NO_KNOBS) -> Real:
    """Share of the residents with the CPU at which a step over all requests is fastest [1].

    NEO's rule, that neither side waits for the other (L3 sec. 2.6), under both memories:

        t(c) = sum over layers of max(GPUs(n(c), c), CPU(n(c), c)) / n(c)
        n(c) = min(G / (1 - c), H / c, B)

    Up to the share that fills both memories a larger c admits more requests, which speeds the GPUs
    up, and slows the CPU down. Beyond it host memory binds, so a larger c leaves fewer residents to
    share the weights. t is convex between the shares where a memory begins to bind. Where nothing
    fits, the GPUs are full. What exceeds the GPUs of a replica is the CPU's.
    """
    hw = with_requests(hw, llm, work)
    memory = capacities(hw, llm, work)
    seen = seen_by_type(llm, work)

    def seconds(share: Real) -> Real:
        """Time of an iteration over its requests; infinite where these do not fit [s]."""
        n = np.maximum(memory.resident(share), TINY)
        load = Load(n, n * work.context, n * work.context).on_layer_types(seen, even)
        layers = over_layer_types(llm, load, partial(shared_layer, hw, llm, share))
        return np.where(memory.fits(share), layers.seconds / n, np.inf)

    def some_wait(share: Real) -> Booleans:
        return np.less(memory.resident(share), memory.batch)

    gpus_full = np.clip(1 + memory.state - memory.gpu / memory.fewest, 0.0, 1.0)
    first = np.maximum(gpus_full, least_share(hw, llm, work))
    both_hold = (memory.gpu + memory.host) / (1 + memory.state)
    most = np.minimum(both_hold, memory.batch)
    both_full = np.clip(quotient(memory.host, most), first, 1.0)
    last = np.clip(memory.host / memory.fewest, both_full, 1.0)
    bounds = [first, bisect(some_wait, first, both_full), both_full, last]
    shape = np.shape(seconds(first))
    ends = np.stack([np.broadcast_to(bound, shape) for bound in bounds])
    inside = least(seconds, ends[:-1], ends[1:])
    return least_of(seconds, np.concatenate([ends, inside]))


def least(function: Callable[[Real], Real], low: Real, high: Real) -> Real:
    """Least point of a convex function, by golden sections.

    SciPy's minimisers are left to the solvers: formulas call NumPy alone.

    Args:
        function: number -> value.
        low, high: ends of the interval [any unit].

    Returns:
        The point [unit of the interval].
    """
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(NARROWINGS):
        falling = at_left > at_right
        low = np.where(falling, left, low)
        high = np.where(falling, high, right)
        width = GOLDEN * (high - low)
        fresh = np.where(falling, low + width, high - width)
        at_fresh = function(fresh)
        left, right = np.where(falling, right, fresh), np.where(falling, fresh, left)
        at_left, at_right = (
            np.where(falling, at_right, at_fresh),
            np.where(falling, at_fresh, at_left),
        )
    return (low + high) / 2


def least_of(function: Callable[[Real], Real], points: Numbers) -> Real:
    """The point, of several, at which a function is least; of equal ones the first.

    Args:
        function: number -> value.
        points: where to look, along the first axis; the first is taken where all values are
            infinite [any unit].

    Returns:
        The point [unit of the points].
    """
    first = np.argmin(function(points), axis=0, keepdims=True)
    chosen: Real = np.take_along_axis(points, first, axis=0)[0]
    return chosen
