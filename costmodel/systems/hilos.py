"""HILOS: attention near storage, cooperative X-cache, delayed KV writeback (paper: hilos sec. 4).

Symbols: b batch, s context, h hidden, g queries a KV head, L layers, N devices,
alpha share of the batch kept as X, c spill interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.compose import overlap, serial, stream
from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.mechanisms.gpu_layer import gpu_working_set
from nearkv.costmodel.mechanisms.near_storage.writeback import (
    Writeback,
    head_rows,
    rows_per_page,
    stage_pages,
)
from nearkv.costmodel.mechanisms.near_storage.x_cache import exchange, rebuild_from_x
from nearkv.costmodel.mechanisms.weights.residency import (
    WEIGHTS,
    Headroom,
    beside_gpu,
    choose_residency,
    host_weights,
    weights_on_storage,
)
from nearkv.costmodel.mechanisms.weights.streaming import WeightStream
from nearkv.costmodel.model.capacity import Fits, fits
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import NO_KNOBS, Knob, system
from nearkv.costmodel.model.resources import Csd, csd, gpu, host, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

# --- knobs and their rules --------------------------------------------------------------------


def alpha_closed_form(
    hw: Machine, llm: LLM, work: Workload, _: Mapping[str, Real] = NO_KNOBS
) -> Real:
    """Alpha = 2 B_PCI / (B_SSD + B_PCI), sec. 4.2 as printed: MHA only, capped at 1 [1]."""
    pci = link(hw, "uplink", "uplink").inward.rate
    ssd = devices_of(hw, llm).read.rate
    return np.minimum(2 * pci / (ssd + pci), 1.0)


def alpha_power_of_two(
    hw: Machine, llm: LLM, work: Workload, knobs: Mapping[str, Real] = NO_KNOBS
) -> Real:
    """The closed form at the nearest power of two, by logarithm (sec. 4.2 leaves that open) [1]."""
    exponent = np.round(np.log2(alpha_closed_form(hw, llm, work, knobs)))
    return np.exp2(exponent)


def interval_of_page(
    hw: Machine, llm: LLM, work: Workload, _: Mapping[str, Real] = NO_KNOBS
) -> Real:
    """C = page / KV entry, sec. 4.3: 4096 / 256 = 16 tokens [1]."""
    return rows_per_page(llm, hw.csd.page)


ALPHA = Knob(
    "share of the batch whose X is cached instead of K and V (sec. 4.2)",
    rules={"paper": alpha_closed_form, "paper-power-of-two": alpha_power_of_two},
)
INTERVAL = Knob(
    "tokens buffered in host memory before they are spilled, c (sec. 4.3)",
    low=1,
    high=256,
    default=16,
    kind="count",
    rules={"paper": interval_of_page},
)
WRITEBACK = Knob(
    "commit every KV entry in the step, or spill pages in the background",
    high=1,
    default=1,
    kind="choice",
    choices=("naive", "delayed"),
)
DEVICES = Knob("number of computational storage devices", kind="count", sets="csd.count")


# --- the system -------------------------------------------------------------------------------


@system(
    "hilos",
    platform="hilos-a100",
    cite="hilos",
    owns=("gpu", "host", "csd", "chassis"),
    knobs={
        "alpha": ALPHA,
        "interval": INTERVAL,
        "writeback": WRITEBACK,
        "weights": WEIGHTS,
        "devices": DEVICES,
    },
    attends=("full", "window", "chunk", "latent", "state"),
    lacks={"sparse": "Table 3 has no kernel that scores keys and gathers the best of them"},
)
def hilos(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    alpha: Real,
    interval: Real,
    writeback: Real,
    weights: Real,
) -> Estimate:
    """Attention beside the flash, X-cache on the GPU, weights streamed layer by layer.

    Args:
        hw: roles gpu, gpu_link, host, uplink, csd.
        llm, work: what runs.
        alpha: share of the batch kept as X [1].
        interval: spill interval c [tokens].
        writeback: 0 naive, 1 delayed.
        weights: where weights live, as in `mechanisms.weights.residency`.

    Returns:
        Prefill, one decode step and what fits; all of `work.batch` runs together.
        Source: HILOS sec. 4.1 to 4.3; T_GPU counts K and V (erratum of sec. 4.2).
    """
    b = work.batch
    caching = Caching(alpha, interval, writeback)
    buffers = buffer_bytes(llm, b, caching)
    streamed = stream_weights(hw, llm, work, weights, most_buffers(llm, b, caching))
    return Estimate(
        prefill=streamed.over_kinds(lambda kind: prefill_layer(hw, kind, work, alpha), b),
        step=streamed.over_kinds(lambda kind: decode_layer(hw, kind, work, caching), b),
        fits=capacity_check(hw, streamed, work, alpha, buffers),
        work=work,
        batch_run=b,
        accelerator_power={"csd": kernel_power(hw, llm)},
    )


@dataclass(frozen=True)
class Caching:
    """How a batch is cached.

    Attributes:
        alpha: share kept as X [1].
        interval: spill interval c [tokens].
        writeback: 0 naive, 1 delayed.
    """

    alpha: Real
    interval: Real
    writeback: Real


def decode_layer(
    hw: Machine, weights: WeightStream, work: Workload, caching: Caching
) -> Span:
    """One layer of a step: products, the new token, attention near storage and on the GPU."""
    llm, alpha, b, s = weights.llm, caching.alpha, work.batch, work.context
    if isinstance(llm, Recurrent):
        return weights.recurrent_layer(b)
    near = (1 - alpha) * b
    devices = devices_of(hw, llm)
    uplink = link(hw, "uplink", "uplink")
    new_rows = head_rows(llm, b, 1 - alpha, alpha)
    rows = Writeback(llm, devices, new_rows, caching.writeback, caching.interval)
    x_path = {"flash": devices.read, "uplink": uplink.inward, "link": weights.link.inward}
    staged = stage_pages(llm, near, caching.interval, devices, uplink.outward)
    return weights.layer(
        b,
        exchange=exchange(llm, b, alpha, uplink, weights.link),
        stage=caching.writeback * staged,
        attention=overlap(
            near_storage=near_storage(llm, near, s, devices, rows),
            x_cache=rebuild_from_x(llm, alpha * b, s, weights.gpu, x_path),
            spill=rows.in_background(work.output),
        ),
    )


def prefill_layer(hw: Machine, weights: WeightStream, work: Workload, alpha: Real) -> Span:
    """One layer over all prompts, their K and V or X on the way to the flash (sec. 4.1)."""
    uplink = link(hw, "uplink", "uplink")
    path = {
        "link": weights.link.outward,
        "uplink": uplink.outward,
        "flash": devices_of(hw, weights.llm).write,
    }
    prompts = cache_bytes(weights.llm, work.batch, alpha, work.prompt)
    return weights.prefill_layer(
        work, work.batch, cache=stream(prompts, "sec. 4.1", **path)
    )


def devices_of(hw: Machine, llm: LLM) -> Csd:
    """The devices with the kernel for this model's heads, or those of one kind of its layers."""
    return csd(hw, llm.group, llm.kv_width)


def kernel_power(hw: Machine, llm: LLM) -> Real:
    """Power of the attention kernels, of the thirstiest where layers need different ones [W]."""
    return llm.most_of_a_layer(lambda kind: devices_of(hw, kind).kernel_power)


def buffer_bytes(llm: LLM, b: Real, caching: Caching) -> Real:
    """Host memory for rows that wait to be spilled: c tokens of all layers (sec. 4.3) [B]."""
    token = llm.sum_over_layers(lambda kind: cache_bytes(kind, b, caching.alpha, 1))
    return caching.writeback * caching.interval * token


def most_buffers(llm: LLM, b: Real, caching: Caching) -> Real:
    """The same at whatever alpha takes most, so that no choice of alpha moves weights [B]."""
    only_kv, only_x = [
        buffer_bytes(llm, b, Caching(alpha, caching.interval, caching.writeback))
        for alpha in (0.0, 1.0)
    ]
    return np.maximum(only_kv, only_x)


def stream_weights(
    hw: Machine, llm: LLM, work: Workload, choice: Real, buffers: Real
) -> WeightStream:
    """Weights where the choice puts them, those on the devices as files.

    The paper's rule: above 100B parameters on the devices, else in DRAM (sec. 6.1).
    """
    host_, uplink = host(hw), link(hw, "uplink", "uplink")
    paper = beside_gpu(0.0, weights_on_storage(hw, llm))
    room = Headroom(host=host_.memory - buffers)
    return WeightStream(
        llm=llm,
        gpu=gpu(hw),
        host=host_,
        link=link(hw, "gpu_link", "pcie"),
        tiers=choose_residency(choice, paper, hw, llm, work, room),
        storage={
            "flash": devices_of(hw, llm).read,
            "uplink": uplink.inward,
            "file": host_.file,
        },
    )


def cache_bytes(llm: LLM, b: Real, alpha: Real, tokens: Real) -> Real:
    """K and V, or X, of one layer: (1 - a) 4bsh + a 2bsh (sec. 4.2) [B]."""
    return (1 - alpha) * llm.kv_bytes(b, tokens) + alpha * llm.x_bytes(b, tokens)


def near_storage(llm: LLM, near: Real, s: Real, devices: Csd, rows: Writeback) -> Span:
    """Naive commits, then flash reads beside the kernel, for `near` sequences (sec. 4.1, 4.3).

    The devices read the updated cache, so they wait for its commits (fig. 6a); the X-cache loads
    rows of earlier tokens and does not.
    """
    kv = llm.kv_bytes(near, s)
    read_and_attend = overlap(
        flash=devices.read(kv, "(1-a) 4sh, sec. 4.2"),
        kernel=devices.attend(kv, "Table 3"),
    )
    return serial(writeback=rows.in_step(), read_and_attend=read_and_attend)


def capacity_check(
    hw: Machine, weights: WeightStream, work: Workload, alpha: Real, buffers: Real
) -> Fits:
    """K and V, or X, of all tokens in flash, buffers in DRAM; weights where they live.

    Args:
        buffers: of tokens that wait in host memory [B].
    """
    llm, tiers, b = weights.llm, weights.tiers, work.batch
    cache = llm.sum_over_layers(lambda kind: cache_bytes(kind, b, alpha, work.final))
    return fits(
        gpu=(gpu_working_set(llm, work.prompt, tiers.gpu, b), weights.gpu.memory),
        host=(host_weights(hw, llm, tiers) + buffers, weights.host.memory),
        csd=(tiers.storage * llm.weight_bytes + cache, devices_of(hw, llm).capacity),
    )
