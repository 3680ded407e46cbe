"""What 2 MB pages cost in memory: the flat page table and the last, partly used page of every tensor (H2M2 sec. 4.2.1).

Symbols: n heads on a side, N heads, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.accelerator import kv_head_bytes
from nearkv.costmodel.mechanisms.head_mapping import fc_shapes, qkv_columns
from nearkv.costmodel.span import Real
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine


@dataclass(frozen=True)
class Fragmentation:
    """Last pages of all tensors.

    Attributes:
        as_printed: eq. 2, (size mod page) x tensors, which is the used part of the last pages [B].
        wasted: the unused part, (-size mod page) x tensors [B].
    """

    as_printed: Real
    wasted: Real


def page_table_bytes(hw: Machine, space: Real) -> Real:
    """Flat page table of one chip for a logical address space [B]."""
    return np.ceil(space / hw.hbm_chip.page) * hw.hbm_chip.page_entry


def tlb_reach_bytes(hw: Machine) -> Real:
    """Bytes a chip's TLB translates without a miss; a step streams far more, so every page misses once [B]."""
    return hw.hbm_chip.tlb_entries * hw.hbm_chip.page


def fragmentation(
    hw: Machine, llm: LLM, work: Workload, n_attention: Real, n_qkv: Real, n_fc: Real
) -> Fragmentation:
    """Internal fragmentation of a mapping, on both sides.

    The paper does not list its tensors. These are, a layer and a side, what one kernel reads in one
    piece: the fused weights of qkv-linear, output, up and down of every expert, and the KV cache of the side's heads.

    Args:
        hw: role hbm_chip, for the page.
        llm, work: what runs.
        n_attention, n_qkv, n_fc: heads on HBM [1].
    """
    page = hw.hbm_chip.page
    printed: Real = 0.0
    wasted: Real = 0.0
    for sides in (
        (n_attention, n_qkv, n_fc),
        (llm.heads - n_attention, llm.heads - n_qkv, llm.heads - n_fc),
    ):
        for size, alike in tensors(llm, work, *sides):
            printed = printed + llm.layers * alike * np.mod(size, page)
            wasted = wasted + llm.layers * alike * np.mod(-size, page)
    return Fragmentation(printed, wasted)


def tensors(
    llm: LLM, work: Workload, n_attention: Real, n_qkv: Real, n_fc: Real
) -> list[tuple[Real, Real]]:
    """Tensors of an average layer on a side with so many heads of each sub-layer: size [B], how many [1]."""
    experts = (llm.layer_parameters(llm.experts) - llm.attention_parameters) / llm.expert_parameters
    cache = kv_head_bytes(llm, work.batch, work.context) * np.ceil(n_attention / llm.group)
    weights = llm.hidden * qkv_columns(llm, n_qkv) * llm.weight_width
    columns = {
        name: k * w * n_fc / llm.heads for name, (_, k, w, _) in fc_shapes(llm, work.batch).items()
    }
    how_many = {"output": 1.0, "up": experts, "down": experts}
    return [
        (cache, 1.0),
        (weights, 1.0),
        *((columns[n] * llm.weight_width, how_many[n]) for n in columns),
    ]
