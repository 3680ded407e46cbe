"""Placement of weights that a GPU streams layer by layer, and what they leave to the KV cache.

Symbols: b batch, s prompt, L layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, ByName, Real, choose
from nearkv.costmodel.mechanisms.gpu_layer import gpu_working_set, passing_latents
from nearkv.costmodel.mechanisms.prompt_chunks import (
    chunk_knob,
    held_bytes,
    hidden_bytes,
)
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import ANY, MONOTONE_COLUMNS, Knob, Reversal, choice
from nearkv.costmodel.model.resources import Gpu, gpu, host, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

WEIGHTS = choice(
    "where weights live; auto: where the whole run takes least",
    ("filled", "gpu", "paper", "host", "storage"),
    default="auto",
    share="ssd_weights",
    published="paper",  # HILOS sec. 6.1, INF² sec. 7.1
)
FILLED = 0.0
"""Place of `filled` in the choices."""
LEAST_IN_ALL = Reversal(("prefill_s", "step_ms"), (ANY,), "weights is solved for total_s")
SOLVED_APART = Reversal(
    MONOTONE_COLUMNS, (ANY,), "alpha is solved for the step, weights for total_s"
)


@dataclass(frozen=True)
class Residency:
    """Shares of a tensor by the memory it lies in, of the weights or a cache; they add up to one.

    Attributes:
        gpu, host, storage: share in GPU memory, in host DRAM, on the drives [1].
    """

    gpu: Real
    host: Real
    storage: Real


ALL_ON_GPU = Residency(gpu=1.0, host=0.0, storage=0.0)
ALL_IN_HOST = Residency(gpu=0.0, host=1.0, storage=0.0)
ALL_ON_STORAGE = Residency(gpu=0.0, host=0.0, storage=1.0)


def beside_gpu(on_gpu: Real, on_storage: Real) -> Residency:
    """Return shares of a tensor: some on the GPU, of the others a share on storage.

    Args:
        on_gpu: share of the tensor on the GPU [1].
        on_storage: share of the others on storage, the rest in host DRAM [1].
    """
    streamed = 1 - on_gpu
    return Residency(on_gpu, streamed * (1 - on_storage), streamed * on_storage)


def weights_on_storage(hw: Machine, llm: LLM) -> Real:
    """1 where weights live on storage, 0 in DRAM (HILOS sec. 6.1: above 100B parameters) [1]."""
    limit = hw.policy.weights_in_dram_up_to
    exceeds = np.asarray(llm.parameters) > limit
    return choose(exceeds, 1.0, 0.0)


def weights_on_gpu(llm: LLM, work: Workload, gpu: Gpu) -> Real:
    """1 where all weights stay on the GPU beside its activations, else 0 (INF² sec. 7.1) [1]."""
    resident = gpu_working_set(llm, work.together, 1.0, work.batch)
    return choose(resident <= gpu.memory, 1.0, 0.0)


@dataclass(frozen=True)
class Headroom:
    """Memory that a step leaves to weights.

    Attributes:
        host: host DRAM for them [B].
        beside: GPU memory that it takes beyond its working set [B].
        stored: least share on storage of what is not on the GPU [1].
        knob: the knob whose choice is made.
        pinned: whether weights in host DRAM fill pinned buffers, as in `host_weights`.
    """

    host: Real
    beside: Real = 0.0
    stored: Real = 0.0
    knob: Knob = WEIGHTS
    pinned: bool = True


def choose_residency(
    choice: Real,
    paper: Residency,
    hw: Machine,
    llm: LLM,
    work: Workload,
    headroom: Headroom,
) -> Residency:
    """Return where weights live by a choice of `WEIGHTS`.

    Args:
        choice: index into the knob's choices.
        paper: the shares by the paper's rule.
        headroom: what the step leaves to weights.
    """
    tiers = {
        "filled": _filled(hw, llm, work, headroom),
        "gpu": ALL_ON_GPU,
        "paper": paper,
        "host": ALL_IN_HOST,
        "storage": ALL_ON_STORAGE,
    }
    options = [tiers[name] for name in headroom.knob.choices]
    index = np.asarray(choice, int)
    on_gpu = np.choose(index, [option.gpu for option in options])[()]
    in_host = np.choose(index, [option.host for option in options])[()]
    return Residency(on_gpu, in_host, 1 - on_gpu - in_host)


def _filled(hw: Machine, llm: LLM, work: Workload, headroom: Headroom) -> Residency:
    """Weights in the GPU, the rest in host DRAM as far as it goes, then on storage.

    More memory never moves a weight to a slower one.
    """
    on_gpu = fitting_on_gpu(hw, llm, work, headroom.beside)
    streamed = 1 - on_gpu
    all_weights = (
        host_weights(hw, llm, ALL_IN_HOST) if headroom.pinned else llm.weight_bytes
    )
    in_dram = headroom.host / all_weights
    in_host = np.clip(in_dram, 0.0, streamed * (1 - headroom.stored))
    return Residency(on_gpu, in_host, streamed - in_host)


def fitting_on_gpu(hw: Machine, llm: LLM, work: Workload, beside: Real) -> Real:
    """Share of the weights that fits the GPU beside its working set [1].

    Weights that all stay need no buffer for those in transfer. K and V of a prompt's earlier chunks
    go before weights.

    Args:
        beside: GPU memory that the step takes beyond its working set [B].
    """
    streaming = gpu_working_set(llm, work.together, 0.0, work.batch)
    resident = gpu_working_set(llm, work.together, 1.0, work.batch)
    beside_working_set = np.maximum(gpu(hw).memory - beside - streaming, 0.0)
    free = gpu(hw).memory - beside - np.minimum(held_bytes(llm, work), beside_working_set)
    rise = np.maximum(resident - streaming, 1.0)
    fitting = np.clip((free - streaming) / rise, 0.0, 1.0)
    return choose(resident <= free, 1.0, fitting)


def host_weights(hw: Machine, llm: LLM, tiers: Residency) -> Real:
    """Host DRAM that the weights in it take [B].

    Where the platform pins them, each matrix fills a buffer of a power of two bytes (PyTorch's
    allocator): 1.31 times OPT-30B's, 1.58 times OPT-66B's.
    """
    exact = llm.sum_over_layers(_matrix_bytes)
    pinned = llm.sum_over_layers(partial(_matrix_bytes, buffer=_power_of_two))
    excess = hw.policy.pinned_rounding * (pinned / exact - 1)
    return tiers.host * llm.weight_bytes * (1 + excess)


def _matrix_bytes(llm: LLM, buffer: Callable[[Real], Real] = np.positive) -> Real:
    """Bytes of a layer's matrices, each in a buffer, by default of its own size [B]."""
    row = llm.hidden * llm.weight_width
    attention = 2 * buffer(row * llm.query_size) + 2 * buffer(row * llm.kv_size)
    return attention + llm.experts * (2 + llm.gated) * buffer(row * llm.ffn)


def _power_of_two(size: Real) -> Real:
    """The next power of two bytes; 0 for an absent matrix [B]."""
    rounded = np.exp2(np.ceil(np.log2(np.maximum(size, 1.0))))
    return rounded * (size > 0)


# --- what they leave to the KV cache ------------------------------------------------------------


def kv_share_in(memory: Real, llm: LLM, work: Workload) -> Real:
    """Share of the KV cache that a memory holds, given its bytes [1]."""
    kv = llm.kv_cache_bytes(work.batch, work.final)
    return np.clip(memory / np.maximum(kv, 1.0), 0.0, 1.0)


def most_in_host(llm: LLM, work: Workload, alpha: Real) -> Real:
    """Host memory for a cache that is all there: K and V, or with X if that is more [B].

    Args:
        alpha: share of the batch kept as X [1].
    """
    kv, x = llm.kv_cache_bytes(work.batch, work.final), x_cache_bytes(llm, work)
    return np.maximum(kv, (1 - alpha) * kv + alpha * x)


def x_cache_bytes(llm: LLM, work: Workload) -> Real:
    """X of the batch, all layers [B]."""
    return llm.sum_over_layers(
        lambda layer_type: layer_type.x_bytes(work.batch, work.final)
    )


def dram_or_drives(
    hw: Machine, llm: LLM, work: Workload, choice: Real, headroom: Headroom
) -> Residency:
    """Return where weights live by a choice of `WEIGHTS`, in what a step leaves.

    The paper's rule: in host DRAM, above the policy's size on storage (HILOS sec. 6.1).
    """
    stored = np.maximum(weights_on_storage(hw, llm), headroom.stored)
    return choose_residency(choice, beside_gpu(0.0, stored), hw, llm, work, headroom)


def weights_or_drives(
    hw: Machine,
    llm: LLM,
    work: Workload,
    choice: Real,
    stored: Real,
    reserved: Real,
    beside: Real = 0.0,
) -> Residency:
    """Return where weights live by a choice of `WEIGHTS` beside a share stated for the drives.

    The paper's rule: on the GPU where all fit, else in host DRAM but for that share (INF² sec. 7.1,
    7.5). `filled` puts no less of what is not on the GPU on the drives.

    Args:
        choice: index into the knob's choices.
        stored: share on the drives of what is not on the GPU [1].
        reserved: host DRAM that the step needs [B].
        beside: GPU memory that the step takes beyond its working set [B].
    """
    on_gpu = weights_on_gpu(llm, work, gpu(hw))
    paper = beside_gpu(on_gpu, stored)
    headroom = Headroom(host(hw).memory - reserved, beside, stored)
    return choose_residency(choice, paper, hw, llm, work, headroom)


def cache_breaks(
    hw: Machine, llm: LLM, work: Workload, knobs: ByName
) -> tuple[Real, Real, Real]:
    """Shares of the weights on storage at which host DRAM begins to hold KV cache, and all of it.

    A third one is where host DRAM is no longer full of weights. Between them, and on either side,
    what lives where is affine in the share [1].
    """
    choice, batches = knobs.get("weights", FILLED), knobs.get("gpu_batches", 1.0)
    passing = passing_latents(llm, work, batches)
    copies = layer_copies(llm, work)
    tiers = weights_or_drives(hw, llm, work, choice, 0.0, copies, passing)
    left = host(hw).memory - copies
    cache = most_in_host(llm, work, 0.0)
    return (
        share_leaving(hw, llm, tiers, left),
        share_leaving(hw, llm, tiers, left - cache),
        overflow(tiers),
    )


def share_leaving(hw: Machine, llm: LLM, tiers: Residency, room: Real) -> Real:
    """Share on storage of what is not on the GPU with which the others just fill a room [1].

    Args:
        tiers: for the share on the GPU.
        room: host DRAM for weights [B].
    """
    streamed = host_weights(hw, llm, beside_gpu(tiers.gpu, 0.0))
    return 1 - room / np.maximum(streamed, 1.0)


def overflow(tiers: Residency) -> Real:
    """Share on storage of what is not on the GPU where host DRAM is full, else -1 [1]."""
    streamed = np.maximum(1 - tiers.gpu, 1e-300)
    return np.where(tiers.storage > 0, tiers.storage / streamed, -1.0)


def alphas_that_fill(
    hw: Machine, llm: LLM, tiers: Residency, only_kv: Real, only_x: Real
) -> tuple[Real, ...]:
    """Alphas at which caches beside weights fill host memory, and alone; none outside 0 to 1 [1].

    Args:
        tiers: weights where no cache takes host memory.
        only_kv, only_x: host memory of caches at alpha 0 and at alpha 1 [B].
    """
    rise = only_x - only_kv
    free = host(hw).memory - only_kv
    rooms = (free - host_weights(hw, llm, tiers), free)
    alphas = [room / np.where(rise == 0, np.nan, rise) for room in rooms]
    inside = [np.nan_to_num(alpha, nan=-1.0) for alpha in alphas]
    return tuple(alpha for alpha in inside if np.any((alpha > 0) & (alpha < 1)))


def link_is_slower(hw: Machine, *derates: str) -> Booleans:
    """True if host DRAM gives bytes no slower than the GPU's link takes them, at any derate.

    Where all that is read there crosses that link beside it, DRAM then delays nothing, and the
    drives less the fewer weights they hold: the least share on them is the best one.
    """
    rates = [link(hw, "gpu_link", name).inward.rate for name in derates]
    fastest = reduce(np.maximum, rates)
    return np.greater_equal(host(hw).read.rate, fastest)


def buffers_or_copies(llm: LLM, work: Workload, buffered: Real) -> Real:
    """Host memory that attention needs beside the weights [B].

    Args:
        buffered: tokens that wait to be spilled; where none do, layers are copied [1].
    """
    waiting = llm.kv_cache_bytes(work.batch, buffered)
    hidden = hidden_bytes(llm, work.batch, work)
    is_buffered = buffered > 0
    return choose(is_buffered, np.maximum(waiting, hidden), layer_copies(llm, work))


def layer_copies(llm: LLM, work: Workload) -> Real:
    """Host memory for the layer that is read and the one attended to [B].

    Hidden states of prompts in chunks, which are gone by then, take as much at least.
    """
    copies = 2 * llm.most_of_a_layer(
        lambda layer_type: layer_type.kv_bytes(work.batch, work.final)
    )
    return np.maximum(copies, hidden_bytes(llm, work.batch, work))


def room_for_prompts(hw: Machine, llm: LLM, work: Workload, knobs: ByName) -> Real:
    """GPU memory for the activations of a prompt beside the weights in transfer, or all [B]."""
    on_gpu = knobs.get("weights", FILLED) == WEIGHTS.choices.index("gpu")
    passing = passing_latents(llm, work, knobs.get("gpu_batches", 1.0))
    working = gpu_working_set(llm, 0.0, 1.0 * on_gpu, work.batch)
    return gpu(hw).memory - working - passing


CHUNK = chunk_knob(room_for_prompts)
SSD_WEIGHTS = Knob(
    "least share on the drives of the weights that are not on the GPU (INF² sec. 7.5)",
    default=0.0,
    breaks=cache_breaks,
)
