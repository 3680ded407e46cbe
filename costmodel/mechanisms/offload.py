"""What every system that offloads to host memory and storage does alike: stream weights, prefill, round up.

Symbols: b batch, s prompt, L layers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nearkv.costmodel.compose import overlap, serial, stream
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.resources import Gpu, Host, Link
from nearkv.costmodel.span import Port, Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine


def weights_on_storage(hw: Machine, llm: LLM) -> Real:
    """1 where weights live on storage, 0 where in host DRAM (HILOS sec. 6.1: above 100B parameters) [1]."""
    return np.where(np.asarray(llm.parameters) > hw.policy.weights_in_dram_up_to, 1.0, 0.0)[()]


def weights_on_gpu(llm: LLM, prompt: Real, gpu: Gpu) -> Real:
    """1 where all weights stay on the GPU beside its activations, else 0 (INF² sec. 7.1) [1]."""
    return np.where(llm.weight_bytes + llm.activation_bytes(prompt) <= gpu.memory, 1.0, 0.0)[()]


def load_weights(
    amount: Real, on_storage: Real, storage: dict[str, Port], host: Host, gpu_link: Link
) -> Span:
    """Bring weights to the GPU from host DRAM, or from storage by its own way.

    Args:
        amount: weights [B].
        on_storage: share of them on storage, the rest in DRAM [1].
        storage: the ports on the way from storage to the host's link.
    """
    return overlap(
        storage=stream(on_storage * amount, "weights on storage", **storage),
        dram=host.read((1 - on_storage) * amount, "weights in DRAM"),
        link=gpu_link.inward(amount, "weights"),
    )


def linear_step(llm: LLM, tokens: Real, gpu: Gpu, weights: Span) -> Span:
    """All matrix products of one decode layer beside the loading of their weights."""
    return overlap(
        weights=weights,
        hbm=gpu.read(llm.layer_weight_bytes(tokens), "weights once a step"),
        compute=gpu.run(llm.linear_flops(tokens), "2 FLOPs a weight and token"),
    )


def with_head(llm: LLM, layer: Span, b: Real, gpu: Gpu, load: Callable[[Real], Span]) -> Span:
    """All layers, then the output head for one token a sequence, its weights loaded like a layer's."""
    return serial(
        layers=llm.layers * layer, head=output_head(llm, b, gpu, weights=load(head_weights(llm, b)))
    )


def output_head(llm: LLM, b: Real, gpu: Gpu, **arriving: Span) -> Span:
    """Logits of one token a sequence.

    Args:
        arriving: how its weights come to the GPU, nothing where they are there.
    """
    return overlap(
        **arriving,
        hbm=gpu.read(head_weights(llm, b), "output head"),
        compute=gpu.run(2 * b * llm.head_parameters, "output head"),
    )


def head_weights(llm: LLM, b: Real) -> Real:
    """Weights of the output head that a step reads; none for no sequence [B]."""
    return np.minimum(b, 1.0) * llm.head_parameters * llm.weight_width


def prefill_compute(llm: LLM, work: Workload, batch: Real, gpu: Gpu) -> Span:
    """One layer over all prompts: 2 P b s + 2 b s^2 H d FLOPs."""
    linear = llm.linear_flops(batch * work.prompt)
    return gpu.run(linear + llm.prefill_attention_flops(batch, work.prompt), "2 P b s + 2 b h s^2")


def gpu_working_set(llm: LLM, prompt: Real, on_gpu: Real = 0.0) -> Real:
    """GPU memory of layer-wise inference, prompts prefilled one at a time: weights and activations [B].

    Args:
        prompt: tokens of one prompt [1].
        on_gpu: 1 where all weights stay, 0 where only those on their way do.
    """
    weights = on_gpu * llm.weight_bytes + (1 - on_gpu) * llm.weight_buffer_bytes()
    return weights + llm.activation_bytes(prompt)


def exchange(llm: LLM, b: Real, alpha: Real, uplink: Link, gpu_link: Link) -> Span:
    """Q, K, V of the new token to the devices (6h bytes), the attention output back (2h).

    Source: HILOS eq. 3, INF² eq. 3. Of the batch's share `alpha` only X is stored.
    """
    new = (1 - alpha) * (llm.query_bytes(b) + llm.kv_bytes(b, 1)) + alpha * llm.x_bytes(b, 1)
    out = (1 - alpha) * llm.query_bytes(b)
    return serial(
        qkv=stream(new, "6h, eq. 3", link=gpu_link.outward, uplink=uplink.outward),
        result=stream(out, "2h, eq. 3", uplink=uplink.inward, link=gpu_link.inward),
    )


def exchange_with_cpu(llm: LLM, b: Real, gpu_link: Link) -> Span:
    """Q, K, V of the new token to the CPU, the attention output back (HILOS fig. 1b)."""
    return overlap(
        qkv=gpu_link.outward(llm.query_bytes(b) + llm.kv_bytes(b, 1), "Q, K, V to the CPU"),
        result=gpu_link.inward(llm.query_bytes(b), "attention output"),
    )


def kv_share_in(room: Real, llm: LLM, work: Workload) -> Real:
    """Share of the KV cache that so much memory holds [1].

    Args:
        room: memory left for it [B].
    """
    kv = llm.layers * llm.kv_bytes(work.batch, work.final)
    return np.clip(np.divide(room, np.maximum(kv, 1.0)), 0.0, 1.0)


def copied(llm: LLM, work: Workload) -> Real:
    """Host memory for the layer that is read and the one attended to [B]."""
    return 2 * llm.kv_bytes(work.batch, work.final)


def rebuild_from_x(llm: LLM, b: Real, s: Real, alpha: Real, gpu_: Gpu, **way: Port) -> Span:
    """Load X to the GPU, project it to K and V again, attend; pipelined (HILOS sec. 4.2, INF² sec. 4.3).

    Args:
        b, s: sequences and their context [1].
        alpha: share of the batch kept as X [1].
        way: the ports from where X lives to the GPU.
    """
    return overlap(
        load=stream(alpha * llm.x_bytes(b, s), "T_PCI = a 2sh / B_PCI", **way),
        compute=gpu_.run(
            alpha * (llm.kv_from_x_flops(b, s) + llm.attention_flops(b, s)), "T_GPU, K and V"
        ),
    )
