"""FlexGen: offloading to host DRAM or storage, attention on the CPU.

HILOS sec. 2.2, 6.1; INF² sec. 2.2, 7.1.

Symbols: b batch, s context, h hidden, L layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from nearkv.costmodel.algebra.compose import overlap, stream
from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.mechanisms.gpu_layer import (
    gpu_contents,
    gpu_working_set,
    passing_latents,
)
from nearkv.costmodel.mechanisms.weights.flexgen_loop import ATTENDS, LACKS, decode_layer
from nearkv.costmodel.mechanisms.weights.residency import (
    FILLED,
    LEAST_IN_ALL,
    SSD_WEIGHTS,
    WEIGHTS,
    Headroom,
    dram_or_drives,
    host_weights,
    kv_share_in,
    layer_copies,
    overflow,
    share_leaving,
    weights_or_drives,
)
from nearkv.costmodel.mechanisms.weights.streaming import (
    FileStorage,
    WeightStream,
    drives_of,
    file_storage,
    weights_from_files,
)
from nearkv.costmodel.model.capacity import (
    Fits,
    batch_with_states,
    fits,
    possible_batches,
    reduced_batch,
)
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, choice, system
from nearkv.costmodel.model.resources import host, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

BATCHES = Knob(
    "GPU batches that a step sends through each layer, n (FlexGen's --num-gpu-batches)",
    low=1,
    high=64,
    default=1,
    kind="count",
    within="batch",
)
SPLIT = choice(
    "KV cache whole in host DRAM or else on the drives (sec. 2.2), or filling host DRAM first",
    ("whole", "filled"),
)


def copies_breaks(
    hw: Machine, llm: LLM, work: Workload, knobs: Mapping[str, Real]
) -> tuple[Real]:
    """The share of weights on the drives from which DRAM beside copies is not full [1]."""
    room = beside_copies(hw, llm, work, knobs.get("gpu_batches", 1.0), 0.0)
    tiers = dram_or_drives(hw, llm, work, knobs.get("weights", FILLED), room)
    return (overflow(tiers),)


def rounds_breaks(
    hw: Machine, llm: LLM, work: Workload, knobs: Mapping[str, Real]
) -> tuple[Real, ...]:
    """Shares of weights on the drives at which DRAM begins to hold more sequences at once [1]."""
    room = beside_sequence(hw, llm, work, knobs.get("gpu_batches", 1.0), 0.0)
    tiers = dram_or_drives(hw, llm, work, knobs.get("weights", FILLED), room)
    sequence = sequence_in_dram(llm, work)
    left = host(hw).memory - hw.policy.pinned_relays
    rooms = [left - b * sequence for b in possible_batches(work.batch)]
    return (overflow(tiers), *(share_leaving(hw, llm, tiers, room) for room in rooms))


DRIVE_WEIGHTS = replace(SSD_WEIGHTS, breaks=copies_breaks)
in_hilos = partial(
    system,
    platform="hilos-a100",
    cite="hilos",
    knobs={"gpu_batches": BATCHES, "weights": WEIGHTS, "ssd_weights": DRIVE_WEIGHTS},
    attends=ATTENDS,
    lacks=LACKS,
    reversals=(LEAST_IN_ALL,),
)
"""Registers a system that HILOS compares with, on the machine of its sec. 6.1."""


# --- the systems ------------------------------------------------------------------------------


@system(
    "flexgen-raid",
    platform="inf2-a100",
    cite="inf2",
    owns=("gpu", "host", "ssd", "chassis"),
    knobs={
        "weights": WEIGHTS,
        "ssd_weights": SSD_WEIGHTS,
        "split": SPLIT,
        "gpu_batches": BATCHES,
        "drives": Knob("number of SSDs", kind="count", sets="ssd.count"),
        "memory": Knob("host memory budget (sec. 7.5)", kind="count", sets="host.memory"),
    },
    attends=ATTENDS,
    lacks=LACKS,
    reversals=(LEAST_IN_ALL,),
)
def flexgen_raid(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    weights: Real,
    ssd_weights: Real,
    split: Real,
    gpu_batches: Real,
) -> Estimate:
    """FlexGen on RAID-0 behind the shared uplink, its KV cache in host DRAM or on the drives.

    Section 2.2 moves the cache to the drives as a whole if it exceeds DRAM. The paper's own rates
    agree: four times the memory gives OPT-175B 0.034 instead of 0.032 tokens per second (sec. 7.5),
    as much as its weights gain by leaving the drives; a cache that filled the memory first would
    give 14 % (`split` = filled).

    Args:
        hw: roles gpu, gpu_link, host, ssd, uplink.
        llm, work: what runs.
        weights: where weights live, as in `mechanisms.weights.residency`.
        ssd_weights: least share on the drives of what is not on the GPU [1].
        split: 0 whole, 1 host DRAM is filled first.
        gpu_batches: GPU batches of a step [1].

    Returns:
        Prefill, one decode step and what fits. Source: INF² sec. 2.2, 3, 7.1, 7.5.
    """
    copies = layer_copies(llm, work)
    passing = passing_latents(llm, work, gpu_batches)
    tiers = weights_or_drives(hw, llm, work, weights, ssd_weights, copies, passing)
    free = host(hw).memory - host_weights(hw, llm, tiers) - copies
    fitting = kv_share_in(free, llm, work)
    is_filled = np.greater(split, 0)
    in_dram = np.where(is_filled, fitting, np.floor(fitting))[()]
    drives = file_storage(hw, "ssd", link(hw, "uplink", "uplink"), host(hw))
    streamed = weights_from_files(hw, llm, tiers, drives)
    return kv_on_storage(hw, streamed, work, drives, in_dram, gpu_batches)


@in_hilos("flexgen-ssd", owns=("gpu", "host", "ssd"))
def flexgen_ssd(hw: Machine, llm: LLM, work: Workload, **knobs: Real) -> Estimate:
    """FlexGen with the KV cache on PCIe 4.0 SSDs, FLEX(SSD) (HILOS sec. 6.1).

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link.
        llm, work: what runs.
        knobs: those of `all_kv_on_storage`.

    Returns:
        Prefill, one decode step and what fits. Source: HILOS sec. 2.2, 4.1.
    """
    return all_kv_on_storage(hw, llm, work, drives_of(hw), **knobs)


@in_hilos("flexgen-16ssd", owns=("gpu", "host", "raid", "chassis"))
def flexgen_16ssd(hw: Machine, llm: LLM, work: Workload, **knobs: Real) -> Estimate:
    """FlexGen on the drives of 16 SmartSSDs, accelerators off, behind one uplink (HILOS sec. 6.1).

    Args:
        hw: roles gpu, gpu_link, host, raid, uplink.
        llm, work: what runs.
        knobs: those of `all_kv_on_storage`.

    Returns:
        Prefill, one decode step and what fits. Source: HILOS sec. 6.1, 6.3.
    """
    drives = file_storage(hw, "raid", link(hw, "uplink", "uplink"), host(hw))
    return all_kv_on_storage(hw, llm, work, drives, **knobs)


@in_hilos(
    "flexgen-dram",
    owns=("gpu", "host", "ssd"),
    knobs={
        "gpu_batches": BATCHES,
        "weights": WEIGHTS,
        "ssd_weights": replace(SSD_WEIGHTS, breaks=rounds_breaks),
    },
)
def flexgen_dram(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    gpu_batches: Real,
    weights: Real,
    ssd_weights: Real,
) -> Estimate:
    """FlexGen with the KV cache in host DRAM, the batch cut to what fits: FLEX(DRAM).

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link.
        llm, work: what runs.
        gpu_batches: GPU batches of a step [1].
        weights: where weights live, as in `mechanisms.weights.residency`.
        ssd_weights: least share on the drives of what is not on the GPU [1].

    Returns:
        Prefill, one decode step and what fits, over all rounds of the reduced batch.
        Source: HILOS sec. 2.2, 6.3.
    """
    drives = drives_of(hw)
    kv, copies = llm.kv_cache_bytes(1, work.final), widened_copies(llm, work)
    relays = hw.policy.pinned_relays
    passing = passing_latents(llm, work, gpu_batches)
    headroom = beside_sequence(hw, llm, work, gpu_batches, ssd_weights)
    tiers = dram_or_drives(hw, llm, work, weights, headroom)
    streamed = weights_from_files(hw, llm, tiers, drives)
    in_dram = host_weights(hw, llm, tiers)
    free = streamed.host.memory - in_dram - relays
    hosted = reduced_batch(work.batch, kv + copies, free)
    for_states = streamed.gpu.memory - gpu_working_set(llm, work.prompt, tiers.gpu)
    b = batch_with_states(hosted, work.batch, llm.all_state_bytes(1.0), for_states)
    relay = link(hw, "gpu_link", "cache_relay")

    def prefill(layer_type: WeightStream) -> Span:
        cache = relay.outward(layer_type.llm.kv_bytes(b, work.prompt), "4bsh")
        return layer_type.prefill_layer(work, b, cache=cache)

    def decode(layer_type: WeightStream) -> Span:
        return decode_layer(hw, layer_type, work, b, gpu_batches, 0.0, drives)

    rounds = work.batch / b
    on_gpu = gpu_contents(llm, work.prompt, tiers.gpu, b)
    in_host = {
        "weights": in_dram,
        "KV cache": b * kv,
        "copies of layers": b * copies + relays,
    }
    return Estimate(
        prefill=rounds * streamed.over_layers(prefill, b),
        step=rounds * streamed.over_layers(decode, b),
        fits=fits(
            gpu=({**on_gpu, "latents in transfer": passing}, streamed.gpu.memory),
            host=(in_host, streamed.host.memory),
            ssd=({"weights": tiers.storage * llm.weight_bytes}, drives.capacity),
        ),
        work=work,
        batch_run=b,
    )


# --- what a step leaves to weights ------------------------------------------------------------


def beside_copies(
    hw: Machine, llm: LLM, work: Workload, gpu_batches: Real, stored: Real
) -> Headroom:
    """What copies of layers leave to weights, a share of which is stored on the drives."""
    left = host(hw).memory - layer_copies(llm, work)
    return Headroom(left, passing_latents(llm, work, gpu_batches), stored)


def beside_sequence(
    hw: Machine, llm: LLM, work: Workload, gpu_batches: Real, stored: Real
) -> Headroom:
    """What the cache of one sequence leaves to weights, a share of which is on the drives."""
    left = host(hw).memory - hw.policy.pinned_relays - sequence_in_dram(llm, work)
    return Headroom(left, passing_latents(llm, work, gpu_batches), stored)


def sequence_in_dram(llm: LLM, work: Workload) -> Real:
    """Host DRAM of one sequence: its KV cache and the copies that attention makes [B]."""
    return llm.kv_cache_bytes(1, work.final) + widened_copies(llm, work)


def widened_copies(llm: LLM, work: Workload) -> Real:
    """Host DRAM of attention to one sequence, in the longest of its layers [B].

    FlexGen widens K and V to 32 bits in a workspace (`init_attention_compute_workspace`); its
    transposed operands are views of that (`mha_gen`).
    """
    layer = llm.most_of_a_layer(lambda layer_type: layer_type.kv_bytes(1, work.final))
    return layer * 4 / llm.kv_width


# --- KV cache on drives -----------------------------------------------------------------------


def all_kv_on_storage(
    hw: Machine,
    llm: LLM,
    work: Workload,
    drives: FileStorage,
    *,
    gpu_batches: Real,
    weights: Real,
    ssd_weights: Real,
) -> Estimate:
    """None of the KV cache in host DRAM, which is left to weights and copies.

    Args:
        drives: what holds the KV cache.
        gpu_batches: GPU batches of a step [1].
        weights: where weights live, as in `mechanisms.weights.residency`.
        ssd_weights: least share on the drives of what is not on the GPU [1].
    """
    headroom = beside_copies(hw, llm, work, gpu_batches, ssd_weights)
    tiers = dram_or_drives(hw, llm, work, weights, headroom)
    streamed = weights_from_files(hw, llm, tiers, drives)
    return kv_on_storage(hw, streamed, work, drives, 0.0, gpu_batches)


def kv_on_storage(
    hw: Machine,
    weights: WeightStream,
    work: Workload,
    drives: FileStorage,
    in_dram: Real,
    gpu_batches: Real,
) -> Estimate:
    """KV cache on striped drives, read through the buffered file path, attended to by the CPU.

    Args:
        in_dram: share of the KV cache that stays in host DRAM [1].
        gpu_batches: GPU batches of a step [1].
    """
    b, stored = work.batch, 1 - in_dram
    passing = passing_latents(weights.llm, work, gpu_batches)

    def prefill(layer_type: WeightStream) -> Span:
        cache = put_cache(hw, layer_type.llm, work, drives, stored)
        return layer_type.prefill_layer(work, b, cache=cache)

    def decode(layer_type: WeightStream) -> Span:
        return decode_layer(hw, layer_type, work, b, gpu_batches, stored, drives)

    return Estimate(
        prefill=weights.over_layers(prefill, b),
        step=weights.over_layers(decode, b),
        fits=capacity_check(hw, weights, work, drives, in_dram, passing),
        work=work,
        batch_run=b,
    )


def put_cache(
    hw: Machine, llm: LLM, work: Workload, drives: FileStorage, stored: Real
) -> Span:
    """One layer's keys and values of all prompts leave the GPU, some of them for the drives.

    The cache is never pinned (`derate.cache_relay`), so it leaves the GPU slowly.
    """
    prompts = llm.kv_bytes(work.batch, work.prompt)
    return overlap(
        gpu=link(hw, "gpu_link", "cache_relay").outward(prompts, "4bsh"),
        drives=stream(stored * prompts, "4bsh", **drives.write),
    )


def capacity_check(
    hw: Machine,
    weights: WeightStream,
    work: Workload,
    drives: FileStorage,
    in_dram: Real,
    passing: Real,
) -> Fits:
    """Weights and KV cache in GPU memory, host DRAM and on the drives.

    Args:
        in_dram: share of the KV cache in host DRAM [1].
        passing: latents on the GPU while it attends to them [B].
    """
    llm, tiers = weights.llm, weights.tiers
    kv = llm.kv_cache_bytes(work.batch, work.final)
    on_gpu = gpu_contents(llm, work.prompt, tiers.gpu, work.batch)
    in_host = {
        "weights": host_weights(hw, llm, tiers),
        "copies of layers": layer_copies(llm, work),
        "KV cache": in_dram * kv,
    }
    on_drives = {
        "weights": tiers.storage * llm.weight_bytes,
        "KV cache": (1 - in_dram) * kv,
    }
    return fits(
        gpu=({**on_gpu, "latents in transfer": passing}, weights.gpu.memory),
        host=(in_host, weights.host.memory),
        **{drives.role: (on_drives, drives.capacity)},
    )
