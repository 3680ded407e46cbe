"""Hugging Face Accelerate: weights streamed from host memory or disk, all else on the GPU.

Source: INF² sec. 7.6; accelerate, `big_modeling.py` (weights on disk are memory-mapped files).

Symbols: b batch, s prompt, L layers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nearkv.costmodel.algebra.span import (
    ByName,
    Real,
    Span,
    choose,
    overlap,
    serial,
    stream,
    total,
)
from nearkv.costmodel.mechanisms.gpu_layer import (
    arriving_head,
    dequantise_traffic,
    gpu_contents,
    gpu_working_set,
    layer_compute,
)
from nearkv.costmodel.mechanisms.prompt_chunks import chunk_knob
from nearkv.costmodel.mechanisms.weights.residency import (
    FILLED,
    WEIGHTS,
    Headroom,
    Residency,
    beside_gpu,
    choose_residency,
)
from nearkv.costmodel.mechanisms.weights.streaming import ATTENDS, drives_of
from nearkv.costmodel.model.estimate import Estimate, Fits, fits
from nearkv.costmodel.model.layers import over_layers, with_projected_latents
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import system
from nearkv.costmodel.model.resources import Gpu, gpu, host, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

SOFTMAX_BYTES = 4.0
"""An element of a softmax, in single precision for activations of any width [B]."""
GPU_AND_HOST = replace(
    WEIGHTS,
    what="where weights live: filling GPU, host and drives, in one memory, or by the paper's rule",
    high=3,
    default=FILLED,
    choices=("filled", "gpu", "paper", "host"),
    share="",
)


def room_beside_scores(hw: Machine, llm: LLM, work: Workload, knobs: ByName) -> Real:
    """GPU memory for activations beside weights in transfer, or all, and the cache.

    Scores take more the more tokens there are: their share is left out of what a token takes [B].
    """
    on_gpu = knobs.get("weights", FILLED) == GPU_AND_HOST.choices.index("gpu")
    llm = with_projected_latents(llm)
    held = gpu_working_set(llm, 0.0, 1.0 * on_gpu, work.batch)
    cache = llm.kv_cache_bytes(work.batch, work.final)
    scores = total(beside_weights(llm, work).values()) - cache
    per_token = llm.activation_bytes(1.0)
    share = per_token / (per_token + scores / np.maximum(work.prompt, 1.0))
    return share * (gpu(hw).memory - held - cache)


CHUNK = chunk_knob(room_beside_scores, default=0)


@system(
    "accelerate",
    platform="inf2-h100",
    cite="inf2",
    installable=True,
    technology="GPU memory",
    owns=("gpu", "host"),
    several_gpus=True,
    knobs={"chunk": CHUNK, "weights": GPU_AND_HOST},
    attends=ATTENDS,
    lacks={"sparse": "Transformers has no indexer in its eager attention"},
)
def accelerate(hw: Machine, llm: LLM, work: Workload, *, weights: Real) -> Estimate:
    """Weights that do not fit beside the cache arrive layer by layer, each before its use.

    Attention is eager: prefill computes the whole square of scores, future tokens too, writes and
    reads it, and holds it for one sequence. That ends long contexts: the paper reports failures
    beyond 16K tokens at 7B and batch 1. Prompts are whole by default, as `generate` takes them.
    Each chunk passes all layers, whose weights come anew. Latents are cached projected to heads.

    Args:
        hw: roles gpu, gpu_link, host; ssd and ssd_link where weights may lie on drives; derate
            pageable.
        llm, work: what runs.
        weights: where weights live: 0 filling the GPU, then the host, then drives, 1 on the GPU,
            2 there if all fit, 3 in the host.

    Returns:
        Prefill, one decode step and what fits; all of `work.batch` runs together or not at all.
        Source: INF² sec. 7.1, 7.6 (set-up and failures, no equations).
    """
    b, gpu_, llm = work.batch, gpu(hw), with_projected_latents(llm)
    tiers = where_weights_live(hw, llm, work, weights)
    # a loaded checkpoint is not pinned
    path = {"dram": host(hw).read, "link": link(hw, "gpu_link", "pageable").inward}
    disk = drives_of(hw).read if "ssd" in hw.roles else {}

    def load(amount: Real) -> Span:
        streamed = (1 - tiers.gpu) * amount
        return serial(
            disk=stream(tiers.storage * amount, "weights on drives, page by page", **disk),
            copy=stream(streamed, "weights, then compute", **path),
        )

    def decode(layer_type: LLM) -> Span:
        return serial(
            weights=load(layer_type.layer_weight_bytes(b)),
            compute=decode_layer(layer_type, b, work.context, gpu_),
        )

    def prefill(layer_type: LLM) -> Span:
        return serial(
            weights=load(work.chunks * layer_type.layer_weight_bytes(b * work.together)),
            compute=prefill_layer(layer_type, work, gpu_),
        )

    head = arriving_head(llm, b, gpu_, load)
    return Estimate(
        prefill=serial(layers=over_layers(llm, prefill), head=head),
        step=serial(layers=over_layers(llm, decode), head=head),
        fits=capacity_check(hw, llm, work, tiers),
        work=work,
        batch_run=b,
    )


def where_weights_live(hw: Machine, llm: LLM, work: Workload, choice: Real) -> Residency:
    """Shares of the weights on the GPU, beside the KV cache and the scores of one prompt.

    What the host does not hold lies on drives where the machine has any.
    """
    paper = beside_gpu(weights_beside_cache(hw, llm, work), 0.0)
    beside = total(beside_weights(llm, work).values())
    memory = host(hw).memory if "ssd" in hw.roles else np.inf
    headroom = Headroom(host=memory, beside=beside, knob=GPU_AND_HOST, pinned=False)
    return choose_residency(choice, paper, hw, llm, work, headroom)


def weights_beside_cache(hw: Machine, llm: LLM, work: Workload) -> Real:
    """1 where all weights stay on the GPU beside the cache and the scores of a prompt [1].

    The paper (sec. 7.1) looks at weights and activations alone. Its systems hold their cache
    elsewhere; here a GPU that just holds the weights would hold no cache.
    """
    held = total(on_gpu_contents(llm, work, 1.0).values())
    return choose(held <= gpu(hw).memory, 1.0, 0.0)


def on_gpu_contents(llm: LLM, work: Workload, on_gpu: Real) -> dict[str, Real]:
    """Weights, cache and the scores of one prompt on the GPU [B]."""
    working = gpu_contents(llm, work.together, on_gpu, work.batch)
    return working | beside_weights(llm, work)


def beside_weights(llm: LLM, work: Workload) -> dict[str, Real]:
    """KV cache and the scores of one prompt, which stay on the GPU [B]."""
    scores = llm.most_of_a_layer(lambda layer_type: score_bytes(layer_type, work.prompt))
    return {
        "KV cache": llm.kv_cache_bytes(work.batch, work.final),
        "scores of one prompt": scores * work.together / np.maximum(work.prompt, 1.0),
    }


def decode_layer(llm: LLM, b: Real, s: Real, gpu: Gpu) -> Span:
    """One layer of a step: weights and KV cache read once, 2 FLOPs a weight and token."""
    weights, kv = llm.layer_weight_bytes(b), llm.cache_traffic(b, s)
    dequantised = dequantise_traffic(weights, llm.weight_width, llm.operands[1], gpu)
    attention = llm.attention_flops(b, s)
    return overlap(
        hbm=gpu.read(weights + kv + dequantised, "weights and KV cache"),
        compute=layer_compute(llm, b, attention, gpu, "2 FLOPs a weight and token"),
    )


def prefill_layer(llm: LLM, work: Workload, gpu: Gpu) -> Span:
    """One layer over all prompts: the whole square of scores, written and read."""
    b, s = work.batch, work.prompt
    weights = work.chunks * llm.layer_weight_bytes(b * work.together)
    scores = 2 * b * score_bytes(llm, s)
    square = llm.eager_attention_flops(b, s)
    return overlap(
        hbm=gpu.read(weights + scores, "weights; scores written and read"),
        compute=layer_compute(llm, b * s, square, gpu, "2 P b s + 4 b s^2 H d, eager"),
    )


def score_bytes(llm: LLM, s: Real) -> Real:
    """All scores of one prompt while eager attention casts its softmax back [B].

    A window masks them and saves none.

    The product, the softmax in 32 bits, its 16-bit copy. Source: Hugging Face transformers, eager
    attention of Llama: softmax(scores, dtype=float32).to(query.dtype).
    """
    scores = llm.eager_scores(s)
    width = 2 * llm.activation_width + SOFTMAX_BYTES
    return scores * width


def capacity_check(hw: Machine, llm: LLM, work: Workload, tiers: Residency) -> Fits:
    """KV cache and the scores of one prompt on the GPU, weights there, in the host, on drives."""
    held = {
        "gpu": (on_gpu_contents(llm, work, tiers.gpu), gpu(hw).memory),
        "host": ({"weights": tiers.host * llm.weight_bytes}, host(hw).memory),
    }
    if "ssd" in hw.roles:
        stored = {"weights": tiers.storage * llm.weight_bytes}
        held["ssd"] = (stored, drives_of(hw).capacity)
    return fits(**held)
