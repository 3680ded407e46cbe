"""FlexGen at given shares of weights and cache by memory, as its options take them.

Source: Sheng et al., ICML 2023, sec. 4; `flex_opt.py` of its public code.

Symbols: b batch, s context.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.compose import overlap, serial, stream
from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.mechanisms.gpu_layer import EAGER, attend_on_gpu, dequantise_weights
from nearkv.costmodel.mechanisms.weights.flexgen_loop import ATTENDS, LACKS, DecodeLoop
from nearkv.costmodel.mechanisms.weights.percent import (
    drive_breaks,
    drive_share,
    eager_prompts,
    gpu_breaks,
    gpu_share,
    relay,
    whole_tensors,
)
from nearkv.costmodel.mechanisms.weights.residency import beside_gpu
from nearkv.costmodel.mechanisms.weights.streaming import (
    FileStorage,
    WeightStream,
    drives_of,
    memories,
    products,
    weights_from_files,
)
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.latent import Latent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, Reversal, choice, system
from nearkv.costmodel.model.resources import link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

GPU_WEIGHTS = Knob(
    "share of the weights on the GPU; fill: the largest that it holds",
    default="fill",
    rules={"fill": gpu_share},
    breaks=gpu_breaks,
)
DRIVE_WEIGHTS = Knob(
    "share of the other weights on the drives; fill: what host memory does not hold",
    default="fill",
    rules={"fill": drive_share},
    breaks=drive_breaks,
)
CACHE = choice("memory that holds the KV cache", ("gpu", "host", "ssd"), default=1)
ATTEND = choice(
    "who attends to a cache that is not on the GPU (FlexGen's --cpu-cache-compute, or the GPU)",
    ("cpu", "gpu"),
)
PIN = choice(
    "whether weights in host memory are pinned (FlexGen's --pin-weight)",
    ("no", "yes"),
    default=1,
)
TENSORS = choice(
    "whether shares of weights are of whole tensors, as the code places them, or divide tensors",
    ("whole", "divided"),
)
BATCHES = Knob(
    "GPU batches that a step sends through each layer (FlexGen's --num-gpu-batches)",
    low=1,
    high=64,
    default=1,
    kind="count",
)

DRAM_FIRST = Reversal(
    ("step_ms", "total_s"),
    ("host.memory",),
    "weights fill host DRAM before the drives, though both together may bring them faster",
)


@system(
    "flexgen-percent",
    platform="t4-box",
    cite="flexgen",
    owns=("gpu", "host", "ssd"),
    reversals=(DRAM_FIRST,),
    attends=ATTENDS,
    lacks=LACKS,
    knobs={
        "gpu_weights": GPU_WEIGHTS,
        "ssd_weights": DRIVE_WEIGHTS,
        "cache": CACHE,
        "attend": ATTEND,
        "pin": PIN,
        "gpu_batches": BATCHES,
        "tensors": TENSORS,
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
    attend: Real,
    pin: Real,
    gpu_batches: Real,
    tensors: Real,
) -> Estimate:
    """FlexGen at given shares, as its `--percent` option takes them.

    Weights and cache of fewer bits than activations are dequantised on the GPU by eager operations,
    weights once a GPU batch. A cache in host memory is never pinned: prompts leave the GPU at
    `derate.cache_relay`. Where the GPU attends the cache, like weights that are not pinned, is
    first copied to a pinned buffer by the thread that starts everything else.

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link.
        llm, work: what runs; the batch is that of all GPU batches.
        gpu_weights: share of the weights on the GPU [1].
        ssd_weights: share of the others on the drives, the rest in host memory [1].
        cache: 0 KV cache on the GPU, 1 in host memory, 2 on the drives.
        attend: 0 the CPU attends to a cache that is not on the GPU, 1 the GPU, which attends to
            latents in any case.
        pin: 1 weights in host memory are pinned, 0 they are copied first.
        gpu_batches: GPU batches of a step [1].
        tensors: 0 shares of whole tensors, 1 as given.

    Returns:
        Prefill, one decode step and what fits. Source: Sheng et al., sec. 4.1, 4.2, Alg. 1.
    """
    asked = beside_gpu(gpu_weights, ssd_weights)
    tiers = whole_tensors(llm, asked, divided=tensors)
    drives = drives_of(hw)
    weights = weights_from_files(hw, llm, tiers, drives)
    run = PercentRun(
        hw=hw,
        work=work,
        drives=drives,
        on_gpu=np.equal(cache, 0) * 1.0,
        stored=np.equal(cache, 2) * 1.0,
        by_gpu=np.equal(attend, 1) * 1.0,
        unpinned=1.0 - np.equal(pin, 1),
        batches=gpu_batches,
    )
    return Estimate(
        prefill=weights.over_layers(run.prefill_layer, work.batch),
        step=weights.over_layers(run.decode_layer, work.batch),
        fits=memories(weights, work, drives, run.on_gpu, run.stored),
        work=work,
        batch_run=work.batch,
    )


@dataclass(frozen=True)
class PercentRun:
    """Layers of a run whose cache lives in one of three memories.

    Attributes:
        hw, work: the machine, what runs.
        drives: where a cache on the drives goes, and comes from.
        on_gpu, stored: 1 where the cache is on the GPU, on the drives [1].
        by_gpu: 1 where the GPU attends to a cache elsewhere, 0 where the CPU does [1].
        unpinned: 1 where weights in host memory are not pinned [1].
        batches: GPU batches of a step [1].
    """

    hw: Machine
    work: Workload
    drives: FileStorage
    on_gpu: Real
    stored: Real
    by_gpu: Real
    unpinned: Real
    batches: Real

    def decode_layer(self, weights: WeightStream) -> Span:
        """One layer of a step: the cache is on the GPU, comes to it, or is left to the CPU.

        Of the three ways one has weight 1 and the others 0, so that one tree serves design points
        that choose differently.
        """
        llm, b, s = weights.llm, self.work.batch, self.work.context
        # no rate is known of a CPU that attends to latents
        by_gpu = 1.0 if isinstance(llm, Latent) else self.by_gpu
        to_gpu = (1 - self.on_gpu) * by_gpu
        to_cpu = (1 - self.on_gpu) - to_gpu
        cache = to_gpu * (1 - self.stored) * llm.kv_bytes(b, s)
        loop = (self.hw, weights, b, s, self.batches, self.stored, self.drives)
        return serial(
            relay=relay(self.hw, self.unpinned_weights(weights, b) + cache),
            cache_on_gpu=self.on_gpu * layer_with_cache(weights, b, s),
            cache_to_gpu=to_gpu * CacheToGpu(*loop).layer(),
            cache_to_cpu=to_cpu * CacheToCpu(*loop).layer(),
        )

    def prefill_layer(self, weights: WeightStream) -> Span:
        """One layer over all prompts, whose cache leaves meanwhile."""
        llm, b, prompt = weights.llm, self.work.batch, self.work.prompt
        packed, cache = llm.layer_weight_bytes(b * prompt), llm.kv_bytes(b, prompt)
        outward = link(self.hw, "gpu_link", "cache_relay").outward
        unpack = dequantise_weights(llm, packed, weights.gpu, EAGER)
        layer = overlap(
            weights=weights.load(packed),
            compute=serial(
                unpack=self.batches * unpack,
                products=eager_prompts(llm, b, prompt, weights.gpu),
            ),
            cache=outward((1 - self.on_gpu) * cache, "4bsh, not pinned"),
            drives=stream(self.stored * cache, "4bsh", **self.drives.write),
        )
        copied = self.unpinned_weights(weights, b * prompt)
        return serial(relay=relay(self.hw, copied), layer=layer)

    def unpinned_weights(self, weights: WeightStream, tokens: Real) -> Real:
        """Weights of a layer that are copied to pinned buffers [B]."""
        packed = weights.llm.layer_weight_bytes(tokens)
        return self.unpinned * weights.tiers.host * packed


def layer_with_cache(weights: WeightStream, b: Real, s: Real) -> Span:
    """One layer with its cache on the GPU: the next layer's weights beside all its work."""
    computed = serial(
        products=products(weights, b, EAGER),
        # products take transposed views of the cache (`mha_gen`)
        attend=attend_on_gpu(weights.llm, weights.gpu, b, s, EAGER, copies=0.0),
    )
    arriving = weights.load(weights.llm.layer_weight_bytes(b))
    return overlap(weights=arriving, computed=computed)


@dataclass(frozen=True)
class CacheToCpu(DecodeLoop):
    """FlexGen's loop with weights that each GPU batch dequantises before its products."""

    def attend(self) -> Span:
        """Projections on the GPU and attention on the CPU, of one GPU batch."""
        weights = self.weights.attention_weights(self.sequences)
        return serial(unpack=self.dequantise(weights), attend=super().attend())

    def feed_forward(self) -> Span:
        """Feed-forward products of one GPU batch on the GPU."""
        weights = self.weights.feed_forward_weights(self.sequences)
        return serial(unpack=self.dequantise(weights), products=super().feed_forward())

    def dequantise(self, packed: Real) -> Span:
        """Write weights in full width, given their packed bytes [B]."""
        return dequantise_weights(self.weights.llm, packed, self.weights.gpu, EAGER)


@dataclass(frozen=True)
class CacheToGpu(CacheToCpu):
    """FlexGen's loop where the GPU attends to a cache that comes from host memory or drives."""

    def read_cache(self) -> Span:
        """Keys and values to the GPU, of one GPU batch."""
        kv = self.weights.llm.kv_bytes(self.sequences, self.s)
        return overlap(
            drives=stream(self.stored * kv, "4sh", **self.drives.read),
            dram=self.weights.host.read(kv, "4sh"),
            link=self.weights.link.inward(kv, "4sh, from pinned buffers"),
        )

    def attend(self) -> Span:
        """Projections and attention of one GPU batch on the GPU."""
        llm, gpu = self.weights.llm, self.weights.gpu
        weights = self.weights.attention_weights(self.sequences)
        return serial(
            unpack=self.dequantise(weights),
            projections=self.weights.projections(self.sequences),
            attend=attend_on_gpu(llm, gpu, self.sequences, self.s, EAGER, copies=0.0),
        )
