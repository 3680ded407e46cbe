"""INF²: attention near storage, delayed KV writeback, X in host memory (paper: inf2 sec. 4, 5).

Symbols: b batch, s context, L layers, N devices, alpha share of the batch kept as X,
c spill interval.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import ByName, Real, Span, choose
from nearkv.costmodel.mechanisms.near_storage.host_x_cache import (
    CacheSplit,
    decode_layer,
    prefill_layer,
)
from nearkv.costmodel.mechanisms.near_storage.writeback import WRITEBACK
from nearkv.costmodel.mechanisms.near_storage.x_cache import Caching
from nearkv.costmodel.mechanisms.prompt_chunks import LARGEST_CHUNK, hidden_bytes
from nearkv.costmodel.mechanisms.weights.residency import (
    CHUNK,
    FILLED,
    SOLVED_APART,
    SSD_WEIGHTS,
    WEIGHTS,
    Residency,
    alphas_that_fill,
    buffers_or_copies,
    host_weights,
    layer_copies,
    link_is_slower,
    most_in_host,
    overflow,
    share_leaving,
    weights_or_drives,
    x_cache_bytes,
)
from nearkv.costmodel.mechanisms.weights.streaming import (
    ATTENDS,
    WeightStream,
    path_from_devices,
    weights_from,
)
from nearkv.costmodel.model.estimate import Estimate, Fits, fits
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import NO_KNOBS, Knob, Reversal, choice, system
from nearkv.costmodel.model.resources import csd, host
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

SPILL_INTERVAL = 2
"""Tokens between spills, as the paper runs it (sec. 7.1)."""

BESIDE = "K and V fit host memory: the CPU attends, the drives carry none"
"""Sec. 7.5; with shared heads the devices would be faster, so more memory may take longer."""

MOVES_TO_CPU = Reversal(
    ("step_ms", "total_s"),
    ("context", "gpu.memory", "gpu.count", "host.memory", "host.count"),
    "a cache that fits host memory beside the weights moves there (sec. 7.5), where the CPU "
    "attends more slowly than devices whose kernels share K and V between heads",
)


# --- knobs and their rules --------------------------------------------------------------------


def alpha_of_host_memory(
    hw: Machine, llm: LLM, work: Workload, knobs: ByName = NO_KNOBS
) -> Real:
    """All host memory that weights and buffers leave, filled with X (sec. 4.3, 6, 7.5) [1].

    Alpha = (M - (1 - r) W - B) / (X - B), with a share r of the weights W on the drives. Buffers
    of the whole batch would take B; they hold rows of the share 1 - alpha alone.
    """
    buffered = knobs.get("writeback", 1) * knobs.get("interval", SPILL_INTERVAL)
    choice, stored = knobs.get("weights", FILLED), knobs.get("ssd_weights", 0.0)
    reserved = buffers_or_copies(llm, work, buffered)
    tiers = weights_or_drives(hw, llm, work, choice, stored, reserved)
    buffers = llm.kv_cache_bytes(work.batch, buffered)
    beyond = x_cache_bytes(llm, work) - buffers
    free = host(hw).memory - host_weights(hw, llm, tiers) - buffers
    filled = np.clip(free / np.maximum(beyond, 1.0), 0.0, 1.0)
    return choose(beyond > 0, filled, 1.0)


def alpha_breaks(hw: Machine, llm: LLM, work: Workload, knobs: ByName) -> tuple[Real, ...]:
    """Alphas where what host memory holds changes [1].

    From one on it does not hold K and V beside an X that is larger, as where query heads share K
    and V; from others on caches take memory that weights would fill.
    """
    choice, stored = knobs.get("weights", FILLED), knobs.get("ssd_weights", 0.0)
    tiers = weights_or_drives(hw, llm, work, choice, stored, reserved=0.0)
    buffered = knobs.get("writeback", 1) * knobs.get("interval", SPILL_INTERVAL)
    rows, hidden = (
        llm.kv_cache_bytes(work.batch, buffered),
        hidden_bytes(llm, work.batch, work),
    )
    breaks: tuple[Real, ...] = ()
    if np.any(hidden > 0):
        breaks = (1 - hidden / np.maximum(rows, 1e-9),)
    if np.any(choice == FILLED):
        x = x_cache_bytes(llm, work)
        # beside X lie rows that wait, or hidden states of prompts before them
        breaks += alphas_that_fill(hw, llm, tiers, rows, x)
        breaks += alphas_that_fill(hw, llm, tiers, hidden, x + hidden)
    kv = llm.kv_cache_bytes(work.batch, work.final)
    excess = x_cache_bytes(llm, work) - kv
    if not np.any(excess > 0):
        return breaks
    free = free_in_host(hw, llm, work, tiers)
    return (*breaks, (free - kv) / np.where(excess > 0, excess, 1.0))


def drive_breaks(hw: Machine, llm: LLM, work: Workload, knobs: ByName) -> tuple[Real, ...]:
    """Shares of weights on the devices where host memory holds K and V, or is not full [1]."""
    alpha, buffered = knobs["alpha"], knobs["writeback"] * knobs["interval"]
    held = held_in_host(llm, work, alpha, buffered)
    choice = knobs.get("weights", FILLED)
    tiers = weights_or_drives(hw, llm, work, choice, 0.0, held)
    room = host(hw).memory - layer_copies(llm, work) - most_in_host(llm, work, alpha)
    return (share_leaving(hw, llm, tiers, room), overflow(tiers))


def never_beside(hw: Machine, llm: LLM, work: Workload, knobs: ByName) -> NDArray[np.bool_]:
    """True if the CPU never attends, and DRAM is no slower than the link that its bytes cross."""
    free = host(hw).memory - layer_copies(llm, work)
    fits_nowhere = free < llm.kv_cache_bytes(work.batch, work.final)
    return fits_nowhere & link_is_slower(hw, "pcie", "cache_relay")


def free_in_host(hw: Machine, llm: LLM, work: Workload, tiers: Residency) -> Real:
    """Host memory that weights and layers in transfer leave to a cache [B]."""
    return host(hw).memory - host_weights(hw, llm, tiers) - layer_copies(llm, work)


def held_in_host(llm: LLM, work: Workload, alpha: Real, buffered: Real) -> Real:
    """X, and buffers for K and V of the others, in host memory [B].

    Hidden states of prompts in chunks, which are gone by then, take as much as buffers at least.

    Args:
        alpha: share of the batch kept as X [1].
        buffered: tokens whose K and V wait there [1].
    """
    near = (1 - alpha) * work.batch
    return alpha * x_cache_bytes(llm, work) + buffer_bytes(llm, work, near, buffered)


def buffer_bytes(llm: LLM, work: Workload, near: Real, buffered: Real) -> Real:
    """Buffers of sequences near storage, or hidden states of prompts in chunks before [B]."""
    hidden = hidden_bytes(llm, work.batch, work)
    return np.maximum(llm.kv_cache_bytes(near, buffered), hidden)


LACKS = {
    "sparse": "its kernel scores no keys to gather the best of them",
}
"""Why it models no other attention."""
ALPHA = Knob(
    "share of the batch whose X is cached in host memory instead of K and V on flash (sec. 4.3)",
    rules={"paper": alpha_of_host_memory},
    breaks=alpha_breaks,
)
INTERVAL = Knob(
    "tokens buffered in host memory before they are spilled, c (sec. 4.2, 7.1)",
    low=1,
    high=256,
    default=SPILL_INTERVAL,
    kind="count",
)
BUFFERING = choice(
    "read a layer's KV before its kernel starts (the paper's pread), or while it runs",
    ("single", "double"),
)


# --- the system -------------------------------------------------------------------------------


@system(
    "inf2",
    platform="inf2-a100",
    cite="inf2",
    technology="near drives",
    owns=("gpu", "host", "csd", "chassis"),
    knobs={
        "chunk": CHUNK,
        "alpha": ALPHA,
        "interval": INTERVAL,
        "writeback": WRITEBACK,
        "buffering": BUFFERING,
        "weights": WEIGHTS,
        "ssd_weights": replace(SSD_WEIGHTS, breaks=drive_breaks, settled=never_beside),
        "devices": Knob(
            "number of computational storage devices", kind="count", sets="csd.count"
        ),
        "memory": Knob("host memory budget (sec. 7.5)", kind="count", sets="host.memory"),
    },
    attends=ATTENDS,
    lacks=LACKS,
    reversals=(SOLVED_APART, MOVES_TO_CPU, LARGEST_CHUNK),
)
def inf2(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    alpha: Real,
    interval: Real,
    writeback: Real,
    buffering: Real,
    weights: Real,
    ssd_weights: Real,
) -> Estimate:
    """Attention beside the flash, X-cache in host memory, weights streamed layer by layer.

    Hundreds of gigabytes of X are not pinned any more than FlexGen's caches are: all but single
    tokens go through a pinned relay (`derate.cache_relay`), in prefill as in decode. A KV cache
    that fits host memory stays there and the CPU attends to it, so the drives carry nothing (sec.
    7.5, 7.6). Where query heads share K and V the devices would be faster than the CPU, so with
    more host memory such a model may take longer.

    Args:
        hw: roles gpu, gpu_link, host, uplink, csd (with kernel_tiled).
        llm, work: what runs.
        alpha: share of the batch kept as X, bounded by host memory [1].
        interval: spill interval c [tokens].
        writeback: 0 naive, 1 delayed.
        buffering: 0 read then compute, 1 both at once.
        weights: where weights live, as in `mechanisms.weights.residency`.
        ssd_weights: least share on the drives of what is not on the GPU [1].

    Returns:
        Prefill, one decode step and what fits; all of `work.batch` runs together.
        Source: INF² sec. 4.1 to 4.3, 5, 7.1.
    """
    b, devices = work.batch, csd(hw, llm.group)
    buffered = writeback * interval
    reserved = held_in_host(llm, work, alpha, buffered)
    tiers = weights_or_drives(hw, llm, work, weights, ssd_weights, reserved)
    path = path_from_devices(hw, devices)
    streamed = weights_from(hw, llm, tiers, path).keeping(work)
    split = split_batch(hw, llm, work, tiers, alpha)
    caching = Caching(alpha, interval, writeback)

    def decode(layer_type: WeightStream) -> Span:
        return decode_layer(hw, layer_type, work, split, caching, buffering)

    check = capacity_check(hw, streamed, work, split, buffered, devices.capacity)
    return Estimate(
        prefill=streamed.over_layers(
            lambda layer_type: prefill_layer(hw, layer_type, work, split), b
        ),
        step=streamed.over_layers(decode, b),
        fits=check,
        work=work,
        batch_run=b,
        columns={"x_over_kv": llm.x_over_kv},
        accelerator_power={"csd": devices.kernel_power},
        notes={BESIDE: np.greater(split.in_host, 0)},
        attention=split.attention,
    )


# --- where tensors live -----------------------------------------------------------------------


def split_batch(
    hw: Machine, llm: LLM, work: Workload, tiers: Residency, alpha: Real
) -> CacheSplit:
    """Return the batch by caches: K and V stay in host memory where they fit beside weights and X.

    Source: INF² sec. 2.2, 7.5, 7.6.
    """
    cache = np.maximum(most_in_host(llm, work, alpha), 1.0)
    free = free_in_host(hw, llm, work, tiers)
    in_host = choose(free >= cache, 1.0, 0.0)
    with_kv = (1 - alpha) * work.batch
    return CacheSplit((1 - in_host) * with_kv, in_host * with_kv, alpha * work.batch)


def capacity_check(
    hw: Machine,
    weights: WeightStream,
    work: Workload,
    split: CacheSplit,
    buffered: Real,
    flash: Real,
) -> Fits:
    """X, buffers and weights in host memory, K and V in flash unless they fit there (sec. 4.3).

    Args:
        buffered: tokens whose K and V wait in host memory [1].
        flash: capacity of all devices [B].
    """
    llm, tiers = weights.llm, weights.tiers
    x = llm.sum_over_layers(lambda layer_type: layer_type.x_bytes(split.with_x, work.final))
    in_host = {
        "weights": host_weights(hw, llm, tiers),
        "X": x,
        "KV cache": llm.kv_cache_bytes(split.in_host, work.final),
        "buffers": buffer_bytes(llm, work, split.near, buffered),
    }
    in_flash = {
        "weights": tiers.storage * llm.weight_bytes,
        "KV cache": llm.kv_cache_bytes(split.near, work.final),
    }
    return fits(
        gpu=(weights.contents(work), weights.gpu.memory),
        host=(in_host, weights.host.memory),
        csd=(in_flash, flash),
    )
