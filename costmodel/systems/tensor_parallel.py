"""One replica of GPUs that serves a batch: tensor parallel over all of them (Megatron-LM, sec. 3).

Symbols: b batch, s context, L layers, tp GPUs, Hkv KV heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.compose import overlap, serial
from nearkv.costmodel.algebra.span import Port, Real, Span
from nearkv.costmodel.mechanisms.gpu_layer import layer_compute, output_head
from nearkv.costmodel.mechanisms.serving.experts import grouped_products, without_experts
from nearkv.costmodel.mechanisms.serving.parallel import (
    copies,
    ring,
    sequence_bytes,
    undivided,
)
from nearkv.costmodel.model.capacity import fits
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.layers import LAYER_CLASS, over_layers
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, system
from nearkv.costmodel.model.resources import Gpu, gpu, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

UNLINKED = "GPUs beyond nvlink.count have no links and take no part; set both counts"

MTP = Knob(
    "multi-token prediction: its layer drafts a token, which the next pass checks (DeepSeek-V3)",
    high=1,
    default=0,
    kind="choice",
    choices=("off", "on"),
)
ACCEPTED = Knob(
    "share of drafted tokens that are accepted, 0.85 to 0.9 (DeepSeek-V3, sec. 5.4.3)",
    low=0,
    high=1,
    default=0.85,
    kind="number",
)
NO_DRAFTS = "the model has no layers of multi-token prediction"


@system(
    "tensor-parallel",
    platform="hgx-h200",
    cite="vllm",
    owns=("gpu", "host"),
    knobs={"mtp": MTP, "accepted": ACCEPTED},
    attends=tuple(LAYER_CLASS),
    reversals=(ring("gpu.count", "nvlink.count"),),
)
def tensor_parallel(
    hw: Machine, llm: LLM, work: Workload, *, mtp: Real, accepted: Real
) -> Estimate:
    """Weights and paged KV cache sharded over all GPUs, the batch cut to what fits.

    Every GPU keeps whole KV heads: where tp exceeds them, heads are replicated, in memory and in
    what attention reads; a latent, which all heads share, on every GPU. Part of the memory is kept
    free for activations and graphs.

    Args:
        hw: roles gpu, nvlink (count: one set a GPU; GPUs without one take no part), fabric between
            nodes (count: GPUs of a node, an adapter each; without it all are in one node).
        llm, work: what runs.
        mtp: tokens drafted for each sequence in a step [1].
        accepted: share of them that the step keeps [1].

    Returns:
        Prefill, one decode step and what fits, over all rounds of the reduced batch.
        Source: Shoeybi et al. 2019, sec. 3 (two all-reduces per layer); Kwon et al., SOSP 2023,
        sec. 4 (the paged cache).
    """
    tp = np.minimum(hw.gpu.count, hw.nvlink.count)
    beyond = np.greater(hw.gpu.count, tp)
    hw = hw.with_values({"gpu.count": tp, "nvlink.count": tp})
    replica = Replica(hw, gpu(hw))
    sequence = llm.sum_over_layers(
        lambda layer_type: sequence_bytes(layer_type, tp, work.final)
    ) * (1 + mtp * llm.mtp_layers / llm.layers)
    weights = llm.weight_bytes + mtp * llm.mtp_parameters * llm.weight_width
    usable = hw.derate.paged_memory * replica.gpus.memory
    fitting = np.floor((usable - weights) / sequence)
    b = np.clip(fitting, 1.0, np.maximum(work.batch, 1.0))
    rounds = work.batch / b
    held = {"weights": weights, "KV cache and states": b * sequence}
    step = replica.step(llm, b, work.context, 1.0 + mtp)
    if np.any(mtp):
        # a draft costs a layer more, an average one, and the output head
        head = output_head(llm, b, replica.gpus)
        layer = (1 / llm.layers) * replica.layers(llm, b, work.context, 1.0)
        drafted = serial(verify=step, draft=mtp * serial(layer=layer, head=head))
        step = (1 / (1 + mtp * accepted)) * drafted
    prefill = serial(
        layers=over_layers(
            llm, lambda layer_type: replica.prefill(layer_type, b, work.prompt)
        ),
        head=output_head(llm, b, replica.gpus),
    )
    return Estimate(
        prefill=rounds * prefill,
        step=rounds * step,
        fits=fits(gpu=(held, usable)).without(
            undivided(llm, tp)
            | part_nodes(hw)
            | {NO_DRAFTS: np.greater(mtp, 0) & np.equal(llm.mtp_layers, 0)}
        ),
        work=work,
        batch_run=b,
        notes={UNLINKED: beyond} if np.any(beyond) else {},
    )


def part_nodes(hw: Machine) -> dict[str, NDArray[np.bool_]]:
    """Where GPUs of several nodes leave one partly empty, by the sentence that says so."""
    if "fabric" not in hw.roles:
        return {}
    gpus, of_a_node = hw.gpu.count, hw.fabric.count
    partly = np.greater(gpus, of_a_node) & (np.mod(gpus, of_a_node) > 0)
    return {"GPUs do not fill whole nodes of fabric.count": partly}


@dataclass(frozen=True)
class Replica:
    """The GPUs of one replica, working as one, and their all-reduces.

    Attributes:
        hw: the machine.
        gpus: all its GPUs.
    """

    hw: Machine
    gpus: Gpu

    def step(self, llm: LLM, b: Real, s: Real, tokens: Real) -> Span:
        """A pass over some tokens of each of b sequences [1], through all layers and the head."""
        return serial(
            layers=self.layers(llm, b, s, tokens),
            head=output_head(llm, b * tokens, self.gpus),
        )

    def layers(self, llm: LLM, b: Real, s: Real, tokens: Real) -> Span:
        """All layers of such a pass."""
        return over_layers(llm, lambda layer_type: self.decode(layer_type, b, s, tokens))

    def decode(self, llm: LLM, b: Real, s: Real, tokens: Real) -> Span:
        """One layer of a pass: products, attention, launches and two all-reduces."""
        return serial(
            products=self.products(llm, b * tokens, 1.0),
            attention=self.attention(llm, b, s, tokens),
            **self.overheads(llm, b * tokens, 1.0),
        )

    def prefill(self, llm: LLM, b: Real, prompt: Real) -> Span:
        """One layer over b prompts, one after the other."""
        flops = llm.prefill_attention_flops(b, prompt)
        rate = self.hw.gpu.count * self.hw.gpu.flops * self.hw.derate.prefill_attention
        attend = Port("gpu.tensor", "run", rate, "FLOP")
        return serial(
            products=self.products(llm, b * prompt, b),
            attention=attend(flops, "2 b s^2 H d"),
            **self.overheads(llm, b * prompt, b),
        )

    def products(self, llm: LLM, tokens: Real, passes: Real) -> Span:
        """Matrix products of one layer; weights are read once a pass, experts grouped."""
        shared = without_experts(llm)
        weights = passes * shared.layer_weight_bytes(tokens / passes)
        return serial(
            shared=overlap(
                weights=self.gpus.read(weights, "weights once a pass"),
                compute=layer_compute(
                    shared, tokens, 0.0, self.gpus, "2 FLOPs a weight and token"
                ),
            ),
            experts=grouped_products(self.hw, llm, tokens, passes),
        )

    def attention(self, llm: LLM, b: Real, s: Real, tokens: Real) -> Span:
        """Decode attention of one layer, at the rate of its kernel: tokens share what is read."""
        rate = self.hw.gpu.count * self.hw.gpu.bandwidth * self.hw.derate.decode_attention
        read = Port("gpu.hbm", "read", rate)
        traffic = copies(llm, self.hw.gpu.count) * llm.cache_traffic(b, s)
        return overlap(
            read=read(traffic, "KV cache"),
            compute=self.gpus.run(tokens * llm.attention_flops(b, s), "4 b s H d"),
        )

    def overheads(self, llm: LLM, tokens: Real, passes: Real) -> dict[str, Span]:
        """Launches of a layer and its two ring all-reduces.

        A ring sends 2 (tp - 1) / tp of the activations over each GPU's link, and its latency grows
        alike: `nvlink.latency` is that of a ring without end over two. A layer of experts launches
        about as many kernels again: router, top-k, sort, gather, grouped products, scatter.
        """
        tp = self.hw.gpu.count
        ring = 2 * (tp - 1) / tp
        kernels = passes * (1 + llm.is_moe) * self.hw.gpu.launch
        launch = Port("gpu.launch", "wait", 1.0, "s")
        settle = Port("nvlink.latency", "wait", 1.0, "s")
        nvlink = link(self.hw, "nvlink", "link").outward
        activations = llm.hidden * tokens * llm.activation_width
        return {
            "launch": launch(kernels, "kernels of a layer"),
            "settle": settle(2 * passes * ring * self.hw.nvlink.latency, "two all-reduces"),
            "all_reduce": nvlink(2 * ring * tp * activations, "2 (tp-1)/tp, twice"),
            **self.between_nodes(2 * activations, 2 * passes),
        }

    def between_nodes(self, activations: Real, collectives: Real) -> dict[str, Span]:
        """All-reduces between nodes: a ring of m nodes, 2 log2(m) hops of a tree.

        Every GPU reduces its share of the node's sum over its own adapter, so a node sends
        2 (m - 1) / m of the activations over all of them. Short messages go up a tree and down,
        as NCCL counts them (tuning.cc).

        Args:
            activations: of all collectives [B].
            collectives: all-reduces [1].
        """
        if "fabric" not in self.hw.roles:
            return {}
        nodes = np.ceil(self.hw.gpu.count / self.hw.fabric.count)
        adapters = link(self.hw, "fabric", "link").outward
        hop = Port("fabric.latency", "wait", 1.0, "s")
        hops = collectives * 2 * np.log2(nodes)
        sent = 2 * (nodes - 1) / nodes * activations
        return {
            "hops": hop(hops * self.hw.fabric.latency, "2 log2(m) hops of a tree"),
            "fabric": adapters(sent, "2 (m-1)/m of the activations, twice"),
        }
