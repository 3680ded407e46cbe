"""ZeRO-Inference: one GPU, every weight streamed from host memory or drives.

Source: Aminabadi et al., SC 2022, sec. VI; the README and `run_model.py` of its 2023 release.

Symbols: b batch, s context, h hidden.
"""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.algebra.span import (
    ByName,
    Real,
    Span,
    choose,
    overlap,
    serial,
    stream,
)
from nearkv.costmodel.mechanisms.gpu_layer import (
    FUSED,
    arriving_latents,
    attend_on_gpu,
    dequantise_weights,
    gpu_working_set,
    prefill_compute,
    update_state,
)
from nearkv.costmodel.mechanisms.prompt_chunks import (
    LARGEST_CHUNK,
    chunk_knob,
    tokens_before,
)
from nearkv.costmodel.mechanisms.weights.cpu_attention import (
    attend_on_cpu,
    exchange_with_cpu,
)
from nearkv.costmodel.mechanisms.weights.flexgen import LACKS
from nearkv.costmodel.mechanisms.weights.residency import Residency, beside_gpu
from nearkv.costmodel.mechanisms.weights.streaming import (
    ATTENDS,
    PageableStream,
    WeightStream,
    drives_of,
    memories,
    products,
    weights_from,
)
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.latent import Latent
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, choice, system
from nearkv.costmodel.model.resources import gpu, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

CACHE = choice(
    "memory that holds the KV cache; the CPU attends to heads in host memory, the GPU to latents",
    ("host", "gpu"),
)
STORED = Knob(
    "share of the weights on the drives; auto: the fastest that host memory allows"
)
PIN = choice(
    "pinning of weights in host memory (run_model.py's --pin-memory); release: as its "
    "scripts run it, unless the KV cache is there, too",
    ("release", "no", "yes"),
)
PREFETCH = Knob(
    "weights that come beside a layer's computation, in squares of the hidden size "
    "(stage3_prefetch_bucket_size); for the others it waits",
    high=64,
    default=2,
    kind="count",
)


def room_beside_cache(hw: Machine, llm: LLM, work: Workload, knobs: ByName) -> Real:
    """GPU memory for the activations of a prompt beside weights in transfer and the cache [B]."""
    on_gpu = np.equal(knobs.get("cache", 0.0), 1)
    cache = on_gpu * llm.kv_cache_bytes(work.batch, work.final)
    passing = ~on_gpu * arriving_latents(llm, work.batch, work.final)
    return gpu(hw).memory - gpu_working_set(llm, 0.0, 0.0, work.batch) - cache - passing


CHUNK = chunk_knob(room_beside_cache)


@system(
    "zero-inference",
    platform="zero-a6000",
    cite="zero-inference-readme",
    installable=True,
    technology="host memory",
    owns=("gpu", "host", "ssd"),
    attends=ATTENDS,
    lacks=LACKS,
    knobs={
        "chunk": CHUNK,
        "ssd_weights": STORED,
        "cache": CACHE,
        "prefetch": PREFETCH,
        "pin": PIN,
    },
    reversals=(LARGEST_CHUNK,),
)
def zero_inference(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    ssd_weights: Real,
    cache: Real,
    prefetch: Real,
    pin: Real,
) -> Estimate:
    """Every weight comes to the GPU once a step, a bounded part of it ahead of its use.

    Of the 12 h² weights of a layer the release fetches 2 h² ahead, and holds no more ahead at a
    time. So most weights of a layer come before its computation, not beside it. Weights of fewer
    bits are dequantised by one kernel. Weights on drives pass buffers that are always pinned.

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link.
        llm, work: what runs.
        ssd_weights: share of the weights on the drives, the others in host memory [1].
        cache: 0 KV cache in host memory, attention on the CPU, 1 on the GPU.
        prefetch: weights fetched ahead [h²].
        pin: 2 weights in host memory are pinned, 1 they come at `derate.pageable`, 0 they are
            pinned where the cache is on the GPU.

    Returns:
        Prefill, one decode step and what fits.
        Source: Aminabadi et al., sec. VI (no equations); `run_model.py`, get_ds_model.
    """
    b = work.batch
    on_gpu = (cache == 1) * 1.0
    unpinned = 1 - np.where(pin == 0, on_gpu, pin == 2)
    weights = streamed(hw, llm, ssd_weights, unpinned)
    place = beside_gpu(on_gpu, 0.0)
    passing = (1 - on_gpu) * arriving_latents(llm, b, work.final)

    def decode_layer(layer_type: WeightStream) -> Span:
        computed = serial(
            products=products(layer_type, b, FUSED),
            attention=attend(hw, layer_type, work, on_gpu),
        )
        return fetched(layer_type, layer_type.llm.layer_weight_bytes(b), prefetch, computed)

    def prefill_layer(layer_type: WeightStream) -> Span:
        packed = layer_type.llm.layer_weight_bytes(b * work.together)
        leaving = (1 - on_gpu) * layer_type.llm.kv_bytes(b, work.prompt)
        later = (1 - on_gpu) * (work.chunks - 1) * b
        earlier = layer_type.llm.kv_bytes(later, tokens_before(work))
        buffer = link(hw, "gpu_link", "pageable")
        computed = overlap(
            compute=prompts(layer_type, work, packed),
            cache=buffer.outward(leaving, "KV of prompts, to a buffer that is not pinned"),
            earlier=buffer.inward(earlier, "KV of earlier chunks"),
        )
        # every chunk passes all layers, so that each fetches the weights anew
        n = work.chunks
        return n * fetched(layer_type, packed, prefetch, (1 / n) * computed)

    by_gpu = 1.0 if isinstance(llm, Latent) else on_gpu
    return Estimate(
        prefill=weights.over_layers(prefill_layer, b),
        step=weights.over_layers(decode_layer, b),
        fits=memories(weights, work, drives_of(hw), place, passing, weights.in_host),
        work=work,
        batch_run=b,
        attention={"host": 1 - by_gpu, "gpu": by_gpu},
    )


def streamed(hw: Machine, llm: LLM, on_drives: Real, unpinned: Real) -> PageableStream:
    """All weights, streamed from drives and host memory.

    Args:
        on_drives: share of the weights [1].
        unpinned: share of the others that are not pinned [1].
    """
    tiers = Residency(0.0, 1 - on_drives, on_drives)
    return PageableStream(
        **vars(weights_from(hw, llm, tiers, drives_of(hw).read)),
        pageable=link(hw, "gpu_link", "pageable").inward,
        unpinned=unpinned,
    )


def prompts(weights: WeightStream, work: Workload, packed: Real) -> Span:
    """Products of one layer over all prompts, its weights dequantised before each chunk.

    Args:
        packed: weights of the layer [B].
    """
    llm, gpu = weights.llm, weights.gpu
    return serial(
        unpack=dequantise_weights(llm, work.chunks * packed, gpu, FUSED),
        products=prefill_compute(llm, work, work.batch, gpu),
    )


def attend(hw: Machine, weights: WeightStream, work: Workload, on_gpu: Real) -> Span:
    """Attention of one layer where its cache lives; recurrent states stay on the GPU.

    The CPU attends to K and V of heads in host memory, the GPU to latents.

    Args:
        on_gpu: 1 where the cache is on the GPU, 0 in host memory [1].
    """
    llm, b, s = weights.llm, work.batch, work.context
    if isinstance(llm, Recurrent):
        return update_state(llm, b, weights.gpu)
    if isinstance(llm, Latent):
        in_host = attend_to_latents(hw, weights, b, s)
    else:
        in_host = serial(
            exchange=exchange_with_cpu(llm, b, weights.link),
            attend=attend_on_cpu(hw, llm, b, s),
        )
    return serial(
        cache_on_gpu=on_gpu
        * attend_on_gpu(llm, weights.gpu, b, s, FUSED, eager_copies(llm)),
        cache_in_host=(1 - on_gpu) * in_host,
    )


def attend_to_latents(hw: Machine, weights: WeightStream, b: Real, s: Real) -> Span:
    """Latents of one layer come from a buffer that is not pinned, then the GPU attends to them."""
    llm, buffer = weights.llm, link(hw, "gpu_link", "pageable")
    eq = "(r + dr) elements of a token"
    return serial(
        new_rows=buffer.outward(llm.kv_bytes(b, 1), eq),
        load=stream(llm.kv_bytes(b, s), eq, dram=weights.host.read, link=buffer.inward),
        attend=attend_on_gpu(llm, weights.gpu, b, s, FUSED, eager_copies(llm)),
    )


def eager_copies(llm: LLM) -> Real:
    """Times that Hugging Face's attention moves K and V after reading them once [1].

    Appending the new token (`torch.cat`) writes them, and the products read them. With g queries
    a KV head `repeat_kv` reads them and writes g copies, which the products read. Absorbed
    attention to latents repeats nothing.
    """
    if isinstance(llm, Latent):
        return 2.0
    repeated = llm.group > 1
    return choose(repeated, 2 + 2 * llm.group, 2.0)


def fetched(weights: WeightStream, packed: Real, prefetch: Real, computed: Span) -> Span:
    """Weights beyond the prefetched ones, then the others of the next layer beside the computation.

    Args:
        packed: weights of the layer [B].
        prefetch: weights fetched ahead [h²].
        computed: what the layer computes.
    """
    llm = weights.llm
    # the bucket counts elements, in squares of the hidden size
    ahead = np.minimum(prefetch * llm.hidden**2 * llm.weight_width, packed)
    return serial(
        waited=weights.load(packed - ahead),
        layer=overlap(ahead=weights.load(ahead), computed=computed),
    )
