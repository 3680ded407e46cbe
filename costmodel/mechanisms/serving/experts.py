"""Experts of a layer on a GPU: tokens gathered by expert, grouped products, results scattered.

Symbols: t tokens, k active experts, h hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nearkv.costmodel.algebra.span import (
    TINY,
    Booleans,
    Port,
    Real,
    Span,
    choose,
    overlap,
    quotient,
    serial,
    stream,
)
from nearkv.costmodel.mechanisms.serving.dimm import imbalance
from nearkv.costmodel.mechanisms.serving.split import GpuSplit
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import Gpu, gpu
from nearkv.hardware.machine import Machine

MOVES = 5.0
"""Times that the k copies of a token's activations cross GPU memory around the products.

Gathering reads and writes them, the first product reads them, the second writes its results, and
the weighted sum reads these.
"""

TILES = (16.0, 128.0)
"""Rows of the smallest and the largest tile of a grouped product.

Kernels choose between them by the rows of an expert (triton_kernels, `opt_flags.py`).
"""

_FOUR_BITS = 0.5
"""An operand of four bits [B]."""


def without_experts(llm: LLM) -> LLM:
    """The layers without their experts; of dense layers nothing is left out."""
    kept = llm.active_experts * (1 - llm.is_moe)
    return replace(llm, active_experts=kept)


def grouped_products(
    hw: Machine,
    layer: LLM,
    split: GpuSplit,
    tokens: Real,
    passes: Real,
    tiles: Sequence[float] = TILES,
    behind: Port | None = None,
) -> Span:
    """Products of one layer's experts, each expert divided over the GPUs that hold it.

    Weights that products take wider than they are stored are dequantised inside the kernel, which
    reads them at `packed_hbm`; full tiles reach `experts_gemm` of the peak, and the
    last tile of each expert is half empty on average. Every GPU gathers and scatters the tokens of
    its experts. Where GPUs hold other experts than others, all wait for the fullest, from the
    multinomial of the router's choices.

    Args:
        hw: role gpu.
        layer: a model whose layers are all like it.
        split: the degrees of parallelism.
        tokens: computed, over all replicas [1].
        passes: times that a replica reads the weights, for equal parts of its tokens [1].
        tiles: that kernels choose from; of none the rows are multiplied as they are.
        behind: memory behind that of the GPUs, where the weights lie there [B].
    """
    _, operand = gpu(hw).operands(layer)
    gpus = kernels(hw, layer, operand)
    groups = split.tp * split.dp / split.expert_group
    each = quotient(tokens / groups, passes)
    used = np.minimum(each, 1.0)
    distinct = used * layer.distinct_experts(each)
    share = np.maximum(distinct / layer.experts, TINY)
    # of a GPU's experts each is used with that probability, and no more than all are
    most_used = np.minimum(imbalance(distinct, split.ep, 1 - share), 1 / share)
    fullest = most_chosen(layer, each * layer.active_experts, split.ep)
    visits = groups * passes * distinct
    weights = visits * layer.expert_parameters * layer.weight_width
    copies = fullest * tokens * layer.active_experts
    instruction = hw.gpu.maybe("matrix_rows", 1.0)
    half_empty = most_used * visits / 2
    multiplied = [
        np.maximum(tile, instruction) * (copies / tile + half_empty) for tile in tiles
    ]
    rows = np.minimum(*multiplied) if tiles else copies
    flops = 2 * rows * layer.expert_parameters
    holders = split.expert_group / split.ep
    moved = MOVES * holders * copies * layer.hidden * layer.activation_width
    return layer.is_moe * serial(
        gather=gpu(hw).read(moved, "k copies of h, gathered and scattered"),
        products=overlap(
            weights=through(
                gpus.read, behind, most_used * weights, "experts that any token uses"
            ),
            compute=gpus.products(operand)(flops, "2 FLOPs a weight and row of tiles"),
        ),
    )


def most_chosen(layer: LLM, copies: Real, ranks: Real) -> Real:
    """Choices of the fullest of some GPUs, each with as many experts, over the mean [1].

    The variance of a GPU's choices is that of the multinomial, R / m, and that of the shares of its
    experts: as of fewer choices, m / (1 + m var).

    Args:
        layer: a model whose layers are all like it.
        copies: tokens times the experts that each chooses [1].
        ranks: GPUs, or groups of them, with other experts each [1].
    """
    alike = copies / (1 + copies * layer.choice_variance)
    return imbalance(alike, ranks, 1.0)


def through(memory: Port, behind: Port | None, amount: Real, eq: str) -> Span:
    """Read bytes from the memory of the GPUs, or through its interface from one behind it.

    Args:
        memory: of the GPUs, as fast as the kernel reads it [B].
        behind: where the bytes lie, if not there [B].
        amount: how many [B].
        eq: the equation that they come from.
    """
    if behind is None:
        return memory(amount, eq)
    return stream(amount, eq, behind=behind, memory=memory)


def kernels(hw: Machine, layer: LLM, operand: Real) -> Gpu:
    """The GPUs at the rates of grouped products.

    Args:
        operand: width of the wider operand of the products [B].
    """
    full_tiles = multiplied(hw, layer, operand, hw.gpu.experts_gemm)
    grouped = {
        "gpu.gemm": full_tiles,
        "gpu.gemm_narrow": full_tiles,
        "gpu.gemm_4bit": full_tiles,
        "gpu.hbm": streamed(hw, layer, layer.weight_width, operand),
    }
    return gpu(hw.with_values(grouped))


def streamed(hw: Machine, layer: LLM, width: Real, operand: Real) -> Real:
    """Share of the bandwidth at which products read weights, by how they are stored [1].

    Args:
        hw: role gpu.
        layer: a model whose layers are all like it.
        width: of a weight as it is stored [B].
        operand: width of the wider operand of the products [B].
    """
    rates = hw.gpu
    packed = _is_unpacked(hw, layer, width, operand)
    of_4_bits = (operand <= _FOUR_BITS) & ~packed
    reached = np.where(packed, rates.packed_hbm, rates.hbm)
    return choose(of_4_bits, rates.hbm_4bit, reached)


def multiplied(hw: Machine, layer: LLM, operand: Real, whole: Real) -> Real:
    """Share of the peak that products reach, a GPU's own where their kernel unpacks weights [1].

    Args:
        hw: role gpu, which states `packed_gemm` where such kernels were measured.
        layer: a model whose layers are all like it.
        operand: width of the wider operand of the products [B].
        whole: share that products of other weights reach [1].
    """
    packed = _is_unpacked(hw, layer, layer.weight_width, operand)
    return choose(packed, hw.gpu.maybe("packed_gemm", whole), whole)


def _is_unpacked(hw: Machine, layer: LLM, width: Real, operand: Real) -> Booleans:
    """True if a kernel unpacks weights of a width [B] for products of an operand [B]."""
    gpus = gpu(hw)
    return (width < gpus.product_width(operand)) & ~gpus.multiplies(layer)
