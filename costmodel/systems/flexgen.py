"""FlexGen: a block of sequences offloaded to host DRAM and drives, attention on the CPU.

The baselines of HILOS (sec. 2.2, 6.1) and INF² (sec. 2.2, 7.1) state where their tensors lie;
`flexgen-percent` takes the shares of FlexGen's `--percent` (Sheng et al., ICML 2023, sec. 4). All
are the program of `mechanisms.weights.flexgen`.

Symbols: b batch, s context, h hidden, L layers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nearkv.costmodel.algebra.span import ByName, Real, choose
from nearkv.costmodel.mechanisms.gpu_layer import (
    arriving_latents,
    gpu_working_set,
    passing_latents,
)
from nearkv.costmodel.mechanisms.prompt_chunks import (
    LARGEST_CHUNK,
    chunk_knob,
    hidden_bytes,
)
from nearkv.costmodel.mechanisms.weights.flexgen import (
    LACKS,
    EagerBlock,
    FlexgenBlock,
)
from nearkv.costmodel.mechanisms.weights.percent import (
    drive_breaks,
    drive_share,
    gpu_breaks,
    gpu_share,
    room_beside_stated_shares,
    waiting_bytes,
    whole_tensors,
)
from nearkv.costmodel.mechanisms.weights.residency import (
    ALL_IN_HOST,
    ALL_ON_STORAGE,
    CHUNK,
    FILLED,
    LEAST_IN_ALL,
    SSD_WEIGHTS,
    WEIGHTS,
    Headroom,
    Residency,
    beside_gpu,
    dram_or_drives,
    host_weights,
    kv_share_in,
    layer_copies,
    overflow,
    share_leaving,
    weights_or_drives,
)
from nearkv.costmodel.mechanisms.weights.streaming import (
    ATTENDS,
    FileStorage,
    drives_of,
    file_storage,
    memories,
    weights_from,
)
from nearkv.costmodel.model.estimate import (
    Estimate,
    batch_with_states,
    missed,
    possible_batches,
    reduced_batch,
)
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, Reversal, choice, system
from nearkv.costmodel.model.resources import gpu, host, link
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


def copies_breaks(hw: Machine, llm: LLM, work: Workload, knobs: ByName) -> tuple[Real]:
    """The share of weights on the drives from which DRAM beside copies is not full [1]."""
    room = beside_copies(hw, llm, work, knobs.get("gpu_batches", 1.0), 0.0)
    tiers = dram_or_drives(hw, llm, work, knobs.get("weights", FILLED), room)
    return (overflow(tiers),)


def rounds_breaks(hw: Machine, llm: LLM, work: Workload, knobs: ByName) -> tuple[Real, ...]:
    """Shares of weights on the drives at which DRAM begins to hold more sequences at once [1]."""
    room = beside_sequence(hw, llm, work, knobs.get("gpu_batches", 1.0), 0.0)
    tiers = dram_or_drives(hw, llm, work, knobs.get("weights", FILLED), room)
    sequence = sequence_in_dram(llm, work)
    left = host(hw).memory - hw.policy.pinned_relays
    rooms = [left - b * sequence for b in possible_batches(work.batch)]
    return (overflow(tiers), *(share_leaving(hw, llm, tiers, room) for room in rooms))


# --- the systems ------------------------------------------------------------------------------


@system(
    "flexgen-ssd",
    platform="hilos-a100",
    cite="hilos",
    installable=True,
    technology="drives",
    owns=("gpu", "host", "ssd"),
    knobs={
        "chunk": CHUNK,
        "gpu_batches": BATCHES,
        "weights": WEIGHTS,
        "ssd_weights": replace(SSD_WEIGHTS, breaks=copies_breaks),
    },
    attends=ATTENDS,
    lacks=LACKS,
    reversals=(LEAST_IN_ALL, LARGEST_CHUNK),
)
def flexgen_ssd(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    gpu_batches: Real,
    weights: Real,
    ssd_weights: Real,
) -> Estimate:
    """FlexGen with the KV cache on PCIe 4.0 SSDs, FLEX(SSD) (HILOS sec. 6.1).

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link.
        llm, work: what runs.
        gpu_batches, weights, ssd_weights: as of `all_kv_on_storage`.

    Returns:
        Prefill, one decode step and what fits. Source: HILOS sec. 2.2, 4.1.
    """
    drives = drives_of(hw)
    return all_kv_on_storage(hw, llm, work, drives, gpu_batches, weights, ssd_weights)


@system("flexgen-16ssd", variant_of="flexgen-ssd", owns=("gpu", "host", "raid", "chassis"))
def flexgen_16ssd(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    gpu_batches: Real,
    weights: Real,
    ssd_weights: Real,
) -> Estimate:
    """FlexGen on the drives of 16 SmartSSDs, accelerators off, behind one uplink (HILOS sec. 6.1).

    Args:
        hw: roles gpu, gpu_link, host, raid, uplink.
        llm, work: what runs.
        gpu_batches, weights, ssd_weights: as of `all_kv_on_storage`.

    Returns:
        Prefill, one decode step and what fits. Source: HILOS sec. 6.1, 6.3.
    """
    drives = file_storage(hw, "raid", link(hw, "uplink", "uplink"))
    answer = all_kv_on_storage(hw, llm, work, drives, gpu_batches, weights, ssd_weights)
    stated = "HILOS measured 0.64 to 0.94 of flexgen-ssd, here one share for all"
    return missed(answer, stated, "hilos-flex16-ratio", True)


@system(
    "flexgen-dram",
    variant_of="flexgen-ssd",
    technology="host memory",
    knobs={
        "chunk": CHUNK,
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
    relays = hw.policy.pinned_relays
    headroom = beside_sequence(hw, llm, work, gpu_batches, ssd_weights)
    tiers = dram_or_drives(hw, llm, work, weights, headroom)
    free = host(hw).memory - host_weights(hw, llm, tiers) - relays
    hosted = reduced_batch(work.batch, sequence_in_dram(llm, work), free)
    working = gpu_working_set(llm, work.together, tiers.gpu)
    for_states = gpu(hw).memory - working - passing_latents(llm, work, gpu_batches)
    b = batch_with_states(hosted, work.batch, llm.all_state_bytes(1.0), for_states)
    answer = baseline(
        hw,
        llm,
        replace(work, batch=b),
        drives_of(hw),
        tiers,
        ALL_IN_HOST,
        gpu_batches,
        copies=b * widened_copies(llm, work) + relays,
        of=work,
    )
    stated = "HILOS measured 1.39 times an A100's rate"
    return missed(answer, stated, "hilos-h100-speedup", hw.platform == "hilos-h100")


@system(
    "flexgen-raid",
    variant_of="flexgen-ssd",
    platform="inf2-a100",
    cite="inf2",
    owns=("gpu", "host", "ssd", "chassis"),
    knobs={
        "chunk": CHUNK,
        "weights": WEIGHTS,
        "ssd_weights": SSD_WEIGHTS,
        "split": SPLIT,
        "gpu_batches": BATCHES,
        "drives": Knob("number of SSDs", kind="count", sets="ssd.count"),
        "memory": Knob("host memory budget (sec. 7.5)", kind="count", sets="host.memory"),
    },
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
    is_filled = split > 0
    in_dram = choose(is_filled, fitting, np.floor(fitting))
    drives = file_storage(hw, "ssd", link(hw, "uplink", "uplink"))
    cache = beside_gpu(0.0, 1 - in_dram)
    return baseline(hw, llm, work, drives, tiers, cache, gpu_batches, copies)


GPU_WEIGHTS = Knob(
    "share of the weights on the GPU; fill: the largest that it holds",
    default="fill",
    rules={"fill": gpu_share},
    breaks=gpu_breaks,
)
DRIVE_WEIGHTS = Knob(
    "share of the other weights on the drives; fill: what host memory does not hold",
    default="fill",
    rules={"fill": drive_share},
    breaks=drive_breaks,
)
ATTEND = choice(
    "who attends to a cache that is not on the GPU (FlexGen's --cpu-cache-compute, or the GPU)",
    ("cpu", "gpu"),
)
PIN = choice(
    "pinning of weights in host memory (FlexGen's --pin-weight)",
    ("no", "yes"),
    default=1,
)
TENSORS = choice(
    "shares of weights: of whole tensors, as the code places them, or dividing tensors",
    ("whole", "divided"),
)
DRAM_FIRST = Reversal(
    ("step_ms", "total_s"),
    ("host.memory",),
    "weights fill host DRAM before the drives, though both together may bring them faster",
)


@system(
    "flexgen-percent",
    variant_of="flexgen-dram",
    platform="t4-box",
    cite="flexgen",
    reversals=(DRAM_FIRST, LARGEST_CHUNK),
    knobs={
        "chunk": chunk_knob(room_beside_stated_shares),
        "gpu_weights": GPU_WEIGHTS,
        "ssd_weights": DRIVE_WEIGHTS,
        "gpu_cache": Knob("share of the KV cache on the GPU", default=0.0),
        "ssd_cache": Knob("share of the other KV cache on the drives", default=0.0),
        "activations": choice(
            "memory where activations wait between halves of layers", ("gpu", "host", "ssd")
        ),
        "attend": ATTEND,
        "pin": PIN,
        "gpu_batches": BATCHES,
        "tensors": TENSORS,
    },
)
def flexgen_percent(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    gpu_weights: Real,
    ssd_weights: Real,
    gpu_cache: Real,
    ssd_cache: Real,
    activations: Real,
    attend: Real,
    pin: Real,
    gpu_batches: Real,
    tensors: Real,
) -> Estimate:
    """FlexGen at given shares, as its `--percent` option takes them.

    Its code keeps activations whole in one memory, and divides no cache of 4 bits. Of activations
    on the GPU those of one prompt are counted, as in all systems that stream weights.

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link.
        llm, work: what runs; the batch is that of all GPU batches.
        gpu_weights: share of the weights on the GPU [1].
        ssd_weights: share of the others on the drives, the rest in host memory [1].
        gpu_cache: share of the KV cache on the GPU [1].
        ssd_cache: share of the other cache on the drives, the rest in host memory [1].
        activations: 0 wait on the GPU, 1 in host memory, 2 on the drives.
        attend: 0 the CPU attends to a cache that is not on the GPU, 1 the GPU, which attends to
            latents in any case.
        pin: 1 weights in host memory are pinned, 0 they are copied first.
        gpu_batches: GPU batches of a step [1].
        tensors: 0 shares of whole tensors, 1 as given.

    Returns:
        Prefill, one decode step and what fits. Source: Sheng et al., sec. 4.1, 4.2, Alg. 1.
    """
    drives, cache = drives_of(hw), beside_gpu(gpu_cache, ssd_cache)
    tiers = whole_tensors(llm, beside_gpu(gpu_weights, ssd_weights), divided=tensors)
    waiting = Residency(*((activations == place) * 1.0 for place in range(3)))
    passing = (1 - cache.gpu) * arriving_latents(llm, work.batch, work.final)
    # no share of K and V between chunks stays on the GPU, which shares would bend
    streamed = replace(weights_from(hw, llm, tiers, drives.read), kept=0.0)
    activations_in_host = {"activations": waiting_bytes(llm, work, activations)}
    held = memories(
        streamed, work, drives, cache, passing, streamed.in_host | activations_in_host
    )
    block = EagerBlock(
        hw,
        work,
        drives,
        cache,
        work.batch,
        gpu_batches,
        by_gpu=(attend == 1) * 1.0,
        unpinned=1.0 - (pin == 1),
        activations=waiting,
    )
    return block.estimate(streamed, held)


# --- what a step leaves to weights ------------------------------------------------------------


def beside_copies(
    hw: Machine, llm: LLM, work: Workload, gpu_batches: Real, stored: Real
) -> Headroom:
    """Memory that copies of layers leave to weights, a share of which is stored on the drives."""
    left = host(hw).memory - layer_copies(llm, work)
    return Headroom(left, passing_latents(llm, work, gpu_batches), stored)


def beside_sequence(
    hw: Machine, llm: LLM, work: Workload, gpu_batches: Real, stored: Real
) -> Headroom:
    """Memory that the cache of one sequence leaves to weights, a share of them on drives."""
    left = host(hw).memory - hw.policy.pinned_relays - sequence_in_dram(llm, work)
    return Headroom(left, passing_latents(llm, work, gpu_batches), stored)


def sequence_in_dram(llm: LLM, work: Workload) -> Real:
    """Host DRAM of one sequence: its KV cache, and copies that attention makes [B]."""
    return llm.kv_cache_bytes(1, work.final) + widened_copies(llm, work)


def widened_copies(llm: LLM, work: Workload) -> Real:
    """Host DRAM of attention to one sequence, in the longest of its layers [B].

    FlexGen widens K and V to 32 bits in a workspace (`init_attention_compute_workspace`); its
    transposed operands are views of that (`mha_gen`). Hidden states of a prompt in chunks, which
    are gone by then, take as much at least.
    """
    layer = llm.most_of_a_layer(lambda layer_type: layer_type.kv_bytes(1, work.final))
    return np.maximum(layer * 4 / llm.kv_width, hidden_bytes(llm, 1.0, work))


# --- KV cache in host DRAM and on drives -------------------------------------------------------


def all_kv_on_storage(
    hw: Machine,
    llm: LLM,
    work: Workload,
    drives: FileStorage,
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
    copies = layer_copies(llm, work)
    return baseline(hw, llm, work, drives, tiers, ALL_ON_STORAGE, gpu_batches, copies)


def baseline(
    hw: Machine,
    llm: LLM,
    work: Workload,
    drives: FileStorage,
    tiers: Residency,
    cache: Residency,
    gpu_batches: Real,
    copies: Real,
    of: Workload | None = None,
) -> Estimate:
    """All sequences in one block, their cache in host DRAM and on striped drives.

    Args:
        work: sequences that run together.
        drives: read through the buffered file path.
        tiers, cache: shares of the weights and of the KV cache by memory.
        gpu_batches: GPU batches of a step [1].
        copies: host memory of layers that are copied [B].
        of: all sequences, where they are more than run together.
    """
    every = of or work
    passing = passing_latents(llm, every, gpu_batches)
    streamed = weights_from(hw, llm, tiers, drives.read).keeping(work, passing)
    in_host = {"weights": host_weights(hw, llm, tiers), "copies of layers": copies}
    held = memories(streamed, work, drives, cache, passing, in_host)
    block = FlexgenBlock(hw, every, drives, cache, work.batch, gpu_batches)
    return block.estimate(streamed, held, blocks=every.batch / work.batch if of else 1.0)
