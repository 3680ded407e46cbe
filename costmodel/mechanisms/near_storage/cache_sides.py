"""The two sides that hold the caches of requests together: GPUs and host memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.algebra.sums import total
from nearkv.costmodel.mechanisms.serving.mixed_queue import (
    cache_bytes,
    longest_requests,
    request_bytes,
)
from nearkv.costmodel.mechanisms.serving.residents import resident_in
from nearkv.costmodel.mechanisms.serving.serving import (
    beside_weights,
    data_parallel,
    gpu_room,
    in_use,
    kv_token_bytes,
    on_gpus,
)
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

_ROUNDING = 1e-12


def served(hw: Machine, llm: LLM, work: Workload) -> Machine:
    """The machine with the GPUs that serve; replicas for which host memory has no request idle.

    A request too long for the GPUs of a replica lives in host memory, which all replicas share.
    """
    gpus = in_use(hw, llm, most=work.batch)
    too_long = beyond_gpus(gpus, llm, work)
    hosted = longest_requests(hw.host.memory, llm, work)
    most = np.where(too_long, np.minimum(hosted, work.batch), work.batch)
    return in_use(hw, llm, most)


def beyond_gpus(hw: Machine, llm: LLM, work: Workload) -> NDArray[np.bool_]:
    """Whether the longest request exceeds the GPUs of a replica, which hold its states at least."""
    return np.greater(_excess(hw, llm, work.longest), 0)


def _excess(hw: Machine, llm: LLM, tokens: Real) -> Real:
    """Cache of a request of so many tokens that the GPUs of a replica do not hold [B]."""
    room = beside_weights(hw, llm) / data_parallel(hw, llm)
    return np.maximum(_on_gpus(hw, llm, tokens) - room, 0.0)


def _on_gpus(hw: Machine, llm: LLM, tokens: Real) -> Real:
    """What GPUs would keep of a request of so many tokens, states included [B]."""
    if not llm.kinds:
        return kv_token_bytes(llm) * tokens
    return llm.sum_over_layers(lambda kind: on_gpus(hw, llm, kind, tokens))


def least_share(hw: Machine, llm: LLM, work: Workload) -> Real:
    """Share of the residents' cache that only the CPU can take: what exceeds the GPUs [1].

    Summed over the parts in which the contexts of the requests' lives are known. The end of a life,
    after the middle of its last part, is at most a triangle of a quarter of a part's area.
    """
    contexts = work.contexts
    states = _on_gpus(hw, llm, 0.0)
    cached = total([_on_gpus(hw, llm, one) - states for one in contexts])
    excess = total([_excess(hw, llm, one) for one in contexts])
    at_end = _excess(hw, llm, work.longest) / (4 * np.maximum(work.batch, 1.0))
    return np.minimum(np.maximum(excess, at_end) / np.maximum(cached, 1e-30), 1.0)


def takes_excess(hw: Machine, llm: LLM, work: Workload, share: Real) -> NDArray[np.bool_]:
    """Whether a CPU share, which is not 0, is no less than what exceeds the GPUs."""
    least = least_share(hw, llm, work) * (1 - _ROUNDING)
    return np.greater(share, 0) & np.greater_equal(share, least)


@dataclass(frozen=True)
class Room:
    """Requests of mean size that each memory holds, and how many there are [1].

    Attributes:
        gpu, host: memory beside the weights, and host memory, over all replicas.
        batch: requests in all.
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
        """Requests that run however little memory there is, one in each replica [1]."""
        return np.maximum(np.minimum(self.replicas, self.batch), 1e-30)

    def on_gpus(self, share: Real) -> Real:
        """What GPUs keep of a mean request at a CPU share, in requests [1]."""
        return 1 - share + self.state

    def holding(self, share: Real) -> Real:
        """Requests of which both memories hold their shares [1]."""
        gpu = at_share(self.gpu, self.on_gpus(share))
        host = at_share(self.host, share)
        return np.minimum(gpu, host)

    def resident(self, share: Real) -> Real:
        """Requests that decode together at a CPU share [1]."""
        return resident_in(self.holding(share), self.batch, self.replicas)

    def fits(self, share: Real) -> NDArray[np.bool_]:
        """Whether both memories hold what they must at a CPU share."""
        n = self.resident(share)
        on_gpu, on_host = self.on_gpus(share) * n, share * n
        gpu_holds = np.less_equal(on_gpu, self.gpu * (1 + _ROUNDING))
        host_holds = np.less_equal(on_host, self.host * (1 + _ROUNDING))
        return gpu_holds & host_holds


def at_share(room: Real, share: Real) -> Real:
    """Requests in all where a memory with so much room holds a share of them [1]."""
    any_share = np.greater(share, 0)
    requests = np.divide(room, np.where(any_share, share, 1.0))
    return np.where(any_share, requests, np.inf)


def rooms(hw: Machine, llm: LLM, work: Workload) -> Room:
    """Requests that the memories hold, at the context of the step."""
    replicas = data_parallel(hw, llm)
    if not llm.kinds:
        context = work.context
        host = hw.host.memory / kv_token_bytes(llm)
        return Room(gpu_room(hw, llm) / context, host / context, work.batch, replicas)
    cache = np.maximum(request_bytes(llm, work, cache_bytes).mean, 1e-30)
    gpu, host = beside_weights(hw, llm) / cache, hw.host.memory / cache
    return Room(gpu, host, work.batch, replicas, llm.all_state_bytes(1) / cache)
