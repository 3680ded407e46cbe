"""KV eviction on one PC: where K and V live, what scoring and fetching tokens costs.

Source: HillInfer sec. 3.2, 4.3.

Symbols: M bytes of K and V off the GPU, M_c of them in host DRAM, M_s on a drive, M_0 the DRAM they
may take, alpha the share of tokens retained, sigma the skew, f scoring and B fetching rates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import ByName, Port, Real, Span, choose, overlap, stream
from nearkv.costmodel.mechanisms.gpu_layer import (
    gpu_contents,
    gpu_working_set,
    layer_compute,
    prefill_compute,
)
from nearkv.costmodel.mechanisms.prompt_chunks import (
    any_chunks,
    between_chunks,
    chunk_knob,
    held_bytes,
    hidden_bytes,
    kept_share,
)
from nearkv.costmodel.mechanisms.weights.residency import fitting_on_gpu
from nearkv.costmodel.model.estimate import Contents
from nearkv.costmodel.model.layers import Recurrent, over_layers
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, Reversal, choice
from nearkv.costmodel.model.resources import Csd, Drives, Gpu, Link, drives, gpu, host, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine

STATIC_SHARES = (0.2, 0.6)
"""Shares of the KV cache on the GPU and in host DRAM; the rest is on a drive (sec. 3.2)."""

MORE_ON_GPU = Reversal(
    ("step_ms", "total_s"),
    ("context", "output_tokens", "gpu.memory", "gpu.count"),
    "all tokens on the GPU are attended to, of others what is retained (sec. 4.2): a larger share "
    "of the cache there is more work",
)
MORE_IN_DRAM = Reversal(
    ("step_ms", "total_s"),
    ("host.memory", "host.kv_memory", "host.count"),
    "DRAM is filled before drives, which many side by side may read faster",
)
EXCHANGED = Reversal(
    ("step_ms", "total_s"),
    ("gpu.memory", "gpu.count", "host.memory", "host.kv_memory", "host.count"),
    "the more of the cache DRAM holds, the more of it is exchanged with the drive (fig. 4)",
)
PLACEMENT = choice(
    "how the KV cache fills GPU, host and drive: 20/60/20 (sec. 3.2), or each as far as it goes",
    ("static", "capacity"),
)
ATTENDS = ("full", "window", "chunk", "state")
"""Attention that these systems model: of any layer's cache they keep the same share."""
_SHARED_ROW = "keys cannot be scored apart from values, which are the same row"
_CHOSEN = "an indexer chooses tokens already"
LACKS = {
    "latent": _SHARED_ROW,
    "sparse": _SHARED_ROW,
    "selected": _CHOSEN,
    "borrowed": "what an earlier layer evicts is not scored for a later one",
}
"""Why they model no other."""
RETENTION = Knob(
    "share of tokens that attention uses, alpha (sec. 5.2)", default=0.2, is_given=True
)


@dataclass(frozen=True)
class Tiers:
    """Shares of the KV cache by where it lives, which sum to 1, and of the weights on the GPU.

    Attributes:
        gpu, host, drive: of the KV cache [1].
        weights: of the weights on the GPU; the others are in host DRAM [1].
    """

    gpu: Real
    host: Real
    drive: Real
    weights: Real = 1.0

    @property
    def off_gpu(self) -> Real:
        """Share of the KV cache in host DRAM and on the drive [1]."""
        return self.host + self.drive

    @property
    def exchangeable(self) -> Real:
        """Most of the KV cache that host and drive can swap in a step [1]."""
        return np.minimum(self.host, self.drive)


def kv_budget(hw: Machine) -> Real:
    """M_0, the DRAM a KV cache may take [B].

    Raises:
        InputError: it is larger than the DRAM.
    """
    if np.any(hw.host.kv_memory > hw.host.memory):
        raise InputError(
            "host.kv_memory (M0) is larger than host.memory; "
            "lower it, as in --set host.kv_memory=48GiB"
        )
    return hw.host.count * hw.host.kv_memory


def dram_for_cache(hw: Machine, llm: LLM, work: Workload, on_gpu: Real) -> Real:
    """DRAM for the KV cache: M_0, less what weights and hidden states find no place beside [B].

    Args:
        on_gpu: share of the weights on the GPU [1].
    """
    others = beside_cache(llm, work, on_gpu)
    return np.clip(hw.host.memory - others, 0.0, kv_budget(hw))


def beside_cache(llm: LLM, work: Workload, on_gpu: Real) -> Real:
    """DRAM for weights that are not on the GPU, and for hidden states of prompts in chunks [B]."""
    return (1 - on_gpu) * llm.weight_bytes + hidden_bytes(llm, work.batch, work)


def place_cache(
    hw: Machine, llm: LLM, work: Workload, placement: Real, weights: Real = 0.0
) -> Tiers:
    """Fill GPU, host and drive in this order; what exceeds a tier goes to the next.

    Weights that all fit go before the cache. Others make way for its static share, as FlexGen's
    shares of both are stated beside each other.

    A GPU attends to all tokens it has and to the retained ones of the others. So where few are
    retained, a GPU with more memory attends to more tokens, which may take longer.

    Args:
        hw: roles gpu, host.
        placement: 0 static shares, 1 by capacity.
        weights: place in the choices of `WEIGHTS_BESIDE_CACHE`.
    """
    kv = np.maximum(llm.kv_cache_bytes(work.batch, work.final), 1.0)
    static_gpu, static_host = STATIC_SHARES
    memory = gpu(hw).memory
    resident = gpu_working_set(llm, work.together, 1.0, work.batch)
    passing = gpu_working_set(llm, work.together, 0.0, work.batch)
    of_cache = np.minimum(static_gpu * kv, np.maximum(memory - passing, 0.0))
    filling = np.where(resident <= memory, 1.0, fitting_on_gpu(hw, llm, work, of_cache))
    of_weights = choose(weights == 0, filling, 1.0)
    working = gpu_working_set(llm, work.together, of_weights, work.batch)
    free = np.maximum(memory - working, 0.0)
    gpu_target = static_gpu + placement * (1 - static_gpu)
    on_gpu = np.minimum(gpu_target, free / kv)
    host_target = (1 - placement) * static_host + placement * (1 - on_gpu)
    in_dram = np.minimum(host_target, dram_for_cache(hw, llm, work, of_weights) / kv)
    return Tiers(on_gpu, in_dram, 1 - on_gpu - in_dram, of_weights)


def room_beside_weights(hw: Machine, llm: LLM, work: Workload, knobs: ByName) -> Real:
    """GPU memory for the activations of a prompt beside weights that stay, or pass [B].

    Weights stay where the GPU holds them all, so that chunks make way for them.
    """
    all_weights = gpu_working_set(llm, 0.0, 1.0, work.batch)
    passing = gpu_working_set(llm, 0.0, 0.0, work.batch)
    memory = gpu(hw).memory
    stay = (knobs.get("weights", 0.0) == 1) | (all_weights <= memory)
    return memory - choose(stay, all_weights, passing)


CHUNK = chunk_knob(room_beside_weights)
WEIGHTS_BESIDE_CACHE = choice(
    "where weights live: filling the GPU, the rest in host DRAM, or all on the GPU",
    ("filled", "gpu"),
)


def arriving_weights(hw: Machine, llm: LLM, tokens: Real, tiers: Tiers) -> dict[str, Span]:
    """Weights of one layer from host DRAM; none where all stay on the GPU.

    Args:
        tokens: computed, for which experts are used [1].
    """
    streamed = (1 - tiers.weights) * llm.layer_weight_bytes(tokens)
    if not np.any(streamed):
        return {}
    lanes = link(hw, "gpu_link", "pcie")
    path = {"dram": host(hw).read, "link": lanes.inward}
    return {"weights": stream(streamed, "weights in DRAM", **path)}


def gpu_layer(llm: LLM, work: Workload, attended: Real, gpu_: Gpu) -> Span:
    """One decode layer on the GPU, weights resident.

    Args:
        attended: share of the context the attention uses [1].
    """
    b, s = work.batch, work.context
    if isinstance(llm, Recurrent):  # a state stays on the GPU, and nothing of it is evicted
        cache, attention = llm.cache_traffic(b, 1.0), llm.attention_flops(b, 1.0)
    else:
        cache = attended * llm.kv_bytes(b, s)
        attention = attended * llm.attention_flops(b, s)
    read = llm.layer_weight_bytes(b) + cache
    return overlap(
        hbm=gpu_.read(read, "weights and retained KV"),
        compute=layer_compute(llm, b, attention, gpu_, "2 FLOPs a weight and token"),
    )


@dataclass(frozen=True)
class Storage:
    """The drive that holds what GPU and host do not, its link, and the link of the GPU."""

    drives: Drives | Csd
    drive_link: Link
    gpu_link: Link

    def store_new(self, kv: Real, tiers: Tiers) -> Span:
        """Send new K and V of one layer from the GPU to where they live, given their bytes [B]."""
        return overlap(
            gpu=self.gpu_link.outward(tiers.off_gpu * kv, "new KV off the GPU"),
            drive=self.write(tiers.drive * kv, "new KV to the drive"),
        )

    def demote(self, kv: Real, tiers: Tiers, share: Real) -> Span:
        """Write back what DRAM gives up for promoted tokens: as much as comes up (sec. 3.2, 4.2).

        Args:
            kv: K and V of one layer [B].
            tiers: where they live; no more leaves than DRAM holds, nor than the drive exchanges.
            share: of the KV cache that leaves in a step [1].
        """
        left = np.minimum(share, tiers.exchangeable)
        return self.write(left * kv, "demoted KV, fig. 4")

    def bring_back(self, kv: Real, tiers: Tiers) -> Span:
        """Bring K and V that are not on the GPU to it, in sequence, given their bytes [B]."""
        eq = "KV of earlier chunks"
        return overlap(
            drive=self.read(tiers.drive * kv, eq),
            gpu=self.gpu_link.inward(tiers.off_gpu * kv, eq),
        )

    def read(self, amount: Real, eq: str) -> Span:
        """Bring bytes from the drive to host DRAM, in sequence [B]."""
        return stream(amount, eq, flash=self.drives.read, link=self.drive_link.inward)

    def write(self, amount: Real, eq: str) -> Span:
        """Send bytes from host DRAM to the drive [B]."""
        return stream(amount, eq, link=self.drive_link.outward, flash=self.drives.write)


def place_stated(hw: Machine, llm: LLM, work: Workload, knobs: ByName) -> Tiers:
    """Place the KV cache by the knobs that are stated."""
    return place_cache(hw, llm, work, knobs["placement"], knobs.get("weights", 0.0))


def migration_breaks(
    hw: Machine, llm: LLM, work: Workload, knobs: ByName
) -> tuple[Real, ...]:
    """The share that leaves DRAM above which `demote` moves no more [1]."""
    most = place_stated(hw, llm, work, knobs).exchangeable
    return (most / (1 - knobs.get("sigma", 0.0)),)


MIGRATION = Knob(
    "share of the KV cache that leaves DRAM for the drive in a step, as much coming up (fig. 4)",
    default=0.2,
    breaks=migration_breaks,
)


def storage(hw: Machine) -> Storage:
    """Build the path between SSD, host and GPU."""
    return Storage(
        drives(hw, "ssd"), link(hw, "ssd_link", "pcie"), link(hw, "gpu_link", "pcie")
    )


def prefill(
    hw: Machine, llm: LLM, work: Workload, tiers: Tiers, path: Callable[[LLM], Storage]
) -> Span:
    """All layers over all prompts while their KV leaves for its tiers.

    Args:
        path: a model whose layers are all alike -> where its K and V go.
    """
    gpu_, b, tokens = gpu(hw), work.batch, work.batch * work.prompt
    kept = kept_on_gpu(hw, llm, work, tiers)

    def layer(kind: LLM) -> Span:
        storage_ = path(kind)

        def arriving(prompts: Real, before: Real) -> Span:
            """K and V of earlier chunks that are not on the GPU."""
            return storage_.bring_back(kind.kv_bytes(prompts, before), tiers)

        return overlap(
            hbm=gpu_.read(kind.layer_weight_bytes(tokens), "weights"),
            compute=prefill_compute(kind, work, b, gpu_),
            store_new=storage_.store_new(kind.kv_bytes(b, work.prompt), tiers),
            **arriving_weights(hw, kind, tokens, tiers),
            **between_chunks(kind, work, b, gpu_, storage_.gpu_link, kept, arriving),
        )

    return over_layers(llm, layer)


def kept_on_gpu(hw: Machine, llm: LLM, work: Workload, tiers: Tiers) -> Real:
    """Share of a prompt's earlier K and V of a layer that stays on the GPU beside its cache [1]."""
    working = gpu_working_set(llm, work.together, tiers.weights, work.batch)
    cache = tiers.gpu * llm.kv_cache_bytes(work.batch, work.final)
    return kept_share(llm, work, gpu(hw).memory - working - cache)


def fits_in(
    hw: Machine,
    llm: LLM,
    work: Workload,
    tiers: Tiers,
    drive: str,
    capacity: Real,
    copies: Real = 0.0,
) -> dict[str, tuple[Contents, Real]]:
    """Contents of GPU, host and drive, and the bytes available there [B].

    Args:
        drive: its role.
        capacity: of all drives of that role [B].
        copies: narrow copies of keys on the drive [B].
    """
    kv = llm.kv_cache_bytes(work.batch, work.final)
    on_gpu = gpu_contents(llm, work.together, tiers.weights, work.batch)
    on_gpu["KV cache"] = tiers.gpu * kv
    others = beside_cache(llm, work, tiers.weights)
    if any_chunks(work):
        held = kept_on_gpu(hw, llm, work, tiers) * held_bytes(llm, work)
        on_gpu["K and V of the layer"] = held
    return {
        "gpu": (on_gpu, gpu(hw).memory),
        "host": (
            {
                "KV cache": tiers.host * kv,
                # of weights and hidden states what DRAM does not hold at all
                "weights": np.maximum(others - hw.host.memory, 0.0),
            },
            dram_for_cache(hw, llm, work, tiers.weights),
        ),
        drive: ({"KV cache": tiers.drive * kv, "copies of keys": copies}, capacity),
    }


def where_kv_lives(llm: LLM, work: Workload, tiers: Tiers) -> ByName:
    """Columns: gigabytes of K and V in each tier when the requests end."""
    kv = llm.kv_cache_bytes(work.batch, work.final) / 1e9
    return {
        "kv_gpu_gb": tiers.gpu * kv,
        "kv_host_gb": tiers.host * kv,
        "kv_drive_gb": tiers.drive * kv,
    }


def cpu_scoring(hw: Machine) -> Port:
    """The CPU multiplying queries with keys in DRAM, in key bytes [B]."""
    dram = hw.host.count * hw.host.bandwidth
    return Port("host.dram", "read", dram * hw.derate.cpu_scoring)


def scattered(hw: Machine, store: Drives | Csd) -> Port:
    """Flash reads of single tokens, K and V rows of one layer, rather than in sequence [B]."""
    return store.read.with_rate(store.read.rate * hw.derate.gather)
