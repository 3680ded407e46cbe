"""Attention of the CPU to K and V of heads in host memory.

Symbols: b sequences, s tokens, g queries a KV head.
"""

from __future__ import annotations

from nearkv.costmodel.algebra.span import Real, Span, overlap
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import Link, host
from nearkv.hardware.machine import Machine


def exchange_with_cpu(llm: LLM, b: Real, gpu_link: Link) -> Span:
    """Q, K, V of the new token to the CPU, the attention output back (HILOS fig. 1b)."""
    query = llm.query_bytes(b)
    qkv = query + llm.kv_bytes(b, 1)
    return overlap(
        qkv=gpu_link.outward(qkv, "Q, K, V to the CPU"),
        result=gpu_link.inward(query, "attention output"),
    )


def attend_on_cpu(hw: Machine, llm: LLM, b: Real, s: Real) -> Span:
    """Attention of the CPU over K and V of b sequences of s tokens in host memory.

    Widening K and V to 32 bits grows with their bytes; the products and the softmax grow with the
    query heads, so with g queries a KV head each byte takes cpu_copy + (1 - cpu_copy) g times as
    long (FlexGen's `mha_gen`).
    """
    copy = hw.derate.cpu_copy
    products = (1 - copy) * llm.group
    plain = host(hw).attend
    attend = plain.with_rate(plain.rate / (copy + products))
    return attend(llm.kv_bytes(b, s), "CPU attention, HILOS fig. 1b")
