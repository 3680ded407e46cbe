"""The KV cache of a layer over the GPUs of a tensor-parallel group (Megatron-LM, sec. 3).

Heads divide among the GPUs. Where there are fewer KV heads than GPUs, each is kept several times;
a latent, which all heads share, by every GPU; a recurrent state divides by its channels.

Symbols: tp GPUs.
"""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.llm import LLM


def copies(llm: LLM, tp: Real) -> Real:
    """Times that the cache of a layer is kept, over tp GPUs [1]."""
    return np.maximum(tp / llm.cache_shards, 1.0)


def sequence_bytes(llm: LLM, tp: Real, tokens: Real) -> Real:
    """Cache or state of one sequence in one layer, over all GPUs [B]."""
    cache = llm.kv_bytes(1, tokens) + llm.state_bytes(1)
    return copies(llm, tp) * cache
