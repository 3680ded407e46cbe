"""Checks of L3's statements about bandwidths, capacities, kernels and its scheduler.

Source: L3 sec. 1, 2, 5; Tables 2, 3.
"""

from __future__ import annotations

import numpy as np

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
from nearkv.costmodel.model.queue import Load
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.costmodel.systems.l3 import prompt_cache
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine
from nearkv.hardware.units import unit_of
from nearkv.solvers.subbatch.problem import CHUNK_TOKENS
from nearkv.solvers.subbatch.schedule import even_halves
from nearkv.sweeps.study.traces import REQUESTS
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.checks.asking import model_on
from nearkv.sweeps.validation.checks.l3 import PLATFORM


def _machine() -> Machine:
    return load_platform(PLATFORM).machine()


# --- bandwidths and capacities ----------------------------------------------------------------


@check
def bandwidth(of: str, over: str) -> float:
    """Bandwidth of `banks`, `ranks`, `bus`, `hbm`, `hbm-pim` or `rank` over another's, or in a
    unit.

    Source: Table 2.
    """
    hw = _machine()
    rates = {
        "banks": bank_bandwidth(hw),
        "ranks": hw.dimm.ranksets * bus_bandwidth(hw),
        "bus": bus_bandwidth(hw),
        "hbm": hw.gpu.count * hw.gpu.bandwidth,
        "hbm-pim": hw.gpu.count * hw.gpu.pim_bandwidth,
    }
    divisor = rates[over] if over in rates else unit_of(over)[1]
    return float(rates[of] / divisor)


@check
def cpu_slowdown() -> float:
    """Decode attention on the host's cores over that on the GPUs (sec. 2.6) [1]."""
    hw = _machine()
    return float(gpu_attention(hw).rate / host_attention(hw).rate)


@check
def one_rank_fills_its_channel() -> float:
    """Whether one rank, refresh included, reaches nine tenths of its channel's bandwidth.

    Source: Sec. 5.1.
    """
    hw = _machine()
    memory = dimms(hw)
    one_rank = memory.ranks.rate / hw.dimm.ranksets
    return float(one_rank > 0.9 * memory.bus.rate)


@check
def bank_row_efficiency() -> float:
    """Share of its peak that a bank streaming whole rows reaches, refresh apart (Table 2) [1]."""
    return float(row_efficiency(_machine()))


# --- kernels ----------------------------------------------------------------------------------


@check
def prompt_cache_over_feed_forward(*models: str) -> list[float]:
    """Time to send the KV cache of a prompt over the time of its feed-forward (sec. 5.1) [%]."""
    shares = []
    for name in models:
        hw, llm = model_on(PLATFORM, name)
        link_rate = hw.gpu_link.count * hw.gpu_link.bandwidth * hw.derate.link
        compute_rate = hw.gpu.count * hw.gpu.flops * hw.derate.gemm
        sent = llm.kv_bytes(1, 1.0) / link_rate
        feed_forward = llm.ffn_flops(1.0) / compute_rate
        shares.append(float(100 * sent / feed_forward))
    return shares


@check
def prompt_cache_is_hidden(*models: str) -> float:
    """Whether the KV cache of prompts of 16 to 16k tokens leaves within their linear layers.

    Source: Sec. 5.1.
    """
    tokens = np.array([16.0, 256.0, 1024.0, 16384.0])
    for name in models:
        hw, llm = model_on(PLATFORM, name)
        sent = prompt_cache(hw, llm, Load(0.0, 0.0, 0.0, tokens), 1.0)
        if np.any(sent.seconds > linear(hw, llm, tokens).seconds):
            return 0.0
    return 1.0


@check
def weights_bind_feed_forward(platform: str, model: str, tokens: str) -> float:
    """Whether reading weights takes longer than computing with so many batched tokens (fig. 2a)."""
    hw, llm = model_on(platform, model)
    products = linear(hw, llm, float(tokens)).parts["products"].parts
    return float(products["weights"].seconds > products["compute"].seconds)


@check
def attention_share(platform: str, model: str, batch: str, context: str) -> float:
    """Share of a decode step on GPUs that attention takes (fig. 2b) [%]."""
    hw, llm = model_on(platform, model)
    work = Workload(float(batch), float(context), 1.0).at(float(context))
    leaves = find_system("gpu-only")(hw, llm, work, {"policy": 0.0}).step.breakdown()
    attention = sum(seconds for name, seconds in leaves.items() if "attention" in name)
    return float(100 * attention / sum(leaves.values()))


# --- scheduler --------------------------------------------------------------------------------


@check
def larger_half(*contexts: str) -> float:
    """Tokens of the larger sub-batch that step 2 of sec. 5.3 makes of requests [1,000 tokens]."""
    tokens = np.array([float(text) for text in contexts])
    in_one = even_halves(tokens)
    larger = max(tokens[in_one].sum(), tokens[~in_one].sum())
    return float(larger / 1000)


@check
def chunk_tokens() -> float:
    """Granularity of a chunk of a prompt (sec. 5.3) [tokens]."""
    return float(CHUNK_TOKENS)


@check
def requests_drawn() -> float:
    """Requests drawn from each trace (sec. 6.2) [1]."""
    return float(REQUESTS)
