"""vLLM on two nodes of four GPUs: tensor parallel inside, pipeline between (HILOS sec. 6.6).

Symbols: b batch, s context, L layers, tp and pp degrees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.compose import overlap, serial
from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.mechanisms.gpu_layer import head_weights, prefill_compute
from nearkv.costmodel.mechanisms.serving.parallel import (
    copies,
    ring,
    sequence_bytes,
    undivided,
)
from nearkv.costmodel.model.capacity import fits, reduced_batch
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.layers import LAYER_CLASS, over_layers
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import TIMES, Reversal, system
from nearkv.costmodel.model.resources import Gpu, gpu, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine

SPLIT_BETWEEN_NODES = Reversal(
    (*TIMES, "status"),
    ("cluster_host.count",),
    "more nodes split a fixed number of GPUs between them",
)


@system(
    "vllm-multinode",
    platform="hilos-a100",
    cite="hilos",
    owns=("cluster_gpu", "cluster_host"),
    attends=tuple(LAYER_CLASS),
    reversals=(ring("cluster_gpu.count"), SPLIT_BETWEEN_NODES),
)
def vllm_multinode(hw: Machine, llm: LLM, work: Workload) -> Estimate:
    """Weights and paged KV cache in GPU memory, the batch cut to what fits.

    One micro-batch a pipeline stage keeps every stage busy; a step lets each visit all stages.

    Args:
        hw: roles cluster_gpu (count: all GPUs), cluster_host (count: nodes), cluster_pcie,
            cluster_link.
        llm, work: what runs.

    Returns:
        Prefill, one decode step and what fits, over all rounds of the reduced batch.
        Source: HILOS sec. 6.6 (the paper states the set-up, no equations).
    """
    gpus = gpu(hw, "cluster_gpu")
    usable = hw.derate.paged_memory * gpus.memory
    tp = hw.cluster_gpu.count / hw.cluster_host.count
    sequence = llm.sum_over_layers(
        lambda layer_type: sequence_bytes(layer_type, tp, work.final)
    )
    b = reduced_batch(work.batch, sequence, usable - llm.weight_bytes)
    cluster = parallel(hw, b)
    step = serial(
        layers=over_layers(
            llm, lambda layer_type: decode_layer(layer_type, b, work.context, gpus, cluster)
        ),
        head=logits(llm, b, gpus, cluster),
        **communicate(hw, llm, cluster.micro, cluster),
    )
    prefill = serial(
        layers=over_layers(
            llm, lambda layer_type: prefill_layer(layer_type, work, b, gpus, cluster)
        ),
        head=logits(llm, b, gpus, cluster),
        **communicate(hw, llm, cluster.micro * work.prompt, cluster),
    )
    rounds = work.batch / b
    held = {"weights": llm.weight_bytes, "KV cache and states": b * sequence}
    return Estimate(
        prefill=rounds * prefill,
        step=rounds * step,
        fits=fits(cluster_gpu=(held, usable)).without(undivided(llm, tp)),
        work=work,
        batch_run=b,
    )


@dataclass(frozen=True)
class Parallel:
    """How the GPUs share a batch.

    A stage has 1/pp of the layers and of the GPUs. A step takes pp stage times, each over one of
    at most pp micro-batches; with fewer, stages idle. Over all GPUs that reads every weight pp
    times, and everything else once for every stage that has no micro-batch of its own.

    Attributes:
        tp, pp: tensor-parallel degree inside a node, pipeline-parallel degree between nodes [1].
        micro: sequences of a micro-batch [1].
        idle: stage times of a step over those with work for each stage [1].
    """

    tp: Real
    pp: Real
    micro: Real
    idle: Real


def parallel(hw: Machine, b: Real) -> Parallel:
    """Return how the GPUs share a batch of b sequences.

    Raises:
        InputError: the GPUs do not divide evenly among the nodes.
    """
    gpus, nodes = hw.cluster_gpu.count, hw.cluster_host.count
    if np.any(np.mod(gpus, nodes)):
        raise InputError(
            "cluster_gpu.count must be a multiple of cluster_host.count, "
            "so that every node has as many GPUs"
        )
    micro = b / np.minimum(nodes, b)
    return Parallel(gpus / nodes, nodes, micro, nodes * micro / b)


def decode_layer(llm: LLM, b: Real, s: Real, gpus: Gpu, cluster: Parallel) -> Span:
    """One layer of a step: weights once a micro-batch, KV, 2 FLOPs a weight and token."""
    # every micro-batch reads the weights of its stage: over all GPUs, all weights pp times
    weights = cluster.pp * llm.layer_weight_bytes(cluster.micro)
    kv = cluster.idle * copies(llm, cluster.tp) * llm.cache_traffic(b, s)
    flops = llm.linear_flops(b) + llm.attention_flops(b, s)
    return overlap(
        hbm=gpus.read(weights + kv, "weights a micro-batch, KV"),
        compute=gpus.run(cluster.idle * flops, "2 FLOPs a weight and token"),
    )


def prefill_layer(llm: LLM, work: Workload, b: Real, gpus: Gpu, cluster: Parallel) -> Span:
    """One layer over all prompts."""
    return overlap(
        hbm=gpus.read(llm.layer_weight_bytes(b * work.prompt), "weights"),
        compute=cluster.idle * prefill_compute(llm, work, b, gpus),
    )


def logits(llm: LLM, b: Real, gpus: Gpu, cluster: Parallel) -> Span:
    """Output head over one token a sequence; layers are divided so that stages take as long."""
    weights = cluster.pp * head_weights(llm, b)
    flops = cluster.idle * 2 * b * llm.head_parameters
    return overlap(
        hbm=gpus.read(weights, "output head a micro-batch"),
        compute=gpus.run(flops, "output head"),
    )


def communicate(hw: Machine, llm: LLM, tokens: Real, cluster: Parallel) -> dict[str, Span]:
    """Two ring all-reduces per layer inside a node, one hand-over between nodes a step.

    A ring of tp GPUs sends 2 (tp - 1) / tp of the tensor over each GPU's link. Stages communicate
    at once, so a step waits for L layers of one micro-batch's tokens.
    """
    tp, pp = cluster.tp, cluster.pp
    pcie, fabric = link(hw, "cluster_pcie", "pcie"), link(hw, "cluster_link", "pcie")
    ring = 2 * (tp - 1) / tp * llm.hidden * tokens * llm.activation_width
    handed = (pp - 1) * llm.hidden * tokens * llm.activation_width
    reduce_all = pcie.outward(ring, "2 (tp-1)/tp of the activations")
    return {
        "all_reduce": (2 * llm.layers) * reduce_all,
        "hand_over": fabric.outward(handed, "activations to the next stage"),
    }
