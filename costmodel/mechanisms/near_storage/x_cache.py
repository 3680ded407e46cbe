"""The cooperative X-cache: part of a batch keeps X on flash instead of K and V (HILOS sec. 4).

X is the input of a layer, from which the GPU rebuilds K and V. The devices attend to the rest of
the batch beside the flash, so both sides work at once; alpha says how much each takes.

Symbols: b batch, s context, h hidden, g queries a KV head, L layers, N devices,
alpha share of the batch kept as X, c spill interval.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nearkv.costmodel.algebra.span import (
    Booleans,
    ByName,
    Real,
    Span,
    overlap,
    serial,
    stream,
)
from nearkv.costmodel.mechanisms.near_storage.writeback import (
    Writeback,
    head_rows,
    rows_per_page,
    stage_pages,
)
from nearkv.costmodel.mechanisms.prompt_chunks import hidden_bytes
from nearkv.costmodel.mechanisms.weights.residency import (
    FILLED,
    SSD_WEIGHTS,
    Headroom,
    Residency,
    alphas_that_fill,
    dram_or_drives,
    host_weights,
    link_is_slower,
    overflow,
)
from nearkv.costmodel.mechanisms.weights.streaming import DataPath, WeightStream
from nearkv.costmodel.model.estimate import Fits, fits
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import NO_KNOBS, Knob
from nearkv.costmodel.model.resources import KERNEL_GROUPS, Csd, Gpu, Link, csd, host, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine


@dataclass(frozen=True)
class Caching:
    """Forms in which a batch is cached.

    Attributes:
        alpha: share kept as X [1].
        interval: spill interval c [tokens].
        writeback: 0 naive, 1 delayed.
    """

    alpha: Real
    interval: Real
    writeback: Real


def devices_of(hw: Machine, llm: LLM) -> Csd:
    """The devices with the kernel for this model's heads, or those of one type of its layers."""
    return csd(hw, llm.group, llm.kv_width)


def cache_bytes(llm: LLM, b: Real, alpha: Real, tokens: Real) -> Real:
    """K and V, or X, of one layer: (1 - a) 4bsh + a 2bsh (sec. 4.2) [B]."""
    return (1 - alpha) * llm.kv_bytes(b, tokens) + alpha * llm.x_bytes(b, tokens)


# --- alpha: both sides end together -----------------------------------------------------------


def near_storage(llm: LLM, near: Real, s: Real, devices: Csd, rows: Writeback) -> Span:
    """Naive commits, then flash reads beside the kernel, for `near` sequences (sec. 4.1, 4.3).

    docs/hilos.md, eq. HILOS-1.

    The devices read the updated cache, so they wait for its commits (fig. 6a); the X-cache loads
    rows of earlier tokens and does not.
    """
    kv = llm.kv_bytes(near, s)
    read_and_attend = overlap(
        flash=devices.read(kv, "(1-a) 4sh, sec. 4.2"),
        kernel=devices.attend(kv, "Table 3"),
    )
    return serial(writeback=rows.in_step(), read_and_attend=read_and_attend)


def rebuild_from_x(llm: LLM, b: Real, s: Real, gpu: Gpu, path: DataPath) -> Span:
    """Load X to the GPU, project it to K and V, attend; pipelined (HILOS sec. 4.2, INF² sec. 4.3).

    docs/hilos.md, eq. HILOS-2 and HILOS-3.

    Args:
        b, s: sequences kept as X and their context [1].
        path: the ports from where X lives to the GPU.
    """
    x, kv = llm.x_bytes(b, s), llm.kv_bytes(b, s)
    rebuild = overlap(
        compute=gpu.run(llm.kv_from_x_flops(b, s), "T_GPU, K and V"),
        hbm=gpu.read(x + kv, "X read, K and V written"),
    )
    attend = overlap(
        compute=gpu.run(llm.attention_flops(b, s), "T_GPU, attention"),
        hbm=gpu.read(kv, "K and V"),
    )
    return overlap(
        load=stream(x, "T_PCI = a 2sh / B_PCI", **path),
        on_gpu=serial(rebuild=rebuild, attend=attend),
    )


def alpha_closed_form(hw: Machine, llm: LLM, work: Workload, _: ByName = NO_KNOBS) -> Real:
    """Alpha = 2 B_PCI / (B_SSD + B_PCI), sec. 4.2 as printed: MHA only, capped at 1 [1].

    docs/hilos.md, eq. HILOS-4.

    X and K, V share the flash, X alone crosses the uplink:
    a 2sh / B_PCI = (a 2sh + (1 - a) 4sh) / B_SSD.
    """
    pci = link(hw, "uplink", "uplink").inward.rate
    ssd = devices_of(hw, llm).read.rate
    return np.minimum(2 * pci / (ssd + pci), 1.0)


def alpha_power_of_two(
    hw: Machine, llm: LLM, work: Workload, knobs: ByName = NO_KNOBS
) -> Real:
    """The closed form at the nearest power of two, by logarithm (sec. 4.2 leaves that open) [1]."""
    exponent = np.round(np.log2(alpha_closed_form(hw, llm, work, knobs)))
    return np.exp2(exponent)


def interval_of_page(hw: Machine, llm: LLM, work: Workload, _: ByName = NO_KNOBS) -> Real:
    """C = page / KV entry, sec. 4.3: 4096 / 256 = 16 tokens [1]."""
    return rows_per_page(llm, hw.csd.page)


def alpha_breaks(hw: Machine, llm: LLM, work: Workload, knobs: ByName) -> tuple[Real, ...]:
    """The alphas at which host memory begins, or ceases, to change by rows that wait to be spilled.

    From one on they take more than hidden states of prompts did; from others on they take memory
    that weights would fill [1].
    """
    interval, writeback = knobs["interval"], knobs["writeback"]
    only_kv, only_x = [
        waiting_rows(llm, work, Caching(alpha, interval, writeback)) for alpha in (0.0, 1.0)
    ]
    hidden, rise = hidden_bytes(llm, work.batch, work), only_x - only_kv
    breaks: tuple[Real, ...] = ()
    if np.any(hidden > 0):
        breaks = ((hidden - only_kv) / np.where(rise == 0, np.inf, rise),)
    stored = knobs.get("ssd_weights", 0.0)
    unbuffered = Caching(0.0, interval, 0.0)
    choice = knobs.get("weights", FILLED)
    tiers = place_weights(hw, llm, work, choice, stored, unbuffered)
    if not np.any(choice == FILLED):
        return breaks
    return (*breaks, *alphas_that_fill(hw, llm, tiers, only_kv, only_x))


ALPHA = Knob(
    "share of the batch whose X is cached instead of K and V (sec. 4.2)",
    published="paper-power-of-two",  # sec. 4.2, 6.4
    measured="hilos-alpha-opt-meas",
    rules={"paper": alpha_closed_form, "paper-power-of-two": alpha_power_of_two},
    breaks=alpha_breaks,
)
INTERVAL = Knob(
    "tokens buffered in host memory before they are spilled, c (sec. 4.3)",
    low=1,
    high=256,
    default=16,
    kind="count",
    measured="hilos-c-opt",
    rules={"paper": interval_of_page},
)


# --- one layer --------------------------------------------------------------------------------


def exchange(llm: LLM, b: Real, alpha: Real, uplink: Link, gpu_link: Link) -> Span:
    """Q, K, V of the new token to the devices (6h bytes), the attention output back (2h).

    Source: HILOS eq. 3, INF² eq. 3. Of the batch's share `alpha` only X is stored.
    """
    query = llm.query_bytes(b)
    qkv = query + llm.kv_bytes(b, 1)
    new = (1 - alpha) * qkv + alpha * llm.x_bytes(b, 1)
    out = (1 - alpha) * query
    outward = {"link": gpu_link.outward, "uplink": uplink.outward}
    inward = {"uplink": uplink.inward, "link": gpu_link.inward}
    return serial(
        qkv=stream(new, "6h, eq. 3", **outward),
        result=stream(out, "2h, eq. 3", **inward),
    )


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
    """One layer over all prompts while their K and V or X move to the flash (sec. 4.1)."""
    uplink, devices = link(hw, "uplink", "uplink"), devices_of(hw, weights.llm)
    path = {
        "link": weights.link.outward,
        "uplink": uplink.outward,
        "flash": devices.write,
    }
    back = {
        "flash": devices.read,
        "uplink": uplink.inward,
        "link": weights.link.inward,
    }
    prompts = cache_bytes(weights.llm, work.batch, alpha, work.prompt)

    def arriving(b: Real, tokens: Real) -> Span:
        """K and V of the share near storage, X of the other, from which the GPU rebuilds them."""
        rebuild = weights.llm.kv_from_x_flops(alpha * b, tokens)
        return overlap(
            load=stream(cache_bytes(weights.llm, b, alpha, tokens), "4sh, or X", **back),
            rebuild=weights.gpu.for_prompts.run(rebuild, "K and V of earlier chunks"),
        )

    return weights.prefill_layer(
        work, work.batch, arriving, cache=stream(prompts, "sec. 4.1", **path)
    )


# --- memory and power -------------------------------------------------------------------------


def kernel_power(hw: Machine, llm: LLM) -> Real:
    """Power of the attention kernels, maximum over the kernels that the layers need [W]."""
    return llm.most_of_a_layer(lambda layer_type: devices_of(hw, layer_type).kernel_power)


def unbuilt_kernels(hw: Machine, llm: LLM) -> Booleans:
    """True of models with attention that no kernel of the devices was built for (Table 3)."""
    built = [group for group in KERNEL_GROUPS if f"kernel_g{group}" in hw.csd]
    unbuilt = llm.most_of_a_layer(
        lambda kind: np.where(np.isin(kind.group, built), 0.0, kind.kv_bytes(1, 1))
    )
    return np.greater(unbuilt, 0)


def waiting_rows(llm: LLM, work: Workload, caching: Caching) -> Real:
    """Rows that wait in host memory to be spilled: c tokens of all layers (sec. 4.3) [B]."""
    token = llm.sum_over_layers(
        lambda layer_type: cache_bytes(layer_type, work.batch, caching.alpha, 1)
    )
    return caching.writeback * caching.interval * token


def buffer_bytes(llm: LLM, work: Workload, caching: Caching) -> Real:
    """Host memory for rows that wait, or hidden states of prompts in chunks before them [B]."""
    return np.maximum(waiting_rows(llm, work, caching), hidden_bytes(llm, work.batch, work))


def place_weights(
    hw: Machine, llm: LLM, work: Workload, choice: Real, stored: Real, caching: Caching
) -> Residency:
    """Weights where the choice puts them; the paper's rule: above 100B on the devices (sec. 6.1).

    Args:
        choice: index into the choices of `WEIGHTS`.
        stored: least share on the devices of what is not on the GPU [1].
    """
    left = host(hw).memory - buffer_bytes(llm, work, caching)
    return dram_or_drives(hw, llm, work, choice, Headroom(left, stored=stored))


def device_breaks(hw: Machine, llm: LLM, work: Workload, knobs: ByName) -> tuple[Real]:
    """The share of weights on the devices from which host memory beside buffers is not full [1]."""
    caching = Caching(knobs["alpha"], knobs["interval"], knobs["writeback"])
    choice = knobs.get("weights", FILLED)
    return (overflow(place_weights(hw, llm, work, choice, 0.0, caching)),)


DEVICE_WEIGHTS = replace(
    SSD_WEIGHTS,
    breaks=device_breaks,
    settled=lambda hw, llm, work, knobs: link_is_slower(hw, "pcie"),
)


def capacity_check(
    hw: Machine, weights: WeightStream, work: Workload, caching: Caching
) -> Fits:
    """K and V, or X, of all tokens in flash, buffers in DRAM; weights where they live."""
    llm, tiers, b = weights.llm, weights.tiers, work.batch
    x = llm.sum_over_layers(lambda layer_type: layer_type.x_bytes(b, work.final))
    in_host = {
        "weights": host_weights(hw, llm, tiers),
        "buffers": buffer_bytes(llm, work, caching),
    }
    in_flash = {
        "weights": tiers.storage * llm.weight_bytes,
        "KV cache": (1 - caching.alpha) * llm.kv_cache_bytes(b, work.final),
        "X": caching.alpha * x,
    }
    return fits(
        gpu=(weights.contents(work), weights.gpu.memory),
        host=(in_host, weights.host.memory),
        csd=(in_flash, devices_of(hw, llm).capacity),
    )
