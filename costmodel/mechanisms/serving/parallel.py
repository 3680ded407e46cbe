"""GPUs that serve a queue: products of a layer, attention, prompts, what caches take.

Symbols: n tokens computed, L layers, W bytes of weights, P parameters, tp and dp degrees.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from nearkv.costmodel.algebra.span import (
    Port,
    Real,
    Span,
    choose,
    overlap,
    quotient,
    serial,
    stream,
    wait,
)
from nearkv.costmodel.mechanisms.gpu_layer import (
    launches,
    layer_compute,
    prompt_kernel,
)
from nearkv.costmodel.mechanisms.prompt_chunks import held_bytes, kept_share
from nearkv.costmodel.mechanisms.serving.collectives import exchanges
from nearkv.costmodel.mechanisms.serving.dimm import dimms
from nearkv.costmodel.mechanisms.serving.engines import (
    engine_memory,
    usable_memory,
)
from nearkv.costmodel.mechanisms.serving.experts import (
    grouped_products,
    multiplied,
    streamed,
    through,
    without_experts,
)
from nearkv.costmodel.mechanisms.serving.split import GpuSplit
from nearkv.costmodel.model.chosen import Compressed
from nearkv.costmodel.model.latent import Latent
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import MONOTONE_COLUMNS, Reversal
from nearkv.costmodel.model.resources import gpu, link
from nearkv.costmodel.model.workload import Load, Workload, over_layer_types
from nearkv.hardware.machine import Machine


def ring(*counts: str) -> Reversal:
    """Reversal of a larger ring of tensor parallelism: its all-reduces take longer.

    Args:
        counts: numbers of the machine that make it larger, as `role.key`.
    """
    why = "a larger ring takes longer to all-reduce, and its degree may hold fewer requests"
    return Reversal(MONOTONE_COLUMNS, counts, why)


_ONE_ROW_CACHES = (Latent, Compressed)
"""Layers whose heads all share one row of a token."""
HEADS_AND_STATES = ("full", "window", "chunk", "state")
"""Attention of queues served with units that attend to K and V of heads."""


LACKS = {
    "latent": "its attention units are timed for K and V of heads",
    "sparse": "its attention units choose no tokens",
}
"""Why they model no other."""
_WIDE = 1.5
"""KV of fewer bytes an element is dequantised while it is read [B]."""


def tensor_parallel(hw: Machine, llm: LLM) -> Real:
    """Fewest GPUs, a power of two, with no more weights each than the policy: L3 Table 3 [1]."""
    gpus = np.maximum(llm.weight_bytes / hw.policy.weights_per_gpu, 1.0)
    doublings = np.ceil(np.log2(gpus))
    most = np.floor(np.log2(hw.gpu.count))
    return np.exp2(np.minimum(doublings, most))


def data_parallel(hw: Machine, llm: LLM) -> Real:
    """Replicas on the remaining GPUs [1]."""
    replicas = hw.gpu.count / tensor_parallel(hw, llm)
    return np.floor(replicas)


def in_use(hw: Machine, llm: LLM, most: Real = np.inf) -> Machine:
    """The machine with the tp x dp GPUs that serve, with one link for each; the rest idles.

    A request stays on one replica: where fewer come than there are replicas, the others neither
    read weights for it nor lend it their bandwidth.

    Args:
        most: requests that come, or that a memory shared by all replicas holds [1].
    """
    served = np.maximum(np.floor(most), 1.0)
    replicas = np.minimum(data_parallel(hw, llm), served)
    used = tensor_parallel(hw, llm) * replicas
    counts: dict[str, Real] = {"gpu.count": used}
    for role in ("gpu_link", "nvlink"):
        if role in hw.roles:
            links = hw[role].count
            counts[f"{role}.count"] = np.minimum(links, used)
    return hw.with_values(counts)


def paired(sequences: Real, replicas: Real) -> Real:
    """Share of the time in which both sub-batches have a sequence on every replica [1].

    One that decodes alone has nothing to take turns with, two have one each; a mean between is a
    mix of both.
    """
    return np.clip(sequences / replicas - 1, 0.0, 1.0)


def kv_token_bytes(llm: LLM) -> Real:
    """KV cache of one token in all layers, kappa = 4 L D for plain attention and 16 bit [B]."""
    of_a_layer = llm.kv_bytes(1, 1)
    return llm.layers * of_a_layer


def beside_weights(hw: Machine, llm: LLM, work: Workload) -> Real:
    """GPU memory of all replicas that weights, and what the engine keeps for prompts, leave [B]."""
    weights = data_parallel(hw, llm) * llm.weight_bytes
    beside = activations_and_buffers(hw, llm, work)
    return np.maximum(usable_memory(hw) - weights - beside, 0.0)


def activations_and_buffers(hw: Machine, llm: LLM, work: Workload) -> Real:
    """Bytes that the engine keeps on all GPUs for prompts, split as L3 splits models [B]."""
    return engine_memory(hw, llm, split_of(hw, llm), work.together)


def split_of(hw: Machine, llm: LLM) -> GpuSplit:
    """Tensor and data parallel as L3 splits its models (Table 3)."""
    return GpuSplit(tensor_parallel(hw, llm), data_parallel(hw, llm))


def linear(
    hw: Machine,
    llm: LLM,
    tokens: Real,
    passes: Real = 1.0,
    layer_type: LLM | None = None,
    logits: Real = 0.0,
    split: GpuSplit | None = None,
    idle: Real = 1.0,
    behind: Port | None = None,
) -> Span:
    """All matrix products of one layer and the collectives behind them.

    Each replica reads all weights `passes` times. Where times of GPUs and of attention units are
    compared, they are those of an iteration (L3 eqs. 1 to 4), so every layer has one of L parts of
    the output head.

    Args:
        tokens: computed, over all replicas [1].
        passes: times a replica reads the weights [1].
        layer_type: a model of such layers, where the model has several.
        logits: tokens that pass the output head, over all replicas [1].
        split: degrees of parallelism, L3's where not given.
        idle: replicas at work over those with tokens; the others share their experts alone [1].
        behind: memory behind that of the GPUs, where the weights lie there [B].
    """
    layer = layer_type or llm
    split = split or split_of(hw, llm)
    shared = without_experts(layer)
    operand, _ = gpu(hw).operands(layer)
    reached = streamed(hw, layer, layer.attention_width, operand)
    gemm = multiplied(hw, layer, operand, hw.gpu.gemm)
    gpus = gpu(hw.with_values({"gpu.hbm": reached, "gpu.gemm": gemm}))
    replica_tokens = tokens / split.dp
    # a replica without a token reads no weights and launches nothing
    visits = passes * np.minimum(replica_tokens, 1.0)
    again = (
        (split.attention_copies - 1) * layer.attention_parameters * layer.attention_width
    )
    weights = visits * split.dp * (shared.layer_weight_bytes(1.0) + again)
    head_visits = np.minimum(logits / split.dp, passes)
    head = head_visits * split.dp * llm.head_bytes / llm.layers
    head_flops = 2 * logits * llm.head_parameters / llm.layers
    products = overlap(
        weights=through(gpus.read, behind, weights + head, "W / tp on every GPU"),
        compute=serial(
            layer=layer_compute(shared, idle * tokens, 0.0, gpus, "2 P n"),
            head=gpus.run(head_flops, "output head, 1 of L parts"),
        ),
    )
    of_experts = layer.is_moe * hw.gpu.experts_launch
    times = visits / split.pp
    kernels = launches(hw, layer) * (hw.gpu.launch + of_experts)
    return serial(
        products=products,
        experts=grouped_products(hw, layer, split, tokens, passes, behind=behind),
        launch=wait("gpu.launch", times * kernels, "kernels of a layer"),
        **exchanges(hw, layer, split, idle * tokens, times),
    )


def prefill_attention(hw: Machine, llm: LLM, squares: Real) -> Span:
    """Causal attention of prompts in one layer, 4 D (l c0 + l^2 / 2) FLOPs per chunk."""
    flops = llm.prefill_attention_flops(squares, 1.0)
    return prompt_kernel(hw, llm)(flops, "4 D (l c0 + l^2/2)")


def chunks_each(prompts: Real, load: Load, chunk: Real) -> Real:
    """Chunks of a mean prompt, at least one [1].

    Args:
        prompts: how many [1].
        load: their tokens.
        chunk: tokens that pass the layers together, 0 all of a prompt [1].
    """
    most = np.where(chunk > 0, chunk, np.inf)
    length = quotient(load.prompt, prompts)
    return np.maximum(length / most, 1.0)


def prompts_alone(
    hw: Machine, llm: LLM, chunk: Real, prompts: Real, layer_type: LLM, load: Load
) -> Span:
    """One layer of prefill, prompt by prompt on every replica, prefill first (L3 sec. 6.1).

    Each chunk of a prompt passes all layers, whose weights it reads anew.
    """
    each = chunks_each(prompts, load, chunk)
    passes = each * prompts / data_parallel(hw, llm)
    return serial(
        linear=linear(hw, llm, load.prompt, passes, layer_type, prompts),
        attention=prefill_attention(hw, layer_type, load.squares),
    )


def all_prompts_alone(
    hw: Machine, llm: LLM, chunk: Real, prompts: Real, load: Load
) -> Span:
    """Prefill of all layers, prompt by prompt on every replica, which keeps its K and V."""
    return over_layer_types(llm, load, partial(prompts_alone, hw, llm, chunk, prompts))


def prompts_to_dimms(
    hw: Machine, llm: LLM, work: Workload, prompts: Real, load: Load
) -> Span:
    """Prefill of all layers while the KV of the prompts leaves for the DIMMs.

    What GPUs have no room for (`room_beside_activations`) comes back for later chunks.

    Args:
        hw, llm: the GPUs in use, and the model.
        work: chunks.
        prompts: how many [1].
        load: their tokens.
    """
    bus, lanes = dimms(hw).bus, link(hw, "gpu_link", "link")
    away = 1 - kept_share(llm, work, room_beside_activations(hw, llm, work) / llm.layers)

    def layer(layer_type: LLM, seen: Load) -> Span:
        cache = layer_type.kv_bytes(seen.kept_share * seen.prompt, 1)
        parts = {
            "compute": prompts_alone(hw, llm, work.chunk, prompts, layer_type, seen),
            "cache": stream(cache, "4 D l", link=lanes.outward, bus=bus),
        }
        if np.any(away):
            later = (chunks_each(prompts, load, work.chunk) - 1) / 2
            parts["earlier"] = stream(
                away * later * cache, "4 D c0", bus=bus, link=lanes.inward
            )
        return overlap(**parts)

    return over_layer_types(llm, load, layer)


def room_beside_activations(hw: Machine, llm: LLM, work: Workload) -> Real:
    """GPU memory of a replica beside weights and the activations of a prompt [B]."""
    replicas = data_parallel(hw, llm)
    activations = llm.activation_bytes(work.together)
    return gpu(hw).memory / replicas - llm.weight_bytes - activations


def prompt_in_flight(hw: Machine, llm: LLM, work: Workload) -> dict[str, Real]:
    """Bytes that GPUs hold of prompts whose cache lies elsewhere (L3 sec. 6.2) [B].

    Activations, and K and V of earlier chunks in all layers as far as there is room.
    """
    replicas = data_parallel(hw, llm)
    held = llm.layers * held_bytes(llm, work)
    room = np.maximum(room_beside_activations(hw, llm, work), 0.0)
    return {
        "activations": replicas * llm.activation_bytes(work.together),
        "KV cache of a prompt": replicas * np.minimum(held, room),
    }


def decode_attention(
    hw: Machine,
    llm: LLM,
    load: Load,
    layer_type: LLM,
    split: GpuSplit | None = None,
    each: Real = 1.0,
) -> Span:
    """Attention of one layer on the GPUs; each replica launches its kernels.

    A latent row, which all heads share, is on every GPU that shares the heads, and so many heads
    multiply with it that the products may take longer than reading it.

    Args:
        hw, llm: the GPUs at work, and the model.
        load: what the iteration carries.
        layer_type: a model of such layers.
        split: degrees of parallelism, L3's where not given.
        each: tokens of every sequence, which share what is read [1].
    """
    split = split or split_of(hw, llm)
    visits = np.minimum(load.sequences / split.dp, 1.0)
    kernels = visits * hw.gpu.maybe("attention_launch", 0.0)
    kept = copies(layer_type, split.attention_tp)
    rows = kept * layer_type.cache_traffic(load.tokens, 1)
    read: Span = gpu_attention(hw, layer_type.kv_width)(rows, "kappa tokens / L")
    if isinstance(layer_type, _ONE_ROW_CACHES):
        flops = each * layer_type.attention_flops(load.products, 1)
        compute = gpu(hw).run(flops, "2 n c H (2 r + dr)")
        read = overlap(read=read, compute=compute)
    return serial(
        read=read, launch=wait("gpu.launch", kernels, "kernels of the attention of a layer")
    )


def decode_products(hw: Machine, llm: LLM, load: Load, layer_type: LLM) -> Span:
    """Matrix products of one layer, for one token more of every sequence and its logits."""
    n = load.sequences
    return linear(hw, llm, n, layer_type=layer_type, logits=n)


def products_and_states(hw: Machine, llm: LLM, load: Load, layer_type: LLM) -> Span:
    """Work of GPUs for decoding in one layer whose attention is elsewhere.

    No attention unit updates a recurrent state, so it stays in the memory of the GPUs.
    """
    products = decode_products(hw, llm, load, layer_type)
    if not isinstance(layer_type, Recurrent):
        return products
    return serial(products=products, states=decode_attention(hw, llm, load, layer_type))


def on_gpus(
    hw: Machine, llm: LLM, layer_type: LLM, tokens: Real, split: GpuSplit | None = None
) -> Real:
    """Cache or state of a sequence in one layer, over all GPUs of a replica [B]."""
    tp = (split or split_of(hw, llm)).attention_tp
    cache = layer_type.kv_bytes(1, tokens) + layer_type.state_bytes(1)
    return copies(layer_type, tp) * cache


def gpu_cache(hw: Machine, llm: LLM, layer_type: LLM, tokens: Real) -> Real:
    """K and V of a sequence in one layer, over all GPUs of a replica [B]."""
    return copies(layer_type, tensor_parallel(hw, llm)) * layer_type.kv_bytes(1, tokens)


def gpu_attention(hw: Machine, kv_width: Real = 2.0) -> Port:
    """Decode attention from HBM, in KV bytes, of elements of a width [B]."""
    part, is_narrow = hw.gpu, kv_width < _WIDE
    reached = choose(is_narrow, part.decode_attention_narrow, part.decode_attention)
    return Port("gpu.hbm", "read", part.count * part.bandwidth * reached)


def copies(llm: LLM, tp: Real) -> Real:
    """Times that the cache of a layer is kept, over tp GPUs [1]."""
    return np.maximum(tp / llm.cache_shards, 1.0)
