"""Heads on HBM while prompts are prefilled, and the move from there to the mapping of decode.

H2M2 maps the iterations of the generation phase alone (sec. 3.2, 5.1). Prefill needs another
mapping: whole prompts keep the arrays of both sides busy, so each kernel should be cut as the
arrays' rates are. Where HBM lacks room for that, which kernel goes first decides: on a short prompt
a byte of weights stands for more work than a byte of KV cache, on a long one, or where few of many
experts are used, for less. Both orders are tried, and the mapping of decode, which needs no move.
For the chips of Table 2 and the models of the paper no mapping is faster; on random machines with
models of today the fastest is up to a fifth faster, where a KV group more or less does not fit.

Symbols: n heads on HBM, N heads, g queries a KV head.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.compose import stream
from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.mechanisms.hbm_lpddr.head_mapping import (
    Asymmetric,
    attention_bytes,
    fc_bytes,
    qkv_bytes,
)
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload

Heads = tuple[Real, Real, Real]
"""Heads of attention, qkv and fc on HBM [1]."""
Order = tuple[int, int, int]
ORDERS: tuple[Order, ...] = ((2, 1, 0), (0, 1, 2))
"""fc first, or attention first; places in `Heads`."""
_ROUNDING = 1e-9


def bytes_of(llm: LLM, work: Workload, n: Heads) -> Heads:
    """What a side with so many heads of each holds when the prompts are done [B]."""
    return (
        attention_bytes(llm, work.batch, work.prompt, n[0]),
        qkv_bytes(llm, n[1]),
        fc_bytes(llm, n[2]),
    )


def prompt_heads(two: Asymmetric, llm: LLM, work: Workload, order: Order) -> Heads:
    """Cut every kernel as fast as the sides' arrays are, as far as HBM holds it.

    What LPDDR cannot hold goes to HBM in any case. Whole KV groups, so that none is stored twice.

    Args:
        two: both sides.
        llm, work: what runs.
        order: which kernel takes its part of HBM first, places in `Heads`.

    Returns:
        Heads of attention, qkv and fc on HBM [1].
    """
    even = even_share(two)
    hbm_room, lpddr_room = two.hbm.capacity, two.lpddr.capacity
    all_heads = (llm.heads, llm.heads, llm.heads)
    sizes = bytes_of(llm, work, all_heads)
    units_of = (
        llm.kv_heads,
        llm.kv_heads,
        llm.heads,
    )
    heads: dict[int, Real] = {}
    for kernel in order:
        units = units_of[kernel]
        whole = np.maximum(sizes[kernel], 1.0)
        share_held = hbm_room / whole
        share_left = 1 - lpddr_room / whole
        most = np.floor(units * share_held + _ROUNDING)
        least = np.ceil(units * share_left - _ROUNDING)
        best = whole_units(units, even)
        least = np.clip(least, 0.0, units)
        n = np.maximum(np.minimum(best, most), least)
        heads[kernel] = n * llm.heads / units
        on_hbm = whole * n / units
        hbm_room = np.maximum(hbm_room - on_hbm, 0.0)
        lpddr_room = np.maximum(lpddr_room - (whole - on_hbm), 0.0)
    return heads[0], heads[1], heads[2]


def holds(two: Asymmetric, llm: LLM, work: Workload, heads: Heads) -> NDArray[np.bool_]:
    """Whether both sides hold their parts when the prompts are done."""
    n_attention, n_qkv, n_fc = heads
    rest = (
        llm.heads - n_attention,
        llm.heads - n_qkv,
        llm.heads - n_fc,
    )
    on_hbm: Real = sum(bytes_of(llm, work, heads))
    on_lpddr: Real = sum(bytes_of(llm, work, rest))
    in_hbm = on_hbm <= two.hbm.capacity
    in_lpddr = on_lpddr <= two.lpddr.capacity
    return np.logical_and(in_hbm, in_lpddr)


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
