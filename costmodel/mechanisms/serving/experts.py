"""Experts of a layer on a GPU: tokens gathered by expert, grouped products, results scattered.

Symbols: t tokens, k active experts, h hidden.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nearkv.costmodel.algebra.compose import overlap, serial
from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import Gpu, gpu
from nearkv.hardware.machine import Machine

MOVES = 5.0
"""Times that the k copies of a token's activations cross GPU memory around the products.

Gathering reads and writes them, the first product reads them, the second writes its results, and
the weighted sum reads these.
"""


def without_experts(llm: LLM) -> LLM:
    """The layers without their experts; of dense layers nothing is left out."""
    kept = llm.active_experts * (1 - llm.is_moe)
    return replace(llm, active_experts=kept)


def grouped_products(hw: Machine, llm: LLM, tokens: Real, passes: Real) -> Span:
    """Products of one layer's experts on all GPUs, each expert divided over all of them.

    Weights that products take wider than they are stored are dequantised inside the kernel, which
    reads them at `derate.packed_hbm`; many tokens reach `derate.experts_gemm` of the peak. Every
    GPU gathers and scatters all tokens.

    Args:
        hw: role gpu.
        llm: a model whose layers are all like it.
        tokens: computed [1].
        passes: times that the weights are read, for equal parts of the tokens [1].
    """
    _, operand = llm.operands
    gpus = kernels(hw, llm, operand)
    each = tokens / passes
    used = np.minimum(each, 1.0)
    distinct = passes * used * llm.distinct_experts(each)
    weights = distinct * llm.expert_parameters * llm.weight_width
    copies = tokens * llm.active_experts
    flops = 2 * copies * llm.expert_parameters
    moved = MOVES * copies * llm.hidden * llm.activation_width
    return llm.is_moe * serial(
        gather=gpu(hw).read(hw.gpu.count * moved, "k copies of h, gathered and scattered"),
        products=overlap(
            weights=gpus.read(weights, "experts that any token uses"),
            compute=gpus.products(operand)(flops, "2 FLOPs a weight and token"),
        ),
    )


def kernels(hw: Machine, llm: LLM, operand: Real) -> Gpu:
    """The GPUs at the rates of grouped products, where the platform states them.

    Args:
        operand: width of the wider operand of the products [B].
    """
    rates = hw.derate
    wide = rates.maybe("experts_gemm", rates.gemm)
    packed = np.less(llm.weight_width, gpu(hw).product_width(operand))
    of_packed = rates.maybe("packed_hbm", rates.hbm)
    stream = np.where(packed, of_packed, rates.hbm)[()]
    grouped = {
        "derate.gemm": wide,
        "derate.gemm_narrow": wide,
        "derate.hbm": stream,
    }
    return gpu(hw.with_values(grouped))
