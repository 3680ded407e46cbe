"""A batch whose K and V live near storage, in host memory, or as X in host memory (INF² sec. 4, 5).

Symbols: b batch, s context, h hidden, d head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import Port, Real, Span, overlap, serial, stream, total
from nearkv.costmodel.mechanisms.near_storage.writeback import (
    Writeback,
    head_rows,
    stage_sequences,
)
from nearkv.costmodel.mechanisms.near_storage.x_cache import (
    Caching,
    exchange,
    rebuild_from_x,
)
from nearkv.costmodel.mechanisms.weights.cpu_attention import (
    attend_on_cpu,
    exchange_with_cpu,
)
from nearkv.costmodel.mechanisms.weights.streaming import DataPath, WeightStream
from nearkv.costmodel.model.latent import Latent
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import Csd, Link, csd, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

SCORE_PASSES = 8
"""Times a score crosses the accelerator's memory: written by Q K^T, read and written by masking,
by the exponentials and by the division, read for V (sec. 5)."""
SOFTMAX_PASSES = 3
"""Passes over the scores: mask and maximum, sum of exponentials, division (sec. 5)."""


@dataclass(frozen=True)
class CacheSplit:
    """Number of sequences of a batch by what they keep in which memory (sec. 4.3, 7.5).

    Attributes:
        near: K and V on flash, attended to inside the devices [1].
        in_host: K and V in host memory, attended to by the CPU [1].
        with_x: X in host memory, attended to by the GPU [1].
    """

    near: Real
    in_host: Real
    with_x: Real

    @property
    def attention(self) -> dict[str, Real]:
        """Share of the sequences that each role attends to [1]."""
        attended = {"csd": self.near, "host": self.in_host, "gpu": self.with_x}
        batch = np.maximum(total(attended.values()), 1e-9)
        return {role: number / batch for role, number in attended.items()}


def decode_layer(
    hw: Machine,
    weights: WeightStream,
    work: Workload,
    split: CacheSplit,
    caching: Caching,
    buffering: Real,
) -> Span:
    """One layer of a step: products, the new token, attention where each cache lives."""
    llm, b = weights.llm, work.batch
    if isinstance(llm, Recurrent):
        return weights.recurrent_layer(b)
    devices, uplink = csd(hw, llm.group), link(hw, "uplink", "uplink")
    new_rows = head_rows(llm, split.near, 1.0, 0.0)
    rows = Writeback(llm, devices, new_rows, caching.writeback, caching.interval)
    staged = stage_sequences(llm, split.near, caching.interval, devices, uplink.outward)
    return weights.layer(
        b,
        new_token=exchange_new_token(llm, split, weights.link, uplink),
        writeback=rows.in_step(),
        stage=caching.writeback * staged,
        attention=attend(hw, weights, work, split, rows, buffering),
    )


def prefill_layer(
    hw: Machine, weights: WeightStream, work: Workload, split: CacheSplit
) -> Span:
    """One layer over all prompts while their caches move to their tiers."""
    llm, devices = weights.llm, csd(hw, weights.llm.group)
    relay, uplink = link(hw, "gpu_link", "cache_relay"), link(hw, "uplink", "uplink")
    caches = put_caches(llm, work.prompt, split, relay, uplink, devices)
    flash = {"flash": devices.read, "uplink": uplink.inward, "link": relay.inward}
    dram = from_host(hw, weights)

    def arriving(b: Real, tokens: Real) -> Span:
        """K and V from both memories, and X, from which the GPU rebuilds them."""
        part = b / np.maximum(work.batch, 1e-9)
        rebuild = llm.kv_from_x_flops(part * split.with_x, tokens)
        hosted = llm.kv_bytes(part * split.in_host, tokens)
        x = llm.x_bytes(part * split.with_x, tokens)
        return overlap(
            flash=stream(llm.kv_bytes(part * split.near, tokens), "4sbhd", **flash),
            host=stream(hosted + x, "X, or K and V", **dram),
            rebuild=weights.gpu.for_prompts.run(rebuild, "K and V of earlier chunks"),
        )

    return weights.prefill_layer(work, work.batch, arriving, caches=caches)


def attend(
    hw: Machine,
    weights: WeightStream,
    work: Workload,
    split: CacheSplit,
    rows: Writeback,
    buffering: Real,
) -> Span:
    """Each sequence where its cache lives, all side by side, while rows are spilled (sec. 4.3).

    docs/inf2.md, eq. INF2-1.
    """
    llm, s = weights.llm, work.context
    x_path = from_host(hw, weights)
    return overlap(
        near_storage=near_storage(hw, llm, split.near, s, buffering, rows.device),
        **attend_in_host(hw, weights, split.in_host, s),
        x_cache=rebuild_from_x(llm, split.with_x, s, weights.gpu, x_path),
        spill=rows.in_background(work.output),
    )


def from_host(hw: Machine, weights: WeightStream) -> DataPath:
    """The ports from a cache in host memory to the GPU, by the pinned relay (sec. 4.3)."""
    return {"dram": weights.host.read, "link": link(hw, "gpu_link", "cache_relay").inward}


def attend_in_host(
    hw: Machine, weights: WeightStream, sequences: Real, s: Real
) -> dict[str, Span]:
    """Attention to a cache in host memory: the CPU to K and V of heads, the GPU to latents."""
    llm = weights.llm
    if not isinstance(llm, Latent):
        return {"cpu": attend_on_cpu(hw, llm, sequences, s)}
    # a row of r + dr elements serves all heads: few bytes come, and many products are made
    rows = llm.kv_bytes(sequences, s)
    latents = overlap(
        load=stream(rows, "(r + dr) elements of a token", **from_host(hw, weights)),
        hbm=weights.gpu.read(rows, "latents"),
        compute=weights.gpu.run(llm.attention_flops(sequences, s), "2 b s H (2 r + dr)"),
    )
    return {"latents": latents}


def exchange_new_token(llm: LLM, split: CacheSplit, gpu_link: Link, uplink: Link) -> Span:
    """Q, K, V to devices or CPU, attention output back, X to host memory (sec. 4.1, 4.3).

    docs/inf2.md, eq. INF2-3.
    """
    x = llm.x_bytes(split.with_x, 1)
    return serial(
        devices=exchange(llm, split.near, 0.0, uplink, gpu_link),
        **exchange_with_host(llm, split.in_host, gpu_link),
        keep_x=gpu_link.outward(x, "X of the new token to host memory, sec. 4.3"),
    )


def exchange_with_host(llm: LLM, sequences: Real, gpu_link: Link) -> dict[str, Span]:
    """Q, K, V to the CPU and its result back; of latents, to which the GPU attends, new rows."""
    if not isinstance(llm, Latent):
        return {"cpu": exchange_with_cpu(llm, sequences, gpu_link)}
    new = llm.kv_bytes(sequences, 1)
    return {"new_rows": gpu_link.outward(new, "(r + dr) elements of the new token")}


def put_caches(
    llm: LLM, s: Real, split: CacheSplit, cache_link: Link, uplink: Link, devices: Csd
) -> Span:
    """One layer's caches of prompts of s tokens leave the GPU (sec. 2.2, 4.3)."""
    stays = llm.kv_bytes(split.in_host, s) + llm.x_bytes(split.with_x, s)
    path = {"link": cache_link.outward, "uplink": uplink.outward, "flash": devices.write}
    return overlap(
        flash=stream(llm.kv_bytes(split.near, s), "4sbhd, sec. 2.2", **path),
        host=cache_link.outward(stays, "X, or K and V, to host memory"),
    )


# --- the attention kernel of sec. 5: flash reads, 32-wide tiles, three-pass softmax ---------------


def attend_in_tiles(hw: Machine, llm: LLM, sequences: Real, s: Real, memory: Port) -> Span:
    """The older attention kernel: 32-wide tiles, in-place transposition, softmax (sec. 5).

    docs/inf2.md, eq. INF2-2.

    A tile is loaded into block RAM, K tiles are transposed there (32 elements a cycle and block),
    and the multipliers take one element each a cycle; in-place work leaves nothing to overlap with.
    A cycle of a unit counts as two FLOPs, no matter what it is spent on.
    """
    units = Port("csd.kernel", "run", hw.csd.count * hw.csd.kernel_tiled, "FLOP")
    elements = llm.kv_bytes(sequences, s) / llm.kv_width
    scores = llm.heads * sequences * llm.attended_tokens(s)
    moved = SCORE_PASSES * scores * llm.activation_width
    reduced = 2 * SOFTMAX_PASSES * scores
    return serial(
        load=memory(elements * llm.kv_width, "tiles of K and V, sec. 5"),
        transpose=units(elements, "32 x 32 tiles of K in place, sec. 5"),
        multiply=units(
            2 * elements * llm.group, "one element a multiplier and cycle, sec. 5"
        ),
        softmax=overlap(
            move=memory(moved, "scores in accelerator memory, sec. 5"),
            reduce=units(reduced, "three passes, 128 scores a cycle, sec. 5"),
        ),
    )


def near_storage(
    hw: Machine, llm: LLM, near: Real, s: Real, buffering: Real, devices: Csd
) -> Span:
    """Flash to accelerator memory, then the kernel, for `near` sequences of s tokens (sec. 4.1, 5).

    A synchronous pread fills the buffer before the kernel starts; a second buffer would hide one
    behind the other. The paper does not say which, so it is a choice.
    """
    bandwidth = hw.csd.count * hw.csd.memory_bandwidth
    # a DMA fills the buffer in long bursts; tiles are read row by row
    dma = Port("csd.dram", "write", bandwidth)
    tiles = Port("csd.dram", "read", bandwidth * hw.derate.tile_loads)

    def read(sequences: Real) -> Span:
        kv = llm.kv_bytes(sequences, s)
        return stream(kv, "P2P, sec. 4.1", flash=devices.read, dram=dma)

    single, double = (1 - buffering) * near, buffering * near
    return serial(
        read=read(single),
        kernel=attend_in_tiles(hw, llm, single, s, tiles),
        both=overlap(read=read(double), kernel=attend_in_tiles(hw, llm, double, s, tiles)),
    )
