"""Split of a model over GPUs: degrees of parallelism, what each GPU holds, and which may be.

Symbols: tp, dp, pp, ep degrees of tensor, data, pipeline and expert parallelism.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from nearkv.costmodel.algebra.span import (
    TINY,
    Booleans,
    Numbers,
    Real,
    choose,
    quotient,
    total,
)
from nearkv.costmodel.model.llm import LLM
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
        return choose(self.attention_dp > 0, 1.0, self.tp)

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
        return choose(layer.is_moe > 0, of_an_expert, self.tp)

    @property
    def dispatches(self) -> Booleans:
        """True if tokens travel to the GPUs of their experts, which do not have them yet."""
        apart = np.greater(self.attention_dp, 0) | (self.ep > self.tp)
        return apart & (self.ep > 1)

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
            inner = layer.ffn / self.slices(layer)
            padded = np.ceil(inner / padding) * padding / np.maximum(inner, 1.0)
            is_packed = layer.weight_width < 1.0
            return _expert_bytes(layer) * np.where(is_packed, padded, 1.0)

        experts = llm.sum_over_layers(padded_experts)
        attention = llm.sum_over_layers(
            lambda layer: layer.attention_parameters * layer.attention_width
        )
        groups = self.tp * self.dp / self.expert_group
        again = (self.attention_copies - 1) * attention
        of_file = llm.sum_over_layers(_expert_bytes)
        return self.dp * (llm.weight_bytes - of_file + again) + groups * experts


def _expert_bytes(layer: LLM) -> Real:
    """Experts of one layer, 0 of a dense one [B]."""
    return layer.is_moe * layer.experts * layer.expert_parameters * layer.weight_width


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
    beyond = group > split.node
    if "fabric" not in hw.roles:
        sentence = "no fabric joins more GPUs than the links of a node do"
        return {f"{sentence} (set {peer_role(hw)}.count)": beyond}
    shared = split.expert_group
    partly = (shared > split.node) & (np.mod(shared, split.node) > 0)
    return {"GPUs do not fill whole nodes": partly}


def undivided(llm: LLM, tp: Real) -> dict[str, Booleans]:
    """Mask of heads that do not divide over tp GPUs, by the sentence that says so.

    Engines give every GPU as many query heads as any other, and whole KV heads or a copy of one
    (vLLM, `verify_with_parallel_config`). A state divides by its channels.
    """
    uneven: Booleans = np.zeros((), bool)
    for layer_type in (llm.layer_types or {"": llm}).values():
        shards = layer_type.cache_shards
        if np.all(np.isinf(shards)):
            continue
        copied = np.mod(tp, shards) == 0
        kept = copied | (shards % tp == 0)
        divides = kept & (layer_type.heads % tp == 0)
        uneven = uneven | (~divides & (layer_type.layers > 0))
    return {"heads do not divide over this many GPUs": uneven}


def indivisible(llm: LLM, split: GpuSplit) -> dict[str, Booleans]:
    """Mask of layers, heads and experts that do not divide, by the sentence that says so."""
    experts = llm.most_of_a_layer(lambda layer: layer.experts * layer.is_moe)
    few = split.ep > np.maximum(experts, 1.0)
    group = split.expert_group
    rests = [
        experts % split.ep,
        split.tp * split.dp % group,
        group % split.ep,
        group % split.tp,
    ]
    cut = llm.most_of_a_layer(lambda layer: layer.ffn % split.slices(layer))
    return {
        **undivided(llm, split.attention_tp),
        "there are more stages than layers": np.greater(split.pp, llm.layers),
        "the feed-forward layer does not divide over this many GPUs": np.greater(cut, 0),
        "experts do not divide over this many GPUs": few
        | ((split.ep > 1) & (total(rests) > 0)),
    }


def splits(hw: Machine, llm: LLM) -> Mapping[str, Numbers]:
    """All splits that GPUs, heads, layers and experts allow.

    Args:
        hw: role gpu; of several counts, those of the largest are tried.
        llm: the model.

    Returns:
        Values of each knob, as many as there are splits [1].
    """
    most = int(np.max(hw.gpu.count))
    degrees = np.arange(1, most + 1.0)
    if np.all(hw.engine.by_layers):
        one = np.ones_like(degrees)
        return {"tp": one, "pp": degrees, "dp": one, "ep": one, "attention": 0 * one}
    layer_types = tuple(llm.layer_types.values()) or (llm,)
    layers = np.ravel(llm.layers)[:, np.newaxis]
    fullest = np.ceil(layers / degrees)
    # stages beyond the fewest with as many layers in the fullest have no more room
    pps = np.unique(np.ceil(layers / fullest))
    experts = np.ravel(llm.most_of_a_layer(lambda layer: layer.experts * layer.is_moe))
    eps = [ep for ep in degrees if ep == 1 or np.any(experts[experts > 0] % ep == 0)]
    tried = list[tuple[float, ...]]()
    for tp in degrees:
        heads_divide = any(np.any(kind.heads % tp == 0) for kind in layer_types)
        attention = [0.0] if heads_divide else []
        if tp > 1:
            attention.append(1.0)
        for pp in pps:
            for dp in degrees[: int(most // (tp * pp))]:
                own = [ep for ep in eps if ep <= tp * dp and (ep % tp == 0 or tp % ep == 0)]
                tried += product([tp], [pp], [dp], own, attention)
    names = ("tp", "pp", "dp", "ep", "attention")
    return dict(zip(names, np.array(tried).T, strict=True))
