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
from nearkv.costmodel.mechanisms.weights.residency import Residency
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
from nearkv.costmodel.model.registry import Knob, system
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
CACHE = Knob(
    "memory that holds the KV cache",
    high=2,
    default=1,
    kind="choice",
    choices=("gpu", "host", "ssd"),
)
ATTEND = Knob(
    "who attends to a cache that is not on the GPU (FlexGen's --cpu-cache-compute, or the GPU)",
    high=1,
    default=0,
    kind="choice",
    choices=("cpu", "gpu"),
)
PIN = Knob(
    "whether weights in host memory are pinned (FlexGen's --pin-weight)",
    high=1,
    default=1,
    kind="choice",
    choices=("no", "yes"),
)
TENSORS = Knob(
    "whether shares of weights are of whole tensors, as the code places them, or divide tensors",
    high=1,
    default=0,
    kind="choice",
    choices=("whole", "divided"),
)
COPIES = 2.0
"""Times that `mha_gen` moves K and V again: written with heads first, read by its products."""
BATCHES = Knob(
    "GPU batches that a step sends through each layer (FlexGen's --num-gpu-batches)",
    low=1,
    high=64,
    default=1,
    kind="count",
)


@system(
    "flexgen-percent",
    platform="t4-box",
    cite="flexgen",
    owns=("gpu", "host", "ssd"),
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
    streamed_share = 1 - gpu_weights
    in_files = streamed_share * ssd_weights
    given = Residency(gpu_weights, streamed_share - in_files, in_files)
    tiers = whole_tensors(llm, given, divided=tensors)
    weights = weights_from_files(hw, llm, tiers, drives_of(hw))
    run = SharedRun(
        hw=hw,
        work=work,
        storage=drives_of(hw),
        on_gpu=np.equal(cache, 0) * 1.0,
        stored=np.equal(cache, 2) * 1.0,
        by_gpu=np.equal(attend, 1) * 1.0,
        unpinned=1.0 - np.equal(pin, 1),
        batches=gpu_batches,
    )
    return Estimate(
        prefill=weights.over_kinds(run.prefill_layer, work.batch),
        step=weights.over_kinds(run.decode_layer, work.batch),
        fits=memories(weights, work, run.storage, run.on_gpu, run.stored),
        work=work,
        batch_run=work.batch,
    )


@dataclass(frozen=True)
class SharedRun:
    """Layers of a run whose cache lives in one of three memories.

    Attributes:
        hw, work: the machine, what runs.
        storage: the drives.
        on_gpu, stored: 1 where the cache is on the GPU, on the drives [1].
        by_gpu: 1 where the GPU attends to a cache elsewhere, 0 where the CPU does [1].
        unpinned: 1 where weights in host memory are not pinned [1].
        batches: GPU batches of a step [1].
    """

    hw: Machine
    work: Workload
    storage: FileStorage
    on_gpu: Real
    stored: Real
    by_gpu: Real
    unpinned: Real
    batches: Real

    def decode_layer(self, kind: WeightStream) -> Span:
        """One layer of a step, for each tier of the cache and who attends to it."""
        off_gpu = 1 - self.on_gpu
        by_gpu = 1.0 if isinstance(kind.llm, Latent) else self.by_gpu
        to_gpu = off_gpu * by_gpu
        on_cpu = self.loop(PackedLoop, kind)
        on_gpu = self.loop(GpuLoop, kind)
        near = beside_weights(kind, self.work.batch, self.work.context)
        kv = kind.llm.kv_bytes(self.work.batch, self.work.context)
        in_host = to_gpu * (1 - self.stored) * kv
        return serial(
            relay=relay(self.hw, self.copied(kind, self.work.batch) + in_host),
            cache_on_gpu=self.on_gpu * near,
            cache_to_gpu=to_gpu * on_gpu.layer(),
            cache_to_cpu=(off_gpu - to_gpu) * on_cpu.layer(),
        )

    def copied(self, kind: WeightStream, tokens: Real) -> Real:
        """Weights of a layer that are copied to pinned buffers [B]."""
        packed = kind.llm.layer_weight_bytes(tokens)
        return self.unpinned * kind.tiers.host * packed

    def loop(self, form: type[DecodeLoop], kind: WeightStream) -> DecodeLoop:
        """FlexGen's loop of a form over the layers of a kind."""
        return form(
            hw=self.hw,
            weights=kind,
            b=self.work.batch,
            s=self.work.context,
            batches=self.batches,
            stored=self.stored,
            read=self.storage.read,
            write=self.storage.write,
        )

    def prefill_layer(self, kind: WeightStream) -> Span:
        """One layer over all prompts, whose cache leaves meanwhile."""
        llm, work = kind.llm, self.work
        prompts = llm.kv_bytes(work.batch, work.prompt)
        outward = link(self.hw, "gpu_link", "cache_relay").outward
        packed = llm.layer_weight_bytes(work.batch * work.prompt)
        unpack = dequantise_weights(llm, packed, kind.gpu, EAGER)
        layer = overlap(
            weights=kind.load(packed),
            compute=serial(
                unpack=self.batches * unpack,
                products=eager_prompts(llm, work.batch, work.prompt, kind.gpu),
            ),
            cache=outward((1 - self.on_gpu) * prompts, "4bsh, not pinned"),
            drives=stream(self.stored * prompts, "4bsh", **self.storage.write),
        )
        copied = self.copied(kind, work.batch * work.prompt)
        return serial(relay=relay(self.hw, copied), layer=layer)


def beside_weights(weights: WeightStream, b: Real, s: Real) -> Span:
    """One layer with its cache on the GPU: the next layer's weights beside all its work."""
    computed = serial(
        products=products(weights, b, EAGER),
        attend=attend_on_gpu(weights.llm, weights.gpu, b, s, EAGER, COPIES),
    )
    arriving = weights.load(weights.llm.layer_weight_bytes(b))
    return overlap(weights=arriving, computed=computed)


@dataclass(frozen=True)
class PackedLoop(DecodeLoop):
    """FlexGen's loop with weights that each GPU batch dequantises before its products."""

    def attend(self) -> Span:
        """Projections on the GPU and attention on the CPU, of one GPU batch."""
        return serial(
            unpack=self.dequantise(self.weights.attention_weights(self.sequences)),
            attend=super().attend(),
        )

    def feed_forward(self) -> Span:
        """Feed-forward products of one GPU batch on the GPU."""
        return serial(
            unpack=self.dequantise(self.weights.feed_forward_weights(self.sequences)),
            products=super().feed_forward(),
        )

    def dequantise(self, packed: Real) -> Span:
        """Write weights in full width, given their packed bytes [B]."""
        return dequantise_weights(self.weights.llm, packed, self.weights.gpu, EAGER)


@dataclass(frozen=True)
class GpuLoop(PackedLoop):
    """The same where the GPU attends to a cache that comes from host memory or drives."""

    def read_cache(self) -> Span:
        """Keys and values to the GPU, of one GPU batch."""
        kv = self.weights.llm.kv_bytes(self.sequences, self.s)
        inward = self.weights.link.inward
        return overlap(
            drives=stream(self.stored * kv, "4sh", **self.read),
            dram=self.weights.host.read(kv, "4sh"),
            link=inward(kv, "4sh, from pinned buffers"),
        )

    def attend(self) -> Span:
        """Projections and attention of one GPU batch on the GPU."""
        llm, gpu = self.weights.llm, self.weights.gpu
        return serial(
            unpack=self.dequantise(self.weights.attention_weights(self.sequences)),
            projections=self.weights.projections(self.sequences),
            attend=attend_on_gpu(llm, gpu, self.sequences, self.s, EAGER, COPIES),
        )
