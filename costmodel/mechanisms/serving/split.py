"""Split of a model over GPUs: degrees of parallelism, what each holds, and what they exchange.

Symbols: tp, dp, pp, ep degrees of tensor, data, pipeline and expert parallelism, n tokens,
k active experts, h hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import (
    TINY,
    Booleans,
    Port,
    Real,
    Span,
    choose,
    quotient,
    serial,
)
from nearkv.costmodel.mechanisms.serving.dimm import imbalance
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import link
from nearkv.hardware.machine import Machine


@dataclass(frozen=True)
class GpuSplit:
    """Degrees of parallelism.

    Attributes:
        tp: GPUs that share every product of a stage (Megatron-LM, sec. 3) [1].
        dp: replicas, each with requests of its own [1].
        pp: stages, each with its part of the layers [1].
        ep: GPUs, or groups of them, that each hold other experts of a layer [1].
        attention_dp: 1 where each GPU attends to sequences of its own, with all heads, 0 where
            the tp GPUs share the heads [1].
        node: GPUs that the links of a node join [1].
    """

    tp: Real
    dp: Real
    pp: Real = 1.0
    ep: Real = 1.0
    attention_dp: Real = 0.0
    node: Real = np.inf

    @property
    def gpus(self) -> Real:
        """GPUs at work [1]."""
        return self.tp * self.dp * self.pp

    @property
    def attention_tp(self) -> Real:
        """GPUs of a stage that share the heads of a sequence [1]."""
        return choose(np.greater(self.attention_dp, 0), 1.0, self.tp)

    @property
    def attention_copies(self) -> Real:
        """Times that a stage of a replica holds the matrices of its attention [1]."""
        return self.tp / self.attention_tp

    @property
    def replicas(self) -> Real:
        """Groups of GPUs of which each has sequences of its own [1]."""
        return self.dp * self.attention_copies

    @property
    def expert_group(self) -> Real:
        """GPUs of a stage that hold every expert once between them [1]."""
        return np.maximum(self.tp, self.ep)

    def slices(self, layer: LLM) -> Real:
        """GPUs that share one expert, or the feed-forward layer of a dense layer [1]."""
        of_an_expert = self.expert_group / self.ep
        return choose(np.greater(layer.is_moe, 0), of_an_expert, self.tp)

    @property
    def dispatches(self) -> Booleans:
        """True if tokens travel to the GPUs of their experts, which do not have them yet."""
        apart = np.greater(self.attention_dp, 0) | np.greater(self.ep, self.tp)
        return apart & np.greater(self.ep, 1)

    def micro_batches(self, sequences: Real) -> Real:
        """Parts in which a replica's sequences pass the stages, at most one a stage [1]."""
        return np.clip(sequences / self.dp, 1.0, self.pp)

    def fullest(self, layers: Real) -> Real:
        """Layers of the stage that has most of them, over the mean [1]."""
        return np.ceil(layers / self.pp) * self.pp / layers

    def waiting(self, passes: Real, layers: Real) -> Real:
        """Stage times of a step over those with work for each stage alike [1].

        Args:
            passes: of a replica, prompts or micro-batches [1].
            layers: of the model; where they do not divide, the fullest stage sets the pace [1].
        """
        return np.maximum(self.pp / np.clip(passes, 1.0, self.pp), self.fullest(layers))

    def alone(self, sequences: Real) -> Real:
        """Times longer that attention takes where fewer sequences come than GPUs attend [1]."""
        present = np.minimum(np.maximum(sequences, TINY), 1.0)
        return np.maximum(quotient(self.replicas * self.pp * present, sequences), 1.0)

    def weight_bytes(self, llm: LLM, padding: Real = 1.0) -> Real:
        """Weights that all GPUs hold [B].

        Experts lie once in every group, the matrices of attention once for each set of heads.

        Args:
            llm: the model.
            padding: multiple to which kernels pad the slices of experts of 4 bits [1].
        """

        def padded_experts(layer: LLM) -> Real:
            """Experts of one layer as a kernel holds them [B]."""
            held = layer.experts * layer.expert_parameters * layer.weight_width
            inner = layer.ffn / self.slices(layer)
            padded = np.ceil(inner / padding) * padding / np.maximum(inner, 1.0)
            is_packed = np.less(layer.weight_width, 1.0)
            return layer.is_moe * held * np.where(is_packed, padded, 1.0)

        experts = llm.sum_over_layers(padded_experts)
        attention = llm.sum_over_layers(_attention_bytes)
        groups = self.tp * self.dp / self.expert_group
        again = (self.attention_copies - 1) * attention
        of_file = llm.sum_over_layers(_expert_bytes)
        return self.dp * (llm.weight_bytes - of_file + again) + groups * experts


def _expert_bytes(layer: LLM) -> Real:
    """Experts of one layer, 0 of a dense one [B]."""
    return layer.is_moe * layer.experts * layer.expert_parameters * layer.weight_width


def _attention_bytes(layer: LLM) -> Real:
    """Matrices of attention of one layer [B]."""
    return layer.attention_parameters * layer.attention_width


# --- what GPUs exchange -----------------------------------------------------------------------


def peer_role(hw: Machine) -> str:
    """The links between GPUs of a node: NVLink and its like, or PCIe where cards have none."""
    return "nvlink" if "nvlink" in hw.roles else "gpu_link"


def node_size(hw: Machine) -> Real:
    """GPUs that the links of a node join; 1 without links [1]."""
    role = peer_role(hw)
    return hw[role].count if role in hw.roles else 1.0


def unjoined(hw: Machine, split: GpuSplit) -> dict[str, Booleans]:
    """Mask of GPUs that share a model and are joined by no link, by the sentence that says so."""
    group = np.maximum(split.tp * split.pp, split.ep)
    beyond = np.greater(group, split.node)
    if "fabric" not in hw.roles:
        sentence = "no fabric joins more GPUs than the links of a node do"
        return {f"{sentence} (set {peer_role(hw)}.count)": beyond}
    shared = split.expert_group
    partly = np.greater(shared, split.node) & (np.mod(shared, split.node) > 0)
    return {"GPUs do not fill whole nodes": partly}


def exchanges(
    hw: Machine, layer: LLM, split: GpuSplit, tokens: Real, times: Real
) -> dict[str, Span]:
    """Collectives of one layer: two ring all-reduces, or tokens sent to their experts.

    All-reduces over tp GPUs follow attention, unless each GPU has attended alone, and the
    feed-forward layer (Megatron-LM, sec. 3). Where tokens must travel to their experts, they go
    and come back (all-to-all) in place of the second. A ring sends 2 (tp - 1) / tp of the
    activations over each GPU's link; between m nodes every GPU reduces its part of the sum,
    2 (m - 1) / m, over its adapter.

    Args:
        hw: the machine with the GPUs at work; roles nvlink or gpu_link, and fabric between nodes.
        layer: a model whose layers are all like it.
        split: the degrees of parallelism.
        tokens: computed, over all replicas [1].
        times: that a GPU takes part in each collective [1].
    """
    role = peer_role(hw)
    if role not in hw.roles:
        return {}
    near = np.minimum(split.tp, split.node)
    nodes = split.tp / near
    crosses = np.greater(nodes, 1)
    apart = layer.is_moe * split.dispatches
    reduces = 1 - split.attention_dp + 1 - apart
    activations = layer.hidden * tokens * layer.activation_width
    sent = apart * dispatched(layer, split, tokens)
    group = np.minimum(split.expert_group, split.node)
    far = 1 - group / split.expert_group
    settled = reduces * ~crosses * settling(hw, near) + 2 * apart * settling(hw, group)
    reduced = 2 * reduces * (near - 1) * nodes * activations
    settle = Port(f"{role}.latency", "wait", 1.0, "s")
    peers = link(hw, role, "link").outward
    spans: dict[str, Span] = {
        "settle": settle(times * settled, "collectives of a layer"),
        "all_reduce": peers(
            reduced + (1 - far) * sent, "2 (tp-1)/tp of the activations, twice"
        ),
    }
    if "fabric" in hw.roles:
        message = quotient(activations, split.dp * split.pp * times)
        reduced_across = reduces * crosses * settling_across(hw, near, nodes, message)
        sent_across = 2 * apart * np.greater(far, 0) * hw.fabric.latency
        wait = Port("fabric.latency", "wait", 1.0, "s")
        across = 2 * reduces * (nodes - 1) * activations + far * sent
        spans["hops"] = wait(times * (reduced_across + sent_across), "between nodes")
        spans["fabric"] = adapters(hw, split)(across, "2 (m-1)/m of the activations, twice")
    return spans


def settling(hw: Machine, gpus: Real) -> Real:
    """Fixed time of one collective over GPUs of a node [s].

    Behind a switch it grows as the bytes of a ring do, `latency` being that of a ring without end
    over two; in a ring over PCIe, and of AttAcc's model, each further GPU adds a `hop`.
    """
    peer = hw[peer_role(hw)]
    switched = 2 * (gpus - 1) / gpus * peer.maybe("latency", 0.0)
    return switched + (gpus - 1) * peer.maybe("hop", 0.0)


def settling_across(hw: Machine, near: Real, nodes: Real, message: Real) -> Real:
    """Fixed time of one all-reduce over GPUs of several nodes [s].

    An engine's own kernels end with the node, so NCCL reduces over all GPUs (vLLM's
    `CustomAllreduce`): t = start + (g - 1) hop + 2 log2(m) latency + min(s / (a r), long). It
    starts, passes the g GPUs of each node, and goes up a tree of m nodes and down. A message of s
    bytes fills a adapters at r until the protocol for long messages is faster. Measured on two
    and four nodes of eight H100 (nccl-tests, issue 309).

    Args:
        hw: role fabric.
        near: GPUs of each node [1].
        nodes: that take part [1].
        message: bytes that each GPU reduces [B].
    """
    fabric = hw.fabric
    shortest = fabric.start + (near - 1) * fabric.hop + 2 * np.log2(nodes) * fabric.latency
    growing = message / (fabric.count * fabric.short_rate)
    return shortest + np.minimum(growing, fabric.long)


def adapters(hw: Machine, split: GpuSplit) -> Port:
    """Adapters of all nodes at work, `fabric.count` in each [B]."""
    nodes = np.maximum(split.gpus / split.node, 1.0)
    of_a_node = link(hw, "fabric", "link").outward
    return of_a_node.with_rate(nodes * of_a_node.rate)


def most_chosen(layer: LLM, copies: Real, ranks: Real) -> Real:
    """Choices of the fullest of some GPUs, each with as many experts, over the mean [1].

    The variance of a GPU's choices is that of the multinomial, R / m, and that of the shares of its
    experts: as of fewer choices, m / (1 + m var).

    Args:
        layer: a model whose layers are all like it.
        copies: tokens times the experts that each chooses [1].
        ranks: GPUs, or groups of them, with other experts each [1].
    """
    alike = copies / (1 + copies * layer.choice_variance)
    return imbalance(alike, ranks, 1.0)


def dispatched(layer: LLM, split: GpuSplit, tokens: Real) -> Real:
    """Activations sent to other experts' GPUs and back, as if all sent as much as the fullest [B].

    A token goes once to each of the ep (1 - (1 - 1/ep)^k) places where it has experts, of which
    one in ep is its own.
    """
    places = split.ep * (1 - (1 - 1 / split.ep) ** layer.active_experts)
    others = places * (1 - 1 / split.ep)
    fullest = most_chosen(layer, tokens * layer.active_experts, split.ep)
    return 2 * others * fullest * layer.hidden * tokens * layer.activation_width


def hand_over(hw: Machine, llm: LLM, split: GpuSplit, tokens: Real) -> Span:
    """Activations that each stage hands to the next, in a pass of all tokens."""
    handed = (split.pp - 1) * llm.hidden * tokens * llm.activation_width
    role = peer_role(hw)
    near = Port(f"{role}.out", "move", np.inf)
    if role in hw.roles:
        near = link(hw, role, "link").outward
    beyond = np.greater(split.tp * split.pp, split.node)
    spans: dict[str, Span] = {
        "near": near(~beyond * handed, "activations to the next stage")
    }
    if "fabric" in hw.roles:
        spans["far"] = adapters(hw, split)(beyond * handed, "activations to the next stage")
    return serial(**spans)
