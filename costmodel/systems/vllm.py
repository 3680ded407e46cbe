"""vLLM on two nodes of four GPUs: tensor parallel inside, pipeline parallel between (HILOS sec. 6.6).

Symbols: b batch, s context, L layers, tp and pp degrees.
"""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.capacity import fits, reduced_batch
from nearkv.costmodel.compose import overlap, serial
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.offload import prefill_compute
from nearkv.costmodel.registry import system
from nearkv.costmodel.resources import gpu, link
from nearkv.costmodel.span import Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine


@system("vllm-multinode", platform="hilos-a100", cite="hilos", owns=("cluster_gpu", "cluster_host"))
def vllm_multinode(hw: Machine, llm: LLM, work: Workload) -> Estimate:
    """Weights and paged KV cache in GPU memory, the batch cut to what fits.

    One micro-batch a pipeline stage keeps every stage busy; a step lets each visit all stages.

    Args:
        hw: roles cluster_gpu (count: all GPUs), cluster_host (count: nodes), cluster_pcie, cluster_link.
        llm, work: what runs.

    Returns:
        Prefill, one decode step and what fits, over all rounds of the reduced batch.
        Source: HILOS sec. 6.6 (the paper states the set-up, no equations).
    """
    s, layers = work.context, llm.layers
    tp, pp = parallel(hw)
    all_gpus = gpu(hw, "cluster_gpu")
    usable = hw.derate.paged_memory * all_gpus.memory
    per_sequence = layers * llm.kv_bytes(1, work.final)
    b = reduced_batch(work.batch, per_sequence, usable - llm.weight_bytes)

    # A stage has 1/pp of the layers and of the GPUs. A step takes pp stage times, each over one of
    # at most pp micro-batches; with fewer, stages idle. Over all GPUs that reads every weight pp
    # times, and everything else once for every stage that has no micro-batch of its own.
    micro = b / np.minimum(pp, b)
    idle = pp * micro / b
    step = overlap(
        hbm=all_gpus.read(
            pp * llm.layer_weight_bytes(micro) + idle * llm.kv_bytes(b, s),
            "weights a micro-batch, KV",
        ),
        compute=all_gpus.run(
            idle * (llm.linear_flops(b) + llm.attention_flops(b, s)), "2 FLOPs a weight and token"
        ),
    )
    prefill = overlap(
        hbm=all_gpus.read(llm.layer_weight_bytes(b * work.prompt), "weights"),
        compute=idle * prefill_compute(llm, work, b, all_gpus),
    )
    rounds = work.batch / b
    return Estimate(
        prefill=rounds
        * serial(layers=layers * prefill, **communicate(hw, llm, micro * work.prompt, tp, pp)),
        step=rounds * serial(layers=layers * step, **communicate(hw, llm, micro, tp, pp)),
        fits=fits(cluster_gpu=(llm.weight_bytes + b * per_sequence, usable)),
        work=work,
        batch_run=b,
    )


def parallel(hw: Machine) -> tuple[Real, Real]:
    """Tensor-parallel degree inside a node and pipeline-parallel degree between nodes [1].

    Raises:
        InputError: the GPUs do not divide evenly among the nodes.
    """
    gpus, nodes = hw.cluster_gpu.count, hw.cluster_host.count
    if np.any(np.mod(gpus, nodes)):
        raise InputError(
            "cluster_gpu.count must be a multiple of cluster_host.count, so that every node has as many GPUs"
        )
    return gpus / nodes, nodes


def communicate(hw: Machine, llm: LLM, tokens: Real, tp: Real, pp: Real) -> dict[str, Span]:
    """Two ring all-reduces a layer inside a node, one hand-over between nodes a step.

    A ring of tp GPUs sends 2 (tp - 1) / tp of the tensor over each GPU's link. Stages communicate
    at once, so a step waits for L layers of one micro-batch's tokens.
    """
    pcie, fabric = link(hw, "cluster_pcie", "pcie"), link(hw, "cluster_link", "pcie")
    ring = 2 * (tp - 1) / tp * llm.hidden * tokens * llm.activation_width
    return {
        "all_reduce": (2 * llm.layers) * pcie.outward(ring, "2 (tp-1)/tp of the activations"),
        "hand_over": fabric.outward(
            (pp - 1) * llm.hidden * tokens * llm.activation_width, "activations to the next stage"
        ),
    }
