"""One GPU that streams weights from where they live: ZeRO-Inference, FlexGen by percentages.

Sources: Aminabadi et al., SC 2022, sec. VI (ZeRO-Inference); Sheng et al., ICML 2023, sec. 4
(FlexGen's `--percent`, six shares of weights, cache and activations by memory).

Symbols: b batch, s context, L layers.
"""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.capacity import Fits, fits
from nearkv.costmodel.compose import overlap, serial
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.flexgen_loop import ATTENDS, LACKS, DecodeLoop
from nearkv.costmodel.mechanisms.offload import FileStorage, file_storage, gpu_working_set
from nearkv.costmodel.mechanisms.weights import Residency, WeightStream
from nearkv.costmodel.registry import Knob, system
from nearkv.costmodel.resources import gpu, host, link
from nearkv.costmodel.span import Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine

CACHE = Knob(
    "memory that holds the KV cache; the CPU attends to what is not on the GPU",
    high=2,
    default=1,
    kind="choice",
    choices=("gpu", "host", "ssd"),
)
BATCHES = Knob(
    "GPU batches that a step sends through each layer (FlexGen's --num-gpu-batches)",
    low=1,
    high=64,
    default=1,
    kind="count",
)
STORED = Knob("share of the weights on the drives", default=0.0)


@system(
    "zero-inference",
    platform="zero-a6000",
    cite="zero-inference-readme",
    owns=("gpu", "host", "ssd"),
    attends=ATTENDS,
    lacks=LACKS,
    knobs={"ssd_weights": STORED, "cache": CACHE},
)
def zero_inference(
    hw: Machine, llm: LLM, work: Workload, *, ssd_weights: Real, cache: Real
) -> Estimate:
    """Every weight comes to the GPU once a step, prefetched behind the layers before it.

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link.
        llm, work: what runs.
        ssd_weights: share of the weights on the drives, the others in host memory [1].
        cache: 0 KV cache on the GPU, 1 in host memory, attention on the CPU, 2 on the drives.

    Returns:
        Prefill, one decode step and what fits.
        Source: Aminabadi et al., sec. VI (no equations); the README of its 2023 release.
    """
    home = Residency(0.0, 1 - ssd_weights, ssd_weights)
    return streamed(hw, llm, work, home, cache, 1.0)


@system(
    "flexgen-percent",
    platform="t4-box",
    cite="flexgen",
    owns=("gpu", "host", "ssd"),
    attends=ATTENDS,
    lacks=LACKS,
    knobs={
        "gpu_weights": Knob("share of the weights on the GPU", default=0.0),
        "ssd_weights": Knob("share of the other weights on the drives", default=0.0),
        "cache": CACHE,
        "gpu_batches": BATCHES,
    },
)
def flexgen_percent(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    gpu_weights: Real,
    ssd_weights: Real,
    cache: Real,
    gpu_batches: Real,
) -> Estimate:
    """FlexGen at given shares, as its `--percent` option takes them.

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link.
        llm, work: what runs; the batch is that of all GPU batches.
        gpu_weights: share of the weights on the GPU [1].
        ssd_weights: share of the others on the drives, the rest in host memory [1].
        cache: 0 KV cache on the GPU, 1 in host memory, attention on the CPU, 2 on the drives.
        gpu_batches: GPU batches of a step [1].

    Returns:
        Prefill, one decode step and what fits. Source: Sheng et al., sec. 4.1, 4.2, Alg. 1.
    """
    streamed_share = 1 - gpu_weights
    stored = streamed_share * ssd_weights
    home = Residency(gpu_weights, streamed_share - stored, stored)
    return streamed(hw, llm, work, home, cache, gpu_batches)


# --- what both share --------------------------------------------------------------------------


def streamed(
    hw: Machine, llm: LLM, work: Workload, home: Residency, cache: Real, gpu_batches: Real
) -> Estimate:
    """Prefill, a step and what fits for weights and a cache at their homes."""
    on_gpu, stored = np.equal(cache, 0) * 1.0, np.equal(cache, 2) * 1.0
    off_gpu = 1 - on_gpu
    storage = file_storage(hw, "ssd", link(hw, "ssd_link", "pcie"), host(hw))
    weights = WeightStream(
        llm=llm,
        gpu=gpu(hw),
        host=host(hw),
        link=link(hw, "gpu_link", "pcie"),
        home=home,
        storage=storage.read,
    )
    b, s = work.batch, work.context

    def decode_layer(kind: WeightStream) -> Span:
        path = storage.read, storage.write
        loop = DecodeLoop(hw, kind, b, s, gpu_batches, stored, *path)
        return serial(
            cache_on_gpu=on_gpu * beside_gpu_attention(kind, b, s),
            cache_elsewhere=off_gpu * loop.layer(),
        )

    def prefill_layer(kind: WeightStream) -> Span:
        leaving = off_gpu * kind.llm.kv_bytes(b, work.prompt)
        cache = weights.link.outward(leaving, "KV of prompts")
        return kind.prefill_layer(work, b, cache=cache)

    return Estimate(
        prefill=weights.over_kinds(prefill_layer, b),
        step=weights.over_kinds(decode_layer, b),
        fits=memories(weights, work, storage, on_gpu, stored),
        work=work,
        batch_run=b,
    )


def beside_gpu_attention(weights: WeightStream, b: Real, s: Real) -> Span:
    """One layer with its cache on the GPU: the next layer's weights beside all its work."""
    llm = weights.llm
    traffic = llm.cache_traffic(b, s)
    read = weights.gpu.read(traffic, "KV cache")
    attend = overlap(
        read=read, compute=weights.gpu.run(llm.attention_flops(b, s), "attention")
    )
    computed = serial(
        projections=weights.projections(b), attend=attend, products=weights.feed_forward(b)
    )
    arriving = weights.load(llm.layer_weight_bytes(b))
    return overlap(weights=arriving, computed=computed)


def memories(
    weights: WeightStream, work: Workload, storage: FileStorage, on_gpu: Real, stored: Real
) -> Fits:
    """Bytes on the GPU, in host memory and on the drives."""
    llm, home = weights.llm, weights.home
    cache = llm.kv_cache_bytes(work.batch, work.final)
    in_host = 1 - on_gpu - stored
    working = gpu_working_set(llm, work.prompt, home.gpu, work.batch)
    return fits(
        gpu=(working + on_gpu * cache, weights.gpu.memory),
        host=(home.host * llm.weight_bytes + in_host * cache, weights.host.memory),
        ssd=(home.storage * llm.weight_bytes + stored * cache, storage.capacity),
    )
