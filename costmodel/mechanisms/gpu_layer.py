"""One layer on the GPU: products, attention, states, and the memory they take.

Symbols: b batch, s context, L layers, n elements, r latent rank.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nearkv.costmodel.algebra.span import (
    Booleans,
    Port,
    Real,
    Span,
    choose,
    overlap,
    serial,
    total,
)
from nearkv.costmodel.model.latent import Latent
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import Gpu
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

LoadTime = Callable[[Real], Span]
"""Bytes of weights -> how they come to the GPU."""
UNMEASURED = (
    "no source has the kernels of this engine's linear layers; their operators are counted"
)


# --- products ---------------------------------------------------------------------------------


def layer_compute(llm: LLM, tokens: Real, attention: Real, gpu: Gpu, eq: str) -> Span:
    """All products of one layer at the rate of their widths, attention at that of 16 bits.

    Args:
        tokens: computed [1].
        attention: of Q K^T and scores V [FLOP].
        eq: where the sum comes from.
    """
    dense, mlp = gpu.operands(llm)
    if not gpu.is_faster_for((dense, mlp)):
        return gpu.run(llm.linear_flops(tokens) + attention, eq)
    projected = llm.qkv_flops(tokens) + llm.output_flops(tokens)
    return serial(
        projections=gpu.products(dense)(projected, eq),
        attention=gpu.run(attention, eq),
        feed_forward=gpu.products(mlp)(llm.ffn_flops(tokens), eq),
    )


def prefill_compute(llm: LLM, work: Workload, batch: Real, gpu: Gpu) -> Span:
    """One layer over all prompts: 2 P b s + 2 b s^2 H d FLOPs."""
    attention = llm.prefill_attention_flops(batch, work.prompt)
    return layer_compute(
        llm, batch * work.prompt, attention, gpu.for_prompts, "2 P b s + 2 b h s^2"
    )


def head_weights(llm: LLM, b: Real) -> Real:
    """Weights of the output head that a step reads; 0 for an empty batch [B]."""
    return np.minimum(b, 1.0) * llm.head_bytes


def output_head(llm: LLM, b: Real, gpu: Gpu, **arriving: Span) -> Span:
    """Logits of one token a sequence.

    Args:
        arriving: how its weights come to the GPU; left out where they live on it.
    """
    flops = 2 * b * llm.head_parameters
    return overlap(
        **arriving,
        hbm=gpu.read(head_weights(llm, b), "output head"),
        compute=gpu.run(flops, "output head"),
    )


def arriving_head(llm: LLM, b: Real, gpu: Gpu, load: LoadTime) -> Span:
    """Logits of one token of each of b sequences beside the loading of the output head."""
    arriving = load(head_weights(llm, b))
    return output_head(llm, b, gpu, weights=arriving)


# --- weights and caches narrower than the products take them ----------------------------------

FUSED = 0.0
"""Bytes an element beyond reading it packed and writing it in full, in one fused kernel [B]."""
EAGER = 16.5
"""Bytes an element beyond the fused kernel's, for FlexGen's `decompress` in eager PyTorch [B].

It works on groups of 4 bits. Of two elements, shifting and masking each read a byte and write one:
4 bytes. Each result is read again, 2 bytes, and written to every second place of a 16-bit tensor. A
GPU moves memory in sectors of 32 bytes, and reads a sector of which a kernel writes a part, so each
of these two passes reads and writes both places: 16 bytes. Dividing by the scale and adding the
minimum then read and write both elements in 16 bits: 16 bytes. That is 19 an element, of which a
kernel needs 2.5.
"""


def dequantise_traffic(weights: Real, width: Real, operand: Real, gpu: Gpu) -> Real:
    """Device memory traffic of dequantising weights before a product: copies written, read [B].

    Where weights are narrower than the product takes them, systems built on PyTorch dequantise each
    matrix first (FlexGen's `decompress`, bitsandbytes); serving engines fuse it into the product.

    Args:
        weights: as they are stored [B].
        width: of one of them [B].
        operand: width of the wider operand [B].
    """
    taken = gpu.product_width(operand)
    copies = choose(width < taken, weights / width * taken, 0.0)
    # written by dequantising, read by the product
    return 2 * copies


def dequantise_weights(llm: LLM, packed: Real, gpu: Gpu, beyond: Real) -> Span:
    """Bytes that dequantising weights moves beyond one kernel, whose copies the products count.

    Args:
        packed: their bytes [B].
        beyond: bytes an element beyond one kernel's, `FUSED` or `EAGER` [B].
    """
    elements = packed / llm.weight_width
    narrow = np.less(llm.weight_width, llm.activation_width)
    return gpu.read(elements * narrow * beyond, "dequantise, beyond one kernel")


def dequantise_cache(llm: LLM, packed: Real, gpu: Gpu, beyond: Real) -> Span:
    """Write packed K and V in the width of activations, from which attention then reads them.

    Args:
        packed: their bytes [B].
        beyond: bytes an element beyond one kernel's, `FUSED` or `EAGER` [B].
    """
    elements = packed / llm.kv_width
    narrow = np.less(llm.kv_width, llm.activation_width)
    # written in full width, then read by attention
    each = 2 * llm.activation_width + beyond
    return gpu.read(elements * narrow * each, "dequantise; read in full width")


# --- attention and states ---------------------------------------------------------------------


def attend_on_gpu(llm: LLM, gpu: Gpu, b: Real, s: Real, beyond: Real, copies: Real) -> Span:
    """Attention of one layer to a cache in GPU memory, dequantised first, by eager operations.

    Args:
        b, s: sequences and context [1].
        beyond: bytes an element that dequantising moves beyond one fused kernel's [B].
        copies: times that K and V are written and read again in full width before and by the
            products [1].
    """
    cache = llm.kv_bytes(b, s)
    full = cache / llm.kv_width * np.maximum(llm.kv_width, llm.activation_width)
    moved = llm.cache_traffic(b, s) + copies * full
    attend = overlap(
        read=gpu.read(moved, "KV cache and its copies"),
        compute=gpu.run(llm.attention_flops(b, s), "attention"),
    )
    return serial(unpack=dequantise_cache(llm, cache, gpu, beyond), attend=attend)


def update_state(llm: LLM, b: Real, gpu: Gpu) -> Span:
    """Read, update and write the recurrent states of b sequences in one layer.

    They are small and do not grow, so wherever K and V live they stay on the GPU.
    """
    moved = llm.cache_traffic(b, 1.0)
    return overlap(
        hbm=gpu.read(moved, "state, read and written"),
        compute=gpu.run(llm.attention_flops(b, 1.0), "update and read the state"),
    )


def prompt_attention_flops(llm: LLM, b: Real, prompt: Real, before: Real) -> Real:
    """Causal attention of b prompts to themselves and to what a cache holds before them [FLOP].

    Args:
        llm: a model whose layers are all like it.
        b: prompts [1].
        prompt, before: tokens of each, and those before it [1].
    """
    all_of_both = llm.prefill_attention_flops(b, before + prompt)
    return all_of_both - llm.prefill_attention_flops(b, before)


def prompt_kernel(hw: Machine, llm: LLM) -> Port:
    """Attention of prompts on the GPUs, or updates of a recurrent state by their tokens [FLOP].

    Kernels of linear layers multiply chunks of 64 tokens with one another and with the state, which
    takes some 1.6 times the products of updates token by token (Yang et al., Gated DeltaNet,
    sec. 3.3). A convolution comes before, triangular solves after. `prefill_state` is measured for
    all these kernels, over the products of the updates alone.
    """
    part = hw.gpu
    is_linear = isinstance(llm, Recurrent)
    reached = part.prefill_state if is_linear else part.prefill_attention
    return Port("gpu.tensor", "run", part.count * part.flops * reached, "FLOP")


def launches(hw: Machine, llm: LLM) -> Real:
    """Operators of a layer over those of one that attends [1].

    An engine without fused kernels runs a linear layer as a chain of small operators.
    """
    chain = hw.engine.maybe("state_launches", 1.0)
    return chain if isinstance(llm, Recurrent) else 1.0


def unmeasured_kernels(hw: Machine, llm: LLM) -> dict[str, Booleans]:
    """Mask of models with linear layers that an engine runs as chains, by what a row says of it."""
    if "state_launches" not in hw.engine:
        return {}
    linear = [
        kind.layers for kind in llm.layer_types.values() if isinstance(kind, Recurrent)
    ]
    return {UNMEASURED: np.greater(total(linear), 0)}


# --- memory -----------------------------------------------------------------------------------


def gpu_contents(llm: LLM, tokens: Real, on_gpu: Real, sequences: Real) -> dict[str, Real]:
    """Bytes that layer-wise inference keeps on the GPU: weights, activations, recurrent states [B].

    Args:
        tokens: that pass a layer together: a chunk of one prompt, one prompt at a time [1].
        on_gpu: 1 where all weights stay, 0 where only those in transfer do.
        sequences: whose states stay there [1].
    """
    contents = {
        "weights": on_gpu * llm.weight_bytes,
        "weights in transfer": (1 - on_gpu) * llm.weight_buffer_bytes(),
        "activations": llm.activation_bytes(tokens),
    }
    if llm.layer_types:
        contents["recurrent states"] = llm.all_state_bytes(sequences)
    return contents


def gpu_working_set(llm: LLM, tokens: Real, on_gpu: Real, sequences: Real = 0.0) -> Real:
    """GPU memory of layer-wise inference, the sum of `gpu_contents` [B]."""
    return total(gpu_contents(llm, tokens, on_gpu, sequences).values())


def arriving_latents(llm: LLM, b: Real, s: Real) -> Real:
    """GPU memory for the latents of one layer, to which the GPU attends; 0 without any [B].

    K and V of heads need none: the CPU, or a device, attends to them.
    """
    most: Real = 0.0
    for layer_type in llm.layer_types.values():
        if isinstance(layer_type, Latent):
            present = np.minimum(layer_type.layers, 1.0)
            most = np.maximum(most, present * layer_type.kv_bytes(b, s))
    return most


def passing_latents(llm: LLM, work: Workload, batches: Real) -> Real:
    """GPU memory for latents in transfer, of this GPU batch and of the next [B].

    Args:
        batches: GPU batches of a step [1].
    """
    sequences = np.maximum(work.batch / batches, 1.0)
    return 2 * arriving_latents(llm, sequences, work.final)
