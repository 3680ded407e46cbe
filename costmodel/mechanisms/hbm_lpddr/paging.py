"""Memory cost of 2 MB pages: a flat page table and partly used last pages (H2M2 sec. 4.2.1).

Symbols: n heads on a side, N heads, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.hbm_lpddr.accelerator import kv_head_bytes
from nearkv.costmodel.mechanisms.hbm_lpddr.head_mapping import (
    BySublayer,
    fc_shapes,
    qkv_columns,
)
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
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


def fragmentation(
    hw: Machine, llm: LLM, work: Workload, heads: BySublayer
) -> Fragmentation:
    """Internal fragmentation of a mapping, on both sides.

    The paper does not list its tensors. Here a tensor is what one kernel reads in one piece, a
    layer and a side: the fused weights of qkv-linear, output, up and down of every expert, and the
    KV cache of the side's heads; and the output head.

    Args:
        hw: role hbm_chip, for the page.
        llm, work: what runs.
        heads: on HBM [1].
    """
    page = hw.hbm_chip.page
    on_hbm = tensors(llm, work, heads)
    on_lpddr = tensors(llm, work, heads.rest(llm.heads))
    as_printed: Real = 0.0
    wasted: Real = 0.0
    for size, count in on_hbm + on_lpddr:
        as_printed = as_printed + count * (size % page)
        wasted = wasted + count * (-size % page)
    return Fragmentation(as_printed, wasted)


def tensors(llm: LLM, work: Workload, heads: BySublayer) -> list[tuple[Real, Real]]:
    """Tensors of all layers and the output head on a side: size [B], how many [1].

    Args:
        llm, work: what runs.
        heads: on the side [1].
    """
    share = heads.fc / llm.heads
    sizes: list[tuple[Real, Real]] = [(share * llm.head_bytes, 1.0)]
    for layer in llm.layer_types.values() or (llm,):
        scale = layer.heads / llm.heads
        cache_of_head = kv_head_bytes(layer, work.batch, work.context)
        cache = cache_of_head * np.ceil(heads.attention * scale / layer.group)
        qkv = layer.hidden * qkv_columns(layer, heads.qkv * scale) * layer.weight_width
        sizes += [(cache, layer.layers), (qkv, layer.layers)]
        mlp_parameters = layer.layer_parameters(layer.experts) - layer.attention_parameters
        experts = mlp_parameters / layer.expert_parameters
        counts = {"output": 1.0, "up": experts, "down": experts}
        for name, shape in fc_shapes(layer, work.batch).items():
            size = shape.k * share * shape.w * layer.weight_width
            sizes.append((size, layer.layers * counts[name]))
    return sizes
