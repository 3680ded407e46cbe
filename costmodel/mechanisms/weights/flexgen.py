"""FlexGen's program: a block of sequences passes the layers, its tensors divided between memories.

Weights, KV cache and activations each lie in GPU memory, in host DRAM and on drives, by shares that
a paper, a user or a solver states. A cache is divided by sequences (`TorchMixedDevice`): a GPU that
attends takes what comes from elsewhere, a CPU that attends leaves to the GPU what is there.

A layer is an attention half and a feed-forward half; a copy runs beside the computation of one
half of one GPU batch, then all wait for each other. Weights of the next half come beside its first
batch, the cache of the next batch beside each batch.

With one GPU batch the next half's weights hide behind reads and attention, which take turns:
max(W_a, R) + max(W_m, C). With many, reads overlap attention and the weights are exposed:
W_a + W_m + max(R, C), the rows of FlexGen's published cost model (`mechanisms.weights.placement`).

Source: Sheng et al., ICML 2023, sec. 4.1, Alg. 1; `flex_opt.py`, `pytorch_backend.py` of its code.

Symbols: n GPU batches, W_a and W_m weights of the halves, R reading the cache, C attending to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import Port, Real, Span, overlap, serial, stream
from nearkv.costmodel.mechanisms.gpu_layer import (
    EAGER,
    attend_on_gpu,
    dequantise_weights,
    layer_compute,
    prefill_compute,
)
from nearkv.costmodel.mechanisms.weights.cpu_attention import (
    attend_on_cpu,
    exchange_with_cpu,
)
from nearkv.costmodel.mechanisms.weights.residency import ALL_ON_GPU, Residency
from nearkv.costmodel.mechanisms.weights.streaming import FileStorage, WeightStream
from nearkv.costmodel.model.estimate import Estimate, Fits
from nearkv.costmodel.model.latent import Latent
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import Gpu, Link, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

LACKS = {
    "sparse": "gathering chosen rows from host memory or drives is not timed",
    "borrowed": "where the earlier layer's cache stays meanwhile is not known",
}
"""Why it models no other attention."""
COPY = 3.0
"""Times that a byte crosses host memory when it is copied: read, its new line filled, written."""
SCORE = 13.0
"""Bytes that a score of a prompt moves through GPU memory in 16 bits.

Written by a product, masked (read, its mask read, written), softmax (read, written), read by a
product.
"""


@dataclass(frozen=True)
class FlexgenBlock:
    """Sequences that pass the layers together, as papers count their baselines.

    The CPU attends to heads outside GPU memory. Latents come to the GPU, as FlexGen's cache does
    without a CPU's help: absorbed attention multiplies each cached element with every head, 242
    times in DeepSeek-V3, and the rate of a CPU at that is not known.

    Attributes:
        hw: roles gpu_link, host.
        work: prompts and context.
        drives: what holds the tensors on drives.
        cache: shares of the KV cache by memory.
        b: sequences of the block [1].
        asked: GPU batches that are asked for, at least one [1].
    """

    hw: Machine
    work: Workload
    drives: FileStorage
    cache: Residency
    b: Real
    asked: Real

    def estimate(self, weights: WeightStream, fits: Fits, blocks: Real = 1.0) -> Estimate:
        """All layers of all prompts and of a step, as many times as the work has blocks [1]."""
        on_gpu = self.gpu_attention(weights.llm)
        return Estimate(
            prefill=blocks * weights.over_layers(self.prefill_layer, self.b),
            step=blocks * weights.over_layers(self.decode_layer, self.b),
            fits=fits,
            work=self.work,
            batch_run=self.b,
            attention={"host": 1 - on_gpu, "gpu": on_gpu},
        )

    def gpu_attention(self, llm: LLM) -> Real:
        """Share of the attention that the GPU computes: of latents all, for want of a rate [1]."""
        return 1.0 if isinstance(llm, Latent) else 0.0

    @property
    def by_host(self) -> Real:
        """Share of the hidden states of prompts in chunks that waits in host memory [1]."""
        return 1.0

    @property
    def batches(self) -> Real:
        """GPU batches, n: one without a sequence does nothing and hides nothing [1]."""
        return np.minimum(self.asked, np.maximum(self.b, 1.0))

    @property
    def sequences(self) -> Real:
        """Sequences of one GPU batch [1]."""
        return self.b / self.batches

    # --- a layer ------------------------------------------------------------------------------

    def prefill_layer(self, weights: WeightStream) -> Span:
        """One layer over all prompts, whose cache leaves the GPU meanwhile."""
        compute = prefill_compute(weights.llm, self.work, self.b, weights.gpu)
        return self._prompts(weights, compute)

    def _prompts(self, weights: WeightStream, compute: Span) -> Span:
        """Weights and computation of all prompts beside their keys and values on the way.

        The cache is never pinned, so it leaves the GPU slowly.
        """
        llm, prompt = weights.llm, self.work.prompt
        kv = llm.kv_bytes(self.b, prompt)
        leaving = (1 - self.cache.gpu) * kv
        stored = self.cache.storage * kv

        def arriving(b: Real, tokens: Real) -> Span:
            """K and V from where they lie, by a link whose buffers are not pinned."""
            earlier = llm.kv_bytes(b, tokens)
            return self._arriving(weights, earlier, 1.0, self._link("pageable").inward)

        return overlap(
            weights=weights.load(llm.layer_weight_bytes(self.b * prompt)),
            compute=compute,
            cache=overlap(
                gpu=self._link("cache_relay").outward(leaving, "4bsh"),
                drives=stream(stored, "4bsh", **self.drives.write),
            ),
            **weights.between_chunks(self.work, self.b, arriving, self.by_host),
        )

    def decode_layer(self, weights: WeightStream) -> Span:
        """The attention half of all GPU batches, then their feed-forward half."""
        if isinstance(weights.llm, Recurrent):
            return weights.recurrent_layer(self.b)
        # 0 with one GPU batch, 1 with more: the loop has another shape then
        several = np.minimum(self.batches - 1, 1.0)
        middle = np.maximum(self.batches - 2, 0.0)
        read, attend = self.read_cache(weights), self.attend(weights)
        products = self.feed_forward(weights)
        attention_weights = weights.load(weights.attention_weights(self.b))
        feed_forward_weights = weights.load(weights.feed_forward_weights(self.b))
        # HILOS eq. 3: 4h a sequence
        new = self.cache.storage * weights.llm.kv_bytes(self.b, 1)
        return serial(
            attention=serial(
                first=overlap(
                    weights=feed_forward_weights, read_cache=several * read, attend=attend
                ),
                middle=middle * overlap(read_cache=read, attend=attend),
                last=several * attend,
            ),
            feed_forward=serial(
                first=overlap(
                    weights=attention_weights,
                    read_cache=(1 - several) * read,
                    products=products,
                    write_cache=stream(new, "4h, eq. 3", **self.drives.write),
                ),
                middle=middle * products,
                last=several * overlap(read_cache=read, products=products),
            ),
        )

    # --- one GPU batch of a step --------------------------------------------------------------

    def read_cache(self, weights: WeightStream) -> Span:
        """Keys and values leave the drives (HILOS eq. 3: 4sh a sequence), latents for the GPU."""
        kv = weights.llm.kv_bytes(self.sequences, self.work.context)
        if isinstance(weights.llm, Latent):
            return self._arriving(weights, kv, 1.0, self._link("pageable").inward)
        return stream(self.cache.storage * kv, "4sh, eq. 3", **self.drives.read)

    def _arriving(
        self, weights: WeightStream, kv: Real, to_gpu: Real, inward: Port
    ) -> Span:
        """The cache leaves the drives; all of it comes to a GPU that attends.

        Args:
            kv: K and V, wherever they lie [B].
            to_gpu: 1 where the GPU attends [1].
            inward: the link to it.
        """
        moved = to_gpu * (1 - self.cache.gpu) * kv
        return overlap(
            drives=stream(self.cache.storage * kv, "4sh", **self.drives.read),
            dram=weights.host.read(moved, "4sh"),
            link=inward(moved, "4sh"),
        )

    def attend(self, weights: WeightStream) -> Span:
        """Projections on the GPU, Q, K, V to the CPU and its result back, attention there.

        Latents are attended to on the GPU, which their new rows then leave.
        """
        llm, n, s = weights.llm, self.sequences, self.work.context
        projections = weights.projections(n)
        if isinstance(llm, Latent):
            new = self._link("cache_relay").outward(llm.kv_bytes(n, 1), "(r + dr) elements")
            attend = overlap(
                hbm=weights.gpu.read(llm.cache_traffic(n, s), "latents"),
                compute=weights.gpu.run(llm.attention_flops(n, s), "2 b s H (2 r + dr)"),
            )
            return serial(projections=projections, new_rows=new, attend=attend)
        return serial(
            projections=projections,
            exchange=exchange_with_cpu(llm, n, weights.link),
            attend=attend_on_cpu(self.hw, llm, n, s),
        )

    def feed_forward(self, weights: WeightStream) -> Span:
        """Feed-forward products on the GPU."""
        return weights.feed_forward(self.sequences)

    def _link(self, derate: str) -> Link:
        return link(self.hw, "gpu_link", derate)


@dataclass(frozen=True)
class EagerBlock(FlexgenBlock):
    """A block as FlexGen's public code runs it, operation by operation.

    Weights and cache of fewer bits than activations are dequantised on the GPU by eager operations,
    weights once a GPU batch. Where the GPU attends the cache, like weights that are not pinned, is
    first copied to a pinned buffer by the thread that starts everything else.

    Attributes:
        by_gpu: 1 where the GPU attends to a cache elsewhere, 0 where the CPU does [1].
        unpinned: 1 where weights in host memory are not pinned [1].
        activations: 1 at the memory where activations wait between halves of layers.
    """

    by_gpu: Real = 0.0
    unpinned: Real = 0.0
    activations: Residency = ALL_ON_GPU

    @property
    def by_host(self) -> Real:
        """Share of the hidden states that host memory holds between chunks: those not moved [1]."""
        return self.activations.gpu

    def prefill_layer(self, weights: WeightStream) -> Span:
        """One layer over all prompts, whose cache leaves the GPU meanwhile."""
        llm, prompt = weights.llm, self.work.prompt
        packed = llm.layer_weight_bytes(self.b * prompt)
        compute = serial(
            unpack=self.batches * self._dequantise(weights, packed),
            products=eager_prompts(llm, self.b, prompt, weights.gpu),
            hidden=2 * self._wait(weights, self.b * prompt),
        )
        copied = relay(self.hw, self._unpinned_bytes(weights, packed))
        return serial(relay=copied, layer=self._prompts(weights, compute))

    def decode_layer(self, weights: WeightStream) -> Span:
        """Copies to pinned buffers, then FlexGen's loop."""
        llm, b = weights.llm, self.b
        kv = llm.kv_bytes(b, self.work.context)
        cache = self._gpu_attends(llm) * self.cache.host * kv
        copied = self._unpinned_bytes(weights, llm.layer_weight_bytes(b)) + cache
        return serial(relay=relay(self.hw, copied), layer=super().decode_layer(weights))

    def read_cache(self, weights: WeightStream) -> Span:
        """Keys and values leave the drives, for pinned buffers and the GPU where that attends."""
        kv = weights.llm.kv_bytes(self.sequences, self.work.context)
        attends = self._gpu_attends(weights.llm)
        return self._arriving(weights, kv, attends, weights.link.inward)

    def attend(self, weights: WeightStream) -> Span:
        """Projections, attention of the GPU to its sequences, then of the CPU to the others."""
        llm, n, s = weights.llm, self.sequences, self.work.context
        by_cpu = (1 - self._gpu_attends(llm)) * (1 - self.cache.gpu) * n
        return serial(
            unpack=self._dequantise(weights, weights.attention_weights(n)),
            projections=weights.projections(n),
            # products take transposed views of the cache (`mha_gen`)
            on_gpu=attend_on_gpu(llm, weights.gpu, n - by_cpu, s, EAGER, copies=0.0),
            exchange=exchange_with_cpu(llm, by_cpu, weights.link),
            on_cpu=attend_on_cpu(self.hw, llm, by_cpu, s),
            hidden=self._wait(weights, n),
        )

    def feed_forward(self, weights: WeightStream) -> Span:
        """Feed-forward products on the GPU."""
        return serial(
            unpack=self._dequantise(weights, weights.feed_forward_weights(self.sequences)),
            products=weights.feed_forward(self.sequences),
            hidden=self._wait(weights, self.sequences),
        )

    def _wait(self, weights: WeightStream, tokens: Real) -> Span:
        """Activations leave the GPU after a half and come back, on the stream that computes."""
        x = weights.llm.x_bytes(tokens, 1)
        away, stored = (1 - self.activations.gpu) * x, self.activations.storage * x
        return serial(
            out=overlap(
                link=weights.link.outward(away, "2bsh"),
                drives=stream(stored, "2bsh", **self.drives.write),
            ),
            back=overlap(
                drives=stream(stored, "2bsh", **self.drives.read),
                link=weights.link.inward(away, "2bsh"),
            ),
        )

    def gpu_attention(self, llm: LLM) -> Real:
        """Share of the attention that the GPU computes, to its own cache at least [1]."""
        return 1 - (1 - self._gpu_attends(llm)) * (1 - self.cache.gpu)

    def _gpu_attends(self, llm: LLM) -> Real:
        """1 where the GPU attends to all of the cache."""
        return np.maximum(super().gpu_attention(llm), self.by_gpu)

    def _unpinned_bytes(self, weights: WeightStream, packed: Real) -> Real:
        """Weights of a layer that are copied to pinned buffers [B]."""
        return self.unpinned * weights.tiers.host * packed

    def _dequantise(self, weights: WeightStream, packed: Real) -> Span:
        """Write weights in full width, given their packed bytes [B]."""
        return dequantise_weights(weights.llm, packed, weights.gpu, EAGER)


def relay(hw: Machine, amount: Real) -> Span:
    """Copy bytes of memory that is not pinned into pinned buffers, before anything else runs.

    The program's one thread copies them; from the buffers they move like pinned ones.

    Args:
        amount: copied [B].
    """
    rate = hw.host.count * hw.host.bandwidth * hw.derate.maybe("dram_copy", 1.0)
    copy = Port("host.dram", "read", rate)
    return copy(COPY * amount, "to a pinned buffer: read, filled, written")


def eager_prompts(llm: LLM, b: Real, s: Real, gpu: Gpu) -> Span:
    """Products of one layer over b prompts, and the full square of their scores, in memory.

    Args:
        b, s: prompts and tokens of each [1].
    """
    square = llm.eager_attention_flops(b, s)
    return serial(
        products=layer_compute(llm, b * s, square, gpu, "2 P b s + 4 b s^2 H d"),
        scores=gpu.read(SCORE * b * llm.eager_scores(s), "H s^2 scores, eager"),
    )
