"""What FlexGen's code does beside its loop: whole tensors, copies to pinned memory, eager prompts.

Source: `init_weight_list` of `flex_opt.py`; `general_copy` and `mha` of `pytorch_backend.py`.

Symbols: b batch, s prompt, H heads.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nearkv.costmodel.algebra.compose import serial
from nearkv.costmodel.algebra.span import Port, Real, Span
from nearkv.costmodel.algebra.sums import total
from nearkv.costmodel.mechanisms.near_storage.offload import layer_compute
from nearkv.costmodel.mechanisms.weights.residency import Residency
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import Gpu
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

COPY = 3.0
"""Times that a byte crosses host memory when it is copied: read, its new line filled, written."""


SCORE = 13.0
"""Bytes that a score of a prompt moves through GPU memory in 16 bits.

Written by a product, masked (read, its mask read, written), softmax (read, written), read by a
product.
"""

_LEAST = 1e-9
"""A share so small that no tensor's middle lies in it [1]."""


def whole_tensors(llm: LLM, asked: Residency, divided: Real) -> Residency:
    """The shares by memory when no tensor is divided, or as they are asked for.

    Of each half of a layer the first tensors go to the drives, the next to host memory and the
    last to the GPU, each to the memory in whose share its middle lies. 20 % of OPT on the GPU are
    the output matrix alone, 1/12.

    Args:
        asked: the shares of `--percent`.
        divided: 1 where tensors are divided after all [1].
    """
    outer, inner = llm.query_size, llm.kv_size
    attention = [llm.hidden * width for width in (outer, inner, inner, outer)]
    matrix = llm.hidden * llm.ffn * llm.experts
    stored: Real = 0.0
    streamed: Real = 0.0
    whole: Real = 0.0
    for half in (attention, _matrices(llm, matrix)):
        stored = stored + _below(half, asked.storage)
        streamed = streamed + _below(half, 1 - asked.gpu)
        whole = whole + total(half)
    apart = 1 - divided
    on_storage = divided * asked.storage + apart * stored / whole
    elsewhere = divided * (1 - asked.gpu) + apart * streamed / whole
    return Residency(1 - elsewhere, elsewhere - on_storage, on_storage)


def gpu_breaks(
    _: Machine, llm: LLM, work: Workload, stated: Mapping[str, Real]
) -> tuple[Real, ...]:
    """Shares of the weights on the GPU at which a tensor changes its memory [1]."""
    stored = np.maximum(stated["ssd_weights"], _LEAST)
    to_gpu = [1 - middle for middle in middles(llm)]
    from_drives = [1 - middle / stored for middle in middles(llm)]
    return (*to_gpu, *from_drives)


def drive_breaks(
    _: Machine, llm: LLM, work: Workload, stated: Mapping[str, Real]
) -> tuple[Real, ...]:
    """Shares of the other weights on the drives at which a tensor moves there [1]."""
    streamed = np.maximum(1 - stated["gpu_weights"], _LEAST)
    return tuple(middle / streamed for middle in middles(llm))


def middles(llm: LLM) -> list[Real]:
    """Where the middles of the tensors of both halves of a layer lie, as shares of the half [1]."""
    outer, inner = llm.query_size, llm.kv_size
    places: list[Real] = []
    for half in ([outer, inner, inner, outer], _matrices(llm, 1.0)):
        places += _middles_of(half)
    return places


def _middles_of(half: list[Real]) -> list[Real]:
    """Where the middles of the tensors of one half lie, as shares of it [1]."""
    whole = total(half)
    places: list[Real] = []
    before: Real = 0.0
    for size in half:
        places.append((before + size / 2) / whole)
        before = before + size
    return places


def _matrices(llm: LLM, matrix: Real) -> list[Real]:
    """Sizes of the matrices of an MLP: up and down, and the gate between them [1]."""
    return [matrix, matrix * llm.gated, matrix]


def _below(half: list[Real], share: Real) -> Real:
    """Sizes of the tensors of a half whose middle lies below a share of it [1]."""
    taken: Real = 0.0
    for size, middle in zip(half, _middles_of(half), strict=True):
        taken = taken + size * np.less(middle, share)
    return taken


def relay(hw: Machine, amount: Real) -> Span:
    """Copy bytes of memory that is not pinned into pinned buffers, before anything else runs.

    The program's one thread copies them; from the buffers they move like pinned ones.

    Args:
        amount: copied [B].
    """
    rate = hw.host.count * hw.host.bandwidth * hw.derate.maybe("dram_copy", 1.0)
    copy = Port("host.dram", "read", rate)
    return copy(COPY * amount, "to a pinned buffer: read, filled, written")


def eager_prompts(llm: LLM, b: Real, s: Real, gpu: Gpu) -> Span:
    """Products of one layer over b prompts, and the whole square of their scores, in memory.

    Args:
        b, s: prompts and tokens of each [1].
    """
    square = llm.eager_attention_flops(b, s)
    return serial(
        products=layer_compute(llm, b * s, square, gpu, "2 P b s + 4 b s^2 H d"),
        scores=gpu.read(SCORE * b * llm.eager_scores(s), "H s^2 scores, eager"),
    )
