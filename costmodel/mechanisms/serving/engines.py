"""An engine on GPUs: the memory that it fills, what it keeps there, and its defaults."""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.algebra.span import Real, choose
from nearkv.costmodel.mechanisms.serving.split import GpuSplit
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, KnobRule
from nearkv.hardware.machine import Machine


def usable_memory(hw: Machine) -> Real:
    """Memory of all GPUs that the engine fills; what it leaves holds graphs [B]."""
    return hw.engine.paged_memory * hw.gpu.count * hw.gpu.memory


def of_engine(hw: Machine, key: str) -> Real:
    """A default of the engine, which may be another on GPUs of little memory [1]."""
    engine = hw.engine
    is_large = hw.gpu.memory >= engine.large_memory
    return choose(is_large, engine[key], engine.maybe(f"{key}_small", engine[key]))


def engine_rule(key: str) -> KnobRule:
    """The rule of a knob by which it is a default of the engine."""
    return lambda hw, llm, work, stated: of_engine(hw, key)


CHUNK = Knob(
    "tokens of a prompt that pass the layers together; 0: the whole prompt; engine: its own number",
    high=131_072,
    default="engine",
    kind="count",
    rules={"engine": engine_rule("chunk")},
    of_work="chunk",
)


def engine_memory(hw: Machine, llm: LLM, split: GpuSplit, chunk: Real) -> Real:
    """Memory that the engine keeps on all GPUs at work beside weights and caches [B].

    It profiles an iteration of `chunk` tokens, of every replica where they travel to experts, and
    the sampling of as many sequences as it ever runs (vLLM, `determine_available_memory`). Of
    what a token holds tp GPUs share all but its copies, one an expert that it has chosen.

    Args:
        hw, llm, split: what runs on which GPUs.
        chunk: tokens of an iteration [1].
    """
    engine = hw.engine
    gathered = np.where(split.dispatches, split.replicas, 1.0) * chunk
    tokens = np.minimum(gathered, np.maximum(engine.maybe("experts_chunk", np.inf), chunk))
    chosen = llm.most_of_a_layer(lambda layer: layer.is_moe * layer.active_experts)
    copies = tokens * chosen * llm.hidden * llm.activation_width
    activations = llm.activation_bytes(tokens) / split.tp + copies
    sampled = of_engine(hw, "sequences") * llm.vocab * engine.sampler
    return split.gpus * (engine.reserved + engine.activations * activations + sampled)


def looked_up_on_host(hw: Machine, llm: LLM) -> Real:
    """Token embeddings that the engine keeps in host memory, of cards with one of their own [B]."""
    if "pool" in hw.gpu:
        return 0.0
    held = (llm.embedding_parameters - llm.head_parameters) * llm.embedding_width
    return hw.engine.maybe("host_embeddings", 0.0) * held


def weights_held(hw: Machine, llm: LLM, split: GpuSplit, mtp: Real) -> Real:
    """Weights on all GPUs at work, or offloaded from them, with the layer that drafts [B].

    Args:
        hw, llm, split: what runs on which GPUs.
        mtp: tokens drafted for each sequence in a step [1].
    """
    drafting = split.dp * mtp * llm.mtp_parameters * llm.weight_width
    on_host = split.dp * looked_up_on_host(hw, llm)
    return split.weight_bytes(llm, hw.engine.padding) + drafting - on_host
