"""One decode step and the prefill of the asymmetric memory under any mapping (H2M2 sec. 3.1, 4.2).

Symbols: n heads (or layers) on HBM, N heads, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from nearkv.costmodel.algebra.compose import serial
from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.mechanisms.hbm_lpddr.accelerator import memory_energy
from nearkv.costmodel.mechanisms.hbm_lpddr.head_mapping import (
    Asymmetric,
    asymmetric_memory,
    attention,
    check_heads,
    check_units,
    decoder_bytes,
    fc,
    footprint,
    prompt_attention,
    qkv,
)
from nearkv.costmodel.mechanisms.hbm_lpddr.prompt_mapping import (
    ORDERS,
    Heads,
    change_mapping,
    holds,
    prompt_heads,
)
from nearkv.costmodel.model.capacity import fits
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

Kernel = Callable[[Real], Span]
"""Heads on HBM -> one layer of a sub-layer."""


def mapped(
    hw: Machine,
    llm: LLM,
    work: Workload,
    n_attention: Real,
    n_qkv: Real,
    n_fc: Real,
    paged: Real = 0.0,
    prompt: Heads | None = None,
) -> Estimate:
    """Prefill and one decode step with so many heads of each sub-layer on HBM.

    Args:
        hw: roles hbm, lpddr, hbm_chip, lpddr_chip, c2c.
        llm, work: what runs; the mapping is that of the decode step at `work.context`.
        n_attention, n_qkv, n_fc: heads on HBM [1].
        paged: 1 where address translation is paid for, else 0 [1].
        prompt: heads on HBM in prefill; those of `fastest_heads` where none are given [1].

    Returns:
        Prefill, one decode step and what fits. Source: H2M2 sec. 3.1, 4.2, Tables 1 and 2.

    Raises:
        InputError: heads outside 0..N.
    """
    check_heads(llm)
    check_units(llm.heads, n_attention=n_attention, n_qkv=n_qkv, n_fc=n_fc)
    two, b = asymmetric_memory(hw), work.batch
    decode = (n_attention, n_qkv, n_fc)
    if prompt is None:
        prompt = fastest_heads(two, llm, work, decode, paged)
    step = serial(
        qkv=qkv(two, llm, b, n_qkv, paged),
        attention=attention(two, llm, b, work.context, n_attention, paged),
        fc=fc(two, llm, b, n_fc, paged),
    )
    prefill = prompts(two, llm, work, prompt, decode, paged)
    n = llm.heads
    on_lpddr = footprint(llm, work, n - n_attention, n - n_qkv, n - n_fc)
    return every_layer(
        hw,
        llm,
        work,
        prefill=prefill,
        step=llm.layers * step,
        on_hbm=footprint(llm, work, n_attention, n_qkv, n_fc),
        on_lpddr=sum(on_lpddr.values()),
    )


def prompts(
    two: Asymmetric, llm: LLM, work: Workload, heads: Heads, decode: Heads, paged: Real
) -> Span:
    """All prompts with one mapping, and the move to the mapping of decode."""
    layer = prompt_layer(two, llm, work, heads, paged)
    change = change_mapping(two, llm, work, heads, decode)
    return serial(layers=llm.layers * layer, change=change)


def fastest_heads(
    two: Asymmetric, llm: LLM, work: Workload, decode: Heads, paged: Real
) -> Heads:
    """A mapping made for prompts, or that of decode where moving costs more than it gains."""
    fastest = decode
    least = prompts(two, llm, work, decode, decode, paged).seconds
    for order in ORDERS:
        heads = prompt_heads(two, llm, work, order)
        seconds = prompts(two, llm, work, heads, decode, paged).seconds
        faster = holds(two, llm, work, heads) & np.less(seconds, least)
        attention, qkv_, fc_ = [
            np.where(faster, *pair)[()] for pair in zip(heads, fastest, strict=True)
        ]
        fastest = (attention, qkv_, fc_)
        least = np.minimum(least, np.where(faster, seconds, np.inf))
    return fastest


def prompt_layer(
    two: Asymmetric, llm: LLM, work: Workload, heads: Heads, paged: Real
) -> Span:
    """One layer of all prompts with so many heads of attention, qkv and fc on HBM."""
    n_attention, n_qkv, n_fc = heads
    tokens = work.batch * work.prompt
    return serial(
        qkv=qkv(two, llm, tokens, n_qkv, paged),
        attention=prompt_attention(two, llm, work.batch, work.prompt, n_attention, paged),
        fc=fc(two, llm, tokens, n_fc, paged),
    )


def every_layer(
    hw: Machine,
    llm: LLM,
    work: Workload,
    prefill: Span,
    step: Span,
    on_hbm: Mapping[str, Real],
    on_lpddr: Real,
) -> Estimate:
    """Check this step's mapping, and the cache of the last step, against the memories.

    Args:
        hw, llm, work: as in `mapped`.
        prefill, step: of all layers.
        on_hbm: bytes of each sub-layer on HBM [B].
        on_lpddr: bytes on LPDDR [B].
    """
    hbm = hw.hbm.count * hw.hbm.memory
    lpddr = hw.lpddr.count * hw.lpddr.memory
    hbm_used: Real = sum(on_hbm.values())
    last = decoder_bytes(llm, work.batch, np.maximum(work.final, work.context))
    also = {
        "memory_energy_j_tok": memory_energy(hw, step, work.batch, "hbm", "lpddr"),
        "hbm_used_gb": hbm_used / 1e9,
        "lpddr_used_gb": on_lpddr / 1e9,
    }
    also.update((f"hbm_{name}_gb", amount / 1e9) for name, amount in on_hbm.items())
    return Estimate(
        prefill=prefill,
        step=step,
        fits=fits(hbm=(hbm_used, hbm), lpddr=(on_lpddr, lpddr), both=(last, hbm + lpddr)),
        work=work,
        batch_run=work.batch,
        also=also,
    )


def one_side(llm: LLM, kernel: Kernel, layers: Real) -> Span:
    """The mean layer where so many layers compute a kernel on HBM, the others on LPDDR."""
    on_hbm = layers / llm.layers
    all_heads, none = llm.heads, 0 * llm.heads
    return serial(hbm=on_hbm * kernel(all_heads), lpddr=(1 - on_hbm) * kernel(none))
