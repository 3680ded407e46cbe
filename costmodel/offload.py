"""What every system that offloads to host memory and storage does alike: stream weights, prefill, round up.

Symbols: b batch, s prompt, L layers.
"""

from __future__ import annotations

import numpy as np

from costmodel.llm import LLM
from costmodel.resources import Gpu, Host, Link
from costmodel.span import Port, Real, Span, overlap, stream
from costmodel.workload import Workload
from hardware.machine import Machine


def weights_on_storage(hw: Machine, llm: LLM) -> Real:
    """1 where weights live on storage, 0 where in host DRAM (HILOS sec. 6.1: above 100B parameters) [1]."""
    return np.where(np.asarray(llm.parameters) > hw.policy.weights_in_dram_up_to, 1.0, 0.0)[()]


def load_weights(amount: Real, on_storage: Real, storage: dict[str, Port], host: Host, gpu_link: Link) -> Span:
    """Bring weights to the GPU from host DRAM, or from storage by its own way.

    Args:
        amount: weights [B].
        on_storage: 1 or 0, where they live.
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


def prefill_compute(llm: LLM, work: Workload, batch: Real, gpu: Gpu) -> Span:
    """One layer over all prompts: 2 P b s + 2 b s^2 H d FLOPs."""
    linear = llm.linear_flops(batch * work.prompt)
    return gpu.run(linear + llm.prefill_attention_flops(batch, work.prompt), "2 P b s + 2 b h s^2")


def gpu_working_set(llm: LLM, prompt: Real) -> Real:
    """GPU memory of layer-wise inference, prompts prefilled one at a time: weights on their way and activations [B]."""
    return llm.weight_buffer_bytes() + llm.activation_bytes(prompt)
