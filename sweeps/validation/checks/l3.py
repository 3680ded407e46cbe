"""Checks of L3: larger memories, TPOT, bandwidths, kernels and its scheduler.

Source: L3 sec. 1, 2, 5, 6; Tables 2, 3.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Numbers, Real
from nearkv.costmodel.mechanisms.serving.cpu_share import host_attention
from nearkv.costmodel.mechanisms.serving.dimm import (
    bank_bandwidth,
    bus_bandwidth,
    dimms,
    row_efficiency,
)
from nearkv.costmodel.mechanisms.serving.parallel import (
    gpu_attention,
    linear,
)
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Load, Workload
from nearkv.costmodel.systems.l3 import prompt_cache
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.units import unit_of
from nearkv.solvers.subbatch.schedule import even_halves
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.questions import WordedStudy, columns_of, model_on

PLATFORM = "dgx-a100-pim"
SMALLEST_DIMM = 16 * 2.0**30
SMALLEST_RANKSETS = 2.0
"""Smallest memory of sec. 6.2: 32 DIMMs hold 512 GB, in two ranksets."""
AMPLE = "gpu.memory=2TB;dimm.capacity=1TB"
"""Memories that none of these batches fills."""
PAPER_BATCHES = "16,32,48,64"
"""Batches of fig. 11, each request with 6,000 tokens."""
REPLICA = 4
"""GPUs of fig. 11: one replica of GPT-89B (Table 3), which has all DIMMs to itself."""
AS_IN_FIG_11 = {"l3": "interleave=off", "gpu": "tp=l3;dp=remaining;pp=1;ep=1;attention=tp"}
"""The bars stack attention, QKV and projections: one batch, in series; models of L3 are split over
GPUs as in Table 3."""


# --- larger memories, fig. 9 ------------------------------------------------------------------


@check
def larger_memory(model: str, capacity: str, ranksets: str) -> float:
    """Throughput of L3 on OpenR1 with a multiple of the smallest capacity and bandwidth [1].

    Source: Fig. 9.
    """
    larger = _openr1(model, float(capacity), float(ranksets))
    return larger / _openr1(model, 1.0, 1.0)


@cache
def _openr1(model: str, capacity: float, ranksets: float) -> float:
    """Throughput of L3 with multiples of the smallest capacity and bandwidth [1/s]."""
    question = WordedStudy(
        "l3",
        model,
        set=f"dimm.capacity={SMALLEST_DIMM * capacity}B",
        knob=f"ranksets={SMALLEST_RANKSETS * ranksets:g}",
        trace="openr1",
        method="simulate",
    )
    return float(columns_of(question)["throughput_tok_s"].astype(float)[0])


@check
def both_are_needed(times: str, *models: str) -> bool:
    """True if scaling capacity and bandwidth together gains more than the sum of scaling either
    alone.

    Source: Fig. 9.
    """
    for model in models:
        bandwidth = larger_memory(model, "1", times) - 1
        capacity = larger_memory(model, times, "1") - 1
        both = larger_memory(model, times, times) - 1
        if both <= bandwidth + capacity:
            return False
    return True


# --- time between tokens, fig. 11 -------------------------------------------------------------


@check
def tbt_over_gpu(model: str, ranksets: str, context: str) -> Numbers:
    """TPOT of L3 over that of GPUs with endless memory, at each batch [%].

    Source: Sec. 6.3.
    """
    ours = _tbt(model, "l3", float(context), ranksets)
    theirs = _tbt(model, "gpu", float(context))
    return 100 * ours / theirs


@check
def bars_of_fig_11(model: str, context: str, *ranksets: str) -> Numbers:
    """TPOT of GPUs and of L3 at every batch, over the GPUs' at the smallest [1].

    Source: Fig. 11.
    """
    gpus = _tbt(model, "gpu", float(context))
    bars = [gpus, *(_tbt(model, "l3", float(context), count) for count in ranksets)]
    normalised: Numbers = np.concatenate(bars) / gpus[0]
    return normalised


def _tbt(model: str, system: str, context: float, ranksets: str = "") -> Numbers:
    """One step of a batch, without regard to memory [ms]."""
    sets = f"gpu.count={REPLICA};{AMPLE}"
    if ranksets:
        sets += f";dimm.ranksets={ranksets}"
    question = WordedStudy(
        system,
        model,
        platform=PLATFORM,
        batch=PAPER_BATCHES,
        context=f"{context - 1:g}",
        output_tokens="2",  # of two tokens the one decoded sees the prompt and the first
        set=sets,
        knob=AS_IN_FIG_11[system],
    )
    return columns_of(question)["step_ms"].astype(float)


# --- bandwidths and capacities ----------------------------------------------------------------


@check
def bandwidth(of: str, over: str) -> Real:
    """Bandwidth of a memory, or of decode attention on GPUs or host, over another's or in a unit.

    Source: Sec. 2.6, Table 2.
    """
    hw = load_platform(PLATFORM).machine()
    rates = {
        "banks": bank_bandwidth(hw),
        "ranks": hw.dimm.ranksets * bus_bandwidth(hw),
        "bus": bus_bandwidth(hw),
        "hbm": hw.gpu.count * hw.gpu.bandwidth,
        "hbm-pim": hw.gpu.count * hw.gpu.pim_bandwidth,
        "gpu-attention": gpu_attention(hw).rate,
        "host-attention": host_attention(hw).rate,
    }
    divisor = rates[over] if over in rates else unit_of(over)[1]
    return rates[of] / divisor


@check
def one_rank_fills_its_channel() -> Any:
    """True if one rank, refresh included, reaches nine tenths of its channel's bandwidth.

    Source: Sec. 5.1.
    """
    hw = load_platform(PLATFORM).machine()
    memory = dimms(hw)
    one_rank = memory.ranks.rate / hw.dimm.ranksets
    return one_rank > 0.9 * memory.bus.rate


@check
def bank_row_efficiency() -> Real:
    """Share of its peak that a bank streaming full rows reaches, refresh apart (Table 2) [1]."""
    return row_efficiency(load_platform(PLATFORM).machine())


# --- kernels ----------------------------------------------------------------------------------


@check
def prompt_cache_over_feed_forward(*models: str) -> list[Real]:
    """Time to send the KV cache of a prompt over the time of its feed-forward (sec. 5.1) [%]."""
    shares = []
    for name in models:
        hw, llm = model_on(PLATFORM, name)
        link_rate = hw.gpu_link.count * hw.gpu_link.bandwidth * hw.derate.link
        compute_rate = hw.gpu.count * hw.gpu.flops * hw.gpu.gemm
        sent = llm.kv_bytes(1, 1.0) / link_rate
        feed_forward = llm.ffn_flops(1.0) / compute_rate
        shares.append(100 * sent / feed_forward)
    return shares


@check
def prompt_cache_is_hidden(*models: str) -> bool:
    """True if the KV cache of prompts of 16 to 16k tokens leaves within their linear layers.

    Source: Sec. 5.1.
    """
    tokens = np.array([16.0, 256.0, 1024.0, 16384.0])
    for name in models:
        hw, llm = model_on(PLATFORM, name)
        sent = prompt_cache(hw, llm, Load(0.0, 0.0, 0.0, tokens), 1.0)
        if np.any(sent.seconds > linear(hw, llm, tokens).seconds):
            return False
    return True


@check
def weights_bind_feed_forward(platform: str, model: str, tokens: str) -> Any:
    """True if reading weights takes longer than computing with a batch of tokens (fig. 2a)."""
    hw, llm = model_on(platform, model)
    products = linear(hw, llm, float(tokens)).parts["products"].parts
    return products["weights"].seconds > products["compute"].seconds


@check
def attention_share(platform: str, model: str, batch: str, context: str) -> Real:
    """Share of a decode step on GPUs that attention takes (fig. 2b) [%]."""
    hw, llm = model_on(platform, model)
    work = Workload(float(batch), float(context), 1.0).at_context(float(context))
    one_gpu = {"tp": 1.0, "dp": 1.0, "pp": 1.0, "ep": 1.0, "attention": 0.0}
    leaves = find_system("gpu")(hw, llm, work, one_gpu).step.breakdown()
    attention = sum(seconds for name, seconds in leaves.items() if "attention" in name)
    return 100 * attention / sum(leaves.values())


# --- scheduler --------------------------------------------------------------------------------


@check
def larger_half(*contexts: str) -> Any:
    """Tokens of the larger sub-batch that step 2 of sec. 5.3 makes of requests [1,000 tokens]."""
    tokens = np.array([float(text) for text in contexts])
    in_one = even_halves(tokens)
    return max(tokens[in_one].sum(), tokens[~in_one].sum()) / 1000
