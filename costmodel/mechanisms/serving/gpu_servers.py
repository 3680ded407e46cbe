"""Decode steps and prompts of GPUs that share a model.

Symbols: n decoding sequences, p tokens of a prefix that all share, kappa bytes of KV cache for a
token in all L layers, D hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from nearkv.costmodel.algebra.span import Port, Real, Span, overlap, quotient, serial, wait
from nearkv.costmodel.mechanisms.gpu_layer import output_head, prompt_kernel
from nearkv.costmodel.mechanisms.serving.collectives import hand_over
from nearkv.costmodel.mechanisms.serving.experts import through
from nearkv.costmodel.mechanisms.serving.parallel import (
    chunks_each,
    copies,
    decode_attention,
    gpu_attention,
    linear,
    prefill_attention,
)
from nearkv.costmodel.mechanisms.serving.shared_prefix import SharedPrefix
from nearkv.costmodel.mechanisms.serving.split import GpuSplit
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import gpu, link
from nearkv.costmodel.model.workload import Load, over_layer_types
from nearkv.hardware.machine import Machine


@dataclass(frozen=True)
class GpuServers:
    """The GPUs at work.

    Attributes:
        hw: the machine with them.
        llm: the model.
        split: how they share it.
        mtp: tokens drafted for each sequence in a pass [1].
        accepted: share of them that the next pass keeps [1].
        weights: of the model, with what drafts, on all of them or offloaded [B].
        offloaded: those of them in host memory [B].
        chunk: tokens of a prompt in one pass, 0 for all [1].
        prefix: what all requests share, if anything.
        behind: flash behind the memory of the GPUs, where weights and prefix lie there [B].
    """

    hw: Machine
    llm: LLM
    split: GpuSplit
    mtp: Real
    accepted: Real
    weights: Real
    offloaded: Real
    chunk: Real
    prefix: SharedPrefix | None
    behind: Port | None

    def iteration(self, load: Load) -> Span:
        """One token more for every sequence, and the prompts beside them.

        A pass checks the mtp drafts of a sequence beside its own token, and gives
        1 + mtp accepted. A draft costs a layer more, an average one, and the output head.
        """
        llm, each = self.llm, 1 + self.mtp
        tokens = each * load.sequences + load.prompt
        one_pass = serial(
            layers=over_layer_types(llm, load, partial(self.layer, each=each)),
            hand_over=hand_over(self.hw, llm, self.split, tokens),
        )
        if np.any(self.mtp):
            layers = over_layer_types(llm, load, partial(self.layer, each=1.0))
            head = output_head(llm, load.sequences, gpu(self.hw))
            draft = serial(layer=(1 / llm.layers) * layers, head=head)
            one_pass = serial(verify=one_pass, draft=self.mtp * draft)
        return (1 / (1 + self.mtp * self.accepted)) * one_pass

    def layer(self, layer_type: LLM, load: Load, each: Real) -> Span:
        """One layer of an iteration: one micro-batch a stage keeps every stage busy.

        Args:
            layer_type: a model of such layers.
            load: what the iteration carries.
            each: tokens of every sequence [1].
        """
        split, n = self.split, load.sequences
        passes = split.micro_batches(n)
        waiting = split.waiting(passes, self.llm.layers)
        longest = np.maximum(split.alone(n), split.fullest(self.llm.layers))
        busy, attending = load.share(waiting), load.share(longest)
        decoded = each * busy.sequences
        visits = np.minimum(n / split.replicas, 1.0) * waiting * passes
        return serial(
            linear=self.products(
                layer_type, decoded + busy.prompt, waiting * passes, decoded
            ),
            attention=decode_attention(
                self.hw, self.llm, attending, layer_type, split, each
            ),
            prefill=prefill_attention(self.hw, layer_type, busy.squares),
            **self.attend_to_prefix(layer_type, visits, each * longest * n, busy.prompt),
        )

    def attend_to_prefix(
        self, layer_type: LLM, visits: Real, decoded: Real, prompt: Real
    ) -> dict[str, Span]:
        """Attention of one layer to the shared prefix, whose K and V all sequences read together.

        Their queries are the rows of one product, as those of a prompt are.

        Args:
            layer_type: a model of such layers.
            visits: times that each replica reads the prefix [1].
            decoded: tokens that decode, over all replicas [1].
            prompt: tokens of prompts, over all replicas [1].
        """
        prefix = self.prefix
        if prefix is None:
            return {}
        kept = self.split.replicas * copies(layer_type, self.split.attention_tp)
        memory = gpu_attention(self.hw, layer_type.kv_width)
        rows = kept * visits * prefix.read_bytes(layer_type)
        flops = decoded * prefix.step_flops(layer_type)
        flops = flops + prompt * prefix.prompt_flops(layer_type)
        attention = overlap(
            read=through(memory, self.behind, rows, "kappa p / L, once for all sequences"),
            compute=prompt_kernel(self.hw, layer_type)(flops, "4 D p for every token"),
        )
        return {"shared": attention}

    def prefill(self, prompts: Real, load: Load) -> Span:
        """Prompts alone, one after the other on every replica, chunk by chunk.

        A sequence lies on one replica, and with `attention=dp` on one GPU of it: where fewer come
        than there are, the others take part in what they share alone.
        """
        waiting = self.split.waiting(prompts / self.split.dp, self.llm.layers)
        chunks = chunks_each(prompts, load, self.chunk)
        present = np.minimum(prompts, 1.0)
        idle = np.maximum(quotient(self.split.dp * present, prompts), 1.0)
        passes = waiting * chunks * idle * prompts / self.split.dp
        alone = np.maximum(self.split.alone(prompts), waiting)

        def layer(layer_type: LLM, seen: Load) -> Span:
            busy, own = seen.share(waiting), (alone - waiting * idle) * seen.prompt
            projected = layer_type.qkv_flops(own) + layer_type.output_flops(own)
            attended = alone * seen.squares
            visits = chunks * alone * prompts / self.split.replicas
            return serial(
                linear=self.products(
                    layer_type, busy.prompt, passes, waiting * prompts, idle
                ),
                projections=gpu(self.hw).run(projected, "of sequences that no GPUs share"),
                attention=prefill_attention(self.hw, layer_type, attended),
                **self.attend_to_prefix(layer_type, visits, 0.0, alone * seen.prompt),
            )

        return serial(
            layers=over_layer_types(self.llm, load, layer),
            hand_over=hand_over(self.hw, self.llm, self.split, load.prompt),
        )

    def products(
        self, layer_type: LLM, tokens: Real, passes: Real, logits: Real, idle: Real = 1.0
    ) -> Span:
        """Products of one layer; weights in host memory come first, as nothing prefetches them.

        Args:
            layer_type: a model of such layers.
            tokens: computed, over all replicas [1].
            passes: times that a replica reads the weights [1].
            logits, idle: as of `linear`.
        """
        on_gpu = linear(
            self.hw,
            self.llm,
            tokens,
            passes,
            layer_type,
            logits=logits,
            split=self.split,
            idle=idle,
            behind=self.behind,
        )
        if self.behind:
            return serial(
                chosen=self.until_chosen(layer_type, tokens, passes), on_gpu=on_gpu
            )
        if "gpu_link" not in self.hw.roles:
            return on_gpu
        each = quotient(tokens / self.split.dp, passes)
        replicas = self.split.dp * (self.offloaded / self.weights)
        moved = replicas * passes * layer_type.layer_weight_bytes(each)
        rate = "pcie" if "pcie" in self.hw.derate else "link"
        pcie = link(self.hw, "gpu_link", rate).inward
        return serial(offloaded=pcie(moved, "weights in host memory"), on_gpu=on_gpu)

    def until_chosen(self, layer_type: LLM, tokens: Real, passes: Real) -> Span:
        """Wait for the first read of a layer's experts, which no one knows before the router."""
        visits = passes * np.minimum(tokens / self.split.dp, 1.0) / self.split.pp
        return wait(
            "hbf.latency",
            layer_type.is_moe * visits * self.hw.hbf.latency,
            "experts of a layer",
        )
