"""Heads on HBM while prompts are prefilled, and the move from there to the mapping of decode.

H2M2 maps the iterations of the generation phase alone (sec. 3.2, 5.1). Prefill wants another mapping: whole
prompts keep the arrays of both sides busy, so each kernel should be cut as the arrays' rates are.

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
    """Cut every kernel as the sides' arrays are fast, as far as HBM holds it; fc first, then qkv, then attention.

    A byte of weights stands for more work on a prompt than a byte of its KV cache, so weights go
    first. What LPDDR cannot hold goes to HBM in any case. Whole KV groups, so that none is held twice;
    for the chips of Table 2 no mapping is faster, for unlike ones none by more than 2 %.

    Args:
        two: both sides.
        llm, work: what runs.

    Returns:
        Heads of attention, qkv and fc on HBM [1].
    """
    hbm, lpddr = (on.arrays.rate * on.rows * on.columns for on in (two.hbm, two.lpddr))
    even, room, rest = hbm / (hbm + lpddr), two.hbm.capacity, two.lpddr.capacity
    heads: dict[str, Real] = {}
    sizes = dict(
        zip(("attention", "qkv", "fc"), bytes_of(llm, work, (llm.heads,) * 3), strict=True)
    )
    for name in ("fc", "qkv", "attention"):
        size = np.maximum(sizes[name], 1.0)
        units = llm.heads if name == "fc" else llm.kv_heads
        most = np.floor(units * np.minimum(even, room / size) + _ROUNDING)
        least = np.clip(np.ceil(units * (1 - rest / size) - _ROUNDING), 0.0, units)
        n = np.maximum(most, least)
        heads[name], capacity_check = n * llm.heads / units, size * n / units
        room, rest = (
            np.maximum(room - capacity_check, 0.0),
            np.maximum(rest - (size - capacity_check), 0.0),
        )
    return heads["attention"], heads["qkv"], heads["fc"]


def change_mapping(two: Asymmetric, llm: LLM, work: Workload, before: Heads, after: Heads) -> Span:
    """Move what the two mappings hold on different sides, all layers (sec. 4.2.2, Migration)."""
    moved: Real = 0.0
    for one, other in zip(bytes_of(llm, work, before), bytes_of(llm, work, after), strict=True):
        moved = moved + np.abs(one - other)
    moved = moved * np.greater(work.batch, 0)
    return stream(
        moved, "to the mapping of decode", hbm=two.hbm.memory, link=two.link, lpddr=two.lpddr.memory
    )
