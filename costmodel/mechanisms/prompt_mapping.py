"""Heads on HBM while prompts are prefilled, and the move from there to the mapping of decode.

H2M2 maps the iterations of the generation phase alone (sec. 3.2, 5.1). Prefill needs another
mapping: whole prompts keep the arrays of both sides busy, so each kernel should be cut as the
arrays' rates are.

Symbols: n heads on HBM, N heads, g queries a KV head.
"""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.compose import stream
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.head_mapping import (
    Asymmetric,
    attention_bytes,
    fc_bytes,
    qkv_bytes,
)
from nearkv.costmodel.span import Real, Span
from nearkv.costmodel.workload import Workload

Heads = tuple[Real, Real, Real]
"""Heads of attention, qkv and fc on HBM [1]."""
_ROUNDING = 1e-9


def bytes_of(llm: LLM, work: Workload, n: Heads) -> Heads:
    """What a side with so many heads of each holds when the prompts are done [B]."""
    return (
        attention_bytes(llm, work.batch, work.prompt, n[0]),
        qkv_bytes(llm, n[1]),
        fc_bytes(llm, n[2]),
    )


def prompt_heads(two: Asymmetric, llm: LLM, work: Workload) -> Heads:
    """Cut every kernel as fast as the sides' arrays are, as far as HBM holds it.

    fc goes first, then qkv, then attention: a byte of weights stands for more work on a prompt than
    a byte of its KV cache. What LPDDR cannot hold goes to HBM in any case. Whole KV groups, so that
    none is stored twice; for the chips of Table 2 no mapping is faster, for unlike ones none by
    more than 2 %.

    Args:
        two: both sides.
        llm, work: what runs.

    Returns:
        Heads of attention, qkv and fc on HBM [1].
    """
    even = even_share(two)
    hbm_room, lpddr_room = two.hbm.capacity, two.lpddr.capacity
    all_heads = (llm.heads, llm.heads, llm.heads)
    attention_size, qkv_size, fc_size = bytes_of(llm, work, all_heads)
    heads: list[Real] = []
    for size, units in (
        (fc_size, llm.heads),
        (qkv_size, llm.kv_heads),
        (attention_size, llm.kv_heads),
    ):
        whole = np.maximum(size, 1.0)
        share_held = np.minimum(hbm_room / whole, 1.0)
        share_left = 1 - lpddr_room / whole
        most = np.floor(units * share_held + _ROUNDING)
        least = np.ceil(units * share_left - _ROUNDING)
        best = whole_units(units, even)
        n = np.maximum(np.minimum(best, most), np.clip(least, 0.0, units))
        heads.append(n * llm.heads / units)
        on_hbm = whole * n / units
        hbm_room = np.maximum(hbm_room - on_hbm, 0.0)
        lpddr_room = np.maximum(lpddr_room - (whole - on_hbm), 0.0)
    fc_heads, qkv_heads, attention_heads = heads
    return attention_heads, qkv_heads, fc_heads


def even_share(two: Asymmetric) -> Real:
    """Share of a product on HBM that keeps the arrays of both sides busy as long [1]."""
    hbm = two.hbm.arrays.rate * two.hbm.rows * two.hbm.columns
    lpddr = two.lpddr.arrays.rate * two.lpddr.rows * two.lpddr.columns
    return hbm / (hbm + lpddr)


def whole_units(units: Real, share: Real) -> Real:
    """Units on HBM, whole, at which the slower side ends first [1].

    Either side of the even share: one unit more delays HBM, one less delays LPDDR.

    Args:
        units: of the kernel [1].
        share: of the arrays' rates that is HBM's [1].
    """
    fewer = np.floor(units * share + _ROUNDING)
    more = np.minimum(fewer + 1, units)
    hbm_with_more = more * (1 - share)
    lpddr_with_fewer = (units - fewer) * share
    return np.where(hbm_with_more < lpddr_with_fewer * (1 - _ROUNDING), more, fewer)


def change_mapping(
    two: Asymmetric, llm: LLM, work: Workload, before: Heads, after: Heads
) -> Span:
    """Move what the two mappings hold on different sides, all layers (sec. 4.2.2, Migration)."""
    sizes_before = bytes_of(llm, work, before)
    sizes_after = bytes_of(llm, work, after)
    moved: Real = 0.0
    for size_before, size_after in zip(sizes_before, sizes_after, strict=True):
        moved = moved + np.abs(size_before - size_after)
    ports = {"hbm": two.hbm.memory, "link": two.link, "lpddr": two.lpddr.memory}
    any_batch = np.greater(work.batch, 0)
    return stream(moved * any_batch, "to the mapping of decode", **ports)
