"""Attention to a cache in host memory: the CPU over heads, the GPU over latents.

Symbols: b sequences, s tokens, r latent rank, dr rotary size, H query heads.
"""

from __future__ import annotations

from nearkv.costmodel.algebra.span import Real, Span, overlap, stream
from nearkv.costmodel.mechanisms.weights.streaming import DataPath
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import Gpu, Host, Link
from nearkv.hardware.machine import Machine


def exchange_with_cpu(llm: LLM, b: Real, gpu_link: Link) -> Span:
    """Q, K, V of the new token to the CPU, the attention output back (HILOS fig. 1b)."""
    query = llm.query_bytes(b)
    qkv = query + llm.kv_bytes(b, 1)
    return overlap(
        qkv=gpu_link.outward(qkv, "Q, K, V to the CPU"),
        result=gpu_link.inward(query, "attention output"),
    )


def attend_on_cpu(hw: Machine, llm: LLM, b: Real, s: Real, host: Host) -> Span:
    """Attention of the CPU over K and V of b sequences of s tokens in host memory.

    Widening K and V to 32 bits grows with their bytes; the products and the softmax grow with the
    query heads, so with g queries a KV head each byte takes cpu_copy + (1 - cpu_copy) g times as
    long (FlexGen's `mha_gen`).
    """
    copy = hw.derate.cpu_copy
    products = (1 - copy) * llm.group
    times = copy + products
    attend = host.attend.with_rate(host.attend.rate / times)
    kv = llm.kv_bytes(b, s)
    return attend(kv, "CPU attention, HILOS fig. 1b")


def latents_from_host(llm: LLM, b: Real, s: Real, gpu: Gpu, path: DataPath) -> Span:
    """Latents of b sequences come to the GPU, which attends to them as they arrive.

    A token's row of r + dr elements serves all heads, so the bytes are few and the products many:
    where a CPU would attend to K and V of heads, it is the GPU that attends to latents.

    Args:
        b, s: sequences and context [1].
        path: the ports from where latents live to the GPU.
    """
    rows = llm.kv_bytes(b, s)
    products = llm.attention_flops(b, s)
    return overlap(
        load=stream(rows, "(r + dr) elements of a token", **path),
        hbm=gpu.read(rows, "latents"),
        compute=gpu.run(products, "2 b s H (2 r + dr)"),
    )
