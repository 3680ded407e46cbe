"""One layer on the cores of the host: products, attention and experts, from DRAM or from drives.

Source: KTransformers, doc/en/AMX.md (kernels by instruction set, experts fused into two tasks a
layer); llama.cpp, ggml-cpu (operators one after the other, a barrier behind each).

Symbols: t tokens, k active experts, E experts, h hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.compose import overlap, serial, stream
from nearkv.costmodel.algebra.span import Port, Real, Span
from nearkv.costmodel.mechanisms.gpu_layer import output_head
from nearkv.costmodel.mechanisms.serving.experts import without_experts
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import Gpu, drives, link
from nearkv.hardware.machine import Machine

NATIVE = 2.0
"""Width from which on weights are multiplied as they are stored, at `flops_cycle` [B]."""


def processor(hw: Machine, width: Real) -> Gpu:
    """The cores as matrix units, and their DRAM, for weights of one width.

    A core makes so many operations a cycle by its widest instructions, and a kernel reaches a share
    of them. Weights in blocks of a few bits are multiplied in 8 bits after unpacking, which costs
    both products (`derate.packed_gemm`) and reading (`derate.packed_dram`) a part of their rate.

    Args:
        hw: role host, with cores, clock, flops_cycle, ops_cycle.
        width: of a weight, or of an element of the KV cache [B].
    """
    part, reached = hw.host, hw.derate
    packed = np.mod(width, 1.0) > 0
    operations = np.where(np.greater_equal(width, NATIVE), part.flops_cycle, part.ops_cycle)
    products = np.where(packed, reached.packed_gemm, reached.cpu_gemm)
    reading = np.where(packed, reached.packed_dram, reached.dram_read)
    rate = part.count * part.cores * part.clock * operations * products
    return Gpu(
        run=Port("host.cores", "run", rate[()], "FLOP"),
        read=Port("host.dram", "read", (part.count * part.bandwidth * reading)[()]),
        memory=part.count * part.memory,
    )


@dataclass(frozen=True)
class Cores:
    """The cores of a host at work on layers.

    Attributes:
        hw: role host; ssd and ssd_link where experts may lie on drives.
        remote: 1 where sockets read each other's memory, 0 where each has a copy of its own.
        cached: share of the reads of drives that pass the page cache [1].
    """

    hw: Machine
    remote: Real = 0.0
    cached: Real = 0.0

    @property
    def remote_share(self) -> Real:
        """Share of what a socket reads that lies in the memory of another [1]."""
        return self.remote * (1 - 1 / self.hw.host.maybe("sockets", 1.0))

    @property
    def copies(self) -> Real:
        """Copies of the weights in DRAM, one a socket where none reads remotely [1]."""
        return self.remote + (1 - self.remote) * self.hw.host.maybe("sockets", 1.0)

    def products(self, weights: Real, width: Real, flops: Real) -> Span:
        """Products with weights in DRAM.

        Args:
            weights: read [B].
            width: of one of them [B].
            flops: two a weight and token [FLOP].
        """
        cores, part = processor(self.hw, width), self.hw.host
        sockets = part.maybe("sockets", 1.0)
        rate = part.count * sockets * part.maybe("socket_link", np.inf)
        across = Port("host.sockets", "move", rate)
        return overlap(
            weights=cores.read(weights, "weights in DRAM"),
            remote=across(self.remote_share * weights, "(S - 1) / S from other sockets"),
            compute=cores.run(flops, "2 FLOPs a weight and token"),
        )

    def dense(self, llm: LLM, tokens: Real, passes: Real, attention: Span) -> Span:
        """One layer without the routed experts of an MoE.

        Args:
            llm: a model whose layers are all like it.
            tokens: computed [1].
            passes: equal parts of them, each of which reads the weights [1].
            attention: of these tokens.
        """
        layer = without_experts(llm)
        weights = passes * layer.layer_weight_bytes(tokens / passes)
        return serial(
            products=self.products(weights, llm.weight_width, layer.linear_flops(tokens)),
            attention=attention,
            launch=self.launch(passes * np.minimum(tokens, 1.0)),
        )

    def experts(self, llm: LLM, tokens: Real, passes: Real, beyond: Real = 0.0) -> Span:
        """The routed experts of one layer of an MoE, but for the most chosen ones.

        Args:
            llm, tokens, passes: as of `dense`.
            beyond: experts that are computed elsewhere [1].
        """
        weights = expert_bytes(llm, tokens, passes, beyond)
        copies = tokens * llm.distinct_experts(1.0, beyond)
        return llm.is_moe * self.products(
            weights, llm.weight_width, 2 * copies * llm.expert_parameters
        )

    def layer(
        self, llm: LLM, tokens: Real, passes: Real, attention: Span, held: Real
    ) -> Span:
        """One layer, all of it.

        Args:
            llm, tokens, passes, attention: as of `dense`.
            held: share of the experts that DRAM holds, the most chosen ones [1].
        """
        return serial(
            dense=self.dense(llm, tokens, passes, attention),
            drives=self.from_drives(llm, tokens, passes, held * llm.experts),
            experts=self.experts(llm, tokens, passes),
        )

    def attention(self, llm: LLM, b: Real, s: Real) -> Span:
        """Attention of one token of b sequences to a cache of s tokens in DRAM, vectorised."""
        cores = processor(self.hw, llm.kv_width)
        return overlap(
            cache=cores.read(llm.cache_traffic(b, s), "KV cache"),
            compute=self._native.run(llm.attention_flops(b, s), "4 b s H d"),
        )

    def prompt_attention(self, llm: LLM, b: Real, prompt: Real) -> Span:
        """Causal attention of b prompts."""
        return self._native.run(llm.prefill_attention_flops(b, prompt), "2 b s^2 H d")

    def head(self, llm: LLM, b: Real) -> Span:
        """Logits of one token of each of b sequences."""
        return output_head(llm, b, processor(self.hw, llm.embedding_width))

    def launch(self, layers: Real) -> Span:
        """Hand-over of layers to the cores, and the barriers between their operators."""
        wait = Port("host.launch", "wait", 1.0, "s")
        return wait(layers * self.hw.host.launch, "operators of a layer")

    def from_drives(self, llm: LLM, tokens: Real, passes: Real, held: Real) -> Span:
        """Experts in use that no memory holds, read whole, each matrix by one read.

        Args:
            llm, tokens, passes: as of `dense`.
            held: most chosen experts of a layer that GPU memory and DRAM hold [1].
        """
        if "ssd" not in self.hw.roles:
            return serial()
        flash, lanes = drives(self.hw, "ssd"), link(self.hw, "ssd_link", "pcie")
        reached = self.hw.derate.expert_reads
        missed = llm.is_moe * missed_bytes(self.hw, llm, tokens, passes, held)
        matrices = missed / (llm.hidden * llm.ffn * llm.weight_width)
        commands = self.hw.ssd.count * self.hw.ssd.maybe("iops", np.inf)
        reads = Port("ssd.commands", "run", commands, "op")
        buffered = Port("host.file", "move", self.hw.host.count * self.hw.host.file_read)
        direct = Port("ssd.flash", "read", reached * flash.read.rate)
        return overlap(
            data=stream(missed, "experts on drives", flash=direct, link=lanes.inward),
            page_cache=buffered(self.cached * missed, "through the page cache"),
            commands=reads(matrices, "one read a matrix"),
        )

    @property
    def _native(self) -> Gpu:
        return processor(self.hw, NATIVE)


def expert_bytes(llm: LLM, tokens: Real, passes: Real, beyond: Real = 0.0) -> Real:
    """Weights of the routed experts in use in one layer, but for the most chosen ones [B]."""
    each = tokens / passes
    distinct = passes * np.minimum(each, 1.0) * llm.distinct_experts(each, beyond)
    return distinct * llm.expert_parameters * llm.weight_width


def missed_bytes(hw: Machine, llm: LLM, tokens: Real, passes: Real, held: Real) -> Real:
    """Experts in use that lie on drives alone, by capacity or by the stated hit rate [B].

    The most chosen experts are held, as a cache that counts uses keeps them.
    """
    if "hit" in hw.router:
        return (1 - hw.router.hit) * expert_bytes(llm, tokens, passes)
    return expert_bytes(llm, tokens, passes, held)
