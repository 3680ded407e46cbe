"""INF²: attention near storage, delayed KV writeback, X-cache in host memory (paper: inf2 sec. 4, 5).

Symbols: b batch, s context, L layers, N devices, alpha share of the batch kept as X, c spill interval.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nearkv.costmodel.capacity import Fits, fits
from nearkv.costmodel.compose import overlap, serial, stream
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.offload import (
    copied,
    exchange,
    exchange_with_cpu,
    gpu_working_set,
    kv_share_in,
    linear_step,
    load_weights,
    prefill_compute,
    rebuild_from_x,
    weights_on_gpu,
    with_head,
)
from nearkv.costmodel.mechanisms.writeback import (
    head_rows,
    mean_buffered_rows,
    spill,
    stage_buffers,
    write_naively,
)
from nearkv.costmodel.registry import NO_KNOBS, Knob, system
from nearkv.costmodel.resources import Csd, Link, csd, gpu, host, link
from nearkv.costmodel.span import Port, Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine

SCORE_PASSES = 8
"""Times a score crosses the accelerator's memory: written by Q K^T, read and written by masking, by the
exponentials and by the division, read for V (sec. 5)."""
SOFTMAX_PASSES = 3
"""Passes over the scores: mask and maximum, sum of exponentials, division (sec. 5)."""

LINKS = (("gpu_link", "pcie"), ("gpu_link", "unpinned"), ("uplink", "uplink"))
"""The GPU's link with pinned buffers and, for the caches, without; the way to the drives."""

INTERVAL = 2
"""Default spill interval c (sec. 7.1)."""


def alpha_of_host_memory(
    hw: Machine, llm: LLM, work: Workload, knobs: Mapping[str, Real] = NO_KNOBS
) -> Real:
    """All host memory that weights and writeback buffers leave, filled with X (sec. 4.3, 6, 7.5) [1].

    Alpha = (M - (1 - r) W - B) / (X - B), where r of the weights W is on the drives and only the
    share 1 - alpha fills the buffers, which take B for all of it.
    """
    on_drives, c, writeback = (
        knobs.get("ssd_weights", 0.0),
        knobs.get("interval", INTERVAL),
        knobs.get("writeback", 1),
    )
    weights = (1 - weights_on_gpu(llm, work.prompt, gpu(hw))) * (1 - on_drives) * llm.weight_bytes
    buffers = llm.layers * llm.kv_bytes(work.batch, writeback * c)
    beyond = llm.layers * llm.x_bytes(work.batch, work.final) - buffers
    room = host(hw).memory - weights - buffers
    return np.where(beyond > 0, np.clip(np.divide(room, np.maximum(beyond, 1.0)), 0.0, 1.0), 1.0)[
        ()
    ]


@system(
    "inf2",
    platform="inf2-a100",
    cite="inf2",
    owns=("gpu", "host", "csd", "chassis"),
    knobs={
        "alpha": Knob(
            "share of the batch whose X is cached in host memory instead of K and V on flash (sec. 4.3)",
            rules={"paper": alpha_of_host_memory},
        ),
        "interval": Knob(
            "tokens buffered in host memory before they are spilled, c (sec. 4.2, 7.1)",
            low=1, high=256, default=INTERVAL, kind="count",
        ),
        "writeback": Knob(
            "commit every KV entry in the step, or spill it in the background",
            high=1, default=1, kind="choice", choices=("naive", "delayed"),
        ),
        "buffering": Knob(
            "read a layer's KV before its kernel starts (the paper's pread), or while it runs",
            high=1, default=0, kind="choice", choices=("single", "double"),
        ),
        "ssd_weights": Knob("share of the weights that live on the drives (sec. 7.5)", default=0.0),
        "devices": Knob("number of computational storage devices", kind="count", sets="csd.count"),
        "memory": Knob("host memory budget (sec. 7.5)", kind="count", sets="host.memory"),
    },
)  # fmt: skip
def inf2(
    hw: Machine, llm: LLM, work: Workload, *,
    alpha: Real, interval: Real, writeback: Real, buffering: Real, ssd_weights: Real,
) -> Estimate:  # fmt: skip
    """Attention beside the flash, X-cache in host memory, weights streamed layer by layer.

    Hundreds of gigabytes of X are not pinned any more than FlexGen's caches are: all but single tokens
    go through a pinned relay (`derate.unpinned`), in prefill as in decode. A KV cache that fits host
    memory stays there and the CPU attends to it, so the drives carry nothing (sec. 7.5, 7.6).

    Args:
        hw: roles gpu, gpu_link, host, uplink, csd (with kernel_tiled).
        llm, work: what runs.
        alpha: share of the batch kept as X, bounded by host memory [1].
        interval: spill interval c [tokens].
        writeback: 0 naive, 1 delayed.
        buffering: 0 read then compute, 1 both at once.
        ssd_weights: share of the weights on the drives [1].

    Returns:
        Prefill, one decode step and what fits; all of `work.batch` runs together.
        Source: INF² sec. 4.1 to 4.3, 5, 7.1.
    """
    b, s = work.batch, work.context
    dev, gpu_, host_ = csd(hw, llm.group), gpu(hw), host(hw)
    gpu_link, cache_link, uplink = (link(hw, *of) for of in LINKS)
    way = {"flash": dev.read, "uplink": uplink.inward, "file": host_.file}
    streamed = 1 - weights_on_gpu(llm, work.prompt, gpu_)
    near, beside = near_and_beside(hw, llm, work, ssd_weights, (1 - alpha) * b)
    rows = head_rows(llm, near, 1.0, 0.0)

    def load(amount: Real) -> Span:
        return load_weights(streamed * amount, ssd_weights, way, host_, gpu_link)

    layer = serial(
        linear=linear_step(llm, b, gpu_, load(llm.layer_weight_bytes(b))),
        new_token=exchange_new_token(llm, near, beside, alpha * b, gpu_link, uplink),
        writeback=write_naively(llm, rows, writeback, dev),
        stage=writeback * stage_rows(llm, near, interval, dev, uplink.outward),
        attention=overlap(
            near_storage=near_storage(hw, llm, near, s, buffering, dev),
            cpu=host_.attend(llm.kv_bytes(beside, s), "CPU attention, sec. 7.5"),
            x_cache=rebuild_from_x(llm, b, s, alpha, gpu_, dram=host_.read, link=cache_link.inward),
            spill=spill(llm, rows, interval, writeback, work.output, dev),
        ),
    )
    prefill = overlap(
        weights=load(llm.layer_weight_bytes(b * work.prompt)),
        compute=prefill_compute(llm, work, b, gpu_),
        caches=put_caches(llm, work.prompt, near, beside, alpha * b, cache_link, uplink, dev),
    )
    return Estimate(
        prefill=with_head(llm, prefill, b, gpu_, load),
        step=with_head(llm, layer, b, gpu_, load),
        fits=capacity_check(
            hw, llm, work, alpha, writeback * interval, streamed * ssd_weights, dev
        ),
        work=work,
        batch_run=b,
        accelerator_power={"csd": dev.kernel_power},
    )


def exchange_new_token(
    llm: LLM, near: Real, beside: Real, with_x: Real, gpu_link: Link, uplink: Link
) -> Span:
    """Q, K, V to the devices or to the CPU, attention output back, X to host memory (sec. 4.1, 4.3)."""
    return serial(
        devices=exchange(llm, near, 0.0, uplink, gpu_link),
        cpu=exchange_with_cpu(llm, beside, gpu_link),
        keep_x=gpu_link.outward(
            llm.x_bytes(with_x, 1), "X of the new token to host memory, sec. 4.3"
        ),
    )


def put_caches(
    llm: LLM,
    s: Real,
    near: Real,
    beside: Real,
    with_x: Real,
    cache_link: Link,
    uplink: Link,
    dev: Csd,
) -> Span:
    """One layer's caches of prompts of s tokens leave the GPU (sec. 2.2, 4.3).

    Args:
        near, beside, with_x: sequences whose K and V go to flash, whose K and V stay in host memory,
            and whose X does [1].
    """
    stays = llm.kv_bytes(beside, s) + llm.x_bytes(with_x, s)
    way = {"link": cache_link.outward, "uplink": uplink.outward, "flash": dev.write}
    return overlap(
        flash=stream(llm.kv_bytes(near, s), "4sbhd, sec. 2.2", **way),
        host=cache_link.outward(stays, "X, or K and V, to host memory"),
    )


def kv_fits_host(hw: Machine, llm: LLM, work: Workload, ssd_weights: Real) -> Real:
    """1 where main memory holds the whole KV cache beside the weights, else 0 (sec. 2.2, 7.5, 7.6) [1]."""
    weights = (1 - weights_on_gpu(llm, work.prompt, gpu(hw))) * (1 - ssd_weights) * llm.weight_bytes
    return np.floor(kv_share_in(host(hw).memory - weights - copied(llm, work), llm, work))


def near_and_beside(
    hw: Machine, llm: LLM, work: Workload, ssd_weights: Real, b: Real
) -> tuple[Real, Real]:
    """Of b sequences, those whose K and V are in the devices, and those whose are in host memory [1]."""
    here = kv_fits_host(hw, llm, work, ssd_weights)
    return (1 - here) * b, here * b


def near_storage(hw: Machine, llm: LLM, near: Real, s: Real, buffering: Real, dev: Csd) -> Span:
    """Flash to accelerator memory, then the kernel, for `near` sequences of s tokens (sec. 4.1, 5).

    A synchronous pread fills the buffer before the kernel starts; a second buffer would hide one
    behind the other. The paper does not say which, so it is a choice.
    """
    bandwidth = hw.csd.count * hw.csd.memory_bandwidth
    # a DMA fills the buffer in long bursts; tiles are read row by row
    dma, tiles = (
        Port("csd.dram", "write", bandwidth),
        Port("csd.dram", "read", bandwidth * hw.derate.fpga_dram),
    )

    def work(sequences: Real) -> tuple[Span, Span]:
        kv = llm.kv_bytes(sequences, s)
        return stream(kv, "P2P, sec. 4.1", flash=dev.read, dram=dma), kernel(
            hw, llm, sequences, s, tiles
        )

    read_first, compute_next = work((1 - buffering) * near)
    read, compute = work(buffering * near)
    return serial(read=read_first, kernel=compute_next, both=overlap(read=read, kernel=compute))


def kernel(hw: Machine, llm: LLM, sequences: Real, s: Real, memory: Port) -> Span:
    """The older attention kernel: 32-wide tiles, in-place transposition, three-pass softmax (sec. 5).

    A tile is loaded into block RAM, K tiles are transposed there (32 elements a cycle and block),
    and the multipliers take one element each a cycle; in-place work leaves nothing to overlap with.
    A cycle of a unit counts as two FLOPs, whatever it is spent on.
    """
    units = Port("csd.kernel", "run", hw.csd.count * hw.csd.kernel_tiled, "FLOP")
    elements = llm.kv_bytes(sequences, s) / llm.kv_width
    scores = llm.heads * sequences * s
    return serial(
        load=memory(elements * llm.kv_width, "tiles of K and V, sec. 5"),
        transpose=units(elements, "32 x 32 tiles of K in place, sec. 5"),
        multiply=units(2 * elements * llm.group, "one element a multiplier and cycle, sec. 5"),
        softmax=overlap(
            move=memory(
                SCORE_PASSES * scores * llm.activation_width, "scores in accelerator memory, sec. 5"
            ),
            reduce=units(2 * SOFTMAX_PASSES * scores, "three passes, 128 scores a cycle, sec. 5"),
        ),
    )


def stage_rows(llm: LLM, near: Real, c: Real, dev: Csd, to_device: Port) -> Span:
    """K and V rows not yet spilled; one buffer a sequence, as a sequence's heads share a device (sec. 4.2, 7.1).

    The newest row is not among them: the exchange has just brought it (eq. 3).
    """
    rows = (mean_buffered_rows(c) - 1) * llm.kv_bytes(near, 1)
    return stage_buffers(
        near, rows, dev, to_device, "one transfer a sequence", "K and V rows again"
    )


def capacity_check(
    hw: Machine, llm: LLM, work: Workload, alpha: Real, buffered: Real, on_drives: Real, dev: Csd
) -> Fits:
    """X-cache, writeback buffers and weights in host memory, K and V in flash unless they fit there too (sec. 4.3).

    Args:
        buffered: tokens whose K and V wait in host memory [1].
        on_drives: share of the weights on the drives [1].
    """
    gpu_ = gpu(hw)
    on_gpu = weights_on_gpu(llm, work.prompt, gpu_)
    here = kv_fits_host(hw, llm, work, on_drives)
    kv = (1 - alpha) * llm.kv_bytes(work.batch, work.final)
    buffers = (1 - here) * (1 - alpha) * llm.kv_bytes(work.batch, buffered)
    kept = alpha * llm.x_bytes(work.batch, work.final) + here * kv + buffers
    return fits(
        gpu=(gpu_working_set(llm, work.prompt, on_gpu), gpu_.memory),
        host=((1 - on_gpu - on_drives) * llm.weight_bytes + llm.layers * kept, host(hw).memory),
        csd=(on_drives * llm.weight_bytes + (1 - here) * llm.layers * kv, dev.capacity),
    )
