"""Scoring tokens in two pools side by side and fetching the retained ones.

Source: HillInfer sec. 4.2 to 4.4, 5.4.

Symbols: M_c, M_s bytes of K and V in the hot and the cold pool, beta = M_c / M_s, alpha retained
share, sigma skew, f_c, f_s scoring and B_c, B_s fetching rates in bytes of K and V. Scoring reads
keys only, so f is twice the rate of key bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import (
    Port,
    Real,
    Span,
    choose,
    overlap,
    pipeline,
    serial,
    wait,
)
from nearkv.costmodel.mechanisms.near_storage.eviction import cpu_scoring, scattered
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import drives, link
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine

SCORE_PRECISIONS = ("fp16", "int8", "int4")
"""Widths of a key where it is scored."""
KEY_BYTES = (2.0, 1.0, 0.5)
SCORE_SOURCES = ("flash-fp16", "flash-copy", "dram-copy")
"""Place of the keys that a SmartSSD reads: the cache, or a narrow copy in flash or in its DRAM."""
DRAM_COPY = 2
SCORE_BYTES = 4.0
"""One token in a score block: position and score in half precision (sec. 5.4)."""


@dataclass(frozen=True)
class Pools:
    """K and V of one layer off the GPU, and how much of them is fetched.

    Attributes:
        hot, cold: M_c and M_s [B].
        retention: alpha [1].
        sigma: skew; the hot pool serves this share of what the cold pool would [1].
        hop: 1 where cold tokens are stored in the host before they go to the GPU, else 0.
    """

    hot: Real
    cold: Real
    retention: Real
    sigma: Real
    hop: Real

    @property
    def fetched_hot(self) -> Real:
        """Alpha (M_c + sigma M_s) [B]."""
        return self.retention * (self.hot + self.sigma * self.cold)

    @property
    def fetched_cold(self) -> Real:
        """(1 - sigma) alpha M_s [B]."""
        return (1 - self.sigma) * self.retention * self.cold


@dataclass(frozen=True)
class Copies:
    """Bytes of narrow keys beside the cold pool, in flash and in the accelerator's DRAM [B]."""

    flash: Real
    dram: Real


def narrow_key_share(llm: LLM, precision: Real, source: Real) -> Real:
    """Bytes scoring reads of a key over those the cache holds [1].

    FP16 keys are cast on the fly (sec. 4.4).

    Raises:
        InputError: a copy would be wider than the cache it is made of.
    """
    width = np.take(KEY_BYTES, np.asarray(precision, int))
    copied = source > 0
    if np.any(copied & (width > llm.kv_width)):
        raise InputError(
            "knob score_precision: a copy of the keys is wider than the cache (precision.kv); "
            "choose a narrower one, or score_source=flash-fp16, which keeps none"
        )
    return choose(copied, width / llm.kv_width, 1.0)


def narrow_copies(llm: LLM, cold: Real, precision: Real, source: Real) -> Copies:
    """Capacity and reads of narrow copies of the cold pool's keys.

    Args:
        cold: K and V in the cold pool, all layers [B].
        precision, source: index into PRECISIONS and SOURCES.
    """
    keys = cold / 2
    copied = np.greater(source, 0)
    copy = copied * keys * narrow_key_share(llm, precision, source)
    in_dram = source == DRAM_COPY
    return Copies(flash=(1 - in_dram) * copy, dram=in_dram * copy)


def score_cold(hw: Machine, llm: LLM, cold: Real, precision: Real, source: Real) -> Span:
    """Stream the cold pool's keys past the adder tree (sec. 4.4).

    Args:
        hw: roles csd (with kernel_scores); derate fpga_dram.
        llm: shapes.
        cold: K and V whose keys are scored [B].
        precision, source: index into PRECISIONS and SOURCES.
    """
    dev = hw.csd
    # scoring reads keys, half of K and V
    keys = cold / 2 * narrow_key_share(llm, precision, source)
    in_dram = source == DRAM_COPY
    dram_rate = dev.count * dev.memory_bandwidth * hw.derate.fpga_dram
    flash = Port("csd.flash", "read", dev.count * dev.p2p_read)
    dram = Port("csd.dram", "read", dram_rate)
    units = Port("csd.kernel", "run", dev.count * dev.kernel_scores, "FLOP")
    multiply_adds = cold / llm.kv_width * llm.group
    return overlap(
        flash=flash((1 - in_dram) * keys, "M_s / f_s, keys in flash"),
        dram=dram(in_dram * keys, "M_s / f_s, keys in the accelerator's DRAM"),
        tree=units(multiply_adds, "one multiply-add an element"),
    )


def score_hot(hw: Machine, hot: Real) -> Span:
    """The CPU scores the hot pool's keys: M_c / f_c."""
    return cpu_scoring(hw)(hot / 2, "M_c / f_c")


def fetch_cold(hw: Machine, amount: Real, hop: Real) -> Span:
    """Retained tokens of the cold pool to the GPU: straight, or stored in the host first.

    Args:
        hw: roles csd, csd_link, gpu_link.
        amount: their K and V [B].
        hop: 0 straight to the GPU (sec. 4.1), 1 through the host (sec. 5.4).
    """
    gpu_link = link(hw, "gpu_link", "pcie").inward
    csd_link = link(hw, "csd_link", "pcie").inward
    gather = scattered(hw, drives(hw, "csd"))
    out = overlap(
        gather=gather(amount, "(1-s) a M_s / B_s"),
        csd_link=csd_link(amount, "(1-s) a M_s / B_s"),
        gpu_link=gpu_link((1 - hop) * amount, "straight to the GPU"),
    )
    return serial(out=out, hop=gpu_link(hop * amount, "(1-s) a M_s / B_c, sec. 5.4"))


def cpu_path(hw: Machine, pools: Pools) -> Span:
    """T_CPU = M_c / f_c + alpha (M_c + sigma M_s) / B_c (eq. 2).

    docs/hillinfer.md, eq. HILLINFER-1.
    """
    to_gpu = link(hw, "gpu_link", "pcie").inward
    return serial(
        score=score_hot(hw, pools.hot),
        fetch=to_gpu(pools.fetched_hot, "a (M_c + s M_s) / B_c"),
    )


def csd_path(
    hw: Machine,
    llm: LLM,
    pools: Pools,
    precision: Real,
    source: Real,
    chunks: Real,
    launches: Real,
) -> Span:
    """T_SmartSSD = M_s / f_s + (1 - sigma) alpha M_s (1 / B_s + hop / B_c) (eq. 2).

    docs/hillinfer.md, eq. HILLINFER-2.

    Scored in chunks (HIE, fig. 7): while one is evaluated, the scores of the last are transferred
    and sorted.

    Args:
        hw, llm, precision, source: as in `score_cold`.
        pools: of one layer.
        chunks: score blocks, m [1].
        launches: 1, or 0 for an empty batch [1].
    """
    csd_link = link(hw, "csd_link", "pcie").inward
    token = llm.kv_bytes(1.0, 1.0)
    scores = SCORE_BYTES * pools.cold / token / chunks
    score = pipeline(
        chunks,
        evaluate=score_cold(hw, llm, pools.cold / chunks, precision, source),
        transfer=csd_link(scores, "score block, fig. 7"),
        sort=cpu_scoring(hw)(scores, "merge scores, fig. 7"),
    )
    return serial(
        launch=wait("host.driver", launches * hw.csd.launch, "start the kernel"),
        score=score,
        fetch=fetch_cold(hw, pools.fetched_cold, pools.hop),
    )


def balanced_paths(
    hw: Machine, llm: LLM, pools: Pools, precision: Real, source: Real
) -> Span:
    """max(T_CPU, T_SmartSSD) of eq. 2 alone: no launch, no score blocks."""
    csd = serial(
        score=score_cold(hw, llm, pools.cold, precision, source),
        fetch=fetch_cold(hw, pools.fetched_cold, pools.hop),
    )
    return overlap(cpu=cpu_path(hw, pools), csd=csd)


@dataclass(frozen=True)
class Rates:
    """The four constants of eq. 4, in bytes of K and V a second [B/s]."""

    f_c: Real
    f_s: Real
    b_c: Real
    b_s: Real


def rates(hw: Machine, llm: LLM, precision: Real, source: Real, hop: Real) -> Rates:
    """Profile the machine as the paper does: time one byte on each part (sec. 4.3).

    Without a hop, B_s is that of the complete path to the GPU.
    """
    score_seconds = score_cold(hw, llm, 1.0, precision, source).seconds
    fetch_seconds = fetch_cold(hw, 1.0, hop).parts["out"].seconds
    return Rates(
        f_c=1 / score_hot(hw, 1.0).seconds,
        f_s=1 / score_seconds,
        b_c=link(hw, "gpu_link", "pcie").inward.rate,
        b_s=1 / fetch_seconds,
    )


def beta_eq4(r: Rates, alpha: Real) -> Real:
    """B_c f_c (B_s + a f_s) / (B_s f_s (B_c + a f_c)), eq. 4 [1].

    docs/hillinfer.md, eq. HILLINFER-4.
    """
    numerator = r.b_c * r.f_c * (r.b_s + alpha * r.f_s)
    denominator = r.b_s * r.f_s * (r.b_c + alpha * r.f_c)
    return numerator / denominator


def beta_sec54(r: Rates, alpha: Real) -> Real:
    """f_c (B_s B_c + a B_c f_s + a B_s f_s) / (B_s f_s (B_c + a f_c)), sec. 5.4 [1]."""
    links = r.b_s * r.b_c
    fetched = alpha * r.b_c * r.f_s + alpha * r.b_s * r.f_s
    numerator = r.f_c * (links + fetched)
    denominator = r.b_s * r.f_s * (r.b_c + alpha * r.f_c)
    return numerator / denominator


def beta_balanced(r: Rates, alpha: Real, sigma: Real, hop: Real) -> Real:
    """Beta at which T_CPU = T_SmartSSD; 0 where the CPU path is always longer [1].

    docs/hillinfer.md, eq. HILLINFER-3.

    Equal to eq. 4 at sigma = 0, hop = 0 and to sec. 5.4 at sigma = 0, hop = 1.
    """
    cold = (1 - sigma) * alpha
    csd = 1 / r.f_s + cold / r.b_s + hop * cold / r.b_c
    hot = sigma * alpha / r.b_c
    cpu_per_byte = 1 / r.f_c + alpha / r.b_c
    return np.maximum((csd - hot) / cpu_per_byte, 0.0)
