"""Hugging Face Accelerate: weights streamed from host memory, all else on the GPU (INF² sec. 7.6).

Symbols: b batch, s prompt, L layers.
"""

from __future__ import annotations

from nearkv.costmodel.capacity import fits
from nearkv.costmodel.compose import overlap, serial, stream
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.offload import gpu_working_set, weights_on_gpu, with_head
from nearkv.costmodel.registry import system
from nearkv.costmodel.resources import gpu, host, link
from nearkv.costmodel.span import Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine

SOFTMAX_BYTES = 4.0
"""An element of a softmax in single precision, whatever the width of activations [B]."""


def eager_score_bytes(llm: LLM) -> Real:
    """A score while eager attention casts its softmax back: the product, the softmax in 32 bits, its 16-bit copy [B].

    Source: Hugging Face transformers, eager attention of Llama: softmax(scores, dtype=float32).to(query.dtype).
    """
    return 2 * llm.activation_width + SOFTMAX_BYTES


@system("accelerate", platform="inf2-h100", cite="inf2", owns=("gpu", "host"))
def accelerate(hw: Machine, llm: LLM, work: Workload) -> Estimate:
    """Weights that do not fit the GPU arrive layer by layer, each before it is used; the KV cache stays on the GPU.

    Attention is eager: prefill computes the whole square of scores, future tokens too, writes and reads
    it, and holds it for one sequence, which is what ends long contexts (the paper reports failures
    beyond 16K tokens at 7B and batch 1).

    Args:
        hw: roles gpu, gpu_link, host.
        llm, work: what runs.

    Returns:
        Prefill, one decode step and what fits; all of `work.batch` runs together or not at all.
        Source: INF² sec. 7.1, 7.6 (set-up and failures, no equations).
    """
    b, s, layers = work.batch, work.context, llm.layers
    gpu_, host_, gpu_link = gpu(hw), host(hw), link(hw, "gpu_link", "pcie")
    on_gpu = weights_on_gpu(llm, work.prompt, gpu_)

    def load(amount: Real) -> Span:
        return stream(
            (1 - on_gpu) * amount, "weights, then compute", dram=host_.read, link=gpu_link.inward
        )

    layer = serial(
        weights=load(llm.layer_weight_bytes(b)),
        compute=overlap(
            hbm=gpu_.read(llm.layer_weight_bytes(b) + llm.kv_bytes(b, s), "weights and KV cache"),
            compute=gpu_.run(
                llm.linear_flops(b) + llm.attention_flops(b, s), "2 FLOPs a weight and token"
            ),
        ),
    )
    tokens, scores = b * work.prompt, llm.heads * work.prompt**2 * eager_score_bytes(llm)
    square = 2 * llm.prefill_attention_flops(b, work.prompt)
    prefill = serial(
        weights=load(llm.layer_weight_bytes(tokens)),
        compute=overlap(
            hbm=gpu_.read(
                llm.layer_weight_bytes(tokens) + 2 * b * scores, "weights; scores written and read"
            ),
            compute=gpu_.run(llm.linear_flops(tokens) + square, "2 P b s + 4 b s^2 H d, eager"),
        ),
    )
    return Estimate(
        prefill=with_head(llm, prefill, b, gpu_, load),
        step=with_head(llm, layer, b, gpu_, load),
        fits=fits(
            gpu=(
                gpu_working_set(llm, work.prompt, on_gpu)
                + layers * llm.kv_bytes(b, work.final)
                + scores,
                gpu_.memory,
            ),
            host=((1 - on_gpu) * llm.weight_bytes, host_.memory),
        ),
        work=work,
        batch_run=b,
    )
