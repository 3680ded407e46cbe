"""HILOS: attention near storage, cooperative X-cache, delayed KV writeback (papers: hilos sec. 4).

Symbols: b batch, s context, h hidden, g queries a KV head, L layers, N devices,
alpha share of the batch kept as X, c spill interval.
"""

from __future__ import annotations

import numpy as np

from costmodel.capacity import fits
from costmodel.estimate import Estimate
from costmodel.llm import LLM
from costmodel.offload import gpu_working_set, linear_step, load_weights, prefill_compute, weights_on_storage
from costmodel.registry import Knob, system
from costmodel.resources import Csd, Gpu, Link, csd, gpu, host, link
from costmodel.span import Real, Span, overlap, serial, stream
from costmodel.workload import Workload
from hardware.machine import Machine

NAIVE, DELAYED = 0, 1


def alpha_closed_form(hw: Machine, llm: LLM, work: Workload) -> Real:
    """Alpha = 2 B_PCI / (B_SSD + B_PCI), sec. 4.2 as printed: MHA only, capped at 1 where it exceeds it [1]."""
    pci, ssd = link(hw, "uplink", "uplink").inward.rate, csd(hw, llm.group).read.rate
    return np.minimum(2 * pci / (ssd + pci), 1.0)


def alpha_power_of_two(hw: Machine, llm: LLM, work: Workload) -> Real:
    """The closed form at the nearest power of two, on a logarithmic scale (sec. 4.2 leaves that open) [1]."""
    return np.exp2(np.round(np.log2(alpha_closed_form(hw, llm, work))))


def interval_of_page(hw: Machine, llm: LLM, work: Workload) -> Real:
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
def hilos(hw: Machine, llm: LLM, work: Workload, *, alpha: Real, interval: Real, writeback: Real) -> Estimate:
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
    b, s, layers = work.batch, work.context, llm.layers
    dev, gpu_, host_ = csd(hw, llm.group), gpu(hw), host(hw)
    gpu_link, uplink = link(hw, "gpu_link", "pcie"), link(hw, "uplink", "uplink")
    on_storage = weights_on_storage(hw, llm)
    way = {"flash": dev.read, "uplink": uplink.inward}

    layer = serial(
        linear=linear_step(llm, b, gpu_, load_weights(llm.layer_weight_bytes(b), on_storage, way, host_, gpu_link)),
        exchange=exchange(llm, b, alpha, uplink, gpu_link),
        writeback=write_naively(llm, b, alpha, writeback, dev),
        stage=stage_buffers(llm, b, alpha, interval, writeback, dev, uplink),
        attention=overlap(
            near_storage=overlap(
                flash=dev.read((1 - alpha) * llm.kv_bytes(b, s), "(1-a) 4sh, sec. 4.2"),
                kernel=dev.attend((1 - alpha) * llm.kv_bytes(b, s), "Table 3"),
            ),
            x_cache=rebuild_from_x(llm, b, s, alpha, dev, gpu_, uplink, gpu_link),
            spill=spill(llm, b, alpha, interval, writeback, work.output, dev),
        ),
    )
    cached = (1 - alpha) * llm.kv_bytes(b, work.prompt) + alpha * llm.x_bytes(b, work.prompt)
    prefill = overlap(
        weights=load_weights(llm.layer_weight_bytes(b * work.prompt), on_storage, way, host_, gpu_link),
        compute=prefill_compute(llm, work, b, gpu_),
        cache=stream(cached, "sec. 4.1", link=gpu_link.outward, uplink=uplink.outward, flash=dev.write),
    )
    per_token = (1 - alpha) * llm.kv_bytes(b, 1) + alpha * llm.x_bytes(b, 1)
    return Estimate(
        prefill=layers * prefill,
        step=layers * layer,
        fits=fits(
            gpu=(gpu_working_set(llm, work.prompt), gpu_.memory),
            host=((1 - on_storage) * llm.weight_bytes + layers * writeback * interval * per_token, host_.memory),
            csd=(on_storage * llm.weight_bytes + layers * work.final * per_token, dev.capacity),
        ),
        work=work,
        batch_run=b,
        kernel_power={"csd.kernel": dev.kernel_power},
    )


def exchange(llm: LLM, b: Real, alpha: Real, uplink: Link, gpu_link: Link) -> Span:
    """Q, K, V of the new token to the devices (6h bytes), the attention output back (2h), sec. 4.1."""
    new = (1 - alpha) * (llm.query_bytes(b) + llm.kv_bytes(b, 1)) + alpha * llm.x_bytes(b, 1)
    out = (1 - alpha) * llm.query_bytes(b)
    return serial(
        qkv=stream(new, "6h, eq. 3", link=gpu_link.outward, uplink=uplink.outward),
        result=stream(out, "2h, eq. 3", uplink=uplink.inward, link=gpu_link.inward),
    )


def rebuild_from_x(llm: LLM, b: Real, s: Real, alpha: Real, dev: Csd, gpu_: Gpu, uplink: Link, gpu_link: Link) -> Span:
    """Load X past the host, project it to K and V again, attend; pipelined (sec. 4.2)."""
    x = alpha * llm.x_bytes(b, s)
    return overlap(
        load=stream(x, "T_PCI = a 2sh / B_PCI", flash=dev.read, uplink=uplink.inward, link=gpu_link.inward),
        compute=gpu_.run(alpha * (llm.kv_from_x_flops(b, s) + llm.attention_flops(b, s)), "T_GPU, K and V"),
    )


def entries(llm: LLM, b: Real, alpha: Real) -> Real:
    """Head-sized rows a new token adds in one layer: K and V rows, or X rows in K's layout (sec. 4.3) [1]."""
    return b * ((1 - alpha) * 2 * llm.kv_heads + alpha * llm.hidden / llm.head_size)


def entries_per_page(llm: LLM, dev: Csd) -> Real:
    """Rows of one head that share a flash page; never less than one [1]."""
    return np.maximum(np.floor(dev.page / (llm.head_size * llm.kv_width)), 1.0)


def write_naively(llm: LLM, b: Real, alpha: Real, writeback: Real, dev: Csd) -> Span:
    """Every row is committed inside the step, each a page write (fig. 6a)."""
    rows = (1 - writeback) * entries(llm, b, alpha)
    return serial(commit=dev.commit(rows, "one commit a row"), program=dev.write(rows * dev.page, "one page a row"))


def spill(llm: LLM, b: Real, alpha: Real, c: Real, writeback: Real, output: Real, dev: Csd) -> Span:
    """Every c steps each head writes ceil(c / rows a page) pages, in the background (fig. 6b).

    While a request runs, that load is steady. Rows still buffered when it ends are never written:
    c floor(n/c) of n tokens are.
    """
    pages = writeback * entries(llm, b, alpha) * np.ceil(c / entries_per_page(llm, dev)) / c
    kept = c * np.floor(output / c) / output
    return serial(
        commit=dev.commit(pages, "one commit a page"), program=dev.write(kept * pages * dev.page, "whole pages")
    )


def stage_buffers(llm: LLM, b: Real, alpha: Real, c: Real, writeback: Real, dev: Csd, uplink: Link) -> Span:
    """Buffered V rows and partial scores go to the accelerators again each step (sec. 4.3, 7.3).

    On average (c+1)/2 rows are buffered. The host issues one transfer for every page of a head's
    buffer, before the kernel can start; this is what makes a large c lose.
    """
    m = entries_per_page(llm, dev)
    full = np.floor(c / m)
    transfers = (m * full * (full + 1) / 2 + (c - m * full) * (full + 1)) / c  # mean of ceil(i/m), i = 1..c
    heads = writeback * (1 - alpha) * b * llm.kv_heads
    rows = (c + 1) / 2 * heads * (llm.head_size * llm.kv_width + llm.group * llm.activation_width)
    return serial(
        issue=dev.stage(heads * transfers, "one transfer a page of a head's buffer"),
        send=uplink.outward(rows, "V rows and Q K^T scalars"),
    )
