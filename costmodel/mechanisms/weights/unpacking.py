"""Weights and caches of fewer bits than activations, unpacked on the GPU before their use.

Symbols: n elements.
"""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import Gpu

KERNEL = 0.0
"""Bytes an element beyond reading it packed and writing it in full, in one fused kernel [B]."""
EAGER = 10.5
"""The same for FlexGen's `decompress`, eager PyTorch on groups of 4 bits [B].

Of two elements, shifting and masking each read a byte and write one, and each result is read again
and written to every second place of a 16-bit tensor: 10 bytes. Dividing by the scale and adding
the minimum then read and write both elements in 16 bits: 16 bytes. That is 13 an element, of which
a kernel needs 2.5.
"""


def unpack_weights(llm: LLM, packed: Real, gpu: Gpu, beyond: Real) -> Span:
    """What unpacking weights moves beyond one kernel, whose copies the products count.

    Args:
        packed: their bytes [B].
        beyond: bytes an element beyond one kernel's, `KERNEL` or `EAGER` [B].
    """
    elements = packed / llm.weight_width
    narrow = np.less(llm.weight_width, llm.activation_width)
    return gpu.read(elements * narrow * beyond, "unpack, beyond one kernel")


def unpack_cache(llm: LLM, packed: Real, gpu: Gpu, beyond: Real) -> Span:
    """Write packed K and V in the width of activations, from which attention then reads them.

    Args:
        packed: their bytes [B].
        beyond: bytes an element beyond one kernel's, `KERNEL` or `EAGER` [B].
    """
    elements = packed / llm.kv_width
    narrow = np.less(llm.kv_width, llm.activation_width)
    each = 2 * llm.activation_width + beyond
    return gpu.read(elements * narrow * each, "unpack; read in full width")
