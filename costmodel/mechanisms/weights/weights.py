"""Weights streamed layer by layer: how they come to the GPU, what they do there.

Symbols: b batch, s prompt, L layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from nearkv.costmodel.algebra.compose import overlap, serial, stream
from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.mechanisms.near_storage.offload import (
    FileStorage,
    Path,
    arriving_head,
    prefill_compute,
    unpacked_bytes,
    update_state,
)
from nearkv.costmodel.mechanisms.weights.residency import Residency
from nearkv.costmodel.model.layers import over_layers
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import Gpu, Host, Link, gpu, host, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine


@dataclass(frozen=True)
class WeightStream:
    """The layers of a model on one GPU, each layer's weights coming from where they live.

    Attributes:
        llm: what runs.
        gpu, host, link: the GPU, its host and the link between them.
        home: where the weights live.
        storage: the ports from storage to the host.
    """

    llm: LLM
    gpu: Gpu
    host: Host
    link: Link
    home: Residency
    storage: Path

    def load(self, amount: Real) -> Span:
        """Bring weights to the GPU from host DRAM, or from storage by its own path.

        Args:
            amount: weights, wherever they live [B].
        """
        stored = self.home.storage * amount
        in_dram = self.home.host * amount
        return overlap(
            storage=stream(stored, "weights on storage", **self.storage),
            dram=self.host.read(in_dram, "weights in DRAM"),
            link=self.over_link(amount),
        )

    def over_link(self, amount: Real) -> Span:
        """Weights that are not on the GPU, over the link to it.

        Args:
            amount: weights, wherever they live [B].
        """
        streamed = (1 - self.home.gpu) * amount
        return self.link.inward(streamed, "weights")

    def attention_weights(self, tokens: Real) -> Real:
        """W_a: Q, K, V and output matrices of a layer; none for no token [B]."""
        whole = self.llm.attention_parameters * self.llm.attention_width
        return np.minimum(tokens, 1.0) * whole

    def feed_forward_weights(self, tokens: Real) -> Real:
        """W_m: the others that a step over so many tokens uses, of an MoE its experts' [B]."""
        return self.llm.layer_weight_bytes(tokens) - self.attention_weights(tokens)

    def projections(self, tokens: Real) -> Span:
        """Q, K, V and output projections of one layer on the GPU, for tokens of one GPU batch."""
        llm = self.llm
        weights = self.attention_weights(tokens)
        flops = llm.qkv_flops(tokens) + llm.output_flops(tokens)
        operand, _ = llm.operands
        return self._products(weights, llm.attention_width, operand, flops)

    def feed_forward(self, tokens: Real) -> Span:
        """The feed-forward products of one layer on the GPU, for tokens of one GPU batch."""
        llm = self.llm
        weights = self.feed_forward_weights(tokens)
        flops = llm.ffn_flops(tokens)
        _, operand = llm.operands
        return self._products(weights, llm.weight_width, operand, flops)

    def _products(self, weights: Real, width: Real, operand: Real, flops: Real) -> Span:
        """Products of weights [B] so wide [B], unpacked first where they are too narrow."""
        unpacked = unpacked_bytes(weights, width, operand, self.gpu)
        read = weights + unpacked
        run = self.gpu.products(operand)
        return overlap(
            hbm=self.gpu.read(read, "weights once a GPU batch"),
            compute=run(flops, "2 FLOPs a weight and token"),
        )

    def layer(self, b: Real, **attention: Span) -> Span:
        """One layer of a step over one GPU batch, each half's weights loaded beside the other half.

        Source: FlexGen's loop (`mechanisms.flexgen_loop`), which HILOS and INF² extend; HILOS
        sec. 5: a prefetcher stages weights.

        Args:
            b: sequences [1].
            attention: what the attention half does after its projections, one after the other.
        """
        feed_forward_weights = self.load(self.feed_forward_weights(b))
        attention_weights = self.load(self.attention_weights(b))
        attend = serial(projections=self.projections(b), **attention)
        products = self.feed_forward(b)
        return serial(
            attention=overlap(weights=feed_forward_weights, attend=attend),
            feed_forward=overlap(weights=attention_weights, products=products),
        )

    def recurrent_layer(self, b: Real) -> Span:
        """One layer of a step with a recurrent state, which stays on the GPU."""
        return self.layer(b, state=update_state(self.llm, b, self.gpu))

    def over_kinds(self, layer: Callable[[WeightStream], Span], b: Real) -> Span:
        """All layers kind by kind, then the output head for one token of each of b sequences.

        Args:
            layer: one layer of a kind, given the stream of a model whose layers are all like it.
        """

        def layer_of(kind: LLM) -> Span:
            weights = self if kind is self.llm else replace(self, llm=kind)
            return layer(weights)

        layers = over_layers(self.llm, layer_of)
        head = arriving_head(self.llm, b, self.gpu, self.load)
        return serial(layers=layers, head=head)

    def prefill_layer(self, work: Workload, b: Real, **caches: Span) -> Span:
        """One layer over the prompts of b sequences, weights and compute beside the caches."""
        weights = self.llm.layer_weight_bytes(b * work.prompt)
        return overlap(
            weights=self.load(weights),
            compute=prefill_compute(self.llm, work, b, self.gpu),
            **caches,
        )


def weights_from_files(
    hw: Machine, llm: LLM, home: Residency, drives: FileStorage
) -> WeightStream:
    """Weights that are not on the GPU arrive layer by layer, those on the drives as files."""
    return WeightStream(
        llm=llm,
        gpu=gpu(hw),
        host=host(hw),
        link=link(hw, "gpu_link", "pcie"),
        home=home,
        storage=drives.read,
    )
