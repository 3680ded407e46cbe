"""What GPUs that share a model exchange: all-reduces, tokens sent to experts, stages handed over.

Symbols: tp, ep degrees of tensor and expert parallelism, m nodes, k active experts.
"""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.algebra.span import Port, Real, Span, quotient, serial, wait
from nearkv.costmodel.mechanisms.serving.experts import most_chosen
from nearkv.costmodel.mechanisms.serving.split import GpuSplit, peer_role
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import link
from nearkv.hardware.machine import Machine


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
    peers = link(hw, role, "link").outward
    spans: dict[str, Span] = {
        "settle": wait(f"{role}.latency", times * settled, "collectives of a layer"),
        "all_reduce": peers(
            reduced + (1 - far) * sent, "2 (tp-1)/tp of the activations, twice"
        ),
    }
    if "fabric" in hw.roles:
        message = quotient(activations, split.dp * split.pp * times)
        reduced_across = reduces * crosses * settling_across(hw, near, nodes, message)
        sent_across = 2 * apart * (far > 0) * hw.fabric.latency
        across = 2 * reduces * (nodes - 1) * activations + far * sent
        spans["hops"] = wait(
            "fabric.latency", times * (reduced_across + sent_across), "between nodes"
        )
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
