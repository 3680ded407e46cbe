"""HILOS: attention near storage, cooperative X-cache, delayed KV writeback (papers: hilos sec. 4).

Symbols: b batch, s context, h hidden, g queries a KV head, L layers, N devices,
alpha share of the batch kept as X, c spill interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from nearkv.costmodel.capacity import Fits, fits
from nearkv.costmodel.compose import overlap, serial, stream
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.offload import (
    exchange,
    gpu_working_set,
    linear_step,
    load_weights,
    prefill_compute,
    rebuild_from_x,
    weights_on_storage,
    with_head,
)
from nearkv.costmodel.mechanisms.writeback import (
    head_rows,
    mean_buffered_pages,
    mean_buffered_rows,
    pages_per_row,
    rows_per_page,
    spill,
    stage_buffers,
    write_naively,
)
from nearkv.costmodel.registry import NO_KNOBS, Knob, system
from nearkv.costmodel.resources import Csd, csd, gpu, host, link
from nearkv.costmodel.span import Port, Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine


def alpha_closed_form(
    hw: Machine, llm: LLM, work: Workload, _: Mapping[str, Real] = NO_KNOBS
) -> Real:
    """Alpha = 2 B_PCI / (B_SSD + B_PCI), sec. 4.2 as printed: MHA only, capped at 1 where it exceeds it [1]."""
    pci, ssd = link(hw, "uplink", "uplink").inward.rate, csd(hw, llm.group).read.rate
    return np.minimum(2 * pci / (ssd + pci), 1.0)


def alpha_power_of_two(
    hw: Machine, llm: LLM, work: Workload, knobs: Mapping[str, Real] = NO_KNOBS
) -> Real:
    """The closed form at the nearest power of two, on a logarithmic scale (sec. 4.2 leaves that open) [1]."""
    return np.exp2(np.round(np.log2(alpha_closed_form(hw, llm, work, knobs))))


def interval_of_page(
    hw: Machine, llm: LLM, work: Workload, _: Mapping[str, Real] = NO_KNOBS
) -> Real:
    """C = page / KV entry, sec. 4.3: 4096 / 256 = 16 tokens [1]."""
    return np.maximum(np.floor(hw.csd.page / (llm.head_size * llm.kv_width)), 1.0)


@system(
    "hilos",
    platform="hilos-a100",
    cite="hilos",
    owns=("gpu", "host", "csd", "chassis"),
    knobs={
        "alpha": Knob(
            "share of the batch whose X is cached instead of K and V (sec. 4.2)",
            rules={"paper": alpha_closed_form, "paper-power-of-two": alpha_power_of_two},
        ),
        "interval": Knob(
            "tokens buffered in host memory before they are spilled, c (sec. 4.3)",
            low=1, high=256, default=16, kind="count", rules={"paper": interval_of_page},
        ),
        "writeback": Knob(
            "commit every KV entry in the step, or spill pages in the background",
            high=1, default=1, kind="choice", choices=("naive", "delayed"),
        ),
        "devices": Knob("number of computational storage devices", kind="count", sets="csd.count"),
    },
)  # fmt: skip
def hilos(
    hw: Machine, llm: LLM, work: Workload, *, alpha: Real, interval: Real, writeback: Real
) -> Estimate:
    """Attention beside the flash, X-cache on the GPU, weights streamed layer by layer.

    Args:
        hw: roles gpu, gpu_link, host, uplink, csd.
        llm, work: what runs.
        alpha: share of the batch kept as X [1].
        interval: spill interval c [tokens].
        writeback: 0 naive, 1 delayed.

    Returns:
        Prefill, one decode step and what fits; all of `work.batch` runs together.
        Source: HILOS sec. 4.1 to 4.3; T_GPU counts K and V (erratum of sec. 4.2).
    """
    b, s = work.batch, work.context
    dev, gpu_, host_ = csd(hw, llm.group), gpu(hw), host(hw)
    gpu_link, uplink = link(hw, "gpu_link", "pcie"), link(hw, "uplink", "uplink")
    way = {"flash": dev.read, "uplink": uplink.inward}
    on_storage, rows = weights_on_storage(hw, llm), head_rows(llm, b, 1 - alpha, alpha)
    load = partial(load_weights, on_storage=on_storage, storage=way, host=host_, gpu_link=gpu_link)
    layer = serial(
        linear=linear_step(llm, b, gpu_, load(llm.layer_weight_bytes(b))),
        exchange=exchange(llm, b, alpha, uplink, gpu_link),
        writeback=write_naively(llm, rows, writeback, dev),
        stage=writeback
        * stage_value_rows(llm, (1 - alpha) * b * llm.kv_heads, interval, dev, uplink.outward),
        attention=overlap(
            near_storage=overlap(
                flash=dev.read((1 - alpha) * llm.kv_bytes(b, s), "(1-a) 4sh, sec. 4.2"),
                kernel=dev.attend((1 - alpha) * llm.kv_bytes(b, s), "Table 3"),
            ),
            x_cache=rebuild_from_x(
                llm, b, s, alpha, gpu_, flash=dev.read, uplink=uplink.inward, link=gpu_link.inward
            ),
            spill=spill(llm, rows, interval, writeback, work.output, dev),
        ),
    )
    cached = (1 - alpha) * llm.kv_bytes(b, work.prompt) + alpha * llm.x_bytes(b, work.prompt)
    prefill = overlap(
        weights=load(llm.layer_weight_bytes(b * work.prompt)),
        compute=prefill_compute(llm, work, b, gpu_),
        cache=stream(
            cached, "sec. 4.1", link=gpu_link.outward, uplink=uplink.outward, flash=dev.write
        ),
    )
    return Estimate(
        prefill=with_head(llm, prefill, b, gpu_, load),
        step=with_head(llm, layer, b, gpu_, load),
        fits=capacity_check(
            llm,
            work,
            alpha,
            writeback * interval,
            on_storage,
            gpu_.memory,
            host_.memory,
            dev.capacity,
        ),
        work=work,
        batch_run=b,
        accelerator_power={"csd": dev.kernel_power},
    )


def capacity_check(
    llm: LLM,
    work: Workload,
    alpha: Real,
    buffered: Real,
    on_storage: Real,
    gpu: Real,
    host: Real,
    csd: Real,
) -> Fits:
    """K and V, or X, of all tokens in flash, of the buffered ones in DRAM; weights where the policy says [B]."""
    per_token = llm.layers * (
        (1 - alpha) * llm.kv_bytes(work.batch, 1) + alpha * llm.x_bytes(work.batch, 1)
    )
    return fits(
        gpu=(gpu_working_set(llm, work.prompt), gpu),
        host=((1 - on_storage) * llm.weight_bytes + buffered * per_token, host),
        csd=(on_storage * llm.weight_bytes + work.final * per_token, csd),
    )


def stage_value_rows(llm: LLM, heads: Real, c: Real, dev: Csd, to_device: Port) -> Span:
    """Each head's V rows and partial scores, page by page; the CPU has used the K rows (sec. 4.3, 7.3)."""
    row = llm.head_size * llm.kv_width + llm.group * llm.activation_width
    pages = mean_buffered_pages(c, rows_per_page(llm, dev)) * pages_per_row(llm, dev)
    rows = mean_buffered_rows(c) * heads * row
    issue, send = "one transfer a page of a head's buffer", "V rows and Q K^T scalars"
    return stage_buffers(heads * pages, rows, dev, to_device, issue, send)
