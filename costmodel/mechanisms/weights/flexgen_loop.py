"""FlexGen's decode loop over layers and GPU batches (its `flex_opt.py`; ICML 2023, sec. 4.1).

A layer is an attention half and a feed-forward half; a copy runs beside the computation of one
half of one GPU batch, then all wait for each other. Weights of the next half come beside its first
batch, the cache of the next batch beside each batch.

With one GPU batch the next half's weights hide behind reads and attention, which take turns:
max(W_a, R) + max(W_m, C). With many, reads overlap attention and the weights are exposed:
W_a + W_m + max(R, C), the rows of FlexGen's published cost model (`mechanisms.weights.placement`).

Symbols: n GPU batches, W_a and W_m weights of the halves, R reading the cache, C attending to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.compose import overlap, serial, stream
from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.mechanisms.weights.cpu_attention import (
    attend_on_cpu,
    exchange_with_cpu,
)
from nearkv.costmodel.mechanisms.weights.streaming import FileStorage, WeightStream
from nearkv.costmodel.model.latent import Latent
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.resources import Link, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

ATTENDS = ("full", "window", "chunk", "latent", "state")
"""Attention that the loop models type by type."""
LACKS = {
    "sparse": "gathering chosen rows from host memory or drives is not timed",
    "borrowed": "where the earlier layer's cache stays meanwhile is not known",
}
"""Why it models no other attention."""


@dataclass(frozen=True)
class DecodeLoop:
    """One layer of a decode step, its attention on the CPU.

    Attributes:
        hw: roles gpu_link, host.
        weights: the model, its GPU and how its weights arrive.
        b: sequences of all GPU batches [1].
        s: context [1].
        batches: GPU batches, n, at least one [1].
        stored: share of the KV cache on the drives [1].
        drives: the ports from the drives to host memory and back.
    """

    hw: Machine
    weights: WeightStream
    b: Real
    s: Real
    batches: Real
    stored: Real
    drives: FileStorage

    def layer(self) -> Span:
        """The attention half of all GPU batches, then their feed-forward half."""
        if isinstance(self.weights.llm, Recurrent):
            return self.weights.recurrent_layer(self.b)
        # 0 with one GPU batch, 1 with more: the loop has another shape then
        several = np.minimum(self.batches - 1, 1.0)
        middle = np.maximum(self.batches - 2, 0.0)
        read, attend = self.read_cache(), self.attend()
        weights, products = self.weights, self.feed_forward()
        attention_weights = weights.load(weights.attention_weights(self.b))
        feed_forward_weights = weights.load(weights.feed_forward_weights(self.b))
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
                    write_cache=self._write_cache(),
                ),
                middle=middle * products,
                last=several * overlap(read_cache=read, products=products),
            ),
        )

    # --- one GPU batch ------------------------------------------------------------------------

    @property
    def sequences(self) -> Real:
        """Sequences of one GPU batch [1]."""
        return self.b / self.batches

    def read_cache(self) -> Span:
        """Keys and values on the drives, of one GPU batch (HILOS eq. 3: 4sh a sequence)."""
        kv = self.weights.llm.kv_bytes(self.sequences, self.s)
        return stream(self.stored * kv, "4sh, eq. 3", **self.drives.read)

    def _write_cache(self) -> Span:
        """Keys and values of the new token, of all GPU batches (HILOS eq. 3: 4h a sequence)."""
        new = self.weights.llm.kv_bytes(self.b, 1)
        return stream(self.stored * new, "4h, eq. 3", **self.drives.write)

    def attend(self) -> Span:
        """Projections on the GPU, Q, K, V to the CPU and its result back, attention there."""
        llm, tokens, host = self.weights.llm, self.sequences, self.weights.host
        return serial(
            projections=self.weights.projections(tokens),
            exchange=exchange_with_cpu(llm, tokens, self.weights.link),
            attend=attend_on_cpu(self.hw, llm, tokens, self.s, host),
        )

    def feed_forward(self) -> Span:
        """Feed-forward products of one GPU batch on the GPU."""
        return self.weights.feed_forward(self.sequences)


@dataclass(frozen=True)
class LatentLoop(DecodeLoop):
    """The loop over latents, which come to the GPU as FlexGen's cache does without a CPU's help.

    Absorbed attention multiplies each cached element with every head, 242 times in DeepSeek-V3;
    the rate of a CPU at that is not known. The cache is not pinned: `derate.pageable` inward,
    `derate.cache_relay` outward.
    """

    def read_cache(self) -> Span:
        """Latents of one GPU batch to the GPU, those on the drives through host memory."""
        latents = self.weights.llm.kv_bytes(self.sequences, self.s)
        eq = "(r + dr) s elements"
        return overlap(
            drives=stream(self.stored * latents, eq, **self.drives.read),
            dram=self.weights.host.read(latents, eq),
            link=self._unpinned("pageable").inward(latents, eq),
        )

    def attend(self) -> Span:
        """Projections and absorbed attention of one GPU batch; its new rows leave the GPU."""
        llm, tokens, device = self.weights.llm, self.sequences, self.weights.gpu
        new = llm.kv_bytes(tokens, 1)
        return serial(
            projections=self.weights.projections(tokens),
            new_rows=self._unpinned("cache_relay").outward(new, "(r + dr) elements"),
            attend=overlap(
                hbm=device.read(llm.cache_traffic(tokens, self.s), "latents"),
                compute=device.run(
                    llm.attention_flops(tokens, self.s), "2 b s H (2 r + dr)"
                ),
            ),
        )

    def _unpinned(self, derate: str) -> Link:
        return link(self.hw, "gpu_link", derate)


def decode_layer(
    hw: Machine,
    weights: WeightStream,
    work: Workload,
    b: Real,
    batches: Real,
    stored: Real,
    drives: FileStorage,
) -> Span:
    """One layer of a step of b sequences; the CPU attends to heads, the GPU to latents.

    Args:
        hw, weights, batches, stored, drives: as in `DecodeLoop`.
        work: for the context.
        b: sequences of all GPU batches [1].
    """
    loop = LatentLoop if isinstance(weights.llm, Latent) else DecodeLoop
    return loop(hw, weights, b, work.context, batches, stored, drives).layer()
