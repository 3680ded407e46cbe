"""KV eviction on one PC: where K and V live, what scoring and fetching tokens costs.

Source: HillInfer sec. 3.2, 4.3.

Symbols: M bytes of K and V off the GPU, M_c of them in host DRAM, M_s on a drive, M_0 the DRAM they
may take, alpha the share of tokens retained, sigma the skew, f scoring and B fetching rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import Port, Real, Span, overlap, stream
from nearkv.costmodel.mechanisms.gpu_layer import (
    gpu_contents,
    gpu_working_set,
    layer_compute,
    prefill_compute,
)
from nearkv.costmodel.model.estimate import Contents
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, Reversal, choice
from nearkv.costmodel.model.resources import Csd, Drives, Gpu, Link, drives, gpu, link
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
RETENTION = Knob("share of tokens that attention uses, alpha (sec. 5.2)", default=0.2)


@dataclass(frozen=True)
class Tiers:
    """Shares of the KV cache by where it lives; they sum to 1 [1]."""

    gpu: Real
    host: Real
    drive: Real

    @property
    def exchangeable(self) -> Real:
        """Most of the KV cache that host and drive can swap in a step [1]."""
        return np.minimum(self.host, self.drive)


def kv_budget(hw: Machine) -> Real:
    """M_0, the DRAM a KV cache may take [B].

    Raises:
        InputError: it is larger than the DRAM.
    """
    if np.any(np.greater(hw.host.kv_memory, hw.host.memory)):
        raise InputError(
            "host.kv_memory (M0) is larger than host.memory; "
            "lower it, as in --set host.kv_memory=48GiB"
        )
    return hw.host.count * hw.host.kv_memory


def place(hw: Machine, llm: LLM, work: Workload, placement: Real) -> Tiers:
    """Fill GPU, host and drive in this order; what exceeds a tier goes to the next.

    A GPU attends to all tokens it has and to the retained ones of the others. So where few are
    retained, a GPU with more memory attends to more tokens, which may take longer.

    Args:
        hw: roles gpu, host.
        placement: 0 static shares, 1 by capacity.
    """
    kv = np.maximum(llm.kv_cache_bytes(work.batch, work.final), 1.0)
    beside_weights = hw.gpu.count * hw.gpu.memory - weights_and_activations(llm, work)
    free = np.maximum(beside_weights, 0.0)
    static_gpu, static_host = STATIC_SHARES
    gpu_target = static_gpu + placement * (1 - static_gpu)
    on_gpu = np.minimum(gpu_target, free / kv)
    host_target = (1 - placement) * static_host + placement * (1 - on_gpu)
    in_dram = np.minimum(host_target, kv_budget(hw) / kv)
    return Tiers(on_gpu, in_dram, 1 - on_gpu - in_dram)


def weights_and_activations(llm: LLM, work: Workload) -> Real:
    """GPU memory beside the KV cache, prompts prefilled one at a time [B]."""
    return gpu_working_set(llm, work.prompt, 1.0, work.batch)


def gpu_layer(llm: LLM, work: Workload, attended: Real, gpu_: Gpu) -> Span:
    """One decode layer on the GPU, weights resident.

    Args:
        attended: share of the context the attention uses [1].
    """
    b, s = work.batch, work.context
    if isinstance(llm, Recurrent):
        return recurrent_layer(llm, b, gpu_)
    read = llm.layer_weight_bytes(b) + attended * llm.kv_bytes(b, s)
    attention = attended * llm.attention_flops(b, s)
    return overlap(
        hbm=gpu_.read(read, "weights and retained KV"),
        compute=layer_compute(llm, b, attention, gpu_, "2 FLOPs a weight and token"),
    )


def recurrent_layer(llm: LLM, b: Real, gpu_: Gpu) -> Span:
    """One decode layer with a recurrent state, which stays on the GPU and evicts nothing."""
    read = llm.layer_weight_bytes(b) + llm.cache_traffic(b, 1.0)
    flops = llm.linear_flops(b) + llm.attention_flops(b, 1.0)
    return overlap(
        hbm=gpu_.read(read, "weights and state"),
        compute=gpu_.run(flops, "2 FLOPs a weight and token"),
    )


@dataclass(frozen=True)
class Storage:
    """The drive that holds what GPU and host do not, its link, and the link of the GPU."""

    drives: Drives | Csd
    drive_link: Link
    gpu_link: Link

    def store_new(self, kv: Real, tiers: Tiers) -> Span:
        """Send new K and V of one layer from the GPU to where they live, given their bytes [B]."""
        off_gpu, cold = (tiers.host + tiers.drive) * kv, tiers.drive * kv
        to_drive = {"link": self.drive_link.outward, "flash": self.drives.write}
        return overlap(
            gpu=self.gpu_link.outward(off_gpu, "new KV off the GPU"),
            drive=stream(cold, "new KV to the drive", **to_drive),
        )

    def demote(self, kv: Real, tiers: Tiers, share: Real) -> Span:
        """Write back what DRAM gives up for promoted tokens: as much as comes up (sec. 3.2, 4.2).

        Args:
            kv: K and V of one layer [B].
            tiers: where they live; no more leaves than DRAM holds, nor than the drive exchanges.
            share: of the KV cache that leaves in a step [1].
        """
        return self.write_back(
            np.minimum(share, tiers.exchangeable) * kv, "demoted KV, fig. 4"
        )

    def write_back(self, amount: Real, eq: str) -> Span:
        """Send K and V from host DRAM to the drive [B]."""
        return stream(amount, eq, link=self.drive_link.outward, flash=self.drives.write)


def migration_breaks(
    hw: Machine, llm: LLM, work: Workload, knobs: Mapping[str, Real]
) -> tuple[Real, ...]:
    """The share that leaves DRAM above which `demote` moves no more [1]."""
    most = place(hw, llm, work, knobs["placement"]).exchangeable
    return (most / (1 - knobs.get("sigma", 0.0)),)


def sigma_breaks(
    hw: Machine, llm: LLM, work: Workload, knobs: Mapping[str, Real]
) -> tuple[Real, ...]:
    """The skew above which less leaves DRAM than host and drive could swap [1]."""
    most = place(hw, llm, work, knobs["placement"]).exchangeable
    # a share that never leaves has no break; 1 is beyond the range of the skew
    migration = knobs["migration"]
    leaves = np.greater(migration, 0)
    share = most / np.where(leaves, migration, 1.0)
    return (1 - np.where(leaves, share, 0.0),)


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


def prefill_layer(llm: LLM, work: Workload, gpu_: Gpu, stored: Span) -> Span:
    """One layer over all prompts while its KV leaves for its tiers.

    Args:
        stored: transfer of the layer's new K and V.
    """
    return overlap(
        hbm=gpu_.read(llm.layer_weight_bytes(work.batch * work.prompt), "weights"),
        compute=prefill_compute(llm, work, work.batch, gpu_),
        store_new=stored,
    )


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
    on_gpu = gpu_contents(llm, work.prompt, 1.0, work.batch)
    return {
        "gpu": ({**on_gpu, "KV cache": tiers.gpu * kv}, gpu(hw).memory),
        "host": ({"KV cache": tiers.host * kv}, kv_budget(hw)),
        drive: ({"KV cache": tiers.drive * kv, "copies of keys": copies}, capacity),
    }


def where_kv_lives(llm: LLM, work: Workload, tiers: Tiers) -> Mapping[str, Real]:
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


def scattered(hw: Machine, role: str, store: Drives | Csd) -> Port:
    """Flash reads of single tokens, K and V rows of one layer, rather than in sequence [B]."""
    return Port(f"{role}.flash", "read", store.read.rate * hw.derate.gather)
