"""One layer on the cores of the host: products, attention and experts, from DRAM or from drives.

Source: KTransformers, doc/en/AMX.md (kernels by instruction set, experts fused into two tasks a
layer); llama.cpp, ggml-cpu (operators one after the other, a barrier behind each).

Symbols: t tokens, k active experts, E experts, h hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import (
    Port,
    Real,
    Span,
    choose,
    overlap,
    serial,
    stream,
    wait,
)
from nearkv.costmodel.mechanisms.gpu_layer import (
    launches,
    output_head,
    prompt_attention_flops,
)
from nearkv.costmodel.mechanisms.serving.experts import without_experts
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import Gpu, drives, link, page_cache
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

NATIVE_BYTES = 2.0
"""Width from which on weights are multiplied as they are stored, at `flops_cycle` [B]."""


def processor(hw: Machine, width: Real) -> Gpu:
    """The cores as matrix units, and their DRAM, for weights of one width.

    A core makes so many operations a cycle by its widest instructions, and a kernel reaches a share
    of them. Weights in blocks of a few bits are multiplied in 8 bits after unpacking, which costs
    both products (`packed_gemm`) and reading (`packed_dram`) a part of their rate. A core reads
    what its misses in flight allow (McCalpin 2023), so few cores read less than DRAM gives.

    Args:
        hw: role host, with cores, clock, flops_cycle, ops_cycle, core_read.
        width: of a weight, or of an element of the KV cache [B].
    """
    part = hw.host
    packed = width % 1.0 > 0
    operations = np.where(width >= NATIVE_BYTES, part.flops_cycle, part.ops_cycle)
    products = np.where(packed, part.packed_gemm, part.cpu_gemm)
    reading = np.where(packed, part.packed_dram, part.dram_read)
    rate = part.count * part.cores * part.clock * operations * products
    read = np.minimum(part.bandwidth * reading, part.cores * part.core_read)
    return Gpu(
        run=Port("host.cores", "run", rate[()], "FLOP"),
        read=Port("host.dram", "read", (part.count * read)[()]),
        memory=part.count * part.memory,
    )


def where_pages_lie(hw: Machine, numa: Real) -> Machine:
    """The machine with the DRAM of one socket, where the pages of all weights lie on it.

    Args:
        hw: role host.
        numa: as of `Cores`.
    """
    divided = choose(numa == 2, hw.host.maybe("sockets", 1.0), 1.0)
    of_one = {key: hw.host[key] / divided for key in ("bandwidth", "memory")}
    return hw.with_values({f"host.{key}": value for key, value in of_one.items()})


@dataclass(frozen=True)
class TokenChunks:
    """Tokens that pass a layer in equal chunks, each of which reads the weights.

    Attributes:
        tokens: computed [1].
        count: of the chunks [1].
    """

    tokens: Real
    count: Real = 1.0

    @property
    def each(self) -> Real:
        """Tokens of a chunk [1]."""
        return self.tokens / self.count

    @property
    def begun(self) -> Real:
        """Chunks that have any token [1]."""
        return self.count * np.minimum(self.each, 1.0)


@dataclass(frozen=True)
class Cores:
    """The cores of a host at work on layers.

    Attributes:
        hw: role host; ssd and ssd_link where experts may lie on drives.
        numa: 0 where sockets read each other's memory, 1 where each has a copy of its own, 2 where
            one has all pages (`where_pages_lie`).
        cached: share of the reads of drives that pass the page cache [1].
    """

    hw: Machine
    numa: Real = 1.0
    cached: Real = 0.0

    @property
    def sockets(self) -> Real:
        """Sockets, each with DRAM of its own [1]."""
        return self.hw.host.maybe("sockets", 1.0)

    @property
    def remote_share(self) -> Real:
        """Share of what a socket reads that lies in the memory of another [1].

        Where one has all, the others read all over their links.
        """
        of_others = 1 - 1 / self.sockets
        on_one = np.where(self.numa == 2, self.sockets > 1, 0.0)
        share: Real = np.where(self.numa == 0, of_others, on_one)
        return share

    @property
    def copies(self) -> Real:
        """Copies of the weights in DRAM, one a socket where none reads remotely [1]."""
        return choose(self.numa == 1, self.sockets, 1.0)

    def products(self, weights: Real, width: Real, flops: Real) -> Span:
        """Products with weights in DRAM.

        Args:
            weights: read [B].
            width: of one of them [B].
            flops: two a weight and token [FLOP].
        """
        cores, part = processor(self.hw, width), self.hw.host
        into_each = part.maybe("socket_link", np.inf)
        across = Port("host.sockets", "move", part.count * self.sockets * into_each)
        return overlap(
            weights=cores.read(weights, "weights in DRAM"),
            remote=across(self.remote_share * weights, "from other sockets"),
            compute=cores.run(flops, "2 FLOPs a weight and token"),
        )

    def dense(self, llm: LLM, work: TokenChunks, attention: Span) -> Span:
        """One layer without the routed experts of an MoE.

        Args:
            llm: a model whose layers are all like it.
            work: what passes the layer.
            attention: of its tokens.
        """
        layer = without_experts(llm)
        weights = work.count * layer.layer_weight_bytes(work.each)
        flops = layer.linear_flops(work.tokens)
        return serial(
            products=self.products(weights, llm.weight_width, flops),
            attention=attention,
            launch=self.launch(work.begun * launches(self.hw, llm)),
        )

    def experts(self, llm: LLM, work: TokenChunks, beyond: Real = 0.0) -> Span:
        """The routed experts of one layer of an MoE.

        Args:
            llm, work: as of `dense`.
            beyond: most chosen experts, which are computed elsewhere [1].
        """
        weights = expert_bytes(llm, work, beyond)
        copies = work.tokens * llm.distinct_experts(1.0, beyond)
        flops = 2 * copies * llm.expert_parameters
        return llm.is_moe * self.products(weights, llm.weight_width, flops)

    def layer(self, llm: LLM, work: TokenChunks, attention: Span, held: Real) -> Span:
        """One layer, all of it.

        Args:
            llm, work, attention: as of `dense`.
            held: share of the experts that DRAM holds, the most chosen ones [1].
        """
        return serial(
            dense=self.dense(llm, work, attention),
            drives=self.from_drives(llm, work, held),
            experts=self.experts(llm, work),
        )

    def attention(self, llm: LLM, b: Real, s: Real) -> Span:
        """Attention of one token of b sequences to a cache of s tokens in DRAM, vectorised."""
        cores = processor(self.hw, llm.kv_width)
        return overlap(
            cache=cores.read(llm.cache_traffic(b, s), "KV cache"),
            compute=self._native.run(llm.attention_flops(b, s), "4 b s H d"),
        )

    def prompt_attention(self, llm: LLM, work: Workload) -> Span:
        """Causal attention of all prompts."""
        flops = prompt_attention_flops(llm, work.batch, work.prompt, work.before)
        return self._native.run(flops, "2 b s^2 H d")

    def head(self, llm: LLM, b: Real) -> Span:
        """Logits of one token of each of b sequences."""
        return output_head(llm, b, processor(self.hw, llm.embedding_width))

    def launch(self, layers: Real) -> Span:
        """Hand-over of layers to the cores, and the barriers between their operators."""
        return wait("host.launch", layers * self.hw.host.launch, "operators of a layer")

    def from_drives(self, llm: LLM, work: TokenChunks, held: Real) -> Span:
        """Experts in use that no memory holds, read whole, each matrix by one read.

        The most chosen experts are held, as a cache that counts uses keeps them. A stated hit rate
        is of a model that GPU memory and DRAM do not hold as a whole.

        Args:
            llm, work: as of `dense`.
            held: share of the experts that GPU memory and DRAM hold [1].
        """
        hw = self.hw
        if "ssd" not in hw.roles:
            return serial()
        missed = self.missed(llm, work, held)
        matrix = llm.hidden * llm.ffn * llm.weight_width
        flash, lanes = drives(hw, "ssd"), link(hw, "ssd_link", "pcie")
        direct = flash.read.with_rate(hw.derate.expert_reads * flash.read.rate)
        commands = Port(
            "ssd.commands", "run", hw.ssd.count * hw.ssd.maybe("iops", np.inf), "op"
        )
        return overlap(
            data=stream(missed, "experts on drives", flash=direct, link=lanes.inward),
            **self.through_page_cache(missed),
            commands=commands(missed / matrix, "one read a matrix"),
        )

    def through_page_cache(self, missed: Real) -> dict[str, Span]:
        """Reads of drives [B] that are buffered, where any are."""
        if not np.any(self.cached):
            return {}
        buffered = page_cache(self.hw, "ssd")
        return {"page_cache": buffered(self.cached * missed, "through the page cache")}

    def missed(self, llm: LLM, work: TokenChunks, held: Real) -> Real:
        """Bytes of experts in use in one layer that no memory holds; arguments as above [B]."""
        missed = llm.is_moe * expert_bytes(llm, work, held * llm.experts)
        if "hit" in self.hw.router:
            stated = (1 - self.hw.router.hit) * expert_bytes(llm, work)
            missed = llm.is_moe * np.less(held, 1) * stated
        return missed

    def hit_share(self, llm: LLM, work: TokenChunks, held: Real) -> Real:
        """Share of the experts' bytes in use that memories hold; NaN without experts [1]."""
        used = llm.sum_over_layers(lambda kind: kind.is_moe * expert_bytes(kind, work))
        missed = llm.sum_over_layers(lambda kind: self.missed(kind, work, held))
        some = np.where(used > 0, used, np.nan)
        return (1 - missed / some)[()]

    @property
    def _native(self) -> Gpu:
        return processor(self.hw, NATIVE_BYTES)


def expert_bytes(llm: LLM, work: TokenChunks, beyond: Real = 0.0) -> Real:
    """Weights of the routed experts in use in one layer, but for the most chosen ones [B]."""
    distinct = work.begun * llm.distinct_experts(work.each, beyond)
    return distinct * llm.expert_parameters * llm.weight_width
