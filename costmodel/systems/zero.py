"""ZeRO-Inference: one GPU, every weight streamed from host memory or drives.

Source: Aminabadi et al., SC 2022, sec. VI; the README and `run_model.py` of its 2023 release.

Symbols: b batch, s context, h hidden.
"""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.compose import overlap, serial
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.layers import Recurrent
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.flexgen_loop import ATTENDS, LACKS
from nearkv.costmodel.mechanisms.offload import (
    attend_on_cpu,
    exchange_with_cpu,
    prefill_compute,
    update_state,
)
from nearkv.costmodel.mechanisms.residency import (
    Residency,
)
from nearkv.costmodel.mechanisms.streaming import (
    attend_on_gpu,
    drives_of,
    memories,
    products,
    weights_at,
)
from nearkv.costmodel.mechanisms.unpacking import KERNEL, unpack_weights
from nearkv.costmodel.mechanisms.weights import WeightStream
from nearkv.costmodel.registry import Knob, system
from nearkv.costmodel.resources import link
from nearkv.costmodel.span import Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine

CACHE = Knob(
    "memory that holds the KV cache; the CPU attends to what is in host memory",
    high=1,
    default=0,
    kind="choice",
    choices=("host", "gpu"),
)
STORED = Knob("share of the weights on the drives", default=0.0)
PREFETCH = Knob(
    "weights that come beside a layer's computation, in squares of the hidden size "
    "(stage3_prefetch_bucket_size); for the others it waits",
    high=64,
    default=2,
    kind="count",
)


@system(
    "zero-inference",
    platform="zero-a6000",
    cite="zero-inference-readme",
    owns=("gpu", "host", "ssd"),
    attends=ATTENDS,
    lacks=LACKS,
    knobs={"ssd_weights": STORED, "cache": CACHE, "prefetch": PREFETCH},
)
def zero_inference(
    hw: Machine, llm: LLM, work: Workload, *, ssd_weights: Real, cache: Real, prefetch: Real
) -> Estimate:
    """Every weight comes to the GPU once a step, a bounded part of it ahead of its use.

    Of the 12 h² weights of a layer the release fetches 2 h² ahead and holds no more than as many
    at a time, so most of a layer's weights come before its computation, not beside it. Weights of
    fewer bits are unpacked by one kernel.

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link.
        llm, work: what runs.
        ssd_weights: share of the weights on the drives, the others in host memory [1].
        cache: 0 KV cache in host memory, attention on the CPU, 1 on the GPU.
        prefetch: weights fetched ahead [h²].

    Returns:
        Prefill, one decode step and what fits.
        Source: Aminabadi et al., sec. VI (no equations); `run_model.py`, get_ds_model.
    """
    b = work.batch
    on_gpu = np.equal(cache, 1) * 1.0
    storage = drives_of(hw)
    weights = weights_at(hw, llm, Residency(0.0, 1 - ssd_weights, ssd_weights))

    def decode_layer(kind: WeightStream) -> Span:
        computed = serial(
            products=products(kind, b, KERNEL),
            attention=attend(hw, kind, work, on_gpu),
        )
        return fetched(kind, kind.llm.layer_weight_bytes(b), prefetch, computed)

    def prefill_layer(kind: WeightStream) -> Span:
        packed = kind.llm.layer_weight_bytes(b * work.prompt)
        leaving = (1 - on_gpu) * kind.llm.kv_bytes(b, work.prompt)
        outward = link(hw, "gpu_link", "pageable").outward
        computed = overlap(
            compute=serial(
                unpack=unpack_weights(kind.llm, packed, kind.gpu, KERNEL),
                products=prefill_compute(kind.llm, work, b, kind.gpu),
            ),
            cache=outward(leaving, "KV of prompts, to a buffer that is not pinned"),
        )
        return fetched(kind, packed, prefetch, computed)

    return Estimate(
        prefill=weights.over_kinds(prefill_layer, b),
        step=weights.over_kinds(decode_layer, b),
        fits=memories(weights, work, storage, on_gpu, 0.0),
        work=work,
        batch_run=b,
    )


def attend(hw: Machine, weights: WeightStream, work: Workload, on_gpu: Real) -> Span:
    """Attention of one layer where its cache lives; recurrent states stay on the GPU.

    Args:
        on_gpu: 1 where the cache is on the GPU, 0 in host memory [1].
    """
    llm, b, s = weights.llm, work.batch, work.context
    if isinstance(llm, Recurrent):
        return update_state(llm, b, weights.gpu)
    on_cpu = serial(
        exchange=exchange_with_cpu(llm, b, weights.link),
        attend=attend_on_cpu(hw, llm, b, s, weights.host),
    )
    return serial(
        cache_on_gpu=on_gpu * attend_on_gpu(weights, b, s, KERNEL),
        cache_in_host=(1 - on_gpu) * on_cpu,
    )


def fetched(weights: WeightStream, packed: Real, prefetch: Real, computed: Span) -> Span:
    """Weights beyond the prefetched ones, then the others of the next layer beside the computation.

    Args:
        packed: weights of the layer [B].
        prefetch: weights fetched ahead [h²].
        computed: what the layer computes.
    """
    llm = weights.llm
    ahead = np.minimum(prefetch * llm.hidden**2 * llm.weight_width, packed)
    return serial(
        waited=weights.load(packed - ahead),
        layer=overlap(ahead=weights.load(ahead), computed=computed),
    )
